"""The settings of `inference.fit` as objects: what samplers and ascents take, and each method's own options.

``fit(model, x, method=NUTS(num_chains=2, target_accept_prob=0.9))`` is
``fit(model, x, method="nuts", num_chains=2, target_accept_prob=0.9)``. The methods that fit every model are
here; those of one model are in the package of its methods, such as ``inference.methods.mixture.VB``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypedDict, Union, get_args, get_origin

import numpy as np

from zoo.checks import (
    check_choice,
    check_flag,
    check_number,
    check_positive,
    check_share,
    check_whole,
    shown,
)
from zoo.naming import did_you_mean

FEWEST_TEMPERATURES, MOST_TEMPERATURES = 8, 64  # where the barrier says how many
MOST_LOOKS = 20  # of a run until the chains agree where no limit is given


def _check_tolerance(name: str, value: object) -> None:
    kinds = int | float | np.integer | np.floating
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value < np.inf:
        raise ValueError(f"{name} must be a number of at least 0 (nats per row); got {shown(value)}")


def _check_devices(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):  # `fit` knows how many there are
        raise TypeError(f"{name} must be a whole number; got {shown(value)}")


FromZero = Annotated[int, partial(check_whole, least=0)]
Positive = Annotated[float, check_positive]
Tolerance = Annotated[float, _check_tolerance]
Devices = Annotated[int, _check_devices]
Acceptance = Annotated[float, partial(check_share, of="a probability of acceptance")]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a method: its fields, checked by their types and by `validate`.

    Class attributes:
        name: the name of the method in ``model.methods``.
    """

    name: ClassVar[str] = ""

    if not TYPE_CHECKING:  # to type checkers the constructor is that of the dataclass

        def __new__(cls, **given: Any) -> Any:
            """Remember which settings are given; TypeError for a name that is none, with one that is near."""
            known = [field.name for field in fields(cls)]
            for name in given:
                if name not in known:
                    has = f"it has {', '.join(known) or 'none'}{did_you_mean(name, known)}"
                    raise TypeError(f"{cls.__name__} has no setting {name!r}; {has}")
            made = super().__new__(cls)
            object.__setattr__(made, "_given", tuple(given))
            return made

    def __post_init__(self) -> None:
        for field in fields(self):
            value = plain(getattr(self, field.name))
            object.__setattr__(self, field.name, value)
            _check_kind(field.name, value, field.type)
        self.validate()

    def validate(self) -> None:
        """Raise TypeError or ValueError for what the types of the fields do not tell."""

    @property
    def given(self) -> dict[str, Any]:
        """The settings that its constructor was given."""
        return {name: getattr(self, name) for name in getattr(self, "_given", ())}

    @property
    def shared(self) -> dict[str, Any]:
        """The settings of all methods of its kind."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name in COMMON}

    @property
    def options(self) -> dict[str, Any]:
        """The settings of this method alone, as its functions take them: without ``num_devices``."""
        return {name: getattr(self, name) for name in self.defaults() if name != "num_devices"}

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """The options of the method with their defaults."""
        return {field.name: field.default for field in fields(cls) if field.name not in COMMON}


def _check_kind(name: str, value: object, kind: Any) -> None:
    """Raise TypeError or ValueError unless a value is of the type of its field."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if NoneType in kinds and value is None:
        return
    if len(own := [part for part in kinds if part is not NoneType]) > 1:
        return  # such as a number or a tuple of them
    if get_origin(own[0]) is Annotated:
        own[0].__metadata__[0](name, value)
    elif get_origin(own[0]) is Literal:
        check_choice(name, value, get_args(own[0]))
    elif (check := {bool: check_flag, int: check_whole, float: check_number}.get(own[0])) is not None:
        check(name, value)


@dataclass(frozen=True, kw_only=True)
class Once(Settings):
    """What a method takes that solves directly: its own options alone."""

    num_restarts = num_steps = num_draws = 1


@dataclass(frozen=True, kw_only=True)
class Climb(Settings):
    """What every ascent takes: VB, EM, MAP and SVI.

    Attributes:
        num_samples: independent draws from q, as one chain.
        max_iterations: the most steps; the number of steps of SVI.
        tolerance: gain of the objective in nats per row below which a step is small; five of them end the
            run. 0: exactly ``max_iterations`` steps.
        num_restarts: starts, of which the best is kept; None: as many as model and method need.
    """

    num_samples: int = 1000
    max_iterations: int = 1000
    tolerance: Tolerance = 1e-6
    num_restarts: int | None = None

    @property
    def num_starts(self) -> int:
        """Starts that are run."""
        return self.num_restarts or 1

    @property
    def num_steps(self) -> int:
        """About how many steps are made; an ascent seldom needs more than two hundred."""
        return self.num_starts * min(self.max_iterations, 200)

    @property
    def num_draws(self) -> int:
        """Draws that a fit ends with."""
        return self.num_samples


