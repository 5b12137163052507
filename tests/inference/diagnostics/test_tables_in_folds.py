"""Tables with words in cross-validation and comparison: columns are read once, from all rows."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import zoo
from inference.cli import main
from inference.diagnostics import model_size
from inference.inputs import tables
from inference.inputs.tables import read_tables
from zoo.intake.suitable_fields import suitable_tables


def shops(num_rows=40, seed=0):
    """Sizes, visits and a region that two rows alone are in."""
    rng = np.random.default_rng(seed)
    region = rng.choice(["north", "south"], num_rows).astype(object)
    region[[3, 7]] = "island"
    return pd.DataFrame(
        {
            "shop": [f"shop {number}" for number in range(num_rows)],
            "size": rng.normal(size=num_rows),
            "visits": rng.poisson(3.0, num_rows),
            "region": region,
        }
    )


@pytest.fixture
def fits(monkeypatch):
    """The model and the data of each fit, none of which is made."""
    seen, readings = [], []

    def fit(model, *data, **settings):
        seen.append((model, data))
        return xr.DataTree(xr.Dataset(attrs={"converged": 1, "bic": 0.0}))

    def log_density(tree, *data):
        first = data[0][:, [0]]
        first = first.toarray() if hasattr(first, "toarray") else first
        return xr.DataArray(first[:, 0], dims="observation")

    def read_columns(table, **arguments):
        readings.append(len(table))
        return zoo.intake.read_columns(table, **arguments)

    monkeypatch.setattr(model_size, "fit", fit)
    monkeypatch.setattr(model_size, "log_density", log_density)
    monkeypatch.setattr(tables, "read_columns", read_columns)
    return seen, readings


def test_columns_are_read_once_from_all_rows(fits):
    seen, readings = fits
    table = shops()
    found = model_size.cross_validate({2: zoo.Mixture(num_components=2)}, table, folds=4)
    assert readings == [40] and len(seen) == 5
    assert found.attrs["columns"] == "shop: row label; size: real; visits: counts; region: 3 categories"
    for model, (x,) in seen:
        assert isinstance(x, np.ndarray) and x.shape[1] == 3
        assert model.components.families[2].levels == ("island", "north", "south")
    assert {len(x) for _, (x,) in seen} == {30, 40}
    np.testing.assert_array_equal(seen[0][1][0][:, 0], table["size"])
    part = table.drop(index=[3, 7]).reset_index(drop=True)  # planted: a fold that is read by itself
    model, rows = model_size.read_rows(zoo.Mixture(num_components=2), (part,))
    assert model.components.families[2].levels == ("north", "south")


def test_what_is_said_of_columns_goes_to_every_fold(fits):
    seen, _ = fits
    levels = ["island", "south", "north"]
    models = {k: zoo.EPCA(num_latents=k) for k in (1, 2)}
    said = {"families": {"visits": "gaussian"}, "levels": {"region": levels}, "id": "shop"}
    model_size.cross_validate(models, shops(), folds=2, **said)
    assert len(seen) == 6
    for model, (x,) in seen:
        assert x.shape[1] == 3 and set(x[:, 2]) <= {1.0, 2.0, 3.0}  # ordered levels begin at 1
        found = [type(model.family.families[place]).__name__ for place in model.family.columns]
        assert found == ["Gaussian", "Gaussian", "Ordinal"]


def test_class_labels_are_those_of_all_rows(fits):
    seen, _ = fits
    table = shops()
    x, y = table[["size", "visits"]], table["region"]
    model_size.cross_validate({1: zoo.SPPCA(num_latents=1)}, x, y, folds=4)
    assert {model.classes for model, _ in seen} == {("island", "north", "south")}


def test_models_that_are_compared_take_the_same_columns():
    data = (shops(),)
    columns = read_tables(data)
    fields, (x,) = suitable_tables(zoo.Mixture, data, columns)
    names = [type(family).__name__ for family in fields["components"].families]
    assert names == ["NormalGamma", "PoissonGamma", "CategoricalDirichlet"]
    assert set(x[:, 2]) == {0.0, 1.0, 2.0}
    fields, (other,) = suitable_tables(zoo.EPCA, data, columns)
    assert fields["num_latents"] == 2 and fields["family"][1] == "poisson"
    assert set(other[:, 2]) == {0.0, 1.0, 2.0}
    for name in ("PPCA", "KernelPCA", "LDA"):
        with pytest.raises(ValueError, match=f"{name} takes numbers alone, and region has .* leave it out"):
            suitable_tables(getattr(zoo, name), data, columns)
    with pytest.raises(ValueError, match="DEPCAM scores densities alone, and visits, region have .* leave"):
        suitable_tables(zoo.DEPCAM, data, columns)
    with pytest.raises(ValueError, match="LDA takes numbers alone, and all columns have families of"):
        suitable_tables(zoo.LDA, (data[0][["region"]],), read_tables((data[0][["region"]],)))
    with pytest.raises(TypeError, match="SPPCA takes 2 parts of data"):
        suitable_tables(zoo.SPPCA, data, columns)
    with pytest.raises(TypeError, match="Paired takes 2 parts of data"):
        suitable_tables(zoo.Paired, data, columns)


def test_numbers_are_compared_by_their_values():
    """A table of numbers alone has one family: all models score densities, counts among them or not."""
    table = shops()[["size", "visits"]]
    columns = read_tables((table,))
    fields, (x,) = suitable_tables(zoo.Mixture, (table,), columns)
    assert fields == {} and isinstance(x, np.ndarray)
    assert suitable_tables(zoo.PPCA, (table,), columns)[0] == {"num_latents": 1}
    told = read_tables((table,), families={"visits": "poisson"})
    assert [type(f).__name__ for f in suitable_tables(zoo.Mixture, (table,), told)[0]["components"].families]
    with pytest.raises(ValueError, match="PPCA takes numbers alone"):
        suitable_tables(zoo.PPCA, (table,), told)


@pytest.mark.slow
def test_the_commands_take_tables_with_words(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shops(60).to_csv("shops.csv", index=False)
    small = ["--num-samples", "10", "--num-restarts", "1"]
    options = ["--folds", "2", "--max-iterations", "5", "--families", "visits=gaussian"]
    assert main(["sweep", "mixture", "shops.csv", "--sizes", "1,2", *options, *small]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "visits: real; region: 3 categories" in printed and "recommended: num_components" in printed
    assert "Next: zoo fit mixture shops.csv --families visits=gaussian --set num_components=" in printed
    assert main(["compare", "shops.csv", "--methods", "em", *small, "--no-progress"]) == 0
    printed = capsys.readouterr().out
    assert "mixture      em" in printed and "not fitted: ppca: PPCA takes numbers alone" in printed
    assert "not fitted: depcam: DEPCAM scores densities alone" in printed


def stories():
    """Texts of which each has a word that no other has, and what else a table of them may hold."""
    kinds = ["ships and seas", "bread and salt"]
    texts = [f"a tale of {kinds[place % 2]} word{place}x" for place in range(12)]
    return pd.DataFrame({"section": ["sea", "land"] * 6, "text": texts})


@pytest.mark.parametrize(
    "documents",
    [
        stories(),
        stories()["text"],
        stories()["text"].tolist(),
        [text.split() for text in stories()["text"]],
        {f"d{place}": dict.fromkeys(text.split(), 1) for place, text in enumerate(stories()["text"])},
    ],
    ids=["table", "series", "list", "words", "dicts"],
)
@pytest.mark.filterwarnings("ignore:the documents are the texts")
def test_words_are_those_of_all_documents(fits, documents):
    """A fold has the words of the others, of which none is dropped when it is scored."""
    seen, _ = fits
    model_size.cross_validate({2: zoo.LDA(num_topics=2)}, documents, folds=3)
    widths = {data[0].shape[1] for _, data in seen}
    assert len(seen) == 4 and len(widths) == 1 and widths.pop() >= 12 + 6
    assert sorted(data[0].shape[0] for _, data in seen) == [8, 8, 8, 12]


@pytest.mark.parametrize("kind", ["records", "list"])
def test_folds_are_of_whatever_a_fit_reads_as_a_table(fits, kind):
    table = shops().to_dict(kind)
    model_size.cross_validate({2: zoo.Mixture(num_components=2)}, table, folds=4)
    assert {x.shape for _, (x,) in fits[0]} == {(30, 3), (40, 3)}


def inputs_and_outputs(seed=0):
    """Tables of the same 40 people, and how their rows lie in the other order."""
    rng = np.random.default_rng(seed)
    z, people = rng.normal(size=(40, 1)), [f"p{number}" for number in range(40)]
    x = pd.DataFrame(z @ rng.normal(size=(1, 4)) + 0.5 * rng.normal(size=(40, 4)), people, list("abcd"))
    return x, pd.DataFrame({"s": z[:, 0] + 0.3 * rng.normal(size=40)}, people), rng.permutation(40)


@pytest.mark.parametrize("kind", ["frame", "series", "array", "other order"])
def test_outputs_stay_beside_their_inputs_in_every_fold(fits, kind):
    """As numbers of the same rows, whatever pandas calls them; fit and densities take them."""
    seen, _ = fits
    x, y, order = inputs_and_outputs()
    given = {"frame": y, "series": y["s"], "array": y.to_numpy(), "other order": y.iloc[order]}[kind]
    model_size.cross_validate({1: zoo.SPPCA(num_latents=1)}, x, given, folds=4)
    by_input = dict(zip(x["a"], y["s"], strict=True))
    for _, parts in seen:
        inputs, outputs = tables.paired_rows(parts, ("x", "y"))
        assert np.ravel(outputs).tolist() == [by_input[cell] for cell in inputs[:, 0]]
    assert [len(inputs) for _, (inputs, _) in seen] == [40, 30, 30, 30, 30]


def test_outputs_of_tables_are_fitted_and_scored_as_arrays_are():
    """Numbers as a table and a Series, class labels as a table."""
    x, y, _ = inputs_and_outputs()
    labels = pd.Series(np.where(y["s"] > 0, "high", "low"), y.index, name="s")
    numbers = [(x, y), (x, y["s"]), (x.to_numpy(), y.to_numpy())]
    words = [(x, labels.to_frame()), (x, labels), (x.to_numpy(), labels.reset_index(drop=True))]
    model = zoo.SPPCA(num_latents=1, label_coding="reduced")
    for given in (numbers, words):
        found = [
            float(model_size.cross_validate({1: model}, *data, method="em", folds=2)["heldout"].iloc[0])
            for data in given
        ]
        np.testing.assert_allclose(found, found[-1], rtol=1e-12)


def test_tables_are_joined_by_id_in_folds_as_in_a_fit(fits):
    """Rows of the second table lie in another order, and one of its people is no one of the first."""
    seen, _ = fits
    x, y, order = inputs_and_outputs()
    first = x.iloc[1:].rename_axis("who").reset_index()
    second = y.assign(t=-y["s"]).rename_axis("who").reset_index().iloc[order].reset_index(drop=True)
    model = zoo.Paired(num_shared=1, families=("auto", "auto"))
    with pytest.warns(UserWarning, match="1 of 40 rows of y_1 have no partner by who"):
        model_size.cross_validate({1: model}, first, second, folds=3, id="who")
    by_input = dict(zip(x["a"], y["s"], strict=True))
    for _, (inputs, outputs) in seen:
        assert inputs.shape[1] == 4 and outputs.shape[1] == 2
        assert outputs[:, 0].tolist() == [by_input[cell] for cell in inputs[:, 0]]
    seen.clear()
    both = x.join(y).rename_axis("who").reset_index()
    model_size.cross_validate({1: zoo.SPPCA(1)}, both[["who", *x]], both[["who", "s"]], folds=2, id="who")
    assert all(inputs.shape[1] == 4 and outputs.shape[1] == 1 for _, (inputs, outputs) in seen)


def test_the_command_compares_supervised_models_of_tables_with_ids(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y, _ = inputs_and_outputs()
    x.join(y).rename_axis("who").reset_index().to_csv("people.csv", index=False)
    small = ["--models", "sppca", "--methods", "em", "--no-progress", "--num-restarts", "1"]
    for choice in (["--views", "a:d", "s"], ["--x", "a:d", "--y", "s"]):
        assert main(["compare", "people.csv", *choice, "--id", "who", *small]) == 0
        printed = capsys.readouterr().out
        assert "sppca        em" in printed and "not fitted" not in printed
    x.assign(kind=np.where(y["s"] > 0, "high", "low")).to_csv("kinds.csv", index=False)
    swept = ["sweep", "sppca", "kinds.csv", "--y", "kind", "--sizes", "1", "--set", "label_coding=reduced"]
    assert main([*swept, "--folds", "2", "--method", "em"]) == 0
    assert "go on with zoo sweep sppca" in " ".join(capsys.readouterr().out.split())


def test_the_command_compares_topic_models_of_a_table_of_counts(tmp_path, capsys, monkeypatch):
    """Words that are rare, or in every document once, are counts too; beside others the refusal says how."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    counts = pd.DataFrame(rng.poisson(2.0, (30, 5)), columns=[f"w{place}" for place in range(5)])
    counts["w5"], counts["w6"] = 1, rng.integers(2, size=30)
    counts.insert(0, "doc", [f"d{place}" for place in range(30)])
    counts.to_csv("counts.csv", index=False)
    small = ["--methods", "vb", "--no-progress", "--num-restarts", "1", "--num-samples", "10"]
    assert main(["compare", "counts.csv", "--models", "lda", "--id", "doc", *small]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "lda vb" in printed and "w0 to w6 (7 columns): counts" in printed and "left out" not in printed
    assert main(["compare", "counts.csv", "--models", "lda", "mixture", "--methods", "em", *small[2:]]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "not fitted: lda: the other models score cells" in printed and "--models lda pcp" in printed
