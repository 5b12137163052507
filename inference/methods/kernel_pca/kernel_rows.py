r"""What EM for kernel PCA knows of the rows: their centred Gram matrix, whole or of low rank.

Whole: K of all rows; a direction in feature space is given by its N coefficients.

Online: of N1 former rows the directions :math:`\hat\Phi_1^T A_1` and the coordinates :math:`K_{11} A_1` were
kept. Directions are confined to the span of those and of the N2 new rows. An orthonormal basis of the span
comes from their inner products, which need :math:`K_{12}` and :math:`K_{22}` alone; the coordinates H of all
rows in that basis make :math:`K \approx H H^T`, of rank K + N2 at most, and a direction is given by its
coordinates. The trace is that of the whole K: what lies outside of the span is noise. Column means are
updated from the new blocks (Yu 2006, (5.28)-(5.30)).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array

from inference.methods.kernel_pca.components import Components, centred_gram, components_from
from inference.results.files import model_of
from zoo.kernels.gram import (Centring, cross_gram, extended_centring, gram_matrix)
from zoo.kernel_pca import KernelPCA
from zoo.kernels import Kernel

__all__ = ["KernelRows", "prepare", "restricted_eigenpairs", "ritz_components"]

SMALLEST = 1e-12  # share of the largest inner product below which a direction of the span is rounding
FORMER = ("coefficients", "signal_variances", "noise_variance")  # what a start needs


class KernelRows(NamedTuple):
    """Rows by their centred inner products.

    Attributes:
        coordinates: K, shape (num_observations, num_observations), or H, shape (num_observations, rank).
        gram_means: mean kernel value of each row with all, not centred, shape (num_observations,).
        trace: of the whole centred Gram matrix.
        freedom: m.
        dimension: how many dimensions the score's determinant is over.
        basis: None, or the coefficients of the basis over all rows, shape (num_observations, rank).
        former: None, or the former directions in the basis, shape (rank, num_latents).
    """

    coordinates: Array
    gram_means: Array
    trace: Array
    freedom: Array
    dimension: Array
    basis: Array | None = None
    former: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows first."""
        return self.coordinates.shape

    def directions(self, combination: Array) -> Array:
        """Combinations of the centred rows as directions.

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
            directions: what `directions` gave.

        Returns:
            Shape (num_observations, columns).
        """
        return self.coordinates @ directions

    def inner(self, directions: Array, products: Array) -> Array:
        """Inner products of directions with each other, ``products`` being theirs with the rows.

        Args:
            directions: what `directions` gave.
            products: what `product` gives of them, shape (num_observations, columns).

        Returns:
            Shape (columns, columns), symmetric.
        """
        inner = directions.T @ (products if self.basis is None else directions)
        return (inner + inner.T) / 2

    def coefficients(self, directions: Array) -> Array:
        """Directions as combinations of the centred rows, each column of coefficients centred.

        Their sum multiplies the sum of the centred rows, which is zero; once it is zero itself, a direction
        stays the same when rows are added and all are centred again.

        Args:
            directions: what `directions` gave.

        Returns:
            Shape (num_observations, columns).
        """
        combination = directions if self.basis is None else self.basis @ directions
        return combination - jnp.mean(combination, axis=0)

    def from_former(self, coefficients: Array) -> Array:
        """Directions that were combinations of the first rows, from their coefficients.

        Args:
            coefficients: over the former rows, which stand first here, shape (former rows, num_latents).

        Returns:
            As of `directions`: shape (num_observations, num_latents), or (rank, num_latents).
        """
        if self.former is not None:
            return self.former
        return jnp.pad(coefficients, ((0, self.shape[0] - coefficients.shape[0]), (0, 0)))


def restricted_eigenpairs(columns: Array, rows: KernelRows) -> tuple[Array, Array, Array]:
    """Eigenpairs of the Gram matrix on the span of columns (Rayleigh-Ritz).

    Args:
        columns: shape (num_observations, columns).
        rows: the rows.

    Returns:
        Eigenvalues, descending; unit eigenvectors; the Gram matrix times these.
    """
    basis = jnp.linalg.svd(columns, full_matrices=False)[0]
    products = rows.product(rows.directions(basis))
    restricted = basis.T @ products
    values, rotation = jnp.linalg.eigh((restricted + restricted.T) / 2)
    rotation = rotation[:, ::-1]
    return jnp.maximum(values[::-1], 0.0), basis @ rotation, products @ rotation


