"""Columns by what they hold: every rule, what overrules it, and new rows encoded as the old ones."""

import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import inference
import zoo
from inference.cli import predicting
from inference.inputs.tables import left_out_in_words
from tests.support.people_tables import customers, sales, survey
from zoo.intake import Column, Columns, date_in_words, dates, kinds, read_columns
from zoo.intake.families import as_taken, dim_labels
from zoo.intake.files import read_table

RNG = np.random.default_rng(0)
N = 60


def kind_of(cells, name="x"):
    frame = pd.DataFrame({name: cells, "other": RNG.normal(size=len(cells))})
    return read_columns(frame).columns[0].kind


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (RNG.normal(size=N), "real"),
        (np.where(np.arange(N) < 5, np.nan, RNG.normal(size=N)), "real"),
        (RNG.poisson(3.0, N), "count"),
        (np.where(np.arange(N) < 5, np.nan, RNG.poisson(3.0, N)), "count"),
        (RNG.integers(18, 90, N), "real"),  # ages: none near zero
        (RNG.integers(0, 1000, N), "real"),  # spread unlike counts
        (-RNG.poisson(3.0, N), "real"),
        (RNG.integers(0, 2, N), "yes/no"),
        (RNG.integers(0, 2, N).astype(bool), "yes/no"),
        (RNG.choice(["Yes", "no"], N), "yes/no"),
        (RNG.choice(["n", "y"], N), "yes/no"),
        (RNG.choice([True, False, None], N), "yes/no"),
        (RNG.choice(["red", "green", "blue"], N), "category"),
        (RNG.choice(["male", "female"], N), "category"),
        (RNG.choice([f"w{i}" for i in range(25)], 500), "text"),  # more than 20 levels
        ([f"w{i // 2}" for i in range(12)] + ["w9"] * 2, "category"),
        ([f"w{i // 2}" for i in range(20)] + [f"v{i}" for i in range(10)], "text"),  # below two rows a level
        (RNG.choice(["Never", "sometimes", "always"], N), "ordered"),
        (RNG.choice(["strongly disagree", "agree", "neutral"], N), "ordered"),
        (RNG.choice(["poor", "good", "excellent"], N), "ordered"),
        (RNG.choice(["low", "medium", "high"], N), "ordered"),
        (pd.Categorical(RNG.choice(["a", "b"], N)), "category"),
        (pd.Categorical(RNG.choice(["a", "b"], N), categories=["b", "a"], ordered=True), "ordered"),
        (np.exp(RNG.normal(9.0, 1.3, 400)), "positive"),
        (RNG.gamma(9.0, size=N), "real"),  # positive, and hardly skewed
        (RNG.permutation(pd.date_range("2024-01-31", periods=N, freq="5D")), "date"),
        (RNG.permutation(pd.date_range("2024-01-31", periods=N).strftime("%Y-%m-%d")), "date"),
        (pd.date_range("2024-01-31", periods=N, freq="5D"), "id"),
        (pd.date_range("2024-01-31", periods=N).strftime("%d.%m.%Y"), "id"),
        (pd.date_range("2024-01-31", periods=N, tz="UTC"), "id"),
        (RNG.permutation(pd.date_range("2024-01-31", periods=N).strftime("%Y-%m-%dT%H:%M:%SZ")), "date"),
        ([f"C{i:03d}" for i in range(N)], "id"),
        (np.arange(100, 100 + N), "id"),
        (np.arange(0, 5 * N, 5), "id"),
        (RNG.permutation(N), "real"),  # all different, but neither in step nor named like an id
        (["word"] * N, "text"),
        ([None] * N, "text"),
        (pd.array([1, 2, None, 4] * 15, dtype="Int64"), "ordered"),
        (["1.5", "2.25", "3.5"] * 20, "real"),
        (RNG.choice(["Yes", "yes", "NO", "no "], N), "yes/no"),
        (RNG.choice(["Yes", "yes", "NO", "unknown"], N), "category"),
        (RNG.integers(0, 12, N) * 100 + 20240101 + RNG.integers(0, 27, N), "date"),
        (np.where(np.arange(N) < 5, np.nan, RNG.integers(1, 13, N) + 202400.0), "date"),
        (np.where(np.arange(N) == 5, 20241301, 20240301 + np.arange(N) % 29), "real"),  # no thirteenth month
        (np.where(np.arange(N) == 5, 202413, RNG.integers(1, 13, N) + 202400), "real"),
        (np.where(np.arange(N) % 2, "2024-07-31T10:00:00+02:00", "2024-01-31T10:00:00+01:00"), "date"),
        (np.where(np.arange(N) % 2, "2024-07-31T10:00:00", "2024-01-31T10:00:00+01:00"), "category"),
        ([f"{i // 2:05d}" for i in range(N)], "text"),  # postal codes
        (["01067", "10115", "20095"] * 20, "category"),
        (["010", "115", "95"] * 20, "category"),
        (["01", "10", "12"] * 20, "count"),  # numbers of months
    ],
)
def test_a_column_is_what_its_cells_are(cells, kind):
    assert kind_of(cells) == kind


@pytest.mark.parametrize("name", ["id", "ID", "customer_id", "customerId", "row index", "Unnamed: 0", "uuid"])
def test_whole_numbers_named_like_an_id_label_the_rows(name):
    assert kind_of(RNG.permutation(N), name) == "id"
    assert kind_of(RNG.permutation(N), "valid") == "real"  # ends in the letters, not in the word
    assert kind_of(RNG.integers(0, 30, N), name) != "id"  # not all different


