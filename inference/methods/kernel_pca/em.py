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
of the former fit. Coefficients B of zero for the new rows leave W unchanged, centred again or not, because
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

The centred Gram matrix
-----------------------
Whole: K of all rows; a direction in feature space is given by its N coefficients.

Online: of N1 former rows the directions :math:`\hat\Phi_1^T A_1` and the coordinates :math:`K_{11} A_1` were
kept. Directions are confined to the span of those and of the N2 new rows. An orthonormal basis of the span
comes from their inner products, which need :math:`K_{12}` and :math:`K_{22}` alone; the coordinates H of all
rows in that basis make :math:`K \approx H H^T`, of rank K + N2 at most, and a direction is given by its
coordinates. The trace is that of the whole K: what lies outside of the span is noise. Column means are
updated from the new blocks (Yu 2006, (5.28)-(5.30)).
"""

from collections.abc import Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array
from jax.scipy.linalg import cho_factor, cho_solve

from inference.algorithm import Algorithm, Ascent, Init, Outcome
from inference.methods.kernel_pca import EM
from inference.methods.kernel_pca.closed_form import centred_gram, components_from, to_outcome
from inference.precision import to_numpy
from inference.results.files import model_of
from zoo.fields import names_of
from zoo.kernel_pca import KernelPCA
from zoo.kernels import Kernel
from zoo.kernels.gram import Centring, cross_gram, extended_centring, gram_matrix
from zoo.shapes import Values

SMALLEST = 1e-12  # share of the largest inner product below which a direction of the span is rounding
FORMER = ("coefficients", "signal_variances", "noise_variance")  # the variables that a start needs


class KernelRows(NamedTuple):
    """Rows represented by their centred inner products.

    Attributes:
        coordinates: K, shape (num_observations, num_observations), or H, shape (num_observations, rank).
        gram_means: mean kernel value of each row with all, not centred, shape (num_observations,).
        trace: of the whole centred Gram matrix.
        freedom: m.
        dimension: how many dimensions the score's determinant is over.
        rounding: the eigenvalue below which there is only rounding error.
        basis: None, or the coefficients of the basis over all rows, shape (num_observations, rank).
        former: None, or the former directions in the basis, shape (rank, num_latents).
    """

    coordinates: Array
    gram_means: Array
    trace: Array
    freedom: Array
    dimension: Array
    rounding: Array | float = 0.0
    basis: Array | None = None
    former: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix, rows first."""
        return self.coordinates.shape

    def directions(self, combination: Array) -> Array:
        """Represent combinations of the centred rows as directions.

        Args:
            combination: coefficients over the rows, shape (num_observations, columns).

        Returns:
            The coefficients themselves, or, with a basis of reduced rank, coordinates in it, shape (rank,
                columns).
        """
        return combination if self.basis is None else self.coordinates.T @ combination

    def product(self, directions: Array) -> Array:
        """Inner products of the centred rows with directions, shape (num_observations, columns).

        Args:
            directions: from `directions`.

        Returns:
            Shape (num_observations, columns).
        """
        return self.coordinates @ directions

    def inner(self, directions: Array, products: Array) -> Array:
        """Inner products of directions with each other.

        Args:
            directions: from `directions`.
            products: their `product`, shape (num_observations, columns).

        Returns:
            Shape (columns, columns), symmetric.
        """
        inner = directions.T @ (products if self.basis is None else directions)
        return (inner + inner.T) / 2

    def coefficients(self, directions: Array) -> Array:
        """Express directions as combinations of the centred rows, with centred columns of coefficients.

        Their sum multiplies the sum of the centred rows, which is zero; once it is zero itself, a direction
        stays the same when rows are added and all are centred again.

        Args:
            directions: from `directions`.

        Returns:
            Shape (num_observations, columns).
        """
        combination = directions if self.basis is None else self.basis @ directions
        return combination - combination.mean(axis=0)

    def from_former(self, coefficients: Array) -> Array:
        """Directions from their coefficients over the first rows.

        Args:
            coefficients: over the former rows, which stand first here, shape (former rows, num_latents).

        Returns:
            As of `directions`: shape (num_observations, num_latents), or (rank, num_latents).
        """
        if self.former is not None:
            return self.former
        return jnp.pad(coefficients, ((0, self.shape[0] - coefficients.shape[0]), (0, 0)))


def restricted_eigenpairs(columns: Array, rows: KernelRows) -> tuple[Array, Array, Array]:
    """Eigenpairs of the Gram matrix on the span of columns (Rayleigh-Ritz); of NumPy's arrays on the host.

    Args:
        columns: shape (num_observations, columns).
        rows: the rows.

    Returns:
        Eigenvalues, descending; unit eigenvectors; the Gram matrix times these.
    """
    numbers = np if isinstance(columns, np.ndarray) else jnp
    basis = numbers.linalg.svd(columns, full_matrices=False)[0]
    products = rows.product(rows.directions(basis))
    restricted = basis.T @ products
    values, rotation = numbers.linalg.eigh((restricted + restricted.T) / 2)
    rotation = rotation[:, ::-1]
    return numbers.maximum(values[::-1], 0.0), basis @ rotation, products @ rotation


