"""Whether a run can be taken for converged, and if not, what to do."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from inference.algorithm import Method
from inference.convergence import judge
from inference.driver import Ascent, Chains

__all__ = ["has_converged"]

_ADVICE = {
    "stochastic": "lower step_size",
    "ascent": "try other starts (num_restarts) or check the scale of data and priors",
}


def has_converged(
    method: Method, result: Ascent | Chains, tree: xr.DataTree, settings: Mapping[str, Any]
) -> tuple[bool, str]:
    """Whether the fit can be taken for converged, and if not, what to do."""
    if method.kind == "sampling":
        if result.stop_reason != "completed":
            return False, f"the run ended early: {result.stop_reason}"
        converged, reason = judge(tree)
        return converged, reason
    if result.stop_reason.startswith("the objective"):  # it fell or was not finite
        return False, f"{result.stop_reason}; {_ADVICE[method.kind]}"
    if method.kind == "stochastic":
        return _has_levelled(result.trace["objective"][result.best_restart], settings["max_iterations"])
    if result.stop_reason == "max_iterations" and settings["tolerance"] == 0:
        return False, ""  # so it was ordered
    return (
        result.converged,
        f"stopped by {result.stop_reason}; raise max_iterations or tolerance, or try other starts "
        f"(num_restarts)",
    )


def _has_levelled(objective: np.ndarray, max_iterations: int) -> tuple[bool, str]:
    """Whether a noisy objective has stopped rising.

    Its last two tenths differ by less than two standard errors.
    """
    objective = objective[np.isfinite(objective)]
    tenth = max(objective.size // 10, 2)
    if objective.size < 2 * tenth:
        return False, f"{objective.size} iterations are too few to judge by; raise max_iterations"
    before, after = objective[-2 * tenth : -tenth], objective[-tenth:]
    error = np.sqrt(before.var(ddof=1) / tenth + after.var(ddof=1) / tenth)
    rise = after.mean() - before.mean()
    advice = (
        f"the objective still rose by {rise:.3g} nats over the last tenth of the run; raise "
        f"max_iterations or step_size"
    )
    return bool(objective.size >= max_iterations and rise < 2 * error), advice
