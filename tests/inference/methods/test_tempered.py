"""Tempered sampling and its log evidence: the estimate, the schedule, the kernels, and what is refused.

The slow test fits every mixture of `tests.support.posterior_cases` whose evidence is known by enumeration, by
every kernel that applies, with 16 replicates. An error over its standard error is Student's t with 15 degrees
of freedom; each is turned into a normal number, and the sum of their squares is compared with chi squared:
one test, which fails for a right sampler once in a thousand seeds. Planted mistakes must fail it.
"""

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import xarray as xr
from scipy import stats

import zoo
from inference import fit
from inference.diagnostics.prior_width import evidence_at_width
from inference.fitting import verdict
from inference.methods.mixture import collapsed_gibbs, powers, tempered, urn_statistics
from inference.methods.tempered import evidence, sampler
from inference.methods.tempered.evidence import told
from inference.methods.tempered.sampler import TemperedState, resize, rounds_of
from inference.precision import in_precision
from tests.support.interruptions import cut_short
from tests.support.posterior_cases import ALL, partitions, process
from tests.support.posterior_enumeration import log_evidence
from zoo.conjugate import GaussianWishart, NormalGamma, PoissonGamma
from zoo.model import in_current_precision

FALSE_ALARMS = 1e-3
REPLICATES = 16
CLOSE = 0.02  # nats, the mean error over all posteriors
LENGTH = {"num_chains": REPLICATES, "num_warmup": 250, "num_samples": 500, "num_temperatures": 8}
ENUMERATED = [name for name, case in ALL.items() if case().enumerated in (partitions, process)]


def of_errors(errors, standard_errors, replicates=REPLICATES):
    """The chance of errors as large as these or larger if the estimates are right."""
    chances = 2 * stats.t.sf(np.abs(np.asarray(errors) / np.asarray(standard_errors)), replicates - 1)
    return stats.chi2.sf((stats.norm.isf(chances / 2) ** 2).sum(), len(chances))


# The estimate

X, POWERS = 3.0, np.linspace(0, 1, 6) ** 2  # one observation of unit variance, its mean standard normal
TRUTH = float(stats.norm.logpdf(X, scale=np.sqrt(2)))


def ladder(seed, num_draws, x=X, powers=POWERS):
    """Independent draws at every power: log likelihoods, shape (REPLICATES, num_draws, powers)."""
    noise = np.random.default_rng(seed).normal(size=(REPLICATES, num_draws, len(powers)))
    means = x * powers / (1 + powers) + noise / np.sqrt(1 + powers)
    return stats.norm.logpdf(x, loc=means)


def trips(num_draws):
    return np.broadcast_to(np.arange(num_draws), (REPLICATES, num_draws))


def test_the_evidence_of_independent_draws_is_right():
    errors, standard_errors = [], []
    for seed in range(10):
        attrs, by_temperature = told(ladder(seed, 200), POWERS, trips(200))
        errors.append(attrs["log_evidence"] - TRUTH)
        standard_errors.append(attrs["log_evidence_se"])
    assert of_errors(errors, standard_errors) > FALSE_ALARMS
    assert abs(np.mean(errors)) < CLOSE
    assert by_temperature["inverse_temperature"].tolist() == POWERS.tolist()


@pytest.mark.parametrize("side", [1, 2])
def test_one_direction_alone_would_be_wrong(side):
    """A planted mistake: the estimate from below or above in place of Bennett's, from few draws.

    Of 20 draws at powers 0 and 1 and an observation at 6, a run's error over its standard error is Student's
    t about -4.1 from below and 6.8 from above (10 000 runs of this ladder). Ten runs then go unnoticed at
    1e-3 in fewer than one of 2000 seeds; five runs with the observation at 3 would nearly always.
    """
    far, ends = 6.0, np.array([0.0, 1.0])
    found = [evidence._log_ratios(ladder(seed, 20, far, ends), np.ones(1))[side] for seed in range(100, 110)]
    errors = [one.mean() - stats.norm.logpdf(far, scale=np.sqrt(2)) for one in found]
    assert of_errors(errors, [one.std(ddof=1) / np.sqrt(REPLICATES) for one in found]) < FALSE_ALARMS


