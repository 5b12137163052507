r"""Kernel PCA by expectation maximisation (Algorithm 5.1), exact and cheap where few sweeps will do.

Loadings are combinations of centred rows, :math:`W = \hat\Phi^T B`, and K is the centred Gram matrix. With
:math:`A = B^T K B + s^2 I` a sweep is

.. math::
    Z = K B A^{-1}, \qquad C = m s^2 A^{-1} + Z^T Z, \qquad B \leftarrow Z C^{-1} L,

(5.15), (5.16), m the degrees of freedom (N in the text). L = I is plain EM. Parameter expansion (Liu, Rubin
and Wu 1998) takes :math:`L L^T = C / m`: the latents are allowed the covariance that they were found to have
and are standardised again. Plain EM turns the subspace as quickly but changes scale and rotation of the
latents only at the rate :math:`s^2 / \lambda`. Where the noise is not given,
:math:`s^2 = \{\mathrm{tr} K - \mathrm{tr}(C\, C^{-1} Z^T K Z C^{-1})\} / (m M)` (5.17).

The objective is the program's score in nats: with :math:`m = N` and given s2 the log likelihood (5.24) and
the constants that it drops. It never falls. One product K B a sweep: O(N^2 K). Of the leading subspace the
error shrinks by :math:`\lambda_{K+1} / \lambda_K` a sweep, so captured variance is right long before the
vectors are.

At the end the components are read off by the Rayleigh-Ritz method on the span of Z: eigenpairs of K
restricted to it. The text's way back, :math:`\Lambda = N^2 s^2 (N I - D_Z^2)^{-1}`, needs the scale of Z to
have converged and loses all digits to cancellation as s2 falls.

*New rows* (Algorithm 5.2): ``fit(model, x_all, method="em", init=tree)`` where ``x_all`` begins with the rows
of the former fit. Coefficients B of zero for the new rows leave W what it was, centred again or not, because
the columns of B sum to zero; the first sweep puts the new rows at their projection. ``new_rows="random"`` is
the text. Which of the two is nearer depends on how much of the new rows the old loadings see; a fresh sketch
of all rows, which costs two sweeps, is often nearer than either. As printed, step 6 of the algorithm uses the
Z'Z of step 4: it must be the new one, as here.

``memory="online"`` keeps of the old rows only their B and K B and never makes their Gram matrix: W is then
confined to the span of the old loadings and the new rows, in which the score still cannot fall. What the old
rows showed beyond their first K components is lost, so it ends at another, lower maximum than all rows
together would. The text goes further and holds the old rows' K Z fixed while Z moves; the two then no longer
belong together, its score falls, and it ends at minor components.

Reference: Yu (2006), sections 5.2.4 and 5.3.
"""

from collections.abc import Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import cho_factor, cho_solve

from inference.algorithm import Algorithm, Ascent, Outcome
from inference.methods.kernel_pca.components import to_outcome
from inference.methods.kernel_pca.kernel_rows import (KernelRows, prepare, restricted_eigenpairs, ritz_components)
from zoo.argument_checks import check_choice
from zoo.kernel_pca import KernelPCA

__all__ = ["ALGORITHM", "METHOD", "KernelPCAInfo", "KernelPCAState", "init", "step"]

ACCELERATIONS = ("px", "none")
MEMORIES = ("full", "online")
NEW_ROWS = ("projected", "random")
OVERSAMPLING = 10  # random vectors of a start beyond the number of latents
SMALLEST_SHARE = 1e-3  # of its eigenvalue: what a component has at the start, above the noise or not


class KernelPCAState(NamedTuple):
    """The estimate.

    Attributes:
        directions: the loadings W: B, shape (num_observations, num_latents), or their coordinates in the
            basis of the online variant.
        products: inner products of the rows with W, K B, shape (num_observations, num_latents).
        noise_variance: s2.
    """

    directions: Array
    products: Array
    noise_variance: Array


class KernelPCAInfo(NamedTuple):
    """What is recorded of a sweep.

    Attributes:
        objective: the program's score at the new parameters, in nats.
        noise_variance: s2.
    """

    objective: Array
    noise_variance: Array


def init(key: Array, model: KernelPCA, rows: KernelRows, *, strategy: str = "sketch") -> KernelPCAState:
    """A random start.

    ``"sketch"``: the best K directions of the Gram matrix times a few more random vectors than K (Halko,
    Martinsson and Tropp 2011); it costs two sweeps and spares those that a random block of just K vectors
    needs where it happens to be nearly orthogonal to a leading eigenvector. ``"random"``: such a block, as in
    the text.
    """
    count = model.num_latents + (OVERSAMPLING if strategy == "sketch" else 0)
    drawn = jax.random.normal(key, (rows.shape[0], count), rows.trace.dtype)
    directions = rows.directions(drawn - jnp.mean(drawn, axis=0))
    noise = model.noise_variance
    if noise is None:
        noise = 0.5 * rows.trace / (rows.freedom * rows.dimension)
    if strategy == "sketch":
        values, vectors, _ = restricted_eigenpairs(rows.product(directions), rows)
        values, vectors = values[: model.num_latents], vectors[:, : model.num_latents]
        signal = jnp.maximum(values / rows.freedom - noise, SMALLEST_SHARE * values / rows.freedom)
        directions = rows.directions(vectors) * jnp.sqrt(signal / jnp.where(values > 0, values, 1.0))
        products = rows.product(directions)
    else:
        products = rows.product(directions)
        total = jnp.trace(rows.inner(directions, products))
        scale = jnp.sqrt(0.5 * rows.trace / rows.freedom / total)
        directions, products = scale * directions, scale * products
    return KernelPCAState(directions, products, jnp.asarray(noise, products.dtype))


