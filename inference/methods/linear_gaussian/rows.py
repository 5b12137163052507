r"""The data of linear-Gaussian models: dense matrices with holes in compressed form, and sparse matrices.

Dense rows
----------
Rows that miss the same cells share the K x K matrix of their latents, and of these rows nothing matters but
their number, their mean and their scatter. A set of n such rows is therefore replaced by at most D
pseudo-rows with the same scatter (the triangular factor of a QR decomposition) and one mean: with nothing
missing a sweep costs O(min(N, D) D K), whatever N, and no digit is lost to squared moments. Only rows whose
pattern of holes is rare are kept one by one.

Where a noise group has more columns than rows and all of them are seen in the same rows, its columns are
first rotated to the space that its centred rows span (at most n - 1 directions). Isotropic noise and the
likelihood do not notice; the directions left out hold no residual but count as cells of the noise. `expanded`
turns results back. This needs a flat prior of the loadings and of the mean.

All of it is done on the host, in float64, once per fit.

Sparse rows
-----------
Inputs x are sparse and every cell of them is there; beside them there may be dense outputs y with any holes.
Centring is implicit: nothing of the size of x is made, and scipy's products work on the memory of the data.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import Array
from scipy.sparse import csr_array

from inference.numerics.weighted_rows import Rows, unweighted, weight_of
from zoo.mcfa import MCFA
from zoo.ppca import PPCA
from zoo.sparse import SparseMatrix

MOST_PATTERNS = 8  # sets of rows that get pseudo-rows; every one is compiled by itself
FEWEST_ROWS = 16  # of such a set


class Pattern(NamedTuple):
    """A set of rows that miss the same cells.

    Attributes:
        rows: pseudo-rows with the scatter of the rows about their mean, shape (at most D, D); zero where
            missing.
        mean: of the rows, about the centre, shape (D,); zero where missing.
        count: how many there are (their weight in all).
        observed: one where observed, else zero, shape (D,).
    """

    rows: Array
    mean: Array
    count: Array
    observed: Array


class CompressedRows(NamedTuple):
    """A matrix with holes in compressed form, whose columns may be rotated.

    Attributes:
        patterns: sets of rows that miss the same cells.
        single: all other rows about the centre, zero where missing, shape (M, D).
        single_observed: one where observed, else zero, shape (M, D).
        single_weight: shape (M,).
        centre: mean of the observed cells of each column, shape (D,); zero for a rotated column.
        group: noise group of each column, shape (D,).
        column_class: columns that are observed in the same rows and have the same noise, shape (D,).
        class_member: one column of each class, shape (Q,).
        cells: observed cells of each column (their weight), shape (D,).
        sums: sum of each column about the centre, shape (D,).
        squares: sum of squares of each column about the centre, shape (D,).
        total_weight: of all rows.
        group_variance: mean over a group's columns of their variance, shape (G,).
        silent_cells: cells of a group in directions left out, where there is no residual, shape (G,).
        bases: by group, orthonormal directions (its columns, directions) that its columns were rotated to;
            None where they were not.
        columns: by group, which columns of the data are its own.
        original_centre: mean of the observed cells of each column of the data.
        degrees_of_freedom: of Student-t rows, all kept one by one; None: they are normal.
    """

    patterns: tuple[Pattern, ...]
    single: Array
    single_observed: Array
    single_weight: Array
    centre: Array
    group: Array
    column_class: Array
    class_member: Array
    cells: Array
    sums: Array
    squares: Array
    total_weight: Array
    group_variance: Array
    silent_cells: Array
    bases: tuple[Array | None, ...]
    columns: tuple[Array, ...]
    original_centre: Array
    degrees_of_freedom: Array | None = None

    @property
    def num_groups(self) -> int:
        """The number of noise variances G."""
        return self.silent_cells.shape[0]


def rows_alone(model: PPCA | MCFA, data: tuple) -> tuple[Any, tuple]:
    """The model, and the compressed rows without the table, of which a step sees the number of rows alone."""
    if not isinstance(data[-1], CompressedRows):
        return model, data
    return model, (*(None for _ in data[:-1]), data[-1])


def compress(
    x: np.ndarray | Rows, group: np.ndarray, *, rotate: bool = True, most_patterns: int = MOST_PATTERNS
) -> CompressedRows:
    """Compress a matrix with holes.

    Args:
        x: shape (num_observations, num_features), NaN for missing cells; or `Rows` with a weight each.
        group: noise group of each column, whole numbers 0..G-1, shape (num_features,).
        rotate: whether wide groups may be rotated to the space of their rows; False where the loadings or the
            mean have a prior.
        most_patterns: how many sets of rows with the same holes get pseudo-rows; 0: every row stays.
    """
    rows, weight = np.asarray(unweighted(x), np.float64), np.asarray(weight_of(x), np.float64)
    rows, weight = rows[weight > 0], weight[weight > 0]
    group = np.asarray(group)
    observed = ~np.isnan(rows)
    cells = weight @ observed
    centre = weight @ np.where(observed, rows, 0.0) / np.maximum(cells, 1e-300)
    centred = np.where(observed, rows - centre, 0.0)
    num_groups = int(group.max()) + 1
    variance = (weight @ centred**2) / np.maximum(cells, 1e-300)
    columns = tuple(np.flatnonzero(group == g) for g in range(num_groups))
    bases = tuple(_basis(centred[:, own], observed[:, own], weight) if rotate else None for own in columns)
    silent = np.array(
        [
            0.0 if basis is None else (basis.shape[0] - basis.shape[1]) * cells[own[0]]
            for basis, own in zip(bases, columns, strict=True)
        ]
    )
    new_centre, new_group = centre, group
    if any(basis is not None for basis in bases):
        centred, observed, new_centre, new_group = _rotated(centred, observed, centre, columns, bases)
        cells = weight @ observed
    patterns, single = _split(centred, observed, weight, most_patterns)
    pairs = np.stack([_kinds(observed.T)[1], new_group], axis=1)
    _, member, column_class = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    return CompressedRows(
        patterns=patterns,
        single=centred[single],
        single_observed=observed[single].astype(np.float64),
        single_weight=weight[single],
        centre=new_centre,
        group=new_group,
        column_class=column_class.ravel(),
        class_member=member,
        cells=cells,
        sums=weight @ centred,
        squares=weight @ centred**2,
        total_weight=weight.sum(),
        group_variance=np.array([variance[own].mean() for own in columns]),
        silent_cells=silent,
        bases=bases,
        columns=columns,
        original_centre=centre,
    )


def one_by_one(x: Array | Rows, group: np.ndarray) -> CompressedRows:
    """Keep every row of a matrix by itself, for traced data whose holes are unknown."""
    rows, weight = jnp.asarray(unweighted(x)), weight_of(x)
    observed = jnp.where(jnp.isnan(rows), 0.0, 1.0)
    cells = weight @ observed
    centre = weight @ jnp.where(observed > 0, rows, 0.0) / jnp.maximum(cells, 1e-30)
    centred = jnp.where(observed > 0, rows - centre, 0.0)
    columns = tuple(np.flatnonzero(group == g) for g in range(int(np.max(group)) + 1))
    everything, squares = jnp.arange(rows.shape[1]), weight @ centred**2
    variance = squares / jnp.maximum(cells, 1e-30)
    return CompressedRows(
        patterns=(),
        single=centred,
        single_observed=observed,
        single_weight=weight,
        centre=centre,
        group=jnp.asarray(group),
        column_class=everything,
        class_member=everything,
        cells=cells,
        sums=weight @ centred,
        squares=squares,
        total_weight=jnp.sum(weight),
        group_variance=jnp.stack([jnp.mean(variance[own]) for own in columns]),
        silent_cells=jnp.zeros(len(columns)),
        bases=(None,) * len(columns),
        columns=columns,
        original_centre=centre,
    )


def expanded(loadings: np.ndarray, loc: np.ndarray, rows: CompressedRows) -> tuple[np.ndarray, np.ndarray]:
    """Convert loadings and mean of compressed columns to the columns of the data, on the host.

    Args:
        loadings: shape (compressed columns, num_latents).
        loc: about the centre, shape (compressed columns,).
        rows: the fitted rows.

    Returns:
        Loadings (num_features, num_latents) and the mean itself, (num_features,).
    """
    mean, first = np.array(rows.original_centre), 0
    if all(basis is None for basis in rows.bases):  # the columns are in their own order
        return loadings, mean + loc
    full = np.zeros((len(mean), loadings.shape[1]), loadings.dtype)
    for basis, own in zip(rows.bases, rows.columns, strict=True):
        size = own.shape[0] if basis is None else basis.shape[1]
        block = slice(first, first + size)
        turned, shift = loadings[block], loc[block]
        if basis is not None:
            turned, shift = np.asarray(basis) @ turned, np.asarray(basis) @ shift
        full[own], mean[own], first = turned, mean[own] + shift, first + size
    return full, mean


def gain_and_covariance(loadings: np.ndarray, noise_variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What turns centred rows into E[z], and Cov[z], where no cell is missing.

    On the host: the compiled functions of `zoo.linear_gaussian.rows` take a second to compile.

    Args:
        loadings: shape (num_features, num_latents).
        noise_variance: shape () or (num_features,).

    Returns:
        Shapes (num_features, num_latents) and (num_latents, num_latents).
    """
    scaled = loadings / np.broadcast_to(noise_variance, len(loadings))[:, None]
    identity = np.eye(loadings.shape[1], dtype=loadings.dtype)
    covariance = scipy.linalg.cho_solve(scipy.linalg.cho_factor(identity + scaled.T @ loadings), identity)
    covariance = (covariance + covariance.T) / 2
    return scaled @ covariance, covariance