def test_two_replicates_that_agree_by_chance_are_no_less_uncertain():
    """Of 320 pairs by their spread alone 64 on average would be beyond three standard errors."""
    misses = []
    for seed in range(40):
        found = ladder(seed, 100)
        for i in range(0, REPLICATES, 2):
            attrs, _ = told(found[i : i + 2], POWERS, trips(100)[i : i + 2])
            misses.append((attrs["log_evidence"] - TRUTH) / attrs["log_evidence_se"])
    assert np.sum(np.abs(misses) > 3) <= stats.binom.isf(FALSE_ALARMS, len(misses), 2 * stats.norm.sf(3))


def test_replicates_that_disagree_have_the_error_of_their_spread():
    """Each moves too slowly for its blocks to show it: they are half a nat apart."""
    apart = ladder(0, 400)[:4] + 0.5 * np.arange(4)[:, None, None] - 0.75
    attrs, _ = told(apart, POWERS, trips(400)[:4])
    assert attrs["log_evidence_se"] > 0.25


def test_impossible_draws_of_the_prior_count_as_such():
    """A third of the prior has likelihood zero: the evidence is less by log 2/3."""
    found = ladder(0, 3000)
    found[..., 0] = np.where(np.arange(3000) % 3 == 0, -np.inf, found[..., 0])
    attrs, _ = told(found, POWERS, trips(3000))
    assert abs(attrs["log_evidence"] - (TRUTH + np.log(2 / 3))) < 5 * attrs["log_evidence_se"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"chains": 1}, "one replicate has no error. Next: num_chains=4"),
        ({"draws": 10}, "10 draws per replicate are too few. Next: raise num_samples"),
        (
            {"trips": 4},
            "replicate 15 made 4 round trips between prior and posterior in 100 sweeps, and it takes 5",
        ),
        ({"apart": 40.0}, "the estimates from below and above are .* nats apart, and it takes 1"),
        ({"spread": 8.0}, "the replicates differ by .* nats in standard deviation, and it takes 1"),
    ],
)
def test_evidence_that_is_not_told_says_why(change, words):
    chains, draws = change.get("chains", REPLICATES), change.get("draws", 100)
    found = ladder(0, draws)[:chains]
    if "apart" in change:
        found[..., -1] += change["apart"]
    found = found + change.get("spread", 0.0) * np.arange(chains)[:, None, None]
    done = trips(draws)[:chains].copy()
    done[-1] = np.minimum(done[-1], change.get("trips", draws))  # of one replicate alone
    attrs, _ = told(found, POWERS, done)
    assert np.isnan([attrs[f"log_evidence{end}"] for end in ("", "_se", "_below", "_above")]).all()
    assert re.search(words, attrs["why_no_evidence"])


def test_the_verdict_tells_the_evidence_or_why_there_is_none():
    tree = xr.DataTree()
    assert verdict._of_evidence(tree) is None
    tree.attrs = {"log_evidence": -3.21, "log_evidence_se": 0.1, "round_trips": 50, "why_no_evidence": ""}
    found = verdict._of_evidence(tree)
    assert found.good and found.text == "The log evidence is -3.21 nats, standard error 0.1"
    assert "50 round trips" in found.reason
    tree.attrs["why_no_evidence"] = "10 draws per replicate are too few. Next: raise num_samples"
    found = verdict._of_evidence(tree)
    assert found[2:] == ("10 draws per replicate are too few", "raise num_samples") and found.good is None


# The schedule


