r"""Gibbs sampling for mixtures of factor analysers with common loadings.

A sweep draws, each from its exact conditional,

* the label of every row with its latents summed out, then the latents given the label: normal with precision
  :math:`\Lambda_m + \sum_{d \in o} w_d w_d^T / \psi_d`;
* weights, clusters and concentration given labels and latents: the blocks and moves of a mixture of the
  latents (`inference.methods.mixture.gibbs`);
* mean and loadings of every column together, the regression on latents and 1, then noise variances and, under
  ARD, the precisions of the latents' loadings.

Latents, clusters and loadings determine each other's place and size, so that these conditionals alone take
small steps along directions in which no row changes. Two generalised Gibbs moves (Liu and Sabatti 2000) draw
along them at once, exactly. *Shift*: :math:`z + b, m + b, \mu - W b` with b normal of precision
:math:`P = \beta_0 \sum_m \Lambda_m + W^T W / v_\mu` and mean :math:`P^{-1} \{W^T(\mu - m_0)/v_\mu - \beta_0
\sum_m \Lambda_m m_m\}`. *Scale*: :math:`z_k / \sqrt{t_k}`, clusters and loadings alike; with the Jacobian and
Haar's measure the prior of M clusters and D columns leaves

.. math::
    t_k \sim \mathrm{Gamma}\left(\tfrac12 (\nu_0 M + D),\;
    \tfrac12 \{\beta_0 \nu_0 \textstyle\sum_m (\Lambda_m)_{kk} + \sum_d w_{dk}^2 / v_w\}\right) .

A sweep costs O(N M D K), with holes O(N M D K^2). The recorded log joint has labels and latents summed out,
as in NUTS.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import cho_solve

from inference.algorithm import Algorithm, Sampler, conclude_draws
from inference.methods.gibbs_sweep import Move, sweep
from inference.methods.mcfa import Gibbs
from inference.methods.mixture import gibbs as of_mixture
from inference.methods.ppca import gibbs as of_ppca
from inference.numerics.programs import log_prior
from zoo.answers import answer_of, start_of
from zoo.dirichlet_process import with_stick_decays
from zoo.mcfa import MCFA
from zoo.shapes import Values

Conditionals = dict[str, dist.Distribution]


class MCFAGibbsState(NamedTuple):
    """Current values of every latent site of ``model.explicit``, in constrained space.

    Attributes:
        values: site name to value.
    """

    values: dict[str, Array]


class MCFAGibbsInfo(NamedTuple):
    """Values recorded at every sweep.

    Attributes:
        objective: log joint density of data and parameters, labels and latents summed out, in nats.
        num_occupied: clusters with at least one row.
    """

    objective: Array
    num_occupied: Array


# The blocks: each returns the distributions it draws from, in order


def labels_and_latents(values: Values, model: MCFA, x: Array) -> Conditionals:
    """The labels of all rows, latents summed out, then the latents given the labels."""
    return answer_of(model, "conditionals", values, x)


@cache
def of_latents(block: Callable | Move) -> Callable | Move:
    """A block of the mixture's sampler as one whose rows are the latents."""
    if isinstance(block, Move):
        return Move(
            lambda key, values, model, x: block.apply(key, values, model.mixture, values["raw_latents"])
        )

    def on_latents(values: Values, model: MCFA, x: Array) -> Conditionals:
        return block(values, model.mixture, values["raw_latents"])

    on_latents.__name__ = block.__name__
    return on_latents


def loading_precisions(values: Values, model: MCFA) -> Array:
    """Prior precision of the loadings of each latent, shape (num_latents,)."""
    own = values["loading_precision"] if model.loading_prior == "ard" else 1 / model.loading_variance
    return jnp.broadcast_to(own, (model.num_latents,))


def columns(values: Values, model: MCFA, x: Array) -> Conditionals:
    """The mean of every column with its loadings integrated out, then the loadings given it."""
    seen, z = ~jnp.isnan(x), values["raw_latents"]
    extended = jnp.concatenate([z, jnp.ones((len(z), 1))], axis=1)
    outer = (extended[:, :, None] * extended[:, None, :]).reshape(len(z), -1)
    noise = jnp.broadcast_to(values["noise_variance"], x.shape[1:])
    size = extended.shape[1]
    prior = jnp.append(loading_precisions(values, model), 1 / model.loc_variance)
    precision = (seen.T @ outer).reshape(-1, size, size) / noise[:, None, None] + jnp.diag(prior)
    target = jnp.where(seen, x, 0.0).T @ extended / noise[:, None]
    target = target.at[:, -1].add(model.loc_mean / model.loc_variance)
    factor = jnp.linalg.cholesky(precision)
    covariance = cho_solve((factor, True), jnp.broadcast_to(jnp.eye(size), precision.shape))
    mean = jnp.einsum("dij,dj->di", covariance, target)
    loc, variance, cross = mean[:, -1], covariance[:, -1, -1], covariance[:, :-1, -1]
    found = {"raw_loc": dist.Normal(loc, jnp.sqrt(variance)).to_event(1)}
    slope = (values["raw_loc"] - loc) / variance
    given = dist.MultivariateNormal(
        mean[:, :-1] + cross * slope[:, None],
        covariance[:, :-1, :-1] - cross[:, :, None] * cross[:, None, :] / variance[:, None, None],
        validate_args=False,
    )
    return found | {"raw_loadings": given.to_event(1)}


def noise(values: Values, model: MCFA, x: Array) -> Conditionals:
    """The noise variance, of all cells or of each column's."""
    away = x - values["raw_loc"] - values["raw_latents"] @ values["raw_loadings"].T
    axis = 0 if model.noise == "diagonal" else None
    count, squares = jnp.sum(~jnp.isnan(away), axis=axis), jnp.nansum(away**2, axis=axis)
    own = dist.InverseGamma(model.noise_concentration + count / 2, model.noise_rate + squares / 2)
    return {"noise_variance": own.to_event(jnp.ndim(count))}


