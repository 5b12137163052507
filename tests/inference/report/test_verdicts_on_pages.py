"""Fits built to deserve a verdict each, and what the first screens of their report and comparison say.

Every page is written and parsed. A verdict that is always in favour, or always against, fails most lines of
the table; `test_a_planted_fault_turns_every_verdict` plants faults into one good fit.
"""

import functools
import itertools
import warnings
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import inference
import zoo
from inference.diagnostics import profiles
from inference.diagnostics.first_screen import first_screen, found_in_words
from inference.fitting import verdict as verdicts
from inference.fitting.verdict import Judgement, convergence_judgements, gravest, is_provisional, verdict
from inference.report import report, report_comparison
from tests.support.html_page import Page
from tests.support.planted import (
    planted_regression,
    planted_zoo,
    replaced,
    switch_labels,
    variational_mixture,
)
from zoo.answers import Answers
from zoo.dirichlet_process import weight_prior
from zoo.model import Roles

_RNG = np.random.default_rng(3)
CENTRES = np.repeat([[-6.0, 0.0], [6.0, 1.0]], 20, axis=0)
NAMES = ["length", "width"]
TWO = pd.DataFrame(_RNG.normal(size=(40, 2)) + CENTRES, [f"row {i}" for i in range(40)], NAMES)
ONE = pd.DataFrame(_RNG.normal(size=(40, 2)), TWO.index, NAMES)
FIVE = pd.DataFrame(
    _RNG.normal(size=(60, 2))
    + np.repeat(12.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 2]]), 12, axis=0),
    columns=NAMES,
)
SKEWED = pd.DataFrame(np.exp(1.2 * _RNG.normal(size=(80, 3))), columns=[*NAMES, "height"])
FLAT = pd.DataFrame(_RNG.normal(size=(60, 2)) @ _RNG.normal(size=(2, 4)) + _RNG.normal(size=(60, 4)))
FLAT.columns = ["a", "b", "c", "d"]