def test_customers_are_read_as_they_are():
    table = pd.read_csv(io.StringIO(customers()[0].to_csv(index=False)))
    columns = read_columns(table)
    assert columns.label == "customer_id"
    assert str(columns).startswith("customer_id: row label; age: real, ")
    assert "smoker: yes/no, " in str(columns) and "region: 5 categories, " in str(columns)
    kinds = {column.name: column.kind for column in columns.kept}
    assert kinds == {
        "age": "real",
        "income": "real",
        "visits": "count",
        "smoker": "yes/no",
        "region": "category",
        "plan": "category",
        "exercise": "ordered",
        "joined": "date",
    }
    assert [column.name for column in columns.left_out] == ["comment"]
    told = columns.table()
    assert told.loc["comment", "why"].endswith("more than 20") and (told["missing"] >= 0).all()
    encoded = columns.encoded(table)
    assert encoded.index.tolist() == table["customer_id"].tolist()
    assert encoded["joined"].min() == 0.0 and encoded.dtypes.eq(float).all()
    levels = columns.level_numbers["exercise"]
    assert list(levels) == ["never", "rarely", "sometimes", "often", "always"]
    back = encoded["exercise"].map({number: level for level, number in levels.items()})
    assert back.tolist() == table["exercise"].tolist()
    again = Columns.from_text(columns.as_text())
    assert again == columns
    pd.testing.assert_frame_equal(again.encoded(table.iloc[5:9]), encoded.iloc[5:9])


def test_scales_of_several_columns_have_the_same_levels():
    columns = read_columns(survey(40)[0])
    assert columns.label == "respondent"
    assert {column.levels for column in columns.kept[:6]} == {
        ("never", "rarely", "sometimes", "often", "always")
    }
    numbers = pd.DataFrame(RNG.integers(1, 7, (200, 4)), columns=list("abcd"))
    found = read_columns(numbers)
    assert {(column.kind, column.numbers) for column in found.columns} == {("ordered", (1, 2, 3, 4, 5, 6))}
    assert (found.encoded(numbers) == numbers).all(axis=None)  # as they are, unless a model takes levels
    from_one = found.numbered_from([1] * 4, "a model").encoded(numbers - 1 + 1)
    assert (from_one == numbers).all(axis=None)
    assert str(found) == "a to d (4 columns): 6 numbers (1 to 6)"
    named = found.numbered_from([0, 0, 0, -1], "a model")
    assert str(named).startswith("a: 6 ordered levels (1 to 6; as numbers: gaussian); b")
    assert (named.encoded(numbers)[["a", "d"]] == numbers[["a", "d"]] - [1, 0]).all(axis=None)
    assert Columns.from_text(named.as_text()) == named
    assert set(named.level_numbers) == set("abc") and named.kept[3].cell_in_words(2.0) == 2.0
    with pytest.raises(ValueError, match=r"has '7' .* none of its levels .* families=\{'a': 'gaussian'\}"):
        named.encoded(numbers + 1)


def few(column):
    """A column of whole numbers as it is read beside one of real numbers."""
    frame = pd.DataFrame({"few": column, "real": RNG.normal(size=len(column))})
    return read_columns(frame).columns[0]


@pytest.mark.parametrize(
    ("numbers", "rows", "kind"),
    [
        ((2007, 2008, 2009), (110, 114, 120), "ordered"),  # a year
        ((1, 2, 3, 4, 5), (40, 50, 60, 50, 40), "ordered"),  # a scale
        ((4, 6, 8), (11, 7, 14), "ordered"),  # some between do not occur
        ((-2, -1, 0, 1, 2), (20, 20, 20, 20, 20), "ordered"),
        ((10, 35, 47, 120), (30, 30, 30, 30), "category"),  # codes
        ((0, 1, 2, 3, 4), (608, 209, 128, 16, 6), "count"),  # which thins out
        ((0, 1, 2, 3, 4), (60, 50, 40, 50, 60), "ordered"),
        ((2007, 2008, 2009), (40, 30, 4), "real"),  # too few rows of one of them
        (tuple(range(30, 43)), (20,) * 13, "real"),  # thirteen of them
        ((17.5, 22, 27, 32), (20, 20, 20, 20), "ordered"),  # middles of classes
        ((20.5, 21.5), (20, 4), "real"),
        ((3, 4, 5, 6, 8), (4, 207, 3, 84, 108), "ordered"),  # cylinders, of which two are rare
    ],
)
def test_few_whole_numbers_are_counts_ordered_or_categories(numbers, rows, kind):
    assert few(np.repeat(numbers, rows)).kind == kind
    assert few(np.repeat(np.array(numbers, float), rows)).kind == kind


def test_columns_that_hold_the_same_few_numbers_are_read_alike():
    """Answers from 1 to 7, of which some alone look like counts and some have no 6."""
    shares = np.array([[2, 4, 6, 8, 6, 4, 2], [9, 9, 6, 4, 2, 1, 1], [3, 4, 6, 8, 8, 0, 3]])
    answers = {f"q{i}": np.repeat(np.arange(1, 8), 12 * rows) for i, rows in enumerate(shares)}
    alone = [few(column).kind for column in answers.values()]
    assert alone == ["ordered", "count", "ordered"]
    frame = pd.DataFrame(answers | {"real": RNG.normal(size=384)})
    columns = read_columns(frame).columns[:3]
    assert {(column.kind, column.levels) for column in columns} == {("ordered", tuple("1234567"))}


def test_a_column_with_few_cells_says_in_how_many_rows_its_value_is():
    frame = pd.DataFrame(
        {"real": RNG.normal(size=20), "one": [2.5] + [np.nan] * 19, "all": 3.0, "none": np.nan}
    )
    frame["word"] = ["checked by me", *[None] * 19]
    assert read_columns(frame).table()["why"].tolist()[1:] == [
        "2.5 in 1 of 20 rows, and no other",
        "3 in every row",
        "no cell has a value",
        "one word in 1 of 20 rows, and no other: 'checked by me'",
    ]