def relevance(values: Values, model: MCFA, x: Array) -> Conditionals:
    """The precision of each latent's loadings, under ARD."""
    return of_ppca.relevance({"loadings": values["raw_loadings"]}, model, x)


# Moves along directions in which no row changes


def shift(key: Array, values: Values, model: MCFA, x: Array) -> dict[str, Array]:
    """Latents, clusters and mean moved together."""
    w, precisions = values["raw_loadings"], values["precisions"]
    precision = model.mean_precision * jnp.sum(precisions, axis=0) + w.T @ w / model.loc_variance
    pull = w.T @ (values["raw_loc"] - model.loc_mean) / model.loc_variance
    pull -= model.mean_precision * jnp.einsum("mij,mj->i", precisions, values["locs"])
    mean = jnp.linalg.solve(precision, pull)
    b = dist.MultivariateNormal(mean, precision_matrix=precision, validate_args=False).sample(key)
    moved = {name: values[name] + b for name in ("raw_latents", "locs")}
    return {**values, **moved, "raw_loc": values["raw_loc"] - w @ b}


def scale(key: Array, values: Values, model: MCFA, x: Array) -> dict[str, Array]:
    """Each latent, clusters and loadings made larger or smaller together."""
    w, precisions = values["raw_loadings"], values["precisions"]
    number = model.degrees_of_freedom * model.num_components + len(w)
    strength = model.mean_precision * model.degrees_of_freedom
    rate = strength * jnp.einsum("mkk->k", precisions) + loading_precisions(values, model) * jnp.sum(w**2, 0)
    root = jnp.sqrt(jax.random.gamma(key, number / 2, rate.shape, rate.dtype) / (rate / 2))
    moved = {name: values[name] / root for name in ("raw_latents", "locs")}
    return {**values, **moved, "precisions": precisions * root[:, None] * root, "raw_loadings": w * root}


@cache
def blocks_with(split_merge: int, moves: bool) -> Callable:
    """What gives the blocks of a sweep, with so many split-merge moves of the mixture."""
    inner = of_mixture.blocks_with(split_merge, True)

    def blocks(model: MCFA) -> tuple[Callable | Move, ...]:
        *mixture, _ = inner(model.mixture)  # the labels come first, with the latents
        ard = (relevance,) if model.loading_prior == "ard" else ()
        own = (labels_and_latents, *map(of_latents, mixture), columns, noise, *ard)
        return (*own, Move(shift), Move(scale)) if moves else own

    return blocks


# The algorithm


def init(key: Array, model: MCFA, x: Array) -> MCFAGibbsState:
    """The model's starting point; a sweep draws labels and latents before it reads them."""
    values = start_of(model, key, x)
    shape = x.shape[0], model.num_latents
    local = {"assignments": jnp.zeros(shape[0], int), "raw_latents": jnp.zeros(shape)}
    return MCFAGibbsState({name: jnp.asarray(value) for name, value in values.items()} | local)


def start(key: Array, variables: Values, model: MCFA, x: Array, **options: object) -> MCFAGibbsState:
    """The state at given values of sites, the others as in a fresh start.

    Raises:
        ValueError: none is given, or one has another shape.
    """
    fresh, variables = init(key, model, x).values, with_stick_decays(variables)
    given = {
        name: jnp.asarray(variables[name], own.dtype) for name, own in fresh.items() if name in variables
    }
    if not given:
        raise ValueError(f"init must hold sites, such as {', '.join(fresh)}; got {', '.join(variables)}")
    for name, value in given.items():
        if value.shape != fresh[name].shape:
            raise ValueError(f"init: {name} must have shape {fresh[name].shape}; got {value.shape}")
    return MCFAGibbsState(fresh | given)


def _step(
    key: Array, state: MCFAGibbsState, model: MCFA, x: Array, *, blocks_of: Callable
) -> tuple[MCFAGibbsState, MCFAGibbsInfo]:
    """Run one sweep."""
    state = MCFAGibbsState(sweep(key, state.values, blocks_of(model), model, x))
    return state, recorded(state, model, x)


def recorded(state: MCFAGibbsState, model: MCFA, x: Array) -> MCFAGibbsInfo:
    """The log joint of a state, and its clusters."""
    log_joint = jnp.sum(model.log_likelihood(state.values, x)) + log_prior(model, state.values, x)
    num_occupied = jnp.sum(jnp.bincount(state.values["assignments"], length=model.num_components) > 0)
    return MCFAGibbsInfo(log_joint, num_occupied)


@cache
def build(strategy: str, num_warmup: int, split_merge: int, moves: bool) -> Algorithm:
    """The sampler with its moves; it does not adapt, so the length of the warm-up does not matter to it."""
    return Algorithm(init, partial(_step, blocks_of=blocks_with(split_merge, moves)))


ALGORITHM = build("random", 0, 0, True)


def position(state: MCFAGibbsState, model: MCFA, keep_rows: bool = True) -> dict[str, Array]:
    """Values kept at every draw; labels and standard latents only if ``keep_rows``."""
    kept = state.values | answer_of(model, "derived", state.values)
    rows = () if keep_rows else ("assignments", "latents")
    return {name: value for name, value in kept.items() if name not in ("raw_latents", *rows)}


METHOD = Sampler(
    settings=Gibbs,
    strategies=("random",),
    build=build,
    start=start,
    conclude=conclude_draws,
    position={True: position, False: partial(position, keep_rows=False)}.get,
    options_for_modes=lambda model: {"split_merge": 4},
)
