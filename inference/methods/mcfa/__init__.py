"""Hand-written inference for mixtures of factor analysers, and the settings of its methods."""

from dataclasses import dataclass
from typing import ClassVar

from inference.settings import Climb
from zoo.checks import check_names

__all__ = ["VB"]


@dataclass(frozen=True, kw_only=True)
class VB(Climb):
    """Variational Bayes of `zoo.MCFA`.

    Attributes:
        moves: of clusters between steps, some of ``"merge"`` and ``"delete"``, as in `zoo.Mixture`.
    """

    name = "vb"
    all_moves: ClassVar[tuple[str, ...]] = ("merge", "delete")
    moves: tuple[str, ...] = ("merge", "delete")

    def validate(self) -> None:
        """Raise TypeError or ValueError for moves that are none."""
        check_names("moves", self.moves, self.all_moves)
