r"""Expectation maximisation of `inference.methods.linear_gaussian.em` where x is sparse.

The E-step runs on the host, where scipy multiplies a sparse matrix by a dense one several times faster than
compiled scatters do. With :math:`\tilde W = \Psi^{-1} W` it needs

.. math::
    B = X \tilde W_x - 1 (\mu_x^T \tilde W_x) + (Y - \mu_y) \tilde W_y, \qquad
    Z_n = A_n^{-1} B_n, \qquad \textstyle\sum_n (x_n - c) z_n^T = X^T Z - c\,(1^T Z),

with :math:`A_n` shared by all rows that miss the same outputs, and the log likelihood by

.. math::
    \textstyle\sum_n r_n^T \Psi^{-1} r_n - B_n^T A_n^{-1} B_n, \qquad
    \|X - 1c^T\|^2 = \|X\|^2 - N \|c\|^2,

so that centring is implicit. Beside the products a sweep costs O((N + M) K^2). The M-step is that of the
dense rows, compiled, once for x and once for y; parameter expansion is the same too. It needs a
flat prior.

The sum of squares is taken apart, so digits are lost where the noise is far smaller than the data; with
noise above a millionth of the variance the log likelihood keeps nine of them.

The start has the principal components of x from Lanczos iteration (ARPACK) on the centred matrix as an
operator, started from the same vector every time. The outputs get their loadings from sweeps with those of x
held, which need no product with x but one, on the rows that have outputs.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, eigsh

from inference.methods.linear_gaussian import em as linear_gaussian
from inference.methods.linear_gaussian.em import (
    LinearGaussianInfo,
    LinearGaussianState,
    LoadingPrior,
    Moments,
    Parameters,
)
from inference.methods.linear_gaussian.rows import CompressedRows, SparseRows
from inference.numerics.compiled import compiled

BLOCK_ROWS = 4096  # rows whose products with K x K matrices are held at a time
START_TOLERANCE = 1e-3  # of the first components, relative to their eigenvalues: sweeps do the rest
FEW_ROWS, LARGE_SHARE = 256, 0.25  # of a matrix, and of its eigenvalues: a dense solver is as quick
OUTPUT_SWEEPS = 5  # of the outputs alone at the start; each gains ten times less than the one before


def sparse_moments(parameters: Parameters, rows: SparseRows) -> Moments:
    """Posterior moments of the latents at given parameters, summed over sparse rows on the host."""
    mean, deviance, by_pattern = _posterior(parameters, rows)
    num_inputs = rows.x.shape[1]
    everything = by_pattern.sum(axis=0)
    total_first = everything[:-1, -1]
    cross = rows.x.T @ mean  # the second product
    for block in _blocks(num_inputs):
        cross[block] -= np.outer(rows.original_centre[block], total_first)
    return Moments(
        second=np.einsum("pc,pij->cij", rows.class_observed, by_pattern),
        cross=(cross, rows.y.T @ mean),  # by block of columns: copying them together costs memory
        total_second=everything[:-1, :-1],
        total_first=total_first,
        log_likelihood=np.asarray(-0.5 * deviance, mean.dtype),
        latents=mean,
    )


def _posterior(parameters: Parameters, rows: SparseRows) -> tuple[np.ndarray, float, np.ndarray]:
    """Posterior means, minus twice the log likelihood, and sums of E[[z, 1] [z, 1]'] by pattern."""
    loadings, loc, noise = map(np.asarray, parameters)
    num_rows, num_inputs = rows.x.shape
    per_column = noise[rows.group]
    psi_x, psi_y = per_column[:num_inputs], per_column[num_inputs:]
    w_y, loc_y, shift = loadings[num_inputs:], loc[num_inputs:], loc[:num_inputs]
    scaled_x, scaled_y = loadings[:num_inputs] / psi_x[:, None], w_y / psi_y[:, None]
    mean = rows.x @ scaled_x  # the first product; W' Psi^-1 (x - mu) until the pattern's turn
    mean -= (rows.original_centre[:num_inputs] + shift) @ scaled_x
    from_x = scaled_x.T @ loadings[:num_inputs]
    squares = np.asarray(rows.blocks[0].squares) + num_rows * shift**2  # x sums to zero about its centre
    deviance = float((squares / psi_x).sum()) + num_rows * float(np.log(2 * np.pi * psi_x).sum())
    sums, waiting = np.empty((len(rows.patterns), len(from_x) + 1, len(from_x) + 1), mean.dtype), []
    order, whole = _order_of(rows)
    for number in order:
        pattern, total = rows.patterns[number], sums[number]
        seen, total[:] = pattern.observed, 0.0
        precision = from_x + (scaled_y * seen[:, None]).T @ w_y + np.eye(len(from_x), dtype=mean.dtype)
        factor = np.linalg.cholesky(precision)
        half = np.linalg.inv(factor)
        inverse = half.T @ half
        held = pattern.members
        is_whole = number == whole or isinstance(held, slice)
        for block in _blocks(num_rows if is_whole else pattern.size):
            members = block if number == whole or isinstance(held, slice) else held[block]
            own = mean[members] if is_whole else mean.take(members, axis=0, mode="clip")
            if seen.any():
                residual = rows.y[members] - seen * loc_y
                own += residual @ scaled_y
                deviance += float(((residual**2).sum(axis=0) / psi_y).sum())
            latents = own @ inverse
            deviance -= float(np.vdot(own, latents))
            total[:-1, :-1] += latents.T @ latents
            total[:-1, -1] += latents.sum(axis=0)
            if whole is None or is_whole:
                mean[members] = latents
            else:
                mean[members] = 0.0
                waiting.append((members, latents))
        total[-1] = np.append(total[:-1, -1], pattern.size)
        total[:-1, :-1] += pattern.size * inverse
        log_det = 2 * float(np.log(np.diag(factor)).sum()) + float(seen @ np.log(2 * np.pi * psi_y))
        deviance += pattern.size * log_det
    for members, latents in waiting:
        mean[members] = latents
    return mean, deviance, sums


def _order_of(rows: SparseRows) -> tuple[list[int], int | None]:
    """The numbers of the patterns, in the order to take them, and that of the pattern of most rows, or None.

    If more than half of the rows have no outputs, their pattern comes last and passes over all rows, those of
    the other patterns being zero by then: to pick its rows out and put them back takes longer than the
    arithmetic does.
    """
    without = (k for k, own in enumerate(rows.patterns) if not own.observed.any())
    whole = next((k for k in without if 2 * rows.patterns[k].size > len(rows.y)), None)
    return sorted(range(len(rows.patterns)), key=lambda number: number == whole), whole


def _blocks(size: int) -> Iterator[slice]:
    """Slices of a range of rows or columns, so that intermediate results stay small."""
    for first in range(0, size, BLOCK_ROWS):
        yield slice(first, min(first + BLOCK_ROWS, size))


@partial(compiled, static_argnames=("center", "expand"))
def _swept(
    parameters: Parameters,
    moments: Moments,
    blocks: tuple,
    lowest: Array,
    fixed_noise: Array | None,
    *,
    center: str,
    expand: bool,
) -> tuple[Parameters, Array]:
    """The M-step of each block of columns, then the expansion."""
    parts, held, column, group, kind = [], [], 0, 0, 0
    for block, cross in zip(blocks, moments.cross, strict=False):
        columns = slice(column, column + block.sums.shape[0])
        groups = slice(group, group + block.num_groups)
        kinds = slice(kind, kind + block.class_member.shape[0])
        column, group, kind = columns.stop, groups.stop, kinds.stop
        noise = parameters.noise_variance[groups]
        new, at_floor = linear_gaussian.m_step(
            Parameters(parameters.loadings[columns], parameters.loc[columns], noise),
            moments._replace(second=moments.second[kinds], cross=cross),
            block,
            None,
            center=center,
            lowest=lowest[groups],
            fixed_noise=None if fixed_noise is None else fixed_noise[groups],
        )
        parts.append(new)
        held.append(at_floor)
    joint = jax.tree.map(lambda *own: jnp.concatenate(own), *parts)
    if expand:
        weight = blocks[0].total_weight
        mean, second = moments.total_first / weight, moments.total_second / weight
        joint = linear_gaussian.standardised(joint, mean, second, blocks[0], None, center)
    return joint, jnp.concatenate(held)


def _sweep(
    parameters: Parameters, moments: Moments, rows: SparseRows, prior: None, **keywords: object
) -> tuple[Parameters, Array]:
    return _swept(parameters, moments._replace(latents=None), rows.blocks, **keywords)


def sweep(
    state: LinearGaussianState,
    rows: CompressedRows | SparseRows,
    prior: LoadingPrior | None = None,
    **options: Any,
) -> tuple[LinearGaussianState, LinearGaussianInfo]:
    """Run one step of `inference.methods.linear_gaussian.em.step` with dense or sparse rows."""
    if isinstance(rows, SparseRows):
        options |= {"e_step": sparse_moments, "sweep": _sweep}
    return linear_gaussian.step(state, rows, prior, **options)


# Starts


def begin_with(
    parameters: Parameters, rows: CompressedRows | SparseRows, prior: LoadingPrior | None = None
) -> LinearGaussianState:
    """The state at given parameters; its E-step is the first step's with dense rows."""
    if isinstance(rows, SparseRows):
        return linear_gaussian.begin(parameters, rows, prior, e_step=sparse_moments)
    return linear_gaussian.unseen(parameters, rows)


def first_parameters(
    strategy: str,
    key: Array,
    rows: CompressedRows | SparseRows,
    num_latents: int,
    primary: tuple[int, ...] | None = None,
) -> Parameters:
    """Starting parameters of dense or sparse rows; the primary group of sparse rows is always x."""
    if strategy == "pca" and isinstance(rows, SparseRows):
        return sparse_start(rows, num_latents)
    return linear_gaussian.start_of(strategy, key, rows, num_latents, primary)


def sparse_start(rows: SparseRows, num_latents: int, tolerance: float = START_TOLERANCE) -> Parameters:
    """Starting parameters from principal components of sparse x, the outputs' given these.

    Args:
        rows: the data.
        num_latents: K.
        tolerance: of the components; 0: to rounding.
    """
    (num_rows, num_inputs), num_columns = rows.x.shape, rows.shape[1]
    variance = np.asarray(rows.group_variance, np.float64)
    num_groups = rows.blocks[0].num_groups
    scale = np.sqrt(variance[rows.group[:num_inputs]])
    values, directions = _leading(rows, scale, num_latents, tolerance)
    values = values / num_rows
    noise = max((num_inputs - values.sum()) / max(num_inputs - num_latents, 1.0), 1e-3)
    lengths = np.sqrt(np.maximum(values - noise, 0.01 * values + 1e-6))
    dtype = rows.y.dtype
    loadings = np.zeros((num_columns, num_latents), dtype)
    of_x = loadings[:num_inputs]
    of_x[:] = directions
    of_x *= lengths
    of_x *= scale[:, None]
    first_noise = np.where(np.arange(len(variance)) < num_groups, noise * variance, variance).astype(dtype)
    return _with_outputs(Parameters(loadings, np.zeros(num_columns, dtype), first_noise), rows)


def _with_outputs(parameters: Parameters, rows: SparseRows) -> Parameters:
    """Loadings, means and noise of the outputs by expectation maximisation with those of x held, in place."""
    num_inputs, k = rows.x.shape[1], parameters.loadings.shape[1]
    loadings, loc, noise = parameters
    w, means, group = loadings[num_inputs:], loc[num_inputs:], rows.group[num_inputs:]  # views of the outputs
    scaled = loadings[:num_inputs] / noise[rows.group[:num_inputs], None]
    from_all = np.eye(k) + scaled.T @ loadings[:num_inputs]
    shift = rows.original_centre[:num_inputs] @ scaled
    labelled = [own for own in rows.patterns if own.observed.any()]
    from_x = [_times(rows.x, own.members, scaled) - shift for own in labelled]
    lowest = 1e-3 * np.asarray(rows.group_variance, np.float64)
    for _ in range(OUTPUT_SWEEPS if labelled else 0):
        second, cross = np.zeros((len(group), k + 1, k + 1)), np.zeros((len(group), k + 1))
        squares, cells = np.zeros(len(group)), np.zeros(len(group))
        for pattern, own in zip(labelled, from_x, strict=True):
            seen, y = pattern.observed, rows.y[pattern.members]
            precision = from_all + (w * (seen / noise[group])[:, None]).T @ w
            covariance = np.linalg.inv(precision)
            latents = (own + ((y - seen * means) / noise[group]) @ w) @ covariance
            latents = np.column_stack([latents, np.ones(len(y))])
            products = latents.T @ latents
            products[:k, :k] += len(y) * covariance
            second += seen[:, None, None] * products
            cross += y.T @ latents
            squares += np.sum(y**2, axis=0)
            cells += seen * len(y)
        found = np.linalg.solve(second, cross[..., None])[..., 0]
        w[:], means[:] = found[:, :k], found[:, k]
        left, number = (
            np.bincount(group, own, len(noise)) for own in (squares - np.sum(found * cross, axis=1), cells)
        )
        has_outputs = number > 0
        noise[has_outputs] = np.maximum(left[has_outputs] / number[has_outputs], lowest[has_outputs])
    return Parameters(loadings, loc, noise)


def _times(x: csr_array, members: np.ndarray | slice, by_column: np.ndarray) -> np.ndarray:
    """The product of some rows of a sparse matrix, or of all, with a dense matrix."""
    if isinstance(members, slice):
        return x @ by_column
    return np.concatenate([x[members[block]] @ by_column for block in _blocks(len(members))])


def _leading(
    rows: SparseRows, scale: np.ndarray, count: int, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """The leading eigenpairs of the scatter of the centred and scaled columns of x."""
    dtype = np.float32 if tolerance > 0 else np.float64
    cells = np.empty(rows.x.nnz, dtype)
    for block in _blocks(rows.x.nnz):  # scaled before the cast: the unit may be beyond single precision
        cells[block] = rows.x.data[block] / scale[rows.x.indices[block]]
    x = csr_array((cells, rows.x.indices, rows.x.indptr), shape=rows.x.shape)
    centre = (rows.original_centre[: x.shape[1]] / scale).astype(dtype)

    def scores(directions: np.ndarray) -> np.ndarray:
        return x @ directions - centre @ directions

    def loadings(of_rows: np.ndarray) -> np.ndarray:
        return x.T @ of_rows - np.multiply.outer(centre, of_rows.sum(axis=0))

    if x.shape[0] > x.shape[1]:
        return leading_pairs(lambda block: loadings(scores(block)), x.shape[1], count, tolerance, dtype)
    values, vectors = leading_pairs(
        lambda block: scores(loadings(block)), x.shape[0], count, tolerance, dtype
    )
    return values, np.linalg.qr(loadings(vectors))[0]


def leading_pairs(
    times: Callable, size: int, count: int, tolerance: float, dtype: type = np.float64
) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues of a positive semidefinite matrix, in falling order, and their vectors.

    Args:
        times: the matrix times a vector, or times a block of columns.
        size: its number of rows.
        count: how many pairs, at most ``size``.
        tolerance: of an eigenvalue, relative; 0: rounding.
        dtype: precision of the vectors.

    Returns:
        Shapes (count,) and (size, count).
    """
    if size <= FEW_ROWS or count > LARGE_SHARE * size:
        values, vectors = np.linalg.eigh(times(np.eye(size, dtype=dtype)))
    else:
        start: np.ndarray = np.random.default_rng(0).standard_normal(size).astype(dtype)
        operator = LinearOperator((size, size), matvec=times, dtype=dtype)
        values, vectors = eigsh(operator, k=count, which="LA", v0=start, tol=tolerance)
    return values[::-1][:count], vectors[:, ::-1][:, :count]