def state_after(rejection, powers, sweeps=40, rounds=3):
    """Two chains after a round in which pairs refused so often."""
    size, two = len(powers), np.ones(2, int)
    return TemperedState(
        jnp.arange(2.0 * size).reshape(2, size),
        jnp.broadcast_to(jnp.asarray(powers), (2, size)),
        jnp.zeros((2, size)),
        jnp.broadcast_to(jnp.asarray([*rejection, 0.0]) * sweeps, (2, size)),
        jnp.ones((2, size), int),
        jnp.asarray(sweeps * two),
        jnp.asarray(7 * two),
        jnp.asarray(rounds * two),
    )


KERNEL = tempered.KERNELS["gibbs"]


def test_rounds_double_and_end_with_warm_up():
    assert rounds_of(1000) == (15, 31, 62, 125, 250, 500, 1000)
    assert rounds_of(0) == () and rounds_of(5) == (5,)


def test_a_round_sets_powers_of_equal_rejection():
    powers = np.linspace(0, 1, 5)
    after = resize(state_after([0.6, 0.2, 0.1, 0.1], powers), None, False, kernel=KERNEL, number=5)
    barrier = np.interp(np.asarray(after.powers[0]), powers, [0, 0.6, 0.8, 0.9, 1.0])
    np.testing.assert_allclose(np.diff(barrier), 0.25)
    assert float(after.sweeps[0]) == 0 and float(after.round_trips[1]) == 0 and int(after.rounds[0]) == 2
    assert not after.rejected.any() and not after.came_from.any()


def test_the_barrier_decides_how_many_temperatures_there_are():
    powers = np.linspace(0, 1, 8)
    after = resize(state_after([0.7] * 7, powers), None, False, kernel=KERNEL, number=None)
    assert after.powers.shape == (2, 16)  # 3 * 4.9 + 1
    assert after.replicas.shape == (2, 16) and after.replicas[0, -1] == 7 and after.replicas[1, 0] == 8
    assert (after.replicas[0, 1:] > 0).all()  # no kernel begins to adapt where others have done
    last = resize(state_after([0.7] * 7, powers, rounds=1), None, False, kernel=KERNEL, number=None)
    short = resize(state_after([0.7] * 7, powers, sweeps=8), None, False, kernel=KERNEL, number=None)
    assert last.powers.shape == short.powers.shape == (2, 8)


def test_temperatures_that_memory_does_not_hold_are_refused(monkeypatch):
    """At the number that the barrier takes, sixteen, when it is known; eight would fit."""
    state = state_after([0.7] * 7, np.linspace(0, 1, 8))
    monkeypatch.setattr(sampler, "machine_memory", lambda: 1.5 * state.replicas.nbytes)
    with pytest.raises(ValueError, match="takes 16 temperatures, .* or num_temperatures=8"):
        resize(state, None, False, kernel=KERNEL, number=None)
    assert resize(state, None, False, kernel=KERNEL, number=8).powers.shape == (2, 8)


def test_even_and_odd_pairs_exchange_in_turn_after_every_part_of_a_sweep():
    """Of states that are all alike likely, so that every exchange is made; a part adds 1 but to the prior."""

    def add(key, power, state, model):
        return state + 1, jnp.zeros((), bool)

    def draw(key, state, model):
        return state, jnp.zeros((), bool)

    def info(state, model):
        return tempered.TemperedMixtureInfo(state, state, jnp.zeros((), bool))

    begun = jax.tree.map(lambda leaf: leaf[0], state_after([0.0] * 4, np.linspace(0, 1, 5), sweeps=0))
    begun = begun._replace(replicas=10.0 * jnp.arange(5))
    same = KERNEL._replace(prior=draw, log_likelihood=lambda state, model: jnp.zeros(()), info=info)
    found = []
    for parts, sweeps in ((2, 1), (1, 2)):
        state = begun
        for key in jax.random.split(jax.random.key(0), sweeps):
            kernel = same._replace(steps=(add,) * parts)
            state, told = sampler.step(key, state, None, kernel=kernel, options=())
        found.append(state.replicas.tolist())
        assert float(told.objective) == found[-1][-1] and int(state.sweeps) == sweeps
    assert found == [[11, 32, 1, 42, 22]] * 2


