"""What can be asked of a NumPyro program: its sites, the log density of each, a draw from all of them.

Every check in `inference.calibration` compares something (a bound, a conditional, a sampler) with the
program, because the program is the definition of the model: where a formula and the program disagree, the
program wins.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import CategoricalLogits, CategoricalProbs, constraints
from numpyro.infer.util import compute_log_probs

__all__ = [
    "Site",
    "call_compiled",
    "check_arguments",
    "check_latents",
    "check_proper",
    "data_sites",
    "explicit_form",
    "joint_draws",
    "latent_sites",
    "log_densities",
    "redraw_data",
    "sites_of",
]

_DATA_NAMES = re.compile(r"x|y|y_\d+|counts")
_KINDS = {
    "real": constraints.real,
    "positive": constraints.positive,
    "simplex": constraints.simplex,
    "positive_definite": constraints.positive_definite,
    "unit_interval": constraints.unit_interval,
}


class Site(NamedTuple):
    """A random variable of a program.

    Attributes:
        shape: shape of its value.
        kind: ``"label"`` (categorical), ``"count"`` (any other discrete variable), ``"real"``,
            ``"positive"``, ``"unit_interval"``, ``"simplex"``, ``"positive_definite"`` or ``"other"``: what a
            summary of it may assume.
        observed: whether its value was given.
        enumerated: whether the program asks for it to be summed out, by ``infer={"enumerate": "parallel"}``.
        plates: names of the plates it is in, leftmost dim first.
    """

    shape: tuple[int, ...]
    kind: str
    observed: bool
    enumerated: bool
    plates: tuple[str, ...]


def explicit_form(model: Callable) -> Callable:
    """The program in which every latent is a site: ``model.explicit`` if there is one, else itself."""
    return getattr(model, "explicit", model)


def sites_of(program: Callable, *data: Any, **sizes: int) -> dict[str, Site]:
    """The random variables of ``program(*data, **sizes)``, in order, found by tracing shapes only."""
    found: dict[str, Site] = {}

    def run() -> None:
        trace = handlers.trace(handlers.seed(program, jax.random.key(0))).get_trace(*data, **sizes)
        for name, site in trace.items():
            if site["type"] == "sample" and not site["infer"].get("is_auxiliary", False):
                frames = sorted(site["cond_indep_stack"], key=lambda frame: frame.dim)
                found[name] = Site(
                    shape=jnp.shape(site["value"]),
                    kind=_kind(site["fn"]),
                    observed=site["is_observed"],
                    enumerated=site["infer"].get("enumerate") == "parallel" and not site["is_observed"],
                    plates=tuple(frame.name for frame in frames),
                )

    jax.eval_shape(run)
    return found


def latent_sites(program: Callable, *data: Any) -> dict[str, Site]:
    """The sites of ``program(*data)`` that the data leave unknown."""
    return {name: site for name, site in sites_of(program, *data).items() if not site.observed}


def data_sites(sites: Iterable[str]) -> tuple[str, ...]:
    """Names of the data among the sites of a program run without data, in the order of its arguments.

    Raises:
        ValueError: no site has a name that data have in the zoo.
    """
    names = tuple(sorted(filter(_DATA_NAMES.fullmatch, sites), key=lambda name: (name[:1], len(name), name)))
    if not names:
        raise ValueError(
            f"a program's data sites are called x, y, y_0, y_1, ... or counts; this one has {sorted(sites)}"
        )
    return names


def check_latents(shapes: Mapping[str, tuple[int, ...]], latents: Mapping[str, Site], what: str) -> None:
    """Raise ValueError unless ``shapes`` are exactly those of the latent sites; ``what`` is what has them."""
    missing, unknown = [n for n in latents if n not in shapes], [n for n in shapes if n not in latents]
    if missing or unknown:
        raise ValueError(
            f"{what} must have exactly the latent sites of the program {sorted(latents)}; "
            f"missing: {missing}, not a site of it: {unknown}"
        )
    for name, site in latents.items():
        if tuple(shapes[name]) != site.shape:
            raise ValueError(
                f"{what}: {name} must have shape {site.shape}, as in the program; got {tuple(shapes[name])}"
            )


def check_arguments(data: tuple) -> None:
    """Raise TypeError unless the data are a tuple, the arguments of a program."""
    if not isinstance(data, tuple):
        raise TypeError(
            f"data must be a tuple, the arguments of the program, e.g. (x,); got {type(data).__name__}"
        )


def log_densities(program: Callable, data: tuple, values: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Log density in nats of each site given its parents, at constrained values; the sum is the log joint."""
    return compute_log_probs(program, data, {}, dict(values))[0]


def check_proper(model: Callable, advice: str) -> None:
    """Raise ValueError, with advice, if the model says that its prior is not proper."""
    prior = getattr(model, "prior", "proper")
    if prior != "proper":
        raise ValueError(
            f"the prior of {type(model).__name__} is {prior}, so its program cannot draw from it: {advice}"
        )


def joint_draws(
    keys: jax.Array, program: Callable, num_observations: int, block_size: int
) -> dict[str, jax.Array]:
    """One draw per key of every site, latent and data, from ``program(num_observations=...)``, stacked."""

    def draw(key: jax.Array) -> dict[str, jax.Array]:
        trace = handlers.trace(handlers.seed(program, key)).get_trace(num_observations=num_observations)
        return {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}

    return jax.lax.map(draw, keys, batch_size=block_size)


def redraw_data(
    key: jax.Array, program: Callable, values: Mapping[str, Any], data: tuple, names: tuple[str, ...]
) -> tuple[jax.Array, ...]:
    """New data drawn from the program given all latent values; ``data`` serve for their shapes only."""
    given = handlers.substitute(handlers.uncondition(program), data=dict(values))
    trace = handlers.trace(handlers.seed(given, key)).get_trace(*data)
    return tuple(trace[name]["value"] for name in names)


def call_compiled(function: Callable, *arguments: Any) -> Any:
    """``function(*arguments)`` under ``jit``: arrays and numbers are traced, all other leaves are static.

    So a model of the zoo, a pytree, is an argument of the compiled code and another one of the same sizes
    compiles nothing, while a plain function may be a program too.
    """
    leaves, structure = jax.tree.flatten(arguments)
    traced = [isinstance(leaf, (np.ndarray, np.generic, jax.Array, float, complex)) for leaf in leaves]
    fixed = tuple(None if dynamic else leaf for leaf, dynamic in zip(leaves, traced, strict=True))
    arrays = [leaf for leaf, dynamic in zip(leaves, traced, strict=True) if dynamic]
    return _call(function, structure, tuple(traced), fixed, arrays)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _call(function: Callable, structure: Any, traced: tuple, fixed: tuple, arrays: list) -> Any:
    remaining = iter(arrays)
    leaves = [next(remaining) if dynamic else leaf for dynamic, leaf in zip(traced, fixed, strict=True)]
    return function(*jax.tree.unflatten(structure, leaves))


def _kind(distribution: Any) -> str:
    base = distribution
    while hasattr(base, "base_dist"):
        base = base.base_dist
    if isinstance(base, (CategoricalProbs, CategoricalLogits)):
        return "label"
    support = distribution.support
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    if support.is_discrete:
        return "count"
    return next(
        (kind for kind, constraint in _KINDS.items() if isinstance(support, type(constraint))), "other"
    )
