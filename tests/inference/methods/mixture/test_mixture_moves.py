"""Moves of VB for mixtures are judged by the exact bound; sticks are in their best order."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import xlogy
from scipy.special import betaln

from inference import fit
from inference.methods.mixture import vb
from inference.methods.mixture import vb as moves
from inference.methods.mixture import vb_posterior as posterior
from inference.numerics.weighted_rows import Rows
from tests.support.interruptions import cut_short, same
from zoo.datasets import load
from zoo.dirichlet_process import StickBreaking
from zoo.intake.families import for_data
from zoo.mixture import Mixture

pytestmark = pytest.mark.usefixtures("in_double")

X = load("toy_gaussians", seed=0)["x"][::4]
K = 8


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


def state_of(r, mixture):
    """The state that is optimal for responsibilities, as the host holds it."""
    statistics = r.T @ mixture.components.features(X)
    state = posterior.from_statistics(statistics, jnp.asarray(mixture.concentration), mixture)
    return jax.tree.map(np.asarray, state)


def alone(state):
    """The state as that of the only restart."""
    return jax.tree.map(lambda leaf: leaf[None], state)


def gains_of(state, mixture, pairs):
    """The gains of unions, what they ask for answered."""
    asked, answer = vb.union_gains(state.statistics, pairs, mixture), None
    while True:
        try:
            sums, tried = asked.send(answer)
        except StopIteration as end:
            return end.value
        assert not tried
        answer = [np.asarray(own[0]) for own in vb.at_sums(sums[None], alone(state), mixture)[1:]]


def proposed(state, mixture, moves):
    """The proposals of the only restart if all are refused."""
    proposals = vb.propose(alone(state), np.arange(1), mixture, moves=moves)
    states, found = alone(state), []
    own, tried = next(proposals)
    while tried.all():
        found.append(np.asarray(own.statistics[0]))
        own, tried = next_of(proposals, states, False)
    return found


def next_of(proposals, states, is_taken):
    """The next proposals, none where there are no more, after all were taken or all refused."""
    states = jax.tree.map(np.asarray, states)
    try:
        return proposals.send((states, np.full(len(states.statistics), is_taken)))
    except StopIteration:
        return None, np.zeros(1, bool)


@pytest.mark.parametrize("weight_prior", ["dirichlet", "stick_breaking"])
def test_the_gain_of_a_union_is_that_of_the_added_labels(weight_prior):
    """Of labels without doubt, under Dirichlet weights, exactly that of the whole bound."""
    mixture = model(weight_prior=weight_prior, concentration=2.5)
    r = jax.nn.one_hot(np.arange(len(X)) % (K - 1), K)
    pairs = np.array(np.triu_indices(K - 1, 1))
    assert pairs.shape[1] > vb.ROOM * K  # more than are looked at together
    gains = gains_of(state_of(r, mixture), mixture, pairs)
    found = [
        bound_of(r.at[:, k].add(r[:, j]).at[:, j].set(0.0), mixture) - bound_of(r, mixture)
        for k, j in pairs.T
    ]
    assert (np.abs(gains - found).max() < 1e-8) == (weight_prior == "dirichlet")


def test_clusters_in_halves_are_merged_within_the_fit_and_no_bound_falls():
    """To the optimum that a fit from the merged labels has."""
    x = np.concatenate([np.random.default_rng(s).normal(12 * s, 1, (20, 2)) for s in range(3)])
    mixture, call = Mixture.from_data(x, num_components=K), {"num_samples": 2, "progress": False}
    halves, whole = ({"assignments": np.arange(60) // size} for size in (10, 20))
    plain, moved, merged = (
        fit(mixture, x, init=init, moves=moves, **call)
        for init, moves in ((halves, ()), (halves, ("merge", "delete")), (whole, ()))
    )
    occupied = [int(tree["trace"]["num_occupied"][-1]) for tree in (plain, moved, merged)]
    assert occupied[0] > 3 and occupied[1:] == [3, 3]
    objective = moved["trace"]["objective"].to_numpy()
    assert np.diff(objective).min() > -1e-9 and moved.attrs["num_improvements"] >= 1
    assert objective[-1] == pytest.approx(float(merged["trace"]["objective"][-1]), abs=1e-3)
    assert objective[-1] > plain["trace"]["objective"][-1] + 1.0


@pytest.mark.parametrize("family", ["SharedGaussianWishart", "Product", "MultinomialDirichlet"])
def test_a_step_from_a_proposal_has_the_bound_that_the_proposed_labels_lead_to(family):
    """Pairs added up and the smallest components emptied, in any family."""
    from tests.support.component_families import priors, rows

    x = rows(family, 40)
    mixture = for_data(Mixture(components=priors()[family], num_components=4), x)
    r = jnp.asarray(np.random.default_rng(0).dirichlet(np.full(4, 0.1), 40))
    state = posterior.from_statistics(r.T @ mixture.components.features(x), jnp.asarray(1.0), mixture)
    state, counts = jax.tree.map(np.asarray, state), np.asarray(r.sum(0))
    proposals = proposed(state, mixture, ("merge", "delete"))
    merged, deleted = proposals[: -vb.EACH], proposals[-vb.EACH :]
    pairs = set()
    for own in merged:
        emptied = int(np.flatnonzero((own[:, 0] == 0) & (counts > 0))[0])
        kept = int(np.flatnonzero(own[:, 0] > counts + 1e-9)[0])
        np.testing.assert_allclose(own[kept], state.statistics[kept] + state.statistics[emptied])
        pairs.add((kept, emptied))
    assert 1 <= len(pairs) == len(merged) <= vb.EACH
    for own, smallest in zip(deleted, np.argsort(counts), strict=False):
        assert np.flatnonzero(own[:, 0] == 0) == smallest


def test_what_is_taken_is_merged_further_and_three_that_fail_are_the_last():
    """Seven equal parts of one cluster: all merges gain, until the first that are refused."""
    mixture = model(weight_prior="dirichlet")
    state = state_of(jax.nn.one_hot(np.arange(len(X)) % (K - 1), K), mixture)
    proposals, left, refused = vb.propose(alone(state), np.arange(1), mixture, moves=("merge",)), [], []
    states, tried = next(proposals)
    for _ in range(3):
        left.append(int((states.statistics[0, :, 0] > 0).sum()))
        kept = states
        states, tried = next_of(proposals, kept, True)
    while tried.all():
        refused.append(int((states.statistics[0, :, 0] > 0).sum()))
        states, tried = next_of(proposals, kept, False)
    assert left == [6, 5, 4] and len(refused) == 2 * vb.EACH  # by gains before the merges, and after
    assert set(refused) == {3}


def test_what_restarts_are_proposed_does_not_depend_on_the_others():
    """Beside one that is not asked, and one whose moves end earlier."""
    mixture = model(weight_prior="dirichlet")
    slices = 3 * np.argsort(np.argsort(X[:, 0])) // len(X)
    labels = np.arange(len(X)) % (K - 1), np.arange(len(X)) % 3, slices
    each = [state_of(jax.nn.one_hot(own, K), mixture) for own in labels]
    states = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    proposals, found = vb.propose(states, np.array([0, 2]), mixture, moves=("merge", "delete")), ([], [], [])
    own, tried = next(proposals)
    while tried.any():
        for number in np.flatnonzero(tried):
            found[number].append(np.asarray(own.statistics[number]))
        own, tried = next_of(proposals, states, False)
    assert len(found[0]) > len(found[2]) > 0 and not found[1]
    for number in (0, 2):
        np.testing.assert_array_equal(found[number], proposed(each[number], mixture, ("merge", "delete")))


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
    """Births: statistics and entropy, and no seed of weight zero. Merges follow from weighted sums."""
    mixture, state, _ = settled
    weight = np.random.default_rng(3).integers(0, 4, len(X)).astype(float)
    weighted = Rows(jnp.asarray(X), jnp.asarray(weight))
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


MOVED = {"moves": ("merge", "delete", "birth"), "num_samples": 5, "num_restarts": 2, "seed": 4}


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
    from tests.support.component_families import priors, rows

    for num_components in (2, 5):
        mixture = Mixture(components=priors()[family], num_components=num_components)
        plain, moved = (
            fit(mixture, rows(family, 60), moves=which, num_samples=2, num_restarts=2)
            for which in ((), ("merge", "delete", "birth"))
        )
        trace = moved["trace"]["objective_by_restart"].to_numpy()
        assert np.nanmin(np.diff(trace, axis=0) / np.abs(trace[:-1])) > -1e-12
        highest = plain["trace"]["objective_at_end"]
        assert np.all(moved["trace"]["objective_at_end"] >= highest - 1e-6)
