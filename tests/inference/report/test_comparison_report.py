"""Several fits on one page: what may be compared, whether methods agree, and the page itself."""

import itertools

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import inference
import zoo
from inference.cli import main
from inference.diagnostics.comparison import (
    agreement,
    check_fits,
    compare,
    differences,
    leave_one_out,
    same_posterior,
)
from inference.fitting.verdict import Judgement, convergence_judgements
from inference.plots.comparison import plot_agreement, plot_scores
from inference.report import report_comparison
from inference.report.comparison import _agreed, _fitted, _held_out, _pair_verdict
from tests.support.html_page import Page
from tests.support.planted import planted_mixture, planted_zoo, replaced, variational_mixture


def part(tree, **index):
    """The fit with some of its draws only."""
    groups = {name: child.to_dataset() for name, child in tree.children.items()}
    groups = {name: g.isel({d: i for d, i in index.items() if d in g.dims}) for name, g in groups.items()}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=tree.attrs)} | groups)


@pytest.fixture(scope="module", autouse=True)
def of_planted_models():
    with planted_zoo():
        yield


@pytest.fixture(scope="module")
def three():
    """Two independent pairs of chains, as two samplers' fits of one posterior, and one by VB."""
    whole = planted_mixture(num_chains=4, num_draws=250)
    whole.attrs |= {"model_fields": '{"num_components": 5}', "stop_reason": "completed"}
    vb = variational_mixture()
    vb.attrs |= {"model_fields": whole.attrs["model_fields"], "stop_reason": "gain below tolerance"}
    halves = {"first": slice(0, 2), "second": slice(2, 4)}
    return {name: part(whole, chain=chains) for name, chains in halves.items()} | {"vb": vb}


@pytest.fixture(scope="module")
def text(three, tmp_path_factory):
    path = tmp_path_factory.mktemp("several") / "page.html"
    assert report_comparison(three, path) == path
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]
    return path.read_text(encoding="utf-8")


def test_the_page_is_whole_and_alone(text):
    page = Page(text)
    page.assert_needs_no_other()
    assert page.headings[:3] == ["Agreement", "Prediction", "Fits"]
    assert page.headings[3:] == ["Fit first", "Fit second", "Fit vb"]
    assert len(page.links) == 7 and len(page.alts) == 1
    assert page.verdicts and all("Why: " in verdict and "Next: " in verdict for verdict in page.verdicts)
    for caption in ("The fits", "Leave-one-out (PSIS-LOO)", "Invariants: mean"):
        assert any(own.startswith(caption) for own in page.captions), caption


def test_fits_of_one_model_are_not_ranked(text):
    """A q that is too narrow has the higher score by construction: the difference is of the approximation."""
    assert Page(text).front.startswith("Caution Same model, so differences are of the methods")
    assert "predicts best" not in text and "a difference in score is of the approximation" in text


def test_nothing_is_ranked_over_a_fit_that_has_not_converged(three, tmp_path):
    """Neither on the first screen nor below it is anything green or said to be best."""
    other = replaced(three["second"])
    other.attrs |= {"model_fields": '{"num_components": 4}', "converged": 0, "stop_reason": "completed"}
    page = report_comparison({"five": three["first"], "four": other}, tmp_path / "page.html")
    page = Page(page.read_text(encoding="utf-8"))
    assert page.state == "open" and "No verdict yet: four has not converged" in page.front
    assert page.facts["Converged"] == "five: yes, four: NO"
    assert "predicts best" not in page.text and "cannot be told apart" not in page.text
    assert [words for kind, words in page.judged if kind == "good" and "chains agree" not in words] == []
    other.attrs["converged"] = 1
    page = report_comparison({"five": three["first"], "four": other}, tmp_path / "page.html")
    assert "five and four cannot be told apart" in Page(page.read_text(encoding="utf-8")).front
    other = other.copy(deep=True)
    other["log_likelihood"].attrs["latents"] = "drawn"
    densities = other["log_likelihood"]["log_likelihood"]
    densities[..., 0] -= np.random.default_rng(0).exponential(3.0, densities.shape[:2])
    page = Page(
        report_comparison({"five": three["first"], "four": other}, tmp_path / "page.html").read_text()
    )
    assert "No ranking by leave-one-out" in page.text and "densities of four are given" in page.text
    assert "predicts best" not in page.text and "cannot be told apart" not in page.text