def test_an_array_is_taken_as_it_is():
    x = np.column_stack([np.repeat([1.0, 2.0, 3.0], 30), RNG.normal(size=90)])
    assert zoo.Mixture.from_data(x, num_components=2).components.num_features == 2
    assert type(zoo.Mixture.from_data(x, num_components=2).components).__name__ == "GaussianWishart"


@pytest.mark.parametrize("first", [0, 1])
def test_levels_that_are_told_have_the_numbers_of_the_cells(first):
    """Classes from 0, ordered levels from 1; columns left out, and those without levels, are not told."""
    order = pd.CategoricalDtype(["small", "large"], ordered=True)
    frame = pd.DataFrame({"town": ["Ulm", "Bonn", "Kiel"] * 4, "age": RNG.normal(size=12), "note": "same"})
    frame["size"] = pd.Series(["large", "small"] * 6).astype(order)
    read = read_columns(frame).numbered_from([first, -1, 1], "Any")
    assert [column.kind for column in read.kept] == ["category", "real", "ordered"]
    told, cells = read.level_numbers, read.encoded(frame)
    assert told["size"] == {"small": 1, "large": 2} and set(told) == {"town", "size"}
    assert told["town"] == {"Bonn": first, "Kiel": first + 1, "Ulm": first + 2}
    for name, numbers in told.items():
        assert frame[name].map(numbers).tolist() == cells[name].tolist()


def test_the_caller_overrules_by_name():
    frame = pd.DataFrame(
        {"visits": RNG.poisson(3.0, N), "grade": RNG.choice(["b", "a", "c"], N), "zip": RNG.integers(1, 4, N)}
    )
    columns = read_columns(
        frame, families={"visits": "gaussian", "zip": "categorical"}, levels={"grade": ["c", "b", "a"]}
    )
    assert [column.kind for column in columns.columns] == ["real", "ordered", "category"]
    assert columns.columns[1].levels == ("c", "b", "a") and columns.columns[2].levels == ("1", "2", "3")
    encoded = columns.encoded(frame)
    assert (encoded["zip"] == frame["zip"] - 1).all()
    assert not read_columns(frame, families={"zip": "leave_out"}).columns[2].is_kept
    assert read_columns(frame, id="zip").label == "zip"


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        (
            {"families": {"agee": "gaussian"}},
            ValueError,
            "families names no column: 'agee'; there are age, opinion",
        ),
        (
            {"families": {"age": "normal"}},
            ValueError,
            "families gives 'age' the kind 'normal'; there are gaussian",
        ),
        ({"families": "age=gaussian"}, TypeError, "families must be a mapping by column"),
        (
            {"levels": {"opinion": ["never", "often"]}},
            ValueError,
            "'always' in row 1, which is none of its levels",
        ),
        (
            {"levels": {"opinion": "never"}},
            ValueError,
            "levels of 'opinion' must be a list of at least two names",
        ),
        ({"id": "name"}, ValueError, "id names no column: 'name'; there are age, opinion"),
    ],
)
def test_arguments_that_name_nothing_are_refused(keywords, error, message):
    frame = pd.DataFrame({"age": [1.5, 2.5, 3.5], "opinion": ["never", "always", "often"]})
    with pytest.raises(error, match=message):
        read_columns(frame, **keywords)


def test_numbers_with_a_few_words_are_refused_by_row():
    frame = pd.DataFrame({"age": ["31", "28", "unknown", "45"]}, index=list("abcd"))
    with pytest.raises(ValueError, match=r"'age' holds numbers, but row 'c' has 'unknown' \(1 such cells\)"):
        read_columns(frame)
    assert read_columns(frame.replace("unknown", None)).columns[0].kind == "real"  # as the message says


def test_new_words_are_named():
    frame = pd.DataFrame({"region": ["n", "s", "n", "s"] * 3})
    columns = read_columns(frame, families={"region": "category"})
    with pytest.raises(ValueError, match="'region' has 'x' in row 1, which is none of its levels n, s"):
        columns.encoded(pd.DataFrame({"region": ["n", "x"]}))


def test_tables_of_real_numbers_keep_the_full_covariance():
    faithful = zoo.datasets.load("faithful")
    frame = pd.DataFrame(faithful["x"], columns=["eruptions", "waiting"])
    model = zoo.Mixture.from_data(frame)
    assert type(model.components).__name__ == "GaussianWishart"
    same = zoo.Mixture.from_data(frame.to_numpy())
    np.testing.assert_array_equal(model.components.scale_matrix, same.components.scale_matrix)


def test_an_array_never_changes_its_family():
    counts = RNG.poisson(3.0, (30, 2)).astype(float)
    assert type(zoo.Mixture.from_data(counts).components).__name__ == "GaussianWishart"
    assert type(zoo.Mixture.from_data(pd.DataFrame(counts)).components).__name__ == "PoissonGamma"
    assert type(zoo.EPCA.from_data(np.eye(4), num_latents=1).family).__name__ == "Bernoulli"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("EPCA", ["Bernoulli", "Poisson", "Gaussian", "Ordinal"]),
        ("DEPCAM", ["Bernoulli", "Poisson", "Gaussian"]),
    ],
)
def test_projections_choose_the_family_of_their_table(model, expected):
    tables = {
        "Bernoulli": pd.DataFrame(RNG.integers(0, 2, (40, 3))),
        "Poisson": pd.DataFrame(RNG.poisson(3.0, (40, 3))),
        "Gaussian": pd.DataFrame(RNG.normal(size=(40, 3))),
        "Ordinal": survey(40)[0],
    }
    for name in expected:
        made = getattr(zoo, model).from_data(tables[name], num_latents=1)
        assert type(made.family).__name__ == name
    if model == "EPCA":
        mixed = zoo.EPCA.from_data(tables["Poisson"].assign(yes=RNG.integers(0, 2, 40)), num_latents=1)
        assert [type(family).__name__ for family in mixed.family.families] == ["Poisson", "Bernoulli"]


