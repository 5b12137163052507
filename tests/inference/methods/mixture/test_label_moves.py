"""The move that reorders the components of a truncated Dirichlet process leaves the posterior as it is.

Four sticks and a handful of rows have few enough orders to list them all. Chi-square tests at 1e-3 with fixed
seeds, each with a planted bug that must fail; the whole sweep by `geweke` at 1 %. That the chain mixes with
the move is a slow run, recorded in tests/reference/mixture_label_moves.json.
"""

import itertools
import warnings
from functools import partial

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import xarray as xr
from numpyro import handlers
from scipy.special import betaln, expit
from scipy.stats import chisquare

from inference import fit
from inference.calibration import geweke
from inference.methods.gibbs_sweep import Move
from inference.methods.mixture import gibbs
from inference.methods.mixture import gibbs as label_moves
from inference.numerics.programs import log_densities
from tests.tools.recording import write_record
from zoo.conjugate import GaussianWishart, NormalGamma, PoissonGamma, Product, SharedGaussianWishart
from zoo.datasets import load
from zoo.dirichlet_process import StickBreaking
from zoo.mixture import Mixture

SIZES = np.array([3.0, 2.0, 0.0, 0.0])
ALPHA, NUM_MOVES, LEVEL = 1.3, 20_000, 1e-3


def mixture(free_last_stick=False, concentration=ALPHA):
    components = GaussianWishart(loc=[0.0], mean_precision=0.5, scale_matrix=[[0.2]], degrees_of_freedom=5.0)
    return Mixture(components, 4, concentration, "stick_breaking", free_last_stick)


def all_orders(sizes=SIZES):
    """Every way to lay components of these sizes on the sticks, components without rows being alike."""
    return np.array(sorted(set(itertools.permutations(sizes))))


def exact_law(free_last_stick, sizes=SIZES):
    """Probability of each order given the sizes, from the Beta integrals of the sticks."""
    orders = all_orders(sizes)
    beyond = orders[:, ::-1].cumsum(1)[:, ::-1] - orders
    terms = betaln(1 + orders, ALPHA + beyond)[:, : len(sizes) - 1 + free_last_stick]
    weight = np.exp(terms.sum(1))
    return orders, weight / weight.sum()


def labels_of(order):
    """Rows 0-2 in the component of three rows, rows 3-4 in that of two."""
    place = {size: stick for stick, size in enumerate(order)}
    return np.array([place[3.0]] * 3 + [place[2.0]] * 2)


def frequencies(labels, orders):
    """How often each order occurs among label vectors of shape (num_moves, 5); rows stay grouped."""
    assert (labels[:, :3] == labels[:, :1]).all() and (labels[:, 3:] == labels[:, 3:4]).all()
    found = np.zeros((len(labels), 4))
    found[np.arange(len(labels)), labels[:, 0]] = 3.0
    found[np.arange(len(labels)), labels[:, 3]] = 2.0
    matches = (found[:, None] == orders).all(-1)
    assert (matches.sum(1) == 1).all()
    return matches.sum(0)


def moved(move, model, labels, seed, rounds=1):
    """Labels after some moves, each row of ``labels`` on its own."""
    with jax.enable_x64(True):

        @jax.jit
        def run(keys, labels):
            def one(key, labels):
                def step(labels, key):
                    return move(key, {"assignments": labels}, model, None)["assignments"], None

                return jax.lax.scan(step, labels, jax.random.split(key, rounds))[0]

            return jax.vmap(one)(keys, labels)

        return np.asarray(run(jax.random.split(jax.random.key(seed), len(labels)), jnp.asarray(labels)))


def p_value_after(move, free_last_stick, seed):
    """Of the orders after one move from exact draws."""
    orders, law = exact_law(free_last_stick)
    start = np.random.default_rng(seed).choice(len(law), NUM_MOVES, p=law)
    labels = np.array([labels_of(order) for order in orders])[start]
    counts = frequencies(moved(move, mixture(free_last_stick), labels, seed), orders)
    return chisquare(counts, law * NUM_MOVES).pvalue


# --- planted bugs


def without_the_truncation(key, values, model, x):
    """The proposal taken whatever the last stick holds."""
    counts = jnp.bincount(values["assignments"], length=model.num_components).astype(float)
    place = jnp.argsort(label_moves.propose_order(key, counts, model.concentration))
    return values | {"assignments": place[values["assignments"]]}


def without_the_prior(key, values, model, x):
    """Any order as good as any other: labels exchanged without the ratio of the sticks' priors."""
    place = jax.random.permutation(key, model.num_components)
    return values | {"assignments": place[values["assignments"]]}


