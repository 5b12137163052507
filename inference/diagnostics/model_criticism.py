r"""Criticism of a model: posterior predictive checks of features, and sensitivity to the prior.

**Posterior predictive checks** compare statistics of each feature, observed and replicated. For a statistic
T and replications :math:`x^{rep}` from the posterior predictive, the posterior predictive p-value is
:math:`P(T(x^{rep}) \ge T(x))`, ties counted half (Gelman, Meng and Stern 1996, "Posterior predictive
assessment of model fitness via realized discrepancies"). Values near 0 or 1 name what the model does not
reproduce. They use the data twice and are therefore conservative. Missing cells are left out of the data
and of their replications.

**Prior sensitivity** is measured by power-scaling, on quantities that a symmetry cannot change (Kallioinen,
Paananen, Buerkner and Vehtari 2024, "Detecting and diagnosing prior and likelihood sensitivity with
power-scaling"): the prior, or the likelihood, is raised to a power near one and the draws are weighted
anew; quantities that move depend on it. The computation is ArviZ's ``psense_summary``, which has a
dimension called ``component``, as mixtures do, so that it cannot be given a mixture's parameters unchanged.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr
from arviz_stats import psense_summary

from inference.convergence.identifiable import feature_names, invariants, kind_of, scalars
from inference.extension import extend
from inference.results.groups import group_of

__all__ = ["STATISTICS", "check_features", "prior_sensitivity"]


STATISTICS = {"mean": np.nanmean, "sd": np.nanstd, "smallest": np.nanmin, "largest": np.nanmax}


def check_features(
    observed: xr.DataArray, replicated: xr.DataArray, probability: float = 0.9
) -> pd.DataFrame:
    """Compare mean, standard deviation and extremes of each feature, observed and replicated.

    Args:
        observed: the data (observation, feature), or another dim of columns; NaN where a cell is missing.
        replicated: posterior predictive draws (chain, draw, observation, feature).
        probability: content of the equal-tailed interval of the replications.

    Returns:
        One row a feature and statistic: ``observed``, ``replicated_lb``, ``replicated_ub``, ``p`` (the share
            of replications that are larger). A column without an observed cell has no row.

    Raises:
        ValueError: the replications are of data of another shape.
    """
    (column,) = (str(dim) for dim in observed.dims if dim != "observation")
    x = observed.transpose("observation", column).rename({column: "feature"})
    drawn = replicated.transpose("chain", "draw", "observation", column)
    if drawn.shape[2:] != x.shape:
        raise ValueError(f"replications must have the shape of the data, {x.shape}; got {drawn.shape[2:]}")
    flat, missing = drawn.values.reshape(-1, *x.shape), np.isnan(x.values)
    flat = np.where(missing, np.nan, flat) if missing.any() else flat
    names = feature_names(x, column.rstrip("_0123456789"))
    tail = (1 - probability) / 2
    rows = {}
    for i in np.flatnonzero(~missing.all(axis=0)):
        for statistic, function in STATISTICS.items():
            value, values = float(function(x.values[:, i])), function(flat[:, :, i], axis=-1)
            low, high = np.quantile(values, [tail, 1 - tail])
            p = float((values > value).mean() + 0.5 * (values == value).mean())
            rows[f"{names[i]}: {statistic}"] = (value, low, high, p)
    columns = ["observed", "replicated_lb", "replicated_ub", "p"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


_DENSITIES = ("lp", "objective")  # the densities themselves, which every power moves


def prior_sensitivity(tree: xr.DataTree, var_names: Sequence[str] | None = None) -> pd.DataFrame:
    """Compute the sensitivity of a fit's invariants, or of parameters, to its prior and its likelihood.

    Args:
        tree: a fit by a sampler; its log prior is made if it is not there.
        var_names: variables of ``posterior``; None: the invariants (`inference.diagnostics.invariants`).

    Returns:
        A row a quantity: ``prior``, ``likelihood`` (cumulative Jensen-Shannon distances; above 0.05 is much),
        ``diagnosis``. Quantities that are the same in every draw are left out.

    Raises:
        ValueError: a fit that has no draws of its posterior, no such variables, or nothing that varies.
    """
    if kind_of(tree) != "sampling":
        raise ValueError(
            "the prior's weight is read off draws of the posterior; method "
            f"{tree.attrs['method']!r} has none: fit by a sampler, such as nuts"
        )
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
    whole = tree if "log_prior" in tree.children else extend(tree, "log_prior")
    groups = {name: group_of(whole, name) for name in ("log_likelihood", "log_prior")}
    coords = {dim: posterior[dim] for dim in ("chain", "draw")}
    return psense_summary(xr.DataTree.from_dict({"posterior": xr.Dataset(draws, coords)} | groups))
