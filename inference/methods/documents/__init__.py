"""Parts that the hand-written inference of all topic models shares, and settings of its VB."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from inference.settings import Climb, Devices, Positive
from zoo.checks import check_names, check_number

__all__ = ["TopicVB"]


def _check_decay(name: str, value: float) -> None:
    check_number(name, value)
    if not 0.5 < value <= 1:
        raise ValueError(f"{name} must lie in (0.5, 1], so that steps settle; got {value}")


@dataclass(frozen=True, kw_only=True)
class TopicVB(Climb):
    """What variational Bayes of every topic model takes.

    Attributes:
        inner_steps: the most passes over the documents, or over the clusters, in a step.
        learn: hyperparameters set to the maximum of the bound.
        learning_offset: tau of batches: batch t has weight ``(learning_offset + t)**-learning_decay``.
        learning_decay: of these weights, above 0.5 and at most 1.
        num_devices: that the documents lie on; None: one, or all of several processes.
    """

    learnable: ClassVar[tuple[str, ...]]
    inner_steps: int
    learn: tuple[str, ...] = ("word_smoothing",)
    learning_offset: Positive = 10.0
    learning_decay: Annotated[float, _check_decay] = 0.7
    num_devices: Devices | None = None

    def validate(self) -> None:
        """Raise TypeError or ValueError unless what is to be learnt can be."""
        check_names("learn", self.learn, self.learnable)