def _basis(centred: np.ndarray, observed: np.ndarray, weight: np.ndarray) -> np.ndarray | None:
    """Orthonormal directions that span the centred rows of a group with more columns than rows, else None.

    Of the weights it matters only which are zero.
    """
    seen = observed[:, 0]
    if centred.shape[1] <= seen.sum() or (observed != seen[:, None]).any():
        return None
    own = centred[seen & (weight > 0)]
    _, lengths, directions = np.linalg.svd(own, full_matrices=False)
    kept = lengths > lengths.max(initial=0.0) * 1e-13 * max(own.shape)
    return np.ascontiguousarray(directions[kept].T)


def _rotated(
    centred: np.ndarray,
    observed: np.ndarray,
    centre: np.ndarray,
    columns: tuple[np.ndarray, ...],
    bases: tuple[np.ndarray | None, ...],
) -> tuple[np.ndarray, ...]:
    """Cells, observed mask, centre and group of the columns, wide groups rotated to their bases."""
    cells, seen, middle, group = [], [], [], []
    for number, (own, basis) in enumerate(zip(columns, bases, strict=True)):
        size = own.size if basis is None else basis.shape[1]
        cells.append(centred[:, own] if basis is None else centred[:, own] @ basis)
        seen.append(observed[:, own] if basis is None else np.repeat(observed[:, own[:1]], size, axis=1))
        middle.append(centre[own] if basis is None else np.zeros(size))
        group.append(np.full(size, number))
    return tuple(np.concatenate(part, axis=-1) for part in (cells, seen, middle, group))


