"""The report of every model by every method, briefly run: none stops, and each has its five sections."""

import warnings

import pytest

import inference
import zoo
from inference.algorithm import Ascent, Sampler
from inference.methods import method_of
from inference.report import report
from tests.support.html_page import Page
from tests.support.posterior_cases import CASES
from tests.support.report_cases import ROWS, fitted

pytestmark = pytest.mark.slow

SHORT = {"num_warmup": 20, "num_samples": 30, "num_chains": 2, "max_iterations": 5}
LISTED = [(name, method) for name, make in CASES.items() for method in (*make().exact, *make().approximate)]


def written(tree, folder):
    """The page of a fit, read, after what every page must have."""
    page = Page(report(tree, folder / "fit.html").read_text(encoding="utf-8"))
    page.assert_needs_no_other()
    assert page.headings == ["Answers", "Results", "Convergence", "Predictive checks", "Run", "Model"]
    assert all(count >= 1 for count in page.blocks.values()), page.blocks
    assert all("Why: " in verdict and "Next: " in verdict for verdict in page.verdicts)
    return page


@pytest.mark.parametrize(("name", "method"), LISTED)
def test_a_brief_run_has_a_report(name, method, tmp_path):
    case = CASES[name]()
    model = {**case.exact, **case.approximate}[method].get("model", case.model)
    known = method_of(model, method)
    usual = {Ascent: ("max_iterations",), Sampler: ("num_warmup", "num_samples", "num_chains")}
    options = {own: SHORT[own] for own in usual.get(type(known), ())}
    if known.guide is not None or method == "svi":
        options["num_samples"] = SHORT["num_samples"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        tree = inference.fit(model, *case.data, method=method, progress=False, **options)
        written(tree, tmp_path)


@pytest.mark.parametrize(
    ("method", "kernel"), [("morp", None), ("kernel_cca", "linear"), ("kernel_cca", None)]
)
def test_a_projection_has_a_report(method, kernel, tmp_path):
    model = zoo.SPPCA(num_latents=2, center="plugin", kernel=kernel)
    page = written(inference.fit(model, ROWS[:, :3], ROWS[:, 2:], method=method), tmp_path)
    assert any("is a projection, under which rows have no density" in verdict for verdict in page.verdicts)


def test_paired_views_in_closed_form_have_a_report(tmp_path):
    written(fitted("paired"), tmp_path)
