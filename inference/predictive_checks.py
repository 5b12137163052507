r"""Does data drawn from the fit look like the data? Statistics of each feature, observed against replicated.

For a statistic T and replications :math:`x^{rep}` from the posterior predictive, the posterior predictive
p-value is
:math:`P(T(x^{rep}) \ge T(x))`, ties counted half (Gelman, Meng and Stern 1996, "Posterior predictive
assessment of model fitness via realized discrepancies"). Values near 0 or 1 name what the model does not
reproduce. They use the data twice and are therefore conservative.
"""

import numpy as np
import pandas as pd
import xarray as xr

from inference.identifiable import feature_names

__all__ = ["STATISTICS", "check_features"]

STATISTICS = {
    "mean": lambda x: x.mean(-1),
    "sd": lambda x: x.std(-1),
    "smallest": lambda x: x.min(-1),
    "largest": lambda x: x.max(-1),
}


def check_features(
    observed: xr.DataArray, replicated: xr.DataArray, probability: float = 0.9
) -> pd.DataFrame:
    """Mean, standard deviation and extremes of each feature, observed and replicated.

    Args:
        observed: the data (observation, feature).
        replicated: posterior predictive draws (chain, draw, observation, feature).
        probability: content of the equal-tailed interval of the replications.

    Returns:
        One row a feature and statistic: ``observed``, ``replicated_lb``, ``replicated_ub``, ``p`` (the share
            of replications that are larger).

    Raises:
        ValueError: the replications are of data of another shape.
    """
    x = observed.transpose("observation", "feature")
    drawn = replicated.transpose("chain", "draw", "observation", "feature")
    if drawn.shape[2:] != x.shape:
        raise ValueError(f"replications must have the shape of the data, {x.shape}; got {drawn.shape[2:]}")
    flat = drawn.values.reshape(-1, *x.shape)
    names = feature_names(observed)
    tail = (1 - probability) / 2
    rows = {}
    for i, name in enumerate(names):
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