def test_a_round_trip_is_from_the_prior_to_the_posterior_and_back():
    came_from, total = jnp.zeros(3, int), 0
    for order in ([0, 1, 2], [1, 0, 2], [0, 2, 1], [0, 2, 1], [1, 0, 2]):
        came_from, returned = sampler._tracked(came_from[jnp.array(order)])
        total += int(returned)
    assert total == 1


# What is refused

ROWS = np.random.default_rng(3).normal(size=(12, 2))


@pytest.mark.parametrize(
    ("fields", "options", "words"),
    [
        (
            {"weight_prior": "stick_breaking", "free_last_stick": True},
            {},
            "the prior of Mixture is unnormalised, which has neither draws nor an evidence; choose free_last",
        ),
        (
            {"components": GaussianWishart.from_data(ROWS, mean_precision=dist.Gamma(2.0, 2.0))},
            {"kernel": "collapsed_gibbs"},
            "kernel='collapsed_gibbs' does not temper this model: mean_precision has a prior",
        ),
        ({}, {"num_temperatures": 65}, "num_temperatures must be from 2 to 64; got 65"),
        ({}, {"kernel": "hmc"}, "kernel must be one of"),
        (
            {},
            {"kernel": "gibbs", "max_tree_depth": 6},
            "max_tree_depth is an option of kernel='nuts', and kernel='gibbs' is tempered here",
        ),
        (
            {},
            {"kernel": "nuts", "split_merge": 2},
            "split_merge is an option of kernel='collapsed_gibbs' or kernel='gibbs', and kernel='nuts'",
        ),
        ({}, {"sample_weight": np.ones(12)}, "method 'tempered' of mixture does not take sample_weight"),
    ],
)
def test_what_cannot_be_tempered_is_refused(fields, options, words):
    with pytest.raises(ValueError, match=words):
        fit(zoo.Mixture(num_components=3, **fields), ROWS, method="tempered", **options)


def test_missing_cells_under_full_covariances_are_refused():
    holes = np.where(np.eye(12, 2) > 0, np.nan, ROWS)
    with pytest.raises(ValueError, match="the Gibbs kernels do not temper rows with missing cells"):
        fit(zoo.Mixture(num_components=3), holes, method="tempered")


def test_trees_of_tempered_nuts_are_as_shallow_as_they_are_asked_to_be():
    call = {"method": "tempered", "kernel": "nuts", "max_tree_depth": 1, "num_temperatures": 2}
    call |= {"num_chains": 2, "num_warmup": 2, "num_samples": 2, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        tree = fit(zoo.Mixture(num_components=2), ROWS, **call)
    assert float(tree["sample_stats"]["n_steps"].max()) <= 1


# The kernels


@pytest.mark.parametrize("family", [NormalGamma, GaussianWishart, PoissonGamma])
def test_two_copies_of_the_rows_to_the_power_of_a_half_are_the_rows(family):
    x = np.round(np.abs(ROWS) * 3)
    with in_precision():
        own = in_current_precision(family.from_data(x))
        sums = own.statistics(jnp.asarray(x), jnp.arange(12) % 2, 2)
        raised = powers.OfLikelihood(own, 0.5)
        parameters = {}
        while len(given := own.posterior(sums).conditionals(parameters)) > len(parameters):
            name = list(given)[len(parameters)]
            parameters[name] = given[name].mean
        jax.tree.map(
            lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-10),
            (raised.posterior(2 * sums), raised.log_evidence(2 * sums), 2 * raised.coefficients(parameters)),
            (own.posterior(sums), own.log_evidence(sums), own.coefficients(parameters)),
        )
        evidence_alone = powers.OfEvidence(own, 0.5)
        np.testing.assert_allclose(2 * evidence_alone.log_evidence(sums), own.log_evidence(sums))


