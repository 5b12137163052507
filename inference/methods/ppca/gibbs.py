r"""Gibbs sampling for probabilistic PCA and factor analysis: missing cells, Student-t rows, relevance.

A sweep draws, each from its exact conditional,

* the latents of each row given its observed cells, :math:`N(A^{-1} W^T \Psi^{-1} (x - \mu), A^{-1} / u)`; of
  Student-t rows the precision u first, with the latents summed out (`zoo.linear_gaussian.rows`);
* loadings and mean of each column together, the regression of its observed cells on [z, 1] with the weights u
  and the prior as ridge, then the noise variances (`inference.methods.linear_gaussian.gibbs`);
* under ARD the precisions of the latents' loadings,
  :math:`\mathrm{Gamma}(a_0 + D/2, b_0 + \sum_d w_{dk}^2 / 2)`.

Then, unless ``moves=False``, moves along directions in which the likelihood does not change, where the
conditionals alone take small steps (Liu and Sabatti 2000, "Generalised Gibbs sampler and multigrid Monte
Carlo for Bayesian computation"). *Shear*: for :math:`\tilde z = [z, 1]`, :math:`\tilde w = [w, \mu - m]` and
each j in turn the other latents move by multiples of :math:`\tilde z_j`, :math:`z_i + \delta_i \tilde z_j`
and :math:`\tilde w_j - \sum_i \delta_i w_i`, with the exact draw

.. math::
    \delta \sim N(P^{-1} h, P^{-1}), \quad P = \sum_n u_n \tilde z_{nj}^2 I + \alpha_j W^T W, \quad
    h = \alpha_j W^T \tilde w_j - \sum_n u_n \tilde z_{nj} z_n

over the latents but j, :math:`\alpha_j` being the prior precision of column j (of the mean, :math:`1/v`; the
latents are shifted). *Scale*: each latent is multiplied by a number and its loadings divided by it, by slice
sampling. Together these reach every linear change of the latents.

A sweep costs O(N D K^2). The recorded log joint has latents and precisions of rows summed out, as in NUTS. It
needs a proper prior.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import cho_solve, solve_triangular

from inference.algorithm import Algorithm, Sampler, conclude_draws
from inference.methods.epca.gibbs import GibbsInfo, rescaling
from inference.methods.epca.views import given_values
from inference.methods.gibbs_sweep import Move, sweep
from inference.methods.linear_gaussian import gibbs as of_columns
from inference.methods.ppca import Gibbs
from inference.numerics.programs import log_prior
from inference.numerics.weighted_rows import (
    PaddedRows,
    beside_rows,
    cells_of,
    number_of,
    sum_of_rows,
    with_padding,
)
from zoo.answers import answer_of
from zoo.linear_gaussian.rows import normal_latents
from zoo.linear_gaussian.supervised import BlockPrior
from zoo.mcfa import MCFA
from zoo.ppca import PPCA
from zoo.shapes import Values

Conditionals = dict[str, dist.Distribution]
OF_ROWS = ("row_precision", "latents")


class PPCAGibbsState(NamedTuple):
    """Current values of every latent site of ``model.explicit``, in constrained space.

    Attributes:
        values: site name to value.
    """

    values: dict[str, Array]


# The blocks: each returns the distributions it draws from, in order


def rows(values: Values, model: PPCA, x: Array | PaddedRows) -> Conditionals:
    """The latents of all rows, after the precisions of Student-t ones."""
    return answer_of(model, "conditionals", values, with_padding(x))


def columns(values: Values, model: PPCA, x: Array | PaddedRows) -> Conditionals:
    """The loadings of every column, its mean integrated out, then the mean."""
    prior, weight = prior_of(values, model), row_precision(values, x)
    return of_columns.regression(values, "", cells_of(x), values["noise_variance"], prior, weight)


def noise(values: Values, model: PPCA, x: Array | PaddedRows) -> Conditionals:
    """The noise variance, of all cells or of each column's."""
    own, weight, per_column = prior_of(values, model), row_precision(values, x), model.noise == "diagonal"
    return of_columns.noise(values, "", cells_of(x), own, per_column=per_column, row_precision=weight)