def test_samplers_of_one_posterior_agree(three):
    """Differences over four standard errors: by chance 6e-5 an invariant."""
    table = agreement(three)
    assert {"num_occupied", "same_cluster", "concentration"} <= set(table.index)
    assert not {"lp", "objective"} & set(table.index)
    assert (table["first", "mcse"] <= table["first", "sd"]).all()
    gaps = differences(table, "first", "second")
    assert gaps["standard_errors"].abs().max() < 4
    assert gaps.loc["same_cluster", "posterior_sds"] == pytest.approx(
        (table.loc["same_cluster", ("second", "mean")] - table.loc["same_cluster", ("first", "mean")])
        / max(table.loc["same_cluster", ("second", "sd")], table.loc["same_cluster", ("first", "sd")])
    )


def _fits(trees):
    return _fitted(trees, {name: convergence_judgements(tree) for name, tree in trees.items()}, [])


def _verdicts(section):
    return [block for block in section.blocks if isinstance(block, Judgement)]


def test_a_sampler_that_is_off_is_found(three):
    """The draws of one parameter moved by half its posterior standard deviation."""
    posterior = three["first"]["posterior"].to_dataset().copy(deep=True)
    posterior["concentration"] += 0.5 * float(posterior["concentration"].std())
    off = {"second": three["second"], "moved": replaced(three["first"], posterior=posterior)}
    (found,) = _agreed(off, [])[1]
    assert found.good is False and "DISAGREE" in found.text and "(concentration)" in found.reason
    (found,) = _agreed({name: three[name] for name in ("second", "first")}, [])[1]
    assert found.good is True and found.text == "second and first agree"


def test_constants_are_apart_only_if_they_differ():
    columns = pd.MultiIndex.from_product([["a", "b"], ["mean", "mcse", "sd"]])
    table = pd.DataFrame([[2.0, 0, 0, 2.0, 0, 0], [2.0, 0, 0, 3.0, 0, 0]], ["same", "other"], columns)
    gaps = differences(table, "a", "b")
    assert gaps["standard_errors"].tolist() == [0.0, np.inf]
    with pytest.raises(ValueError, match="varies"):
        plot_agreement(table)


def test_means_are_drawn_in_posterior_standard_deviations():
    columns = pd.MultiIndex.from_product([["a", "b"], ["mean", "mcse", "sd"]])
    table = pd.DataFrame([[2.0, 0.1, 0.5, 3.0, 0.2, 0.4]], ["size"], columns)
    axis = plot_agreement(table).axes[0]
    drawn = {line.get_label(): line.get_xdata()[0] for line in axis.lines if line.get_label() in "ab"}
    assert drawn == {"a": 0.0, "b": 2.0}
    spans = [tuple(c.get_segments()[0][:, 0]) for c in axis.collections]
    np.testing.assert_allclose(spans, [(-1, 1), (-0.4, 0.4), (1.2, 2.8), (1.2, 2.8)])


def test_other_assumptions_are_not_one_posterior(three):
    other = replaced(three["first"])
    other.attrs["model_fields"] = other.attrs["model_fields"].replace(
        '"num_components": 5', '"num_components": 4'
    )
    assert same_posterior(three["first"], three["second"]) and not same_posterior(three["first"], other)
    both = {"five": three["first"], "four": other}
    agreed, pairs = _agreed(both, [])
    assert pairs == [] and "are of 2 kinds: five; four" in agreed.blocks[0].text
    differing = _fits(both).blocks[-1].frame
    assert differing.to_dict("index") == {"num_components": {"five": "5", "four": "4"}}


def test_other_weights_or_arrays_of_the_model_are_not_one_posterior(three):
    def with_constants(**arrays):
        constants = {name: (f"place of {name}", np.asarray(values)) for name, values in arrays.items()}
        return replaced(three["first"], constant_data=xr.Dataset(constants))

    given = {"sample_weight": [1.0, 2.0], "loc": [0.0, 0.5]}
    fits = {
        "one": with_constants(**given),
        "other weights": with_constants(**given | {"sample_weight": [2.0, 1.0]}),
        "fewer": with_constants(**given | {"loc": [0.0]}),
        "another array": with_constants(**given, scale=[1.0]),
        "no weights": with_constants(loc=given["loc"]),
        "none": three["first"],
    }
    for one, other in itertools.product(fits, repeat=2):
        assert same_posterior(fits[one], replaced(fits[other])) == (one == other), (one, other)


