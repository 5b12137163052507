r"""Rows summed up in batches: their number, mean and scatter, and a few rows that have the same.

Models of which the rows enter by these alone (probabilistic PCA without missing cells) are fitted to the few
rows as to all. A batch of weight :math:`W_b` and mean :math:`m_b` is added to rows of weight W, mean m and
scatter :math:`R^T R` by the triangular factor of a QR decomposition,

.. math::
    R \leftarrow \mathrm{qr}\begin{pmatrix} R \\ \sqrt{w} (x - m_b) \\
        \sqrt{W W_b / (W + W_b)}\,(m_b - m) \end{pmatrix},

so that no digit is lost to squared moments (Chan, Golub and LeVeque 1983; Demmel, Grigori, Hoemmen and
Langou 2012). With :math:`r_1, \dots, r_D` the rows of R, the 2 D rows :math:`m \pm \sqrt{D / W}\, r_j`, each
of weight :math:`W / 2 D`, have the weight W, the mean m and the scatter :math:`R^T R`. Cost: O(N D^2), memory
O(D^2) beside one batch.

Of several processes each sums up its own rows; the few rows of each are summed up again in the order of the
processes, the same in every one.
"""

from collections.abc import Iterable

import jax
import numpy as np
import scipy.linalg

from inference.numerics.weighted_rows import Rows
from inference.processes import check_same_columns, gathered


def summed(batches: Iterable[tuple[np.ndarray, np.ndarray]]) -> Rows:
    """A few rows with the weight, the mean and the scatter of all.

    Args:
        batches: rows without missing cells, shape (num_rows, num_features), and their weights, shape
            (num_rows,).

    Returns:
        At most ``2 * num_features`` rows of equal weight; the rows themselves where there are not more.
    """
    held: list[tuple[np.ndarray, np.ndarray]] | None = []
    total, origin, mean, factor = 0.0, None, None, None
    for rows, weight in batches:
        rows, weight = rows[weight > 0], weight[weight > 0]
        if not len(rows):
            continue
        if held is not None:
            held.append((rows, weight))
            if sum(len(own) for own, _ in held) <= 2 * rows.shape[1]:
                continue
            rows, weight = (np.concatenate(parts) for parts in zip(*held, strict=True))
            held = None
        own = float(weight.sum())
        origin = rows[0] if origin is None else origin  # about it a constant column is exactly zero
        centre = origin + weight @ (rows - origin) / own
        stacked = [np.sqrt(weight)[:, None] * (rows - centre)]
        if mean is None:
            mean, total = centre, own
        else:
            apart = centre - mean
            stacked = [factor, *stacked, np.sqrt(total * own / (total + own)) * apart[None]]
            mean, total = mean + own / (total + own) * apart, total + own
        factor = _triangle(np.concatenate(stacked))
    if held is not None:
        rows, weight = (np.concatenate(parts) for parts in zip(*held, strict=True))
        return Rows(rows, weight)
    size = len(factor)
    away = np.sqrt(size / total) * factor
    return Rows(np.concatenate([mean + away, mean - away]), np.full(2 * size, total / (2 * size)))


def summed_of_all(batches: Iterable[tuple[np.ndarray, np.ndarray]]) -> Rows:
    """A few rows with the weight, the mean and the scatter of the rows of all processes.

    Args:
        batches: of this process, as for `summed`.

    Returns:
        As `summed`, the same in every process.

    Raises:
        ValueError: the processes have other numbers of columns, in every process.
    """
    own = summed(batches)
    if jax.process_count() == 1:
        return own
    parts = gathered(rows=own.x, weight=own.weight)
    check_same_columns([part["rows"] for part in parts])
    return summed((part["rows"], part["weight"]) for part in parts)


def _triangle(rows: np.ndarray) -> np.ndarray:
    """The triangular factor of rows, at most as many rows as columns."""
    (factor,) = scipy.linalg.qr(rows, mode="r", check_finite=False, overwrite_a=True)
    return factor[: rows.shape[1]]
