r"""Do fits of one posterior agree? Means of invariants side by side, their differences in standard errors.

Two samplers of the same posterior differ by Monte Carlo error alone: the difference of two means over
:math:`\sqrt{se_1^2 + se_2^2}` is standard normal. An approximation (VB, SVI) or a point estimate is also
biased, so its difference is told in posterior standard deviations, the unit in which a bias matters. Fits
with other hyperparameters have other posteriors; their invariants answer other questions and are not tested.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr
from arviz_stats.base import array_stats

from inference.convergence.psrf import is_constant
from inference.convergence.invariants import invariants, kind_of, scalars

__all__ = ["agreement", "differences", "same_posterior"]

_OWN = ("lp", "objective")  # each method's own: with locals summed out or not, a bound, a maximum
_ROUNDING = 1e-12


def agreement(trees: Mapping[str, xr.DataTree]) -> pd.DataFrame:
    """Mean, Monte Carlo standard error and standard deviation of every invariant under every fit.

    Args:
        trees: name to fit.

    Returns:
        A row an invariant that at least two fits have, columns (fit, statistic) with the statistics
        ``mean``, ``mcse`` (NaN for a point estimate, which has no draws) and ``sd`` (NaN likewise); NaN where
        a fit has no such invariant. The log joint and the objective, each method's own, are left out, as is
        the mean log likelihood where one fit has integrated its latents out and another has not.

    Raises:
        TypeError: one of them is not a fit.
        ValueError: one of them has no draws.
    """
    scored = {_latents(tree) for tree in trees.values()} - {""}
    own = (*_OWN, "mean_log_likelihood") if len(scored) > 1 else _OWN
    columns = {}
    for name, tree in trees.items():
        kind, values = kind_of(tree), invariants(tree)
        found = {label: _statistics(draws, kind) for label, draws in scalars(values)}
        found = {label: row for label, row in found.items() if label.partition("[")[0] not in own}
        for i, statistic in enumerate(("mean", "mcse", "sd")):
            columns[name, statistic] = pd.Series({label: row[i] for label, row in found.items()}, dtype=float)
    table = pd.DataFrame(columns)
    order = {label: place for values in columns.values() for place, label in enumerate(values.index)}
    table = table.loc[sorted(table.index, key=order.__getitem__)]
    shared = table.xs("mean", axis=1, level=1).notna().sum(axis=1) > 1
    return table[shared]


def differences(table: pd.DataFrame, one: str, other: str) -> pd.DataFrame:
    """How far two fits are apart, invariant by invariant.

    Args:
        table: what `agreement` returned.
        one: a fit in it.
        other: another.

    Returns:
        ``difference`` (of the means, the second less the first), ``standard_errors`` (that over the combined
        Monte Carlo standard error; NaN where a fit has none) and ``posterior_sds`` (that over the larger
        of the two standard deviations), for the invariants that both fits have. Means that are
        equal up to rounding are 0 apart.
    """
    a, b = (table[name].dropna(subset="mean") for name in (one, other))
    both = a.index.intersection(b.index, sort=False)
    a, b = a.loc[both], b.loc[both]
    gap = b["mean"] - a["mean"]
    gap = gap.where(~np.isclose(a["mean"], b["mean"], rtol=_ROUNDING, atol=0.0), 0.0)
    error = np.hypot(a["mcse"], b["mcse"])
    spread = np.fmax(a["sd"], b["sd"])
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = {
            "standard_errors": np.where((gap == 0) & error.notna(), 0.0, gap / error),
            "posterior_sds": np.where((gap == 0) & spread.notna(), 0.0, gap / spread),
        }
    return pd.DataFrame({"difference": gap} | parts, index=both)


def same_posterior(one: xr.DataTree, other: xr.DataTree) -> bool:
    """Whether two fits of the same data have the same model, hyperparameters and weights of rows.

    Args:
        one: a fit.
        other: another.
    """
    if any(one.attrs.get(name) != other.attrs.get(name) for name in ("model", "model_fields")):
        return False
    held = [
        tree["constant_data"].to_dataset() if "constant_data" in tree.children else xr.Dataset()
        for tree in (one, other)
    ]
    return set(held[0].data_vars) == set(held[1].data_vars) and all(
        np.array_equal(held[0][name].values, held[1][name].values) for name in held[0].data_vars
    )


def _latents(tree: xr.DataTree) -> str:
    return str(tree["log_likelihood"].attrs.get("latents", "")) if "log_likelihood" in tree.children else ""


def _statistics(draws: np.ndarray, kind: str) -> tuple[float, float, float]:
    """Mean, its Monte Carlo standard error, standard deviation."""
    mean = float(draws.mean())
    if kind == "point":
        return mean, np.nan, np.nan
    sd = float(draws.std(ddof=1)) if draws.size > 1 else np.nan
    if is_constant(draws):
        return mean, 0.0, 0.0
    if kind == "variational":
        return mean, sd / np.sqrt(draws.size), sd
    return mean, float(array_stats.mcse(draws, chain_axis=0, draw_axis=1, method="mean")), sd
