"""ArviZ takes what `for_arviz` makes of a fit: every model by every method that draws."""

import time

import arviz
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

import inference
import zoo
from inference.diagnostics import for_arviz
from inference.symmetry import relabel
from tests.support.fit_cases import CASES, SETTINGS

POINTS = ("closed_form", "em", "map", "ep", "morp", "kernel_cca")
DRAWING = [name for name in CASES if len(name.split()) == 2 and name.split()[1] not in POINTS]
POINT_FITS = ("mixture em", "plsi em", "paired closed_form", "epca map", "depcam em", "sppca ep")
QUICK = ("mixture vb", "mixture gibbs", "ppca vb", "lda gibbs")
ENOUGH = {"num_samples": 60}  # draws of a chain that Pareto smoothing can be fitted to
UNWEIGHED = {  # parameters at one value, and a flat prior: densities that are the same in all draws
    **dict.fromkeys(("loo", "compare", "plot_loo_pit"), ("depcam vb",)),
    "plot_psense_dist": ("depcam vb", "plsi nuts", "plsi hmc", "plsi svi"),
}
NOT_REPLICATED = ("kernelpca",)  # the data are a Gram matrix

CALLS = {
    "summary": arviz.summary,
    "plot_trace_dist": arviz.plot_trace_dist,
    "loo": arviz.loo,
    "compare": lambda tree: arviz.compare({"one": tree, "same": tree}),
    "plot_psense_dist": arviz.plot_psense_dist,
    "plot_loo_pit": arviz.plot_loo_pit,
}
pytestmark = pytest.mark.filterwarnings("ignore")  # ArviZ on the state of short chains


def drawn(name, **options):
    """A fit of the case with draws enough."""
    make, data, method, given = CASES[name]
    settings = SETTINGS.get(method, {"max_iterations": 8, "tolerance": 0, "num_restarts": 1})
    settings = settings | ({"num_restarts": 1} if method == "vb" else {})
    return inference.fit(make(), *data, method=method, progress=False, **settings | ENOUGH | given | options)


@pytest.fixture(
    scope="module",
    params=[
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in sorted(DRAWING, key=lambda name: name not in QUICK)
    ],
)
def case(request):
    """Name, fit, and what `for_arviz` makes of it."""
    tree = drawn(request.param)
    return request.param, tree, for_arviz(tree)


def left_out(name, call, ready):
    """Whether what the call reads is left out, with its reason."""
    needed = {
        "loo": ("log_likelihood",),
        "compare": ("log_likelihood",),
        "plot_psense_dist": ("log_likelihood", "log_prior"),
        "plot_loo_pit": ("log_likelihood", "observed_data", "posterior_predictive"),
    }
    absent = [group for group in needed.get(call, ()) if group not in ready.children]
    assert all(group in ready.attrs["not_made"] for group in absent)
    return bool(absent) and (name.split()[0] in NOT_REPLICATED or name in UNWEIGHED.get(call, ()))


@pytest.mark.parametrize("call", CALLS)
def test_arviz_takes_what_for_arviz_makes(case, call):
    name, _, ready = case
    if left_out(name, call, ready):
        return
    with arviz.rc_context({"plot.max_subplots": 60}):
        assert CALLS[call](ready) is not None
    plt.close("all")


def test_nothing_is_by_row_or_constant_and_one_outcome_is_a_row(case):
    name, tree, ready = case
    posterior = ready["posterior"].to_dataset()
    assert posterior.data_vars and not {"observation", "document"} & set(posterior.dims)
    for value in posterior.data_vars.values():
        assert (value.max("draw") > value.min("draw")).any("chain").all()
        assert np.isfinite(value).all()
    if name.split()[0] in NOT_REPLICATED:
        return
    if name in UNWEIGHED["loo"]:
        assert "log_likelihood: the same in all draws" in ready.attrs["not_made"]
        return
    (site,) = ready["log_likelihood"].data_vars
    rows = tree["log_likelihood"]["log_likelihood"]
    xr.testing.assert_equal(ready["log_likelihood"][site].variable, rows.variable)
    assert ready["observed_data"][site].dims == rows.dims[2:]
    assert ready["posterior_predictive"][site].dims == rows.dims
    if name in UNWEIGHED["plot_psense_dist"]:
        return
    made = inference.extend(tree, "log_prior")["log_prior"]["log_prior"]
    np.testing.assert_allclose(ready["log_prior"]["log_prior"], made, rtol=1e-8, atol=1e-6)


def test_replications_are_drawn_when_they_are_read():
    tree = drawn("ppca vb")
    began = time.process_time()
    ready = for_arviz(tree, column=1, seed=3)
    assert time.process_time() - began < 1.0  # nothing is compiled: 0.03 s
    whole = inference.extend(tree, "posterior_predictive", seed=3)["posterior_predictive"]["x"]
    np.testing.assert_array_equal(ready["posterior_predictive"]["x"], whole[..., 1])
    np.testing.assert_array_equal(ready["posterior_predictive"]["x"][0, 2:5, 7], whole[0, 2:5, 7, 1])
    assert ready["observed_data"]["x"].attrs["column"] == "1"
    with pytest.raises(ValueError, match="no column 'nothing'"):
        for_arviz(tree, column="nothing")


def test_an_outcome_is_observed_in_every_row():
    x = np.array(CASES["mixture vb"][1][0])
    x[3, 0] = np.nan
    model = zoo.Mixture(components=zoo.conjugate.NormalGamma(), num_components=2)
    tree = inference.fit(model, x, method="vb", num_restarts=1, num_samples=20, progress=False)
    assert for_arviz(tree)["observed_data"]["x"].attrs["column"] == "1"
    with pytest.raises(ValueError, match="column 0 of x lacks 1 of 30 cells"):
        for_arviz(tree, column=0)


def test_relabelled_fits_keep_weights_and_locations_of_clusters_with_rows():
    tree = drawn("mixture gibbs", num_samples=100)
    aligned = relabel(tree)
    labels = aligned["posterior"]["assignments"]
    held = np.array([(labels == k).any("observation").all() for k in range(4)])
    assert 0 < held.sum() < 4, "the case has a cluster that is empty in some draws"
    posterior = for_arviz(aligned)["posterior"]
    assert posterior["weights"].sizes["mixture_component"] == 4
    np.testing.assert_array_equal(posterior["locs"], aligned["posterior"]["locs"].isel(component=held))
    assert "precisions" not in posterior
    assert "locs" not in for_arviz(tree)["posterior"]


@pytest.mark.parametrize(
    "name", ["ppca closed_form", *(pytest.param(name, marks=pytest.mark.slow) for name in POINT_FITS)]
)
def test_a_point_estimate_is_refused_with_the_reason(name):
    make, data, method, given = CASES[name]
    tree = inference.fit(make(), *data, method=method, progress=False, **given)
    with pytest.raises(
        ValueError, match=f"{method!r} gives a point estimate: .* fit by method=.*log_density"
    ):
        for_arviz(tree)


def test_a_run_of_one_draw_a_chain_is_refused_with_the_reason():
    x = np.random.default_rng(0).normal(size=(12, 2))
    chains = {"num_chains": 2, "num_warmup": 0, "num_samples": 1}
    with pytest.warns(UserWarning, match="1 draws per chain are too few"):
        tree = inference.fit(zoo.Mixture(num_components=2), x, method="gibbs", progress=False, **chains)
    with pytest.raises(ValueError, match="over 1 draws a chain .*nothing for ArviZ; run it longer"):
        for_arviz(tree)