def start(
    key: Array,
    variables: Mapping[str, Array],
    model: KernelPCA,
    rows: KernelRows,
    *,
    new_rows: str,
    **options: Any,
) -> KernelPCAState:
    """The state at the loadings of a former fit, whose rows are the first of these."""
    noise = jnp.asarray(variables["noise_variance"] if model.noise_variance is None else model.noise_variance)
    lengths = jnp.sqrt(variables["signal_variances"])
    directions = rows.from_former(variables["coefficients"]) * lengths
    products = rows.product(directions)
    if new_rows == "random":  # (5.2), step 2: random Z of the new rows beside the former Z, B = Z C^-1
        factor = cho_factor(rows.inner(directions, products) + noise * jnp.eye(lengths.size))
        latents = cho_solve(factor, products.T).T
        drawn = jax.random.normal(key, latents.shape, latents.dtype)
        old = jnp.arange(latents.shape[0]) < variables["coefficients"].shape[0]
        latents = jnp.where(old[:, None], latents, drawn)
        second = rows.freedom * noise * cho_solve(factor, jnp.eye(lengths.size)) + latents.T @ latents
        directions = rows.directions(cho_solve(cho_factor(second), latents.T).T)
        products = rows.product(directions)
    return KernelPCAState(directions, products, jnp.asarray(noise, products.dtype))


def e_step(state: KernelPCAState, rows: KernelRows) -> tuple[Array, Array]:
    """Posterior means Z of the latents (5.15) and C, the sum of their second moments (5.16)."""
    identity = jnp.eye(state.products.shape[1], dtype=state.products.dtype)
    factor = cho_factor(rows.inner(state.directions, state.products) + state.noise_variance * identity)
    latents = cho_solve(factor, state.products.T).T
    covariance = state.noise_variance * cho_solve(factor, identity)
    return latents, rows.freedom * covariance + latents.T @ latents


def step(
    key: Array, state: KernelPCAState, model: KernelPCA, rows: KernelRows, *, acceleration: str = "px"
) -> tuple[KernelPCAState, KernelPCAInfo]:
    """One sweep; deterministic, the key is ignored."""
    latents, second = e_step(state, rows)
    directions = rows.directions(cho_solve(cho_factor(second), latents.T).T)
    products = rows.product(directions)
    noise = state.noise_variance
    if model.noise_variance is None:  # (5.17)
        explained = jnp.sum(second * rows.inner(directions, products))
        noise = (rows.trace - explained) / (rows.freedom * rows.dimension)
    if acceleration == "px":
        expansion = jnp.linalg.cholesky(second / rows.freedom)
        directions, products = directions @ expansion, products @ expansion
    new = KernelPCAState(directions, products, noise)
    return new, KernelPCAInfo(score(new, rows), noise)


def score(state: KernelPCAState, rows: KernelRows) -> Array:
    """The program's score, in nats."""
    num_latents, noise = state.products.shape[1], state.noise_variance
    identity = jnp.eye(num_latents, dtype=state.products.dtype)
    factor = cho_factor(rows.inner(state.directions, state.products) + noise * identity)
    log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(factor[0])))
    log_det = log_det + (rows.dimension - num_latents) * jnp.log(noise)
    explained = jnp.sum(state.products * cho_solve(factor, state.products.T).T)
    return -0.5 * rows.freedom * log_det - 0.5 * (rows.trace - explained) / noise


ALGORITHM = Algorithm(init, step)


@cache
def build(strategy: str, acceleration: str, memory: str, new_rows: str) -> Algorithm:
    """The algorithm with or without parameter expansion."""
    return Algorithm(partial(init, strategy=strategy), partial(step, acceleration=acceleration))


def check(model: KernelPCA, *, acceleration: Any, memory: Any, new_rows: Any) -> None:
    """Raise ValueError for an unknown option, or a prior that EM does not know."""
    for name, value, known in (
        ("acceleration", acceleration, ACCELERATIONS),
        ("memory", memory, MEMORIES),
        ("new_rows", new_rows, NEW_ROWS),
    ):
        check_choice(name, value, known)
    if model.latent_variance is not None:
        raise ValueError(
            "em maximises the score under a flat prior of the latents: leave latent_variance out, or use "
            "closed_form, which knows the maximum with it"
        )


def conclude(
    key: Array,
    state: KernelPCAState,
    model: KernelPCA,
    data: tuple,
    num_samples: int,
    keep_rows: bool,
    **options: Any,
) -> Outcome:
    """Eigenpairs on the span of the latents as one draw of one chain."""
    components = ritz_components(state.products, data[0], model)
    return to_outcome(components, model, "em")


METHOD = Ascent(
    options={"acceleration": "px", "memory": "full", "new_rows": "projected"},
    strategies=("sketch", "random"),
    build=build,
    start=start,
    conclude=conclude,
    check=check,
    prepare=prepare,
)
