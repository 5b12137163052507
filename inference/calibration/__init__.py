"""Check an inference method against the program that defines its model, known posteriors, and itself.

- `elbo_check`: a closed-form bound against the Monte Carlo ELBO of program and guide. It sees a wrong or a
  missing term of the bound. False alarms: 6e-5 (4 standard errors).
- `conditional_check`: a Gibbs conditional against the log joint of the program. It sees a wrong conditional,
  one block at a time. False alarms: none, it is exact up to rounding.
- `geweke`: a whole sampler against the joint distribution of the program. It sees wrong conditionals too, and
  faults between them: stale values, reused keys, a collapsed block in the wrong order. False alarms: 1 % a
  run.
- `sbc`: a fit, from data to tree, against the prior of the program. It sees all that, and bad mixing,
  variances that are too small, and mistakes on the way into the tree. False alarms: 1 % a run.
- `relation_check`: a fit against a fit of the same table in other units, another order or another format. It
  sees whatever depends on these and must not. False alarms: none, or .1 % a run where draws are compared.
- `posterior_check`: draws of any sampler against a reference posterior of `zoo.posteriors`. It sees any
  bias above the size that it reports. False alarms: 1 % a run.
- `recovery`: a fit against tables drawn from itself. It sees a method that does not find the number of
  clusters, the labels or the subspace that a table was drawn from. It gives figures and no verdict.

Each other answers with an `inference.calibration.verdicts.Verdict`: ``statistic``, ``threshold``,
``false_alarm_rate``, ``passed``.
"""

from inference.calibration.conditionals import conditional_check
from inference.calibration.elbo import elbo_check
from inference.calibration.joint_distribution import geweke
from inference.calibration.recoveries import recovery
from inference.calibration.reference_posteriors import posterior_check
from inference.calibration.relations import relation_check
from inference.calibration.simulation_based import sbc

__all__ = [
    "conditional_check",
    "elbo_check",
    "geweke",
    "posterior_check",
    "recovery",
    "relation_check",
    "sbc",
]
