"""Hand-written inference for mixtures of factor analysers, and the settings of its methods."""

from dataclasses import dataclass
from typing import ClassVar

from inference.settings import Climb, FromZero, Sampling, TemperedGibbs
from zoo.checks import check_names

__all__ = ["VB", "Gibbs", "TemperedGibbs"]


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


@dataclass(frozen=True, kw_only=True)
class Gibbs(Sampling):
    """The Gibbs sampler of `zoo.MCFA`.

    Attributes:
        split_merge: moves of a sweep that split or merge clusters of the latents.
        moves: whether latents, clusters and loadings are moved along directions in which no row changes.
    """

    name = "gibbs"
    split_merge: FromZero = 0
    moves: bool = True
