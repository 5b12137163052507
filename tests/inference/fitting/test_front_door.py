"""`fit` refuses bad input before any compilation, and hands out what the contract promises."""

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr

import inference
import zoo
from inference import fit
from inference.diagnostics import leave_one_out, summary
from inference.numerics import weighted_rows
from zoo.conjugate import GaussianWishart


@pytest.fixture
def no_compilation(monkeypatch):
    """Any compiled work of the driver fails the test."""
    from inference.fitting import front_door

    def refuse(*args, **kwargs):
        raise AssertionError("the run had begun")

    monkeypatch.setattr(front_door, "plan", refuse)


def table(rows=20):
    return pd.DataFrame(np.random.default_rng(0).normal(size=(rows, 2)), columns=["a", "b"])


def with_cell(value, row=4, column="b"):
    x = table()
    x.loc[row, column] = value
    return x


BAD_DATA = {
    "empty column": (
        table().assign(b=np.nan).to_numpy(),
        ValueError,
        "of x is missing in all rows: leave it out",
    ),
    "infinity": (with_cell(-np.inf), ValueError, r"row 4, column 'b' is -inf"),
    "constant column": (
        table().assign(b=3.0).to_numpy(),
        ValueError,
        r"column 1 of x is constant \(3.0\)",
    ),
    "word among numbers": (
        table().astype(object).pipe(lambda x: x.assign(b=x["b"].mask(x.index == 4, "red"))),
        ValueError,
        "column 'b' holds numbers, but row 4 has 'red'",
    ),
    "text array": (np.array([["a", "b"], ["c", "d"]]), TypeError, "x must be numeric"),
    "no rows": (table(0), ValueError, "x must have at least 2 rows .*; got 0"),
    "one row": (table(1), ValueError, "x must have at least 2 rows .*; got 1"),
    "fewer rows than needed": (np.random.default_rng(0).normal(size=(4, 6)), ValueError, "at least 7 rows"),
    "one dimension": (
        np.arange(5.0),
        ValueError,
        r"x must have shape \(num_observations, num_features\); got \(5,\)",
    ),
    "no columns": (np.zeros((5, 0)), ValueError, "x has no columns"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_get_one_clear_message(case, no_compilation):
    x, error, message = BAD_DATA[case]
    with pytest.raises(error, match=message):
        fit(zoo.Mixture(num_components=2), x)


GOOD = GaussianWishart(loc=[0.0, 0.0], mean_precision=1.0, scale_matrix=np.eye(2), degrees_of_freedom=3.0)
BAD_CALLS = {
    "method": (
        {"method": "magic"},
        ValueError,
        "no method 'magic'; it has vb, gibbs, collapsed_gibbs, em, nuts",
    ),
    "option": ({"method": "nuts", "depth": 3}, TypeError, "no option 'depth'; it has .*max_tree_depth"),
    "vb option": ({"depth": 3}, TypeError, "no option 'depth'; it has sort_sticks, moves, learn"),
    "seed": ({"seed": -1}, ValueError, r"seed must be a whole number in \[0, 2\*\*32\)"),
    "chains": ({"num_chains": 0}, ValueError, "num_chains must be a whole number of at least 1; got 0"),
    "samples": ({"num_samples": 1.5}, ValueError, "num_samples must be a whole number"),
    "tolerance": ({"tolerance": -1.0}, ValueError, "tolerance must be a number of at least 0"),
    "chain method": (
        {"method": "gibbs", "chain_method": "threads"},
        ValueError,
        "chain_method must be one of vectorized",
    ),
    "strategy": ({"init": "magic"}, ValueError, "init must be one of mixed, random, kmeans"),
    "dict": (
        {"init": {"weights": np.ones(2)}},
        ValueError,
        "init must hold 'responsibilities' or 'assignments'",
    ),
    "shape": (
        {"init": {"responsibilities": np.ones((3, 2))}},
        ValueError,
        r"responsibilities must have shape \(20, 2\); got \(3, 2\)",
    ),
    "init": ({"init": 3}, TypeError, "init must be a strategy name, a former tree or a dict"),
    "dtype": ({"dtype": "float16"}, ValueError, "dtype must be 'float64' or 'float32'; got 'float16'"),
    "weights": (
        {"method": "collapsed_gibbs", "sample_weight": np.ones(20)},
        ValueError,
        "method 'collapsed_gibbs' of mixture does not take sample_weight",
    ),
    "batches": (
        {"batch_size": 5, "method": "gibbs"},
        ValueError,
        "'gibbs' of mixture does not take batch_size",
    ),
    "checkpoint folder": (
        {"checkpoint": "/no/such/folder/run"},
        ValueError,
        "the folder /no/such/folder does not exist",
    ),
    "checkpoint is a folder": ({"checkpoint": "/"}, ValueError, "it is a folder"),
    "svi guide": ({"method": "svi", "guide": "flow"}, ValueError, "guide must be one of normal"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_calls_get_one_clear_message(case):
    settings, error, message = BAD_CALLS[case]
    with pytest.raises(error, match=message):
        fit(zoo.Mixture(components=GOOD, num_components=2), table(), **settings)


def test_other_columns_than_the_prior_has_are_refused(no_compilation):
    with pytest.raises(ValueError, match="x must have 2 columns, as the component prior has; got 3"):
        fit(zoo.Mixture(components=GOOD), np.zeros((5, 3)))
    with pytest.raises(TypeError, match="there is no data"):
        fit(zoo.Mixture())
    with pytest.raises(TypeError, match="model must be a model of the zoo"):
        fit(dist.Normal(0, 1), table())


@pytest.mark.slow
def test_data_frame_labels_become_coords(vb_tree, two_clusters):
    assert list(vb_tree["observed_data"]["feature"].to_numpy()) == ["length", "width"]
    assert list(vb_tree["posterior"]["feature_2"].to_numpy()) == ["length", "width"]
    assert vb_tree["variational"]["observation"][3] == "row 3"
    np.testing.assert_array_equal(vb_tree["observed_data"]["x"], two_clusters.to_numpy())


@pytest.mark.slow
def test_unfilled_models_are_filled_and_stored(two_clusters):
    tree = fit(zoo.Mixture(num_components=2), two_clusters, num_samples=2)
    filled = inference.model_of(tree)
    np.testing.assert_allclose(filled.components.loc, two_clusters.mean())
    assert filled.num_components == 2


@pytest.mark.slow
def test_same_seed_same_answer_and_keys_are_seeds(small_model, two_clusters):
    call = {
        "method": "gibbs",
        "num_warmup": 5,
        "num_samples": 60,
        "num_chains": 2,
    }  # as the tests of resuming
    with pytest.warns(UserWarning, match="has not converged"):
        trees = [
            fit(small_model, two_clusters, seed=s, **call)
            for s in (5, 5, jax.random.key(5), jax.random.PRNGKey(5), 6)
        ]
    draws = [tree["posterior"]["locs"].to_numpy() for tree in trees]
    for other in draws[1:4]:
        np.testing.assert_array_equal(draws[0], other)
    assert not np.array_equal(draws[0], draws[4])


@pytest.mark.slow
def test_every_public_function_keeps_its_precision_inside_and_outside_the_users_context(
    small_model, two_clusters
):
    """In one process: outside, inside, outside a 64-bit context.

    All in float64, the user's setting untouched.
    """

    def everything():
        tree = fit(small_model, two_clusters, init="kmeans", num_samples=5, max_iterations=30, tolerance=1e-3)
        results = [inference.transform(tree, two_clusters), inference.log_density(tree, two_clusters)]
        extended = inference.extend(
            tree, "prior_predictive", "posterior_predictive", "log_prior", num_samples=3
        )
        results += [
            extended["prior_predictive"]["x"],
            extended["posterior_predictive"]["x"],
            extended["log_prior"]["log_prior"],
        ]
        results += [tree["posterior"]["locs"], inference.diagnostics.co_clustering(tree)]
        assert inference.predict(tree, two_clusters).dtype.kind == "i"
        assert all(np.isfinite(summary(tree)["mean"]))
        return [np.asarray(result) for result in results]

    outside = everything()
    assert jax.numpy.ones(1).dtype == np.float32
    with jax.enable_x64(True):
        inside = everything()
    again = everything()
    for one, two, three in zip(outside, inside, again, strict=True):
        assert one.dtype == np.float64
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


@pytest.mark.slow
def test_a_former_fit_is_a_start(small_model, two_clusters, vb_tree, gibbs_tree):
    again = fit(small_model, two_clusters, init=vb_tree, num_samples=5)
    assert again["trace"]["objective"][0] >= vb_tree["trace"]["objective"].max() - 1e-9
    from_draws = fit(small_model, two_clusters, init=gibbs_tree, num_samples=5)
    assert np.isfinite(from_draws["trace"]["objective"]).all()
    with pytest.warns(UserWarning, match="has not converged"):
        gibbs = fit(small_model, two_clusters, method="gibbs", init=vb_tree, num_warmup=0, num_samples=5)
        nuts = fit(
            small_model, two_clusters, method="nuts", init=vb_tree, num_warmup=5, num_samples=5, num_chains=2
        )
    assert (
        gibbs["trace"]["objective"].isel(iteration=0).min() > -240
    )  # the prior's own draws lie hundreds of nats lower
    assert np.isfinite(nuts["sample_stats"]["lp"]).all()
    with pytest.raises(ValueError, match="must hold every site of the program; missing: .*weights"):
        fit(small_model, two_clusters, method="nuts", init={"concentration": 1.0})


@pytest.mark.slow
def test_rows_are_left_out_when_they_are_too_many_and_kept_when_asked(small_model, two_clusters, monkeypatch):
    monkeypatch.setattr(weighted_rows, "ROW_BYTES", 1000)
    call = {"num_samples": 30, "max_iterations": 10, "tolerance": 0, "num_restarts": 1}
    tree = fit(small_model, two_clusters, **call)
    assert tree.attrs["left_out"] == "assignments, log_likelihood, responsibilities"
    assert "assignments" not in tree["posterior"] and "log_likelihood" not in tree.children
    again = inference.extend(tree, "assignments", "log_likelihood")
    assert again["posterior"]["assignments"].shape == (1, 30, 60)
    assert again["log_likelihood"]["log_likelihood"].shape == (1, 30, 60)
    del tree["observed_data"]  # as of data that were too large
    with pytest.raises(ValueError, match="observed_data', \\*data"):
        inference.extend(tree, "log_likelihood")
    passed = inference.extend(tree, "log_likelihood", two_clusters)
    xr.testing.assert_allclose(passed["log_likelihood"].to_dataset(), again["log_likelihood"].to_dataset())
    assert "observed_data" not in passed.children and "log_likelihood" not in passed.attrs["left_out"]
    assert "observed_data" in inference.extend(tree, "observed_data", two_clusters).children
    keep = ("assignments", "log_likelihood", "responsibilities")
    kept = fit(small_model, two_clusters, keep=keep, **call)
    assert kept.attrs["left_out"] == "" and "assignments" in kept["posterior"]
    with pytest.raises(ValueError, match="the fit is of 60 rows; got 9"):
        inference.extend(kept, "observed_data", two_clusters[:9])


@pytest.mark.slow
def test_what_takes_more_passes_than_the_fit_is_made_on_demand(small_model, two_clusters, monkeypatch):
    """By sizes alone: rows times draws times components, unless the fit passed over the rows as often."""
    sizes = 60 * small_model.num_components
    call = {"num_samples": 30, "max_iterations": 10, "tolerance": 0, "num_restarts": 1}
    monkeypatch.setattr(weighted_rows, "ROW_OPERATIONS", 30 * sizes)
    full = fit(small_model, two_clusters, **call)
    assert full.attrs["left_out"] == ""
    monkeypatch.setattr(weighted_rows, "ROW_OPERATIONS", 30 * sizes - 1)
    lean = fit(small_model, two_clusters, **call)
    assert lean.attrs["left_out"] == "assignments, log_likelihood"
    long = fit(small_model, two_clusters, **call | {"max_iterations": 30})
    assert long.attrs["left_out"] == ""
    assert "mean_log_likelihood" in summary(lean).index  # asked for, so it is made
    np.testing.assert_allclose(
        leave_one_out(lean).elpd, leave_one_out(inference.extend(lean, "log_likelihood")).elpd
    )
    assert "log_likelihood" not in lean.children
