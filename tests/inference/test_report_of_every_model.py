"""The report of every model, quickly fitted: all sections, links that lead somewhere, pictures in words."""

import functools
import re
import warnings

import numpy as np
import pytest
from html_page import Page
from text_cases import COUNTS

import inference
import zoo
from inference.page import Picture
from inference.page_files import write_page
from inference.projection_picture import plot_biplot, plot_loadings
from inference.report import report
from inference.topic_picture import plot_topics
from inference.topics import top_words, topic_words

_RNG = np.random.default_rng(0)
ROWS = _RNG.normal(size=(24, 2)) @ _RNG.normal(size=(2, 4)) + 0.3 * _RNG.normal(size=(24, 4))
BITS = (ROWS > 0).astype(float)
FITS = {
    "mixture": (zoo.Mixture, {"num_components": 2}, (ROWS,), "em"),
    "ppca": (zoo.PPCA, {"num_latents": 2}, (ROWS,), "closed_form"),
    "kernelpca": (zoo.KernelPCA, {"num_latents": 2}, (ROWS,), "closed_form"),
    "sppca": (zoo.SPPCA, {"num_latents": 2, "center": "plugin"}, (ROWS, ROWS[:, :1]), "closed_form"),
    "epca": (zoo.EPCA, {"family": "bernoulli", "num_latents": 2}, (BITS,), "map"),
    "paired": (zoo.Paired.ecca, {}, (ROWS[:, :2], ROWS[:, 2:]), "closed_form"),
    "depcam": (zoo.DEPCAM, {"num_components": 2, "num_latents": 1}, (BITS,), "em"),
    "lda": (zoo.LDA, {"num_topics": 2}, (COUNTS,), "vb"),
    "plsi": (zoo.PLSI, {"num_topics": 2}, (COUNTS,), "em"),
    "pcp": (zoo.PCP, {"num_topics": 2, "num_clusters": 2}, (COUNTS,), "vb"),
}
PICTURES = {  # besides the graph of the program and the objective
    "mixture": {"components", "co-clustering"},
    "ppca": {"loadings", "biplot"},
    "kernelpca": {"rows"},
    "sppca": {"loadings", "biplot"},
    "epca": {"loadings", "biplot"},
    "paired": {"loadings"},
    "depcam": {"hinton", "co-clustering"},
    "lda": {"topics", "documents"},
    "plsi": {"topics", "documents"},
    "pcp": {"topics", "clusters", "documents"},
}


@functools.cache
def fitted(name):
    """A fit of a model, not run to its end."""
    make, fields, data, method = FITS[name]
    options = {} if method == "closed_form" else {"max_iterations": 5}
    options |= {"num_samples": 30} if method == "vb" else {}
    if name == "paired":
        model = make(("gaussian", "gaussian"), 1, (0, 0))
    else:
        model = make.from_data(*data, **fields)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return inference.fit(model, *data, method=method, progress=False, **options)


@pytest.mark.parametrize("name", FITS)
def test_the_report_is_whole(name, tmp_path, monkeypatch):
    shown = set()

    def written(title, sections, path):
        shown.update(b.name for section in sections for b in section.blocks if isinstance(b, Picture))
        return write_page(title, sections, path)

    monkeypatch.setattr("inference.report.write_page", written)
    text = report(fitted(name), tmp_path / "fit.html").read_text(encoding="utf-8")
    assert shown >= PICTURES[name] | {"model-graph"}
    page = Page(text)
    page.assert_needs_no_other()
    assert page.headings == ["Assumed", "Done", "Believed", "Found", "Fits"]
    assert page.links == [f"#{section}" for section in page.blocks] and len(page.links) == 5
    assert all(count >= 1 for count in page.blocks.values()), page.blocks
    assert len(page.alts) == len(shown) and page.alts[0].startswith("Graph of the program")
    assert len(text) < 3e6
    assert page.verdicts and all("Why: " in verdict and "Next: " in verdict for verdict in page.verdicts)


@pytest.mark.parametrize("name", ["ppca", "sppca", "epca"])
def test_axes_of_projections_are_labelled(name):
    tree = fitted(name)
    axis = plot_biplot(tree).axes[0]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("latent 0", "latent 1")
    assert len(axis.collections[0].get_offsets()) == 24
    axes = plot_loadings(tree).axes
    assert [axis.get_title() for axis in axes] == ["latent 0", "latent 1"]


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
