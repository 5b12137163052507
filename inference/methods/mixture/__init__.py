"""Hand-written inference for mixtures, and the settings of its methods."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal

from inference.settings import Climb, Devices, FromZero, Sampling, Settings, Temperatures
from zoo.checks import check_names, check_share, shown, warn
from zoo.mixture import Mixture

__all__ = ["EM", "VB", "CollapsedGibbs", "Gibbs", "Tempered"]


_check_floor = partial(check_share, of="a share of the variance of all rows", closed=True)


@dataclass(frozen=True, kw_only=True)
class VB(Climb):
    """Variational Bayes of `zoo.Mixture`.

    Attributes:
        sort_sticks: whether the sticks of a Dirichlet process are put in the order of their sizes.
        moves: of clusters between steps, some of ``"merge"``, ``"delete"`` and ``"birth"``.
        learn: hyperparameters set to the maximum of the bound: ``"concentration"`` and those of the
            components' prior.
        num_devices: that the rows lie on; None: one, or all of several processes.
    """

    name = "vb"
    all_moves: ClassVar[tuple[str, ...]] = ("merge", "delete", "birth")
    sort_sticks: bool = True
    moves: tuple[str, ...] = ("merge", "delete")
    learn: tuple[str, ...] = ()
    num_devices: Devices | None = None

    def validate(self) -> None:
        """Raise TypeError or ValueError for moves that are none, and for names that are no tuple."""
        check_names("moves", self.moves, self.all_moves)
        if not isinstance(self.learn, tuple) or not all(isinstance(name, str) for name in self.learn):
            raise TypeError(f"learn must be a tuple of names of hyperparameters; got {shown(self.learn)}")


@dataclass(frozen=True, kw_only=True)
class Gibbs(Sampling):
    """The blocked Gibbs sampler of `zoo.Mixture`.

    Attributes:
        label_moves: whether the components of a Dirichlet process are put in a new order in every sweep.
        split_merge: moves of a sweep that split or merge clusters.
    """

    name = "gibbs"
    label_moves: bool = True
    split_merge: FromZero = 4


@dataclass(frozen=True, kw_only=True)
class CollapsedGibbs(Sampling):
    """The Polya urn of `zoo.Mixture`: weights and components integrated out.

    Attributes:
        split_merge: moves of a sweep that split or merge clusters.
    """

    name = "collapsed_gibbs"
    split_merge: FromZero = 5


@dataclass(frozen=True, kw_only=True)
class Tempered(Temperatures):
    """Tempered sampling of `zoo.Mixture`, with the log evidence.

    Attributes:
        kernel: the sampler that is tempered; None: ``"collapsed_gibbs"`` where it tempers the model exactly,
            else ``"gibbs"``.
        split_merge: moves of a sweep that split or merge clusters, at every temperature.
    """

    kernel: Literal["collapsed_gibbs", "gibbs", "nuts"] | None = None
    split_merge: FromZero = 5


@dataclass(frozen=True, kw_only=True)
class EM(Climb):
    """Maximum likelihood of `zoo.Mixture` by expectation maximisation.

    Attributes:
        variance_floor: share of the variance of all rows that every variance keeps.
    """

    name = "em"
    variance_floor: Annotated[float, _check_floor] = 1e-6


def check(model: Mixture, settings: Settings) -> None:
    """Refuse to take cells recorded in steps for exact; warn of a short truncation of sticks."""
    if model.part_families[0].is_rounded and settings.name not in ("gibbs", "nuts", "hmc", "tempered"):
        raise ValueError(
            f"method {settings.name!r} takes cells for exact, and with rounding= they stand for intervals: "
            "use 'gibbs', 'nuts', 'hmc' or 'tempered', or leave rounding out"
        )
    has_last = (
        model.weight_prior == "stick_breaking" and not model.free_last_stick and model.num_components > 1
    )
    if has_last and settings.name not in ("collapsed_gibbs", "tempered") and model.leftover_stick_mass > 0.01:
        warn(
            "the truncation is too short for the concentration: before the data the last of "
            f"{model.num_components} sticks is expected to hold {model.leftover_stick_mass:.0%} of the mass, "
            "and rows will gather there; raise num_components or lower concentration"
        )