@dataclass(frozen=True, kw_only=True)
class Sampling(Settings):
    """What every sampler takes.

    Attributes:
        num_chains: chains.
        num_warmup: sweeps before draws are kept.
        num_samples: draws kept per chain.
        thinning: sweeps per kept draw.
        chain_method: ``"vectorized"``, ``"sequential"`` or ``"parallel"`` (over devices).
        until: ``"converged"``: the chains run until they have converged. After every ``num_samples`` draws
            per chain the diagnostics of `inference.convergence.judge` are computed from all draws so far; the
            run ends when they pass twice in a row. The attributes ``look`` and ``looks`` of the fit hold
            their history.
        max_sweeps: with ``until``, the most sweeps per chain, including warm-up; None: enough for 20 checks.
            The draws do not depend on the checks: a run resumed from its ``checkpoint``, or with another
            limit, has the same draws bit for bit.
        max_seconds: with ``until``, the first check after this many seconds is the last.
    """

    num_chains: int = 4
    num_warmup: FromZero = 1000
    num_samples: int = 1000
    thinning: int = 1
    chain_method: Literal["vectorized", "sequential", "parallel"] = "vectorized"
    until: Literal["converged"] | None = None
    max_sweeps: int | None = None
    max_seconds: Positive | None = None

    def validate(self) -> None:
        """Raise ValueError for a run until the chains agree that could not be looked at."""
        if self.until is None:
            for name in ("max_sweeps", "max_seconds"):
                if (value := getattr(self, name)) is not None:
                    raise ValueError(f"{name} goes with until='converged'; got {name}={shown(value)} alone")
            return
        if self.num_chains < 2:
            raise ValueError("until='converged' compares chains: num_chains must be at least 2; got 1")
        needed = self.num_warmup + self.num_samples * self.thinning
        if self.max_sweeps is not None and self.max_sweeps < needed:
            raise ValueError(
                f"max_sweeps must leave room for one check, after num_warmup + num_samples * thinning = "
                f"{needed} sweeps; got {self.max_sweeps}"
            )

    @property
    def max_looks(self) -> int:
        """How often the chains are looked at, at most: after each ``num_samples`` draws."""
        if self.until is None:
            return 1
        if self.max_sweeps is None:
            return MOST_LOOKS
        return (self.max_sweeps - self.num_warmup) // (self.num_samples * self.thinning)

    @property
    def of_the_loop(self) -> dict[str, Any]:
        """The arguments of `inference.driver.chains.sample` that they are."""
        given = self.shared
        del given["until"], given["max_sweeps"]
        return given | {"max_looks": self.max_looks}

    @property
    def num_starts(self) -> int:
        """States to start from."""
        return self.num_chains

    @property
    def num_steps(self) -> int:
        """Sweeps of all chains."""
        return self.num_chains * (self.num_warmup + self.num_samples * self.thinning)

    @property
    def num_draws(self) -> int:
        """Draws that a fit ends with."""
        return self.num_chains * self.num_samples


#: Settings of all methods of a kind, which `fit` takes whatever the method, with their defaults.
COMMON: Mapping[str, Any] = {
    field.name: field.default for kind in (Climb, Sampling) for field in fields(kind)
}


# Methods that fit every model


@dataclass(frozen=True, kw_only=True)
class NUTS(Sampling):
    """The No-U-Turn sampler, on the program of any model.

    Attributes:
        target_accept_prob: mean acceptance to which warm-up adapts the step size.
        dense_mass: whether the mass matrix is dense.
        max_tree_depth: the most doublings of a trajectory; two: in warm-up and after.
    """

    name = "nuts"
    target_accept_prob: Acceptance = 0.8
    dense_mass: bool = False
    max_tree_depth: int | tuple[int, int] = 10

    def validate(self) -> None:
        """Raise ValueError unless there is one depth, or one for warm-up and one for the draws."""
        super().validate()
        depths = self.max_tree_depth if isinstance(self.max_tree_depth, tuple) else (self.max_tree_depth,)
        if len(depths) not in (1, 2):
            raise ValueError(
                f"max_tree_depth must be one whole number, or two for warm-up and draws; got {depths!r}"
            )
        for depth in depths:
            check_whole("max_tree_depth", depth)


@dataclass(frozen=True, kw_only=True)
class HMC(Sampling):
    """Hamiltonian Monte Carlo with trajectories of one length, on the program of any model.

    Attributes:
        target_accept_prob: mean acceptance to which warm-up adapts the step size.
        dense_mass: whether the mass matrix is dense.
        num_steps: leapfrog steps of a trajectory; None: as many as ``trajectory_length`` takes.
        trajectory_length: step size times number of steps.
        random_step: whether the step size of every trajectory is drawn about the adapted one.
    """

    name = "hmc"
    target_accept_prob: Acceptance = 0.8
    dense_mass: bool = False
    num_steps: int | None = 16
    trajectory_length: Positive | None = None
    random_step: bool = False

    def validate(self) -> None:
        """Raise ValueError for options that do not go together."""
        super().validate()
        if self.num_steps is None and self.trajectory_length is None:
            raise ValueError("num_steps or trajectory_length must be given: both are None")
        if self.random_step and self.trajectory_length is not None:
            raise ValueError("random_step=True draws the step size, so trajectory_length must be None")


