"""What people pass as data: masks, missing values, one dimension, equal names, labels in another order.

The faults that these tests guard against were silent: values under a mask were fitted as data, weights and
labels passed by position were dropped, Series were paired with rows by position whatever their index said.
"""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from scipy.special import xlogy
from scipy.stats import multinomial

import inference
import zoo
from inference import fit
from inference.estimators import SPPCARegressor
from inference.fitting import front_door
from inference.inputs.streams import CountStream, RowStream
from inference.inputs.tables import check_parts, paired_rows
from inference.inputs.text import matching_words
from inference.methods import methods_with_weights
from inference.numerics.weighted_rows import checked_weight
from zoo.checks import as_matrix, as_numbers
from zoo.conjugate import BernoulliBeta, GaussianWishart
from zoo.documents.bags import as_counts

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3))
MASK = np.zeros((12, 3), bool)
MASK[[1, 4, 9], [2, 0, 1]] = True
HOLES = np.where(MASK, np.nan, X)
TABLE = pd.DataFrame(X, columns=list("abc"), index=[f"r{i}" for i in range(12)])
COUNTS = RNG.poisson(2.0, size=(6, 4)) + 1
BIG = np.iinfo(np.int64).max  # a fill value that a conversion must not read


def nested(gap):
    """Nested lists with something in the missing cells."""
    return [[gap if np.isnan(value) else value for value in row] for row in HOLES.tolist()]


MISSING = {
    "masked reals": np.ma.masked_array(np.where(MASK, 1e9, X), MASK),
    "masked, filled with NaN": np.ma.masked_array(HOLES, MASK, fill_value=np.nan),
    "lists with None": nested(None),
    "lists with NA": nested(pd.NA),
    "lists with masked cells": nested(np.ma.masked),
    "list of masked rows": list(np.ma.masked_array(X, MASK)),
    "objects with pandas.NA": np.where(MASK, pd.NA, X.astype(object)),
    "nullable table": pd.DataFrame(HOLES).astype("Float64"),
    "table of objects": pd.DataFrame(np.where(MASK, None, X.astype(object))),
    "table with one nullable column": pd.DataFrame(HOLES).astype({0: "Float64"}),
}


@pytest.mark.parametrize("case", MISSING)
def test_every_way_to_say_missing_is_nan(case):
    np.testing.assert_array_equal(as_matrix(MISSING[case]), HOLES)


def test_whole_numbers_under_a_mask_do_not_overflow():
    whole = np.ma.masked_array(np.array([[1, BIG], [BIG, 4]]), [[0, 1], [1, 0]], fill_value=BIG)
    np.testing.assert_array_equal(as_matrix(whole), [[1, np.nan], [np.nan, 4]])
    np.testing.assert_array_equal(as_matrix(whole.astype(bool)), [[1, np.nan], [np.nan, 1]])
    np.testing.assert_array_equal(as_matrix(pd.DataFrame(whole).astype("Int64")), as_matrix(whole))


def test_a_table_and_an_array_have_sums_of_the_same_bits():
    """A DataFrame lies column by column: priors read off it differed in the last bit, and chains parted."""
    x = RNG.normal(size=(501, 3)) * [1e-3, 1.0, 1e3] + 0.1
    tables = x, np.asfortranarray(x), pd.DataFrame(x), x.tolist()
    assert len({np.cov(as_matrix(table).T).tobytes() for table in tables}) == 1


def test_numbers_are_not_copied_without_need():
    assert as_matrix(X) is X and as_matrix(np.ma.masked_array(X)).base is X
    assert as_numbers(np.arange(3)).dtype == np.float64