def _fit(model, *data, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return inference.fit(model, *data, progress=False, **options)


def _mixture(data, num_components=2, **fields):
    """A mixture whose prior knows the spread of a cluster: chains find the clusters."""
    components = zoo.conjugate.GaussianWishart(
        loc=np.zeros(2), mean_precision=0.05, scale_matrix=np.eye(2) / 20.0, degrees_of_freedom=20.0
    )
    fields = {"components": components, "concentration": 2.0} | fields
    return zoo.Mixture.from_data(data, num_components=num_components, **fields)


@functools.cache
def sampled():
    """Four chains that agree: two clusters far from each other leave one partition."""
    return _fit(_mixture(TWO), TWO, method="gibbs", num_warmup=100, num_samples=400)


def outlying():
    data = ONE.copy()
    data.iloc[17] = [14.0, -14.0]
    return _fit(_mixture(data, 1), data, method="gibbs", num_warmup=50, num_samples=400)


def dominated():
    """A prior of the weights that is worth half as many rows as there are."""
    model = _mixture(TWO, concentration=20.0)
    return _fit(model, TWO, method="gibbs", num_warmup=100, num_samples=400)


def marked(tree, **attrs):
    """The fit with other root attributes."""
    tree = replaced(tree)
    tree.attrs |= attrs
    return tree


def ended(*behind, occupied=2):
    """A fit by VB whose starts end so many nats behind the best, with so many clusters."""
    tree = _fit(_mixture(TWO), TWO, method="vb", num_restarts=len(behind))
    trace = tree["trace"].to_dataset()
    trace["objective_at_end"] = float(trace["objective"].max()) - xr.DataArray(list(behind), dims="restart")
    trace["num_occupied_at_end"] = ("restart", np.broadcast_to(occupied, len(behind)))
    return replaced(tree, trace=trace)


def slopes(draws):
    """A fit without a symmetry with these draws (chain, draw) of both slopes."""
    tree = planted_regression(num_draws=draws.shape[1])
    posterior = tree["posterior"].to_dataset()
    posterior["slope"] = (("chain", "draw", "feature"), np.stack([draws, draws], -1))
    stats = xr.Dataset({"lp": (("chain", "draw"), draws)})
    return marked(
        replaced(tree, posterior=posterior, sample_stats=stats), converged=0, stop_reason="completed"
    )


def few(number=5):
    """Both halves of every chain hold the same values: R-hat cannot be high over so few draws."""
    rng = np.random.default_rng(0)
    values = np.sort(rng.normal(size=number))
    return slopes(np.stack([np.r_[rng.permutation(values), rng.permutation(values)] for _ in range(4)]))


def diverged():
    tree = planted_regression(num_draws=500)
    stats = tree["sample_stats"].to_dataset()
    stats["diverging"] = (("chain", "draw"), np.arange(2000).reshape(4, 500) % 250 == 0)
    return replaced(tree, sample_stats=stats)


def broken():
    draws = np.random.default_rng(0).normal(size=(4, 300))
    draws[1, 40] = np.nan
    return slopes(draws)


class Case(NamedTuple):
    """A fit, the kind of its verdict, and words on the first screens of its report and of its comparison."""

    make: callable
    state: str
    said: tuple
    compared: tuple


UNFINISHED = ("No verdict yet: this and twin have not converged",)
CASES = {  # those that need no compilation first
    "agreeing": Case(
        lambda: planted_regression(num_draws=500), "good", ("The chains agree",), ("this and twin agree",)
    ),
    "divergent": Case(diverged, "bad", ("8 of 2000 transitions diverged", "target_accept_prob"), UNFINISHED),
    "too few draws": Case(few, "bad", ("too few effective draws", "raise num_samples"), UNFINISHED),
    "nearly enough draws": Case(lambda: few(30), "open", ("nearly agree", "raise num_samples"), UNFINISHED),
    "nothing moved": Case(
        lambda: marked(slopes(np.full((4, 200), 1.5)), converged=1),
        "open",
        ("The sampler did not move: all draws are the same", "another method"),
        ("agree",),
    ),
    "not finite": Case(broken, "bad", ("Some draws are not finite", "in 1 draws"), UNFINISHED),
    "misfit": Case(
        lambda: _fit(zoo.PPCA.from_data(SKEWED, num_latents=1), SKEWED, method="closed_form"),
        "bad",
        ("Data drawn from the fit differ from the data", "nats, by chance up to", "more latents"),
        ("nothing to measure by",),
    ),
    "solved directly": Case(
        lambda: _fit(zoo.PPCA.from_data(FLAT, num_latents=2), FLAT, method="closed_form"),
        "good",
        ("Solved directly", "Data drawn from the fit look like the data"),
        ("nothing to measure by",),
    ),
    "converged": Case(sampled, "good", ("The chains agree",), ("this and twin agree",)),
    "stopped early": Case(
        lambda: _fit(_mixture(TWO), TWO, method="vb", max_iterations=2),
        "bad",
        ("VB has not converged: q is not final", "still rising"),
        UNFINISHED,
    ),
    "label switching": Case(
        lambda: switch_labels(sampled()), "good", ("The chains agree",), ("this and twin agree",)
    ),
    "stuck": Case(
        lambda: _fit(_mixture(FIVE, 5), FIVE, method="gibbs", num_warmup=20, num_samples=100, split_merge=0),
        "bad",
        ("The chains have not converged: do not build on these draws yet", "different modes"),
        UNFINISHED,
    ),
    "one chain": Case(
        lambda: _fit(_mixture(TWO), TWO, method="gibbs", num_chains=1, num_warmup=50, num_samples=100),
        "bad",
        ("There is one chain only", "num_chains=4"),
        UNFINISHED,
    ),
    "three draws": Case(
        lambda: _fit(_mixture(TWO), TWO, method="gibbs", num_warmup=50, num_samples=3),
        "bad",
        ("too few draws to judge by", "raise num_samples"),
        UNFINISHED,
    ),
    "interrupted": Case(
        lambda: marked(sampled(), stop_reason="interrupted", converged=0),
        "bad",
        ("The run was cut short", "interrupted"),
        UNFINISHED,
    ),
    "objective fell": Case(
        lambda: marked(
            _fit(_mixture(TWO), TWO, method="vb"), converged=0, stop_reason="the objective fell at step 7"
        ),
        "bad",
        ("VB has not converged", "the objective fell", "other starts"),
        UNFINISHED,
    ),
    "starts agree": Case(
        lambda: _fit(_mixture(TWO), TWO, method="vb"),
        "good",
        ("VB has converged", "starts end within"),
        ("near",),
    ),
    "one start": Case(
        lambda: _fit(_mixture(TWO), TWO, method="vb", num_restarts=1),
        "open",
        ("VB has converged, from one start only", "num_restarts=10"),
        ("near",),
    ),
    "local optimum": Case(
        lambda: ended(0.0, 30.0, 31.0),
        "open",
        ("VB has converged, but only 1 of 3 starts reached the best objective", "num_restarts"),
        ("near",),
    ),
    "number unsure": Case(
        lambda: ended(0.0, 0.5, 1.0, occupied=(2, 3, 2)),
        "open",
        ("starts of equal rank disagree on the number of clusters", "occupied 2, 3, 2"),
        ("near",),
    ),
    "outlying row": Case(
        outlying, "bad", ("differ from the data", "depends heavily on 1 of 40 rows (row 17)"), ("agree",)
    ),
    "prior dominated": Case(
        dominated, "open", ("The answers depend on the prior", "sorted_weights", "a wider one"), ("agree",)
    ),
    "truncation": Case(
        lambda: _fit(_mixture(FIVE, 3, weight_prior="stick_breaking"), FIVE, method="vb"),
        None,
        ("he truncation is too short: all 3 clusters hold rows",),
        ("near",),
    ),
    "estimate": Case(
        lambda: _fit(_mixture(TWO), TWO, method="em"), "good", ("EM has converged", "without uncertainty"), ()
    ),
    "projection": Case(
        lambda: _fit(zoo.SPPCA(num_latents=1, center="plugin"), FLAT[["a", "b"]], FLAT[["c"]], method="morp"),
        "good",
        ("Solved directly",),
        (),
    ),
    "rotation": Case(
        lambda: _fit(
            zoo.PPCA(num_latents=1, loading_prior="gaussian"),
            FLAT,
            method="nuts",
            num_warmup=300,
            num_samples=500,
        ),
        "good",
        ("The chains agree",),
        ("agree",),
    ),
    "noisy ascent": Case(
        lambda: _fit(zoo.PPCA(num_latents=1), FLAT, method="svi", max_iterations=40, num_samples=50),
        "bad",
        ("SVI has not converged: q is not final", "too few to judge by"),
        UNFINISHED,
    ),
}


@functools.cache
def made(name):
    """The fit of a case."""
    return CASES[name].make()


@pytest.fixture(scope="module", autouse=True)
def of_planted_models():
    with planted_zoo():
        yield


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_first_screens_say_what_the_fit_deserves(name, tmp_path):
    """On both pages, and nothing on either says the opposite further down."""
    case, tree = CASES[name], made(name)
    page = Page(report(tree, tmp_path / "fit.html").read_text(encoding="utf-8"))
    assert case.state in (page.state, None), page.front
    assert all(words in page.front for words in case.said), page.front
    assert " Why: " in page.front and " Next: " in page.front
    if page.state == "bad" and case.compared == UNFINISHED:
        assert [words for kind, words in page.judged if kind == "good"] == []
        assert "provisional" in page.text
    else:
        assert "provisional" not in page.text.lower()
    both = {"this": tree, "twin": marked(tree, seed=99)}
    page = Page(report_comparison(both, tmp_path / "both.html").read_text(encoding="utf-8"))
    assert all(words in page.front for words in case.compared), page.front
    unfinished = case.compared == UNFINISHED
    assert page.facts["Converged"] == ("this: NO, twin: NO" if unfinished else "this: yes, twin: yes")
    assert "predicts best" not in page.text
    if unfinished:
        assert [words for kind, words in page.judged if kind == "good"] == []


def test_a_page_says_of_the_run_what_the_terminal_says_and_judges_the_model_apart(tmp_path):
    """PPCA of skewed columns, solved directly: nothing is wrong with the run, and much with the model."""
    tree = made("misfit")
    page = Page(report(tree, tmp_path / "fit.html", plain=True).read_text(encoding="utf-8"))
    (first, run), (second, model) = page.judged[:2]
    assert (first, second) == ("good", "bad") and tree.attrs["verdict"].startswith("Good: ")
    assert run.startswith(f"The run: {tree.attrs['verdict'].replace(': ', ' ', 1)}")
    assert model.startswith("The model: Problem Data drawn from the fit differ from the data")
    assert "Use these answers with care." in page.text and "Do not use these" not in page.text
    said = first_screen(tree).opening
    assert said.startswith(f"{found_in_words(tree, profiles(tree))}.\n{tree.attrs['verdict']}")
    assert "This judges the run; a report judges the model too" in said


@pytest.mark.slow
def test_labels_do_switch_where_the_verdict_ignores_it():
    """The raw means of both clusters lie where there is no row: between them."""
    means = switch_labels(sampled())["posterior"]["locs"].mean(("chain", "draw")).values
    assert (np.abs(means[:, 0]) < 1.0).all() and np.abs(TWO["length"]).min() > 2.0


def test_a_planted_fault_turns_every_verdict():
    """One good fit, and each fault in turn: none is overlooked, and the gravest is stated first."""
    good = planted_regression(num_draws=500)
    assert verdict(good).good is True
    faults = {
        "one chain only": replaced(good, posterior=good["posterior"].to_dataset().isel(chain=[0])),
        "not converged": planted_regression(num_draws=500, shift=1.0),
        "cut short": marked(good, stop_reason="interrupted"),
        "diverged": diverged(),
    }
    for words, tree in faults.items():
        found = verdict(tree)
        assert found.good is False and words in found.text


def test_columns_of_very_different_scales_are_told_on_the_first_screen():
    wide = FLAT * [1.0, 1.0, 1.0, 1000.0]
    for standardize in (False, True):
        found = verdict(_fit(zoo.PPCA(num_latents=1, standardize=standardize), wide, method="closed_form"))
        assert found.text.startswith("Columns with large numbers decide this fit") is not standardize
    assert verdict(_fit(zoo.PPCA(num_latents=1), FLAT, method="closed_form")).good is True


def test_the_gravest_judgement_comes_first_and_others_are_named():
    own = [Judgement(True, "Converged", "r", "n"), Judgement(None, "The truncation is too short", "t", "m")]
    bad, fine = Judgement(False, "Data differ", "d", "a"), Judgement(True, "LOO is sound", "", "")
    assert gravest([*own, bad, fine]) == bad._replace(reason="d; also: the truncation is too short")
    assert gravest([own[0], fine]).reason == "r; also: LOO is sound"
    assert is_provisional([*own, bad]) and not is_provisional(own)
    assert convergence_judgements(planted_regression(num_draws=500))[0].good is True


def test_a_caution_goes_before_what_is_in_favour_in_whatever_order():
    """A failure before both; what is in favour is named after another such only."""
    good, caution, bad = (Judgement(value, str(value), "r", "n") for value in (True, None, False))
    for own in itertools.permutations([good, caution]):
        assert gravest(own) == caution._replace(reason="r")
    for every in itertools.permutations([good, caution, bad]):
        assert gravest([good, *every]) == bad._replace(reason="r; also: none")
    assert gravest([caution, caution, good]) == caution._replace(reason="r; also: none")
    assert gravest([good, good]).reason == "r; also: true"


@pytest.mark.parametrize(
    ("counts", "truncation", "share"),
    [
        ([3] * 1 + [2] * 39, 3, None),  # one draw in 40
        ([3] * 2 + [2] * 38, 3, "5%"),  # exactly one in 20
        ([3] * 40, 3, "100%"),
        ([3] * 40, 4, None),
        ([3] * 40, None, None),  # three are part of the model
        ([1] * 40, 1, None),
    ],
)
def test_a_truncation_is_too_short_where_one_draw_in_twenty_fills_it(counts, truncation, share, monkeypatch):
    kind = "dirichlet" if truncation is None else "stick_breaking"
    model = SimpleNamespace(weights=weight_prior(kind, truncation or 3), roles=Roles())
    monkeypatch.setattr(verdicts, "model_of", lambda tree: model)
    posterior = xr.Dataset({"num_occupied": (("chain", "draw"), np.reshape(counts, (2, 20)))})
    found = verdicts._of_truncation(xr.DataTree.from_dict({"posterior": posterior}))
    assert (found is not None) == (share is not None)
    if found:
        assert f"too short: all 3 clusters hold rows in {share} of the draws" in found.text
        assert found.good is None and "to 6 or more" in found.advice


@pytest.mark.parametrize(
    ("ends", "good", "said"),
    [
        ([-13.0, -12.0, -10.0], True, "VB has converged: 2 of 3 starts end within 2 nats of the best"),
        ([-90.0, -10.0, -12.1], None, "VB has converged, but only 1 of 3 starts reached the best objective"),
        ([np.nan, -11.0, -np.inf, -10.0], True, "2 of 4 starts end within 2 nats"),
        ([np.nan, -10.0], None, "only 1 of 2 starts"),
    ],
)
def test_starts_are_counted_from_the_best(ends, good, said):
    tree = variational_mixture()
    trace = tree["trace"].to_dataset().drop_dims("restart")
    trace["objective_at_end"] = ("restart", np.array(ends))
    (found,) = convergence_judgements(marked(replaced(tree, trace=trace), stop_reason="converged"))
    assert found.good is good and said in found.text


@pytest.mark.parametrize("draws", [1, 20])
@pytest.mark.parametrize("takes", [("gibbs", "nuts"), ("nuts",), ()])
def test_an_ascent_is_compared_with_a_sampler_that_takes_the_model(draws, takes, monkeypatch):
    """Of one start a model without several modes is believed."""
    tree = marked(replaced(variational_mixture(num_draws=draws), trace=None), stop_reason="converged")
    said = ": an approximation usually" if draws > 1 else ", which has a posterior"
    named = {(name,): f"method={name!r}" for name in takes}
    monkeypatch.setattr(verdicts, "advised", lambda model, names: named.get(names, ""))
    for symmetries, several, good in (((), False, True), (("labels",), False, None), ((), True, None)):
        told = type(
            "Told",
            (Answers,),
            {"has_several_modes": lambda self, model, told=several: told},
        )
        model = SimpleNamespace(symmetries=symmetries, answers=told)
        monkeypatch.setattr(verdicts, "model_of", lambda tree, model=model: model)
        found = verdicts._of_ascent(tree)
        assert found.good is good
        believed = f"compare with method={takes[0]!r}{said}" if takes else "score held-out rows; "
        wanted = believed if good else "num_restarts=10: "
        assert found.advice.startswith(wanted)
