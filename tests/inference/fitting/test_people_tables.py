"""From a table as people have it to clusters, latents and topics: nothing is said of the columns."""

import json
from itertools import permutations

import numpy as np
import pandas as pd
import pytest

import inference
import zoo
from inference.cli import main
from tests.support.people_tables import PLANS, customers, sales, survey
from zoo.conjugate import NormalGamma, PoissonGamma, Product


def agreement(found, truth):
    """Share of rows in the right cluster under the best matching of names; ``found`` may have more."""
    table = pd.crosstab(np.asarray(found), np.asarray(truth)).to_numpy()
    return table.max(axis=1).sum() / table.sum()


@pytest.fixture(scope="module")
def fitted_customers():
    table, group = customers(150)
    with pytest.warns(UserWarning, match=r"columns left out: comment \(.* different words, more than 20\)"):
        tree = inference.fit(zoo.Mixture(num_components=6), table, num_samples=20, num_restarts=3)
    return table, group, tree


@pytest.mark.slow
def test_customers_are_clustered(fitted_customers, tmp_path):
    table, group, tree = fitted_customers
    assert agreement(inference.predict(tree, table), group) > 0.97
    assert 3 <= int(tree["variational"]["num_occupied"]) <= 4
    components = inference.model_of(tree).components
    names = [type(family).__name__ for family in components.families]
    assert names == ["GaussianWishart", "PoissonGamma", "BernoulliBeta", *["CategoricalDirichlet"] * 3]
    posterior = tree["posterior"]
    place = names.index("CategoricalDirichlet") + 1
    assert posterior[f"feature_{place}"].values.tolist() == ["plan"]
    assert posterior[f"level_{place}"].values.tolist() == sorted(PLANS)
    assert posterior["feature_0"].values.tolist() == ["age", "income", "joined"]
    assert posterior["log_likelihood" if "log_likelihood" in posterior else "weights"].size
    assert tree["observed_data"]["observation"].values.tolist() == table["customer_id"].tolist()
    assert json.loads(tree["observed_data"]["x"].attrs["levels"])["smoker"] == {"no": 0, "yes": 1}
    told = inference.columns_of(tree)
    assert told.loc[("x", "customer_id"), "kind"] == "row label"
    assert told.loc[("x", "income"), "missing"] == table["income"].isna().sum()
    inference.save(tree, tmp_path / "fit.nc")
    again = inference.load(tmp_path / "fit.nc")
    new = table.drop(columns=["comment", "customer_id"]).iloc[:7][::-1]  # words as they came
    np.testing.assert_allclose(
        inference.log_density(again, new), inference.log_density(tree, table.iloc[:7])[::-1], rtol=1e-12
    )
    pd.testing.assert_frame_equal(inference.columns_of(again), told)


def test_new_customers_with_other_words_are_refused(fitted_customers):
    table, _, tree = fitted_customers
    new = table.iloc[:3].assign(region=["north", "mars", "east"])
    with pytest.raises(
        ValueError, match="'region' has 'mars' in row 1, which is none of its levels centre, "
    ):
        inference.predict(tree, new)
    new["region"] = ["north", None, "east"]
    assert len(inference.predict(tree, new)) == 3


@pytest.mark.slow
def test_columns_may_be_named_in_a_product():
    table = customers(90)[0][["visits", "age", "income"]]
    components = Product((NormalGamma(mean_precision=0.1), PoissonGamma()), (("age", "income"), ("visits",)))
    model = zoo.Mixture(components=components, num_components=2)
    tree = inference.fit(model, table, num_samples=5, max_iterations=20)
    assert tree["posterior"]["feature_0"].values.tolist() == ["age", "income"]
    filled = inference.model_of(tree).components
    assert filled.columns == ((1, 2), (0,)) and (filled.families[0].mean_precision == 0.1).all()
    wrong = zoo.Mixture(
        components=Product((NormalGamma(), PoissonGamma()), (("agee", "income"), ("visits",)))
    )
    with pytest.raises(ValueError, match="columns names 'agee', which is no column: there are visits, age"):
        inference.fit(wrong, table)
    with pytest.raises(ValueError, match="the data have no names of columns: give a DataFrame"):
        inference.fit(model, table.to_numpy())


