r"""Independent draws from q, their random numbers made by NumPy.

A program that holds a random number generator takes a second or more to compile, for every shape; NumPy has
its generator compiled already, and draws gamma variables at twice the speed (``tests.benchmarks.numerics``).
So the standard normal and gamma variables that a guide's sites are made of are drawn here, and a short
program without randomness turns them into values of all sites, every draw at once.

For that the parameters of gamma variables must be known beforehand: no site's may depend on the value of
another site (those of normal variables may). A guide in which one does is refused.

The draws may be given something each, such as the labels that a sampler has left, so that what is drawn given
them needs no generator in a program either.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro import handlers
from numpyro.primitives import Messenger

from inference.numerics.compiled import compiled
from inference.numerics.gamma_draws import GAMMAS, gamma_parameters, inner, made_of_gammas
from zoo.checks import memory_in_words, warn

DRAWN_BYTES = 2.5e8  # draws of q that would take more are not all made
BLOCK_NUMBERS = 2**23  # drawn at once, so that what is made of them on the way stays small


def generator(key: Array) -> np.random.Generator:
    """NumPy's generator with the seed of a JAX key.

    Args:
        key: a JAX key.
    """
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def affordable(num_samples: int, num_entries: int, what: str, remedy: str = "") -> int:
    """The number of draws from q that take at most `DRAWN_BYTES`; warns if that is fewer than asked for.

    Args:
        num_samples: draws asked for.
        num_entries: numbers in a draw.
        what: is drawn, in words.
        remedy: how more are had.
    """
    fits = max(int(DRAWN_BYTES // (8 * num_entries)), 1)
    if fits < num_samples:
        warn(
            f"{num_samples} draws of {what} would take {memory_in_words(8.0 * num_samples * num_entries)}: "
            f"{fits} are kept; ask for fewer by num_samples{remedy}"
        )
    return min(num_samples, fits)


def log_gamma_draws(rng: np.random.Generator, concentration: np.ndarray, num_draws: int) -> np.ndarray:
    r"""Logs of draws of Gamma(concentration, 1), which do not underflow where the draws do.

    For a < 1 a draw of Gamma(a + 1) is multiplied by :math:`u^{1/a}`.

    Args:
        rng: the generator.
        concentration: positive, any shape.
        num_draws: how many draws.

    Returns:
        Shape (num_draws, ...), the last axes those of the concentration.
    """
    concentration = np.asarray(concentration, float)
    small = concentration < 1
    shape = (num_draws, *concentration.shape)
    logs = np.log(rng.standard_gamma(np.where(small, concentration + 1, concentration), shape))
    if small.any():
        logs -= np.where(small, rng.standard_exponential(shape) / concentration, 0)
    return logs


def dirichlet_draws(rng: np.random.Generator, concentration: np.ndarray, num_draws: int) -> np.ndarray:
    """Draws of each row's Dirichlet; no entry is zero, since zeros have no finite density.

    Args:
        rng: the generator.
        concentration: positive, shape (..., size).
        num_draws: how many draws.

    Returns:
        Shape (num_draws, ..., size), of the concentration's type.
    """
    concentration = np.asarray(concentration)
    found = np.empty((num_draws, *concentration.shape), concentration.dtype)
    size = max(BLOCK_NUMBERS // max(concentration.size, 1), 1)
    for first in range(0, num_draws, size):  # little is held beside what is returned
        block = found[first : first + size]
        values = log_gamma_draws(rng, concentration, len(block))
        values -= values.max(axis=-1, keepdims=True)
        np.exp(values, out=values)
        block[:] = values / values.sum(axis=-1, keepdims=True)
        np.maximum(block, np.finfo(block.dtype).tiny, out=block)
    return found


def dirichlet_of_each(rng: np.random.Generator, counts: np.ndarray, prior: Any) -> np.ndarray:
    """One draw of each Dirichlet with parameters ``prior + counts``; no entry is zero.

    Args:
        rng: the generator.
        counts: shape (num_chains, num_draws, ..., size).
        prior: positive, a number or shape (size,).

    Returns:
        Of the shape of ``counts`` and the type of ``prior``.
    """
    prior, draws = np.asarray(prior), counts.reshape(-1, *counts.shape[2:])
    found = np.empty(draws.shape, prior.dtype)
    size = max(BLOCK_NUMBERS // max(math.prod(draws.shape[1:]), 1), 1)
    for first in range(0, len(draws), size):  # a few are turned into parameters at a time
        block = slice(first, first + size)
        found[block] = dirichlet_draws(rng, (prior + draws[block]).astype(prior.dtype), 1)[0]
    return found.reshape(counts.shape)


def weight_draws(rng: np.random.Generator, law: dist.Distribution, num_draws: int) -> np.ndarray:
    """Draws of the site of mixture weights.

    Args:
        rng: the generator.
        law: a Dirichlet, or the law of the decays of sticks.
        num_draws: how many draws.

    Returns:
        Shape (num_draws, ...), the last axes those of the law.
    """
    if isinstance(law, dist.Dirichlet):
        return dirichlet_draws(rng, law.concentration, num_draws)
    dtype = np.asarray(law.concentration1).dtype
    taken, left = (log_gamma_draws(rng, own, num_draws) for own in (law.concentration1, law.concentration0))
    return np.maximum(np.logaddexp(0, taken - left).astype(dtype), np.finfo(dtype).tiny)


def label_draws(rng: np.random.Generator, probs: np.ndarray, num_draws: int) -> np.ndarray:
    """Draws of each row's label, by inverting its cumulative probabilities.

    Args:
        rng: the generator.
        probs: of the labels, shape (num_observations, num_labels); a row need not add up to one.
        num_draws: how many draws.

    Returns:
        Whole numbers of the smallest type, shape (num_draws, num_observations).
    """
    upto = np.cumsum(np.asarray(probs, float), axis=1)
    labels = np.empty((len(upto), num_draws), np.min_scalar_type(upto.shape[1] - 1))
    for own, cumulative in zip(labels, upto, strict=True):
        own[:] = np.searchsorted(cumulative[:-1], rng.random(num_draws) * cumulative[-1], side="right")
    return labels.T


def site_draws(
    rng: np.random.Generator, program: Callable, num_draws: int, *args: Any, given: Any = None
) -> dict[str, Array]:
    """Draws of every site of a NumPyro program whose gamma variables do not depend on other sites.

    Args:
        rng: the generator.
        program: a module-level function, since it keys the compile cache.
        num_draws: how many draws.
        *args: of the program.
        given: what each draw is given, leaves with a leading axis over draws; the program is then called as
            ``program(own, *args)``.

    Returns:
        Draws of each site by name, a leading axis over them.

    Raises:
        ValueError: gamma variables of a site depend on the value of another.
        TypeError: a site has a distribution that is not made of normal and gamma variables.
    """
    own = () if given is None else (jax.tree.map(np.asarray, given),)
    concentrations, shapes = jax.tree.map(np.asarray, _gammas_and_normals(program, own, args))
    for name, of in concentrations.items():
        if np.isnan(of).any():
            raise ValueError(
                f"the concentration of site {name!r} is NaN, or depends on the value of another site"
            )
    shapes = {name: tuple(shape.tolist()) for name, shape in shapes.items()}
    numbers = sum(of.size for of in concentrations.values()) // (num_draws if own else 1)
    numbers += sum(map(math.prod, shapes.values()))
    num_blocks = -(-num_draws * numbers // BLOCK_NUMBERS) or 1
    size = -(-num_draws // num_blocks)  # of all blocks, so that they share a program
    found: dict[str, Any] = {}
    for first in range(0, num_draws, size):
        place = np.minimum(np.arange(first, first + size), num_draws - 1)  # the last block is filled up
        if own:
            gammas = {name: log_gamma_draws(rng, of[place], 1)[0] for name, of in concentrations.items()}
        else:
            gammas = {name: log_gamma_draws(rng, of, size) for name, of in concentrations.items()}
        normals = {name: rng.standard_normal((size, *shape)) for name, shape in shapes.items()}
        values = _values(program, gammas, normals, _taken(own, place), args)
        if size == num_draws:
            return values
        for name, value in values.items():
            if not first:
                found[name] = np.empty((num_draws, *value.shape[1:]), value.dtype)
            found[name][first : first + size] = value[: num_draws - first]
    return found


def _taken(given: tuple, place: np.ndarray) -> tuple:
    """What the draws at these places are given."""
    return jax.tree.map(lambda leaf: leaf[place], given)


@partial(compiled, once=True, static_argnums=0)
def _gammas_and_normals(
    program: Callable, own: tuple, args: tuple
) -> tuple[dict[str, Array], dict[str, np.ndarray]]:
    """The parameters of each site's gamma variables, and the shapes of its standard normal ones.

    Every other site is NaN. The parameters are those of each draw, if given.
    """

    def one(own: tuple) -> tuple[dict[str, Array], dict[str, np.ndarray]]:
        laws = _laws(program, (*own, *args)).items()
        shapes = {name: shape for name, law in laws if (shape := _normal_shape(law)) is not None}
        gammas = {name: gamma_parameters(law) for name, law in laws if isinstance(inner(law), GAMMAS)}
        return gammas, {name: np.array(shape, int) for name, shape in shapes.items()}

    return jax.vmap(one, out_axes=(0, None))(own) if own else one(own)


@partial(compiled, once=True, static_argnums=0)
def _values(
    program: Callable, gammas: dict[str, Array], normals: dict[str, Array], own: tuple, args: tuple
) -> dict[str, Array]:
    """Values of all sites, a leading axis over draws."""

    def one(gammas: dict[str, Array], normals: dict[str, Array], own: tuple) -> dict[str, Array]:
        def value(name: str, law: dist.Distribution) -> Array:
            return _made(law, gammas.get(name), normals.get(name))

        return {name: site["value"] for name, site in _traced(program, value, (*own, *args)).items()}

    return jax.vmap(one)(gammas, normals, own)


class _Valued(Messenger):
    """Values of a program's sites, by name and distribution."""

    def __init__(self, program: Callable, value: Callable) -> None:
        self.value = value
        super().__init__(program)

    def process_message(self, message: dict[str, Any]) -> None:
        """Give a value to a site that has none yet."""
        if message["type"] == "sample" and not message["is_observed"] and message["value"] is None:
            message["value"] = self.value(message["name"], message["fn"])


