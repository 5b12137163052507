"""Split-merge moves: the prior of a split, invariance against all labels listed, Geweke; planted errors fail.

The moves are begun from exact draws of the posterior of the labels, listed one by one, and must leave it as
it is: chi-squared over all labelings. A move that is off by a factor in its ratio is seen after a few moves.
"""

import dataclasses
import itertools
import json
import warnings
from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import binomtest, chisquare

from inference import fit
from inference.calibration import geweke
from inference.fitting import arguments
from inference.methods.mixture import gibbs, split_merge
from inference.methods.mixture.urn_statistics import statistics_for
from zoo import Mixture
from zoo.conjugate import BernoulliBeta, GaussianWishart, SharedGaussianWishart

pytestmark = pytest.mark.usefixtures("in_double")

X = np.array([[-1.3], [-0.9], [0.4], [1.6], [2.2]])
BITS = np.array([[0.0, 1], [0, 1], [1, 1], [1, 0], [0, 0]])
SLOTS = 4
NUM_CHAINS, NUM_MOVES = 20_000, 3
FAMILIES = {
    "gaussian": (GaussianWishart([0.0], 0.3, [[0.7]], 2.5), X),
    "bernoulli": (BernoulliBeta(np.array([0.3, 0.4]), np.array([0.5, 0.3])), BITS),
}


def mixture(weight_prior, family="gaussian", concentration=1.3, num_components=SLOTS):
    return Mixture(FAMILIES[family][0], num_components, concentration, weight_prior)


def log_prior_of(model, counts, alpha):
    """Log probability of labels with these rows each, up to a constant: by the program's own normalisers."""
    return float(model.weights.log_normaliser(model.weights.posterior(jnp.asarray(counts), alpha)))


def listed(model, x):
    """All labelings of the rows and their posterior probabilities."""
    every = np.array(list(itertools.product(range(model.num_components), repeat=len(x))))
    features = model.components.features(jnp.asarray(x))
    sums = jax.vmap(lambda z: jax.ops.segment_sum(features, z, num_segments=model.num_components))
    evidence = np.asarray(model.components.log_evidence(sums(jnp.asarray(every)))).sum(-1)
    counts = np.stack([np.bincount(z, minlength=model.num_components) for z in every])
    kinds, which = np.unique(counts, axis=0, return_inverse=True)
    prior = np.array([log_prior_of(model, kind.astype(float), model.concentration) for kind in kinds])
    log = evidence + prior[which.ravel()]
    return every, np.exp(log - np.logaddexp.reduce(log))


def p_value(model, x, seed, change=None):
    """Of the labels after a few moves from exact draws; ``change`` puts an error into the prior's ratio."""
    every, probability = listed(model, x)
    start = np.random.default_rng(seed).choice(len(every), NUM_CHAINS, p=probability)
    right = split_merge.log_split_prior(model, jnp.asarray(float(model.concentration)))
    log_prior = right if change is None else partial(change, right)

    def one(key, labels):
        return split_merge.repeated(
            key, labels, jnp.asarray(x), model.components, model.num_components, log_prior, NUM_MOVES
        )

    keys = jax.random.split(jax.random.key(seed), NUM_CHAINS)
    labels, accepted, _ = map(np.asarray, jax.jit(jax.vmap(one))(keys, jnp.asarray(every[start])))
    assert accepted.mean() > 0.02
    places = labels @ model.num_components ** np.arange(len(x))[::-1]
    found = np.bincount(places, minlength=len(every)).astype(float)
    order = np.argsort(probability)
    groups = np.floor(np.cumsum(probability[order]) * NUM_CHAINS / 40).astype(int)  # of 40 or more expected
    expected = np.bincount(groups, probability[order] * NUM_CHAINS)
    found = np.bincount(groups, found[order])
    large = expected > 20
    rest = expected[~large].sum(), found[~large].sum()
    expected, found = expected[large], found[large]
    expected[0] += rest[0]
    found[0] += rest[1]
    return chisquare(found, expected).pvalue


def without_the_free_labels(right, merged, place, kept, left):
    """The labels that a split may take are not counted."""
    logs = right(merged, place, kept, left)
    return logs - jnp.log(jnp.sum(merged == 0))