def relevance(values: Values, model: PPCA | MCFA, x: Array) -> Conditionals:
    """The precision of each latent's loadings, under ARD."""
    loadings = values["loadings"]
    rate = model.ard_rate + jnp.sum(loadings**2, axis=0) / 2
    own = dist.Gamma(model.ard_concentration + len(loadings) / 2, rate)
    return {"loading_precision": own.to_event(1)}


def prior_of(values: Values, model: PPCA) -> BlockPrior:
    """Of the columns, given the precisions of the latents' loadings under ARD."""
    is_ard = model.loading_prior == "ard"
    return BlockPrior(
        loading_variance=1 / values["loading_precision"] if is_ard else model.loading_variance,
        loc_mean=model.loc_mean,
        loc_variance=model.loc_variance,
        noise_concentration=model.noise_concentration,
        noise_rate=model.noise_rate,
    )


def row_precision(values: Values, x: Array | PaddedRows) -> Array | float:
    """The precisions of Student-t rows as weights of their cells; 1 of normal rows, 0 of what is none."""
    weight = values["row_precision"][:, None] if "row_precision" in values else 1.0
    return jnp.where(x.is_row[:, None], weight, 0.0) if isinstance(x, PaddedRows) else weight


# Moves along directions in which the likelihood is flat


def shear(key: Array, values: Values, model: PPCA, x: Array | PaddedRows) -> Values:
    """Add a multiple of each latent, and of one, to the other latents; the loadings follow."""
    k, prior, weight = model.num_latents, prior_of(values, model), row_precision(values, x)
    z = jnp.concatenate([values["latents"], jnp.ones((len(values["latents"]), 1))], axis=1)
    w = jnp.concatenate([values["loadings"], (values["loc"] - prior.loc_mean)[:, None]], axis=1)
    precisions = jnp.append(jnp.broadcast_to(1 / prior.loading_variance, (k,)), 1 / prior.loc_variance)

    def along(j: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        z, w = carry
        place, own = jnp.arange(k + 1), weight * z[:, j, None]
        free = jnp.where((place == j) | (place == k), 0.0, 1.0)
        others = w * free
        precision = jnp.sum(own * z[:, j, None]) * jnp.eye(k + 1) + precisions[j] * others.T @ others
        linear = free * (precisions[j] * others.T @ w[:, j] - jnp.sum(own * z, axis=0))
        factor = jnp.linalg.cholesky(precision)
        standard = jax.random.normal(jax.random.fold_in(key, j), linear.shape, linear.dtype)
        spread = solve_triangular(factor.T, standard, lower=False)
        delta = free * (cho_solve((factor, True), linear) + spread)
        return z + z[:, j, None] * delta, w.at[:, j].add(-others @ delta)

    z, w = jax.lax.fori_loop(0, k + 1, along, (z, w))
    return {**values, "latents": z[:, :k], "loadings": w[:, :k], "loc": w[:, k] + prior.loc_mean}


def rescale(key: Array, values: Values, model: PPCA, x: Array | PaddedRows) -> Values:
    """Multiply each latent by g_k and divide its loadings by g_k."""
    z, w = values["latents"], values["loadings"]
    precision = 1 / jnp.asarray(prior_of(values, model).loading_variance)
    own = z * jnp.sqrt(row_precision(values, x))
    scale = rescaling(key, own, w, 1.0, precision, num_rows=number_of(x))
    return {**values, "latents": z * scale, "loadings": w / scale}


def plain_blocks_of(model: PPCA) -> tuple[Callable, ...]:
    """The blocks of a sweep without moves, in order."""
    return rows, columns, noise, *((relevance,) if model.loading_prior == "ard" else ())


def blocks_of(model: PPCA) -> tuple[Callable | Move, ...]:
    """The blocks of a sweep, in order."""
    return *plain_blocks_of(model), Move(shear), Move(rescale)


# The algorithm


def init(key: Array, model: PPCA, x: Array) -> PPCAGibbsState:
    """Draw the latents from the prior of normal rows and the columns given them."""
    own, key = jax.random.split(key)
    dtype, (num_rows, num_features) = jnp.result_type(float), x.shape
    half = of_columns.half_variance(x).astype(dtype)
    values = {
        "latents": normal_latents(model.num_latents).sample(own, (num_rows,)).astype(dtype),
        "loadings": jnp.zeros((num_features, model.num_latents), dtype),
        "loc": jnp.nanmean(x, axis=0).astype(dtype),
        "noise_variance": jnp.broadcast_to(half, (num_features,) if model.noise == "diagonal" else ()),
    }
    if model.loading_prior == "ard":
        values["loading_precision"] = jnp.broadcast_to(1 / half, (model.num_latents,))
    if model.degrees_of_freedom is not None:
        values["row_precision"] = jnp.ones(num_rows, dtype)
    return PPCAGibbsState(sweep(key, values, plain_blocks_of(model)[1:], model, x))


def start(key: Array, variables: Values, model: PPCA, x: Array, **options: object) -> PPCAGibbsState:
    """The state at given values of sites, the others drawn as in a fresh start."""
    return PPCAGibbsState(given_values(init(key, model, x).values, variables))


def _step(
    key: Array, state: PPCAGibbsState, model: PPCA, x: Array | PaddedRows, *, blocks_of: Callable
) -> tuple[PPCAGibbsState, GibbsInfo]:
    """Run one sweep."""
    state = PPCAGibbsState(sweep(key, state.values, blocks_of(model), model, x))
    return state, recorded(state, model, x)


def recorded(state: PPCAGibbsState, model: PPCA, x: Array | PaddedRows) -> GibbsInfo:
    """The log joint of a state, latents and precisions of rows summed out."""
    cells, values = with_padding(x), state.values
    return GibbsInfo(sum_of_rows(model.log_likelihood(values, cells), x) + log_prior(model, values, cells))


@cache
def algorithm_of(blocks_of: Callable = blocks_of) -> Algorithm:
    """The sampler whose sweep has the blocks ``blocks_of(model)``."""
    return Algorithm(init, partial(_step, blocks_of=blocks_of))


ALGORITHM = algorithm_of()


def build(strategy: str, num_warmup: int, moves: bool) -> Algorithm:
    """Build the sampler with or without moves; it does not adapt."""
    return algorithm_of(blocks_of if moves else plain_blocks_of)


def check(model: PPCA, settings: Gibbs) -> None:
    """Raise ValueError if the prior is not proper."""
    if model.loading_prior == "flat":
        raise ValueError(
            "gibbs needs a proper prior: give the model loading_prior='ard' or 'gaussian', not 'flat'"
        )


def for_steps(model: PPCA, data: tuple) -> tuple[PPCA, tuple]:
    """The rows in a bucket, but for Student-t ones, whose precisions depend on how many are drawn."""
    return beside_rows(model, data) if model.degrees_of_freedom is None else (model, data)


def position(state: PPCAGibbsState, model: PPCA, keep_rows: bool = True) -> Values:
    """The kept values of a draw: all sites, those of rows only if ``keep_rows``."""
    return {name: value for name, value in state.values.items() if keep_rows or name not in OF_ROWS}


METHOD = Sampler(
    settings=Gibbs,
    strategies=("random",),
    build=build,
    start=start,
    conclude=conclude_draws,
    check=check,
    for_steps=for_steps,
    of_rows=(".values['latents']",),
    position={True: position, False: partial(position, keep_rows=False)}.get,
)
