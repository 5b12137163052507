"""The report of every model, quickly fitted: all sections, links that lead somewhere, pictures in words."""

import re

import numpy as np
import pytest

import inference
import zoo
from inference.fitting.verdict import Judgement
from inference.plots.projections import plot_biplot, plot_loadings
from inference.plots.topics import plot_topics
from inference.report import report
from inference.report.page import Paragraph, Picture, ShownTable, write_page
from inference.report.predictive import predictive_section
from inference.report.results import projection_blocks
from inference.topics import top_words, topic_words
from tests.support.html_page import Page
from tests.support.report_cases import FITS, ROWS, fitted

PICTURES = {  # besides the graph of the program and the objective
    "mixture": {"components", "co-clustering"},
    "ppca": {"loadings", "biplot"},
    "kernelpca": {"rows"},
    "sppca": {"loadings", "biplot"},
    "epca": {"loadings", "biplot"},
    "paired": {"loadings"},
    "depcam": {"hinton", "co-clustering"},
    "mcfa": {"loadings", "biplot", "co-clustering"},
    "lda": {"topics", "documents"},
    "plsi": {"topics", "documents"},
    "pcp": {"topics", "clusters", "documents"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_the_report_is_whole(name, tmp_path, monkeypatch):
    shown = set()

    def written(front, sections, path):
        shown.update(b.name for section in sections for b in section.blocks if isinstance(b, Picture))
        return write_page(front, sections, path)

    monkeypatch.setattr("inference.report.write_page", written)
    text = report(fitted(name), tmp_path / "fit.html").read_text(encoding="utf-8")
    assert shown >= PICTURES[name] | {"model-graph"}
    page = Page(text)
    page.assert_needs_no_other()
    assert page.headings == ["Answers", "Results", "Convergence", "Predictive checks", "Run", "Model"]
    assert page.links[1:] == [f"#{section}" for section in page.blocks] and len(page.links) == 7
    assert all(count >= 1 for count in page.blocks.values()), page.blocks
    assert len(page.alts) == len(shown) and page.alts[-1].startswith("Graph of the program")
    assert len(text) < 1e6
    assert {"Data", "Model", "Method", "Date", "File", "Seed", "Time"} == set(page.facts)
    if page.state == "bad":  # stopped early: nothing below may be in favour
        assert "not converged" in page.front and not [words for kind, words in page.judged if kind == "good"]
    assert page.verdicts and all("Why: " in verdict and "Next: " in verdict for verdict in page.verdicts)


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("name", ["ppca", "sppca", "epca"])
def test_axes_of_projections_are_labelled(name):
    tree = fitted(name)
    axis = plot_biplot(tree).axes[0]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("latent 0", "latent 1")
    assert len(axis.collections[0].get_offsets()) == 24
    axes = plot_loadings(tree).axes
    assert [axis.get_title() for axis in axes] == ["latent 0", "latent 1"]


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("name", ["lda", "plsi", "pcp"])
def test_topics_are_drawn_with_their_words_and_shares(name):
    tree = fitted(name)
    axes = plot_topics(tree, num_words=3).axes
    shares = [int(re.search(r"(\d+)%", axis.get_title(loc="left"))[1]) for axis in axes]
    assert shares == sorted(shares, reverse=True) and abs(sum(shares) - 100) <= 1
    for axis in axes:
        topic = int(re.match(r"topic (\d+)", axis.get_title(loc="left"))[1])
        words = [label.get_text() for label in axis.get_yticklabels()]
        assert words == [str(word) for word in top_words(tree, 3).iloc[topic]]
        np.testing.assert_allclose(
            [bar.get_width() for bar in axis.patches], np.sort(topic_words(tree).iloc[topic])[::-1][:3]
        )
    with pytest.raises(ValueError, match="num_words"):
        plot_topics(tree, num_words=0)


def test_a_closed_form_has_nothing_to_converge_and_no_objective_of_one_point(tmp_path):
    text = report(fitted("kernelpca"), tmp_path / "fit.md").read_text(encoding="utf-8")
    assert "Solved directly: there is nothing to converge" in text
    assert "objective" not in {path.stem.removeprefix("fit-") for path in tmp_path.glob("*.png")}


@pytest.mark.slow
def test_an_estimate_has_components_and_no_posterior_of_their_number(tmp_path):
    text = report(fitted("mixture"), tmp_path / "fit.md").read_text(encoding="utf-8")
    assert "Clusters by size" in text and "a point estimate has no intervals" in text
    assert "Posterior of the number" not in text


def test_a_projection_that_is_no_model_shows_its_rows(tmp_path):
    model = zoo.SPPCA(num_latents=2, center="plugin")
    tree = inference.fit(model, ROWS[:, :3], ROWS[:, 3:], method="morp")
    text = report(tree, tmp_path / "fit.md").read_text(encoding="utf-8")
    assert "is a projection: of this program it uses the data alone" in text
    assert "is a projection, under which rows have no density" in text
    (blocks,) = [block for block in projection_blocks(tree) if isinstance(block, Picture)]
    dots = blocks.figure.axes[0].collections[0].get_offsets()
    np.testing.assert_allclose(dots, inference.transform(tree, ROWS[:, :3]).values)


def _of(section, kind):
    return [block for block in section.blocks if isinstance(block, kind)]


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("name", ["ppca", "sppca", "paired", "mixture", "epca", "depcam"])
def test_estimates_are_replicated_at_the_estimate(name):
    """Every table of every model: seven statistics a column or more, of yes and no one; all are numbers."""
    tree = fitted(name)
    section, _ = predictive_section(tree, False)
    shown = _of(section, ShownTable)[0].frame
    columns = sum(values.shape[1] for values in tree["observed_data"].data_vars.values())
    least = columns if name in ("epca", "depcam") else 7 * columns
    assert np.isfinite(shown.to_numpy(float)).all() and min(least, 24) <= len(shown) <= 24
    assert any("500 replications" in block.text for block in _of(section, Paragraph))
    assert any("Data drawn from the fit" in block.text for block in _of(section, Judgement))


@pytest.mark.filterwarnings("ignore:the columns of x have very different scales")
def test_an_outlier_is_not_reproduced_by_an_estimate():
    rows = ROWS.copy()
    rows[0, 1] = 60.0
    tree = inference.fit(zoo.PPCA(num_latents=1), rows, method="closed_form")
    verdict = _of(predictive_section(tree, False)[0], Judgement)[0]
    assert (
        verdict.good is False and "feature 1: largest" in verdict.reason and "more latents" in verdict.advice
    )


def test_what_is_no_distribution_of_rows_is_not_asked_for_any():
    """Kernel PCA scores a Gram matrix; a report of its draws once stopped here."""
    section, _ = predictive_section(fitted("kernelpca"), False)
    assert "no distribution of rows, which have no density" in _of(section, Judgement)[0].reason
    assert any(
        "No data were drawn from the fit: KernelPCA" in block.text for block in _of(section, Paragraph)
    )
