"""Whether a method finds a fit again in tables that are drawn from it.

Rows are drawn at the estimate, or at draws of q: labels by the weights of the clusters that hold rows,
latents from their prior, cells from the program, missing where they are in the fitted table. Each table is
fitted by the same call, with the model as it was filled for the fitted table.
"""

import json
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import comb

from inference.convergence.identifiable import in_standard_units
from inference.convergence.numbering import cluster_dim
from inference.extension import replicate
from inference.fitting.front_door import fit
from inference.methods import method_of
from inference.precision import double_precision
from inference.prediction import draws_without_rows, has_estimate, log_density, predict
from inference.results.files import model_of
from inference.results.groups import (
    group_of,
    loadings_of,
    responsibilities_of,
    restored_data,
    sample_weight_of,
)
from zoo.answers import completions_of
from zoo.checks import check_size, check_whole
from zoo.model import Model

HELD_OUT = 5  # one row of so many
_LEAST_ROWS = 10
_OCCUPIED = 0.5  # expected rows of a cluster that holds any
_NOT_OF_THE_CALL = {"drops_starts", "learnt_from"}


@double_precision
def recovery(
    tree: xr.DataTree, *, num_tables: int = 20, seed: int = 0, progress: bool | None = None
) -> pd.DataFrame:
    """Draw tables from a fit and fit them by the same call: does the method find what they were drawn from?

    The answer is about the method, on tables such as this fit draws, and not about whether the fit is true.
    For that the log density of rows that were held out stands beside: those of the fitted table, from a
    further fit to four fifths of it, and those of the drawn tables, each under the fit to another.

    Args:
        tree: a fit of one table by VB, EM or another estimate, that holds its rows.
        num_tables: how many are drawn.
        seed: of the tables and of their fits, a whole number.
        progress: whether to print the cost before the first fit; None: yes.

    Returns:
        A row a table: ``clusters`` in it and ``found``, ``labels``, the adjusted Rand index of drawn labels
        and those of the new fit, ``labels_known``, of drawn labels and those that the given fit would give,
        ``subspace``, the mean squared cosine of the angles between both spans of loadings, ``log_density``,
        nats a row of another drawn table, and ``converged``. In ``attrs``: ``said``, the outcome in words,
        ``note``, what it is about, and ``held_out``, nats a row of the fitted table.

    Raises:
        ValueError: a fit of draws, in batches, of several tables or of documents, without rows, without
            clusters or loadings, or of fewer than ten rows.

    Example:
        >>> import numpy as np, inference, zoo
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(40, 1)) * [3.0, 2.0, 1.0] + rng.normal(size=(40, 3)) / 4
        >>> tree = inference.fit(zoo.PPCA(num_latents=1), x, method="closed_form")
        >>> table = inference.calibration.recovery(tree, num_tables=2, progress=False)
        >>> bool((table["subspace"] > 0.9).all())
        True
    """
    check_size("num_tables", num_tables)
    check_whole("seed", seed, least=0)
    model, x, call = _checked(tree)
    if progress is not False:
        print(_cost(tree, num_tables), flush=True)
    rng = np.random.default_rng(seed)
    seeds = [int(value) for value in rng.integers(2**32, size=num_tables + 1)]
    drawn, labels, draws = _tables(tree, model, x, num_tables, rng)
    held = np.zeros(len(x), bool)
    held[rng.permutation(len(x))[: len(x) // HELD_OUT]] = True
    found = []
    for place in range(num_tables):
        new = _fitted(model, drawn[place], call, seeds[place])
        one = _clusters_found(tree, new, drawn[place], labels[place]) if labels is not None else {}
        one |= _subspace_found(model, {name: value[place] for name, value in draws.items()}, new)
        fresh = drawn[(place + 1) % num_tables][held]
        one |= {"log_density": _mean_density(new, fresh), "converged": bool(new.attrs["converged"])}
        found.append(one)
    part = _fitted(model, x[~held], call | _weights_of(call, ~held), seeds[-1])
    table = pd.DataFrame(found).rename_axis("table")
    table.attrs |= {
        "held_out": _mean_density(part, x[held]),
        "note": f"this is about the method {tree.attrs['method']} on tables such as this fit draws, and not "
        "about whether the fit is true",
    }
    table.attrs["said"] = _in_words(table)
    return table


# Before the first fit


def _checked(tree: xr.DataTree) -> tuple[Model, np.ndarray, dict[str, Any]]:
    """The model, the fitted table and the call; ValueError for a fit that is not drawn again."""
    model, attrs = model_of(tree), tree.attrs
    method = method_of(model, attrs["method"])
    if not has_estimate(method):
        raise ValueError(f"this fit by {attrs['method']} has draws; tables are drawn from fits by vb or em")
    if "batch_size" in attrs:
        raise ValueError("this fit was made in batches, and the same call is not repeated: fit in memory")
    if len(model.data_names) > 1 or model.data[0].holds_documents:
        raise ValueError(f"tables are drawn from fits of one table; {attrs['model']} is not of one")
    if not _has_shares(model) and not loadings_of(tree):
        raise ValueError(f"{attrs['model']} has no clusters and no loadings, which could be found again")
    (x,) = restored_data(group_of(tree, "observed_data"), model)
    if not isinstance(x, np.ndarray):
        raise ValueError("the rows of this fit are sparse; tables are drawn dense: fit x.toarray()")
    if len(x) < _LEAST_ROWS:
        raise ValueError(f"a fit of {len(x)} rows is not checked; it needs {_LEAST_ROWS} or more")
    options = json.loads(attrs["options"])
    call = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in options.items()
        if name not in _NOT_OF_THE_CALL and (name != "init" or value in getattr(method, "strategies", ()))
    }
    if options.get("drops_starts"):
        del call["num_restarts"]
    call |= {"method": attrs["method"], "dtype": attrs["dtype"]}
    if (weight := sample_weight_of(tree)) is not None:
        call["sample_weight"] = weight
    return model, x, call


def _has_shares(model: Model) -> bool:
    """Whether rows have clusters."""
    return "clusters" in completions_of(model)


def _weights_of(call: Mapping[str, Any], rows: np.ndarray) -> dict[str, Any]:
    return {"sample_weight": call["sample_weight"][rows]} if "sample_weight" in call else {}


def _cost(tree: xr.DataTree, num_tables: int) -> str:
    seconds = float(tree.attrs.get("sampling_time", np.nan))
    return (
        f"{num_tables + 1} fits like this one, which took {seconds:.1f} s with compilation: about "
        f"{seconds * (num_tables + 1):.0f} s at most"
    )


# Tables


def _tables(
    tree: xr.DataTree, model: Model, x: np.ndarray, num_tables: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray | None, dict[str, np.ndarray]]:
    """Drawn tables, shape (tables, rows, columns), the labels of their rows, and what they were drawn at."""
    draws = {name: np.asarray(value) for name, value in draws_without_rows(tree, num_tables).items()}
    number = len(next(iter(draws.values())))
    draws = {name: value[np.arange(num_tables) % number] for name, value in draws.items()}
    given, labels = dict(draws), None
    if _has_shares(model):
        weights = np.where(_holds_rows(tree, model, x), draws[model.roles.weight], 0.0)
        ends = np.cumsum(weights, axis=1)
        places = rng.random((num_tables, len(x), 1)) * ends[:, None, -1:]
        labels = np.sum(places >= ends[:, None, :-1], axis=2)
        given[model.roles.cluster] = labels
    keys = jax.random.split(jax.random.key(int(rng.integers(2**32))), num_tables)
    (name,) = model.data_names
    drawn = np.asarray(replicate(keys, given, model.explicit, (np.nan_to_num(x),))[name], float)
    return np.where(np.isnan(x), np.nan, drawn), labels, draws


def _holds_rows(tree: xr.DataTree, model: Model, x: np.ndarray) -> np.ndarray:
    """Whether each cluster holds rows of the fit, in the order of `draws_without_rows`."""
    sizes = _shares(tree, x).sum(0)
    stick = tree["posterior"].coords.get(f"stick_of_{cluster_dim(model)}")
    if stick is not None:
        sizes = sizes[np.argsort(stick.to_numpy())]
    return sizes > _OCCUPIED


def _shares(tree: xr.DataTree, x: np.ndarray) -> np.ndarray:
    held = responsibilities_of(tree)
    return (predict(tree, x, what="probabilities") if held is None else held).to_numpy()


def _fitted(model: Model, x: np.ndarray, call: Mapping[str, Any], seed: int) -> xr.DataTree:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fits that did not converge are counted
        return fit(model, x, seed=seed, progress=False, **call)


# What was found


def _clusters_found(
    tree: xr.DataTree, new: xr.DataTree, x: np.ndarray, labels: np.ndarray
) -> dict[str, float]:
    shares = _shares(new, x)
    return {
        "clusters": len(np.unique(labels)),
        "found": int((shares.sum(0) > _OCCUPIED).sum()),
        "labels": _adjusted_rand(labels, shares.argmax(1)),
        "labels_known": _adjusted_rand(labels, predict(tree, x).to_numpy()),
    }


def _adjusted_rand(one: np.ndarray, other: np.ndarray) -> float:
    """The adjusted Rand index of two partitions (Hubert and Arabie 1985); 1 where both are trivial alike."""
    table = pd.crosstab(one, other).to_numpy()
    both, rows, columns = (comb(count, 2).sum() for count in (table, table.sum(1), table.sum(0)))
    expected, most = rows * columns / comb(len(one), 2), (rows + columns) / 2
    return 1.0 if most == expected else float((both - expected) / (most - expected))


def _subspace_found(model: Model, draw: Mapping[str, np.ndarray], new: xr.DataTree) -> dict[str, float]:
    """Mean squared cosine of the principal angles between the spans of loadings, of the worst view."""
    sites = {suffix: draw[site] for site, suffix in model.roles.loadings.items() if site in draw}
    if not sites:
        return {}
    means = {suffix: value.mean(("chain", "draw")).to_numpy() for suffix, value in loadings_of(new).items()}
    before, after = in_standard_units(model, sites), in_standard_units(model, means)
    return {"subspace": min(_same_span(before[suffix], after[suffix]) for suffix in before)}


def _same_span(one: np.ndarray, other: np.ndarray) -> float:
    """1 of equal spans, 0 of orthogonal ones; directions of no length span nothing."""
    bases = []
    for loadings in (one, other):
        left, sizes, _ = np.linalg.svd(loadings, full_matrices=False)
        bases.append(left[:, sizes > 1e-3 * sizes[0]])
    return float(np.sum((bases[0].T @ bases[1]) ** 2) / max(base.shape[1] for base in bases))


def _mean_density(tree: xr.DataTree, x: np.ndarray) -> float:
    return float(log_density(tree, x).mean())


def _in_words(table: pd.DataFrame) -> str:
    number = len(table)
    told = []
    if "found" in table:
        right = int((table["found"] == table["clusters"]).sum())
        told.append(f"the number of clusters came back in {right} of {number} tables")
        told.append(f"labels with an adjusted Rand index of {_span(table['labels'])}")
        told[-1] += f" (the fit itself would give {table['labels_known'].median():.2f})"
    if "subspace" in table:
        told.append(f"subspaces with a mean squared cosine of {_span(table['subspace'])}")
    told.append(f"{int(table['converged'].sum())} of {number} fits had converged")
    low, high, own = table["log_density"].min(), table["log_density"].max(), table.attrs["held_out"]
    where, chance = "in", ""
    if not low <= own <= high:
        where = "below" if own < low else "above"
        chance = f" (one more drawn table would be outside in 2 of {number + 1} cases)"
    return (
        f"{'; '.join(told)}. Rows held out of the fitted table have {own:.4g} nats each, {where} the range "
        f"of the drawn tables, {low:.4g} to {high:.4g}{chance}"
    )


def _span(values: pd.Series) -> str:
    return f"{values.median():.2f} ({values.min():.2f} to {values.max():.2f})"