def test_views_choose_their_families():
    made = zoo.Paired.from_data(
        pd.DataFrame(RNG.integers(0, 2, (40, 3))), pd.DataFrame(RNG.poisson(3.0, (40, 3))), num_shared=1
    )
    assert [type(family).__name__ for family in made.families] == ["Bernoulli", "Poisson"]


def coins():
    """Two words, a scale of two levels and numbers, of which some cells are missing."""
    coin = np.where(np.arange(N) % 3 == 0, "h", "t").astype(object)
    coin[4] = None
    size = np.where(np.arange(N) % 2 == 0, "low", "high")
    return pd.DataFrame({"coin": coin, "size": size, "score": RNG.normal(size=N)})


def test_two_words_are_yes_and_no_in_projections():
    """As yes and no are, in the order of the levels, and told as such; in mixtures they are categories."""
    frame = coins()
    read = read_columns(frame)
    for model, place in (
        (zoo.EPCA(num_latents=1), 0),
        (zoo.Paired(families=("auto", "auto"), num_shared=1), 1),
    ):
        made = model.with_families([read] * (place + 1))
        family, columns = made.part_families[place], as_taken(made, [read] * (place + 1))[place]
        assert [type(family.families[c]).__name__ for c in family.columns] == [*["Bernoulli"] * 2, "Gaussian"]
        assert str(columns) == "coin: yes/no (yes: t), 1 missing; size: yes/no (yes: high); score: real"
        cells = columns.encoded(frame)
        np.testing.assert_array_equal(
            cells["coin"], np.where(np.arange(N) % 3 == 0, 0.0, 1.0) + cells["coin"] * 0
        )
        np.testing.assert_array_equal(cells["size"], np.arange(N) % 2)
        assert [columns.kept[0].cell_in_words(p) for p in (0.2, 0.9)] == ["h", "t"]
        assert columns.level_numbers == {"coin": {"h": 0, "t": 1}, "size": {"low": 0, "high": 1}}
        with pytest.raises(
            ValueError, match="column 'coin' has 'edge' in row 2, which is none of its levels h, t"
        ):
            columns.encoded(frame.assign(coin=np.where(np.arange(N) == 2, "edge", "h")))
    assert type(zoo.EPCA.from_data(frame[["coin"]], num_latents=1).family).__name__ == "Bernoulli"
    made = zoo.Mixture().with_families([read])
    assert [c.kind for c in as_taken(made, [read])[0].kept] == ["category", "ordered", "real"]
    told = read_columns(frame, families={"coin": "categorical", "size": "ordinal"})
    made = zoo.EPCA(num_latents=1).with_families([told])
    assert [type(f).__name__ for f in made.family.families] == ["Categorical", "Ordinal", "Gaussian"]
    assert as_taken(made, [told])[0].kept[0].kind == "category"


def test_categories_in_a_model_of_numbers_say_what_to_do():
    frame = pd.DataFrame({"age": RNG.normal(size=N), "region": RNG.choice(["n", "s", "e"], N)})
    with pytest.raises(ValueError, match=r"DEPCAM takes numbers .* hold categories: region .*'leave_out'"):
        zoo.DEPCAM.from_data(frame, num_latents=1)


def test_sales_of_a_shop_are_counts():
    frame = sales(20)[0]
    assert read_columns(frame).label == "shop"


def test_dates_with_a_time_of_day_keep_it():
    assert date_in_words("2021-06-28T00:00:00", 1.6) == "2021-06-30"
    assert date_in_words("2021-06-28T06:00:00", 1.5) == "2021-06-29 18:00"


def test_days_are_counted_from_the_earliest_date():
    """The rows are in no order, and the first date is missing."""
    days = [None, "2021-01-04", "2020-12-20", "2021-02-01", "2021-01-04"]
    frame = pd.DataFrame({"joined": pd.to_datetime(days), "age": [31.5, 20.25, 18.0, 40.0, 25.0]})
    read = read_columns(frame)
    assert read.kept[0].origin == "2020-12-20T00:00:00"
    np.testing.assert_array_equal(read.encoded(frame)["joined"], [np.nan, 15.0, 0.0, 43.0, 15.0])


@pytest.mark.parametrize("first", [0, 1])
def test_a_level_has_the_number_that_the_model_gives_it(first):
    """Cells of classes are numbered from 0, those of ordered levels from 1; there and back."""
    frame = pd.DataFrame({"size": ["low", "high", "medium"] * 4, "age": RNG.normal(size=12)})
    read = read_columns(frame).numbered_from([first, -1], "Any")
    size = read.kept[0]
    assert size.levels == ("low", "medium", "high")
    numbers = read.encoded(frame)["size"]
    np.testing.assert_array_equal(numbers, first + np.array([0, 2, 1] * 4))
    assert [size.cell_in_words(number) for number in numbers] == frame["size"].tolist()
    assert [size.cell_in_words(first + away) for away in (-3.0, 0.4, 0.6, 9.0)] == [
        "low",
        "low",
        "medium",
        "high",
    ]


def test_numbers_of_cells_go_back_to_the_words_of_the_table():
    frame = pd.DataFrame(
        {
            "joined": pd.to_datetime(["2020-12-20", "2021-01-04", "2021-02-01"] * 2),
            "smoker": ["yes", "no", "yes"] * 2,
            "town": ["Ulm", "Bonn", "Kiel"] * 2,
            "age": [31.5, 20.25, 18.0, 40.0, 25.0, 60.0],
        }
    )
    read = read_columns(frame)
    encoded = read.encoded(frame)
    for column in read.kept:
        words = [column.cell_in_words(number) for number in encoded[column.name]]
        assert words == [str(v.date()) if column.origin else v for v in frame[column.name]]
        assert column.cell_in_words(np.nan) is None
    joined, _, town, _ = read.kept
    assert joined.cell_in_words(14.6) == "2021-01-04" and town.cell_in_words(7.0) == town.levels[-1]


