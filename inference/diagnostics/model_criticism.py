r"""Criticism of a model by posterior predictive checks: statistics of features, observed and replicated.

For a statistic
T and replications :math:`x^{rep}` from the posterior predictive, the posterior predictive p-value is
:math:`P(T(x^{rep}) \ge T(x))`, ties counted half (Gelman, Meng and Stern 1996, "Posterior predictive
assessment of model fitness via realized discrepancies"). Values near 0 or 1 name what the model does not
reproduce. They use the data twice and are therefore conservative. Missing cells are left out of the data
and of their replications.

The statistics of a feature of words are the shares of its levels, of one of numbers its mean, spread,
extremes and quantiles, the share of zeros of counts, and,
where replications are of new rows, how many of its cells lie in the middle half and the middle nine tenths of
their own predictive distributions, by their randomised rank among the replications (the probability integral
transform; ties are broken at random). Replications at the latents of the fitted rows have followed these
rows: ranks among them are too central even for a true model, and are left out. The statistic of two features
is their correlation.

*Rule of the verdict.* Every replication is put in the place of the data and compared with the others, which
gives the distribution of (a) the number of statistics with a p-value beyond .01 or .99 and (b) the distance
of the statistic that is furthest out, in units of its spread over replications. The data misfit where (a) or
(b) is larger than in 99.5 per cent of the replications. So a fit that is true fails in at most one check of
100, however many statistics there are; in fewer, since the data were used twice.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from inference.convergence.identifiable import draws_of, feature_names, kind_of
from inference.extension import extend
from inference.results.files import model_of
from inference.results.groups import observed_tables, sample_weight_of, thinned, with_groups
from zoo.answers import answer_of


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
_BY_CHANCE = 0.995  # of the replications that both numbers of the verdict must exceed
_FEWEST_OF_VERDICT = 50  # replications
_MOST_PAIRS = 45  # correlations: all of ten features, or the strongest
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
            of replications that are larger), ``distance`` (of observed from the replications' median, in
            units of their spread). A column without an observed cell has no row. `judge_features` goes by
            the attributes ``num_suspect``, ``most_suspect_by_chance``, ``furthest``, ``furthest_by_chance``
            and ``num_replications``.

    Raises:
        ValueError: the replications are of data of another shape.
    """
    (column,) = (str(dim) for dim in observed.dims if dim != "observation")
    x = observed.transpose("observation", column).rename({column: "feature"})
    drawn = replicated.transpose("chain", "draw", "observation", column)
    if drawn.shape[2:] != x.shape:
        raise ValueError(f"replications must have the shape of the data, {x.shape}; got {drawn.shape[2:]}")
    flat, missing = drawn.values.reshape(-1, *x.shape).astype(float), np.isnan(x.values)
    flat = np.where(missing, np.nan, flat) if missing.any() else flat
    names = feature_names(x, column.rstrip("_0123456789"))
    both = np.concatenate([x.values[None].astype(float), flat])  # the data first
    found: dict[str, np.ndarray] = {}
    words = np.array([name in (levels or {}) for name in names])
    for i in np.flatnonzero(~missing.all(axis=0)):
        cells = both[:, ~missing[:, i], i]
        if words[i] and np.isin(cells, list(levels[names[i]].values())).all():  # a Gaussian cell is no level
            of_column = list(levels[names[i]].items())
            for level, number in of_column[-1:] if len(of_column) == 2 else of_column:
                found[f"{names[i]}: share of {level}"] = (cells == number).mean(-1)
            continue
        for statistic, function in STATISTICS.items():
            found[f"{names[i]}: {statistic}"] = function(cells, axis=-1)
        if (cells == np.round(cells)).all() and cells.min() >= 0 and len(np.unique(cells[0])) > 2:
            found[f"{names[i]}: share of zeros"] = (cells == 0).mean(-1)
        if new_rows and len(flat) >= _FEWEST_OF_VERDICT and cells.size <= _MOST_RANKED:
            ranks = _ranks(cells, np.random.default_rng([seed, i]))
            for statistic, middle in _MIDDLES.items():
                found[f"{names[i]}: {statistic}"] = (np.abs(ranks - 0.5) < middle / 2).mean(-1)
    found |= _correlations(both, missing | words, names)
    return _compared(found, probability)


