"""Tables of other libraries are read as the same table of pandas is."""

import datetime
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr

import inference
import zoo
from inference.estimators import MixtureEstimator
from inference.inputs.sources import as_passed
from inference.inputs.text import WordCounts, as_counted
from zoo.exponential_family import Gaussian
from zoo.intake import read_columns
from zoo.intake.frames import as_frame

N = 40
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "size": np.where(np.arange(N) == 3, np.nan, RNG.normal(size=N)),
        "visits": RNG.poisson(2.0, N),
        "member": np.arange(N) % 3 == 0,
        "town": np.where(np.arange(N) == 5, None, RNG.choice(["Ulm", "Kiel"], N)),
        "plan": pd.Categorical(RNG.choice(["b", "a"], N), categories=["b", "a"]),
        "seen": pd.to_datetime("2024-01-01") + pd.to_timedelta(RNG.integers(0, 99, N), unit="D"),
    }
)
NUMBERS = TABLE[["size", "visits"]].fillna(0.0)


def lazy(table):
    return pl.from_pandas(table).lazy()


@pytest.mark.parametrize("make", [pl.from_pandas, lazy, pa.Table.from_pandas])
def test_a_frame_is_read_as_the_same_table_of_pandas(make):
    frame = as_frame(make(TABLE))
    wanted, found = read_columns(TABLE), read_columns(frame)
    assert [(c.name, c.kind, c.levels, c.num_missing) for c in found.columns] == [
        (c.name, c.kind, c.levels, c.num_missing) for c in wanted.columns
    ]
    assert found.columns[4].levels == ("b", "a")
    pd.testing.assert_frame_equal(found.encoded(frame), wanted.encoded(TABLE))


@pytest.mark.parametrize(
    "make",
    [
        lambda t: {name: t[name].to_numpy() for name in t},
        lambda t: t.to_records(index=False),
        lambda t: t.to_xarray(),
        lambda t: xr.Dataset({name: ("row", t[name]) for name in t}),
    ],
    ids=["dict", "records", "xarray", "dims"],
)
def test_columns_of_python_numpy_and_xarray_need_no_library(make):
    pd.testing.assert_frame_equal(
        as_frame(make(NUMBERS)).reset_index(drop=True), NUMBERS, check_names=False, check_dtype=False
    )


def test_what_is_no_frame_stays():
    for data in (NUMBERS, NUMBERS.to_numpy(), [1.0, 2.0], "a.csv", None, {"a": "text"}, {}):
        assert as_frame(data) is data
    series = as_frame(pl.Series("town", ["Ulm", None]))
    assert isinstance(series, pd.Series) and series.name == "town"
    dates = as_frame(pl.DataFrame({"day": [datetime.date(2024, 1, 5), None]}))
    assert dates["day"][0] == pd.Timestamp("2024-01-05") and pd.isna(dates["day"][1])
    with pytest.raises(ValueError, match="one number of rows; a has 2, b has 3"):
        as_frame({"a": [1, 2], "b": [1, 2, 3]})
    with pytest.raises(TypeError, match=r"table of pandas here: call x\.to_pandas\(\)"):
        zoo.PPCA.from_data(pl.from_pandas(NUMBERS), num_latents=1)


def test_a_fit_and_its_answers_take_frames():
    model = zoo.PPCA(num_latents=1)
    wanted = inference.transform(inference.fit(model, NUMBERS), NUMBERS).values
    for make in (pl.from_pandas, pa.Table.from_pandas):
        tree = inference.fit(model, make(NUMBERS))
        assert tree["observed_data"]["feature"].values.tolist() == ["size", "visits"]
        np.testing.assert_array_equal(inference.transform(tree, make(NUMBERS)).values, wanted)
        np.testing.assert_array_equal(inference.transform(tree, make(NUMBERS[::-1])).values, wanted[::-1])


def test_an_estimator_takes_frames_of_words():
    frame = pl.from_pandas(TABLE[["size", "town"]])
    labels = MixtureEstimator(num_components=2).fit_predict(frame)
    assert labels.tolist() == MixtureEstimator(num_components=2).fit_predict(TABLE[["size", "town"]]).tolist()


