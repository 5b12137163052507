r"""Does data drawn from the fit look like the data? Statistics of each feature, observed against replicated.

For a statistic T and replications :math:`x^{rep}` from the posterior predictive, the posterior predictive
p-value is
:math:`P(T(x^{rep}) \ge T(x))`, ties counted half (Gelman, Meng and Stern 1996, "Posterior predictive
assessment of model fitness via realized discrepancies"). Values near 0 or 1 name what the model does not
reproduce. They use the data twice and are therefore conservative. Missing cells are left out of the data and
of their replications alike.
"""

import numpy as np
import pandas as pd
import xarray as xr

from inference.convergence.invariants import feature_names

__all__ = ["STATISTICS", "check_features"]

STATISTICS = {
    "mean": lambda x: np.nanmean(x, -1),
    "sd": lambda x: np.nanstd(x, -1),
    "smallest": lambda x: np.nanmin(x, -1),
    "largest": lambda x: np.nanmax(x, -1),
}


def check_features(
    observed: xr.DataArray, replicated: xr.DataArray, probability: float = 0.9
) -> pd.DataFrame:
    """Mean, standard deviation and extremes of each feature, observed and replicated.

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
        name = names[i]
        for statistic, function in STATISTICS.items():
            value, values = float(function(x.values[:, i])), function(flat[:, :, i])
            low, high = np.quantile(values, [tail, 1 - tail])
            rows[f"{name}: {statistic}"] = {
                "observed": value,
                "replicated_lb": low,
                "replicated_ub": high,
                "p": float((values > value).mean() + 0.5 * (values == value).mean()),
            }
    return pd.DataFrame.from_dict(rows, orient="index")
