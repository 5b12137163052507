"""The report: sections in order, verdicts with reasons, one self-contained file, paths checked first."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import inference
import zoo
from inference.diagnostics.model_criticism import STATISTICS, check_features
from inference.fitting.verdict import Judgement, convergence_judgements
from inference.plots.model_graph import Graph
from inference.report import report
from inference.report.convergence import _extremes
from inference.report.page import Code, Front, Paragraph, Section, ShownTable, as_html, as_markdown
from inference.report.predictive import _of_score, predictive_section
from inference.report.run import _command, _first_literal_block, _short, run_facts, run_section
from tests.support.html_page import Page
from tests.support.planted import (
    planted_extend,
    planted_mixture,
    planted_regression,
    planted_zoo,
    replaced,
    switch_labels,
    variational_mixture,
)
from zoo.exponential_family import Gaussian
from zoo.intake import read_columns

SECTIONS = ["Answers", "Results", "Convergence", "Predictive checks", "Run", "Model"]


def planted_graph(tree):
    """Two symbols: the planted models have no program."""
    return Graph({"loc": [], "x": ["loc"]}, {"loc": "Normal", "x": "Normal"}, {"data": ["x"]}, ["x"], {})


@pytest.fixture(scope="module", autouse=True)
def of_planted_models():
    patch = pytest.MonkeyPatch()
    for module in ("model_criticism", "sensitivity"):
        patch.setattr(f"inference.diagnostics.{module}.extend", planted_extend)
    patch.setattr("inference.report.run.graph_of", planted_graph)
    with planted_zoo():
        yield
    patch.undo()


@pytest.fixture(scope="module")
def switched():
    tree = switch_labels(planted_mixture(num_draws=250))
    tree.attrs |= {
        "options": '{"num_chains": 4, "init": "random"}',
        "stop_reason": "all draws made",
        "sampling_time": 1.5,
    }
    return tree


@pytest.fixture(scope="module")
def page(switched, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "fit.html"
    assert report(switched, path) == path
    assert [file.name for file in path.parent.iterdir()] == ["fit.html"]
    return path.read_text(encoding="utf-8")


def test_html_is_one_file_with_its_sections_in_order(page):
    read = Page(page)
    read.assert_needs_no_other()
    assert read.headings == SECTIONS and len(read.alts) == 6


def test_every_verdict_has_a_reason_and_a_next_step(page):
    verdicts = Page(page).verdicts
    assert len(verdicts) >= 4
    assert all("Why: " in verdict and "Next: " in verdict for verdict in verdicts)


def test_the_report_shows_what_was_found(page, switched):
    for text in (
        "Clusters by size",
        "cluster 0",
        "cluster 2",
        "Most typical rows",
        "Pareto k",
        "num_occupied",
        "before relabelling",
    ):
        assert text in page
    assert f"{int(switched['posterior'].sizes['chain'])} chains of 250 draws" in page


@pytest.mark.slow
def test_markdown_has_the_same_sections_and_its_pictures_beside_it(switched, tmp_path):
    text = report(switched, tmp_path / "fit.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    pictures = sorted(file.name for file in tmp_path.glob("*.png"))
    assert len(pictures) == 6 and all(name in text for name in pictures)
    assert len(list(tmp_path.iterdir())) == 7


def test_the_run_tells_how_columns_were_read_and_what_looks_saw(switched):
    assert [type(block) for block in run_section(switched).blocks] == [ShownTable, Paragraph, Code]  # arrays
    table = pd.DataFrame({"id": ["a", "b", "c"], "town": ["Ulm", "Bonn", "Ulm"], "age": [31.5, 40.2, np.nan]})
    read = read_columns(table, families={"town": "category"}).as_text()
    tree = replaced(switched, columns=xr.Dataset({"x": ("column_x", np.array(read))}))
    looks = [{"draws": 50 * n, "passed": n > 1, "r_hat": 1 + 0.1 / n} for n in (1, 2, 3)]
    tree.attrs["looks"] = json.dumps(looks)
    facts, columns, *_ = run_section(tree).blocks
    assert columns.frame["kind"].to_dict() == {"id": "row label", "town": "category", "age": "real"}
    assert columns.frame.loc["town", "levels"] == "Bonn, Ulm" and columns.frame.loc["age", "missing"] == 1
    said = facts.frame.loc["looks", "value"]
    assert said.startswith("3, every 50 draws; passed: 2, 3") and said.endswith("at the last 1.033")


def test_the_recipe_runs(switched):
    code = _command(switched)
    compile(code, "recipe", "exec")
    assert "method='gibbs'" in code and "num_chains=4" in code and "seed=0" in code
    tree = replaced(switched)
    tree.attrs |= {"seed": "[0, 7]", "options": '{"init": "given"}'}
    compile(_command(tree), "recipe", "exec")
    assert "init=..." in _command(tree) and "wrap_key_data" in _command(tree)
    tree.attrs["command"] = "zoo fit mixture faithful"
    assert _command(tree) == "zoo fit mixture faithful"


def test_the_recipe_of_a_fit_with_starts_by_need_leaves_their_choice_to_fit(switched):
    tree = replaced(switched)
    for by_need, told in ((True, False), (False, True)):
        options = {"drops_starts": by_need, "num_restarts": 10, "init": "mixed", "tolerance": 1e-6}
        tree.attrs["options"] = json.dumps(options)
        code = _command(tree)
        assert "drops_starts" not in code and "tolerance=1e-06" in code
        assert [name in code for name in ("num_restarts=10", "init='mixed'")] == [told, told]


def test_the_recipe_of_a_fit_without_its_data_says_so(switched):
    tree = replaced(switched)
    del tree["observed_data"]
    assert "does not hold its data: x" in _command(tree) and "fit(model_of(old), x, " in _command(tree)


@pytest.mark.parametrize("name", ["fit.pdf", "fit.txt", "fit", "missing/fit.html", "."])
def test_a_path_that_cannot_be_written_is_refused_before_any_work(tmp_path, name, monkeypatch):
    monkeypatch.setattr(
        "inference.report.convergence_judgements",
        lambda tree: pytest.fail("worked before looking at the path"),
    )
    with pytest.raises((ValueError, OSError)):
        report(planted_mixture(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_failed_write_leaves_no_temporary_file(switched, tmp_path, monkeypatch):
    def broken(*names):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(OSError, match="disk full"):
        report(switched, tmp_path / "fit.html")
    assert list(tmp_path.iterdir()) == []


def _verdicts(section):
    return [block for block in section.blocks if isinstance(block, Judgement)]


def test_chains_that_disagree_are_not_believed():
    good = convergence_judgements(planted_regression(num_draws=1000))[0]
    bad = convergence_judgements(planted_regression(num_draws=1000, shift=1.0))[0]
    assert good.good and not bad.good
    assert "not converged" in bad.text and "R-hat" in bad.reason and "num_warmup" in bad.advice


def test_divergences_are_reported():
    tree = planted_regression()
    stats = tree["sample_stats"].to_dataset()
    stats["diverging"] = (("chain", "draw"), np.arange(800).reshape(4, 200) < 7)
    verdict = convergence_judgements(replaced(tree, sample_stats=stats))[1]
    assert verdict.text.startswith("7 of 800 transitions diverged") and "target_accept_prob" in verdict.advice


def _climbed(*ends, occupied=3):
    """A fit by VB whose starts ended with these objectives, and with this many clusters or these."""
    tree = variational_mixture()
    trace = tree["trace"].to_dataset().isel(restart=[0] * len(ends))
    counts = np.broadcast_to(np.asarray(occupied, float), len(ends))
    trace["objective_at_end"] = ("restart", np.array(ends))
    trace["num_occupied_at_end"] = ("restart", counts)
    tree = replaced(tree, trace=trace)
    tree.attrs |= {"converged": 1, "stop_reason": "gain below tolerance"}
    return tree


def test_a_variational_fit_is_judged_by_its_objective_and_its_starts():
    """In favour where two starts reach the best objective and occupy as many clusters; else a caution."""
    (verdict,) = convergence_judgements(_climbed(-300.0, -301.0, -309.0))
    assert verdict.good and verdict.text == "VB has converged: 2 of 3 starts end within 2 nats of the best"
    assert "3 starts: best -300.0, next -301.0 nats; occupied 3, 3, 3" in verdict.reason
    (verdict,) = convergence_judgements(_climbed(-300.0, -305.0, -309.0))
    assert verdict.good is None and "only 1 of 3 starts reached the best" in verdict.text
    (verdict,) = convergence_judgements(_climbed(-300.0, -301.0, occupied=[3, 4]))
    assert verdict.good is None and "disagree on the number of clusters" in verdict.text
    tree = _climbed(-300.0, -301.0)
    tree.attrs["converged"] = 0
    (verdict,) = convergence_judgements(tree)
    assert verdict.good is False and verdict.text == "VB has not converged: q is not final"


def test_one_restart_has_no_second_to_be_compared_with():
    (verdict,) = convergence_judgements(_climbed(-300.0))
    assert verdict.good is None and verdict.text == "VB has converged, from one start only"
    assert "starts:" not in verdict.reason and "num_restarts" in verdict.advice


def test_a_point_estimate_gets_a_report_without_loo(tmp_path):
    tree = variational_mixture(num_draws=1)
    tree.attrs["method"] = "em"
    text = report(tree, tmp_path / "fit.md").read_text(encoding="utf-8")
    assert "No leave-one-out score" in text and "heldout" in text


def test_a_model_without_clusters_gets_a_report(tmp_path):
    text = report(planted_regression(), tmp_path / "fit.md").read_text(encoding="utf-8")
    assert "no clusters" in text and "slope\\[a\\]" in text  # brackets are words, not a link


# Posterior predictive checks


def test_the_run_counts_the_columns_of_each_view():
    x = np.random.default_rng(0).normal(size=(20, 9))
    tree = inference.fit(
        zoo.Paired((Gaussian(1.0),) * 2), x[:, :4], x[:, 4:], method="closed_form", progress=False
    )
    assert run_facts(tree)["data"] == "20 rows, 4 features of y_0 and 5 features of y_1"


def test_checks_name_the_statistic_that_is_not_reproduced(switched):
    verdict = _verdicts(predictive_section(switched, False)[0])[0]
    assert verdict.good
    x = switched["observed_data"].to_dataset().copy(deep=True)
    x["x"][0, 1] = 40.0  # an outlier in height: its largest value and its spread
    verdict = _verdicts(predictive_section(replaced(switched, observed_data=x), False)[0])[0]
    assert not verdict.good and "height: largest" in verdict.reason and "width" not in verdict.reason


def test_p_values_of_checks_by_hand():
    observed = xr.DataArray([[1.0], [3.0]], dims=("observation", "feature"))
    replicated = xr.DataArray(
        np.array([[[[0.0], [3.0]], [[2.0], [5.0]], [[1.0], [2.0]]]]),
        dims=("chain", "draw", "observation", "feature"),
    )
    table = check_features(observed, replicated)
    assert table.loc["feature 0: mean", "observed"] == 2.0
    assert table.loc["feature 0: mean", "p"] == pytest.approx(1 / 3)  # means 1.5, 3.5, 1.5
    assert table.loc["feature 0: largest", "p"] == pytest.approx(
        0.5
    )  # 5 above, 3 a tie that counts half, 2 below
    with pytest.raises(ValueError, match="shape"):
        check_features(observed, replicated[..., :1, :])


def test_missing_cells_are_left_out_of_data_and_replications():
    """The smallest replicated value lies where the data have no cell: it does not count."""
    observed = xr.DataArray(
        [[1.0, np.nan], [np.nan, np.nan], [3.0, np.nan]], dims=("observation", "feature_1")
    )
    drawn = np.array([[[0.0, 0], [-9.0, 0], [3.0, 0]], [[2.0, 0], [-9.0, 0], [5.0, 0]]])[None]
    replicated = xr.DataArray(drawn, dims=("chain", "draw", "observation", "feature_1"))
    table = check_features(observed, replicated)
    assert list(table.index) == [f"feature 0: {name}" for name in STATISTICS]
    np.testing.assert_allclose(table["observed"], [2.0, 1.0, 1.0, 3.0, 1.2, 2.0, 2.8])
    assert table.loc["feature 0: smallest", "replicated_lb"] >= 0.0
    assert table.loc["feature 0: smallest", "p"] == 0.5


# The page

FRONT = Front("T & U", Judgement(True, "<i>", "why", "next"), {"Data": "a < b"})


def test_text_is_escaped_in_html_and_markdown_tables():
    frame = pd.DataFrame({"a|b": ["<script>"]}, index=["x & y"])
    sections = [
        Section(
            "One",
            [
                Paragraph("1 < 2"),
                Code("a <- b"),
                ShownTable("t", frame),
                Judgement(True, "<b>", "why", "next"),
            ],
        )
    ]
    page = as_html(FRONT, sections, {})
    assert (
        "<script><" not in page
        and page.count("<script>") == 1
        and "1 &lt; 2" in page
        and "T &amp; U" in page
        and "&lt;b&gt;" in page
    )
    text = as_markdown(FRONT, sections, {})
    assert "| x &amp; y | &lt;script> |" in text and "a\\|b" in text and "Why: why." in text


def test_numbers_are_short_and_whole_numbers_whole():
    frame = pd.DataFrame({"v": [3.0, 0.123456, 123456.78, "constant"]})
    text = as_markdown(FRONT, [Section("S", [ShownTable("t", frame)])], {})
    assert re.findall(r"(\S+) \|$", text, re.MULTILINE)[-4:] == ["3", "0.1235", "123456.8", "constant"]


def test_values_of_fields_are_shown_in_short():
    import numpyro.distributions as dist

    assert _short(np.eye(2)) == "[[1., 0.], [0., 1.]]"
    assert _short(np.zeros((10, 10))) == "array of shape (10, 10), from 0 to 0"
    assert _short(dist.Gamma(2.0, 1.0)) == "Gamma(concentration=2., rate=1.)"
    assert _first_literal_block("Title.\n\nProcess::\n\n    a ~ b\n    c ~ d\n\nMore.") == "a ~ b\nc ~ d"
    assert _first_literal_block("Title.") == ""


@pytest.mark.parametrize(
    ("k", "dim", "expected", "counts"),
    [
        (
            [0.1, 0.69, -0.2],
            "observation",
            (True, "The leave-one-out score can be trusted", "all Pareto k are below 0.70"),
            True,
        ),
        (
            [0.1, 0.75, 0.95],
            "observation",
            (None, "The leave-one-out score is doubtful for 2 of 3 rows (r2, r1)",
             "importance sampling is noisy there (Pareto k above 0.70)"),
            False,
        ),
        (
            [0.8, 1.1, 0.3, 1.5],
            "observation",
            (None, "The fit depends heavily on 2 of 4 rows (r3, r1)",
             "without one of them the posterior would change much (Pareto k above 1)"),
            True,
        ),
        (
            [1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 0.9],
            "document",
            (None, "The fit depends heavily on 6 of 7 documents (r5, r4, r3, r2, r1, ...)",
             "without one of them the posterior would change much (Pareto k above 1)"),
            True,
        ),
    ],
)  # fmt: skip
def test_a_score_that_is_doubtful_for_rows_is_told_from_one_that_hangs_on_them(k, dim, expected, counts):
    """The worst rows are named first; of those that it hangs on no other ones, and only these count."""
    pareto_k = xr.DataArray(k, coords={dim: [f"r{i}" for i in range(len(k))]}, dims=dim)
    score = SimpleNamespace(pareto_k=pareto_k, good_k=0.7, n_data_points=len(k))
    judgement, found = _of_score(planted_regression(), score)
    assert tuple(judgement[:3]) == expected and found is counts
    (of_q, _) = _of_score(variational_mixture(), score)
    assert of_q.reason == expected[2] + "; the draws are from q, so this is the score of the approximation"
    given = planted_regression()
    given["log_likelihood"] = xr.DataTree(xr.Dataset(attrs={"latents": "drawn"}))
    judgement, counted = _of_score(given, score)
    assert (judgement.good, counted) == ((True, True) if expected[0] else (None, False))
    assert ("of this fit are given latents of each row" in judgement.reason) == (expected[0] is None)
    above = sum(shape > score.good_k for shape in k)  # as many as the table beneath counts
    assert (f" {above} of {len(k)} " in judgement.text) == (expected[0] is None)


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ({"loc[a]": 1.01, "scale": 1.234, "size": 1.2}, "At the end the largest is 1.234, for scale."),
        ({"loc[a]": "constant", "scale": 0.999, "size": 1.0}, "At the end the largest is 1.000, for size."),
        ({"loc[a]": "constant", "scale": "constant"}, "All quantities are constant."),
    ],
)
def test_the_psrf_picture_is_described_by_the_largest_and_its_own_name(factors, words):
    """Of quantities that vary: a constant one has no number in the table."""
    assert _extremes(pd.DataFrame({"r_hat": pd.Series(factors), "mean": 5.0})) == words