@dataclass(frozen=True, kw_only=True)
class Temperatures(NUTS):
    """What tempered sampling takes whatever the model; its chains are replicates.

    The options of NUTS are those of ``kernel="nuts"``, and other kernels refuse them.

    Attributes:
        num_warmup: sweeps before draws are kept, in rounds of doubling length that set the temperatures.
        num_temperatures: temperatures from prior to posterior, 2 to 64; None: by the barrier between them.
    """

    name = "tempered"
    num_warmup: FromZero = 300
    num_temperatures: int | None = None

    def validate(self) -> None:
        """Raise ValueError for a number of temperatures that there may not be."""
        super().validate()
        if self.num_temperatures is not None and not 2 <= self.num_temperatures <= MOST_TEMPERATURES:
            raise ValueError(
                f"num_temperatures must be from 2 to {MOST_TEMPERATURES}; got {self.num_temperatures}"
            )


@dataclass(frozen=True, kw_only=True)
class Tempered(Temperatures):
    """Tempered NUTS of any model with a proper prior, with the log evidence.

    Attributes:
        kernel: the sampler that is tempered.
    """

    kernel: Literal["nuts"] | None = None


@dataclass(frozen=True, kw_only=True)
class TemperedGibbs(Temperatures):
    """Tempered sampling of a model that has a Gibbs sampler, with the log evidence.

    Attributes:
        kernel: the sampler that is tempered; None: ``"gibbs"`` where it tempers the model exactly, else
            ``"nuts"``.
    """

    kernel: Literal["gibbs", "nuts"] | None = None


@dataclass(frozen=True, kw_only=True)
class SVI(Climb):
    """Stochastic variational inference with a normal guide, on the program of any model.

    Attributes:
        guide: the covariance of q in unconstrained coordinates: ``"normal"`` is diagonal.
        step_size: of Adam, up to the 1000th step; then it shrinks as 1 / t.
        num_particles: draws by which a step estimates the bound.
    """

    name = "svi"
    guide: Literal["normal", "multivariate_normal", "low_rank_multivariate_normal"] = "normal"
    step_size: Positive = 0.01
    num_particles: int = 1


@dataclass(frozen=True, kw_only=True)
class MAP(Climb):
    """Maximum a posteriori by L-BFGS, on the program of any model.

    Attributes:
        memory_size: the steps that L-BFGS remembers.
    """

    name = "map"
    memory_size: int = 10


# Settings by keyword


class More(TypedDict, total=False):
    """What `inference.fit` takes by keyword beside its named parameters.

    The first six are described where a sampler's settings (`Sampling`) and the reading of tables
    (`zoo.intake.read_columns`) are; the others are options of methods, described in their settings.
    """

    until: Literal["converged"] | None
    max_sweeps: int | None
    max_seconds: float | None
    families: Mapping[str, str] | None
    levels: Mapping[str, Sequence[Any]] | None
    id: str | None
    acceleration: Literal["px", "none"]
    balance: bool
    clamped_sweeps: int
    dense_mass: bool
    documents: Literal["restart", "continue"]
    family: Literal["structured", "mean_field"]
    form: Literal["auto", "primal", "dual", "simplified"]
    guide: Literal["normal", "multivariate_normal", "low_rank_multivariate_normal"]
    heldout_share: float
    inner_steps: int
    inner_tolerance: float
    inverse_temperature: float
    inverse_temperature_decay: float
    kernel: Literal["collapsed_gibbs", "gibbs", "nuts"] | None
    label_moves: bool
    learn: tuple[str, ...]
    learning_decay: float
    learning_offset: float
    max_tree_depth: int | tuple[int, int]
    memory: Literal["full", "online"]
    memory_size: int
    moves: bool | tuple[str, ...]
    new_rows: Literal["projected", "random"]
    noise_floor: float
    num_devices: int | None
    num_particles: int
    num_steps: int | None
    num_temperatures: int | None
    output_kernel: str | tuple[str, ...]
    output_sets: tuple[tuple[int, ...], ...] | None
    prune: bool
    random_step: bool
    ridge: float
    smoothing: float
    solver: Literal["auto", "lanczos", "dense"]
    sort_sticks: bool
    split_merge: int
    step_size: float
    target_accept_prob: float
    topics: Literal["posterior", "point"]
    trajectory_length: float | None
    variance_floor: float
    weight: float | tuple[float, ...]


def plain(value: object) -> Any:
    """The value of a setting as a stored fit has it: lists as tuples, numbers of NumPy as those of Python."""
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    return value.item() if isinstance(value, np.generic) else value
