r"""Sensitivity of a fit to its prior: what its answers owe to what was assumed.

It is measured by power-scaling, on quantities that a symmetry cannot change (Kallioinen,
Paananen, Buerkner and Vehtari 2024, "Detecting and diagnosing prior and likelihood sensitivity with
power-scaling"): the prior, or the likelihood, is raised to a power near one and the draws are weighted
anew; quantities that move depend on it. The computation is ArviZ's ``psense_summary``, which has a
dimension called ``component``, as mixtures do, so that it cannot be given a mixture's parameters unchanged.

The prior is that of parameters: latents of single rows belong to the model of the rows, and neither power
scales their density. Densities are no answers, and are left out.

A distance of 0.05 is that of a normal mean which would move by 0.4 of its posterior deviation if the prior
counted twice. It is a statement about how much the data say, and no fault of the model: of 20 data sets of
80 rows each drawn from model and proper prior, and fitted by Gibbs with that prior, a quantity moved by more
in 16 of 19 of `zoo.PPCA` (4 columns, 1 latent, prior deviations 1 of loadings), in 6 of 15 of a Gaussian and
in 3 of 18 of a Poisson `zoo.Mixture` of 2 components (the others had not converged).

The weights must be good ones: their Pareto k below the threshold of LOO, and their effective sample size at
least 100. Where components without rows are left out of the prior, every draw must have the same number of
parameters: a density has a unit, so that the power of one of more parameters favours or penalises them by
whatever unit the data have.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pandas as pd
import xarray as xr

from inference.convergence.identifiable import invariants, kind_of, scalars
from inference.extension import check_densities_are_cheap, extend, prior_of_parameters
from inference.results.files import model_of
from inference.results.groups import check_all_rows, group_of, labels_of, thinned, with_groups
from zoo import late
from zoo.answers import answer_of, has_answer
from zoo.checks import first_of
from zoo.dirichlet_process import truncation_of

_DENSITIES = ("lp", "objective", "mean_log_likelihood")  # which every power moves
_ALPHAS = (0.99, 1.01)
_LEAST_ESS = 100  # of the weights
_MOST_SCALED = 4000  # draws that are weighted: more tell nothing new
_MUCH = 0.05  # cumulative Jensen-Shannon distance


def prior_sensitivity(
    tree: xr.DataTree, var_names: Sequence[str] | None = None, *, force: bool = False
) -> pd.DataFrame:
    """Compute the sensitivity of a fit's invariants, or of parameters, to its prior and its likelihood.

    Args:
        tree: a fit by a sampler; its log prior is made if it is not there.
        var_names: variables of ``posterior``; None: the invariants (`inference.diagnostics.invariants`).
        force: compute it where it is refused, for a fit that has not converged or weights that are noise; the
            attribute ``note`` then gives the reason not to believe it.

    Returns:
        A row a quantity: ``prior``, ``likelihood`` (cumulative Jensen-Shannon distances; above 0.05 is much),
        ``diagnosis``, and ``prior_noise`` (what the prior's weights give where they are shuffled among the
        draws: a smaller distance means nothing, and the diagnosis says so). Quantities that are the same in
        every draw are left out. The attribute ``reliability`` is a table of the weights: ``deviation`` (of
        the log prior or likelihood over draws, nats), ``pareto_k``, ``good_k`` and ``ess``.

    Raises:
        ValueError: a fit that has no draws of its posterior, no such variables, or nothing that varies;
            a tree that rows were cut off.
            Unless ``force``: a fit that has not converged, a prior whose weights are noise, or a mixture
            whose draws have different numbers of components with rows.
    """
    if kind_of(tree) != "sampling":
        raise ValueError(
            "prior sensitivity is computed from posterior draws; method "
            f"{tree.attrs['method']!r} has none: fit by a sampler, such as nuts"
        )
    doubts = []
    if not int(tree.attrs.get("converged", 1)):
        doubts.append(
            "this fit has not converged: its draws are not yet those of the posterior; run it longer"
        )
        if not force:
            raise ValueError(f"{doubts[0]} (or force=True)")
    check_all_rows(tree)
    check_densities_are_cheap(tree)
    tree = thinned(tree, _MOST_SCALED)
    posterior = group_of(tree, "posterior")
    unknown = [name for name in var_names or () if name not in posterior]
    if unknown:
        raise ValueError(f"the posterior has no {unknown[0]!r}; it has {', '.join(map(str, posterior))}")
    chosen = invariants(tree) if var_names is None else posterior[list(var_names)]
    draws = {
        name: (("chain", "draw"), values)
        for name, values in scalars(chosen)
        if (var_names is not None or name not in _DENSITIES) and np.ptp(values) > 0
    }
    if not draws:
        raise ValueError("every quantity asked for is the same in all draws: nothing can move")
    if not answer_of(model_of(tree), "sums_out_locals"):
        tree = with_groups(tree, {"log_prior": prior_of_parameters(tree)})
    missing = [name for name in ("log_likelihood", "log_prior") if name not in tree.children]
    whole = extend(tree, *missing) if missing else tree
    groups = {name: group_of(whole, name) for name in ("log_likelihood", "log_prior")}
    reliability = _reliability(groups)
    bad = _noisy(reliability)
    remedy = "compare with a fit under another prior"
    if spread := _numbers_of_parameters(tree):
        doubts.append(
            f"draws have between {spread[0]} and {spread[1]} components with rows, and the prior's density "
            "is of their parameters alone: densities of different numbers of parameters have no common "
            f"power; fit with as many components as hold rows, or {remedy}"
        )
    elif "prior" in bad:
        row, size = reliability.loc["prior"], posterior.sizes["chain"] * posterior.sizes["draw"]
        weak = (
            f"rest on {row['ess']:.1f} of {size} draws" if row["ess"] < _LEAST_ESS else "hang on single draws"
        )
        doubts.append(
            f"the weights of the prior {weak} (Pareto k {row['pareto_k']:.2f}), since the log prior varies "
            f"by {row['deviation']:.0f} nats: what they show would be noise; draw more, or {remedy}"
        )
    if doubts and not force:
        raise ValueError(f"{doubts[-1]} (or force=True)")
    coords = {dim: posterior[dim] for dim in ("chain", "draw")}
    variables = xr.Dataset(draws, coords)
    with _no_messages():  # of issues, which the diagnosis and its noise tell better
        table = late.psense_summary(xr.DataTree.from_dict({"posterior": variables} | groups), alphas=_ALPHAS)
    shuffled = {"posterior": variables, "log_prior": _shuffled(groups["log_prior"])}
    noise = late.psense(xr.DataTree.from_dict(shuffled), group="prior", alphas=_ALPHAS)
    table["prior_noise"] = pd.Series({name: float(value) for name, value in noise.data_vars.items()}).round(3)
    distance, chance = (pd.to_numeric(table[name]) for name in ("prior", "prior_noise"))
    drowned = (distance > _MUCH) & (distance <= chance.max())
    table.loc[drowned, "diagnosis"] = "no more than noise"
    if "likelihood" in bad:
        table["likelihood"] = np.nan
        doubts.append("the weights of the likelihood are noise, so its column is empty")
    table.attrs |= {"reliability": reliability, "note": "; ".join(doubts)}
    return table


@contextmanager
def _no_messages() -> Iterator[None]:
    """ArviZ's log of power-scaling without messages."""
    log = logging.getLogger(late.psense_summary.__module__)
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _numbers_of_parameters(tree: xr.DataTree) -> tuple[int, int] | None:
    """Fewest and most components with rows, where the log prior is of theirs alone; None: all draws have one.

    A stick-breaking prior is of the sticks up to the last component with rows, whose place counts too.
    """
    model, posterior = model_of(tree), group_of(tree, "posterior")
    if not has_answer(model, "prior_of_occupied") or model.roles.occupied not in posterior:
        return None
    counts, labels = posterior[model.roles.occupied], labels_of(tree)
    varies = counts.min() < counts.max()
    if truncation_of(model) is not None and labels is not None:
        last = labels.max(labels.dims[-1])
        varies |= last.min() < last.max()
    return (int(counts.min()), int(counts.max())) if varies else None