def models_that_miss_cells():
    bits = BernoulliBeta(concentration1=np.ones(3), concentration0=np.ones(3))
    binary = (np.abs(X) > 0.7).astype(float)
    return {
        "mixture": (zoo.Mixture(components=bits, num_components=2), binary, "vb"),
        "ppca": (zoo.PPCA(num_latents=1), X, "em"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppca", pytest.param("mixture", marks=pytest.mark.slow)])
def test_a_fit_of_a_masked_array_is_that_of_its_missing_cells(name):
    model, x, method = models_that_miss_cells()[name]
    settings = {"method": method, "max_iterations": 4, "tolerance": 0, "num_samples": 2}
    if method == "vb":
        settings["num_restarts"] = 1
    masked, gaps = np.ma.masked_array(x, MASK), np.where(MASK, np.nan, x)
    tree, expected, whole = (fit(model, data, **settings) for data in (masked, gaps, x))
    np.testing.assert_array_equal(np.isnan(tree["observed_data"]["x"]), MASK)
    np.testing.assert_array_equal(tree["trace"]["objective"], expected["trace"]["objective"])
    assert not np.array_equal(tree["trace"]["objective"], whole["trace"]["objective"])
    for function in (inference.transform, inference.log_density):
        np.testing.assert_array_equal(function(tree, masked), function(tree, gaps))


MASKED = np.ma.masked_array(X, MASK)
MASKED_COUNTS = np.ma.masked_array(COUNTS, COUNTS == COUNTS[0, 1])
NULLABLE_COUNTS = pd.DataFrame(COUNTS).astype("Int64").mask(COUNTS == COUNTS[0, 1])
REFUSING = {
    "kernel": (zoo.KernelPCA(num_latents=1, noise_variance=0.1), MASKED, MASK),
    "lda": (zoo.LDA(num_topics=2), MASKED_COUNTS, MASKED_COUNTS.mask),
    "plsi": (zoo.PLSI(num_topics=2), MASKED_COUNTS, MASKED_COUNTS.mask),
    "pcp": (zoo.PCP(num_topics=2, num_clusters=2), NULLABLE_COUNTS, MASKED_COUNTS.mask),
}


@pytest.mark.parametrize("case", REFUSING)
def test_a_model_that_cannot_miss_cells_names_the_masked_one(case):
    model, data, mask = REFUSING[case]
    row, column = np.argwhere(mask)[0]
    where = rf"row {row}, column {column} is nan \({mask.sum()} such cells in all\): .+"
    with pytest.raises(ValueError, match=where):
        fit(model, data)


def test_every_other_reader_sees_masks_too():
    masked = np.ma.masked_array(np.arange(1.0, 4.0), [0, 1, 0])
    with pytest.raises(ValueError, match=r"sample_weight must be .*; row 1 has nan \(missing or masked"):
        checked_weight(masked, 3)
    with pytest.raises(ValueError, match="is nan"):
        zoo.SparseCounts.from_matrix(np.ma.masked_equal(COUNTS, COUNTS[0, 0]))
    with pytest.raises(ValueError, match="is nan"):
        zoo.SparseCounts([0, 1, 2], [0, 1, 2], masked, (3, 3))
    with pytest.raises(ValueError, match="word has masked entries"):
        zoo.SparseCounts([0, 1, 2], masked, [1, 1, 1], (3, 3))
    with pytest.raises(ValueError, match="is nan"):
        as_counts(np.ma.masked_equal(COUNTS, COUNTS[0, 0]))
    with pytest.raises(TypeError, match="loc must be .*masked entries"):
        GaussianWishart(loc=masked, mean_precision=1.0, scale_matrix=np.eye(3), degrees_of_freedom=5.0)
    with pytest.raises(ValueError, match=r"y must .*is missing|missing"):
        fit(zoo.SPPCA(num_latents=1), X, np.ma.masked_array(X[:, 0], np.ones(12, bool)))
    rows = RowStream(
        lambda: iter([np.ma.masked_array(X[:5], MASK[:5]), np.ma.masked_array(X[5:], MASK[5:])]), 4
    )
    np.testing.assert_array_equal(rows.whole(), HOLES)


def test_masked_labels_are_missing_labels():
    labels = np.ma.masked_array([0, 1] * 6, [False] * 11 + [True], fill_value=99)
    words = np.ma.masked_array(["a", "b"] * 6, [False] * 11 + [True])
    listed = [*(["a", "b"] * 5), "a", np.ma.masked]
    for y, classes in (
        (labels, (0, 1)),
        (words, ("a", "b")),
        (listed, ("a", "b")),
        ([*listed[:-1], pd.NA], ("a", "b")),
    ):
        model, (_, coded) = zoo.SPPCA(num_latents=1).encoded(X, y)
        assert model.classes == classes
        assert coded.iloc[-1].isna().all() and not coded.iloc[:-1].isna().any(axis=None)


# Parts of the data


def test_weights_and_labels_by_position_are_refused_with_a_hint():
    """They were dropped without a word by seven models of ten; not all models have methods with weights."""
    weighted = {
        zoo.PPCA(num_latents=1): "closed_form, em, vb, nuts and hmc",
        zoo.Mixture(): "vb, gibbs, em, nuts and hmc",
    }
    for model in (*weighted, zoo.EPCA(), zoo.DEPCAM(), zoo.KernelPCA(), zoo.LDA(), zoo.PLSI):
        hint = "leave the others out"
        if model in weighted:
            hint = rf"did you mean sample_weight=\.\.\. \(methods {weighted[model]}\)\?"
        for extra in (np.ones(12), X[:, :1], ["a"] * 12, pd.Series(np.ones(12))):
            with pytest.raises(TypeError, match=rf"takes 1 part of data, \w+; got 2: .*{hint}; .*SPPCA"):
                check_parts(model, (X, extra), weighted=methods_with_weights)
        with pytest.raises(TypeError, match="got 2: leave the others out$"):
            check_parts(model, (X, X), weighted=methods_with_weights)
    with pytest.raises(TypeError, match=r"takes 2 parts of data, x and y; got 1: y is missing"):
        check_parts(zoo.SPPCA(), (X,))
    with pytest.raises(TypeError, match=r"Paired takes 2 parts of data, y_0 and y_1; got 3: leave"):
        check_parts(zoo.Paired(), (X, X, np.ones(12)), weighted=methods_with_weights)
    with pytest.raises(TypeError, match="got 2: .*sample_weight"):
        fit(zoo.PPCA(num_latents=1), X, X[:, :1], method="em")


def test_rows_of_several_parts_are_paired_by_their_labels():
    weight = pd.Series(np.arange(12.0), index=TABLE.index)
    for order in (slice(None), slice(None, None, -1), RNG.permutation(12)):
        _, paired = paired_rows((TABLE, weight.iloc[order]), ("x", "sample_weight"))
        np.testing.assert_array_equal(paired, np.arange(12.0))
    assert paired_rows((TABLE, weight.to_numpy()[::-1]), ("x", "y"))[1][0] == 11  # arrays: by position
    assert paired_rows((X, pd.Series(np.arange(12.0))), ("x", "y"))[1].iloc[3] == 3
    assert paired_rows((None, TABLE, weight[::-1]), ("y_0", "y_1", "y_2"))[2].iloc[0] == 0
    twice = TABLE.set_axis(["q"] * 12)
    assert paired_rows((twice, weight.set_axis(["q"] * 12)), ("x", "y"))[1].iloc[5] == 5


ONES, TWICE = pd.Series(np.ones(12)), ["q"] * 12
LABELLED = ONES.set_axis(TABLE.index)
UNPAIRED = {
    "other labels": (TABLE, ONES, r"x has a row 'r0', which y lacks \(12 such rows.*y\.to_numpy"),
    "more labels": (TABLE[1:], LABELLED, r"y has a row 'r0', which x lacks .*y\.loc\[x\.index\]"),
    "twice in x": (TABLE.set_axis(TWICE), LABELLED, "index of x has the label 'q' twice"),
    "twice in y": (TABLE, ONES.set_axis(TWICE), "index of y has the label 'q' twice"),
    "array": (X, LABELLED, r"y has an index and x has none.*row 0 of y is labelled 'r0'.*to_numpy"),
    "array, other order": (X, ONES.set_axis(range(11, -1, -1)), "row 0 of y is labelled '11'"),
}


@pytest.mark.parametrize("case", UNPAIRED)
def test_rows_that_cannot_be_paired_are_refused(case):
    x, y, message = UNPAIRED[case]
    with pytest.raises(ValueError, match=message):
        paired_rows((x, y), ("x", "y"))


@pytest.fixture
def request_of(monkeypatch):
    """``request_of(model, *data, **arguments)``: what `fit` reads of a call, before anything is run."""
    found = []
    monkeypatch.setattr(front_door, "plan", lambda request: found.append(request) or 1 / 0)

    def read(*data, **arguments):
        with pytest.raises(ZeroDivisionError):
            fit(*data, **arguments)
        request = found[-1]
        return request if request.back is None else request.back.request

    return read


def test_a_fit_pairs_weights_and_outputs_by_labels(request_of):
    other = RNG.permutation(12)
    y = pd.Series(X @ [1.0, 2.0, 0.5], TABLE.index, name="yield")
    for part in (y, y.iloc[other], y.iloc[other].to_frame(), y.to_numpy()):
        request = request_of(zoo.SPPCA(num_latents=1), TABLE, part)
        np.testing.assert_array_equal(request.data[1][:, 0], y)
    labels = pd.Series(["u", "v"] * 6, TABLE.index)
    plain = request_of(zoo.SPPCA(num_latents=1), TABLE, labels.to_numpy()).data[1]
    np.testing.assert_array_equal(
        request_of(zoo.SPPCA(num_latents=1), TABLE, labels.iloc[other]).data[1], plain
    )
    views = request_of(zoo.Paired(("gaussian", "gaussian")), TABLE, TABLE[::-1], method="map").data
    np.testing.assert_array_equal(*views)
    weight = pd.Series(np.arange(12.0), TABLE.index)
    ppca = zoo.PPCA(num_latents=1)
    for w in (weight, weight.iloc[other], weight.astype("Float64"), weight.to_numpy(), tuple(range(12))):
        request = request_of(ppca, TABLE, method="em", sample_weight=w)
        np.testing.assert_array_equal(request.sample_weight, weight)
    request = request_of(zoo.Mixture(num_components=2), TABLE, sample_weight=weight.iloc[other], batch_size=5)
    np.testing.assert_array_equal(request.sample_weight, weight)
    with pytest.raises(ValueError, match="x has a row 'r0', which sample_weight lacks"):
        fit(ppca, TABLE, method="em", sample_weight=weight.reset_index(drop=True))


# Names of columns


@pytest.mark.parametrize("name", zoo.MODELS)
def test_two_columns_of_one_name_are_refused_by_every_model(name):
    cls = zoo.model_class(name)
    frame = pd.DataFrame(COUNTS, columns=["a", "b", "a", "c"])
    second = pd.DataFrame(COUNTS[:, :2], columns=["a", "b"])
    site = "x" if name not in ("paired", "lda", "plsi", "pcp") else {"paired": "y_0"}.get(name, "counts")
    message = rf"{site} has 2 \w+ of the name 'a'.*rename them, {site}\.set_axis\("
    rest = (second,) if name in ("sppca", "paired") else ()
    if name not in ("kernelpca", "sppca"):
        with pytest.raises(ValueError, match=message):
            cls.from_data(frame, *rest)
    fields = {"noise_variance": 0.1} if name == "kernelpca" else {}
    with pytest.raises(ValueError, match=message):
        fit(cls(**fields), frame, *rest)


def test_equal_names_are_compared_as_they_are_stored():
    with pytest.raises(ValueError, match="2 columns of the name '1'"):
        as_matrix(pd.DataFrame(X[:, :2], columns=[1, "1"]))


def test_new_rows_with_two_columns_of_a_fitted_name_are_refused_and_words_added_up():
    tree = fit(zoo.PPCA(num_latents=1), TABLE, method="closed_form")
    twice = TABLE[["a", "b", "c", "a"]]
    with pytest.raises(ValueError, match="new data has 2 columns of the name 'a'"):
        inference.transform(tree, twice)
    spare = TABLE.assign(d=1.0, e=2.0).set_axis(["a", "b", "c", "d", "d"], axis=1)
    np.testing.assert_array_equal(inference.transform(tree, spare), inference.transform(tree, TABLE))
    halves = pd.DataFrame(np.hstack([COUNTS - 1, np.ones_like(COUNTS)]), columns=list("abcdabcd"))
    np.testing.assert_array_equal(matching_words(halves, np.array(list("abcd"))).counts.to_dense(), COUNTS)


def test_chunks_of_tables_must_have_the_same_columns():
    """Their columns were paired by position."""
    stream = RowStream(lambda: iter([TABLE[:6], TABLE[6:]]), 5)
    assert stream.columns == ("a", "b", "c") and stream.whole().shape == (12, 3)
    with pytest.raises(
        ValueError, match=r"chunk 1 has the columns \('b', 'a', 'c'\) and the first chunk has"
    ):
        RowStream(lambda: iter([TABLE[:6], TABLE[["b", "a", "c"]][6:]]), 12)


def test_chunks_as_long_as_batches_are_not_copied():
    """An empty rest of one chunk had the next one copied, at every batch of a file."""
    chunks = [np.arange(12.0).reshape(6, 2) + number for number in range(3)]
    batches = list(RowStream(lambda: iter(chunks), 3))
    assert [batch.begin for batch in batches] == [0, 3, 6, 9, 12, 15]
    for number, batch in enumerate(batches):
        assert np.shares_memory(batch.x, chunks[number // 2])
        np.testing.assert_array_equal(batch.x, np.concatenate(chunks)[3 * number : 3 * number + 3])


def test_documents_in_chunks_are_counted_as_those_in_memory():
    """Lengths, the log of all multinomial coefficients (SciPy's), and batches across chunks' borders."""
    chunks = [COUNTS[:2], csr_matrix(COUNTS[2:3]), COUNTS[3:]]
    total = COUNTS.sum(axis=1)
    coefficient = sum(
        multinomial.logpmf(row, n, row / n) - xlogy(row, row / n).sum()
        for row, n in zip(COUNTS, total, strict=True)
    )
    for source in (COUNTS, lambda: iter(chunks)):
        stream = CountStream(source, 4, 2)
        assert (stream.num_rows, stream.num_words, stream.num_batches) == (6, 4, 2)
        np.testing.assert_array_equal(stream.lengths, total)
        assert stream.log_coefficient == pytest.approx(coefficient, rel=1e-12)
        assert stream.layout == CountStream(COUNTS, 4, 2).layout
        batches = list(stream.batches())
        assert [begin for begin, _ in batches] == [0, 4]
        np.testing.assert_array_equal(np.vstack([batch.to_dense() for _, batch in batches]), COUNTS)


# One dimension


def test_one_real_output_needs_no_second_dimension(request_of):
    """The commonest first call was refused with advice about x."""
    y = X @ [1.0, 2.0, 0.5] + 0.1 * RNG.normal(size=12)
    gaps = np.where(np.arange(12) % 3, y, np.nan)
    model = zoo.SPPCA(num_latents=1)
    for part in (y, y.tolist(), tuple(y), pd.Series(y), np.ma.masked_array(y), pd.Series(y, dtype=object)):
        np.testing.assert_array_equal(request_of(model, X, part).data[1], y[:, None])
    for part in (gaps, np.ma.masked_invalid(gaps), pd.Series(gaps).astype("Float64"), nested_vector(gaps)):
        np.testing.assert_array_equal(request_of(model, X, part).data[1], gaps[:, None])
    assert zoo.SPPCA.from_data(X, y, num_latents=1).num_outputs == 1
    assert request_of(model, X, pd.Series(y, name="yield")).coords["output"] == ["yield"]


def nested_vector(values):
    """A list with None where a value is missing."""
    return [None if np.isnan(value) else value for value in values.tolist()]


def test_new_rows_take_one_real_output_too():
    y = pd.Series(X @ [1.0, 2.0, 0.5] + RNG.normal(size=12), name="yield")
    tree = fit(zoo.SPPCA(num_latents=1), X, y, method="closed_form")
    assert list(inference.predict(tree, X)["output"].values) == ["yield"]
    table = y.to_frame()
    for part in (y, y.rename(None), y.to_numpy(), y.tolist()):
        for function in (inference.transform, inference.log_density):
            np.testing.assert_array_equal(function(tree, X, part), function(tree, X, table))
    estimator = SPPCARegressor(method="closed_form").fit(X, y)
    np.testing.assert_array_equal(estimator.predict(X), inference.predict(tree, X).values[:, 0])
    with pytest.raises(ValueError, match="x has no rows"):
        inference.predict(tree, X[:0])


def test_messages_about_one_dimension_name_the_part_and_suit_its_kind():
    gaussian = zoo.Paired(("gaussian", "gaussian"))
    with pytest.raises(ValueError, match=r"y_1 must have shape .*use y_1\[:, None\]"):
        fit(gaussian, X, X[:, 0])
    with pytest.raises(ValueError, match=r"y_1 must have shape .*a Series is one column: y_1\.to_frame\(\)"):
        fit(gaussian, X, pd.Series(X[:, 0]))
    with pytest.raises(ValueError, match=r"x must have shape .*x\.to_frame\(\)"):
        fit(zoo.Mixture(), TABLE["a"])