def prepare(
    model: KernelPCA, data: tuple, init: Init, *, memory: str, **options: object
) -> tuple[KernelRows]:
    """Prepare the rows of a fit.

    Args:
        model: the (filled) model.
        data: the rows, shape (num_observations, num_features).
        init: the argument of `fit`; a former fit's rows must be the first of these.
        memory: ``"full"``, or ``"online"``: no Gram matrix of the former rows is made.
        **options: not used.

    Raises:
        ValueError: the former fit is of other rows, another kernel or another number of latents.
    """
    (x,) = data
    former = _former(model, x, init)
    shared = {
        "freedom": np.asarray(model.freedom(x.shape[0]), np.float64),
        "dimension": np.asarray(model.score_dimension(*x.shape), np.float64),
    }
    if memory == "online" and former is not None:
        return (_online(model.kernel, x, former, **shared),)
    gram = centred_gram(model, x)
    shared |= {"trace": np.trace(gram.matrix), "rounding": np.asarray(gram.rounding)}
    # the host's copy is let go of
    return (KernelRows(jnp.asarray(gram.matrix), gram.column_means, **shared),)


def _online(kernel: Kernel, x: np.ndarray, former: xr.Dataset, **shared: Any) -> KernelRows:
    old_coefficients = former["coefficients"].to_numpy()
    old_products = former["gram_products"].to_numpy()
    old_centring = Centring(former["gram_means"].to_numpy())
    num_old = old_coefficients.shape[0]
    if num_old == x.shape[0]:
        raise ValueError("memory='online' adds rows to a former fit; x has no more rows than it had")
    stored_means = None
    if kernel.linear_scale is not None:  # a row's mean value is its value with the mean row, here zero
        stored_means = kernel.matrix(x, x.mean(axis=0)[None])[:, 0]
        x = x - x[:num_old].mean(axis=0)
        old_centring = Centring(kernel.matrix(x[:num_old], np.zeros((1, x.shape[1])))[:, 0])
    cross, new = _blocks(kernel, x, num_old)
    centring = extended_centring(old_centring, cross, new)
    means = centring.column_means
    to_new = np.concatenate([cross, new]) - means[:, None] - (means[num_old:] - means.mean())[None, :]
    to_old = np.concatenate([old_products, old_centring.cross(cross.T) @ old_coefficients])
    to_old -= to_old.mean(axis=0)  # with respect to the new mean, to which old directions are indifferent
    live = np.abs(old_coefficients).max(axis=0) > 0
    old_new = to_old[num_old:]
    inner = np.block([[np.diag(live.astype(float)), old_new.T], [old_new, to_new[num_old:]]])
    values, vectors = np.linalg.eigh(inner)
    kept = values > SMALLEST * values.max()
    basis = vectors[:, kept] / np.sqrt(values[kept])
    num_latents = live.size
    diagonal = x.diagonal() if kernel.is_precomputed else kernel.diagonal(x)
    return KernelRows(
        coordinates=np.concatenate([to_old, to_new], axis=1) @ basis,
        gram_means=means if stored_means is None else stored_means,
        trace=np.asarray(np.sum(diagonal) - means.sum()),
        basis=np.concatenate([old_coefficients @ basis[:num_latents], basis[num_latents:]]),
        former=(vectors[:, kept] * np.sqrt(values[kept]))[:num_latents].T,
        **shared,
    )


def _blocks(kernel: Kernel, x: np.ndarray, num_old: int) -> tuple[np.ndarray, np.ndarray]:
    """Uncentred kernel values of old with new rows, and of new rows with each other."""
    if kernel.is_precomputed:
        return x[:num_old, num_old:], x[num_old:, num_old:]
    return cross_gram(kernel, x[:num_old], x[num_old:]), gram_matrix(kernel, x[num_old:], announce=False)


def _former(model: KernelPCA, x: np.ndarray, init: Init) -> xr.Dataset | None:
    """The estimate of a former fit, if there is one, checked against these rows."""
    if isinstance(init, Mapping) and not isinstance(init, xr.DataTree):
        missing = [name for name in FORMER if name not in init]
        if missing:
            raise ValueError(f"init must hold {', '.join(FORMER)}; missing: {', '.join(missing)}")
        return None
    if not isinstance(init, xr.DataTree):
        return None
    old_model = model_of(init)
    if not isinstance(old_model, KernelPCA) or "variational" not in init.children:
        raise ValueError("init must be a fit of KernelPCA by em or closed_form: it goes on from its loadings")
    if old_model.num_latents != model.num_latents:
        raise ValueError(
            f"the former fit has {old_model.num_latents} latents and this model has {model.num_latents}; "
            "they must agree"
        )
    if _described(old_model.kernel) != _described(model.kernel):
        raise ValueError(
            f"the former fit has the kernel {_described(old_model.kernel)} and this model has "
            f"{_described(model.kernel)}: fit inference.model_of(tree), whose kernel is the same"
        )
    estimate = init["variational"].to_dataset()
    num_old = estimate.sizes["observation"]
    rows = None
    if "observed_data" in init.children:
        rows = init["observed_data"]["x"].to_numpy()
        if old_model.column_scale is not None:
            rows = rows / old_model.column_scale
    if rows is not None:
        first = x[:num_old, :num_old] if model.kernel.is_precomputed else x[:num_old]
        if model.kernel.is_shift_invariant:  # x is about its own origin
            rows, first = rows - rows.mean(axis=0), first - first.mean(axis=0)
        rounding = 64 * np.finfo(float).eps * max(np.abs(rows).max(), np.abs(x).max())
        same = rows.shape == first.shape and np.abs(rows - first).max() <= rounding
        if not same:
            raise ValueError(
                f"x must begin with the {num_old} rows of the former fit, in their order"
                + _first_difference(rows, first)
            )
    elif num_old > x.shape[0]:
        raise ValueError(f"the former fit has {num_old} rows and x only {x.shape[0]}")
    return estimate