def test_narwhals_is_imported_for_frames_alone():
    code = (
        "import sys, numpy, pandas, inference; from zoo.intake.frames import as_frame; "
        "as_frame(pandas.DataFrame({'a': [1]})); print('narwhals' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# Documents

BAGS = {"first": {"cat": 2, "dog": 1}, "second": {"dog": 3, "emu": 1}, "third": {}}


def counts_of(found):
    assert isinstance(found, WordCounts)
    dense = np.zeros(found.shape)
    np.add.at(dense, (found.counts.document, found.counts.word), found.counts.count)
    return dense.tolist()


def test_bags_of_words_are_counts():
    wanted = [[2, 1, 0], [0, 3, 1], [0, 0, 0]]
    by_name = as_counted(BAGS)
    assert by_name.words == ["cat", "dog", "emu"] and by_name.documents == ["first", "second", "third"]
    assert counts_of(by_name) == wanted == counts_of(as_counted(list(BAGS.values())))
    assert counts_of(as_counted([["dog", "cat", "cat"], ["dog", "dog", "emu", "dog"], []])) == wanted
    gensim = as_counted([[(0, 2), (7, 1)], [(7, 3), (10, 1)], []])
    assert gensim.words == ["0", "7", "10"] and counts_of(gensim) == wanted
    for other in ([[1.0, 2.0], [3.0, 4.0]], ["a text", "b"], [(0, 1), (2, 3)], np.eye(3), []):
        assert as_counted(other) is other
    with pytest.raises(ValueError, match="whole numbers of at least 0"):
        as_counted([{"cat": 0.5}])


def test_a_column_of_texts_is_documents_with_the_ids_of_the_table():
    texts = ["late parcel at the door", "money back for the parcel", "the app has an error"] * 4
    table = pd.DataFrame({"ticket": range(12), "text": texts, "day": "2024-05-01"})
    with pytest.warns(UserWarning, match="the texts of the column 'text'; columns left out: day"):
        found = as_counted(table)
    assert found.documents == list(map(str, range(12))) and "parcel" in found.words
    twice = table.assign(title="to the shop, please")
    with pytest.warns(UserWarning, match="the texts of the column 'text'; columns left out: day, title"):
        assert as_counted(twice).words == found.words
    counts = pd.DataFrame(RNG.poisson(2.0, (12, 6))).add_prefix("word").assign(note=texts)
    assert as_counted(counts) is counts  # more of them than a note has words: the counts are the documents
    replies = table.assign(replies=RNG.poisson(4.0, 12), solved=RNG.integers(0, 2, 12))
    with pytest.warns(UserWarning, match="columns left out: day, replies, solved"):
        assert as_counted(replies).words == found.words
    with pytest.raises(ValueError, match="weights such as tf-idf are no counts; pass how often"):
        inference.fit(zoo.LDA(num_topics=2), RNG.random((6, 4)))


def test_a_list_of_dicts_is_rows_or_bags_as_the_model_takes_them():
    records = [{"a": 1.5, "b": "x"}, {"a": 2.5}]
    pd.testing.assert_frame_equal(as_passed(records, zoo.Mixture()), pd.DataFrame(records))
    assert as_passed([{"a": 1}, {"b": 2}], zoo.LDA()).words == ["a", "b"]
    assert as_passed([[1.5, 2.5]], zoo.Mixture()) == [[1.5, 2.5]] and as_passed([], zoo.Mixture()) == []


def test_a_fit_of_bags_scores_new_bags():
    bags = [{"cat": 3, "dog": 1}, {"emu": 2, "dog": 2}] * 6
    tree = inference.fit(zoo.PLSI(num_topics=2), bags, num_restarts=1)
    table = pd.DataFrame(bags).fillna(0.0)[["cat", "dog", "emu"]]
    new = [{"emu": 1}, {"dog": 2}]
    np.testing.assert_allclose(
        inference.transform(tree, new).values,
        inference.transform(tree, pd.DataFrame([[0, 0, 1], [0, 2, 0]], columns=table.columns)).values,
    )


# Two tables of the same people


def test_tables_of_the_same_people_are_joined_by_their_ids():
    people = [f"p{i:02d}" for i in range(30)]
    a = pd.DataFrame(RNG.normal(size=(30, 3)), columns=list("abc")).assign(person=people)
    b = pd.DataFrame(RNG.normal(size=(30, 2)), columns=list("de")).assign(person=people)
    other = b.iloc[::-1].iloc[:28]
    model, few = (
        zoo.Paired(num_shared=1, families=(Gaussian(noise_variance=1.0),) * 2),
        {"method": "closed_form"},
    )
    with pytest.warns(UserWarning, match=r"2 of 30 rows of y_0 have no partner by person .*: p00, p01$"):
        tree = inference.fit(model, a, other, id="person", **few)
    names = tree["observed_data"]["observation"].values.tolist()
    assert names == people[2:]
    np.testing.assert_array_equal(tree["observed_data"]["y_1"].values, b[["d", "e"]].to_numpy()[2:])
    with pytest.raises(ValueError, match="y_1 has the person 'p29' twice"):
        inference.fit(model, a, pd.concat([other, other]), id="person")
    with pytest.raises(ValueError, match="no person is in all tables.* y_0 has 'p00' and y_1 has 'x'"):
        inference.fit(model, a, b.assign(person=["x", *map(str, range(29))]), id="person")