def test_a_point_estimate_is_scored_by_rows_alone(three, tmp_path):
    point = part(three["vb"], draw=[0])
    point.attrs["method"] = "em"
    said = report_comparison({"vb": three["vb"], "em": point}, tmp_path / "page.md")
    said = said.read_text(encoding="utf-8")
    assert "No ranking by leave-one-out" in said and "point estimate" in said


def test_what_cannot_be_compared_is_refused_before_work(three, tmp_path):
    observed = three["first"]["observed_data"].to_dataset().copy(deep=True)
    observed["x"][3, 1] += 1.0
    off = replaced(three["first"], observed_data=observed)
    out = tmp_path / "page.html"
    with pytest.raises(ValueError, match="'a' and 'b' are not of the same data: x has other values"):
        report_comparison({"a": three["first"], "b": off}, out)
    with pytest.raises(ValueError, match="at least two fits; got 1"):
        report_comparison({"a": three["first"]}, out)
    with pytest.raises(TypeError, match="dict"):
        report_comparison([three["first"], off], out)
    assert list(tmp_path.iterdir()) == []


def test_data_that_were_left_out_are_not_vouched_for(three):
    both = {"a": three["second"], "b": replaced(three["first"], observed_data=None)}
    check_fits(both, without_data=True)
    (found,) = _verdicts(_fits(both))
    assert not found.good and "Not verified" in found.text