def ritz_components(products: Array, rows: KernelRows, model: KernelPCA) -> Components:
    """The components on the span of ``products``, on the host.

    Args:
        products: shape (num_observations, num_latents).
        rows: the rows.
        model: the model; a noise variance that it estimates is that of the eigenvalues found.
    """
    values, vectors, products = (
        np.asarray(part, np.float64) for part in restricted_eigenpairs(products, rows)
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
    )
    if rows.basis is None:
        return components
    directions = rows.coefficients(rows.directions(jnp.asarray(components.coefficients)))
    return components._replace(coefficients=np.asarray(directions, np.float64))


def prepare(model: KernelPCA, data: tuple, init: Any, *, memory: str, **options: Any) -> tuple[KernelRows]:
    """The rows of a fit.

    Args:
        model: the (filled) model.
        data: the rows, shape (num_observations, num_features).
        init: what `fit` was given: a former fit's rows must be the first of these.
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
    gram, gram_means = centred_gram(model, x)
    trace = np.trace(gram)
    return (KernelRows(jnp.asarray(gram), gram_means, trace, **shared),)  # the host's copy is let go of


def _online(kernel: Kernel, x: np.ndarray, former: xr.Dataset, **shared: Any) -> KernelRows:
    old_coefficients = former["coefficients"].to_numpy()
    old_products = former["gram_products"].to_numpy()
    old_centring = Centring(former["gram_means"].to_numpy())
    num_old = old_coefficients.shape[0]
    if num_old == x.shape[0]:
        raise ValueError("memory='online' adds rows to a former fit; x has no more rows than it had")
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
        gram_means=means,
        trace=np.asarray(np.sum(diagonal) - means.sum()),
        basis=np.concatenate([old_coefficients @ basis[:num_latents], basis[num_latents:]]),
        former=(vectors[:, kept] * np.sqrt(values[kept]))[:num_latents].T,
        **shared,
    )


def _blocks(kernel: Kernel, x: np.ndarray, num_old: int) -> tuple[np.ndarray, np.ndarray]:
    """Kernel values of old with new rows and of new rows among themselves, not centred."""
    if kernel.is_precomputed:
        return x[:num_old, num_old:], x[num_old:, num_old:]
    return cross_gram(kernel, x[:num_old], x[num_old:]), gram_matrix(kernel, x[num_old:], announce=False)


def _former(model: KernelPCA, x: np.ndarray, init: Any) -> xr.Dataset | None:
    """The former fit's estimate, if there is one, checked against these rows."""
    if isinstance(init, Mapping) and not isinstance(init, xr.DataTree):
        missing = [name for name in FORMER if name not in init]
        if missing:
            raise ValueError(f"init must hold {', '.join(FORMER)}; missing: {', '.join(missing)}")
        return None
    if not isinstance(init, xr.DataTree):
        return None
    if init.attrs.get("model") != "kernelpca" or "variational" not in init.children:
        raise ValueError("init must be a fit of KernelPCA by em or closed_form: it goes on from its loadings")
    old_model = model_of(init)
    if old_model.num_latents != model.num_latents:
        raise ValueError(
            f"the former fit has {old_model.num_latents} latents and this model has {model.num_latents}; "
            "they must agree"
        )
    if _described(old_model.kernel) != _described(model.kernel):
        raise ValueError(
            f"the former fit has the kernel {_described(old_model.kernel)} and this model has "
            f"{_described(model.kernel)}: fit inference.model_of(tree), which keeps what its rows said"
        )
    estimate = init["variational"].to_dataset()
    num_old = estimate.sizes["observation"]
    rows = init["observed_data"]["x"].to_numpy() if "observed_data" in init.children else None
    if rows is not None:
        first = x[:num_old, :num_old] if model.kernel.is_precomputed else x[:num_old]
        same = rows.shape == first.shape and np.array_equal(rows, first)
        if not same:
            raise ValueError(
                f"x must begin with the {num_old} rows of the former fit, in their order"
                + _first_difference(rows, first)
            )
    elif num_old > x.shape[0]:
        raise ValueError(f"the former fit has {num_old} rows and x only {x.shape[0]}")
    return estimate


def _described(kernel: Kernel) -> str:
    fields = {name: getattr(kernel, name) for name in (*kernel.static_names(), *kernel.leaf_names())}
    return f"{type(kernel).__name__}({', '.join(f'{name}={value}' for name, value in fields.items())})"


def _first_difference(rows: np.ndarray, first: np.ndarray) -> str:
    if rows.shape != first.shape:
        return f"; they have shape {rows.shape}, these {first.shape}"
    return f"; row {int((rows != first).any(axis=1).argmax())} differs"
