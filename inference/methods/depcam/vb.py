r"""Variational EM for repulsive mixtures of PCAs with the latents integrated out.

q is :math:`q(z_n)\, q(y_n \mid z_n) \prod_\theta \delta_\theta`: labels, Gaussian latents given the label,
and a point for bases, scales, offsets and weights. The objective,

.. math::
    \sum_n \log \sum_k \pi_k\, e^{b_{nk}} + \lambda \log|S| + \log p(\phi, b, \pi), \qquad
    b_{nk} \le \log \int p(x_n \mid y, k)\, N(y; 0, I)\, dy,

has in b the exact integral for Gaussian cells (then it is that of ``em``, and the ELBO up to the carriers'
constant), the bound of Jaakkola and Jordan (2000) for Bernoulli and binomial ones, with an xi per row,
component and cell, and for Poisson ones that of a Gaussian q, E[exp theta] exactly
(`inference.methods.depcam.rows`; the objective again is the ELBO). Against ``em`` it has an Occam factor: a
component pays for its directions, so that components can be compared, and with zero sparsity the scales do
not drift. Scales of zero stay zero: no latent moves there. Both kinds of latents are the same model here, and
the same bound.

The updates are those of ``em`` (`inference.methods.depcam.em`) with second moments of the latents in
them; the xi are the root of E[theta^2]. None lowers the objective. A sweep costs O(N K D d^2) five times, and
holds xi, N x K x D numbers.
"""

import math
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Algorithm, Ascent, Outcome, as_one_chain
from inference.methods.depcam import VB, em
from inference.methods.depcam.em import evaluate, rows_of
from inference.numerics.compiled import compiled
from inference.numerics.host_draws import generator, label_draws
from zoo.answers import answer_of
from zoo.depcam import DEPCAM
from zoo.model import in_current_precision
from zoo.shapes import Values

LARGEST_DRAWS = 256e6  # bytes of drawn latents that are kept


@cache
def build(strategy: str, clamped_sweeps: int) -> Algorithm:
    """The algorithm with a start strategy."""
    begin = partial(em.init, strategy=strategy, clamped_sweeps=clamped_sweeps, integrated=True)
    own = em.numbered(strategy, begin)
    return Algorithm(begin, em.step, settling_steps=em.settling_steps, numbered_init=own)


def check(model: DEPCAM, settings: VB) -> None:
    """Raise ValueError if a field does not suit."""
    em.check(model, settings)
    if model.family.log_partition_form == "other":
        raise ValueError(
            "vb integrates the latents of Gaussian, Bernoulli, binomial and Poisson cells; for "
            f"{type(model.family).__name__} use em"
        )


def conclude(
    key: Array,
    state: em.DEPCAMState,
    model: DEPCAM,
    data: tuple,
    num_samples: int,
    keep_rows: bool,
    **options: object,
) -> Outcome:
    """Independent draws of labels and latents from q as one chain, with the point estimates repeated."""
    (x,) = data
    values = {name: value for name, value in state.values.items() if name != "curves"}
    r, loc, covariance = _rows(state.values, model, x)
    stored = values | {
        "responsibilities": r,
        "latents_loc": loc,
        "latents_covariance": covariance,
        "num_occupied": np.sum(np.asarray(r).sum(axis=0) > 0.5),
    }
    shape = (x.shape[0], *model.latents_shape)
    keeps = keep_rows and num_samples * loc.dtype.itemsize * math.prod(shape) <= LARGEST_DRAWS
    draws = _draws(key, num_samples, stored, model) if keeps else {}
    points = em.program_values(values)
    posterior = {n: np.broadcast_to(v, (num_samples, *v.shape)) for n, v in points.items()} | draws
    own = ("observation", "component", "latent")
    return Outcome(
        posterior=as_one_chain(posterior),
        variational=stored,
        dims={"latents_loc": own, "latents_covariance": (*own, "latent_2")},
        is_point=not keeps,
        is_generative=bool(keeps),
        densities={"objective": tuple(points)},
    )