def _reliability(groups: dict[str, xr.Dataset]) -> pd.DataFrame:
    """Pareto k and effective size of the weights that power-scaling gives the draws, the worse of two."""
    rows = {}
    for name in ("log_prior", "log_likelihood"):
        total = sum(
            value.sum([dim for dim in value.dims if dim not in ("chain", "draw")])
            for value in groups[name].data_vars.values()
        )
        total = total.transpose("chain", "draw").to_numpy().ravel()
        shapes, sizes = [], []
        for alpha in _ALPHAS:
            weights, k = late.array_stats.psislw(-(alpha - 1) * (total - total.mean()))
            shapes.append(float(k))
            sizes.append(float(1 / np.sum(np.exp(weights - np.logaddexp.reduce(weights)) ** 2)))
        good = min(1 - 1 / np.log10(total.size), 0.7)
        ess = min(sizes)
        rows[name.removeprefix("log_")] = (float(total.std()), max(shapes), good, ess)
    return pd.DataFrame.from_dict(rows, orient="index", columns=["deviation", "pareto_k", "good_k", "ess"])


def _noisy(reliability: pd.DataFrame) -> list[str]:
    """Names of the densities whose weights are noise."""
    needed = reliability["ess"] < _LEAST_ESS
    return list(reliability.index[needed | (reliability["pareto_k"] > reliability["good_k"])])


def _shuffled(log_prior: xr.Dataset) -> xr.Dataset:
    """The log prior of the draws in another order, which no quantity can depend on."""
    num_chains, num_draws = log_prior.sizes["chain"], log_prior.sizes["draw"]
    order = np.random.default_rng(0).permutation(num_chains * num_draws)
    stacked = log_prior.stack(sample=("chain", "draw")).isel(sample=order)
    new = log_prior.copy(deep=True)
    for name, value in log_prior.data_vars.items():
        values = stacked[name].transpose("sample", ...).to_numpy()
        inner = [dim for dim in value.dims if dim not in ("chain", "draw")]
        new[name] = (("chain", "draw", *inner), values.reshape(num_chains, num_draws, *values.shape[1:]))
    return new


def judge_prior(table: pd.DataFrame) -> tuple[bool | None, str]:
    """Judge whether the prior moves the answers of a fit.

    *Rule*: the prior decides where a quantity moves by more than 0.05 under the prior's power, and by more
    than shuffled weights move any quantity.

    Returns:
        The verdict, None for a table that was forced, and one sentence of reasons.
    """
    if table.attrs.get("note"):
        return None, str(table.attrs["note"])
    moved = pd.to_numeric(table["prior"])
    floor = max(_MUCH, float(pd.to_numeric(table["prior_noise"]).max()))
    named = list(moved[moved > floor].sort_values(ascending=False, kind="stable").index)
    if not named:
        return (
            True,
            f"none of {len(table)} quantities moves by more than {floor:.2g} when the prior is scaled",
        )
    moved = f"the prior moves {len(named)} of {len(table)} quantities by more than {floor:.2g}"
    return False, f"{moved}: {first_of(named, 5)}"
