"""Verdicts of calibration checks, and the rank tests behind them.

A verdict holds a statistic, its threshold, and the rate of false alarms that these imply. The tests need
ranks only: two samples, uniform ranks, and the correction for many of them.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from scipy import stats


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of one check; true in a condition exactly if it passed.

    Attributes:
        statistic: the measured quantity; the subclass says in which unit, and on which side of the threshold
            it passes.
        threshold: the value it was compared with.
        false_alarm_rate: probability that correct code fails; 0 for a deterministic check.
        passed: whether the check passed; a statistic that is not a number never passes.
    """

    statistic: float
    threshold: float
    false_alarm_rate: float
    passed: bool

    def __bool__(self) -> bool:
        """Whether the check passed."""
        return self.passed

    def __str__(self) -> str:
        """The verdict as one paragraph."""
        outcome = "passed" if self.passed else "FAILED"
        return f"{outcome}: {self._story()} (false alarm rate {self.false_alarm_rate:.2g})"

    def _story(self) -> str:
        return f"statistic {self.statistic:.4g}, threshold {self.threshold:.4g}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ELBOVerdict(Verdict):
    """Outcome of `elbo_check`: ``statistic`` is how many standard errors bound and estimate are apart.

    Attributes:
        estimate: Monte Carlo ELBO of the program and the guide, in nats.
        standard_error: its standard error, in nats.
        bound: the closed-form bound that was given, in nats.
    """

    estimate: float
    standard_error: float
    bound: float

    def _story(self) -> str:
        return (
            f"the bound is {self.bound:.6f} nats, the Monte Carlo ELBO {self.estimate:.6f} "
            f"+- {self.standard_error:.2g}: {self.statistic:.3g} standard errors apart, "
            f"at most {self.threshold:.3g} allowed"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConditionalVerdict(Verdict):
    """Outcome of `conditional_check`: ``statistic`` is the worst error relative to the largest log density.

    Attributes:
        errors: the worst absolute error in nats of each part: ``"block"`` (joint draws of the block) and each
            discrete site by name.
    """

    errors: Mapping[str, float]

    def _story(self) -> str:
        errors = ", ".join(f"{name} {error:.2g}" for name, error in self.errors.items())
        return (
            f"worst errors in nats: {errors}; relative {self.statistic:.2g}, "
            f"at most {self.threshold:.2g} allowed"
        )


def _of_p_values(p_values: Mapping[str, float], threshold: float) -> str:
    smallest = sorted(p_values.items(), key=lambda item: item[1])[:3]
    listed = ", ".join(f"{name} {p:.2g}" for name, p in smallest)
    return f"smallest p-values of {len(p_values)}: {listed}; each must be at least {threshold:.2g}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PValues(Verdict):
    p_values: Mapping[str, float] = dataclasses.field(repr=False)

    @classmethod
    def of(cls, p_values: Mapping[str, float], false_alarm_rate: float, **found: Any) -> Self:
        """The verdict of many tests, by Bonferroni's correction; one p-value that is NaN fails.

        Raises:
            ValueError: there are no p-values.
        """
        if not p_values:
            raise ValueError("no functional varies: there is nothing to compare")
        smallest, threshold = float(np.min(list(p_values.values()))), false_alarm_rate / len(p_values)
        return cls(
            statistic=smallest,
            threshold=threshold,
            false_alarm_rate=float(false_alarm_rate),
            passed=bool(smallest >= threshold),
            p_values=p_values,
            **found,
        )

    def _story(self) -> str:
        return _of_p_values(self.p_values, self.threshold)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GewekeVerdict(_PValues):
    """Outcome of `geweke`: ``statistic`` is the smallest p-value, at least ``threshold`` (Bonferroni).

    Attributes:
        p_values: ``"functional, test"`` to p-value.
        num_draws: replicates on each side.
    """

    num_draws: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SBCVerdict(_PValues):
    """Outcome of `sbc`: ``statistic`` is the smallest p-value, at least ``threshold`` (Bonferroni).

    Attributes:
        p_values: ``"functional, test"`` to p-value.
        ranks: functional to the rank of the prior draw among the posterior draws, in 0..num_ranked, shape
            (num_replicates,).
        num_ranked: posterior draws ranked per replicate.
        num_unconverged: replicates whose fit had not converged.
    """

    ranks: Mapping[str, np.ndarray] = dataclasses.field(repr=False)
    num_ranked: int
    num_unconverged: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class RelationVerdict(Verdict):
    """Outcome of `relation_check`: ``statistic`` is the largest error, or the smallest p-value (Bonferroni).

    Attributes:
        errors: quantity to its largest error, relative to the spread (of the objective: nats a row); empty
            where draws were compared in distribution.
        p_values: ``"invariant, test"`` to p-value where they were; else empty.
    """

    errors: Mapping[str, float] = dataclasses.field(default_factory=dict)
    p_values: Mapping[str, float] = dataclasses.field(default_factory=dict, repr=False)

    def _story(self) -> str:
        if not self.errors:
            return _of_p_values(self.p_values, self.threshold)
        largest = sorted(self.errors.items(), key=lambda item: -item[1])[:3]
        listed = ", ".join(f"{name} {error:.2g}" for name, error in largest)
        return f"largest errors of {len(self.errors)}: {listed}; at most {self.threshold:.2g} allowed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PosteriorVerdict(Verdict):
    """Outcome of `posterior_check`: ``statistic`` is the largest size of z, at most ``threshold``.

    Attributes:
        z: quantity to the difference of the means in combined Monte Carlo standard errors.
        bias: quantity to this difference in posterior standard deviations.
        smallest_visible_bias: quantity to the smallest bias, in posterior standard deviations, that would
            have failed with probability .95 at these draws' effective sample size.
        ess: quantity to the effective number of draws for its mean.
        not_compared: quantities of the reference that the draws lack.
    """

    z: Mapping[str, float] = dataclasses.field(repr=False)
    bias: Mapping[str, float] = dataclasses.field(repr=False)
    smallest_visible_bias: Mapping[str, float] = dataclasses.field(repr=False)
    ess: Mapping[str, float] = dataclasses.field(repr=False)
    not_compared: tuple[str, ...] = ()

    def _story(self) -> str:
        worst = sorted(self.z.items(), key=lambda item: -abs(item[1]))[:3]
        listed = ", ".join(f"{name} {z:.2g} ({self.bias[name]:+.2g} sd)" for name, z in worst)
        return (
            f"largest z of {len(self.z)}: {listed}; at most {self.threshold:.3g} allowed; a bias of "
            f"{max(self.smallest_visible_bias.values()):.2g} posterior sd in any of them would have been "
            "found with probability .95"
        )


def two_sample(before: np.ndarray, after: np.ndarray) -> dict[str, float]:
    """P-values for two samples to have one distribution.

    The tests are Mann-Whitney for the location, the same of the distances from the middle rank for the
    spread, and Kolmogorov-Smirnov for the whole distribution. Not-a-number is the lowest value on both sides.
    Values that agree to six digits are ties, since one side may round otherwise than the other (1, and
    1 - 1e-16). A functional that never varies has no test.
    """
    pooled = _to_six_digits(np.concatenate([before, after]))
    pooled = np.where(np.isnan(pooled), -np.inf, pooled)
    if np.all(pooled == pooled[0]):
        return {}
    ranks = stats.rankdata(pooled)
    distances = np.abs(ranks - (len(ranks) + 1) / 2)
    size = len(before)
    p_values = {
        "location": stats.mannwhitneyu(ranks[:size], ranks[size:], method="asymptotic").pvalue,
        "distribution": stats.ks_2samp(ranks[:size], ranks[size:], method="asymp").pvalue,
    }
    if np.any(distances != distances[0]):
        spread = stats.mannwhitneyu(distances[:size], distances[size:], method="asymptotic")
        p_values["spread"] = spread.pvalue
    return {test: float(p) for test, p in p_values.items()}


def _to_six_digits(values: np.ndarray) -> np.ndarray:
    """The values to six digits; powers of ten are exact up to 1e22, so that equal values stay equal."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        power = 10.0 ** (5 - np.floor(np.log10(np.abs(values))))
        rounded = np.round(values * power) / power
    return np.where(np.isfinite(rounded), rounded, values)


def rank_uniformity(
    values: Mapping[str, np.ndarray], rng: np.random.Generator
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Ranks of a truth among draws, and p-values for their uniformity.

    Each functional is an array (num_replicates, 1 + num_ranked), the truth in its first column. Ties are
    broken at random. A functional equal to the truth in every draw of every replicate depends on the data
    alone and is not tested.
    """
    ranks, p_values = {}, {}
    for name, scalars in values.items():
        scalars = np.where(np.isnan(scalars), -np.inf, scalars)
        truth, draws = scalars[:, :1], scalars[:, 1:]
        if np.all(truth == draws):
            continue
        num_replicates, num_ranked = draws.shape
        ties = np.sum(draws == truth, axis=1)
        ranks[name] = np.sum(draws < truth, axis=1) + rng.integers(0, ties + 1)
        num_bins = int(np.clip(num_replicates // 10, 2, min(16, num_ranked + 1)))
        edges = np.linspace(0, num_ranked + 1, num_bins + 1).astype(int)
        counts = np.histogram(ranks[name], bins=edges - 0.5)[0]
        expected = num_replicates * np.diff(edges) / (num_ranked + 1)
        spread_out = (ranks[name] + rng.uniform(size=num_replicates)) / (num_ranked + 1)
        p_values[f"{name}, chi-square"] = float(stats.chisquare(counts, expected).pvalue)
        p_values[f"{name}, distribution"] = float(stats.kstest(spread_out, "uniform").pvalue)
    return ranks, p_values
