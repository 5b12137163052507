"""Variational Bayes for low-rank `zoo.Paired`: `inference.variational.projections`."""

from inference.variational.projections import ALGORITHM, METHOD, check
from zoo.paired import Paired

__all__ = ["ALGORITHM", "METHOD"]


def _check(model: Paired) -> None:
    """Raise ValueError if the program has no such bound."""
    if model.specific == "full_covariance":
        raise ValueError("vb is for specific='low_rank'; with specific='full_covariance' use gibbs")
    check(model)


METHOD = METHOD._replace(check=_check)
