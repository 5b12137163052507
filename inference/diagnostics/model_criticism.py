r"""Criticism of a model by posterior predictive checks: statistics of features, observed and replicated.

For a statistic
T and replications :math:`x^{rep}` from the posterior predictive, the posterior predictive p-value is
:math:`P(T(x^{rep}) \ge T(x))`, ties counted half (Gelman, Meng and Stern 1996, "Posterior predictive
assessment of model fitness via realized discrepancies"). Values near 0 or 1 name what the model does not
reproduce. They use the data twice and are therefore conservative. Missing cells are left out of the data
and of their replications.

The statistics of a feature of words are the shares of its levels, of one of zeros and ones its mean, of other
numbers the mean, spread, extremes and quantiles, the share of zeros of counts, and,
where replications are of new rows, how many of its cells lie in the middle half and the middle nine tenths of
their own predictive distributions, by their randomised rank among the replications (the probability integral
transform; ties are broken at random). Replications at the latents of the fitted rows have followed these
rows: ranks among them are too central even for a true model, and are left out. The statistic of two features
is their correlation, in a fit with clusters that within clusters: at one draw of the fit, the same for data
and replications, rows belong to clusters by their probabilities, and correlations in clusters are averaged by
the clusters' sizes. Over all rows, differences between clusters would hide what is left within them, and one
far row would rule a covariance pooled over clusters.

*Rule of the verdict.* The data and their replications are one pool. The *surprise* of a statistic of a member
is minus the log of its tail probability among the other members, in nats. A fifth of the pool on either side
is a tail; the others in it are fitted by a generalised Pareto distribution of shape 0 or more, by
probability-weighted moments (Hosking and Wallis 1987, "Parameter and quantile estimation for the generalized
Pareto distribution"). So statistics with heavy and with light tails share a scale, and members that share the
most extreme rank are told apart. A member is as surprising as its most surprising statistic (Westfall and
Young 1993, "Resampling-based multiple testing"). The data misfit where at most one member in 100, they
themselves counted, is as surprising as they are; with S < 99 replications, where no other is.

Were the data one more replication, they would misfit in at most one check of 100 (one of S + 1), however many
statistics and parts of the data there are. Data of a true model do in fewer, since the fit has followed
them. A pass says that none of these statistics shows a misfit, not that the model is true.
"""

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr

from inference.convergence.identifiable import draws_of, feature_names, kind_of
from inference.convergence.numbering import in_program_order
from inference.extension import extend
from inference.numerics.programs import over_draws
from inference.precision import double_precision, to_numpy
from inference.results.files import model_of
from inference.results.groups import ROW_DIMS, observed_tables, sample_weight_of, thinned, with_groups
from zoo.answers import answer_of, has_answer
from zoo.intake.families import for_data
from zoo.model import Model
from zoo.shapes import Values


def _quantile(probability: float):  # noqa: ANN202  (a function of cells and an axis, as the others)
    return lambda cells, axis=None: np.quantile(cells, probability, axis=axis)


STATISTICS = {
    "mean": np.mean,
    "sd": np.std,
    "smallest": np.min,
    "largest": np.max,
    "10 % quantile": _quantile(0.1),
    "median": _quantile(0.5),
    "90 % quantile": _quantile(0.9),
}
_MIDDLES = {"cells in their middle 50 %": 0.5, "cells in their middle 90 %": 0.9}
SUSPECT = 0.01  # a posterior predictive p-value nearer than this to 0 or 1 is suspect
_FALSE_ALARMS = 0.01  # of checks of true models, at most
_FEWEST_OF_VERDICT = 50  # replications
_TAIL = 0.2  # of the pool, to which a tail is fitted
_LARGEST_SHAPE = 0.99  # of a generalised Pareto distribution with a mean
_ROUNDING = 1e-12
_MOST_PAIRS = 45  # correlations: all of ten features, or the strongest in the pool
_FEWEST_FOR_PAIRS = 8  # rows
_MOST_RANKED = 2**24  # cells of all replications that are ranked


