"""Hand-written inference for mixtures of factor analysers, and the settings of its methods."""

from dataclasses import dataclass
from typing import ClassVar

from inference.methods.mixture import check as check_mixture
from inference.settings import Climb, FromZero, Sampling, Settings, TemperedGibbs
from zoo.checks import check_names
from zoo.mcfa import MCFA

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


def check(model: MCFA, settings: Settings) -> None:
    """Warn of a short truncation; refuse MAP of weights that has no maximum."""
    check_mixture(model.mixture, settings)
    is_flat = model.weights.has_sticks or model.mixture.expected_concentration >= model.num_components
    if settings.name == "map" and not is_flat:
        remedy = f"concentration={model.num_components} or weight_prior='stick_breaking'"
        raise ValueError(f"map has no maximum at a concentration below num_components: give {remedy}")