def only_neighbours(key, values, model, x):
    """The exchanges of neighbours alone."""
    counts = jnp.bincount(values["assignments"], length=model.num_components).astype(float)
    order = jnp.arange(model.num_components)
    for first, pair_key in enumerate(jax.random.split(key)):
        arguments = (counts, model.concentration, model.weights, first)
        order = label_moves.exchange_neighbours(pair_key, order, *arguments)
    return values | {"assignments": jnp.argsort(order)[values["assignments"]]}


# --- the pieces


@pytest.mark.parametrize("sizes", [(3.0, 2.0, 0.0, 0.0), (4.0, 2.0, 1.0, 0.0), (3.0, 1.0, 2.0, 5.0)])
def test_the_proposal_is_a_probability(sizes):
    """Its formula sums to one over all orders once the factors common to them are put back."""
    occupied = [size for size in sizes if size]
    with jax.enable_x64(True):
        logs = jax.vmap(partial(label_moves.log_proposal, alpha=ALPHA))(jnp.asarray(all_orders(sizes)))
    common = np.log(occupied).sum() + (len(sizes) - len(occupied)) * np.log(ALPHA)
    assert np.exp(np.asarray(logs) + common).sum() == pytest.approx(1, rel=1e-12)


def test_proposals_follow_their_formula():
    orders = all_orders()
    start = np.tile(labels_of((0.0, 3.0, 0.0, 2.0)), (NUM_MOVES, 1))
    counts = frequencies(moved(without_the_truncation, mixture(), start, seed=1), orders)
    with jax.enable_x64(True):
        logs = jax.vmap(partial(label_moves.log_proposal, alpha=ALPHA))(jnp.asarray(orders))
    law = np.exp(np.asarray(logs)) / np.exp(np.asarray(logs)).sum()
    assert chisquare(counts, law * NUM_MOVES).pvalue > LEVEL
    assert chisquare(counts, np.roll(law, 1) * NUM_MOVES).pvalue < 1e-10  # it can fail


@pytest.mark.parametrize("free_last_stick", [False, True])
def test_the_allocation_is_the_programs_with_the_sticks_integrated_out(free_last_stick):
    """Its differences are those of log joint minus log density of the sticks given labels."""
    model = mixture(free_last_stick)
    rng = np.random.default_rng(0)
    x, fractions = rng.normal(size=(5, 1)), rng.uniform(0.1, 0.9, 4 if free_last_stick else 3)
    locs, precisions = rng.normal(size=(4, 1)), rng.gamma(2.0, size=(4, 1, 1))
    with jax.enable_x64(True):

        @jax.jit
        def compare(places, locs, precisions):
            values = {
                "assignments": places[jnp.array([0, 0, 0, 1, 1])],
                "stick_decays": -jnp.log1p(-jnp.asarray(fractions)),
                "locs": locs,
                "precisions": precisions,
            }
            joint = sum(log_densities(model.explicit, (jnp.asarray(x),), values).values())
            sticks = gibbs.stick_decays(values, model, x)["stick_decays"]
            counts = gibbs.counts_of(values, model)
            program = joint - sticks.log_prob(values["stick_decays"]).sum()
            return label_moves.log_allocation(model.weights, counts, ALPHA), program

        orders = [np.array(places) for places in itertools.permutations(range(4))]
        pairs = [compare(p, locs[np.argsort(p)], precisions[np.argsort(p)]) for p in orders]
        ours, programs = np.array(pairs).T
    np.testing.assert_allclose(ours - ours[0], programs - programs[0], atol=1e-10)
    assert np.ptp(ours) > 1  # orders do differ


# --- the move


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("free_last_stick", [False, True])
@pytest.mark.parametrize("move", [label_moves.reorder_components, only_neighbours])
def test_the_move_keeps_the_exact_law(move, free_last_stick):
    assert p_value_after(move, free_last_stick, seed=2) > LEVEL


@pytest.mark.parametrize("bug", [without_the_truncation, without_the_prior])
def test_a_planted_bug_leaves_the_exact_law(bug):
    assert p_value_after(bug, False, seed=3) < 1e-10


@pytest.mark.slow
def test_the_move_reaches_every_order_from_any():
    orders, law = exact_law(False)
    start = np.tile(labels_of((0.0, 0.0, 2.0, 3.0)), (NUM_MOVES, 1))
    after = moved(label_moves.reorder_components, mixture(), start, seed=4, rounds=20)
    assert chisquare(frequencies(after, orders), law * NUM_MOVES).pvalue > LEVEL


