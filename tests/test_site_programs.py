"""Equations, programs and graphs on the models' pages: the same sites, which light up together."""

from fnmatch import fnmatch
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import numpyro.distributions as dist
import pytest

import zoo
from notebooks._site.programs import lines_of_sites, prepared, request_of, view
from tests.support.fit_cases import BITS, COUNTS, LABELS, X, Y
from tests.tools.pages.browser import CHROMIUM, Browser
from zoo.cards import read_card, read_notes
from zoo.cards.program import program_lines
from zoo.conjugate import BernoulliBeta, PoissonGamma

pytestmark = pytest.mark.repo

SCRIPT = Path(__file__).parents[1] / "notebooks" / "_static" / "process.js"
GAMMA = dist.Gamma(1.0, 200.0)  # for which few sticks are enough
STICKS = {"weight_prior": "stick_breaking"}
PROPER = {"loading_prior": "gaussian"}
#: Of each model whose example has not all sites, further ones: fields, and data if they are not those of X.
OTHERS = {
    "mixture": [
        ({"concentration": GAMMA, **STICKS}, (X,)),
        ({"free_last_stick": True, **STICKS}, (X,)),
        ({"components": BernoulliBeta()}, (BITS,)),
        ({"components": PoissonGamma()}, (np.round(X - X.min()),)),
    ],
    "ppca": [({"loading_prior": "ard", "num_latents": 2}, (X,))],
    "kernelpca": [({"num_latents": 2, "kernel": "linear"}, (X,))],
    "sppca": [
        ({"num_latents": 2, "kernel": "linear"}, (X, Y)),
        ({"num_latents": 2, "output_likelihood": "probit", **PROPER}, (X, LABELS)),
    ],
    "epca": [
        ({"family": "gaussian", "num_latents": 2, "ard": True}, (X,)),
        ({"family": zoo.exponential_family.Gaussian(noise_variance=None), "num_latents": 2}, (X,)),
        ({"family": zoo.exponential_family.Ordinal(2), "num_latents": 2}, (BITS + 1,)),
        ({"family": "bernoulli", "num_latents": 2, "beta": 0.5}, (BITS,)),
    ],
    "paired": [
        ({"families": ("gaussian", "bernoulli"), "ard": True, "num_specific": (1, 1)}, (X, BITS)),
        (
            {"families": ("bernoulli",) * 2, "specific": "full_covariance", "num_specific": (0, 0)},
            (BITS, BITS),
        ),
        ({"families": ("bernoulli",) * 2, "beta": 0.5, "num_specific": (1, 1)}, (BITS, BITS)),
        (
            {
                "families": (zoo.exponential_family.Gaussian(noise_variance=None), "bernoulli"),
                "num_specific": (1, 1),
            },
            (X, BITS),
        ),
    ],
    "pcp": [({"num_topics": 2, "num_clusters": 3, **STICKS}, (COUNTS,))],
    "depcam": [
        ({"family": "bernoulli", "num_components": 2, "num_latents": 1, **STICKS}, (BITS,)),
        (
            {
                "family": zoo.exponential_family.Gaussian(noise_variance=None),
                "num_components": 2,
                "num_latents": 1,
                "scale_prior": "ard",
            },
            (X,),
        ),
    ],
    "mcfa": [
        (
            {"num_components": 2, "num_latents": 2, "concentration": GAMMA, "loading_prior": "ard", **STICKS},
            (X,),
        )
    ],
}


def runs_of(name):
    """Site to places of lines, of the example and of further configurations of a model."""
    card = read_card(name)
    lines = program_lines(card.path, card.class_name)
    kind = zoo.model_class(name)
    asked = [request_of(kind(**fields), *data) for fields, data in OTHERS.get(name, ())]
    return [lines_of_sites(model, data, lines) for model, data in [prepared(name), *asked]]


@pytest.mark.parametrize("name", zoo.MODELS)
def test_every_site_has_an_equation_and_a_line_and_every_equation_a_site(name):
    equations = {own.site for own in read_notes(read_card(name)).process}
    runs = runs_of(name)
    sites = {site for run in runs for site in run}
    assert {site for site in sites if not any(fnmatch(site, own) for own in equations)} == set()
    assert {own for own in equations if not any(fnmatch(site, own) for site in sites)} == set()
    assert all(lines for run in runs for lines in run.values())


class Parts(HTMLParser):
    """Sites of the equations, of the nodes and of the lines of a view."""

    def __init__(self, text):
        super().__init__()
        self.found = {"li": [], "g": [], "span": []}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if sites := dict(attrs).get("data-site"):
            self.found[tag] += sites.split()


def test_a_site_of_the_example_is_in_all_three_views():
    found = Parts(view("mixture")).found
    example = {"weights", "precisions", "locs", "covariances", "assignments", "x"}
    assert set(found["g"]) == set(found["span"]) == example and example < set(found["li"])
    assert set(Parts(view("paired")).found["g"]) >= {"loadings_0", "loadings_1", "y_0", "y_1"}


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_tab_lights_up_equation_line_and_node_and_escape_lets_go(tmp_path):
    page = tmp_path / "page.html"
    style = SCRIPT.with_name("site.css").read_text()
    head = f"<!DOCTYPE html><meta name=viewport content='width=device-width'><style>{style}</style>"
    page.write_text(f"{head}<body>{view('mixture')}<script>{SCRIPT.read_text()}</script></body>")
    named = "part.tagName.toLowerCase() + ' ' + part.dataset.site"
    lit = f"[...document.querySelectorAll('.lit')].map((part) => {named})"
    with Browser() as browser:
        shown = browser.open(page, 1280)
        assert shown.run(lit) == []
        shown.run("document.querySelector('li[data-site=assignments]').focus()")
        assert shown.run(lit) == ["li assignments", "g assignments", "span assignments"]
        shown.press("Enter", 13)
        shown.run("document.activeElement.blur()")
        assert len(shown.run(lit)) == 3  # it is kept
        assert shown.run("document.querySelector('.process-said').textContent").startswith(
            "assignments: line "
        )
        shown.run("document.querySelector('g[data-site=weights]').focus()")
        assert shown.run(lit) == ["li weights", "li weights", "g weights", "span weights", "span weights"]
        shown.press("Escape", 27)
        shown.run("document.activeElement.blur()")
        assert shown.run(lit) == [] and shown.console == [] and shown.requests == []
        shown.close()
        shown = browser.open(page, 390, height=600)  # a phone: the equation that has the focus and its line
        box = "part.getBoundingClientRect()"
        seen = "[...document.querySelectorAll('li:focus, span.lit')]"
        ends = f"{seen}.map((part) => [{box}.top, {box}.bottom])"
        for site in ("weights", "assignments", "x"):
            shown.run(f"document.querySelector('li[data-site={site}]').focus()")
            equation, line, *_ = shown.run(ends)  # the line and, behind a call, what it calls
            assert 0 <= equation[0] < equation[1] <= line[0] < line[1] <= 600
        shown.close()
