"""Hand-written inference for probabilistic latent semantic indexing, and its settings."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np

from inference.settings import Climb
from zoo.checks import check_share

__all__ = ["EM"]


@dataclass(frozen=True, kw_only=True)
class EM(Climb):
    """Tempered expectation maximisation of `zoo.PLSI`.

    Attributes:
        inverse_temperature: of the first steps, above 0 and at most 1.
        smoothing: tokens added to every word of every topic.
        heldout_share: share of the tokens held out, by which the temperature is chosen.
        inverse_temperature_decay: factor of the temperature where held-out tokens become less likely.
    """

    name = "em"
    inverse_temperature: float = 1.0
    smoothing: float = 0.0
    heldout_share: Annotated[
        float, partial(check_share, of="the share of tokens that are held out", closed=True)
    ] = 0.0
    inverse_temperature_decay: Annotated[float, partial(check_share, of="a factor")] = 0.9

    def validate(self) -> None:
        """Raise ValueError for a temperature or a smoothing outside its domain."""
        if not 0 < self.inverse_temperature <= 1:
            raise ValueError(f"inverse_temperature must lie in (0, 1]; got {self.inverse_temperature}")
        if not 0 <= self.smoothing < np.inf:
            raise ValueError(f"smoothing must be a number of tokens of at least 0; got {self.smoothing}")
