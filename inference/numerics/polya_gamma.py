r"""Polya-Gamma variables PG(b, c): exact draws for whole b, a matched remainder for fractional b, moments.

PG(b, c) is the law of :math:`\omega = \frac{1}{2\pi^2} \sum_{k \ge 1} g_k / \{(k - 1/2)^2 + c^2 / (4\pi^2)\}`
with :math:`g_k \sim` Gamma(b, 1). It makes logistic likelihoods conditionally Gaussian:

.. math::
    \frac{e^{a\psi}}{(1 + e^\psi)^b} = 2^{-b} e^{\kappa\psi} \int e^{-\omega\psi^2/2}\,
    \mathrm{PG}(\omega; b, 0)\, d\omega, \quad \kappa = a - b/2, \qquad
    E[e^{-s\omega}] = \Big\{\frac{\cosh(c/2)}{\cosh\sqrt{c^2/4 + s/2}}\Big\}^b .

**Whole b**: a sum of b draws of PG(1, c) = J*(1, |c|/2) / 4 by Devroye's rejection method. The density of
J*(1, z) is proportional to :math:`e^{-z^2x/2} \sum_n (-1)^n a_n(x)`, below and above 0.64 with the two
known sets of coefficients, both falling in n; the proposal is :math:`a_0`, an exponential above 0.64, below
it an inverse Gaussian variable (large z) or a Levy variable (small z). The latter is drawn in eight pieces
between 0 and 0.64, each tilted by :math:`e^{-z^2x/2}` at its own start, so that nine in ten are accepted
whatever z is, 98 in 100 up to z = 1; tilted at 0 alone, 75 in 100 are at z = 1.5. Partial sums of an
alternating series enclose the sum: after four terms they agree to 1e-25, so comparing the uniform number with
them is comparing it with the whole.

**Fractional b**: a gamma variable with the mean and variance of PG(b, 0), shape 3b/2 and rate 6, tilted
exactly by c. Its Laplace transform is a power in closed form, and `log_remainder_error` is the logarithm of
what it lacks (per unit of b 0.002 nats at psi = 2, 0.02 at 3, 0.2 at 6): a sampler that corrects for it by a
Metropolis-Hastings step is exact for every b. Without that
step the mean is 18 % low at PG(0.5, 5).

Rejected elements alone are proposed again, in a buffer of a quarter of the size. Where there are few all are
proposed again until the last is accepted, by a program of half the size. Nothing here knows of models.

References: Polson, Scott and Windle (2013), "Bayesian inference for logistic models using Polya-Gamma latent
variables"; Devroye (2009), "On exact simulation algorithms for some distributions related to Jacobi theta
functions".
"""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtri
from scipy import special

MEETING = 0.64  # where the two series of J* change over
NUM_PIECES = 8  # of the Levy proposal
EDGES = MEETING * np.arange(NUM_PIECES + 1) / NUM_PIECES
TAILS = np.append(0.0, special.ndtr(-1 / np.sqrt(EDGES[1:])))  # half the Levy mass below each edge
NUM_TERMS = 4
SMALL_SIZE = 2**12  # elements that are all proposed again: there compilation outweighs the draws
REMAINDER_SHAPE, REMAINDER_RATE = 1.5, 6.0  # mean b / 4 and variance b / 24 at c = 0


# Moments


def log_cosh(value: Array) -> Array:
    """Log cosh, without overflow."""
    size = jnp.abs(value)
    return size + jnp.log1p(jnp.exp(-2 * size)) - jnp.log(2.0)


def mean(count: Array, tilt: Array) -> Array:
    """E[omega] of PG(count, tilt), elementwise: b tanh(c/2) / (2c), at c = 0 its limit b / 4."""
    half = jnp.abs(tilt) / 2
    small = half < 1e-2
    safe = jnp.where(small, 1.0, half)
    series = 1 - half**2 / 3 + 2 * half**4 / 15
    return count / 4 * jnp.where(small, series, jnp.tanh(safe) / safe)


def log_remainder_error(psi: Array) -> Array:
    """The excess of log cosh(psi/2) over the exponent of `draw_fraction`, per unit of b, at least 0."""
    return log_cosh(psi / 2) - REMAINDER_SHAPE * jnp.log1p(psi**2 / (2 * REMAINDER_RATE))


# Draws


def draw_whole(key: Array, count: Array, tilt: Array, largest: int | None = None) -> Array:
    """Exact draws of PG(count, tilt) for whole counts, elementwise.

    Args:
        key: a JAX key.
        count: b = 0, 1, 2, ..., broadcast against ``tilt``.
        tilt: c, real.
        largest: the largest count, where it is known while tracing.
    """
    count, tilt = jnp.broadcast_arrays(count, tilt)
    z = jnp.abs(tilt).ravel() / 2

    def add(number: Array, total: Array) -> Array:
        one = _until_accepted(jax.random.fold_in(key, number), _propose_jacobi, (z,))
        return total + jnp.where(count.ravel() > number, one / 4, 0.0)

    if largest == 1:
        return add(jnp.zeros((), int), jnp.zeros_like(z)).reshape(tilt.shape)
    bound = jnp.max(count).astype(int) if largest is None else largest
    return jax.lax.fori_loop(0, bound, add, jnp.zeros_like(z)).reshape(tilt.shape)


def draw_fraction(key: Array, count: Array, tilt: Array) -> Array:
    """Draws of the gamma variable matched to PG(count, 0), tilted by ``tilt``, elementwise; 0 at count 0.

    They are PG(count, tilt) up to the error of `log_remainder_error`, for a sampler that corrects it: mean
    and variance are right at tilt 0 only, and too low elsewhere.
    """
    count, tilt = jnp.broadcast_arrays(count, tilt)
    return _draw_gamma(key, REMAINDER_SHAPE * count.astype(tilt.dtype)) / (REMAINDER_RATE + tilt**2 / 2)