def test_the_command_compares_files(tmp_path, capsys):
    """Two projections of one table, of which the second has the right number of latents."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 4)) + 0.2 * rng.normal(size=(60, 4))
    paths = []
    for num_latents in (1, 2):
        tree = inference.fit(zoo.PPCA(num_latents=num_latents), rows[:40], method="closed_form")
        paths.append(str(tmp_path / f"latents{num_latents}.nc"))
        inference.save(tree, paths[-1])
    np.savez(tmp_path / "new.npz", x=rows[40:])
    out = tmp_path / "both.md"
    assert main(["report", *paths, "--heldout", str(tmp_path / "new.npz"), "--out", str(out)]) == 0
    said = out.read_text(encoding="utf-8")
    assert "latents2 predicts the held-out rows best.**" in said and "over 20 rows" in said
    assert "| num_latents | 1 | 2 |" in said and "point estimate" in said
    (tmp_path / "no.nc").write_bytes(b"no")
    for wrong, words in (
        ([paths[0], paths[0]], "named twice"),
        ([paths[0], "--heldout", "faithful"], "name several"),
        ([paths[0], str(tmp_path / "no.nc")], "no.nc cannot be read as netCDF"),
        ([paths[0], str(tmp_path / "absent.nc")], "there is no file"),
    ):
        assert main(["report", *wrong, "--out", str(tmp_path / "other.md")]) == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "other.md").exists()


def test_a_sampler_that_has_not_converged_is_no_measure(three):
    """The advice beside a fit by VB: first to run the sampler longer, then to build on it."""
    pair = {name: replaced(three[name]) for name in ("first", "vb")}
    columns = pd.MultiIndex.from_product([list(pair), ["mean", "mcse", "sd"]])
    table = pd.DataFrame([[2.0, 0.1, 0.5, 9.0, 0.2, 0.4]], ["size"], columns)
    verdict = _pair_verdict(table, ("first", "vb"), pair, ["first"])
    assert verdict.good is None and verdict.text == "first and vb cannot be compared yet"
    assert verdict.advice == "run first longer first" and "bias" not in verdict.reason
    verdict = _pair_verdict(table, ("first", "vb"), pair, [])
    assert verdict.good is False and verdict.advice == "build on first" and "bias" in verdict.reason


def test_leave_one_out_is_computed_once_for_each_fit(three, tmp_path, monkeypatch):
    """The scores that said which fits can be ranked are those that rank them."""
    counted = []

    def counting(tree):
        counted.append(tree)
        return leave_one_out(tree)

    monkeypatch.setattr("inference.report.comparison.leave_one_out", counting)
    monkeypatch.setattr("inference.diagnostics.comparison.leave_one_out", counting)
    report_comparison({name: three[name] for name in ("first", "second")}, tmp_path / "page.md")
    assert len(counted) == 2
    scores = {name: leave_one_out(three[name]) for name in ("first", "second")}
    trees = {name: three[name] for name in scores}
    pd.testing.assert_frame_equal(compare(trees, scores=scores), compare(trees))
    with pytest.raises(ValueError, match=r"scores must be of the fits \['first', 'second'\]; got those of"):
        compare(trees, scores={"first": scores["first"]})


def test_scores_are_drawn_as_differences_from_the_best():
    """Places, bars of one standard error of the difference (none at the best), hollow for bad Pareto k."""
    table = pd.DataFrame(
        {"elpd": [-10.0, -14.0, -25.0], "dse": [0.0, 1.5, 4.0], "pareto_k_bad": [0, 2, 0]},
        index=["b", "a", "c"],
    )
    axis = plot_scores(table).axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["b", "a", "c"]
    dots = [line for line in axis.lines if line.get_marker() == "o"]
    assert [tuple(dot.get_xydata()[0]) for dot in dots] == [(0.0, 2.0), (-4.0, 1.0), (-15.0, 0.0)]
    assert [dot.get_markerfacecolor() == "white" for dot in dots] == [False, True, False]
    bars = [tuple(c.get_segments()[0][:, 0]) for c in axis.collections if len(c.get_segments())]
    assert bars == [(-5.5, -2.5), (-19.0, -11.0)]
    assert "hollow" in axis.get_title(loc="right")
    assert plot_scores(table.assign(pareto_k_bad=0)).axes[0].get_title(loc="right") == ""


@pytest.mark.parametrize(
    ("scores", "below", "errors", "is_clear"),
    [
        ({"b": [-2.0, -4.0], "a": [0.0, 0.0], "c": [-2.0, -3.0]}, [0.0, 2.5, 3.0], [0.0, 0.5, 1.0], True),
        ({"b": [0.0, -6.0], "a": [0.0, 0.0], "c": [-2.0, -3.0]}, [0.0, 2.5, 3.0], [0.0, 0.5, 3.0], False),
        ({"b": [-2.0, -4.0], "a": [0.0, 0.0], "c": [0.0, -5.0]}, [0.0, 2.5, 3.0], [0.0, 2.5, 1.0], False),
    ],
)
def test_rows_held_out_decide_where_all_others_are_two_errors_below(
    scores, below, errors, is_clear, monkeypatch
):
    """Two rows, in a table of the best fit a, then c and b; differences are taken row by row."""
    monkeypatch.setattr(
        "inference.report.comparison.log_density", lambda own, data: xr.DataArray(scores[own])
    )
    (ranking, table), returned = _held_out({name: name for name in scores}, [], ("rows",))
    assert ranking is returned and ranking.good is (True if is_clear else None)
    assert ranking.text == "a predicts the held-out rows best" + ("" if is_clear else ", but not clearly")
    assert list(table.frame.index) == ["a", "c", "b"]
    np.testing.assert_allclose(table.frame["below best"], below)
    np.testing.assert_allclose(table.frame["its error"], errors)
    np.testing.assert_allclose(table.frame["nats per row"], -np.array(below))
    (ranking, table), _ = _held_out({name: name for name in scores}, ["c"], ("rows",))
    assert ranking.good is None and ranking.text == "No ranking by held-out rows: c not converged"
    assert "below best" not in table.frame and list(table.frame["converged"]) == ["yes", "yes", "NO"]


def test_of_many_invariants_those_furthest_apart_are_drawn():
    rows = [f"invariant {row}" for row in range(30)]
    parts = {("a", "mean"): np.zeros(30), ("b", "mean"): np.arange(30.0)}
    parts |= {(fit, part): np.ones(30) for fit in "ab" for part in ("mcse", "sd")}
    axis = plot_agreement(pd.DataFrame(parts, index=rows)).axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == rows[6:]