def test_a_prior_that_is_not_filled_cannot_be_drawn_from():
    with pytest.raises(ValueError, match=r"NormalGamma, are not set: make the model with Mixture.from_data"):
        zoo.Mixture(components=NormalGamma())(num_observations=3)


@pytest.mark.slow
def test_a_survey_in_words_shows_its_latents():
    table, latents = survey()
    tree = inference.fit(zoo.EPCA(num_latents=2), table)
    family = inference.model_of(tree).family
    assert type(family).__name__ == "Ordinal" and family.num_levels == 5
    scores = np.column_stack([inference.transform(tree, table), np.ones(len(latents))])
    rest = latents - scores @ np.linalg.lstsq(scores, latents, rcond=None)[0]
    assert (1 - rest.var(axis=0) / latents.var(axis=0) > 0.75).all()
    predicted = inference.predict(tree, table)
    assert json.loads(predicted.attrs["levels"])["q1"]["never"] == 1


@pytest.mark.slow
def test_sales_show_their_topics():
    table, topics = sales(100)
    tree = inference.fit(zoo.LDA(num_topics=3), table, num_samples=20)
    found = tree["posterior"]["topic_word_probs"].mean(("chain", "draw"))
    assert found["word"].values.tolist() == list(table.columns[1:])
    assert tree["posterior"]["document"].values[0] == table["shop"][0]
    distance = min(
        np.abs(found.values[list(order)] - topics).sum(axis=1).max() / 2 for order in permutations(range(3))
    )
    assert distance < 0.1  # total variation; between the topics themselves it is above 0.7
    assert np.abs(topics[0] - topics[1]).sum() / 2 > 0.7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "table", "family"),
    [("mixture", customers, "5 categories"), ("epca", survey, "5 ordered levels"), ("lda", sales, "counts")],
)
def test_from_file_to_report_without_an_option(model, table, family, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table()[0].to_csv("table.csv", index=False)
    assert main(["fit", model, "table.csv", "--out", "fit.nc"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert family in printed and "row label" in printed and " has converged" in printed
    assert main(["report", "fit.nc", "--out", "out.html"]) == 0
    assert (tmp_path / "out.html").stat().st_size > 10_000


@pytest.mark.slow
def test_the_command_line_overrules_by_name(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"visits": rng.poisson(3.0, 40), "mood": rng.choice(["bad", "ok"], 40), "shop": range(40)}
    )
    frame.to_csv("table.csv", index=False)
    options = ["--families", "visits=gaussian", "--levels", "mood=bad,ok", "--id", "shop"]
    sizes = ["--set", "num_components=2", "--num-samples", "5", "--max-iterations", "5", "--no-progress"]
    assert main(["fit", "mixture", "table.csv", *options, *sizes]) == 0
    printed = capsys.readouterr().out
    assert "visits: real; mood: 2 ordered levels; shop: row label" in printed
    for bad, message in (
        (["--families", "visits"], "--families is written COLUMN=FAMILY"),
        (["--levels", "mood=bad"], "--levels is written COLUMN=LOWEST,...,HIGHEST"),
        (["--id", "shopp"], "id names no column: 'shopp'; there are visits, mood, shop"),
        (
            ["--standardize"],
            "mixture has no field standardize: its default priors are as wide as each column",
        ),
    ):
        assert main(["fit", "mixture", "table.csv", *bad]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.slow
def test_whole_numbers_as_outputs_are_asked_about():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 60)
    x = pd.DataFrame(rng.normal(size=(60, 4)) + labels[:, None])
    y = pd.DataFrame({"kind": labels})
    model = zoo.SPPCA(num_latents=1)
    settings = {"method": "closed_form"}
    with pytest.warns(
        UserWarning, match=r"the column 'kind', holds 3 different whole numbers.*'categorical'"
    ):
        numbers = inference.fit(model, x, y, **settings)
    assert numbers["posterior"].sizes["output"] == 1
    tree = inference.fit(model, x, y, families={"kind": "categorical"}, **settings)
    assert inference.model_of(tree).classes == (0, 1, 2)
    assert np.isfinite(inference.log_density(tree, x, y)).all()
    inference.fit(model, x, y, families={"kind": "gaussian"}, **settings)  # no question