def _draw_gamma(key: Array, shape: Array) -> Array:
    """Draws of Gamma(shape, 1), elementwise; 0 at shape 0."""
    drawn = _until_accepted(key, _propose_gamma, (shape.ravel(),)).reshape(shape.shape)
    return jnp.where(shape > 0, drawn, 0.0)


def _propose_jacobi(uniforms: tuple[Array, Array, Array], z: Array) -> tuple[Array, Array]:
    """One proposal of J*(1, z) for each element, and whether it is accepted."""
    which, place, height = uniforms
    rate = np.pi**2 / 8 + z**2 / 2
    masses = _levy_masses(z)
    levy = sum(masses)
    is_large = 2 * jnp.exp(-z) < levy
    log_right = jnp.log(np.pi / 2 / rate) - rate * MEETING
    log_left = jnp.where(is_large, jnp.log(2.0) - z, jnp.log(levy))
    share = jax.nn.sigmoid(log_right - log_left)
    is_right = which < share
    again = (which - share) / (1 - share)  # given that it is not on the right, uniform once more
    right = MEETING - jnp.log(place) / rate
    upto = itertools.accumulate(masses[:-1])
    piece = sum((again * levy >= own).astype(int) for own in upto)
    begin, low, width = (jnp.asarray(own, z.dtype)[piece] for own in (EDGES, TAILS, np.diff(TAILS)))
    squares = ndtri(jnp.where(is_large, place, low + place * width)) ** 2
    scale = 1 / jnp.where(is_large, z, 1.0)
    spread = scale * squares
    small = 2 * scale / (2 + spread + jnp.sqrt(4 * spread + spread**2))
    gaussian = jnp.where(again * (scale + small) <= scale, small, scale**2 / small)
    left = jnp.where(is_large, gaussian, 1 / jnp.maximum(squares, 1e-30))
    x = jnp.where(is_right, right, left)
    # Sum of the series over its first term: the powers n (n + 1) / 2 of one number
    power = jnp.exp(-2 * jnp.where(is_right, np.pi**2 / 2 * x, 2 / x))
    ratio, term = 1.0, 1.0
    for n in range(1, NUM_TERMS):
        term = term * power**n
        ratio = ratio + (-1) ** n * (2 * n + 1) * term
    ratio = ratio * jnp.where(is_right | is_large, 1.0, jnp.exp(-(z**2) * (x - begin) / 2))
    return x, (height < ratio) & (is_right | (x < MEETING))


def _levy_masses(z: Array) -> list[Array]:
    """Masses of the Levy proposal on each piece below the meeting point, tilted as at the piece's start."""
    fall = jnp.exp(-(z**2) * float(EDGES[1]) / 2)
    masses, tilt = [], 1.0
    for share in np.diff(TAILS):
        masses.append(4 * float(share) * tilt * jnp.ones_like(z))
        tilt = tilt * fall
    return masses


def _propose_gamma(uniforms: tuple[Array, Array, Array], shape: Array) -> tuple[Array, Array]:
    """One proposal of Gamma(shape, 1): Marsaglia and Tsang's at shape + 1, times a power of a uniform."""
    place, height, power = uniforms
    normal, d = ndtri(place), shape + 2 / 3
    v = (1 + normal / jnp.sqrt(9 * d)) ** 3
    inside = v > 0
    safe = jnp.where(inside, v, 1.0)
    log_ratio = normal**2 / 2 + d - d * safe + d * jnp.log(safe)
    drawn = d * safe * jnp.exp(jnp.log(power) / jnp.where(shape > 0, shape, 1.0))
    return drawn, inside & (jnp.log(height) < log_ratio)


def _uniform(key: Array, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
    """Uniform numbers in (0, 1), both ends excluded."""
    tiny = jnp.finfo(dtype).tiny
    return jnp.clip(jax.random.uniform(key, shape, dtype), tiny, 1 - jnp.finfo(dtype).epsneg)


def _until_accepted(key: Array, propose: Callable, parameters: tuple[Array, ...]) -> Array:
    """Proposals for all elements, repeated for the rejected ones until none is left."""
    size, dtype = parameters[0].shape[0], parameters[0].dtype
    room = max(1, -(-size // 4))

    def round_of(number: Array | int, parameters: tuple[Array, ...]) -> tuple[Array, Array]:
        shape = (3, parameters[0].shape[0])
        return propose(tuple(_uniform(jax.random.fold_in(key, number), shape, dtype)), *parameters)

    def all_again(carry: tuple) -> tuple:
        number, values, done = carry
        new, accepted = round_of(number, parameters)
        return number + 1, jnp.where(done, values, new), done | accepted

    def again(carry: tuple) -> tuple:
        number, values, done = carry
        places = jnp.nonzero(~done, size=room, fill_value=size)[0]
        chosen = tuple(p.at[places].get(mode="clip") for p in parameters)
        new, accepted = round_of(number, chosen)
        new = jnp.where(accepted, new, values.at[places].get(mode="clip"))
        values = values.at[places].set(new, mode="drop")
        return number + 1, values, done.at[places].set(accepted, mode="drop")

    if size <= SMALL_SIZE:
        step, begun = all_again, (0, jnp.zeros(size, dtype), jnp.zeros(size, bool))
    else:
        step, begun = again, (1, *round_of(0, parameters))
    return jax.lax.while_loop(lambda c: ~jnp.all(c[2]), step, begun)[1]
