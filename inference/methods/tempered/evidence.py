r"""The log evidence from the log likelihoods at all temperatures, and whether it is told.

Between neighbours the ratio of normalising constants is Bennett's (1976): with as many draws at both powers
it is the r that solves

.. math::
    \sum_{n} \sigma(\log r - \Delta\beta\, \ell_{t+1,n}) = \sum_{n} \sigma(\Delta\beta\, \ell_{t,n} - \log r),

and the log evidence is the sum of log r over all pairs, for the prior integrates to one. Every replicate has
its own estimate; their mean is the estimate. Its standard error is that of their spread, or that of the
spread of `BLOCKS` blocks of draws within them if it is larger: two replicates may agree by chance, and blocks
are too much alike where a replicate moves slowly. Two right estimates of one evidence were more than three
standard errors of their difference apart in 4 of 2600 pairs of runs, and in 223 by the spread of replicates
alone; with four replicates in place of two in none of 1260, and in 25 (30 to 300 sweeps of three mixtures,
urn and Gibbs). The two one-sided estimates, :math:`\log E_t[e^{\Delta\beta\,\ell}]` and
:math:`-\log E_{t+1}[e^{-\Delta\beta\,\ell}]`, are too low and too high on average, and further apart the
worse the temperatures are sampled.

An estimate is told if states of every replicate have gone from the prior to the posterior and back at least
`FEWEST_TRIPS` times, the one-sided estimates are within `APART` nats, and the replicates are within `SPREAD`
nats of each other in standard deviation. A low standard error alone says nothing: replicates that cannot
leave one region agree with each other.
"""

from typing import Any

import numpy as np

FEWEST_TRIPS = 5  # of every replicate
APART = 1.0  # nats between the estimates from below and above
SPREAD = 1.0  # nats, standard deviation over replicates
FEWEST_DRAWS = 20  # of a replicate
BLOCKS = 10  # of the draws of a replicate
BISECTIONS = 60


def told(
    log_likelihoods: np.ndarray, powers: np.ndarray, round_trips: np.ndarray
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What a tempered run tells of the evidence.

    Args:
        log_likelihoods: of all draws, shape (num_chains, num_draws, num_temperatures), in nats.
        powers: of the likelihood, shape (num_temperatures,).
        round_trips: up to each draw, shape (num_chains, num_draws).

    Returns:
        Root attributes, and variables by temperature. ``why_no_evidence`` is empty, or the sentence that says
        why the evidence and its error are NaN.
    """
    steps = np.diff(powers)
    trips = round_trips[:, -1]
    rejection = 1 - np.mean(_accepted(log_likelihoods, steps), axis=(0, 1))
    middle, low, high = (per_pair.sum(axis=1) for per_pair in _log_ratios(log_likelihoods, steps))
    why = _doubt(middle, low, high, trips, log_likelihoods.shape[1], float(rejection.max()))
    numbers = {
        "log_evidence": middle.mean(),
        "log_evidence_se": np.nan if why else _error(middle, log_likelihoods, steps),
        "log_evidence_below": low.mean(),
        "log_evidence_above": high.mean(),
    }
    attrs: dict[str, Any] = {name: np.nan if why else float(value) for name, value in numbers.items()}
    attrs |= {"round_trips": int(trips.sum()), "barrier": float(rejection.sum()), "why_no_evidence": why}
    finite = np.where(np.isfinite(log_likelihoods), log_likelihoods, np.nan)
    with np.errstate(all="ignore"):
        spread = np.nanstd(finite - np.nanmax(finite), axis=(0, 1))
    return attrs, {
        "inverse_temperature": powers,
        "swap_rejection": np.append(rejection, np.nan),
        "log_likelihood_sd": spread,
    }


def _accepted(log_likelihoods: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Probabilities that neighbours exchange their states, shape (num_chains, num_draws, pairs)."""
    with np.errstate(invalid="ignore"):
        gain = steps * (log_likelihoods[..., :-1] - log_likelihoods[..., 1:])
    return np.where(np.isnan(gain), 0.0, np.exp(np.minimum(gain, 0.0)))


def _log_ratios(log_likelihoods: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each pair of neighbours and chain: Bennett's log ratio and those from below and above."""
    hotter, colder = steps * log_likelihoods[..., :-1], steps * log_likelihoods[..., 1:]
    number = log_likelihoods.shape[1]
    low = np.logaddexp.reduce(hotter, axis=1) - np.log(number)
    high = np.log(number) - np.logaddexp.reduce(-colder, axis=1)
    both = np.concatenate([hotter, colder], axis=1)
    left = np.where(np.isfinite(both), both, np.inf).min(axis=1)
    right = np.where(np.isfinite(both), both, -np.inf).max(axis=1)
    for _ in range(BISECTIONS):
        middle = 0.5 * (left + right)
        below = _sigmoid(middle[:, None] - colder).sum(axis=1) < _sigmoid(hotter - middle[:, None]).sum(
            axis=1
        )
        left, right = np.where(below, middle, left), np.where(below, right, middle)
    return 0.5 * (left + right), low, high


def _error(middle: np.ndarray, log_likelihoods: np.ndarray, steps: np.ndarray) -> float:
    """Standard error of the mean of the replicates' estimates, shape (num_chains,)."""
    number, length = len(middle), log_likelihoods.shape[1] // BLOCKS
    blocks = log_likelihoods[:, : BLOCKS * length].reshape(number * BLOCKS, length, -1)
    of_blocks = _log_ratios(blocks, steps)[0].sum(axis=1).reshape(number, BLOCKS)
    within = of_blocks.var(axis=1, ddof=1).mean() / BLOCKS
    return float(np.sqrt(max(middle.var(ddof=1), within) / number))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))


def _doubt(
    middle: np.ndarray, low: np.ndarray, high: np.ndarray, trips: np.ndarray, draws: int, rejection: float
) -> str:
    """Why an estimate is not to be believed, with what to do; empty where it is."""
    if len(middle) < 2:
        return "one replicate has no error. Next: num_chains=4"
    if draws < FEWEST_DRAWS:
        return f"{draws} draws per replicate are too few. Next: raise num_samples"
    more = "raise num_samples, or add moves that lead from mode to mode"
    if (least := int(trips.min())) < FEWEST_TRIPS:
        return (
            f"replicate {int(trips.argmin())} made {least} round trips between prior and posterior in "
            f"{draws} sweeps, and it takes {FEWEST_TRIPS} in each; a pair of temperatures refuses up to "
            f"{rejection:.0%} of its exchanges. Next: {more}"
        )
    if not (apart := abs(float((high - low).mean()))) <= APART:
        return (
            f"the estimates from below and above are {apart:.3g} nats apart, and it takes {APART:g}. "
            f"Next: {more}"
        )
    if not (spread := float(middle.std(ddof=1))) <= SPREAD:
        return (
            f"the replicates differ by {spread:.3g} nats in standard deviation, and it takes {SPREAD:g}. "
            f"Next: {more}"
        )
    return ""