def without_the_prior(right, merged, place, kept, left):
    """Any sizes as good as any others."""
    return jnp.where(jnp.isfinite(right(merged, place, kept, left)), 0.0, -jnp.inf)


@pytest.mark.parametrize(
    ("weight_prior", "free_last_stick"),
    [("dirichlet", False), ("stick_breaking", False), ("stick_breaking", True)],
)
def test_the_prior_of_a_split_is_a_difference_of_priors_of_labels(weight_prior, free_last_stick):
    """To 1e-11, at every label that is free, a concentration of 1e-3 among them."""
    model = mixture(weight_prior, num_components=5).replaced(free_last_stick=free_last_stick)
    merged, place, kept, left = np.array([0.0, 4, 0, 7, 0]), 3, 5.0, 2.0
    for alpha in (1e-3, 0.7, 20.0):
        found = np.asarray(
            split_merge.log_split_prior(model, jnp.asarray(alpha))(jnp.asarray(merged), place, kept, left)
        )
        for slot in range(5):
            if merged[slot]:
                assert found[slot] == -np.inf
                continue
            split = merged.copy()
            split[place], split[slot] = kept, left
            wanted = log_prior_of(model, split, alpha) - log_prior_of(model, merged, alpha)
            assert found[slot] == pytest.approx(wanted, abs=1e-11)