def test_natural_parameters_of_classes_are_named_by_column_and_level():
    """The first class of a town is what the others are measured against."""
    town, age = pd.Series(["Ulm", "Bonn", "Kiel"] * 4), pd.Series(RNG.normal(size=12))
    frame = pd.DataFrame({"age": age, "town": town, "smoker": ["yes", "no"] * 6})
    read = read_columns(frame)
    model = zoo.EPCA(
        family=zoo.EPCA(num_latents=1).with_families((read,)).family, num_latents=1, num_features=3
    )
    labels = dim_labels(model, {"feature": ["age", "town", "smoker"]}, (read,))
    assert labels["feature_class"] == ["age", "town: Kiel", "town: Ulm", "smoker"]
    unread = dim_labels(model, {"feature": ["age", "town", "smoker"]})
    assert unread["feature_class"] == ["age", "town: 1", "town: 2", "smoker"]
    assert dim_labels(zoo.EPCA(family="gaussian", num_features=3), {"feature": ["a", "b", "c"]}) == {}


def test_predicted_cells_are_written_in_the_words_of_the_table():
    """What `zoo predict` writes; columns that were not predicted, and deviations, are left alone."""
    frame = pd.DataFrame(
        {"joined": pd.to_datetime(["2020-12-20", "2021-01-04"] * 2), "smoker": ["yes", "no"] * 2, "age": 1.5}
    )
    read = read_columns(frame.assign(age=[1.5, 2.0, 7.25, 3.0]))
    predicted = pd.DataFrame({"joined": [3.2, 15.0], "smoker": [0.9, 0.2], "joined_sd": [1.0, 2.0]})
    written = predicting._as_read(predicted, (read, None))
    assert written["joined"].tolist() == ["2020-12-23", "2021-01-04"]
    assert written["smoker"].tolist() == ["yes", "no"] and written["joined_sd"].tolist() == [1.0, 2.0]


def test_each_kind_of_column_has_its_family_of_components():
    """Dates are real numbers, scales are categories, and columns of words with other levels stand apart."""
    words = {"town": ("Kiel", "Ulm"), "answer": ("Kiel", "Ulm"), "grade": ("low", "high")}
    kinds = {"age": "real", "town": "category", "income": "positive", "visits": "count", "joined": "date"}
    kinds |= {"grade": "ordered", "smoker": "yes/no", "answer": "category", "note": "text"}
    kinds["debt"] = "positive"
    read = Columns(tuple(Column(name, kind, "", levels=words.get(name, ())) for name, kind in kinds.items()))
    made = zoo.Mixture(num_components=2).with_families((read,)).components
    assert {
        columns: (type(family).__name__, getattr(family, "levels", None))
        for family, columns in zip(made.families, made.columns, strict=True)
    } == {
        (0, 2, 4, 8): ("GaussianWishart", None),
        (1, 7): ("CategoricalDirichlet", ("Kiel", "Ulm")),
        (3,): ("PoissonGamma", None),
        (5,): ("CategoricalDirichlet", ("low", "high")),
        (6,): ("BernoulliBeta", None),
    }
    assert made.logs == (2, 8)


def test_positive_numbers_are_log_normal_and_real_ones_a_joint_gaussian_where_rows_suffice():
    def made(num_rows, **kinds):
        columns = tuple(Column(name, kind, "") for name, kind in kinds.items())
        table = Columns(columns, None, num_rows)
        return zoo.Mixture(num_components=2).with_families((table,)).components

    skewed = made(100, income="positive", age="real")
    assert type(skewed.families[0]).__name__ == "GaussianWishart" and skewed.logs == (0,)
    alone = made(100, income="positive")
    assert type(alone.families[0]).__name__ == "NormalGamma" and alone.logs == (0,)
    kinds = {"age": "real", "height": "real", "visits": "count"}
    families = [[type(family).__name__ for family in made(n, **kinds).families] for n in (None, 10, 9)]
    assert families == [["GaussianWishart", "PoissonGamma"]] * 2 + [["NormalGamma", "PoissonGamma"]]
    assert made(9, age="real", height="date") is None


@pytest.mark.parametrize(("between", "told"), [(2.0, 12.0), (0.0, 0.0)])
def test_words_with_rows_that_are_alike_are_told(between, told):
    """30 towns of 12 rows, which are alike or like any others."""
    rng = np.random.default_rng(0)
    towns = np.repeat(np.arange(30), 12)
    x = between * rng.normal(size=(30, 2))[towns] + rng.normal(size=(360, 2))
    frame = pd.DataFrame({"town": [f"town {n:02d}" for n in towns], "age": x[:, 0], "pay": x[:, 1]})
    frame.loc[3, "town"], frame.loc[5, "age"] = None, np.nan
    order = rng.permutation(360)
    for rows in (frame, frame.iloc[order].reset_index(drop=True)):
        town = read_columns(rows).columns[0]
        assert town.kind == "text" and town.repeats == pytest.approx(told, rel=0.01)
        assert town.why.startswith(
            "30 different words, more than 20" + ", of 12 rows each, which are" * bool(told)
        )
    few = read_columns(frame.iloc[::6].reset_index(drop=True)).columns[0]  # two rows of each
    assert few.repeats == 0.0