def check_features(
    observed: xr.DataArray,
    replicated: xr.DataArray,
    probability: float = 0.9,
    *,
    new_rows: bool = False,
    levels: Mapping[str, Mapping[str, int]] | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare statistics of each feature, and correlations of pairs, observed and replicated.

    Args:
        observed: the data (observation, feature), or another dim of columns; NaN where a cell is missing.
        replicated: posterior predictive draws (chain, draw, observation, feature).
        probability: content of the equal-tailed interval of the replications.
        new_rows: whether the replications are of new rows, not drawn at the latents of the fitted ones; then
            cells are ranked among them.
        levels: of columns that hold words, by name: level to number. Their statistics are the shares of the
            levels; of yes and no, that of yes.
        seed: of the ranks of tied cells.

    Returns:
        One row a feature and statistic: ``observed``, ``replicated_lb``, ``replicated_ub``, ``p`` (the share
            of replications that are larger), ``surprise`` (in nats, 0 between the tails, see the head of this
            module; NaN with fewer than 50 replications). A column without an observed cell has no row.
            `judge_features` goes by the attributes ``num_replications``, ``num_as_surprising`` (of them) and
            ``surprise_by_chance`` (of 99 in 100).

    Raises:
        ValueError: the replications are of data of another shape.
    """
    return _compared(_statistics(observed, replicated, new_rows, levels, seed), probability)


def _statistics(
    observed: xr.DataArray,
    replicated: xr.DataArray,
    new_rows: bool,
    levels: Mapping[str, Mapping[str, int]] | None,
    seed: int,
    products_of: Callable[[np.ndarray], np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Statistics of data and replications, the data first, shape (1 + draws,) each.

    ``products_of`` data sets are sums of products within clusters, shape (1 + draws, features, features).
    """
    (column,) = (str(dim) for dim in observed.dims if dim != "observation")
    x = observed.transpose("observation", column).rename({column: "feature"})
    drawn = replicated.transpose("chain", "draw", "observation", column)
    if drawn.shape[2:] != x.shape:
        raise ValueError(f"replications must have the shape of the data, {x.shape}; got {drawn.shape[2:]}")
    flat, missing = drawn.values.reshape(-1, *x.shape).astype(float), np.isnan(x.values)
    flat = np.where(missing, np.nan, flat) if missing.any() else flat
    names = feature_names(x, column.rstrip("_0123456789"))
    both = np.concatenate([x.values[None].astype(float), flat])
    found: dict[str, np.ndarray] = {}
    words = np.array([name in (levels or {}) for name in names])
    for i in np.flatnonzero(~missing.all(axis=0)):
        cells = both[:, ~missing[:, i], i]
        if words[i] and np.isin(cells, list(levels[names[i]].values())).all():  # a Gaussian cell is no level
            of_column = list(levels[names[i]].items())
            words[i] = len(of_column) > 2
            for level, number in of_column[-1:] if len(of_column) == 2 else of_column:
                found[f"{names[i]}: share of {level}"] = (cells == number).mean(-1)
            continue
        if ((cells == 0) | (cells == 1)).all():
            found[f"{names[i]}: mean"] = cells.mean(-1)
            continue
        for statistic, function in STATISTICS.items():
            found[f"{names[i]}: {statistic}"] = function(cells, axis=-1)
        if (cells == np.round(cells)).all() and cells.min() >= 0 and len(np.unique(cells[0])) > 2:
            found[f"{names[i]}: share of zeros"] = (cells == 0).mean(-1)
        if new_rows and len(flat) >= _FEWEST_OF_VERDICT and cells.size <= _MOST_RANKED:
            ranks = _ranks(cells, np.random.default_rng([seed, i]))
            for statistic, middle in _MIDDLES.items():
                found[f"{names[i]}: {statistic}"] = (np.abs(ranks - 0.5) < middle / 2).mean(-1)
    return found | _correlations(both, missing | words, names, products_of)


def _ranks(cells: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rank of every cell among those in its place, between 0 and 1, ties at random; shape (draws, cells)."""
    order = np.lexsort((rng.random(cells.shape), cells), axis=0)
    ranks = np.empty(cells.shape)
    np.put_along_axis(ranks, order, np.arange(len(cells))[:, None] + 0.5, axis=0)
    return ranks / len(cells)


def _correlations(
    both: np.ndarray,
    missing: np.ndarray,
    names: list[str],
    products_of: Callable[[np.ndarray], np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Correlations of pairs of features that have no missing cell, the strongest where there are many."""
    whole = np.flatnonzero(~missing.any(axis=0) & (np.ptp(np.nan_to_num(both), axis=1) > 0).any(axis=0))
    if len(whole) < 2 or both.shape[1] < _FEWEST_FOR_PAIRS:
        return {}
    if products_of is None:
        centred = both[..., whole] - both[..., whole].mean(1, keepdims=True)
        products = centred.swapaxes(1, 2) @ centred
    else:
        products = products_of(both)[:, whole[:, None], whole]
    first, second = np.triu_indices(len(whole), 1)
    squares = np.diagonal(products, axis1=1, axis2=2)
    sizes = np.sqrt(squares[:, first] * squares[:, second])
    values = np.where(sizes > 0, products[:, first, second], 0.0) / np.where(sizes > 0, sizes, 1.0)
    kept = np.sort(np.argsort(-(values**2).mean(0), kind="stable")[:_MOST_PAIRS])
    what = "correlation" if products_of is None else "correlation within clusters"
    return {f"{names[whole[first[k]]]} and {names[whole[second[k]]]}: {what}": values[:, k] for k in kept}


def _surprises_above(values: np.ndarray) -> np.ndarray:
    """Surprise of every value among the others of its column as one that is too large, in nats."""
    size = len(values)
    order = np.argsort(values, axis=0, kind="stable")[-1 - int(_TAIL * size) :]
    top = np.take_along_axis(values, order, axis=0)
    excess, edge = top[1:] - top[0], np.abs(top[0])
    excess = np.where(excess > _ROUNDING * edge, excess, 0.0)
    place, num = np.cumsum(excess > 0, axis=0) - 1, (excess > 0).sum(0)
    others = num - 1
    below, above = excess * (others - 1 - place), excess * (others - place)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (excess.sum(0) - excess) / others
        low = (below.cumsum(0) - below + above.sum(0) - above.cumsum(0)) / (others * (others - 1))
        shape = np.nan_to_num(2 - mean / np.maximum(mean - 2 * low, 0.0), nan=0.0)
        shape = np.clip(shape, 0.0, _LARGEST_SHAPE)
        steps = excess / (mean * (1 - shape))
        further = np.where(shape > 0, np.log1p(shape * steps) / shape, steps)
        alone = np.where(values.min(0) >= top[0] - _ROUNDING * edge, np.inf, 0.0)  # others are all the same
        found = np.where(excess > 0, np.log(size / num) + np.where(others > 0, further, alone), 0.0)
    surprises = np.zeros(values.shape)
    np.put_along_axis(surprises, order[1:], found, axis=0)
    return surprises


def _compared(found: dict[str, np.ndarray], probability: float) -> pd.DataFrame:
    """The table of statistics, whose first value is that of the data, with what chance would give."""
    values = np.stack(list(found.values()), axis=1) if found else np.zeros((1, 0))
    data, drawn = values[0], values[1:]
    tail = (1 - probability) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=0) if len(drawn) else (data * np.nan,) * 2
    p = (drawn > data).mean(0) + 0.5 * (drawn == data).mean(0)
    surprises = np.full(values.shape, np.nan)
    if len(drawn) >= _FEWEST_OF_VERDICT:
        surprises = np.maximum(_surprises_above(values), _surprises_above(-values))
    table = pd.DataFrame(
        {"observed": data, "replicated_lb": low, "replicated_ub": high, "p": p, "surprise": surprises[0]},
        index=list(found),
    )
    table.attrs = {"num_replications": len(drawn)}
    if len(drawn) >= _FEWEST_OF_VERDICT:
        most = surprises.max(1)
        table.attrs["num_as_surprising"] = int((most[1:] >= most[0]).sum())
        chance = np.quantile(most[1:], 1 - _FALSE_ALARMS, method="higher")
        table.attrs["surprise_by_chance"] = float(chance)
    return table


def suspects(table: pd.DataFrame) -> pd.Index:
    """Names of the statistics whose p-value is close to 0 or 1."""
    return table.index[(table["p"] - 0.5).abs() > 0.5 - SUSPECT]


def judge_features(table: pd.DataFrame) -> tuple[bool | None, str]:
    """Judge by the rule at the head of this module whether replications look like the data, and say why.

    Returns:
        The verdict, None where there are too few replications, and one sentence of reasons.
    """
    found = table.attrs
    if found["num_replications"] < _FEWEST_OF_VERDICT:
        return None, f"{found['num_replications']} replications are too few to judge by"
    number, others = found["num_replications"], found["num_as_surprising"]
    order = table["surprise"].sort_values(ascending=False, kind="stable")
    text = f"the most surprising of {len(table)} statistics"
    if (1 + others) / (1 + number) > max(_FALSE_ALARMS, 1 / (1 + number)):
        text += f" is {order.index[0]}, at {order.iloc[0]:.1f} nats"
        return True, f"{text}; {others} of {number} replications hold one as surprising"
    chance = found["surprise_by_chance"]
    named = list(order.index[order > chance]) or [order.index[0]]
    listed = "; ".join(named[:8]) + ("; ..." if len(named) > 8 else "")
    return False, f"{text} is at {order.iloc[0]:.1f} nats, by chance up to {chance:.1f}: {listed}"


class PredictiveCheck(NamedTuple):
    """What replications of the data say of a fit.

    Attributes:
        good: whether they look like the data; None: too few to judge.
        reason: why, in a sentence.
        table: of `check_features`, all parts of the data one below the other.
        num_replications: how many there were.
    """

    good: bool | None
    reason: str
    table: pd.DataFrame
    num_replications: int


_MOST_REPLICATIONS, _FEWEST_REPLICATIONS = 500, 50
_MOST_CELLS = 2**26  # of all replications, 512 MiB


def to_replicate(tree: xr.DataTree, most: int) -> xr.DataTree:
    """The fit with at most so many draws to draw data from; with one estimate so many times."""
    if kind_of(tree) != "point":
        return thinned(tree, most)
    held = draws_of(tree).isel(draw=np.zeros(most, int)).assign_coords(draw=np.arange(most))
    return with_groups(tree, {"posterior": held})


def _by_weight[D: xr.DataArray | xr.Dataset](rows: D, weight: np.ndarray) -> D:
    """As many rows, each as often as its weight asks; the same ones of data and of replications."""
    upto = np.cumsum(weight)
    places = (np.arange(len(weight)) + 0.5) * upto[-1] / len(weight)
    return rows.isel(observation=np.searchsorted(upto, places))


def check_predictions(tree: xr.DataTree, *, probability: float = 0.9, seed: int = 0) -> PredictiveCheck:
    """Draw replicated data from a fit and judge whether they look like the observed data.

    Replications of a point estimate vary less than they should: its parameters do not.

    Raises:
        ValueError: the fit does not hold its data, they are sparse or documents, or nothing can be drawn.
    """
    observed = observed_tables(tree)
    if not tree.attrs.get("generative", 1):
        raise ValueError(f"method {tree.attrs.get('method')!r} is a projection, which draws no rows")
    if not observed:
        raise ValueError(
            "the data of this fit are no tables of rows: inference.topics.check_documents checks documents"
        )
    cells = sum(values.size for values in observed.values())
    most = min(_MOST_REPLICATIONS, _MOST_CELLS // cells)
    if most < _FEWEST_REPLICATIONS:
        raise ValueError(f"there are {cells} cells, too many to be drawn {_FEWEST_REPLICATIONS} times")
    few = to_replicate(tree, most)
    drawn = extend(few, "posterior_predictive", seed=seed)["posterior_predictive"]
    if (weight := sample_weight_of(tree)) is not None:
        observed = {name: _by_weight(values, weight) for name, values in observed.items()}
        drawn = _by_weight(drawn, weight)
    nouns = [str(values.dims[-1]).rstrip("_0123456789") for values in observed.values()]
    model, found = model_of(tree), {}
    fresh, products_of = answer_of(model, "sums_out_locals"), _products_within_clusters(few)
    for noun, (name, values) in zip(nouns, observed.items(), strict=True):
        levels = json.loads(values.attrs.get("levels", "{}"))
        part = _statistics(values, drawn[name], fresh, levels, seed, products_of)
        view = f"{name} " if nouns.count(noun) > 1 else ""
        found |= {view + own: statistic for own, statistic in part.items()}
    table = _compared(found, probability)
    return PredictiveCheck(*judge_features(table), table, drawn.sizes["chain"] * drawn.sizes["draw"])


def _products_within_clusters(tree: xr.DataTree) -> Callable[[np.ndarray], np.ndarray] | None:
    """Sums of products of columns standardised within clusters, of a fit with clusters; else None."""
    model = model_of(tree)
    if model.roles.cluster is None or not has_answer(model, "conditionals"):
        return None
    posterior = in_program_order(draws_of(tree).isel(chain=0, draw=0), model)
    values = {name: site.to_numpy() for name, site in posterior.items() if not ROW_DIMS & set(site.dims)}

    @double_precision
    def products_of(both: np.ndarray) -> np.ndarray:
        of_rows = for_data(model, both[0])
        return to_numpy(over_draws(_products, {"rows": both[None]}, of_rows, (values,)))[0]

    return products_of


def _products(model: Model, data: Values, values: Values) -> jax.Array:
    """Sums of products of columns standardised in each cluster, shape (num_features, num_features)."""
    x = data["rows"]
    label = answer_of(model, "conditionals", values, x)[model.roles.cluster]
    shares = jax.nn.softmax(label.logits, axis=-1)
    away = jnp.nan_to_num(x - jnp.nanmean(x, axis=0))
    least = _ROUNDING * jnp.mean(away**2, axis=0)

    def add(total: jax.Array, share: jax.Array) -> tuple[jax.Array, None]:
        size = jnp.maximum(share.sum(), _ROUNDING)
        own = away - share @ away / size
        square = share @ own**2 / size
        own = jnp.where(square > least, own, 0.0) / jnp.sqrt(jnp.where(square > least, square, 1.0))
        return total + (share * own.T) @ own, None

    return jax.lax.scan(add, jnp.zeros((x.shape[1],) * 2), shares.T)[0]
