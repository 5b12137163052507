"""Diagnostics, symmetry, pictures and report on fits as the front door makes them, saved and loaded."""

import warnings

import numpy as np
import pytest

import zoo
from inference import fit, load, save
from inference.diagnostics import co_clustering, heldout, judge, occupied, summary
from inference.plots import plot_objective, plot_psrf_path
from inference.report import report
from inference.report.run import _command
from inference.symmetry import relabel

SETTINGS = {
    "vb": {"num_samples": 100, "num_restarts": 2},
    "gibbs": {"num_chains": 2, "num_warmup": 400, "num_samples": 100},
}


@pytest.fixture(scope="module")
def two_groups():
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(size=(25, 2)), [8.0, 0.0] + rng.normal(size=(15, 2))])


@pytest.fixture(scope="module", params=sorted(SETTINGS))
def saved(request, two_groups, tmp_path_factory):
    model = zoo.Mixture.from_data(two_groups, num_components=2, concentration=2.0)
    path = tmp_path_factory.mktemp("fits") / f"{request.param}.nc"
    with warnings.catch_warnings():  # 100 draws may or may not pass for converged
        warnings.filterwarnings("ignore", message=".*has not converged")
        save(fit(model, two_groups, method=request.param, progress=False, **SETTINGS[request.param]), path)
    return path


@pytest.mark.slow
def test_two_groups_are_found_and_judged(saved):
    tree = load(saved)
    assert occupied(tree).attrs["mode"] == 2
    together = co_clustering(tree).values
    assert together[:25, :25].min() > 0.9 > 0.1 > together[:25, 25:].max()
    table = summary(tree)
    if tree.attrs["method"] == "gibbs":
        assert judge(tree)[0] == bool(tree.attrs["converged"])
        assert "r_hat" in table and plot_psrf_path(tree).axes
    else:
        assert "r_hat" not in table
    assert table.loc["sorted_weights[1]", "mean"] == pytest.approx(26 / 42, abs=0.05)  # Dirichlet(1, 1) prior


@pytest.mark.slow
def test_relabelled_fits_are_still_fits(saved, two_groups, tmp_path):
    after = relabel(load(saved))
    locs = after["posterior"]["locs"].mean(("chain", "draw")).values
    np.testing.assert_allclose(locs, [two_groups[:25].mean(0), two_groups[25:].mean(0)], atol=0.5)
    save(after, tmp_path / "relabelled.nc")
    assert relabel(load(tmp_path / "relabelled.nc"))["posterior"].identical(after["posterior"])
    inside, outside = heldout(after, two_groups[:5]), heldout(after, two_groups[:5] + [4.0, 9.0])
    assert float(inside["mean"]) > float(outside["mean"]) + 3.0


@pytest.mark.slow
def test_the_report_of_a_fit(saved, tmp_path):
    tree = load(saved)
    text = report(tree, tmp_path / "fit.md").read_text(encoding="utf-8")
    for expected in ("num_components", "GaussianWishart", "numpyro", "feature 1: largest"):
        assert expected in text
    assert plot_objective(tree).axes


@pytest.mark.cases_by_default(1)
def test_the_recipe_in_the_report_makes_the_same_fit(saved):
    names = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*has not converged")
        exec(_command(load(saved)).replace("FIT.nc", str(saved)), names)
    assert names["tree"]["posterior"].identical(load(saved)["posterior"])