@pytest.mark.parametrize(("spread", "kind", "least"), [(0.8, "positive", 49), (0.0, "real", 58)])
def test_a_positive_column_is_log_normal_where_held_out_rows_say_so(spread, kind, least):
    """Clusters of Gaussians leave a column skewed, and are no log-normals.

    Of 60 draws: log-normal ones are found with probability .935 (200 draws of another seed), below 49 once in
    1000; where neither is better, a gain of 3 standard errors comes once in 740, three once in 10 000.
    """
    rng, found = np.random.default_rng(3), []
    for _ in range(60):
        clusters = rng.normal(np.array([3.0, 5.0, 12.0])[rng.choice(3, 600, p=[0.6, 0.3, 0.1])], 0.6)
        x = np.exp(rng.normal(scale=spread, size=600)) if spread else np.abs(clusters)
        found.append(read_columns(pd.DataFrame({"x": x})).columns[0].kind)
    assert found.count(kind) >= least


def _normals(rng, size, locs, scales, shares):
    clusters = rng.choice(len(shares), size, p=shares)
    return np.abs(rng.normal(np.array(locs)[clusters], np.array(scales)[clusters]))


#: Law to what draws from it, and how many of 30 draws of 100, 400 and 1600 rows were read as log-normal.
LAWS = {
    "normal": (lambda rng, n: np.abs(rng.normal(5.0, 1.0, n)), (0, 0, 0)),
    "two normals": (lambda rng, n: _normals(rng, n, [3, 9], [0.8, 0.8], [0.8, 0.2]), (0, 0, 0)),
    "three normals": (lambda rng, n: _normals(rng, n, [2, 5, 11], [0.5] * 3, [0.6, 0.3, 0.1]), (0, 0, 0)),
    "normals of two widths": (lambda rng, n: _normals(rng, n, [4, 10], [0.5, 2], [0.7, 0.3]), (0, 0, 0)),
    "half normal": (lambda rng, n: np.abs(rng.normal(size=n)), (1, 12, 30)),
    "gamma 1": (lambda rng, n: rng.gamma(1.0, size=n), (6, 23, 30)),
    "gamma 2": (lambda rng, n: rng.gamma(2.0, size=n), (1, 5, 27)),
    "gamma 5": (lambda rng, n: rng.gamma(5.0, size=n), (0, 0, 1)),
    "Weibull 0.7": (lambda rng, n: rng.weibull(0.7, n), (13, 30, 30)),
    "Weibull 1.5": (lambda rng, n: rng.weibull(1.5, n), (1, 6, 26)),
    "log-normal 0.3": (lambda rng, n: np.exp(rng.normal(scale=0.3, size=n)), (0, 3, 3)),
    "log-normal 0.5": (lambda rng, n: np.exp(rng.normal(scale=0.5, size=n)), (1, 6, 24)),
    "log-normal 0.8": (lambda rng, n: np.exp(rng.normal(scale=0.8, size=n)), (8, 20, 30)),
    "log-normal 1.5": (lambda rng, n: np.exp(rng.normal(scale=1.5, size=n)), (26, 30, 30)),
}


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_log_normals_on_laws_by_which_no_threshold_was_chosen(law):
    """Where Gaussians are right a false alarm comes once in 740: of 30 draws two once in 1300.

    Log-normals of spread .8 and 1.5 and 1600 rows are found in all but 3 of 30. Other laws are neither: the
    record says what becomes of them, to 3 of 30 draws.
    """
    draw, recorded = LAWS[law]
    found = []
    for size in (100, 400, 1600):
        rng = np.random.default_rng(20)
        read = [read_columns(pd.DataFrame({"x": draw(rng, size)})).columns[0].kind for _ in range(30)]
        found.append(read.count("positive"))
    if "normal" in law.split() or "normals" in law.split():
        assert law == "half normal" or max(found) <= 1
    if law in ("log-normal 0.8", "log-normal 1.5"):
        assert found[-1] >= 27
    assert np.abs(np.subtract(found, recorded)).max() <= 3


def test_suggestions_that_chance_makes_among_many_columns_are_dropped():
    rng = np.random.default_rng(5)
    x = pd.DataFrame(rng.gamma(25.0, size=(400, 60)).T, columns=[f"gene {i}" for i in range(400)])
    one_by_one = [read_columns(x[[name]]).columns[0].doubt for name in x]
    assert 0 < sum(map(bool, one_by_one)) <= 20
    assert str(read_columns(x)) == "gene 0 to gene 399 (400 columns): real"
    some = [name for name, doubt in zip(x, one_by_one, strict=True) if doubt]
    assert "lognormal may suit it better" in str(read_columns(x[[*some[:1], "gene 0", "gene 1"]]))


@pytest.mark.parametrize("model", [zoo.PPCA(num_latents=1), zoo.EPCA(num_latents=1), zoo.MCFA()])
def test_columns_are_log_normal_only_where_a_model_has_such_a_family(model):
    """EPCA said of a column that it was log-normal, and took the numbers as they were."""
    skewed = np.exp(np.random.default_rng(1).normal(size=400))
    x = pd.DataFrame({"sales": skewed, "profit": RNG.normal(size=400)})
    assert as_taken(zoo.Mixture().with_families([read_columns(x)]), [read_columns(x)]) == (read_columns(x),)
    doubtful = replace(
        read_columns(x),
        columns=(Column("sales", "real", "", doubt=kinds._SKEWED), *read_columns(x).columns[1:]),
    )
    (told,) = as_taken(zoo.Mixture().with_families([doubtful]), [doubtful])
    assert str(told) == "sales: real (skewed: lognormal may suit it better); profit: real"
    (told,) = as_taken(model, [read_columns(x)])
    assert str(told) == "sales: real (skewed: its logarithm may suit better); profit: real"
    given = read_columns(x, families={"sales": "lognormal"})
    with pytest.raises(ValueError, match=f"{type(model).__name__} takes numbers .* has sales as log-normal"):
        as_taken(model, [given])
    gaussian = zoo.Mixture(zoo.conjugate.GaussianWishart())
    with pytest.raises(ValueError, match="Mixture takes numbers .* default components"):
        as_taken(gaussian, [given])


