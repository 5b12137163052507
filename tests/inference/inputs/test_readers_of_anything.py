"""Readers of data, on data that Hypothesis makes: numbers come out as they are, anything else is one line.

The examples are the same in every run (``derandomize``), and shapes are from a small fixed set.
"""

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import zoo
from inference.inputs.tables import as_arrays, encoded_parts, paired_rows, read_parts
from inference.results.files import Labels
from zoo.checks import as_matrix, as_numbers
from zoo.intake import read_columns
from zoo.sparse import SparseCounts, SparseMatrix

SHAPES = st.sampled_from([(1, 1), (2, 3), (5, 2), (0, 2), (3, 0), (4,), (2, 2, 2)])
TABLES = st.sampled_from([(2, 3), (5, 2), (6, 1)])
REPEATABLE = settings(
    derandomize=True,
    max_examples=60,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
FLOATS = st.floats(allow_nan=True, allow_infinity=True, width=64)
CELLS = st.one_of(
    FLOATS,
    st.integers(-(10**20), 10**20),
    st.booleans(),
    st.none(),
    st.just(pd.NA),
    st.just(np.ma.masked),
    st.decimals(allow_nan=True),
    st.fractions(),
    st.complex_numbers(),
    st.text(max_size=5),
    st.binary(max_size=3),
    st.dates(),
    st.lists(st.integers(), max_size=2),
)


def in_one_line(call):
    """The result of a call, or None where it was refused by one line of ours."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", UserWarning)
            return call()
    except (TypeError, ValueError) as error:
        assert type(error) in (TypeError, ValueError), repr(error)
        assert str(error) and "\n" not in str(error), str(error)
        return None


def number_of(cell):
    """What a cell is as float64: NaN where it is missing; None: it is no number."""
    if cell is None or cell is pd.NA or cell is np.ma.masked:
        return np.nan
    if isinstance(cell, Decimal) and cell.is_snan():
        return None
    if isinstance(cell, complex | str | bytes | list) or not hasattr(cell, "__float__"):
        return None
    return float(cell)


@pytest.mark.slow
@REPEATABLE
@given(x=arrays.arrays(arrays.scalar_dtypes(), SHAPES))
def test_arrays_of_any_type(x):
    found = in_one_line(lambda: as_matrix(x))
    if x.dtype.kind not in "biuf" or x.ndim != 2 or x.shape[1] == 0:
        assert found is None
        return
    assert found.dtype == np.float64 and found.flags["C_CONTIGUOUS"]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, x.astype(np.float64))


@REPEATABLE
@given(x=arrays.arrays(np.float64, TABLES, elements=FLOATS), data=st.data())
def test_masked_arrays(x, data):
    mask = data.draw(arrays.arrays(bool, x.shape))
    found = as_numbers(np.ma.masked_array(x, mask))
    np.testing.assert_array_equal(found, np.where(mask, np.nan, x))
    nested = as_numbers(
        [[np.ma.masked if m else v for m, v in zip(*row, strict=True)] for row in zip(mask, x, strict=True)]
    )
    np.testing.assert_array_equal(nested, np.where(mask, np.nan, x))


@REPEATABLE
@given(shape=TABLES, data=st.data())
def test_objects_in_arrays_lists_and_tables(shape, data):
    cells = data.draw(st.lists(CELLS, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    expected = [number_of(cell) for cell in cells]
    x = np.empty(len(cells), object)
    x[:] = cells
    x = x.reshape(shape)
    for call in (lambda: as_matrix(x), lambda: as_matrix(pd.DataFrame(x))):
        found = in_one_line(call)
        if found is None:
            assert None in expected, "numbers were refused"
        else:
            assert None not in expected, "something was taken for a number"
            np.testing.assert_array_equal(found.ravel(), np.array(expected, float))


NAMES = st.one_of(
    st.text(max_size=8), st.integers(-3, 3), st.none(), st.tuples(st.text(max_size=2), st.integers(0, 1))
)


@REPEATABLE
@given(shape=TABLES, data=st.data())
def test_labels_of_any_kind_go_with_their_columns(shape, data):
    names = data.draw(st.lists(NAMES, min_size=shape[1], max_size=shape[1]))
    index = data.draw(st.lists(NAMES, min_size=shape[0], max_size=shape[0]))
    x = np.arange(float(np.prod(shape))).reshape(shape) ** 2 + 0.5
    frame = pd.DataFrame(x)
    frame.columns, frame.index = pd.Index(names, dtype=object), pd.Index(index, dtype=object)

    def read():
        model, columns = read_parts(zoo.PPCA(num_latents=1), paired_rows((frame,), ("x",)))
        return as_arrays(model, encoded_parts((frame,), columns))

    found = in_one_line(read)
    if len({str(name) for name in names}) < len(names):
        assert found is None
        return
    (array,), coords = found
    np.testing.assert_array_equal(array, x)
    labels = Labels(coords)
    for dim, own in (("feature", names), ("observation", index)):
        kept = labels.of(dim, len(own))
        assert kept.dtype.kind in "iufbU" and len(kept) == len(own)


WORDS = st.sampled_from(
    ["", " ", "yes", "no", "red", "1", "1.5", "nan", "inf", "2020-01-02", "1e400", "é", "-", "0x1"]
)
COLUMN = st.one_of(
    st.lists(WORDS, min_size=6, max_size=6),
    st.lists(st.one_of(WORDS, FLOATS, st.none()), min_size=6, max_size=6),
    st.lists(st.integers(-5, 5), min_size=6, max_size=6),
    st.lists(FLOATS, min_size=6, max_size=6),
    st.lists(st.booleans(), min_size=6, max_size=6),
    st.lists(st.one_of(st.datetimes(), st.none()), min_size=6, max_size=6),
    st.lists(st.timedeltas(), min_size=6, max_size=6),
    st.lists(st.lists(st.integers(), max_size=1), min_size=6, max_size=6),
)


@REPEATABLE
@given(columns=st.lists(COLUMN, min_size=1, max_size=3))
def test_tables_of_any_columns_are_read_or_refused(columns):
    frame = pd.DataFrame({f"c{i}": pd.Series(values, dtype=None) for i, values in enumerate(columns)})
    found = in_one_line(lambda: read_columns(frame))
    if found is None:
        return
    encoded = in_one_line(lambda: found.encoded(frame))
    if encoded is not None:
        assert encoded.shape == (6, len(found.kept))
        for column in found.kept:
            own = frame[column.name]
            if own.dtype.kind in "fi":
                np.testing.assert_array_equal(encoded[column.name], own.astype(float))


@REPEATABLE
@given(
    shape=TABLES,
    kind=st.sampled_from(["csr_array", "csc_matrix", "coo_array", "lil_array", "dok_array", "bsr_array"]),
    dtype=st.sampled_from([np.int8, np.int64, np.float32, np.float64, np.complex64, bool]),
    data=st.data(),
)
def test_sparse_matrices_of_any_kind(shape, kind, dtype, data):
    values = data.draw(
        arrays.arrays(
            np.float64, shape, elements=st.sampled_from([0.0, 0.0, 1.0, 2.0, -1.0, 0.5, np.nan, np.inf])
        )
    )
    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        dense = values.astype(dtype)
    matrix = getattr(scipy.sparse, kind)(dense)
    real = np.asarray(matrix.toarray())
    counts = in_one_line(lambda: SparseCounts.from_matrix(matrix))
    are_counts = real.dtype.kind in "biuf" and bool(
        np.all((real >= 0) & (real == np.floor(real)) & (real < np.inf))
    )
    assert (counts is not None) == are_counts
    if counts is not None:
        np.testing.assert_array_equal(counts.to_dense(), real)
    numbers = in_one_line(lambda: SparseMatrix.from_scipy(matrix, "x"))
    assert (numbers is not None) == bool(real.dtype.kind in "biuf" and np.isfinite(real).all())
    if numbers is not None:
        np.testing.assert_array_equal(numbers.to_scipy().toarray(), real)


@pytest.mark.parametrize("place", [-1, 3, 2**31 - 1])
def test_sparse_places_that_are_not_in_the_matrix_are_refused(place):
    matrix = scipy.sparse.csc_matrix(np.eye(3))
    matrix.indices[1] = place
    for read in (SparseCounts.from_matrix, lambda m: SparseMatrix.from_scipy(m, "x")):
        assert in_one_line(lambda read=read: read(matrix)) is None
