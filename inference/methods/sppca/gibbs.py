r"""Gibbs sampling for SPPCA and S2PPCA, with Gaussian and with probit outputs.

A sweep draws, each from its exact conditional (probit outputs: Albert and Chib 1993):

* probit outputs: the utilities u given latents, loadings and outputs, truncated normals
  (see below);
* the latents of each row given its observed cells, u in the place of y:
  :math:`N(A^{-1} W^T \Psi^{-1} (r - \mu), A^{-1})` as in (7.5), (7.11);
* loadings and mean of each column together, the regression of its observed cells on [z, 1] with the prior
  as ridge: the loadings with the mean integrated out, then the mean given them;
* the noise variances, inverse gamma (not of utilities: theirs is 1).

Then, unless ``moves=False``, moves along directions in which the likelihood does not change, where the
conditionals alone take small steps (Liu and Sabatti 2000, "Generalised Gibbs sampler and multigrid Monte
Carlo for Bayesian computation"): the latents are shifted, :math:`z \to z + \delta`, the means following by
:math:`\mu \to \mu - W \delta` (the density of delta is normal: an exact draw), and each latent is rescaled,
:math:`z_k \to g z_k, w_k \to w_k / g` (a slice-sampling step in log g, with the Jacobian). Of class
labels a third draws the common part of all classes' utilities, which only the prior determines.

A sweep costs O(N D K^2). The recorded log joint is that of the program, as in NUTS. Needs the proper prior
``loading_prior="gaussian"``.

Utilities
---------
Given everything else the utilities of probit outputs have truncated normal distributions (Albert and Chib
1993). A binary output cuts its utility at zero, independently of the others. Class labels say that the
utility of the class is the largest: the others are cut off above by it, it is cut off below by the largest of
them. Both half steps together are a Markov move that leaves the truncated normal invariant.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import log_ndtr, ndtri

from inference.algorithm import Algorithm, Sampler, conclude_draws
from inference.methods.epca.gibbs import GibbsInfo, common_shift, rescaling
from inference.methods.epca.views import given_values
from inference.methods.gibbs_sweep import Move, sweep
from inference.methods.linear_gaussian.gibbs import half_variance, noise, regression
from inference.methods.sppca import Gibbs
from inference.numerics.programs import log_densities
from zoo.linear_gaussian import LatentsGivenRows
from zoo.linear_gaussian.supervised import block_prior, joint
from zoo.model import in_current_precision
from zoo.shapes import Values
from zoo.sppca import SPPCA


class SPPCAGibbsState(NamedTuple):
    """Current values of every latent site of ``model.explicit``, in constrained space.

    Attributes:
        values: site name to value.
    """

    values: dict[str, Array]


Conditionals = dict[str, dist.Distribution]


# The blocks


def utilities(values: Values, model: SPPCA, x: Array, y: Array) -> Conditionals:
    """The conditional of the utilities of probit outputs."""
    predictor = values["loc_y"] + values["latents"] @ values["loadings_y"].T
    if model.is_classes:
        return {"utilities": ClassUtilities(predictor, y, values["utilities"])}
    return {"utilities": SignedUtilities(predictor, y)}


def latents(values: Values, model: SPPCA, x: Array, y: Array) -> Conditionals:
    """The conditional of the latents of all rows."""
    cells = jnp.concatenate([x, _targets(values, model, y)], axis=1)
    return {"latents": LatentsGivenRows(cells, *joint(model, values))}


def inputs(values: Values, model: SPPCA, x: Array, y: Array) -> Conditionals:
    """The conditionals of the loadings and the mean of x."""
    return regression(values, "_x", x, values["noise_variance_x"], block_prior(model, "x"))


def input_noise(values: Values, model: SPPCA, x: Array, y: Array) -> Conditionals:
    """The conditional of the noise variance of x."""
    return noise(values, "_x", x, block_prior(model, "x"), per_column=False)


def outputs(values: Values, model: SPPCA, x: Array, y: Array) -> Conditionals:
    """The conditionals of the loadings and means of the outputs, or of their utilities."""
    own = model.outputs.block(values).noise_variance
    return regression(values, "_y", _targets(values, model, y), own, block_prior(model, "y"))


def output_noise(values: Values, model: SPPCA, x: Array, y: Array) -> Conditionals:
    """The conditional of the noise variances of Gaussian outputs."""
    per_column = model.output_noise == "per_output"
    return noise(values, "_y", y, block_prior(model, "y"), per_column=per_column)


def _targets(values: Values, model: SPPCA, y: Array) -> Array:
    """The targets of the regression on the latents: y, or the utilities where y is observed."""
    return (
        y if model.output_likelihood == "gaussian" else jnp.where(jnp.isnan(y), jnp.nan, values["utilities"])
    )


# Moves along directions in which the likelihood is flat


def shift_latents(key: Array, values: Values, model: SPPCA, x: Array, y: Array) -> Values:
    """Shift latents and means together: z + delta, mu - W delta."""
    z, w = values["latents"], jnp.concatenate([values[f"loadings_{b}"] for b in "xy"])
    priors = {b: block_prior(model, b) for b in "xy"}
    away = jnp.concatenate([values[f"loc_{b}"] - priors[b].loc_mean for b in "xy"])
    precisions = [jnp.full(values[f"loc_{b}"].shape, 1.0) / priors[b].loc_variance for b in "xy"]
    delta = common_shift(key, z, w, away, 1.0, jnp.concatenate(precisions))
    moved = {f"loc_{b}": values[f"loc_{b}"] - values[f"loadings_{b}"] @ delta for b in "xy"}
    return {**values, **moved, "latents": z + delta}


def rescale_latents(key: Array, values: Values, model: SPPCA, x: Array, y: Array) -> Values:
    """Multiply each latent by g_k and divide its loadings by g_k."""
    z = values["latents"]
    standard = [values[f"loadings_{b}"] / jnp.sqrt(block_prior(model, b).loading_variance) for b in "xy"]
    scale = rescaling(key, z, jnp.concatenate(standard), 1.0, 1.0)
    moved = {f"loadings_{b}": values[f"loadings_{b}"] / scale for b in "xy"}
    return {**values, **moved, "latents": z * scale}


def shift_utilities(key: Array, values: Values, model: SPPCA, x: Array, y: Array) -> Values:
    """Draw the common part of all classes' utilities, which no label identifies, from its prior."""
    prior, (loc, w) = block_prior(model, "y"), (values["loc_y"], values["loadings_y"])
    first, second = jax.random.split(key)
    count = w.shape[0]
    common_loc = jnp.sqrt(prior.loc_variance / count) * jax.random.normal(first, (), loc.dtype)
    common_loc = jnp.mean(jnp.broadcast_to(prior.loc_mean, loc.shape)) + common_loc
    common_w = jnp.sqrt(prior.loading_variance / count) * jax.random.normal(second, w.shape[1:], w.dtype)
    change_loc, change_w = common_loc - jnp.mean(loc), common_w - jnp.mean(w, axis=0)
    change = (change_loc + values["latents"] @ change_w)[:, None]
    utilities = values["utilities"] + jnp.where(jnp.isnan(y), 0.0, change)
    return {**values, "loc_y": loc + change_loc, "loadings_y": w + change_w, "utilities": utilities}