@pytest.mark.parametrize("rows", [40, 40_000])
def test_words_are_read_by_their_distinct_values(rows, monkeypatch):
    """What a column of few words costs does not grow with its rows but for the rows themselves."""
    seen = []
    for name in ("read_dates", "nearly_dates", "_scale_of"):
        own = getattr(kinds, name)
        monkeypatch.setattr(kinds, name, lambda words, own=own: seen.append(len(words)) or own(words))
    table = pd.DataFrame({"city": [f"city no {i % 25}" for i in range(rows)]})
    assert read_columns(table).columns[0].kind == "text"
    assert seen and max(seen) == 25


DAYS = pd.to_datetime(["2022-03-25", "2022-08-04", "2022-12-01", "2022-02-11"])


@pytest.mark.parametrize(
    "way",
    [
        "%d.%m.%Y",
        "%d/%m/%Y",
        "%m/%d/%Y",
        "%d-%m-%y",
        "%Y-%m-%dT%H:%M:%SZ",
        "%Y/%m/%d",
        "%d %b %Y",
        "%B %d, %Y",
        "%d.%m.%Y %H:%M",
        "%m/%d/%Y %I:%M %p",
    ],
)
@pytest.mark.parametrize("first", range(4))
def test_dates_are_read_by_all_cells_whichever_comes_first(way, first):
    order = np.roll(np.arange(4), first)
    frame = pd.DataFrame(
        {"visit": [*DAYS[order].strftime(way), None], "age": [31.5, 20.25, 18.0, 40.0, 25.0]}
    )
    columns = read_columns(frame)
    assert columns.columns[0].kind == "date" and not columns.columns[0].doubt
    days = (DAYS[order] - DAYS.min()) / pd.Timedelta(days=1)
    np.testing.assert_allclose(columns.encoded(frame)["visit"], [*days, np.nan])
    new = columns.encoded(frame.iloc[[2]])  # which alone would not tell day and month apart
    np.testing.assert_allclose(new["visit"], days[[2]])


def test_where_no_cell_tells_day_and_month_apart_the_choice_is_said_and_can_be_overruled():
    frame = pd.DataFrame({"visit": ["05/03/2022", "04/08/2022", "01/12/2022"] * 3, "age": np.arange(9) / 7})
    columns = read_columns(frame)
    assert "visit: dates (day first; or say families={'visit': 'month_first'})" in str(columns)
    by_day = pd.to_datetime(["2022-03-05", "2022-08-04", "2022-12-01"] * 3)
    np.testing.assert_allclose(
        np.diff(columns.encoded(frame)["visit"]), np.diff(by_day) / np.timedelta64(1, "D")
    )
    by_month = pd.to_datetime(["2022-05-03", "2022-04-08", "2022-01-12"] * 3)
    columns = read_columns(frame, families={"visit": "month_first"})
    assert str(columns).startswith("visit: dates;")
    np.testing.assert_allclose(
        np.diff(columns.encoded(frame)["visit"]), np.diff(by_month) / np.timedelta64(1, "D")
    )


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ("03/15/2021", "dates that are not all written alike: 2021-02-01, 03/15/2021"),
        ("0000-00-00", "dates, but row 6 has '0000-00-00'"),
    ],
)
def test_dates_that_are_not_all_read_are_left_out_with_the_reason(odd, why):
    days = list(pd.date_range("2021-02-01", periods=60).strftime("%Y-%m-%d"))
    days[6] = odd
    column = read_columns(pd.DataFrame({"visit": days, "age": RNG.normal(size=60)})).columns[0]
    assert (column.kind, column.why) == ("text", why)


def test_postal_codes_are_not_said_to_be_dates():
    """Guards a reason that was wrong: dates, but row 2 has 48230."""
    codes = [f"{code:05d}" for code in RNG.integers(500, 99999, 60)]
    column = read_columns(pd.DataFrame({"zip": [*codes, codes[0]], "age": RNG.normal(size=61)})).columns[0]
    assert "dates" not in column.why


def test_dates_of_digits_and_of_two_offsets_are_days_since_the_first():
    frame = pd.DataFrame({"day": [20240131.0, np.nan, 20240301] * 4, "month": [202401, 202311, 202402] * 4})
    frame["day"] += np.repeat([0.0, 1e4, 2e4, 3e4], 3)
    frame["month"] += np.repeat([0, 100, 200, 300], 3)
    frame["time"] = ["2024-03-30T12:00+01:00", "2024-04-01T12:00+02:00", "2024-04-02T12:00+02:00"] * 4
    columns = read_columns(frame)
    assert str(columns).startswith(
        "day: dates (such as 20240131; as numbers: gaussian), 4 missing; month: dates"
    )
    found = columns.encoded(frame)
    np.testing.assert_array_equal(found["day"][:6], [0, np.nan, 30, 366, np.nan, 395])
    np.testing.assert_array_equal(found["month"][:3], [61, 0, 92])
    np.testing.assert_allclose(found["time"][:3], [0, 2 - 1 / 24, 3 - 1 / 24])
    pd.testing.assert_frame_equal(Columns.from_text(columns.as_text()).encoded(frame[2:4]), found[2:4])
    assert read_columns(frame, families={"day": "gaussian"}).columns[0].kind == "real"
    with pytest.raises(ValueError, match="column 'time' has no time zones, and the fit has some"):
        columns.encoded(frame.assign(time="2024-03-30T12:00"))


def test_rows_are_named_as_they_are_written():
    """Labels of NumPy and of pandas are no ``np.int64(0)`` in messages."""
    words = pd.DataFrame({"x": ["missing", *["1.5", "2.5"] * 9], "y": RNG.normal(size=19)})
    with pytest.raises(ValueError, match="holds numbers, but row 0 has 'missing'"):
        read_columns(words)
    columns = read_columns(words[1:])
    with pytest.raises(TypeError, match="column 'x' is not numeric: row 0 has 'missing'"):
        columns.encoded(words)
    named = read_columns(pd.DataFrame({"x": ["a", "b"] * 9}))
    with pytest.raises(ValueError, match="column 'x' has 'c' in row 7,"):
        named.encoded(pd.DataFrame({"x": ["c"]}, index=np.array([7])))