def _split(
    centred: np.ndarray, observed: np.ndarray, weight: np.ndarray, most_patterns: int
) -> tuple[tuple[Pattern, ...], np.ndarray]:
    """The most frequent patterns with their pseudo-rows, and the indices of all other rows."""
    which = _kinds(observed)[1]
    counts = np.bincount(which)
    frequent = [k for k in np.argsort(-counts, kind="stable")[:most_patterns] if counts[k] >= FEWEST_ROWS]
    if counts.size == 1 and most_patterns:
        frequent = [0]
    members = [np.flatnonzero(which == k) for k in frequent]
    patterns = tuple(_pattern(centred[own], observed[own[0]], weight[own]) for own in members)
    return patterns, np.flatnonzero(~np.isin(which, frequent))


def _pattern(centred: np.ndarray, seen: np.ndarray, weight: np.ndarray) -> Pattern:
    count = weight.sum()
    mean = weight @ centred / count
    scattered = np.where(seen, centred - mean, 0.0) * np.sqrt(weight)[:, None]
    if scattered.shape[0] > scattered.shape[1]:
        scattered = np.linalg.qr(scattered, mode="r")
    return Pattern(scattered, np.where(seen, mean, 0.0), np.asarray(count), seen.astype(np.float64))


class OutputPattern(NamedTuple):
    """A set of rows that miss the same outputs.

    Attributes:
        observed: one where observed, else zero, shape (L,).
        members: which rows, a slice where all.
        size: how many.
    """

    observed: np.ndarray
    members: np.ndarray | slice
    size: int