@pytest.mark.parametrize("weights", ["stick_breaking", "dirichlet"])
def test_partitions_of_the_prior_are_those_of_the_urn(weights):
    """Rows 0 and 1, 0 and 2, all three together, each within five standard errors of 4000 draws."""
    alpha, number = 1.5, 3
    model = zoo.Mixture.from_data(ROWS[:3], num_components=number, concentration=alpha, weight_prior=weights)
    labels, counts = jnp.zeros(3, int), jnp.array([3, 0, 0])
    state = collapsed_gibbs.CollapsedMixtureState(labels, counts, jnp.asarray(alpha), {})
    drawn, full = jax.vmap(lambda key: tempered.urn_prior(key, state, model, ROWS[:3]))(
        jax.random.split(jax.random.key(0), 4000)
    )
    z = np.asarray(drawn.labels)
    own = alpha / number if weights == "dirichlet" else 0.0
    pair = (1 + own) / (1 + alpha)
    for found, share in (
        (z[:, 0] == z[:, 1], pair),
        (z[:, 0] == z[:, 2], pair),
        ((z == z[:, :1]).all(1), pair * (2 + own) / (2 + alpha)),
    ):
        assert abs(found.mean() - share) < 5 * np.sqrt(share * (1 - share) / len(z))
    assert (np.asarray(drawn.counts) == (z[:, :, None] == np.arange(number)).sum(1)).all()
    all_apart = (z[:, 0] != z[:, 1]) & (z[:, 1] != z[:, 2]) & (z[:, 0] != z[:, 2])
    assert (np.asarray(full) == (all_apart & (weights == "stick_breaking"))).all()


def truth(name, kernel):
    """The log evidence by enumeration, of what the kernel samples."""
    case = ALL[name]()
    (x,) = case.data
    of_process = case.model.weight_prior == "stick_breaking" and kernel == "collapsed_gibbs"
    model = case.model.replaced(num_components=len(x)) if of_process else case.model
    return log_evidence(model, x, of_process)