@partial(compiled, once=True)
def _rows(values: dict[str, Array], model: DEPCAM, x: Array) -> tuple[Array, Array, Array]:
    rows = rows_of(values, model, x)
    return evaluate(values, model, x, jnp.zeros((1, 1))).responsibilities, rows.mean, rows.covariance


def _draws(
    key: Array, num_samples: int, stored: Mapping[str, Any], model: DEPCAM
) -> dict[str, np.ndarray | Array]:
    """Draws of labels and latents; the latents of components not taken have their prior."""
    rng = generator(key)
    loc, covariance = np.asarray(stored["latents_loc"]), np.asarray(stored["latents_covariance"])
    labels = label_draws(rng, stored["responsibilities"], num_samples)
    drawn = answer_of(model, "derived", {"assignments": labels})
    if model.integrates_latents:  # no site of its program
        return drawn
    values, vectors = np.linalg.eigh(covariance)  # a root even where rounding has left none by Cholesky
    factors = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    rows = np.arange(len(loc))
    if model.latents == "shared":
        noise = rng.standard_normal((num_samples, len(loc), loc.shape[-1]))
        latents = loc[rows, labels] + np.einsum("snij,snj->sni", factors[rows, labels], noise)
        return drawn | {"latents": latents.astype(loc.dtype)}
    latents = rng.standard_normal((num_samples, *loc.shape)).astype(loc.dtype)
    for own, noise in zip(labels, latents, strict=True):
        noise[rows, own] = loc[rows, own] + np.einsum("nij,nj->ni", factors[rows, own], noise[rows, own])
    return drawn | {"latents": latents}


def _latents_given(assignments: Array, loc: Array, covariance: Array, model: DEPCAM) -> dist.Distribution:
    """The factor q of the latents given labels; those of components not taken have their prior."""
    taken = jax.nn.one_hot(assignments, model.num_components) > 0
    if model.latents == "shared":
        index = assignments[:, None, None]
        own = jnp.take_along_axis(covariance, index[..., None], axis=1)[:, 0]
        return dist.MultivariateNormal(
            jnp.take_along_axis(loc, index, axis=1)[:, 0], own, validate_args=False
        )
    spread = jnp.where(taken[..., None, None], covariance, jnp.eye(loc.shape[-1]))
    return dist.MultivariateNormal(
        jnp.where(taken[..., None], loc, 0.0), spread, validate_args=False
    ).to_event(1)


def guide(stored: Values, model: DEPCAM, x: Array | None = None) -> None:
    """Run q as a NumPyro program with exactly the sites of ``model.explicit``; of the fitted rows only.

    Args:
        stored: group `variational` of the fit.
        model: the model.
        x: the fitted rows.

    Raises:
        ValueError: other rows than the fitted ones.
    """
    stored, model = in_current_precision((dict(stored), model))
    r = stored["responsibilities"]
    if x is None or x.shape[0] != r.shape[0]:
        raise ValueError(f"this q is of the {r.shape[0]} rows that were fitted: call it with them")
    for name, value in em.program_values(stored).items():
        # a point mass with respect to the fractions, whose density the bound holds: dV = exp(-E) dE
        density = -jnp.sum(value) if name == "stick_decays" else 0.0
        numpyro.sample(name, dist.Delta(value, density, event_dim=value.ndim))
    with numpyro.plate("observations", r.shape[0]):
        assignments = numpyro.sample("assignments", dist.Categorical(probs=r))
        numpyro.sample(
            "latents", _latents_given(assignments, stored["latents_loc"], stored["latents_covariance"], model)
        )


METHOD = Ascent(
    settings=VB,
    strategies=em.STRATEGIES,
    build=build,
    start=partial(em.start, integrated=True),
    conclude=conclude,
    guide=guide,
    guide_has_points=True,
    transform=lambda stored, model, x: model.scores(stored, x),
    log_density=em.log_density,
    check=check,
)
