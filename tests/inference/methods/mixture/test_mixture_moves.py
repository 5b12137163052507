"""Moves of VB for mixtures are judged by the exact bound; sticks are in their best order."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from interruptions import cut_short, same
from jax.scipy.special import xlogy
from scipy.special import betaln

from inference import fit
from inference.methods.mixture import vb
from inference.methods.mixture import vb as moves
from inference.methods.mixture import vb_posterior as posterior
from inference.numerics.weighted_rows import Rows
from zoo.datasets import load
from zoo.dirichlet_process import StickBreaking
from zoo.mixture import Mixture

X = load("toy_gaussians", seed=0)["x"][::4]
K = 8


@pytest.fixture(autouse=True)
def in_double():
    with jax.enable_x64(True):
        yield


def model(**fields):
    return Mixture.from_data(X, **({"num_components": K, "weight_prior": "stick_breaking"} | fields))


def bound_of(r, mixture):
    """The bound with all of q optimal for given responsibilities, and the entropy written out."""
    statistics = r.T @ mixture.components.features(X)
    state = posterior.from_statistics(statistics, jnp.asarray(mixture.concentration), mixture)
    return float(vb.bound(state, statistics, -jnp.sum(xlogy(r, r)), mixture))


@pytest.mark.parametrize(
    ("alpha", "free"), [(0.4, False), (1.0, False), (2.0, False), (7.0, False), (7.0, True)]
)
def test_the_order_of_sticks_is_the_best_of_all(alpha, free):
    """All 120 orders of five components; above alpha = 1 the smallest is not always last."""
    weights = StickBreaking(5, free_last_stick=free)
    best_order = jax.jit(weights.best_order)

    def value(counts):
        tails = np.cumsum(counts[::-1])[::-1]
        after = np.append(tails[1:], 0.0)
        return betaln(1.0 + counts, alpha + after)[: weights.num_sticks].sum()

    moved = 0
    for seed in range(6):
        counts = np.random.default_rng(seed).gamma(0.5, 20.0, 5)
        chosen = np.asarray(best_order(counts, alpha))
        assert sorted(chosen) == list(range(5))
        best = max(value(counts[list(order)]) for order in itertools.permutations(range(5)))
        np.testing.assert_allclose(value(counts[chosen]), best, rtol=1e-12)
        moved += chosen[-1] != counts.argmin()
        assert value(np.sort(counts)) < best  # planted: rising instead of falling
    assert (moved > 0) == (alpha > 1 and not free)


@pytest.fixture(scope="module")
def settled():
    """A state some steps from a random start, and its responsibilities; sticks not sorted yet."""
    with jax.enable_x64(True):
        mixture = model()
        state = posterior.init(jax.random.key(2), mixture, X)
        climb = jax.jit(lambda state: vb.step(None, state, mixture, X, sort_sticks=False)[0])
        for _ in range(12):
            state = climb(state)
        return mixture, state, posterior.responsibilities(state, mixture, X)


def test_the_gain_of_a_merge_is_that_of_the_added_responsibilities(settled):
    mixture, state, r = settled
    gains, pairs, _ = jax.jit(moves.merge_gains)(state, mixture, X)
    here = bound_of(r, mixture)
    checked = 0
    for gain, first, second in zip(gains, *pairs, strict=True):
        if np.isfinite(gain):
            merged = r.at[:, first].add(r[:, second]).at[:, second].set(0.0)
            order = mixture.weights.best_order(merged.sum(0), mixture.concentration)
            np.testing.assert_allclose(bound_of(merged[:, order], mixture) - here, gain, atol=1e-8)
            checked += 1
    assert checked >= 3


def test_the_proposals_of_a_birth_have_their_exact_statistics_and_entropy(settled):
    mixture, state, r = settled
    births = jax.jit(moves.split)(jax.random.key(0), state, mixture, X)
    features = mixture.components.features(X)
    bounds = []
    for number, parent in enumerate(births.parents):
        kept = r[:, parent] * jax.nn.sigmoid(features @ births.odds[number])
        shared = r.at[:, parent].set(kept).at[:, births.child].add(r[:, parent] - kept)
        np.testing.assert_allclose(shared.T @ features, births.statistics[number], rtol=1e-9, atol=1e-8)
        np.testing.assert_allclose(-jnp.sum(xlogy(shared, shared)), births.entropy[number], rtol=1e-9)
        bounds.append(bound_of(shared, mixture))
    assert len(set(np.asarray(births.parents))) > 1 and np.ptp(bounds) > 1.0


def test_moves_of_weighted_rows_are_those_of_their_copies(settled):
    """Merges: limits, entropies and gains; births: statistics and entropy, and no seed of weight zero."""
    mixture, state, _ = settled
    weight = np.random.default_rng(3).integers(0, 4, len(X)).astype(float)
    weighted, copies = Rows(jnp.asarray(X), jnp.asarray(weight)), np.repeat(X, weight.astype(int), axis=0)
    gains = jax.jit(moves.merge_gains)
    own, pairs, statistics = gains(state, mixture, weighted)
    each, pairs_of_copies, statistics_of_copies = gains(state, mixture, copies)
    np.testing.assert_array_equal(pairs, pairs_of_copies)
    np.testing.assert_allclose(own, each, rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(statistics, statistics_of_copies, rtol=1e-9, atol=1e-8)
    planted = gains(state, mixture, X)[0]  # without the weights
    assert np.nanmax(np.abs(np.where(np.isfinite(own), own - planted, 0))) > 1

    births = jax.jit(moves.split)(jax.random.key(0), state, mixture, weighted)
    r, features = posterior.responsibilities(state, mixture, X), mixture.components.features(X)
    for number, parent in enumerate(births.parents):
        kept = r[:, parent] * jax.nn.sigmoid(features @ births.odds[number])
        shared = r.at[:, parent].set(kept).at[:, births.child].add(r[:, parent] - kept)
        entropy = -weight @ jnp.sum(xlogy(shared, shared), axis=-1)
        np.testing.assert_allclose(
            (weight[:, None] * shared).T @ features, births.statistics[number], atol=1e-8
        )
        np.testing.assert_allclose(entropy, births.entropy[number], rtol=1e-9)

    one = Rows(jnp.asarray(X), jnp.zeros(len(X)).at[7].set(1.0))
    seeds = moves._draw_seeds(jax.random.key(1), state, mixture, one, births.parents)
    np.testing.assert_array_equal(seeds, jnp.broadcast_to(features[7], seeds.shape))


def test_sorting_raises_the_bound_in_a_step_and_never_lowers_it(settled):
    mixture, state, _ = settled
    plain = vb.step(None, state, mixture, X, sort_sticks=False)[1].objective
    ordered = vb.step(None, state, mixture, X)[1].objective
    assert ordered > plain + 0.1


MOVED = {"moves": ("merge", "birth"), "num_samples": 5, "num_restarts": 2, "seed": 4}


@pytest.fixture(scope="module")
def moved():
    with jax.enable_x64(True):
        return fit(model(), X, **MOVED)


@pytest.mark.slow
def test_moves_only_raise_the_bound_and_find_what_plain_vb_does_not(moved):
    for trace in moved["trace"]["objective_by_restart"].to_numpy().T:
        trace = trace[np.isfinite(trace)]
        assert np.min(np.diff(trace) / np.abs(trace[:-1])) > -1e-12
    plain = fit(model(), X, **MOVED | {"moves": ()})
    assert moved["trace"]["objective"].max() >= plain["trace"]["objective"].max() - 1e-3
    gained = (moved["trace"]["objective_at_end"] - plain["trace"]["objective_at_end"]).to_numpy()
    assert gained.min() > -1e-3 and gained.max() > 1.0
    assert moved.attrs["num_improvements"] >= 1 and "num_improvements" not in plain.attrs
    assert moved.attrs["converged"] == 1


@pytest.mark.slow
def test_a_run_with_moves_resumes_bit_for_bit(moved, tmp_path, monkeypatch):
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        cut_short(patch, 5)
        with pytest.warns(UserWarning, match="has not converged"):
            part = fit(model(), X, checkpoint=path, **MOVED)
    assert part.attrs["num_iterations"] < moved.attrs["num_iterations"]
    same(fit(model(), X, checkpoint=path, **MOVED), moved)
    same(fit(model(), X, checkpoint=path, **MOVED), moved)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["random", "dirichlet", "kmeans", "pca", "hierarchical"])
def test_starts_that_say_so_are_deterministic(strategy):
    one, two = (fit(model(), X, init=strategy, num_samples=2, seed=seed) for seed in (0, 1))
    equal = np.array_equal(one["trace"]["objective"][:3], two["trace"]["objective"][:3])
    assert equal == (strategy in ("pca", "hierarchical"))
    assert one["trace"]["objective"][-1] > one["trace"]["objective"][0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", ["SharedGaussianWishart", "Product", "BernoulliBeta", "MultinomialDirichlet"]
)
def test_moves_of_any_family_end_no_lower_than_plain_vb(family):
    """From the same starts; also with two components, where every birth and merge is between the two."""
    from tests.component_families import priors, rows

    for num_components in (2, 5):
        mixture = Mixture(components=priors()[family], num_components=num_components)
        plain, moved = (
            fit(mixture, rows(family, 60), moves=which, num_samples=2, num_restarts=2)
            for which in ((), ("merge", "birth"))
        )
        trace = moved["trace"]["objective_by_restart"].to_numpy()
        assert np.nanmin(np.diff(trace, axis=0) / np.abs(trace[:-1])) > -1e-12
        highest = plain["trace"]["objective_at_end"]
        assert np.all(moved["trace"]["objective_at_end"] >= highest - 1e-6)