class SparseRows(NamedTuple):
    """Rows [x, y] with sparse inputs x and dense outputs y.

    Attributes:
        x: the inputs, as they are, for scipy.
        y: the outputs about their centre, zero where missing, shape (N, L); L = 0 without outputs.
        patterns: sets of rows that miss the same outputs.
        class_observed: which classes of columns are observed in each pattern, shape (patterns, classes).
        blocks: columns of x, and of y where there are any, as `compress` describes columns, without rows.
        group: noise group of each column of [x, y], shape (D,).
        group_variance: mean over a group's columns of their variance, shape (G,).
        original_centre: mean of the observed cells of each column, shape (D,).
        bases: empty, no column is rotated.
    """

    x: csr_array
    y: np.ndarray
    patterns: tuple[OutputPattern, ...]
    class_observed: np.ndarray
    blocks: tuple[CompressedRows, ...]
    group: np.ndarray
    group_variance: Array
    original_centre: np.ndarray
    bases: tuple[()] = ()

    @property
    def num_groups(self) -> int:
        """The number of noise variances G."""
        return self.group_variance.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns of [x, y]."""
        return self.x.shape[0], self.group.shape[0]


def sparse_rows(x: SparseMatrix, y: np.ndarray | None, group: np.ndarray) -> SparseRows:
    """Prepare rows with sparse inputs, and the sums over them that never change.

    Args:
        x: inputs.
        y: outputs, shape (num_observations, num_outputs), NaN where missing; or None.
        group: noise group of each column of [x, y]; those of x come first, and none is shared.
    """
    dtype = jnp.result_type(float)
    num_rows, num_inputs = x.shape
    cells = np.asarray(np.zeros((num_rows, 0)) if y is None else y)
    seen = ~np.isnan(cells)
    y_cells = seen.sum(axis=0)
    y_centre = np.where(seen, cells, 0.0).sum(axis=0) / y_cells
    centred = np.where(seen, cells - y_centre, 0.0)
    x_centre, x_variance = x.column_moments()
    x_group, y_group = group[:num_inputs], group[num_inputs:]
    all_rows = np.full(num_inputs, float(num_rows))
    of_x = _columns(x_centre, x_group, np.zeros(num_inputs, int), all_rows, x_variance * num_rows, num_rows)
    blocks, classes = [of_x], np.zeros((num_rows, 0), bool)
    if cells.shape[1]:
        first_column, kinds = _kinds(seen.T)
        classes = seen[:, first_column]
        sums = centred.sum(axis=0), np.sum(centred**2, axis=0)
        first = int(x_group.max()) + 1
        blocks.append(_columns(y_centre, y_group - first, kinds, y_cells, sums[1], num_rows, sums[0]))
    first_of, which = _kinds(seen)
    masks = seen[first_of]
    order = np.argsort(which, kind="stable")
    members: list[np.ndarray | slice] = [slice(None)]
    if len(masks) > 1:
        members = [*np.split(order, np.cumsum(np.bincount(which))[:-1])]
    patterns = tuple(
        OutputPattern(mask.astype(dtype), own, num_rows if isinstance(own, slice) else len(own))
        for mask, own in zip(masks, members, strict=True)
    )
    matrix = x.to_scipy()
    return SparseRows(
        x=matrix if matrix.dtype == dtype else matrix.astype(dtype),
        y=centred.astype(dtype, copy=False),
        patterns=patterns,
        class_observed=np.column_stack([np.ones(len(patterns)), classes[first_of]]).astype(dtype),
        blocks=tuple(blocks),
        group=group,
        group_variance=jnp.concatenate([block.group_variance for block in blocks]),
        original_centre=np.concatenate([x_centre, y_centre]).astype(dtype, copy=False),
    )


def runs_on_host(data: tuple) -> bool:
    """Whether the prepared data are sparse rows, whose sweeps run on the host."""
    return isinstance(data[-1], SparseRows)


def _kinds(truths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The index of one row of each distinct kind, and the kind of every row."""
    if not truths.shape[1]:
        return np.zeros(1, int), np.zeros(len(truths), int)
    packed = np.ascontiguousarray(np.packbits(truths, axis=1))
    whole = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    return np.unique(whole, return_index=True, return_inverse=True)[1:]


def _columns(
    centre: np.ndarray,
    group: np.ndarray,
    column_class: np.ndarray,
    cells: np.ndarray,
    squares: np.ndarray,
    total_weight: float,
    sums: Any = 0.0,
) -> CompressedRows:
    """Describe columns without their rows: all that an M-step needs besides the moments."""
    size, num_groups = len(centre), int(group.max()) + 1
    variance = np.bincount(group, squares / cells) / np.bincount(group)
    dtype = jnp.result_type(float)
    centre, cells, squares = (jnp.asarray(part, dtype) for part in (centre, cells, squares))
    return CompressedRows(
        patterns=(),
        single=jnp.zeros((0, size), dtype),
        single_observed=jnp.zeros((0, size), dtype),
        single_weight=jnp.zeros(0, dtype),
        centre=centre,
        group=jnp.asarray(group),
        column_class=jnp.asarray(column_class),
        class_member=jnp.asarray(np.unique(column_class, return_index=True)[1]),
        cells=cells,
        sums=jnp.broadcast_to(jnp.asarray(sums, dtype), (size,)),
        squares=squares,
        total_weight=jnp.asarray(total_weight, dtype),
        group_variance=jnp.asarray(variance, dtype),
        silent_cells=jnp.zeros(num_groups, dtype),
        bases=(),
        columns=(),
        original_centre=centre,
    )
