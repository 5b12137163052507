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
from inference.diagnostics import prior_sensitivity

RNG = np.random.default_rng(0)
BITS, COUNTS = RNG.integers(0, 2, size=(24, 5)), RNG.poisson(1.0, size=(10, 6))
PLANE = RNG.normal(size=(24, 1)) * [1.0, -1.0, 2.0] + 0.5 * RNG.normal(size=(24, 3))
# The default prior of the noise is so wide that draws of it overflow
PROPER_NOISE = {"loading_prior": "gaussian", "noise_concentration": 2.0, "noise_rate": 1.0}
# Model, data, sampler, a variable that every draw has
CASES = {
    "epca": (zoo.EPCA(num_latents=1), (BITS,), "gibbs", "loc"),
    "lda": (zoo.LDA(num_topics=2), (COUNTS,), "gibbs", "topic_word_probs"),
    "mixture": (zoo.Mixture.from_data(PLANE, num_components=2), (PLANE,), "gibbs", "locs"),
    "ppca": (zoo.PPCA(num_latents=1, **PROPER_NOISE), (PLANE,), "nuts", "loc"),
    "sppca": (
        zoo.SPPCA(num_latents=1, **PROPER_NOISE),
        (PLANE, PLANE[:, :1] + 0.1 * RNG.normal(size=(24, 1))),
        "nuts",
        "loc_x",
    ),
    "paired": (
        zoo.Paired.ecca(("bernoulli", "bernoulli"), 1, (1, 1)),
        (BITS, BITS[:, :3]),
        "gibbs",
        "loc_0",
    ),
    "depcam": (
        zoo.DEPCAM(num_components=2, num_latents=1, sparsity=1.0, offset_variance=1.0),
        (BITS,),
        "nuts",
        "offsets",
    ),
    "pcp": (zoo.PCP(num_topics=2, num_clusters=2), (COUNTS,), "collapsed_gibbs", "cluster_topic_probs"),
}
QUICK = ("lda",)
SLOWER = [name for name in CASES if name not in QUICK]
DOCUMENTS = ("lda", "pcp")

pytestmark = pytest.mark.filterwarnings("ignore")  # ArviZ on the state of short chains


def slow(names):
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.fixture(scope="module", params=[*QUICK, *slow(SLOWER)])
def case(request):
    """Name and fit by a sampler, with the log prior of every draw."""
    model, data, method, _ = CASES[request.param]
    tree = inference.fit(model, *data, method=method, num_chains=2, num_warmup=50, num_samples=100)
    return request.param, inference.extend(tree, "log_prior")


@pytest.mark.slow
def test_loo_and_compare(case):
    name, tree = case
    loo = arviz.loo(tree, pointwise=True)
    rows = "document" if name in DOCUMENTS else "observation"
    assert loo.n_data_points == tree["log_likelihood"].sizes[rows] == len(CASES[name][1][0])
    table = arviz.compare({"one": tree, "same": tree}, round_to="none")
    np.testing.assert_allclose(table["elpd"].to_numpy(float), loo.elpd)


@pytest.mark.slow
def test_sensitivity_to_the_prior(case):
    """The log prior is that of the draws: scaled by a power, it must matter to the parameters it is of."""
    name, tree = case
    variable = CASES[name][3]
    table = prior_sensitivity(tree, [variable], force=True)  # the fit is too short to have converged
    cells = tree["posterior"][variable].isel(chain=0, draw=0).size
    assert len(table) == cells and {"prior", "likelihood"} <= set(table.columns)
    assert (pd.to_numeric(table["prior"]) >= 0).all() and pd.to_numeric(table["prior"]).max() > 0
    if "component" not in tree["posterior"][variable].dims:  # a dimension that ArviZ calls its own there
        theirs = arviz.psense_summary(tree, var_names=[variable])
        np.testing.assert_array_equal(table["prior"], theirs["prior"])
        np.testing.assert_array_equal(table["likelihood"], theirs["likelihood"])


@pytest.mark.slow
def test_sensitivity_of_invariants(case):
    _, tree = case
    table = prior_sensitivity(tree, force=True)
    assert len(table) and not {"lp", "objective"} & set(table.index)
    assert np.isfinite(table[["prior", "likelihood"]].to_numpy(float)).all()


