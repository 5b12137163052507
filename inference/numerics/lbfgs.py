r"""Limited-memory BFGS that costs one evaluation of value and gradient for each trial point.

A direction is :math:`-H g` by the two-loop recursion over the last m pairs :math:`s = x_+ - x`,
:math:`y = g_+ - g` (Nocedal and Wright 2006, algorithm 7.4). It begins with a diagonal D, brought up to date
with every pair (Gilbert and Lemaréchal 1989, the diagonal of a scaled BFGS update of :math:`D^{-1}`):

.. math::
    d_i \leftarrow y^T s \Big/ \Big( \frac{y^T D y}{d_i} + y_i^2
        - \frac{y^T D y \, (s_i / d_i)^2}{s^T D^{-1} s} \Big) .

Curvatures along locations, loadings and latents may differ by the size of the counts: one number for all of
them, as :math:`s^T y / y^T y`, stops half a nat short of the maximum on counts of 1e6, D .03 short, and
takes twice the steps on counts of 1e3.

A step length t is looked for by bisection and doubling (Lewis and Overton 2013, algorithm 2.6) until

.. math::
    f(x + t d) \le f(x) + c_1 t\, g^T d, \qquad g(x + t d)^T d \ge c_2\, g^T d ,

which makes :math:`s^T y > 0`. Where no such length is found within the trials, or after a few doublings, the
longest that satisfied the first condition is taken, and its pair is left out if :math:`s^T y` is not
positive. Where not even the shortest trial lowers the value the pairs are forgotten, and the next direction
is the gradient's. A value that is not finite fails the first condition, so a step never leaves the domain and
the value never rises by more than rounding.

Side by side under ``vmap`` every trial is one evaluation for all; there is no branch that would be computed
on both sides.

Measured against `optax.lbfgs` (``python -m tests.benchmarks.numerics``) by MAP of EPCA and DEPCAM: on tables
from 200 x 30 to 2000 x 100 a first call with optax, compilation included, takes 2.1 to 2.3 times as long, a
later one 1.0 to 1.3 times; on 20 000 x 500 cells 1.2 and 1.0 times, but ten iterations end far below ours.
The first calls, and objectives that lag behind for as many iterations, are why this module stays.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

DECREASE, CURVATURE = 1e-4, 0.9  # c_1 and c_2
MAX_TRIALS = 25
MAX_DOUBLING = 3  # trials without a fall of the step length's upper end; the next direction does better


class LBFGSState(NamedTuple):
    """The current point and the remembered pairs.

    Attributes:
        point: pytree of arrays.
        value: f there, infinite before the first evaluation.
        gradient: raveled, zeros before the first evaluation, shape (size,).
        steps: the last s, newest last, shape (memory_size, size).
        changes: the last y, likewise.
        inverse_products: 1 / s'y of each pair, 0 where there is none yet, shape (memory_size,).
        scale: the diagonal D that the recursion begins with, shape (size,).
    """

    point: Any
    value: Array
    gradient: Array
    steps: Array
    changes: Array
    inverse_products: Array
    scale: Array


class _Search(NamedTuple):
    """A search along the direction: the bracket, the trial, the best point so far, and whether it is over."""

    low: Array
    high: Array
    trial: Array
    length: Array
    value: Array
    gradient: Array
    count: Array
    done: Array


def lbfgs_init(point: Any, memory_size: int) -> LBFGSState:
    """The state at a point where nothing has been evaluated: the first step stays there and evaluates it.

    Then the program of the start need not hold the loss and its gradient too.
    """
    flat, _ = ravel_pytree(point)
    pairs, value = jnp.zeros((memory_size, flat.size), flat.dtype), jnp.array(jnp.inf, flat.dtype)
    zeros = jnp.zeros(memory_size, flat.dtype)
    return LBFGSState(point, value, jnp.zeros_like(flat), pairs, pairs, zeros, jnp.ones_like(flat))


def lbfgs_step(state: LBFGSState, loss: Callable[[Any], Array]) -> LBFGSState:
    """One iteration towards a minimum of ``loss``; the first one evaluates the start.

    A gradient of zeros makes the direction zero, and below an infinite value every trial is a decrease.
    """
    flat, unravel = ravel_pytree(state.point)
    evaluate = jax.value_and_grad(lambda x: loss(unravel(x)))
    value, gradient = state.value, state.gradient
    direction = -_inverse_hessian_times(gradient, state)
    slope = gradient @ direction
    steepest = ~(slope < 0)
    direction = jnp.where(steepest, -gradient, direction)
    slope = jnp.where(steepest, -gradient @ gradient, slope)
    fresh = jnp.all(state.inverse_products == 0) | steepest
    length = jnp.where(fresh, jnp.minimum(1.0, 1.0 / jnp.maximum(jnp.linalg.norm(gradient), 1e-30)), 1.0)
    found = _search(evaluate, flat, direction, value, gradient, slope, length, fresh)
    step, change = found.length * direction, found.gradient - gradient
    product = step @ change
    useful = product > jnp.finfo(flat.dtype).eps * jnp.maximum(change @ change, 1e-30)

    stuck = found.length == 0  # forget the pairs: the next step is along the gradient, not the same again

    def pushed(old: Array, new: Array) -> Array:
        return jnp.where(stuck, 0.0, jnp.where(useful, jnp.concatenate([old[1:], new[None]]), old))

    rescaled = _rescaled(state.scale, step, change, product)
    return LBFGSState(
        unravel(flat + step),
        found.value,
        found.gradient,
        pushed(state.steps, step),
        pushed(state.changes, change),
        pushed(state.inverse_products, 1.0 / jnp.where(useful, product, 1.0)),
        jnp.where(stuck, 1.0, jnp.where(useful, rescaled, state.scale)),
    )


def _rescaled(scale: Array, step: Array, change: Array, product: Array) -> Array:
    """The diagonal D after a pair with a positive product."""
    spread, away = change @ (scale * change), step / scale
    before = spread / scale
    curvature = before - spread * jnp.square(away) / (step @ away) + jnp.square(change)
    return product / jnp.maximum(curvature, jnp.finfo(scale.dtype).eps * before)


def _inverse_hessian_times(gradient: Array, state: LBFGSState) -> Array:
    """H g by the two-loop recursion; missing pairs do nothing."""

    def newest_first(q: Array, pair: tuple) -> tuple[Array, Array]:
        step, change, rho = pair
        alpha = rho * (step @ q)
        return q - alpha * change, alpha

    pairs = (state.steps, state.changes, state.inverse_products)
    q, alphas = jax.lax.scan(newest_first, gradient, pairs, reverse=True)

    def oldest_first(r: Array, pair: tuple) -> tuple[Array, None]:
        step, change, rho, alpha = pair
        return r + step * (alpha - rho * (change @ r)), None

    return jax.lax.scan(oldest_first, state.scale * q, (*pairs, alphas))[0]


def _search(
    evaluate: Callable,
    flat: Array,
    direction: Array,
    value: Array,
    gradient: Array,
    slope: Array,
    length: Array,
    fresh: Array,
) -> _Search:
    """A step length, with value and gradient there; length 0 where none lowers the value.

    Without pairs (``fresh``) the length's scale is unknown, and the first decrease is taken: its pair tells.
    """
    slack = 4 * jnp.finfo(flat.dtype).eps * jnp.abs(value)

    def trial(search: _Search) -> _Search:
        t = search.trial
        new_value, new_gradient = evaluate(flat + t * direction)
        lower = new_value <= value + DECREASE * t * slope + slack
        lower &= jnp.all(jnp.isfinite(new_gradient))
        flat_enough = fresh | (new_gradient @ direction >= CURVATURE * slope)
        low, high = jnp.where(lower, t, search.low), jnp.where(lower, search.high, t)
        following = jnp.where(jnp.isinf(high), 2.0 * t, 0.5 * (low + high))
        count = search.count + 1
        return _Search(
            low,
            high,
            following,
            jnp.where(lower, t, search.length),
            jnp.where(lower, new_value, search.value),
            jnp.where(lower, new_gradient, search.gradient),
            count,
            (lower & (flat_enough | (jnp.isinf(high) & (count >= MAX_DOUBLING)))) | (count >= MAX_TRIALS),
        )

    zero = jnp.zeros_like(value)
    count, done = jnp.zeros((), int), jnp.asarray(False)
    begin = _Search(zero, zero + jnp.inf, length, zero, value, gradient, count, done)
    return jax.lax.while_loop(lambda search: ~search.done, trial, begin)