def test_ticks_are_answers_and_an_empty_cell_is_a_no():
    frame = pd.DataFrame(
        {"done": ["x", None, "x", ""], "note": ["checked by me", None, None, None], "v": RNG.normal(size=4)}
    )
    columns = read_columns(frame)
    assert str(columns).startswith("done: yes/no (x, or empty for no); note: left out")
    np.testing.assert_array_equal(columns.encoded(frame)["done"], [1, 0, 1, 0])
    assert Columns.from_text(columns.as_text()) == columns


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([f"word {i // 2}" for i in range(60)], "category"),
        ([f"word {i}" for i in range(30)] * 2, "category"),
        (np.arange(60), "gaussian"),
        (pd.date_range("2024-01-01", periods=60), "date"),
        (np.full(60, 2.5), None),
        (["same"] * 60, None),
        ([None] * 60, None),
    ],
)
def test_how_to_keep_a_column_is_said_where_it_can_be_kept(cells, kind):
    frame = pd.DataFrame({"other": cells, "v": RNG.normal(size=60)}, index=[f"r{i}" for i in range(60)])
    columns = read_columns(frame)
    told = left_out_in_words(columns)
    assert told.startswith("columns left out: other (")
    assert ("to keep" in told) == (kind is not None)
    if kind is not None:
        assert f"to keep other: families={{'other': '{kind}'}}" in told
        kept = read_columns(frame, families={"other": kind})
        assert kept.columns[0].is_kept and np.isfinite(kept.encoded(frame)["other"]).all()


def test_what_follows_from_columns_that_were_left_out_names_them():
    words = [f"word {i}" for i in range(30)]
    frame = pd.DataFrame({"note": np.repeat(words, 2), "v": RNG.normal(size=60), "w": RNG.normal(size=60)})
    with (
        pytest.warns(UserWarning, match="columns left out: note"),
        pytest.raises(
            ValueError, match=r"x must have 3 columns.*; columns left out: note \(30 different words"
        ),
    ):
        inference.fit(zoo.PPCA(num_features=3), frame, progress=False)
    with pytest.raises(
        ValueError, match=r"no column of x is left: columns left out: note \(30 different words"
    ):
        inference.fit(zoo.Mixture(), frame[["note"]], progress=False)
    for model in (zoo.Mixture(), zoo.EPCA(), zoo.PPCA()):
        with pytest.raises(ValueError, match="^x has no columns$"):
            inference.fit(model, frame[[]], progress=False)
        with pytest.raises(ValueError, match="^x has no columns beside 'id', which labels the rows$"):
            inference.fit(model, pd.DataFrame({"id": [f"r{i}" for i in range(9)]}), progress=False)


def test_no_word_is_refused_by_its_beginning_that_pandas_reads():
    """Words in every way of writing, blanks before them among them, by every way; most are refused early."""
    ways = [*dates._with_times(dates._FIXED)] + [
        a + t for pair in dates._EITHER for a in pair for t in dates._TIMES
    ]
    days = pd.Timestamp("2021-03-05 07:08:09", tz="UTC"), pd.Timestamp("2019-11-24 21:40", tz="UTC")
    words = [day.strftime(way) for way in ways[1:] for day in days] + [day.isoformat() for day in days]
    words += [" 5/3/2021", "5.3.2021", "K00126", "7 rue", "12x7", "Mar", "2021"]
    words = pd.Series(words).drop_duplicates(ignore_index=True)
    refused = 0
    for way in ways:
        begins = np.array([dates._begins_as(word, way) for word in words])
        assert begins[dates._are_dates(words, way)].all(), way
        refused += (~begins).sum()
    assert refused > 0.75 * len(ways) * len(words)


@pytest.mark.parametrize(
    ("written", "numbers"),
    [
        (["43,5", "7", "1.234,25", None], [43.5, 7, 1234.25, np.nan]),
        (["1,234.5", "2", "1,000", None], [1234.5, 2, 1000, np.nan]),
        (["1,234,567", "2,000", "3,000", None], [1234567, 2000, 3000, np.nan]),
    ],
)
def test_commas_are_read_as_those_of_a_file(written, numbers, tmp_path):
    """In the table that is fitted and in new rows, whose labels may repeat."""
    table = pd.DataFrame({"a": written * 3, "b": [0.5, 1.5, 2.5, 3.25] * 3}, index=[7] * 12)
    columns = read_columns(table)
    assert all(column.is_kept and not column.is_discrete for column in columns.columns)
    assert columns.columns[0].why.endswith("written with commas")
    np.testing.assert_array_equal(columns.encoded(table)["a"], numbers * 3)
    table.to_csv(tmp_path / "t.csv", index=False)
    np.testing.assert_array_equal(read_table(tmp_path / "t.csv")["a"], numbers * 3)


def test_commas_that_may_be_either_are_refused():
    table = pd.DataFrame({"a": ["1,234", "2,500", "1,750"] * 4, "b": np.arange(12) / 4})
    with pytest.raises(
        ValueError, match="'a' has numbers such as '1,234', which may be 1234 or 1.234: write .* group thous"
    ):
        read_columns(table)
    fitted = read_columns(table.assign(a=np.arange(12) + 0.5))
    with pytest.raises(ValueError, match="'a' has numbers such as '1,234', which may be"):
        fitted.encoded(table)
    words = table.assign(a=["red, blue", "4,5", "blue"] * 4)
    assert read_columns(words, families={"a": "category"}).columns[0].levels == ("4,5", "blue", "red, blue")