def evidence_of(name, kernel, seed=1, **options):
    """The attributes of a run, and the log evidence by enumeration."""
    case = ALL[name]()
    call = LENGTH | {"method": "tempered", "kernel": kernel, "seed": seed, "progress": False} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return fit(case.model, *case.data, **call).attrs, truth(name, kernel)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_the_evidence_at_another_width_of_the_prior_is_that_of_the_other_prior(factor):
    """Within four standard errors; under the prior that is narrower by as much it would not be."""
    case = ALL["mixture"]()
    (x,), call = case.data, LENGTH | {"method": "tempered", "kernel": "collapsed_gibbs", "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        tree = fit(case.model, x, seed=1, **call)

    def at(width):
        components = case.model.components
        strength = components.mean_precision / width**2
        model = case.model.replaced(components=components.replaced(mean_precision=strength))
        return log_evidence(model, x)

    found = evidence_at_width(tree, factor)
    assert found.error < 0.05
    assert abs(found.value - at(factor)) < 4 * found.error < abs(found.value - at(1 / factor))
    tree.attrs["log_evidence"] = np.nan
    assert np.isnan(evidence_at_width(tree, factor).value)


def pairs(names, kernels=("collapsed_gibbs", "gibbs")):
    """Posterior and kernel; the process is the urn's alone."""
    return [
        (name, kernel)
        for name in names
        for kernel in kernels
        if kernel == "collapsed_gibbs" or ALL[name]().enumerated is partitions
    ]


def errors_of(pairs, **options):
    """Errors and standard errors, in nats."""
    runs = [evidence_of(*pair, **options) for pair in pairs]
    assert not any(attrs["why_no_evidence"] for attrs, _ in runs)
    errors = [attrs["log_evidence"] - truth for attrs, truth in runs]
    return np.array(errors), np.array([attrs["log_evidence_se"] for attrs, _ in runs])


@pytest.mark.slow
def test_every_kernel_gives_the_evidence_known_by_enumeration():
    errors, standard_errors = errors_of(pairs(ENUMERATED))
    assert of_errors(errors, standard_errors) > FALSE_ALARMS, (errors, standard_errors)
    assert abs(errors.mean()) <= CLOSE


@pytest.mark.slow
def test_tempered_nuts_gives_the_evidence_known_by_enumeration():
    errors, standard_errors = errors_of(pairs(["mixture"], ("nuts",)))
    assert of_errors(errors, standard_errors) > FALSE_ALARMS, (errors, standard_errors)


def without_power(family, statistics):
    return family.family.posterior(statistics)


def labels_without_power(family, parameters):
    return family.family.coefficients(parameters)


def evidence_without_power(statistics, components, slot, row, choose):
    own, chosen = statistics.own.drawn_anew(components.family, slot, row, choose)
    return type(statistics)(own), chosen


@pytest.mark.slow
@pytest.mark.parametrize("mistake", ["parameters", "labels", "urn", "schedule"])
def test_planted_mistakes_are_noticed(monkeypatch, mistake):
    """The power forgotten in one conditional, and a schedule that is adapted while draws are kept."""
    kernel = "collapsed_gibbs" if mistake in ("urn", "schedule") else "gibbs"
    target, name, planted = {
        "parameters": (powers.OfLikelihood, "posterior", without_power),
        "labels": (powers.OfLikelihood, "coefficients", labels_without_power),
        "urn": (urn_statistics.RaisedStatistics, "drawn_anew", evidence_without_power),
        "schedule": (sampler, "rounds_of", lambda num_warmup: tuple(range(100, 501, 100))),
    }[mistake]
    jax.clear_caches()
    monkeypatch.setattr(target, name, planted)
    sampler._of_kernel.cache_clear()
    sampler._algorithm.cache_clear()
    warm_up = {"num_warmup": 0} if mistake == "schedule" else {}
    errors, standard_errors = errors_of(pairs(["mixture"], (kernel,)), **warm_up)
    monkeypatch.undo()
    jax.clear_caches()
    sampler._of_kernel.cache_clear()
    sampler._algorithm.cache_clear()
    assert of_errors(errors, standard_errors) < FALSE_ALARMS


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:mixture by .* has not converged")
def test_a_run_until_the_chains_agree_is_the_run_of_as_many_draws():
    case = ALL["mixture"]()
    call = {"method": "tempered", "num_temperatures": 4, "num_warmup": 60, "progress": False}
    until = fit(case.model, *case.data, num_samples=100, until="converged", max_sweeps=460, **call)
    number = until["posterior"].sizes["draw"]
    assert number == 100 * until.attrs["look"] and until.attrs["look"] > 1
    plain = fit(case.model, *case.data, num_samples=number, **call)
    for name in ("log_evidence", "log_evidence_se", "round_trips", "barrier"):
        assert until.attrs[name] == plain.attrs[name]
    for name, value in plain["posterior"].data_vars.items():
        np.testing.assert_array_equal(value, until["posterior"][name])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:mixture by .* has not converged")
def test_interrupted_and_resumed_while_temperatures_and_slots_grow(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(size=(8, 1)) * 0.1 + 10 * rng.normal() for _ in range(5)])
    model = zoo.Mixture.from_data(x, num_components=2, weight_prior="stick_breaking")
    call = {"method": "tempered", "num_chains": 2, "num_warmup": 130, "num_samples": 30}
    whole = fit(model, x, **call)
    path = tmp_path / "run"
    for chunks in (2, 9):
        with monkeypatch.context() as patch:
            cut_short(patch, chunks)
            part = fit(model, x, checkpoint=path, **call)
        assert "interrupted" in part.attrs["stop_reason"]
    again = fit(model, x, checkpoint=path, **call)
    assert whole["sample_stats"].sizes["temperature"] > sampler.FEWEST
    for group in ("posterior", "sample_stats"):
        for name, value in whole[group].data_vars.items():
            np.testing.assert_array_equal(value, again[group][name])
    assert whole.attrs["barrier"] == again.attrs["barrier"]
