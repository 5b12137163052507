"""The numbers of shared and specific latents of several views, by bound, ARD and held-out density."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import inference
import zoo
from inference.calibration import elbo_check
from inference.cli import main
from inference.diagnostics import model_size
from inference.precision import in_precision
from inference.report import report
from inference.symmetry.identified import canonical_correlations
from tests.support.log_joint import log_joint
from zoo.answers import start_of
from zoo.exponential_family import Gaussian

UNKNOWN = Gaussian(None)
FIELDS = {"families": (UNKNOWN, UNKNOWN)}


def two_views(num_rows=80, seed=0, exchanged=False):
    """One shared latent and one of each view; with ``exchanged`` rows nothing is shared, two are specific."""
    rng = np.random.default_rng(seed)
    shared, *own = (rng.normal(size=(num_rows, 1)) for _ in range(3))
    views = [
        shared @ rng.normal(size=(1, d)) + z @ rng.normal(size=(1, d)) + 0.4 * rng.normal(size=(num_rows, d))
        for d, z in zip((5, 4), own, strict=True)
    ]
    return (views[0], views[1][rng.permutation(num_rows)]) if exchanged else tuple(views)


def bound_of(tree):
    return float(tree["trace"]["objective"][-1])


@pytest.mark.slow
def test_without_shared_latents_the_program_is_that_of_each_view():
    """Density and, view by view, its parts; planted: a view's latents in the other view's place."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(9, 4)), rng.integers(0, 2, size=(9, 3)).astype(float)
    families = UNKNOWN, "bernoulli"
    model = zoo.Paired.from_data(*x, families=families, num_shared=0, num_specific=(2, 1))
    alone = [
        zoo.EPCA.from_data(own, family=family, num_latents=k)
        for own, family, k in zip(x, families, (2, 1), strict=True)
    ]
    with in_precision():
        data = tuple(map(jnp.asarray, x))
        values = start_of(model, jax.random.key(1), *data)
        parts = [
            {"latents": values["latents"][:, :2], "loadings": values["loadings_0"][:, :2]},
            {"latents": values["latents"][:, 2:], "loadings": values["loadings_1"][:, 2:]},
        ]
        for v, own in enumerate(parts):
            own |= {
                name: values[f"{name}_{v}"] for name in ("loc", "noise_variance") if f"{name}_{v}" in values
            }
        whole = log_joint(model, values, *data)
        sums = [
            sum(log_joint(m, own, y) for m, y, own in zip(alone, data, each, strict=True))
            for each in (parts, [parts[0] | {"latents": values["latents"][:, 1:]}, parts[1]])
        ]
    np.testing.assert_allclose(whole, sums[0], rtol=1e-12)
    assert abs(float(whole - sums[1])) > 1e-3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_shared": []}, "num_shared is empty"),
        ({"num_shared": [0], "num_specific": [0]}, "with num_shared=0 every view needs a latent of its own"),
        ({"num_shared": [0], "num_specific": [(1, 0)]}, "with num_shared=0 every view needs a latent"),
        ({"num_shared": [9]}, "there can be at most as many latents as the columns of all views, 9"),
        ({"num_specific": [5]}, "num_specific of view 1 must be at most its number of columns, 4"),
        ({"num_specific": [(1, 1, 1)]}, "num_specific must have one number for each of the 2 views"),
        ({"fields": {"ard": True}}, "ard is chosen here: leave it out of fields"),
        ({"folds": -1}, "folds must be a whole number, 0 to leave held-out rows out; got -1"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_fitted(given, message, monkeypatch):
    monkeypatch.setattr(model_size, "fit", None)
    call = {"fields": FIELDS, "num_shared": (1,), "num_specific": (1,)} | given
    with pytest.raises(ValueError, match=message):
        inference.choose_shared_and_specific(*two_views(20), **call)


def test_the_answers_are_those_of_the_table(monkeypatch):
    """Planted bounds and loadings: the largest bound, and the latents that relevance determination keeps."""
    bounds = {(0, 1): -9.0, (0, 2): -5.0, (1, 0): -8.0, (1, 1): -3.0, (1, 2): -4.0}

    def fitted(model, *views, **settings):
        assert settings["method"] == "vb" and settings["num_restarts"] == 5
        k = model.num_latents
        kept = {0: [2.0, 0.0, 1.0, 0.0, 0.0], 1: [0.0, 0.0, 0.0, 1.0, 1.0]}
        q = {f"loadings_covariance_{v}": (("d", "k", "l"), 0.01 * np.eye(k)[None]) for v in (0, 1)}
        if model.ard:
            q |= {f"loadings_mean_{v}": (("d", "k"), np.array([kept[v]])) for v in (0, 1)}
        objective = -1.0 if model.ard else bounds[model.num_shared, model.num_specific[0]]
        trace = xr.Dataset({"objective": ("iteration", [-99.0, objective, np.nan])})
        tree = xr.DataTree.from_dict({"trace": trace, "variational": xr.Dataset(q)})
        tree.attrs["converged"] = int(model.num_shared)
        return tree

    monkeypatch.setattr(model_size, "fit", fitted)
    table = inference.choose_shared_and_specific(
        *two_views(20), num_shared=(1, 0), num_specific=(0, 1, 2), folds=0, fields=FIELDS
    )
    assert table["bound"].to_dict() == bounds and table.index.names == ["num_shared", "num_specific"]
    assert table["not_converged"].tolist() == [1, 1, 0, 0, 0]
    assert table.attrs["by_bound"] == (1, 1) and table.attrs["by_ard"] == (1, (1, 2))
    said = "bound: 1 shared, 1 specific; ARD, offered 1 and 2: 1 shared, (1, 2) specific; num_shared above 1"
    assert table.attrs["note"].startswith(f"{said} was not tried")


def test_held_out_rows_have_an_answer_of_their_own_and_no_view_is_left_without_latents(monkeypatch):
    """Planted scores: the bound is largest for one pair; held-out rows ask for fewer loadings."""

    def scored(models, *views, **settings):
        assert settings["folds"] == 3 and settings["method"] == "vb"
        heldout = np.array([-0.5, -0.2, -0.21])
        columns = {"bound": [-1.0, -2.0, -3.0], "heldout": heldout, "difference": heldout + 0.2}
        errors = {"standard_error": 0.1, "difference_error": 0.05, "not_converged": 0}
        return pd.DataFrame(columns | errors, index=list(models))

    monkeypatch.setattr(model_size, "cross_validate", scored)
    monkeypatch.setattr(model_size, "fit", lambda *args, **settings: None)
    monkeypatch.setattr(model_size, "_num_relevant", lambda tree, model: (1, (1, 0)))
    table = inference.choose_shared_and_specific(
        *two_views(20), num_shared=(0, 1), num_specific=((1, 1), (1, 0)), folds=3, fields=FIELDS
    )
    assert list(table.index) == [(0, (1, 1)), (1, (1, 1)), (1, (1, 0))]
    assert table.attrs["by_bound"] == (0, (1, 1)) and table.attrs["by_heldout"] == (1, (1, 0))
    assert "held-out density: 1 shared, (1, 0) specific; num_shared above 1 was" in table.attrs["note"]


@pytest.mark.slow
def test_the_three_answers_find_the_truth_and_the_bound_that_nothing_is_shared():
    """One shared and one specific latent by all; of exchanged rows none shared, two specific, by the bound.

    Bounds differ by 28 nats and more from the next; ARD keeps a shared latent for one view, as is said of it.
    """
    candidates = {"num_shared": (0, 1, 2), "num_specific": (1, 2), "fields": FIELDS, "max_iterations": 5000}
    table = inference.choose_shared_and_specific(*two_views(), folds=2, **candidates)
    assert len(table) == 6 and np.isfinite(table).all(axis=None) and not table["not_converged"].any()
    assert table.attrs["by_bound"] == (1, 1) and table.attrs["by_ard"] == (1, (1, 1))
    shared, specific = table.attrs["by_heldout"]
    assert shared >= 1 and specific >= 1  # the density asks for prediction: one too many costs it little
    assert table["bound"].nlargest(2).diff().iloc[-1] < -10
    other = inference.choose_shared_and_specific(*two_views(exchanged=True), folds=0, **candidates)
    assert other.attrs["by_bound"] == (0, 2) and list(other.columns) == ["bound", "not_converged"]
    assert sum(other.attrs["by_ard"][1]) + other.attrs["by_ard"][0] == 4


@pytest.mark.slow
def test_the_bound_without_shared_latents():
    """It is the Monte Carlo ELBO of program and guide, 4 standard errors of 4000 particles: 6e-5.

    And the sum of the bounds of `zoo.EPCA` of each view, which start elsewhere: to 1e-3 nats.
    """
    views, k = two_views(30), (2, 1)
    settings = {
        "method": "vb",
        "num_samples": 1,
        "tolerance": 1e-10,
        "max_iterations": 5000,
        "num_restarts": 5,
    }
    tree = inference.fit(zoo.Paired(**FIELDS, num_shared=0, num_specific=k), *views, **settings)
    alone = [
        inference.fit(zoo.EPCA(UNKNOWN, num_latents=own), y, **settings)
        for own, y in zip(k, views, strict=True)
    ]
    assert abs(bound_of(tree) - sum(map(bound_of, alone))) < 1e-3
    model = inference.model_of(tree)
    verdict = elbo_check(
        model, inference.guide(tree), bound_of(tree), views, key=jax.random.key(0), num_particles=4000
    )
    assert verdict.passed, verdict
    assert abs(verdict.estimate - verdict.bound - 1.0) > verdict.threshold * verdict.standard_error  # planted


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*has not converged")  # chains are short: what is asked of fits is tested
@pytest.mark.parametrize("method", ["map", "gibbs", "nuts"])
def test_views_without_shared_latents_are_fitted_and_reported(method, tmp_path):
    views = [
        pd.DataFrame(y, columns=[f"{name}{i}" for i in range(y.shape[1])])
        for name, y in zip("ab", two_views(30), strict=True)
    ]
    model = zoo.Paired(**FIELDS, num_shared=0, num_specific=(1, 1))
    settings = {} if method == "map" else {"num_warmup": 200, "num_samples": 100, "num_chains": 2}
    tree = inference.fit(model, *views, method=method, **settings)
    assert inference.transform(tree, *views).shape == (30, 2)
    assert inference.diagnostics.profiles(
        tree
    ) and "canonical_correlations" not in inference.diagnostics.profiles(tree)
    with pytest.raises(ValueError, match="the views share no latents"):
        canonical_correlations(tree)
    assert report(tree, tmp_path / "report.html").stat().st_size > 1000


@pytest.mark.slow
def test_the_command_sweeps_shared_latents_with_their_bounds(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = np.column_stack(two_views())
    pd.DataFrame(table, columns=list("abcdefghi")).to_csv("views.csv", index=False)
    call = ["sweep", "paired", "views.csv", "--views", "a:e", "f:i", "--method", "vb", "--folds", "2"]
    assert main([*call, "--sizes", "num_shared=0:2", "--set", "num_specific=1,1", "--out", "sweep.csv"]) == 0
    said = capsys.readouterr().out
    assert "bound: on the log evidence of all rows" in said
    found = pd.read_csv("sweep.csv", index_col=0)
    assert list(found.index) == [0, 1, 2] and found["bound"].idxmax() == 1
    assert main([*call, "--sizes", "num_shared=-1:2"]) == 2
    assert "--sizes takes FIRST:LAST or numbers with commas, at least 0" in capsys.readouterr().err
