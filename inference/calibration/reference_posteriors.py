r"""Draws of any sampler against a reference posterior of `zoo.posteriors`.

The mean :math:`\bar f` of each quantity over the draws is compared with its reference :math:`\mu`:

.. math:: z = \frac{\bar f - \mu}{\sqrt{\mathrm{MCSE}^2 + \mathrm{MCSE}_{\mathrm{ref}}^2}},

with the Monte Carlo standard error of the draws by ArviZ, autocorrelation included, and that of the
reference, 0 where it is exact. All :math:`|z|` must be below the normal quantile :math:`c` of Bonferroni's
correction for their number. A bias is seen with probability .95 from :math:`(c + 1.645)` combined standard
errors on; in posterior standard deviations this is reported as ``smallest_visible_bias``, since a check that
passes says no more than that nothing larger is there.
"""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from arviz_stats.base import array_stats
from scipy import stats

from inference.calibration.verdicts import PosteriorVerdict
from inference.convergence.identifiable import invariants, kind_of, scalars
from inference.results.groups import labels_of
from zoo import posteriors
from zoo.checks import check_share

POWER = 0.95
_FEWEST_DRAWS = 4  # per chain: what ArviZ needs
_MOST_ROWS = 12  # up to it every pair of rows is compared
_OF_THE_METHOD = ("lp", "objective")  # with latent variables summed out or not, a bound, a maximum


def posterior_check(
    tree_or_draws: xr.DataTree | Mapping[str, Any], name: str, *, false_alarm_rate: float = 0.01
) -> PosteriorVerdict:
    """Whether draws have the means of a reference posterior.

    It sees a sampler of another distribution, as far as the means of the quantities differ; a wrong spread
    about the right mean it does not see. A variational method fails it where it is biased: that is a
    finding, not a false alarm.

    Args:
        tree_or_draws: a fit of the posterior's model to its data (the arrays, without labels of rows and
            columns), or draws of at least one of its quantities by name, shape (num_chains, num_draws) or
            (num_draws,).
        name: of the posterior; see `zoo.posteriors.names`.
        false_alarm_rate: probability that a right sampler fails, at most; shared by all quantities
            (Bonferroni). It holds from about 400 effective draws on, where Monte Carlo errors are known.

    Returns:
        The verdict, with z, bias and smallest visible bias of each quantity.

    Raises:
        ValueError: no such posterior; a point estimate instead of draws; a quantity that the reference does
            not have, or none that it has; draws that are not finite or of another shape; fewer than 4 a
            chain; a rate outside (0, 1).
        TypeError: neither a fit nor a mapping.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> truth = posteriors.load("mixture").reference["same_cluster"]
        >>> draws = {"same_cluster": rng.normal(truth.mean, truth.sd, (4, 1000))}
        >>> bool(posterior_check(draws, "mixture"))
        True
    """
    check_share("false_alarm_rate", false_alarm_rate, "false alarms")
    posterior = posteriors.load(name)
    draws = _draws_of(tree_or_draws, posterior)
    threshold = float(stats.norm.isf(false_alarm_rate / (2 * len(draws))))
    found = scores(draws, posterior)
    z = {quantity: own["z"] for quantity, own in found.items()}
    visible = {
        quantity: (threshold + float(stats.norm.ppf(POWER))) * own["standard_error"]
        for quantity, own in found.items()
    }
    statistic = float(np.max(np.abs(list(z.values()))))
    return PosteriorVerdict(
        statistic=statistic,
        threshold=threshold,
        false_alarm_rate=float(false_alarm_rate),
        passed=bool(statistic <= threshold),
        z=z,
        bias={quantity: own["bias"] for quantity, own in found.items()},
        smallest_visible_bias=visible,
        ess={quantity: own["ess"] for quantity, own in found.items()},
        not_compared=tuple(sorted(set(posterior.reference) - set(draws))),
    )


def scores(draws: Mapping[str, np.ndarray], posterior: posteriors.Posterior) -> dict[str, dict[str, float]]:
    """Bias, its standard error, z and effective sample size of each quantity.

    Args:
        draws: quantities of the posterior's reference to draws, shape (num_chains, num_draws).
        posterior: the reference.
    """
    found = {}
    for name, values in draws.items():
        truth = posterior.reference[name]
        bias, mcse, ess = float(values.mean()) - truth.mean, 0.0, 0.0
        varies = np.ptp(values) > 0
        if varies:
            axes = {"chain_axis": 0, "draw_axis": 1}
            mcse = float(array_stats.mcse(values, **axes, method="mean"))
            ess = float(array_stats.ess(values, **axes, method="mean"))
        error = float(np.hypot(mcse, truth.mcse))
        found[name] = {
            "bias": bias / truth.sd,
            "standard_error": error / truth.sd if varies else np.inf,
            "z": bias / error if varies else np.inf,
            "ess": ess,
        }
    return found


def compared_quantities(tree: xr.DataTree) -> dict[str, np.ndarray]:
    """Draws of what references hold: the invariants, and which rows share a component.

    Returns:
        Name to draws, shape (num_chains, num_draws). Of up to 12 rows with labels every pair is there as
        ``pair_together[i~j]``, the places i < j counted from 0.
    """
    found = {
        name: draws
        for name, draws in scalars(invariants(tree))
        if name.split("[")[0] not in (*_OF_THE_METHOD, "pair_together")
    }
    labels = labels_of(tree)
    if labels is not None and labels.shape[2] <= _MOST_ROWS:
        for i, j in itertools.combinations(range(labels.shape[2]), 2):
            found[f"pair_together[{i}~{j}]"] = (labels.values[..., i] == labels.values[..., j]).astype(float)
    return found


def _draws_of(given: Any, posterior: posteriors.Posterior) -> dict[str, np.ndarray]:
    """The draws to compare, each of shape (num_chains, num_draws)."""
    known = f"the reference posterior {posterior.name} has: {', '.join(posterior.reference)}"
    if isinstance(given, xr.DataTree):
        if kind_of(given) == "point":
            raise ValueError("expected draws; got a fit with one point estimate: fit by a sampler, or by vb")
        found = {k: v for k, v in compared_quantities(given).items() if k in posterior.reference}
    elif isinstance(given, xr.Dataset):
        found = dict(scalars(given))
    elif isinstance(given, Mapping):
        found = {str(name): np.atleast_2d(np.asarray(values, float)) for name, values in given.items()}
    else:
        raise TypeError(f"expected a fit or a mapping from names to draws; got {type(given).__name__}")
    unknown = sorted(set(found) - set(posterior.reference))
    if unknown:
        raise ValueError(f"no reference for {', '.join(unknown)}; {known}")
    if not found:
        raise ValueError(f"there is nothing to compare: {known}")
    for name, values in found.items():
        if values.ndim != 2 or values.shape[1] < _FEWEST_DRAWS:
            raise ValueError(
                f"draws of {name} must have shape (num_chains, num_draws) or (num_draws,) with at least "
                f"{_FEWEST_DRAWS} draws; got {np.shape(values)}"
            )
        if not np.isfinite(values).all():
            raise ValueError(
                f"draws of {name} must be finite; got {np.sum(~np.isfinite(values))} that are not"
            )
    return found
