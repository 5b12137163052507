"""How far the prior decides: power-scaling sensitivity of what a symmetry cannot change.

Kallioinen, Paananen, Buerkner and Vehtari (2024), "Detecting and diagnosing prior and likelihood sensitivity
with power-scaling": the prior, or the likelihood, is raised to a power near one and the draws are weighted
anew; what moves depends on it. The computation is ArviZ's ``psense_summary``, which calls a dimension of its
own ``component``, as mixtures do, so that it cannot be given a mixture's parameters as they stand.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr
from arviz_stats import psense_summary

from inference.convergence.invariants import invariants, kind_of, scalars
from inference.extension import extend
from inference.results.groups import group_of

__all__ = ["prior_sensitivity"]

_OWN = ("lp", "objective")  # the densities themselves, which every power moves


def prior_sensitivity(tree: xr.DataTree, var_names: Sequence[str] | None = None) -> pd.DataFrame:
    """Sensitivity of a fit's invariants, or of parameters, to its prior and to its likelihood.

    Args:
        tree: a fit by a sampler; its log prior is made if it is not there.
        var_names: variables of ``posterior``; None: the invariants (`inference.diagnostics.invariants`).

    Returns:
        A row a quantity: ``prior``, ``likelihood`` (cumulative Jensen-Shannon distances; above 0.05 is much),
        ``diagnosis``. What is the same in every draw is left out.

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
        if (var_names is not None or name not in _OWN) and np.ptp(values) > 0
    }
    if not draws:
        raise ValueError("every quantity asked for is the same in all draws: nothing can move")
    whole = tree if "log_prior" in tree.children else extend(tree, "log_prior")
    groups = {name: group_of(whole, name) for name in ("log_likelihood", "log_prior")}
    coords = {dim: posterior[dim] for dim in ("chain", "draw")}
    return psense_summary(xr.DataTree.from_dict({"posterior": xr.Dataset(draws, coords)} | groups))