CASES = [
    ("dirichlet", "gaussian", 1.3),
    ("stick_breaking", "gaussian", 1.3),
    pytest.param("dirichlet", "bernoulli", 0.2, marks=pytest.mark.slow),
    pytest.param("stick_breaking", "bernoulli", 0.2, marks=pytest.mark.slow),
    pytest.param("dirichlet", "gaussian", 0.05, marks=pytest.mark.slow),
    pytest.param("stick_breaking", "gaussian", 8.0, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("weight_prior", "family", "alpha"), CASES)
def test_the_posterior_of_all_labels_stays_as_it_is(weight_prior, family, alpha):
    """False alarms 1e-4 a case."""
    model = mixture(weight_prior, family, alpha)
    assert p_value(model, FAMILIES[family][1], seed=1) > 1e-4


def test_second_rows_are_any_or_the_nearest_of_some():
    """Of 40 rows in 20 places, two in each: the other one comes by the law, false alarms 1e-6."""
    number, num_rows = 40_000, 40
    places = jnp.repeat(jnp.arange(20.0), 2)[:, None]
    uniforms = jax.random.uniform(jax.random.key(4), (number, 3))
    i, j = map(np.asarray, jax.vmap(lambda own: split_merge.draw_pair(own, num_rows, places))(uniforms))
    assert (i != j).all() and chisquare(np.bincount(i, minlength=num_rows)).pvalue > 1e-6
    share = (split_merge.NEAR * split_merge.CANDIDATES + 1 - split_merge.NEAR) / (num_rows - 1)
    assert binomtest(int((i // 2 == j // 2).sum()), number, share).pvalue > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("weight_prior", ["dirichlet", "stick_breaking"])
@pytest.mark.parametrize("error", [without_the_free_labels, without_the_prior])
def test_a_wrong_ratio_is_seen(weight_prior, error):
    assert p_value(mixture(weight_prior), X, seed=2, change=error) < 1e-9


@pytest.mark.slow
def test_sides_without_their_probability_are_seen(monkeypatch):
    """Planted: the law of the sides left out of the ratio."""
    monkeypatch.setattr(split_merge, "log_sigmoid", jnp.zeros_like)
    assert p_value(mixture("dirichlet"), X, seed=3) < 1e-9


@pytest.mark.parametrize("number", [1, 3])
def test_few_of_the_rows_drawn_again_leave_the_posterior_as_it_is(number, monkeypatch):
    """The others take the side that the launch gives them; false alarms 1e-4."""
    monkeypatch.setattr(split_merge, "SCANNED_ROWS", number)
    assert p_value(mixture("dirichlet"), X, seed=5) > 1e-4


@pytest.mark.slow
def test_a_scan_without_its_probability_is_seen(monkeypatch):
    """Planted: the rows that are drawn again are left out of the ratio."""
    right = split_merge.draw_sides
    monkeypatch.setattr(split_merge, "draw_sides", lambda *given: (right(*given)[0], 0.0))
    assert p_value(mixture("dirichlet"), X, seed=5) < 1e-9


@pytest.mark.parametrize("name", ["GaussianWishart", "BernoulliBeta"])
def test_a_row_drawn_anew_is_taken_out_and_put_in(name):
    """Densities are ratios of evidence and statistics those of the labels after it, to 1e-9."""
    components, x = FAMILIES[{"GaussianWishart": "gaussian", "BernoulliBeta": "bernoulli"}[name]]
    statistics, features = statistics_for(components), components.features(jnp.asarray(x))
    rows, labels = statistics.rows(components, jnp.asarray(x)), jnp.array([0, 0, 1, 1, 2])
    for place, slot, takes in ((0, 0, [1]), (4, 2, [3]), (2, 1, [1]), (1, -1, [0, 3]), (3, 1, [])):
        taken = jnp.isin(jnp.arange(4), jnp.array(takes, int))
        begun = statistics.of(components, rows, labels.at[place].set(slot), 4)
        found, density = begun.drawn_anew(components, slot, rows[place], lambda own, to=taken: (to, own))
        sums = jax.ops.segment_sum(features, labels.at[place].set(-1), num_segments=4)
        wanted = components.log_evidence(sums + features[place]) - components.log_evidence(sums)
        np.testing.assert_allclose(density, wanted, rtol=1e-9)
        wanted = begun.holding(components, sums + taken[:, None] * features[place])
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12), found, wanted)


def test_a_call_that_does_not_say_how_long_runs_until_its_chains_agree():
    """A call that gives a number of draws gets as many; larger tables get fewer looks, and two at least."""
    model = mixture("dirichlet")
    options = {"method": "gibbs", "num_warmup": 2, "seed": 0, "num_chains": 2, "progress": False}
    small = {"num_samples": 8, "thinning": 2, "max_looks": 3}
    method = dataclasses.replace(gibbs.METHOD, to_convergence=lambda *given: small)
    with mock.patch.object(arguments, "method_of", lambda *given: method), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        asked = fit(model, X, num_samples=9, split_merge=0, **options)
        own = fit(model, X, split_merge=0, **options)
    assert asked["posterior"].sizes["draw"] == 9
    assert asked.attrs["num_iterations"] == 11
    assert own["posterior"].sizes["draw"] in (16, 24)
    settings = json.loads(own.attrs["options"])
    assert (settings["until"], settings["thinning"], settings["max_sweeps"]) == ("converged", 2, 50)
    plans = [gibbs.to_convergence(model, (np.zeros((n, 1)),), 4) for n in (10**2, 10**4, 10**7)]
    assert [plan["thinning"] for plan in plans] == [4, 4, 1]
    assert plans[0]["max_looks"] > plans[2]["max_looks"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("weight_prior", ["stick_breaking", "dirichlet"])
def test_a_launch_from_a_sample_of_the_rows_leaves_the_posterior_as_it_is(weight_prior, monkeypatch):
    """Two of five rows are seen, false alarms 1e-4; planted: the law of the sides left out of the ratio."""
    monkeypatch.setattr(split_merge, "LAUNCH_ROWS", 2)
    assert p_value(mixture(weight_prior), X, seed=4) > 1e-4
    monkeypatch.setattr(split_merge, "log_sigmoid", jnp.zeros_like)
    assert p_value(mixture(weight_prior), X, seed=4) < 1e-9


@pytest.mark.parametrize("number", [3, 40, 700])
def test_a_sample_has_every_member_as_often_as_any_other_and_no_other_row(number):
    """Over places of the first step that fill the unit interval, to the share of one of them."""
    member = np.zeros(1000)
    member[np.random.default_rng(0).choice(1000, number, replace=False)] = 1
    starts = (np.arange(200) + 0.5) / 200
    places = np.asarray(jax.vmap(split_merge.spread_members, (None, 0))(jnp.asarray(member), starts))
    times = np.bincount(places.ravel(), minlength=1000) / len(starts)
    wanted = split_merge.LAUNCH_ROWS / number
    assert not times[member == 0].any()
    assert np.abs(times[member > 0] - wanted).max() < max(wanted / 200, 2 / 200) + 1e-9


def test_moves_are_made_where_they_are_asked_for():
    model = mixture("dirichlet")
    assert gibbs.METHOD.options["split_merge"] == 4
    assert gibbs.blocks_with(0)(model) == gibbs.blocks_of(model)
    added = [block for block in gibbs.blocks_with(3)(model) if block not in gibbs.blocks_of(model)]
    assert added == [split_merge.split_merge(3)]


@pytest.mark.slow
def test_moves_are_offered_to_someone_whose_chains_stay_apart():
    """None to whom they are made already, nor where components share a parameter."""
    x = np.random.default_rng(0).normal(size=(40, 1)) + 30 * (np.arange(40) % 4)[:, None]
    options = {"method": "gibbs", "num_warmup": 0, "num_samples": 20, "seed": 0}
    shared = Mixture(SharedGaussianWishart(), num_components=SLOTS)
    for model, moves, wanted in (
        (mixture("dirichlet"), 0, True),
        (mixture("dirichlet"), 1, False),
        (shared, 0, False),
    ):
        with pytest.warns(UserWarning, match="different modes") as caught:
            fit(model, x, split_merge=moves, **options)
        assert ("or add moves between modes: split_merge=4" in str(caught[0].message)) == wanted


def with_random_concentration(weight_prior, shape):
    return mixture(weight_prior, concentration=dist.Gamma(shape, 1.0), num_components=3)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [0.5, 2.0])
@pytest.mark.parametrize("weight_prior", ["stick_breaking", "dirichlet"])
def test_the_sampler_with_moves_passes_geweke(weight_prior, shape):
    """At a prior that reaches small concentrations too; false alarm rate 1 %."""
    algorithm = gibbs.algorithm_of(gibbs.blocks_with(2))
    verdict = geweke(
        with_random_concentration(weight_prior, shape), algorithm, 5, key=jax.random.key(4), num_draws=500
    )
    assert verdict.passed, str(verdict)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [0.5, 2.0])
@pytest.mark.parametrize("weight_prior", ["stick_breaking", "dirichlet"])
def test_the_sampler_with_moves_passes_a_long_geweke(weight_prior, shape):
    algorithm = gibbs.algorithm_of(gibbs.blocks_with(4))
    verdict = geweke(
        with_random_concentration(weight_prior, shape), algorithm, 8, key=jax.random.key(5), num_draws=4000
    )
    assert verdict.passed, str(verdict)


@pytest.mark.slow  # by default the listed labels see the same error: test_a_wrong_ratio_is_seen
def test_geweke_sees_a_move_that_leaves_the_prior_out(monkeypatch):
    right = split_merge.log_split_prior
    monkeypatch.setattr(split_merge, "log_split_prior", lambda *a: partial(without_the_prior, right(*a)))
    split_merge.split_merge.cache_clear()
    gibbs.blocks_with.cache_clear()
    verdict = geweke(
        with_random_concentration("dirichlet", 0.5),
        gibbs.algorithm_of(gibbs.blocks_with(2)),
        5,
        key=jax.random.key(6),
        num_draws=500,
    )
    split_merge.split_merge.cache_clear()
    gibbs.blocks_with.cache_clear()
    assert not verdict.passed


def test_options_of_the_blocked_sampler():
    model = mixture("dirichlet")
    with pytest.raises(ValueError, match="split_merge must be a whole number of at least 0; got -1"):
        fit(model, X, method="gibbs", split_merge=-1)
    assert len(gibbs.blocks_with(2)(model)) == len(gibbs.blocks_of(model)) + 1


def test_labels_are_drawn_with_their_probabilities():
    """Chi-squared over five labels, false alarms 1e-4; a label of probability zero is never drawn."""
    logits = jnp.broadcast_to(jnp.array([0.3, -jnp.inf, -1.0, 1.2, -jnp.inf]), (50_000, 5))
    drawn = np.asarray(gibbs.RowLabels(logits, jnp.ones(len(logits), bool)).sample(jax.random.key(0)))
    found = np.bincount(drawn, minlength=5)
    law = np.exp([0.3, -np.inf, -1.0, 1.2, -np.inf])
    assert found[1] == found[4] == 0
    kept = law > 0
    assert chisquare(found[kept], 50_000 * law[kept] / law.sum()).pvalue > 1e-4


def test_the_logarithm_of_a_probability_is_that_of_jax():
    x = jnp.linspace(-40.0, 40.0, 33)
    np.testing.assert_allclose(split_merge.log_sigmoid(x), jax.nn.log_sigmoid(x), rtol=1e-6)
