"""The stopping rule of ascents, and the verdict on convergence with advice."""

from typing import Any

import numpy as np
import xarray as xr

from inference.algorithm import AscentRun, FitRequest, Sampler, Stochastic
from inference.convergence.r_hat import APART, Judgement, judgement
from inference.driver.progress import FELL, NOT_FINITE, RUNNING, Progress

__all__ = ["SMALL_STEPS", "five_small_gains", "has_converged"]

SMALL_STEPS = 5  # consecutive steps of little gain that mean convergence
_FEWEST_NOISY = 100  # iterations, below which noise hides a rise
_SHORTEST_STRETCH = 50  # iterations of a noisy objective that are averaged, where there are as many


def five_small_gains(
    numbers: Any, progress: Progress, objective: Any, small_gain: Any, slack: Any, settled: Any
) -> tuple[Any, Any]:
    """The stopping rule of every ascent: small steps in a row so far, and the status after a step.

    Args:
        numbers: `jax.numpy` or `numpy`.
        progress: before the step.
        objective: after it, nats.
        small_gain: the gain in nats below which a step is small.
        slack: the fall that is tolerated, relative to the objective.
        settled: the status of a restart after five small steps: `CONVERGED` or `SETTLED`.
    """
    gain = objective - progress.objective
    small = numbers.where(gain < small_gain, progress.small_steps + 1, 0)
    status = numbers.where(small >= SMALL_STEPS, settled, RUNNING)
    status = numbers.where(gain < -slack * numbers.abs(progress.objective), FELL, status)
    return small, numbers.where(numbers.isfinite(objective), status, NOT_FINITE)


def _moves_to_add(request: FitRequest, verdict: Judgement) -> str:
    """The end of the advice to someone whose chains stay apart: moves of the sampler that were left out."""
    if not verdict.r_hat > APART:
        return ""
    offered = request.method.options_for_modes(request.model)
    left_out = [f"{name}={value}" for name, value in offered.items() if not request.options[name]]
    return f", or add moves between modes: {', '.join(left_out)}" if left_out else ""


def has_converged(request: FitRequest, run: Any, tree: xr.DataTree) -> tuple[bool, str]:
    """Whether the fit has converged, and advice if not (none where it ran as requested)."""
    settings = request.settings
    if isinstance(request.method, Sampler):
        if run.stop_reason != "completed":
            return False, f"the run ended early: {run.stop_reason}"
        kept = np.asarray(run.trace["objective"])[:, settings.num_warmup :]
        if bad := int(np.count_nonzero(~np.isfinite(kept))):
            remedy = "check the scale of data and priors"
            return False, f"the log joint is not finite at {bad} of {kept.size} kept sweeps; {remedy}"
        verdict = judgement(tree)
        return verdict.converged, verdict.reasons + _moves_to_add(request, verdict)
    is_noisy = isinstance(request.method, Stochastic)
    if run.stop_reason.startswith("the objective"):  # it fell or was not finite
        remedy = "try other starts (num_restarts) or check the scale of data and priors"
        return False, f"{run.stop_reason}; {'lower step_size' if is_noisy else remedy}"
    last = _last_objective(run, tree)
    if not np.isfinite(last) and run.stop_reason != "interrupted":
        return False, f"the objective ended at {last}; check the scale of data and priors"
    if is_noisy:
        return _has_levelled(run.trace["objective"][run.best_restart], settings.max_iterations)
    if run.stop_reason == "max_iterations" and settings.tolerance == 0:
        return False, ""  # as requested
    return (
        run.converged and bool(np.isfinite(last)),
        f"stopped by {run.stop_reason}; raise max_iterations or tolerance, or try other starts "
        f"(num_restarts)",
    )


def _last_objective(run: AscentRun, tree: xr.DataTree) -> float:
    """The last objective of the best restart, or the re-estimated bound of SVI."""
    if "elbo" in tree.attrs:
        return float(tree.attrs["elbo"])
    recorded = np.asarray(run.trace["objective"][run.best_restart])[: run.num_iterations]
    return float(recorded[-1]) if recorded.size else -np.inf


def _has_levelled(objective: np.ndarray, max_iterations: int) -> tuple[bool, str]:
    """Whether a noisy objective has levelled: its last two stretches differ by under two standard errors.

    A stretch is a tenth of the run and at least 50 iterations: in the few of a short run's tenth a rise of
    hundreds of nats is lost in the noise.
    """
    objective = objective[np.isfinite(objective)]
    if objective.size < _FEWEST_NOISY:
        return False, f"{objective.size} iterations are too few to judge by; raise max_iterations"
    tenth = max(objective.size // 10, _SHORTEST_STRETCH)
    before, after = objective[-2 * tenth : -tenth], objective[-tenth:]
    error = np.sqrt(before.var(ddof=1) / tenth + after.var(ddof=1) / tenth)
    rise = after.mean() - before.mean()
    advice = (
        f"the objective still rose by {rise:.3g} nats over the last {tenth} iterations; raise "
        f"max_iterations or step_size"
    )
    return bool(objective.size >= max_iterations and rise < 2 * error), advice
