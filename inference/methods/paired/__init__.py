"""Hand-written inference for paired views, and the settings of its methods."""

from dataclasses import dataclass

from inference.methods.epca import VB, Gibbs, check
from inference.settings import Once, Tempered

__all__ = ["VB", "ClosedForm", "Gibbs", "Tempered", "check"]


@dataclass(frozen=True, kw_only=True)
class ClosedForm(Once):
    """Partial least squares and canonical correlations: the maximum of `zoo.Paired` for Gaussian views."""

    name = "closed_form"