def test_a_long_truncation_accepts_every_order():
    """Thirty sticks, concentration 1, as in the recorded run: at least 999 in 1000 proposals."""
    counts = np.zeros(30)
    counts[[3, 7, 8, 12, 20, 29]] = [60, 50, 1, 50, 45, 44]
    weights = StickBreaking(30)
    with jax.enable_x64(True):

        @jax.jit
        @jax.vmap
        def log_weight(key):
            new = jnp.asarray(counts)[label_moves.propose_order(key, jnp.asarray(counts), 1.0)]
            return label_moves.log_allocation(weights, new, 1.0) - label_moves.log_proposal(new, 1.0)

        logs = np.asarray(log_weight(jax.random.split(jax.random.key(0), 2000)))
    assert np.mean(np.abs(logs - np.median(logs)) < 1e-9) > 0.999


# --- the sweep


@pytest.mark.slow
def test_the_invariance_test_sees_labels_moved_without_the_prior():
    """The right move passes it in test_gibbs_mixture.py, where every sweep has it."""

    def blocks_of(model):
        wrong = Move(without_the_prior)
        return tuple(wrong if block is gibbs.REORDERING else block for block in gibbs.blocks_of(model))

    model = mixture(concentration=dist.Gamma(2.0, 1.0))
    assert gibbs.REORDERING in gibbs.blocks_of(model)
    verdict = geweke(model, gibbs.algorithm_of(blocks_of), 5, key=jax.random.key(0), num_draws=500)
    assert not verdict.passed
    assert verdict.statistic < 1e-10


def test_the_option_must_be_a_boolean(two_clusters):
    model = Mixture.from_data(two_clusters, num_components=8, weight_prior="stick_breaking")
    with pytest.raises(TypeError, match="label_moves must be True or False"):
        fit(model, two_clusters, method="gibbs", label_moves="yes")


def test_without_moves_the_sweep_has_conditionals_only():
    model = mixture(concentration=dist.Gamma(2.0, 1.0))
    plain = gibbs.plain_blocks_of(model)
    assert not any(isinstance(block, Move) for block in plain)
    assert len(plain) == len(gibbs.blocks_of(model)) - 1
    dirichlet = model.replaced(weight_prior="dirichlet")
    assert gibbs.plain_blocks_of(dirichlet) == gibbs.blocks_of(dirichlet)


# --- does it mix?


def apart(model, x, seed):
    """Chains to start from: two with one cluster, two with rows spread over all components."""
    labels = np.zeros((4, 1, len(x)), int)
    labels[2:, 0] = np.random.default_rng(seed).integers(0, model.num_components, (2, len(x)))
    tree = fit(model, x, method="gibbs", num_warmup=1, num_samples=1)
    dataset = xr.Dataset({"assignments": (("chain", "draw", "observation"), labels)})
    return tree.assign(posterior=xr.DataTree(dataset))


def collapsed_log_joint(tree, model, x):
    """log p(alpha) + log p(labels | alpha) + log p(x | labels) of every draw, sticks and parameters out."""
    size = model.num_components
    with jax.enable_x64(True):
        features = jnp.asarray(model.components.features(x))

        @jax.jit
        def one(pair):
            labels, alpha = pair
            statistics = jax.ops.segment_sum(features, labels.astype(int), num_segments=size)
            allocation = label_moves.log_allocation(model.weights, statistics[:, 0], alpha)
            sticks = (size - 1) * jnp.log(alpha)  # of the prior: one over B(1, alpha) for every stick
            evidence = model.components.log_evidence(statistics).sum()
            return model.concentration.log_prob(alpha) + sticks + allocation + evidence

        labels, alpha = (tree["posterior"][name].to_numpy() for name in ("assignments", "concentration"))
        pairs = (labels.reshape(-1, len(x)), alpha.reshape(-1))
        return np.asarray(jax.lax.map(one, pairs, batch_size=500)).reshape(alpha.shape)


def toy_chains(draw, seed, moves):
    """Number of clusters, concentration and log joints of four chains on a draw of the toy; seconds."""
    x = load("toy_gaussians", seed=draw)["x"]
    prior = dist.Gamma(1.0, 1.0)
    model = Mixture.from_data(x, num_components=30, concentration=prior, weight_prior="stick_breaking")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the plain sampler has not converged is the point
        tree = fit(model, x, method="gibbs", num_warmup=1000, num_samples=5000, seed=seed,
                   init=apart(model, x, seed), label_moves=moves, split_merge=0,
                   keep=("log_likelihood",))  # fmt: skip
    return {
        "num_occupied": tree["posterior"]["num_occupied"].to_numpy(),
        "concentration": tree["posterior"]["concentration"].to_numpy(),
        "collapsed_log_joint": collapsed_log_joint(tree, model, x),
        "program_log_joint": tree["sample_stats"]["lp"].to_numpy(),
    }, round(float(tree.attrs["sampling_time"]), 1)