MOVES = (Move(shift_latents), Move(rescale_latents))


def blocks_of(model: SPPCA) -> tuple[Callable | Move, ...]:
    """The blocks of a sweep, in order."""
    of_classes = model.output_likelihood == "probit" and model.is_classes
    return (*plain_blocks_of(model), *MOVES, *((Move(shift_utilities),) if of_classes else ()))


def plain_blocks_of(model: SPPCA) -> tuple[Callable, ...]:
    """The blocks of a sweep without moves, in order."""
    noise_x = (input_noise,) if model.noise_variance_x is None else ()
    if model.output_likelihood == "gaussian":
        return latents, inputs, *noise_x, outputs, output_noise
    return utilities, latents, inputs, *noise_x, outputs


# The algorithm


def init(key: Array, model: SPPCA, x: Array, y: Array) -> SPPCAGibbsState:
    """Draw the latents from their prior and everything else given them."""
    first_key, key = jax.random.split(key)
    dtype, (num_rows, num_outputs) = jnp.result_type(float), y.shape
    size = model.num_latents
    half = half_variance(x).astype(dtype)
    values = {
        "latents": jax.random.normal(first_key, (num_rows, size), dtype),
        "loadings_x": jnp.zeros((x.shape[1], size), dtype),
        "loadings_y": jnp.zeros((num_outputs, size), dtype),
        "loc_x": jnp.nanmean(x, axis=0).astype(dtype),
        "loc_y": jnp.zeros(num_outputs, dtype),
    }
    given = {}
    if model.noise_variance_x is None:
        values["noise_variance_x"] = half
    else:
        given["noise_variance_x"] = jnp.asarray(model.noise_variance_x)
    if model.output_likelihood == "probit":
        values["utilities"] = jnp.where(jnp.isnan(y), 0.0, 2 * y - 1).astype(dtype)
    else:
        shape = (num_outputs,) if model.output_noise == "per_output" else ()
        values["noise_variance_y"] = jnp.full(shape, half_variance(y), dtype)
    blocks = tuple(block for block in plain_blocks_of(model) if block not in (latents, utilities))
    drawn = sweep(key, values | given, blocks, model, x, y)
    return SPPCAGibbsState({name: drawn[name] for name in values})


