r"""Draws from a Dirichlet process :math:`\mathrm{DP}(\alpha, G_0)`, three ways that are equal in law.

* `polya_urn`: each value is new with probability :math:`\alpha / (\alpha + i)`, else one of the i before it
  (Blackwell and MacQueen 1973; Yu 2006, section 3.2.1).
* `chinese_restaurant`: first the partition, then one value of the base measure for each table.
* `stick_breaking_draw`: weights :math:`V_j \prod_{l<j} (1 - V_l)`, values at the sticks that uniform numbers
  fall on (Sethuraman 1994; Yu 2006, section 3.2.2). The sticks that are broken leave less than ``leftover``
  of the mass in expectation; a number that falls beyond them takes the last.
"""

import math

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

__all__ = ["chinese_restaurant", "polya_urn", "stick_breaking_draw"]


def polya_urn(
    key: Array, concentration: float, num_draws: int, base: dist.Distribution | None = None
) -> Array:
    """Values drawn from an urn: each new, or a copy of one drawn before.

    Args:
        key: random key.
        concentration: alpha > 0.
        num_draws: how many values.
        base: the base measure, a scalar distribution; by default a standard normal.

    Returns:
        Shape (num_draws,).

    Raises:
        ValueError: a concentration that is not positive, or fewer than one draw.
    """
    base = _checked(concentration, num_draws, base)
    fresh_key, copy_key, value_key = jax.random.split(key, 3)
    place = jnp.arange(num_draws)
    fresh = jax.random.uniform(fresh_key, (num_draws,)) * (concentration + place) < concentration
    copied = jnp.floor(jax.random.uniform(copy_key, (num_draws,)) * place).astype(int)
    source = jnp.where(fresh, place, copied)

    def draw(sources: Array, i: Array) -> tuple[Array, None]:  # copies of copies lead back to a fresh value
        return sources.at[i].set(jnp.where(sources[i] == i, i, sources[sources[i]])), None

    origin = jax.lax.scan(draw, source, place)[0]
    return base.sample(value_key, (num_draws,))[origin]


def chinese_restaurant(
    key: Array, concentration: float, num_draws: int, base: dist.Distribution | None = None
) -> Array:
    """Values by the tables of a restaurant: a partition is drawn first, then a value for each table.

    Errors are those of `polya_urn`.

    Args:
        key: random key.
        concentration: alpha > 0.
        num_draws: how many values.
        base: the base measure.

    Returns:
        Values, shape (num_draws,) and the event shape of the base measure.
    """
    base = _checked(concentration, num_draws, base)
    seat_key, value_key = jax.random.split(key)

    def seat(carry: tuple[Array, Array], draw: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        counts, tables = carry
        i, uniform = draw
        threshold = uniform * (concentration + i)
        upto = jnp.cumsum(counts)
        table = jnp.where(threshold < i, jnp.searchsorted(upto, threshold, side="right"), tables)
        return (counts.at[table].add(1.0), jnp.maximum(tables, table + 1)), table

    uniforms = jax.random.uniform(seat_key, (num_draws,))
    most = min(num_draws, _most_tables(float(concentration), num_draws))
    start = (jnp.zeros(most), jnp.zeros((), int))
    tables = jax.lax.scan(seat, start, (jnp.arange(num_draws), uniforms))[1]
    return base.sample(value_key, (most,))[tables]


def stick_breaking_draw(
    key: Array,
    concentration: float,
    num_draws: int,
    base: dist.Distribution | None = None,
    leftover: float = 1e-8,
) -> Array:
    """Values at the atoms of a random measure whose weights are broken sticks.

    Errors are those of `polya_urn` too.

    Args:
        key: random key.
        concentration: alpha > 0.
        num_draws: how many values.
        base: the base measure.
        leftover: expected mass beyond the sticks that are broken.

    Returns:
        Values, shape (num_draws,) and the event shape of the base measure.

    Raises:
        ValueError: ``leftover`` is not between 0 and 1.
    """
    base = _checked(concentration, num_draws, base)
    if not 0 < leftover < 1:
        raise ValueError(f"leftover must lie between 0 and 1; got {leftover}")
    ratio = math.log(concentration) - math.log1p(concentration)  # each stick leaves alpha / (1 + alpha)
    num_sticks = math.ceil(math.log(leftover) / ratio) + 1
    stick_key, place_key, value_key = jax.random.split(key, 3)
    fractions = dist.Beta(1.0, concentration).sample(stick_key, (num_sticks,))
    taken = -jnp.expm1(jnp.cumsum(jnp.log1p(-fractions)))
    places = jnp.searchsorted(taken, jax.random.uniform(place_key, (num_draws,)))
    return base.sample(value_key, (num_sticks,))[jnp.minimum(places, num_sticks - 1)]


def _most_tables(concentration: float, num_draws: int) -> int:
    """Tables that suffice but for a probability below 1e-12: mean plus nine deviations of their number."""
    places = range(num_draws)
    mean = sum(concentration / (concentration + i) for i in places)
    variance = sum(concentration * i / (concentration + i) ** 2 for i in places)
    return math.ceil(mean + 9 * math.sqrt(variance) + 9)


def _checked(concentration: float, num_draws: int, base: dist.Distribution | None) -> dist.Distribution:
    if not concentration > 0:
        raise ValueError(f"concentration must be positive; got {concentration}")
    if num_draws < 1:
        raise ValueError(f"num_draws must be at least 1; got {num_draws}")
    return dist.Normal(0.0, 1.0) if base is None else base