def _described(kernel: Kernel) -> str:
    fields = {name: getattr(kernel, name) for name in (*names_of(kernel).static, *names_of(kernel).leaves)}
    return f"{type(kernel).__name__}({', '.join(f'{name}={value}' for name, value in fields.items())})"


def _first_difference(rows: np.ndarray, first: np.ndarray) -> str:
    if rows.shape != first.shape:
        return f"; they have shape {rows.shape}, these {first.shape}"
    return f"; row {int((rows != first).any(axis=1).argmax())} differs"


OVERSAMPLING = 10  # random vectors of a start beyond the number of latents
SMALLEST_SHARE = 1e-3  # of its eigenvalue: least variance of a component at the start


class KernelPCAState(NamedTuple):
    """The estimate of loadings and noise variance.

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
    """Quantities recorded at each sweep.

    Attributes:
        objective: the program's score at the new parameters, in nats.
        noise_variance: s2.
    """

    objective: Array
    noise_variance: Array


def init(key: Array, model: KernelPCA, rows: KernelRows, *, strategy: str = "sketch") -> KernelPCAState:
    """Draw a random start.

    ``"sketch"``: the best K directions of the Gram matrix times a few more random vectors than K (Halko,
    Martinsson and Tropp 2011); it costs two sweeps and spares those that a random block of just K vectors
    needs where it happens to be nearly orthogonal to a leading eigenvector. The noise begins at what these
    directions leave: above it, a component far below the noise shrinks by the ratio of the two a sweep, and
    is lost to rounding before the noise has come down. ``"random"``: such a block, as in the text.
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
        if model.noise_variance is None:
            left = jnp.maximum(rows.trace - jnp.sum(values), rows.rounding)
            noise = left / (rows.freedom * (rows.dimension - model.num_latents))
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
    key: Array, variables: Values, model: KernelPCA, rows: KernelRows, *, new_rows: str, **options: object
) -> KernelPCAState:
    """The state at the loadings of a former fit, whose rows are the first of these."""
    noise = jnp.asarray(variables["noise_variance"] if model.noise_variance is None else model.noise_variance)
    lengths = jnp.sqrt(variables["signal_variances"])
    directions = rows.from_former(variables["coefficients"]) * lengths
    products = rows.product(directions)
    if new_rows == "random":  # Algorithm 5.2, step 2: random Z beside the former Z, B = Z C^-1
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
    """Run one sweep; the key is ignored."""
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
    """The score of the program, in nats."""
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
    """Build the algorithm with or without parameter expansion."""
    return Algorithm(partial(init, strategy=strategy), partial(step, acceleration=acceleration))


def check(model: KernelPCA, settings: EM) -> None:
    """Raise ValueError if EM does not support the prior."""
    if model.latent_variance is not None:
        raise ValueError(
            "em maximises the score under a flat prior of the latents: leave latent_variance out, or use "
            "closed_form, which knows the maximum with it"
        )


def conclude(
    key: Array, state: KernelPCAState, model: KernelPCA, data: tuple, *sizes: object, **options: object
) -> Outcome:
    """Conclude with the eigenpairs on the span of the latents (Rayleigh-Ritz).

    A noise variance that the model estimates is that of the eigenvalues found.
    """
    rows = to_numpy(data[0])
    values, vectors, products = (
        np.asarray(part, np.float64) for part in restricted_eigenpairs(np.asarray(state.products), rows)
    )
    components = components_from(
        model,
        float(rows.freedom),
        float(rows.dimension),
        values,
        vectors,
        np.asarray(rows.gram_means, np.float64),
        float(rows.trace),
        products,
        float(rows.rounding),
    )
    if rows.basis is not None:
        directions = rows.coefficients(rows.directions(components.coefficients))
        components = components._replace(coefficients=np.asarray(directions, np.float64))
    return to_outcome(components, model, "em")


METHOD = Ascent(
    settings=EM,
    strategies=("sketch", "random"),
    build=build,
    start=start,
    conclude=conclude,
    check=check,
    prepare=prepare,
)