def start(
    key: Array, variables: Values, model: SPPCA, x: Array, y: Array, **options: object
) -> SPPCAGibbsState:
    """The state at given values of sites, the others drawn as in a fresh start."""
    fresh = init(key, model, x, y).values
    values = given_values(fresh, variables)
    if "utilities" in values and "utilities" not in variables:
        values = sweep(key, values, (utilities,), model, x, y)
    return SPPCAGibbsState(values)


def _step(
    key: Array, state: SPPCAGibbsState, model: SPPCA, x: Array, y: Array, *, blocks_of: Callable
) -> tuple[SPPCAGibbsState, GibbsInfo]:
    """Run one sweep."""
    given = {}
    if model.noise_variance_x is not None:
        given = {"noise_variance_x": in_current_precision(model).noise_variance_x}
    drawn = sweep(key, state.values | given, blocks_of(model), model, x, y)
    state = SPPCAGibbsState({name: drawn[name] for name in state.values})
    return state, recorded(state, model, x, y)


def recorded(state: SPPCAGibbsState, model: SPPCA, x: Array, y: Array) -> GibbsInfo:
    """The log joint of a state by the program."""
    return GibbsInfo(sum(log_densities(model, (x, y), position(state, model)).values()))


@cache
def algorithm_of(blocks_of: Callable = blocks_of) -> Algorithm:
    """The sampler whose sweep has the blocks ``blocks_of(model)``."""
    return Algorithm(init, partial(_step, blocks_of=blocks_of))


ALGORITHM = algorithm_of()


def build(strategy: str, num_warmup: int, moves: bool) -> Algorithm:
    """Build the sampler with or without moves; it does not adapt."""
    return algorithm_of(blocks_of if moves else plain_blocks_of)


def position(state: SPPCAGibbsState, model: SPPCA) -> Values:
    """The kept values of a draw: all sites but the utilities."""
    return {name: value for name, value in state.values.items() if name != "utilities"}


def position_without_rows(state: SPPCAGibbsState, model: SPPCA) -> Values:
    """The kept values of a draw without the latents, for data too large to keep them."""
    return {name: value for name, value in position(state, model).items() if name != "latents"}


METHOD = Sampler(
    settings=Gibbs,
    strategies=("random",),
    build=build,
    start=start,
    conclude=conclude_draws,
    position={True: position, False: position_without_rows}.get,
)


FAR = -30.0
SMALLEST = 1e-300


