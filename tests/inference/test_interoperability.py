"""ArviZ reads our trees, NumPyro runs our samplers and programs, pandas goes in and comes out.

Chains are short: what is asked is that the pieces fit, and where two ways give one number, that they agree.
"""

import arviz
import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import pandas as pd
import pytest

import inference
import zoo

RNG = np.random.default_rng(0)
DATA = {"epca": RNG.integers(0, 2, size=(24, 5)), "lda": RNG.poisson(1.0, size=(10, 6))}
MODELS = {"epca": zoo.EPCA(num_latents=1), "lda": zoo.LDA(num_topics=2)}
VARIABLE = {"epca": "loc", "lda": "topic_word_probs"}
ROWS = {"epca": "observation", "lda": "document"}

pytestmark = pytest.mark.filterwarnings("ignore")  # ArviZ on the state of short chains


@pytest.fixture(scope="module", params=list(MODELS))
def case(request):
    """Name and fit by Gibbs, with the log prior of every draw."""
    name = request.param
    tree = inference.fit(
        MODELS[name], DATA[name], method="gibbs", num_chains=2, num_warmup=50, num_samples=100
    )
    return name, inference.extend(tree, "log_prior")


def test_loo_and_compare(case):
    name, tree = case
    loo = arviz.loo(tree, pointwise=True)
    assert loo.n_data_points == tree["log_likelihood"].sizes[ROWS[name]] == len(DATA[name])
    table = arviz.compare({"one": tree, "same": tree})
    np.testing.assert_allclose(table["elpd"].to_numpy(float), loo.elpd, rtol=0.02)


def test_sensitivity_to_the_prior(case):
    """The log prior is that of the draws: scaled by a power, it must matter to the parameters it is of."""
    name, tree = case
    table = arviz.psense_summary(tree, var_names=[VARIABLE[name]])
    cells = tree["posterior"][VARIABLE[name]].isel(chain=0, draw=0).size
    assert len(table) == cells and {"prior", "likelihood"} <= set(table.columns)
    assert (pd.to_numeric(table["prior"]) >= 0).all() and pd.to_numeric(table["prior"]).max() > 0


@pytest.mark.parametrize("plot", ["plot_trace", "plot_rank", "plot_forest"])
def test_pictures(case, plot):
    name, tree = case
    pictures = getattr(arviz, plot)(tree, var_names=[VARIABLE[name]])
    assert type(pictures).__name__ == "PlotCollection"
    assert any(VARIABLE[name] in node.data_vars for node in pictures.viz.subtree)
    plt.close("all")


def test_summary_agrees_with_ours(case):
    name, tree = case
    table = arviz.summary(tree, var_names=[VARIABLE[name]], round_to="none")
    means = tree["posterior"][VARIABLE[name]].mean(("chain", "draw")).to_numpy().ravel()
    np.testing.assert_allclose(table["mean"].to_numpy(float), means, rtol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_numpyro_runs_our_sampler(name):
    model = MODELS[name].filled(DATA[name])
    kernel = inference.gibbs.kernel(model)
    mcmc = numpyro.infer.MCMC(kernel, num_warmup=5, num_samples=7, progress_bar=False)
    mcmc.run(jax.random.key(0), DATA[name])
    draws = mcmc.get_samples()[VARIABLE[name]]
    assert draws.shape[0] == 7 and np.ptp(np.asarray(draws), axis=0).max() > 0


@pytest.mark.parametrize("name", MODELS)
def test_numpyro_predicts_from_our_program(name):
    """Draws of the prior by NumPyro's own Predictive: sites, shapes and the domain of the data."""
    data = DATA[name]
    model = MODELS[name].filled(data)
    drawn = numpyro.infer.Predictive(model, num_samples=3)(jax.random.key(1), num_observations=len(data))
    site = model.data_names[0]
    assert drawn[site].shape == (3, *data.shape) and VARIABLE[name] in drawn
    cells = np.asarray(drawn[site])
    assert np.isfinite(cells).all() and (cells >= 0).all() and (cells == np.round(cells)).all()


def test_pandas_goes_in_and_comes_out():
    rows, columns = [f"site {i}" for i in range(24)], list("abcde")
    table = pd.DataFrame(DATA["epca"], index=rows, columns=columns)
    tree = inference.fit(zoo.PPCA(num_latents=1), table, method="closed_form")
    scores = inference.transform(tree, table.iloc[:3]).to_pandas()
    assert list(scores.index) == rows[:3] and scores.shape == (3, 1)
    assert list(inference.predict(tree, table.iloc[:3]).to_pandas().columns) == columns
    shuffled = inference.transform(tree, table.iloc[:3][columns[::-1]]).to_pandas()
    pd.testing.assert_frame_equal(shuffled, scores)