def _traced(program: Callable, value: Callable, args: tuple) -> dict[str, Any]:
    trace = handlers.trace(_Valued(program, value)).get_trace(*args)
    return {name: site for name, site in trace.items() if site["type"] == "sample"}


def _laws(program: Callable, args: tuple) -> dict[str, dist.Distribution]:
    """The distribution of each site, given NaN at all others."""
    sites = _traced(program, lambda _, own: jnp.full(own.shape(), jnp.nan), args)
    return {name: site["fn"] for name, site in sites.items()}


def _normal_shape(distribution: dist.Distribution) -> tuple[int, ...] | None:
    base, shape = inner(distribution), distribution.shape()
    if hasattr(base, "of_base"):
        return _normal_shape(base.base)
    if isinstance(base, dist.Wishart):
        return shape
    if isinstance(base, dist.TransformedDistribution):
        for transform in reversed(base.transforms):
            shape = transform.inverse_shape(shape)
        base = inner(base.base_dist)
    return shape if isinstance(base, dist.Normal | dist.MultivariateNormal) else None


def _made(distribution: dist.Distribution, logs: Array | None, normal: Array | None) -> Array:
    """The value of a site.

    Args:
        distribution: of the site.
        logs: of its gamma variables, shape of `gamma_parameters`.
        normal: its standard normal variables.
    """
    base = inner(distribution)
    if hasattr(base, "of_base"):  # a distribution of the project's own says what it makes of another's value
        return base.of_base(_made(base.base, logs, normal))
    if isinstance(base, dist.TransformedDistribution) and not isinstance(base, GAMMAS):
        value = _made(base.base_dist, logs, normal)
        for transform in base.transforms:
            value = transform(value)
        return value
    if isinstance(base, dist.Normal):
        return base.loc + base.scale * normal
    if isinstance(base, dist.MultivariateNormal):
        return base.loc + (base.scale_tril @ normal[..., None])[..., 0]
    if isinstance(base, dist.Delta):
        return jnp.broadcast_to(base.v, distribution.shape())
    if isinstance(base, GAMMAS):
        return made_of_gammas(base, logs, normal)
    raise TypeError(f"{type(base).__name__} is not made of normal and gamma variables")