def _ranks(cells: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rank of every cell among those in its place, between 0 and 1, ties at random; shape (draws, cells)."""
    order = np.lexsort((rng.random(cells.shape), cells), axis=0)
    ranks = np.empty(cells.shape)
    np.put_along_axis(ranks, order, np.arange(len(cells))[:, None] + 0.5, axis=0)
    return ranks / len(cells)


def _correlations(both: np.ndarray, missing: np.ndarray, names: list[str]) -> dict[str, np.ndarray]:
    """Correlations of pairs of features that have no missing cell, the strongest where there are many."""
    whole = np.flatnonzero(~missing.any(axis=0) & (np.ptp(np.nan_to_num(both), axis=1) > 0).all(axis=0))
    if len(whole) < 2 or both.shape[1] < _FEWEST_FOR_PAIRS:
        return {}
    centred = both[..., whole] - both[..., whole].mean(1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).sum(1, keepdims=True))
    first, second = np.triu_indices(len(whole), 1)
    if len(first) > _MOST_PAIRS:
        strength = np.abs((scaled[0].T @ scaled[0])[first, second])
        kept = np.sort(np.argsort(-strength, kind="stable")[:_MOST_PAIRS])
        first, second = first[kept], second[kept]
    values = np.einsum("snp,snp->sp", scaled[..., first], scaled[..., second])
    pairs = zip(first, second, values.T, strict=True)
    return {f"{names[whole[i]]} and {names[whole[j]]}: correlation": r for i, j, r in pairs}


def _compared(found: dict[str, np.ndarray], probability: float) -> pd.DataFrame:
    """The table of statistics, whose first value is that of the data, with what chance would give."""
    values = np.stack(list(found.values()), axis=1) if found else np.zeros((1, 0))
    data, drawn = values[0], values[1:]
    tail = (1 - probability) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=0) if len(drawn) else (data * np.nan,) * 2
    p = (drawn > data).mean(0) + 0.5 * (drawn == data).mean(0)
    middle, wide = np.median(drawn, axis=0), drawn.std(0)
    constant = (wide <= 1e-12 * np.abs(middle)) & (drawn == data).all(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        distances = np.where(constant, 0.0, np.nan_to_num(np.abs(values - middle) / wide, posinf=np.inf))
    table = pd.DataFrame(
        {"observed": data, "replicated_lb": low, "replicated_ub": high, "p": p, "distance": distances[0]},
        index=list(found),
    )
    by_chance = np.zeros(len(drawn), int)
    for column in drawn.T:  # every replication in the place of the data
        below = np.searchsorted(np.sort(column), column, side="left")
        upto = np.searchsorted(np.sort(column), column, side="right")
        share = 1 - (below + upto) / (2 * len(column))
        by_chance += np.abs(share - 0.5) > 0.5 - SUSPECT
    furthest = distances.max(1, initial=0.0)
    table.attrs = {
        "num_suspect": int((np.abs(p - 0.5) > 0.5 - SUSPECT).sum()),
        "most_suspect_by_chance": int(np.quantile(by_chance, _BY_CHANCE, method="higher")),
        "furthest": float(furthest[0]),
        "furthest_by_chance": float(np.quantile(furthest[1:], _BY_CHANCE, method="higher")),
        "num_replications": len(drawn),
    }
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
    suspect = suspects(table)
    if (
        found["num_suspect"] <= found["most_suspect_by_chance"]
        and found["furthest"] <= found["furthest_by_chance"]
    ):
        text = (
            f"{found['num_suspect']} of {len(table)} statistics are out of the ordinary (p beyond .01 or .99)"
        )
        return True, f"{text}, where chance alone gives up to {found['most_suspect_by_chance']}"
    order = table["distance"].sort_values(ascending=False, kind="stable").index
    named = list(order[order.isin(suspect)]) or [order[0]]
    listed = "; ".join(named[:8]) + ("; ..." if len(named) > 8 else "")
    text = (
        f"{found['num_suspect']} of {len(table)} statistics are out of the ordinary, where chance alone gives"
    )
    text += f" up to {found['most_suspect_by_chance']}, and the furthest lies {found['furthest']:.1f} spreads"
    return False, f"{text} out (by chance up to {found['furthest_by_chance']:.1f}): {listed}"


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
_OF_AN_ESTIMATE = 200
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
    few = to_replicate(tree, min(most, _OF_AN_ESTIMATE) if kind_of(tree) == "point" else most)
    drawn = extend(few, "posterior_predictive", seed=seed)["posterior_predictive"]
    if (weight := sample_weight_of(tree)) is not None:
        observed = {name: _by_weight(values, weight) for name, values in observed.items()}
        drawn = _by_weight(drawn, weight)
    nouns = [str(values.dims[-1]).rstrip("_0123456789") for values in observed.values()]
    parts, verdicts = [], []
    for noun, (name, values) in zip(nouns, observed.items(), strict=True):
        fresh = answer_of(model_of(tree), "sums_out_locals")
        levels = json.loads(values.attrs.get("levels", "{}"))
        part = check_features(values, drawn[name], probability, new_rows=fresh, levels=levels, seed=seed)
        verdicts.append(judge_features(part))
        view = f"{name} " if nouns.count(noun) > 1 else ""
        parts.append(part.rename(index=lambda own, view=view: view + own))
    bad = [reason for good, reason in verdicts if good is False]
    good = False if bad else None if any(good is None for good, _ in verdicts) else True
    reason = "; ".join(bad or [reason for _, reason in verdicts])
    table = parts[0] if len(parts) == 1 else pd.concat([part.rename_axis(None) for part in parts])
    return PredictiveCheck(good, reason, table, drawn.sizes["chain"] * drawn.sizes["draw"])