def test_sensitivity_is_asked_of_draws():
    point = inference.fit(zoo.PPCA(num_latents=1), PLANE, method="closed_form")
    with pytest.raises(ValueError, match="'closed_form' has none: fit by a sampler"):
        prior_sensitivity(point)


PICTURES = ["plot_trace", "plot_rank", "plot_forest"]
MORE_PICTURES = ["plot_ess", "plot_dist", "plot_autocorr", "plot_pair"]


@pytest.mark.parametrize("plot", [*PICTURES, *slow(MORE_PICTURES)])
def test_pictures(case, plot):
    name, tree = case
    variable = CASES[name][3]
    coords = {}
    if plot == "plot_pair":  # a panel for every two cells: of a few
        cells = tree["posterior"][variable].isel(chain=0, draw=0)
        coords = {dim: cells[dim].to_numpy()[:2].tolist() for dim in cells.dims}
    pictures = getattr(arviz, plot)(tree, var_names=[variable], coords=coords)
    if plot == "plot_pair":
        assert type(pictures).__name__ == "PlotMatrix" and "scatter" in pictures.viz
    else:
        assert type(pictures).__name__ == "PlotCollection"
        assert any(variable in node.data_vars for node in pictures.viz.subtree)
    plt.close("all")


@pytest.mark.slow
def test_energy_and_predictive_checks(case):
    name, tree = case
    if CASES[name][2] == "nuts":
        assert type(arviz.plot_energy(tree)).__name__ == "PlotCollection"
    site = CASES[name][0].data_names[0]
    predicted = inference.extend(tree, "posterior_predictive")
    assert predicted["posterior_predictive"][site].dims[:2] == ("chain", "draw")
    if name not in DOCUMENTS:  # whose observed counts are kept as the cells that are not zero
        assert type(arviz.plot_ppc_dist(predicted, var_names=[site])).__name__ == "PlotCollection"
    plt.close("all")


def test_summary_agrees_with_ours(case):
    name, tree = case
    table = arviz.summary(tree, var_names=[CASES[name][3]], round_to="none")
    means = tree["posterior"][CASES[name][3]].mean(("chain", "draw")).to_numpy().ravel()
    np.testing.assert_allclose(table["mean"].to_numpy(float), means, rtol=1e-10)


GIBBS = [name for name in SLOWER if "gibbs" in CASES[name][0].methods and name != "sppca"]  # probit only


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lda", *slow(["epca", *GIBBS])])
def test_numpyro_runs_our_sampler(name):
    model, data, _, variable = CASES[name]
    kernel = inference.gibbs.kernel(model.with_sizes_from(*data))
    mcmc = numpyro.infer.MCMC(kernel, num_warmup=5, num_samples=7, progress_bar=False)
    mcmc.run(jax.random.key(0), *data)
    draws = mcmc.get_samples()[variable]
    assert draws.shape[0] == 7 and np.ptp(np.asarray(draws), axis=0).max() > 0


PROPER = [name for name in SLOWER if name != "depcam"]  # whose prior has a factor


@pytest.mark.parametrize("name", [*QUICK, *slow(PROPER)])
def test_numpyro_predicts_from_our_program(name):
    """Draws of the prior by NumPyro's own Predictive: sites, shapes and the domain of the data."""
    model, data, _, variable = CASES[name]
    model = model.with_sizes_from(*data)
    drawn = numpyro.infer.Predictive(model, num_samples=3)(jax.random.key(1), num_observations=len(data[0]))
    site = model.data_names[0]
    assert drawn[site].shape == (3, *data[0].shape) and variable in drawn
    cells = np.asarray(drawn[site])
    assert np.isfinite(cells).all()
    if data[0] is not PLANE:
        assert (cells >= 0).all() and (cells == np.round(cells)).all()


def test_pandas_goes_in_and_comes_out():
    rows, columns = [f"site {i}" for i in range(24)], list("abcde")
    table = pd.DataFrame(BITS, index=rows, columns=columns)
    tree = inference.fit(zoo.PPCA(num_latents=1), table, method="closed_form")
    scores = inference.transform(tree, table.iloc[:3]).to_pandas()
    assert list(scores.index) == rows[:3] and scores.shape == (3, 1)
    assert list(inference.predict(tree, table.iloc[:3]).to_pandas().columns) == columns
    shuffled = inference.transform(tree, table.iloc[:3][columns[::-1]]).to_pandas()
    pd.testing.assert_frame_equal(shuffled, scores)