def positive_normal(key: Array, mean: Array) -> Array:
    """Draw d ~ N(mean, 1) given d > 0, entry by entry, accurate in both tails.

    By the quantile function; far below zero, where it has no digits, from an exponential that three steps of
    Newton's method bring to the quantile.
    """
    log_uniform = -jax.random.exponential(key, mean.shape, mean.dtype)
    log_tail = log_ndtr(mean)
    usual = mean - ndtri(jnp.maximum(jnp.exp(log_uniform + log_tail), SMALLEST))
    low = jnp.minimum(mean, FAR)
    target = log_uniform + log_ndtr(low)
    d = -log_uniform / -low
    for _ in range(3):
        here = log_ndtr(low - d)
        slope = jnp.exp(-0.5 * (low - d) ** 2 - 0.5 * jnp.log(2 * jnp.pi) - here)
        d = jnp.maximum(d + (here - target) / slope, SMALLEST)
    return jnp.maximum(jnp.where(mean < FAR, d, usual), SMALLEST)


class _Truncated(dist.Distribution):
    """Utilities with given means truncated by their outputs, standard normal where outputs are missing."""

    support = dist.constraints.real_vector
    pytree_data_fields: tuple[str, ...] = ("predictor", "y")

    def __init__(self, predictor: Array, y: Array) -> None:
        self.missing = jnp.isnan(y)
        self.predictor, self.y = jnp.where(self.missing, 0.0, predictor), y
        super().__init__(predictor.shape[:1], predictor.shape[1:])

    def _density(self, value: Array, allowed: Array) -> Array:
        own = jnp.sum(-0.5 * (value - self.predictor) ** 2, axis=-1)
        return jnp.where(allowed, own, -jnp.inf)

    def _free(self, key: Array) -> Array:
        return jax.random.normal(key, self.predictor.shape, self.predictor.dtype)


class SignedUtilities(_Truncated):
    """Utilities of binary outputs, positive where the output is 1.

    Args:
        predictor: their means, shape (num_observations, num_outputs).
        y: outputs, NaN where missing.
    """

    def log_prob(self, value: Array) -> Array:
        """The log density in nats up to a constant, shape (num_observations,)."""
        agrees = self.missing | ((value > 0) == (self.y == 1))
        return self._density(value, agrees.all(axis=-1))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw once, independently of the current values."""
        _only_one(sample_shape)
        own, free = jax.random.split(key)
        sign = jnp.where(self.y == 1, 1.0, -1.0)
        return jnp.where(self.missing, self._free(free), sign * positive_normal(own, sign * self.predictor))


class ClassUtilities(_Truncated):
    """Utilities of class labels, that of the class the largest.

    Args:
        predictor: their means, shape (num_observations, num_classes).
        y: one column per class, NaN where missing.
        current: the utilities that a move starts from, of the same shape.
    """

    pytree_data_fields = ("predictor", "y", "current")

    def __init__(self, predictor: Array, y: Array, current: Array) -> None:
        self.current = current
        super().__init__(predictor, y)

    def log_prob(self, value: Array) -> Array:
        """The log density in nats up to a constant, shape (num_observations,)."""
        largest = jnp.argmax(value, axis=-1) == jnp.argmax(self.y, axis=-1)
        return self._density(value, self.missing.any(axis=-1) | largest)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Move once from the current values."""
        _only_one(sample_shape)
        below, above, free = jax.random.split(key, 3)
        is_class = self.y == 1
        own = jnp.sum(jnp.where(is_class, self.current, 0.0), axis=-1, keepdims=True)
        others = own - positive_normal(below, own - self.predictor)
        floor = jnp.max(jnp.where(is_class, -jnp.inf, others), axis=-1, keepdims=True)
        raised = floor + positive_normal(above, self.predictor - floor)
        return jnp.where(self.missing, self._free(free), jnp.where(is_class, raised, others))


def _only_one(sample_shape: tuple[int, ...]) -> None:
    if sample_shape:
        raise ValueError("a Gibbs draw of the utilities is one value; sample_shape must be ()")
