"""Sparse rows as the EM of a linear-Gaussian model sees them: the matrix, and what is summed of it once.

Inputs x are sparse and every cell of them is there; beside them there may be dense outputs y with any holes.
Centring is implicit: nothing of the size of x is made, and scipy's products work on the memory of the data.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.sparse import csr_array

from inference.methods.linear_gaussian.rows import CompressedRows
from zoo.sparse_matrix import SparseMatrix

__all__ = ["OutputPattern", "SparseRows", "runs_on_host", "sparse_rows"]


class OutputPattern(NamedTuple):
    """Rows that miss the same outputs.

    Attributes:
        observed: one where observed, else zero, shape (L,).
        members: which rows, a slice where all.
        count: how many.
    """

    observed: np.ndarray
    members: np.ndarray | slice
    count: int


class SparseRows(NamedTuple):
    """Rows [x, y], x sparse.

    Attributes:
        x: the inputs, as they are, for scipy.
        y: the outputs about their centre, zero where missing, shape (N, L); L = 0 without outputs.
        patterns: sets of rows that miss the same outputs.
        class_observed: which classes of columns are observed in each pattern, shape (patterns, classes).
        blocks: columns of x, and of y where there are any, as `compress` describes columns, without rows.
        group: noise group of each column of [x, y], shape (D,).
        group_variance: mean over a group's columns of their variance, shape (G,).
        original_centre: mean of the observed cells of each column, shape (D,).
    """

    x: csr_array
    y: np.ndarray
    patterns: tuple[OutputPattern, ...]
    class_observed: np.ndarray
    blocks: tuple[CompressedRows, ...]
    group: np.ndarray
    group_variance: Array
    original_centre: np.ndarray

    @property
    def num_groups(self) -> int:
        """G, how many noise variances there are."""
        return self.group_variance.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of [x, y]."""
        return self.x.shape[0], self.group.shape[0]


def sparse_rows(x: SparseMatrix, y: np.ndarray | None, group: np.ndarray) -> SparseRows:
    """The rows, and what is summed of them once.

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
    members = np.split(order, np.cumsum(np.bincount(which))[:-1]) if len(masks) > 1 else [slice(None)]
    patterns = tuple(
        OutputPattern(mask.astype(dtype), own, num_rows if isinstance(own, slice) else own.size)
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
    """Whether prepared data hold sparse rows, whose sweeps run on the host."""
    return isinstance(data[-1], SparseRows)


def _kinds(truths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One row of each kind, and which kind each row is of: rows are of one kind where they are equal."""
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
    """Columns without rows: what an M-step needs beside the moments."""
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