@pytest.mark.slow
def test_the_moves_make_the_chain_mix():
    """Chains of 1000 + 5000 sweeps, K = 30, alpha ~ Gamma(1, 1), three data draws: PSRF below 1.05.

    On four further seeds per draw too: all are recorded, none chosen.
    """
    figures = {"with moves": {}, "without moves": {}}
    for (name, runs), draw in itertools.product(figures.items(), range(3)):
        quantities, seconds = toy_chains(draw, draw, name == "with moves")
        runs[f"draw {draw}"] = {"seconds": seconds} | {
            quantity: {
                "psrf": round(float(arviz.rhat(q)), 4),
                "ess": round(float(arviz.ess(q)), 1),
                "chain_means": q.mean(axis=1).round(3).tolist(),
            }
            for quantity, q in quantities.items()
        }
    further = {}
    for draw, seed in itertools.product(range(3), range(100, 104)):
        for quantity, q in toy_chains(draw, seed, True)[0].items():
            further.setdefault(f"draw {draw}", {}).setdefault(quantity, []).append(
                round(float(arviz.rhat(q)), 4)
            )
    content = {
        "what": "truncated-DP Gibbs on the toy of Yu (2006, section 2.2.4) with and without the move that "
        "reorders the components; 4 chains, two from one cluster, two from rows spread over all components",
        "setting": "1000 + 5000 sweeps, K = 30, concentration ~ Gamma(1, 1), default Gaussian-Wishart prior; "
        "PSRF rank-normalised, split and folded",
        **figures,
        "psrf with moves, four further seeds": further,
    }
    command = "python -m pytest -m slow tests/inference/methods/mixture/test_label_moves.py"
    write_record("mixture_label_moves", command, "arviz", **content)
    worst = max(run[q]["psrf"] for run in figures["with moves"].values() for q in quantities)
    again = max(value for run in further.values() for values in run.values() for value in values)
    assert worst < 1.05 and again < 1.05, (worst, again)


@pytest.mark.parametrize(("first", "places"), [(0, [(0, 1), (2, 3)]), (1, [(1, 2)])])
def test_neighbours_are_exchanged_with_the_odds_of_the_two_orders(first, places, monkeypatch):
    """The probability that is drawn with, from the Beta integrals of both orders of all sticks."""
    probs = []
    monkeypatch.setattr(
        gibbs.jax.random, "bernoulli", lambda key, p: probs.append(p) or jnp.zeros_like(p, bool)
    )
    sizes, order = np.array([4.0, 1.0, 0.0, 2.0]), np.array([3, 0, 1, 2])

    def log_weight(order):
        own = sizes[order]
        return betaln(1 + own, ALPHA + own[::-1].cumsum()[::-1] - own)[:-1].sum()

    with jax.enable_x64(True):
        gibbs.exchange_neighbours(
            None, jnp.asarray(order), jnp.asarray(sizes), ALPHA, StickBreaking(4), first
        )
    for (left, right), found in zip(places, np.asarray(probs[0]), strict=True):
        other = order.copy()
        other[[left, right]] = order[[right, left]]
        np.testing.assert_allclose(found, expit(log_weight(other) - log_weight(order)), rtol=1e-9)


FAMILIES = {
    "incomplete": (GaussianWishart([0.0, 0.0], 0.5, np.eye(2), 5.0), 6),
    "columns": (NormalGamma([0.0, 0.0], 1.0, 2.0, 1.0), 6),
    "shared": (SharedGaussianWishart([0.0, 0.0], 0.5, np.eye(2), 5.0), 6),
    "product": (
        Product((GaussianWishart([0.0], 0.5, [[1.0]], 5.0), PoissonGamma([1.0], [1.0])), ((0,), (1,))),
        6,
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_parameters_follow_the_labels_that_are_moved(name):
    """Missing cells are drawn from them before they are drawn anew; planted: labels that go alone."""
    components, num_rows = FAMILIES[name]
    rng = np.random.default_rng(0)
    x = np.abs(rng.normal(size=(num_rows, 2))).round()
    model = Mixture(components, 4, ALPHA, "stick_breaking")
    moved = 0
    for seed in range(10):
        program = handlers.seed(model.explicit, seed)
        values = {
            site: own["value"]
            for site, own in handlers.trace(program).get_trace(x).items()
            if own["type"] == "sample" and not own["is_observed"]
        }
        new = gibbs.reorder_components(jax.random.key(seed), values, model, x)
        alone = {**values, "assignments": new["assignments"]}
        before, after, wrong = (
            log_densities(model.explicit, (x,), own)["x"].sum() for own in (values, new, alone)
        )
        assert after == pytest.approx(float(before), rel=1e-5)
        moved += bool((new["assignments"] != values["assignments"]).any())
        if (new["assignments"] != values["assignments"]).any():
            assert abs(wrong - before) > 1e-3
    assert moved > 3
