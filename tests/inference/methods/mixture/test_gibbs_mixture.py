"""The blocked Gibbs samplers of the mixture draw from the posterior that the program implies.

`conditional_check` proves each block (no false alarms: it is exact up to rounding), `geweke` the sweep, with
1 % of false alarms a run, the seeds fixed. A slow run may be repeated once on a fresh seed; both are recorded
in tests/reference/geweke_mixture.json, which the slow tests of this file rewrite. Planted bugs must fail.
"""

import itertools
import json
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats

from inference.calibration import conditional_check, geweke, sbc
from inference.methods.gibbs_sweep import sweep
from inference.methods.mixture import gibbs
from inference.numerics.programs import joint_draws
from inference.precision import in_precision
from tests.tools.recording import write_record
from zoo.conjugate import BernoulliBeta, GaussianWishart
from zoo.dirichlet_process import BetaDecay
from zoo.mixture import Mixture

WEIGHT_PRIORS = ("dirichlet", "stick_breaking")
PRIORS = {  # features, mean precision, degrees of freedom: with few of these the data have no moments
    "1-D, 0.5, 5": (1, 0.5, 5.0),
    "1-D, 0.01, 2": (1, 0.01, 2.0),
    "2-D, 0.5, 4.5": (2, 0.5, 4.5),
    "2-D, 0.01, 2": (2, 0.01, 2.0),
}
NUM_OBSERVATIONS, NUM_DRAWS = 5, 6000
RECORD = Path(__file__).parents[3] / "reference" / "geweke_mixture.json"


def mixture(weight_prior, prior="1-D, 0.5, 5", concentration=None):
    num_features, mean_precision, degrees_of_freedom = PRIORS[prior]
    components = GaussianWishart(
        loc=np.zeros(num_features),
        mean_precision=mean_precision,
        scale_matrix=np.eye(num_features) / degrees_of_freedom,
        degrees_of_freedom=degrees_of_freedom,
    )
    concentration = dist.Gamma(2.0, 1.0) if concentration is None else concentration
    return Mixture(
        components=components, num_components=3, concentration=concentration, weight_prior=weight_prior
    )


def values_and_data(model, num_observations=30, seed=0):
    """A draw of all latent sites and data from the prior."""
    with jax.enable_x64(True):
        draw = joint_draws(jax.random.split(jax.random.key(seed), 1), model.explicit, num_observations, 1)
        values = {name: np.asarray(value[0]) for name, value in draw.items()}
    return values, (values.pop("x"),)


# --- planted bugs: a block with one mistake, by the name of the block that it replaces


def alpha_for_its_share(values, model, x):
    right = gibbs.concentration_and_weights(values, model, x)
    alpha = values["concentration"] if model.has_random_concentration else model.concentration
    return right | {"weights": dist.Dirichlet(alpha + gibbs.counts_of(values, model))}


def tail_includes_its_own_stick(values, model, x):
    right = gibbs.stick_decays(values, model, x)["stick_decays"]
    own = gibbs.counts_of(values, model)[: right.concentration0.shape[0]]
    return {"stick_decays": BetaDecay(right.concentration1, right.concentration0 + own)}


def one_stick_too_many(values, model, x):
    right = gibbs.stick_concentration(values, model, x)["concentration"]
    return {"concentration": dist.Gamma(right.concentration + 1.0, right.rate)}


def component_statistics(values, model, x):
    features = model.components.features(x)
    return jax.ops.segment_sum(features, values["assignments"], num_segments=model.num_components)


def one_degree_of_freedom_too_many(values, model, x):
    posterior = model.components.posterior(component_statistics(values, model, x))
    return posterior.replaced(degrees_of_freedom=posterior.degrees_of_freedom + 1.0).conditionals(values)


def no_shrinkage(values, model, x):
    """The scatter about the component's mean, without the term for that mean's distance from the prior's."""
    prior, statistics = model.components, component_statistics(values, model, x)
    posterior, count = prior.posterior(statistics), statistics[:, 0]
    distance = statistics[:, 1 : 1 + x.shape[1]] / jnp.maximum(count, 1.0)[:, None]
    factor = prior.mean_precision * count / (prior.mean_precision + count)
    term = factor[:, None, None] * distance[:, :, None] * distance[:, None, :]
    scale_matrix = jnp.linalg.inv(jnp.linalg.inv(posterior.scale_matrix) - term)
    return posterior.replaced(scale_matrix=scale_matrix).conditionals(values)


BUGS = {
    "alpha for alpha/K": ("dirichlet", gibbs.concentration_and_weights, alpha_for_its_share),
    "no shrinkage": ("dirichlet", gibbs.component_parameters, no_shrinkage),
    "degrees of freedom + 1": ("dirichlet", gibbs.component_parameters, one_degree_of_freedom_too_many),
    "stick tail includes j": ("stick_breaking", gibbs.stick_decays, tail_includes_its_own_stick),
    "M for M - 1": ("stick_breaking", gibbs.stick_concentration, one_stick_too_many),
}


def sampler_with(bug):
    _, right, wrong = BUGS[bug]

    def blocks_of(model):
        blocks = gibbs.blocks_of(model)
        assert right in blocks
        return tuple(wrong if block is right else block for block in blocks)

    return gibbs.algorithm_of(blocks_of)


# --- every block against the log joint of the program


# One of the ten slowest: a program a block, and nothing else proves the sampler's blocks.
@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("prior", [pytest.param("1-D, 0.5, 5", marks=pytest.mark.slow), "2-D, 0.01, 2"])
@pytest.mark.parametrize("weight_prior", WEIGHT_PRIORS)
def test_every_conditional_is_the_one_of_the_program(weight_prior, prior):
    model = mixture(weight_prior, prior)
    values, data = values_and_data(model)
    for block in gibbs.plain_blocks_of(model):
        verdict = conditional_check(model, block, values, data)
        assert verdict.passed, f"{block.__name__}: {verdict}"
        assert verdict.statistic < 1e-12


def test_blocks_given_labels_where_the_concentration_is_given():
    """By hand; the last of three components has no rows, and its parameters their prior."""
    x, values = np.array([[1.0], [0.0], [1.0], [1.0]]), {"assignments": jnp.asarray([0, 0, 1, 0])}
    components = BernoulliBeta(2.0 * np.ones(1), 1.0 * np.ones(1))
    with in_precision("float64"):
        model = Mixture(components=components, num_components=3, concentration=1.2)
        weights = gibbs.concentration_and_weights(values, model, x)["weights"]
        np.testing.assert_allclose(weights.concentration, [3.4, 1.4, 0.4], rtol=1e-12)
        sticks = model.replaced(weight_prior="stick_breaking")
        decays = gibbs.stick_decays(values, sticks, x)["stick_decays"]
        np.testing.assert_allclose(decays.concentration1, [4.0, 2.0], rtol=1e-12)
        np.testing.assert_allclose(decays.concentration0, [2.2, 1.2], rtol=1e-12)
        probs = gibbs.component_parameters(values, model, x)["probs"]
        draws = np.asarray(probs.mean)[:, 0]
    np.testing.assert_allclose(draws, [4 / 6, 3 / 4, 2 / 3], rtol=1e-12)


def test_a_chain_starts_at_the_means_of_all_else_given_its_labels():
    """No proof of the sampler's law sees where it starts: the first sweep draws everything again."""
    x = np.concatenate([np.zeros((3, 1)), np.full((5, 1), 4.0)]) + 0.1 * np.arange(8)[:, None]
    model = Mixture(components=BernoulliBeta(2.0 * np.ones(1), 1.0 * np.ones(1)), num_components=3)
    bits, assignments = (x > 2).astype(float), jnp.asarray([0, 0, 0, 1, 1, 1, 1, 1])
    with in_precision("float64"):
        values = gibbs.init(
            jax.random.key(0), model, bits, labels_of=lambda key, num_rows, num_components: assignments
        ).values
    np.testing.assert_allclose(values["weights"], (np.array([3, 5, 0]) + 1 / 3) / 9, rtol=1e-12)
    np.testing.assert_allclose(values["probs"][:, 0], [2 / 6, 7 / 8, 2 / 3], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("weight_prior", WEIGHT_PRIORS)
def test_conditionals_with_a_fixed_concentration(weight_prior):
    model = mixture(weight_prior, concentration=1.3)
    values, data = values_and_data(model)
    assert "concentration" not in values
    for block in gibbs.plain_blocks_of(model):
        verdict = conditional_check(model, block, values, data)
        assert verdict.passed, f"{block.__name__}: {verdict}"


@pytest.mark.slow
@pytest.mark.parametrize("weight_prior", WEIGHT_PRIORS)
def test_conditionals_of_a_component_without_rows(weight_prior):
    model = mixture(weight_prior)
    values, data = values_and_data(model)
    values["assignments"] = np.zeros_like(values["assignments"])
    for block in gibbs.plain_blocks_of(model):
        assert conditional_check(model, block, values, data).passed


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_fails_the_conditional_check(bug):
    weight_prior, _, wrong = BUGS[bug]
    model = mixture(weight_prior)
    values, data = values_and_data(model)
    verdict = conditional_check(model, wrong, values, data)
    assert not verdict.passed
    assert verdict.errors["block"] > 1e-3


# --- the whole sweep


@pytest.mark.slow
@pytest.mark.parametrize("weight_prior", WEIGHT_PRIORS)
def test_a_short_invariance_test_passes(weight_prior):
    verdict = geweke(
        mixture(weight_prior), gibbs.ALGORITHM, NUM_OBSERVATIONS, key=jax.random.key(0), num_draws=500
    )
    assert verdict.passed, str(verdict)


@pytest.mark.slow
def test_a_short_invariance_test_sees_the_strongest_bug():
    bug = "stick tail includes j"
    verdict = geweke(
        mixture(BUGS[bug][0]), sampler_with(bug), NUM_OBSERVATIONS, key=jax.random.key(0), num_draws=500
    )
    assert not verdict.passed
    assert verdict.statistic < 1e-10


# --- priors that reach small concentrations, where 1 - V is below the rounding of numbers near one


def with_rounded_sticks(model, least=None):
    """The blocks, planted: log(1 - V) of a V that rounds to one less ``least`` (machine epsilon) at most."""

    def wrong(values, model, x):
        decays = values["stick_decays"]
        eps = jnp.finfo(decays.dtype).eps if least is None else least
        held = jnp.minimum(decays, -jnp.log(eps))
        return gibbs.stick_concentration(values | {"stick_decays": held}, model, x)

    blocks = gibbs.blocks_of(model)
    assert gibbs.stick_concentration in blocks
    return tuple(wrong if block is gibbs.stick_concentration else block for block in blocks)


@partial(jax.jit, static_argnums=3)
def concentrations(key, model, least, number):
    """The concentration after 20 sweeps, in replicates that start from the joint law of all sites."""
    first, second = jax.random.split(key)
    sticks = model.weights.has_sticks
    blocks = with_rounded_sticks(model, least) if sticks else gibbs.blocks_of(model)

    def swept(key, joint):
        x = joint["x"]
        values = {name: value for name, value in joint.items() if name != "x"}

        def one(values, key):
            return sweep(key, values, blocks, model, x), None

        return jax.lax.scan(one, values, jax.random.split(key, 20))[0]["concentration"]

    start = joint_draws(jax.random.split(first, number), model.explicit, 8, 500)
    return jax.vmap(swept)(jax.random.split(second, number), start)


def p_of_concentrations(weight_prior, prior, dtype, least, number=8000):
    """Kolmogorov-Smirnov p-value against the prior, where rows say nothing: probabilities of a half."""
    half = BernoulliBeta(concentration1=np.array([1e6]), concentration0=np.array([1e6]))
    model = Mixture(half, 4, dist.Gamma(*prior), weight_prior)
    with in_precision(dtype):
        alpha = np.asarray(concentrations(jax.random.key(0), model, jnp.asarray(least), number), float)
    return stats.kstest(alpha, stats.gamma(prior[0], scale=1 / prior[1]).cdf).pvalue


SMALL_PRIORS = [
    pytest.param(prior, dtype, marks=() if (prior, dtype) == ((0.5, 0.5), "float64") else pytest.mark.slow)
    for prior in [(0.5, 0.5), (1.0, 1.0), (0.2, 0.1)]
    for dtype in ("float64", "float32")
]


# One of the ten slowest: a long chain; two planted mistakes are noticed here first.
@pytest.mark.parametrize(("prior", "dtype"), SMALL_PRIORS)
def test_rows_that_say_nothing_leave_the_concentration_at_its_prior(prior, dtype):
    """Sticks; false alarm rate 1e-4. Planted: sticks held as 1 - V, rounded, as NumPyro's Beta draws are.

    Under Gamma(1, 1) the fault moves the distribution function by 0.05 at most (0.06 in float32): 8000
    replicates see that at 4 deviations of the statistic or more, p < 1e-12; 2000 would see it at 2.
    """
    number = 2000 if (prior, dtype) == ((0.5, 0.5), "float64") else 8000
    assert p_of_concentrations("stick_breaking", prior, dtype, 0.0, number) > 1e-4
    assert p_of_concentrations("stick_breaking", prior, dtype, np.finfo(dtype).eps, number) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(("prior", "dtype"), SMALL_PRIORS)
def test_rows_that_say_nothing_leave_it_there_under_dirichlet_weights(prior, dtype):
    assert p_of_concentrations("dirichlet", prior, dtype, 0.0) > 1e-4


FEW = np.array([[-0.1], [0.0], [0.1], [1.5]])


def features_of(labels, log_alpha):
    """Log concentration, number of clusters and which rows are together, of many draws."""
    together = [labels[..., i] == labels[..., j] for i, j in itertools.combinations(range(len(FEW)), 2)]
    number = 1 + (np.diff(np.sort(labels, axis=-1), axis=-1) != 0).sum(-1)
    numbers = [number == k for k in (1, 2)]
    parts = np.broadcast_arrays(log_alpha, *numbers, *together, *(log_alpha * n for n in numbers))
    return np.stack(parts, axis=-1).astype(float)


def enumerated(model):
    """Posterior expectations of `features_of`: all labels, and the concentration on a grid of its log."""
    size, prior = model.num_components, model.concentration
    labels = np.array(list(itertools.product(range(size), repeat=len(FEW))))
    counts = np.array([np.bincount(row, minlength=size) for row in labels])[:, None, :].astype(float)
    grid = np.linspace(-80.0, 6.0, 6000)
    alpha = np.exp(grid)[:, None]
    if model.weights.has_sticks:
        beyond = counts[..., ::-1].cumsum(-1)[..., ::-1] - counts
        terms = special.betaln(1 + counts, alpha + beyond)[..., :-1] + np.log(alpha)
        allocation = terms.sum(-1)
    else:
        share = alpha / size
        allocation = (special.gammaln(share + counts) - special.gammaln(share)).sum(-1)
        allocation += special.gammaln(alpha[:, 0]) - special.gammaln(alpha[:, 0] + len(FEW))
    with in_precision():
        rows = model.components.features(jnp.asarray(FEW))
        sums = jnp.stack([jax.ops.segment_sum(rows, jnp.asarray(own), size) for own in labels])
        evidence = np.asarray(model.components.log_evidence(sums)).sum(-1)
    density = stats.gamma(float(prior.concentration), scale=1 / float(prior.rate)).logpdf(alpha[:, 0]) + grid
    log = allocation + density + evidence[:, None]
    probability = np.exp(log - special.logsumexp(log))
    return np.einsum("cg,cgf->f", probability, features_of(labels[:, None], grid[None]))


def deviates_from_enumeration(weight_prior, blocks_of, prior, dtype):
    """Largest z over the functionals, of 64 independent chains of 1500 sweeps."""
    components = GaussianWishart([0.0], 0.3, [[0.7]], 2.5)
    model = Mixture(components, 3, dist.Gamma(*prior), weight_prior)
    algorithm = gibbs.algorithm_of(blocks_of)

    def chain(key, model, x):
        start_key, key = jax.random.split(key)

        def one(values, key):
            values = sweep(key, values, blocks_of(model), model, x)
            return values, (values["assignments"], jnp.log(values["concentration"]))

        start = algorithm.init(start_key, model, x).values
        return jax.lax.scan(one, start, jax.random.split(key, 1500))[1]

    with in_precision(dtype):
        keys, x = jax.random.split(jax.random.key(1), 64), jnp.asarray(FEW)
        chains = jax.jit(jax.vmap(chain, (0, None, None)))(keys, model, x)
        labels, log_alpha = (np.asarray(part)[:, 300:] for part in chains)
    means = features_of(labels, log_alpha.astype(float)).mean(1)
    error = means.std(0, ddof=1) / np.sqrt(len(means))
    return np.abs((means.mean(0) - enumerated(model)) / error).max()


ENUMERATED = [
    ("stick_breaking", gibbs.blocks_of, (0.5, 1.0), "float64"),
    ("stick_breaking", gibbs.blocks_of, (0.5, 1.0), "float32"),
    ("stick_breaking", gibbs.blocks_of, (1.0, 1.0), "float64"),
    ("stick_breaking", gibbs.plain_blocks_of, (0.5, 1.0), "float64"),
    ("dirichlet", gibbs.blocks_of, (0.5, 1.0), "float64"),
    ("dirichlet", gibbs.blocks_of, (0.5, 1.0), "float32"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("weight_prior", "blocks_of", "prior", "dtype"), ENUMERATED)
def test_small_concentrations_against_the_enumeration_of_all_labels(weight_prior, blocks_of, prior, dtype):
    """Eleven functionals at |z| < 5 with 63 degrees of freedom: false alarms below 1e-4 a case."""
    assert deviates_from_enumeration(weight_prior, blocks_of, prior, dtype) < 5


@pytest.mark.slow
def test_rounded_sticks_are_not_the_enumeration():
    assert deviates_from_enumeration("stick_breaking", with_rounded_sticks, (0.5, 1.0), "float64") > 8


# --- the same at full size, recorded


@pytest.fixture(scope="module")
def record():
    """Collects the runs by name; at the end they replace those of the same names in the recorded file."""
    runs = {}
    yield runs
    if runs:
        known = json.loads(RECORD.read_text())["runs"] if RECORD.exists() else {}
        content = {
            "what": "joint-invariance (Geweke) tests of the blocked Gibbs samplers of zoo.Mixture: the "
            "smallest p-value, which must be at least the threshold (Bonferroni at 1 %), "
            "and must not be with a planted bug",
            "setting": {
                "num_draws": NUM_DRAWS,
                "num_rounds": 6,
                "num_observations": NUM_OBSERVATIONS,
                "num_components": 3,
                "concentration": "Gamma(2, 1)",
                "prior": "features, mean precision, degrees of freedom (nu); mean 0, scale matrix I/nu",
            },
            "runs": dict(sorted((known | runs).items())),
        }
        command = "python -m pytest -m slow tests/inference/methods/mixture/test_gibbs_mixture.py"
        write_record("geweke_mixture", command, "scipy", **content)


def timed_run(model, algorithm, seed):
    start = time.perf_counter()
    verdict = geweke(model, algorithm, NUM_OBSERVATIONS, key=jax.random.key(seed), num_draws=NUM_DRAWS)
    smallest = min(verdict.p_values, key=verdict.p_values.get)
    return verdict, {
        "seed": seed,
        "statistic": float(f"{verdict.statistic:.3g}"),
        "threshold": float(f"{verdict.threshold:.3g}"),
        "passed": verdict.passed,
        "smallest": smallest,
        "seconds": round(time.perf_counter() - start, 1),
    }


@pytest.mark.slow
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("weight_prior", WEIGHT_PRIORS)
def test_the_sampler_leaves_the_joint_invariant(weight_prior, prior, record):
    model, attempts = mixture(weight_prior, prior), []
    first = 10 * (1 + len(PRIORS) * WEIGHT_PRIORS.index(weight_prior) + list(PRIORS).index(prior))
    for seed in (first, first + 1):
        verdict, attempt = timed_run(model, gibbs.ALGORITHM, seed)
        attempts.append(attempt)
        if verdict.passed:
            break
    record[f"{weight_prior}; {prior}"] = attempts
    assert verdict.passed, str(verdict)


@pytest.mark.slow
@pytest.mark.parametrize("prior", [(0.5, 0.5), (1.0, 1.0)])
@pytest.mark.parametrize("weight_prior", WEIGHT_PRIORS)
def test_small_concentrations_leave_the_joint_invariant(weight_prior, prior):
    model = mixture(weight_prior, concentration=dist.Gamma(*prior))
    verdict = geweke(model, gibbs.ALGORITHM, NUM_OBSERVATIONS, key=jax.random.key(7), num_draws=2000)
    assert verdict.passed, str(verdict)


@pytest.mark.slow
def test_rounded_sticks_do_not_leave_it_invariant():
    model = mixture("stick_breaking", concentration=dist.Gamma(0.5, 0.5))
    wrong = gibbs.algorithm_of(with_rounded_sticks)
    assert not geweke(model, wrong, NUM_OBSERVATIONS, key=jax.random.key(7), num_draws=2000).passed


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_the_invariance_test_sees_every_planted_bug(bug, record):
    weight_prior = BUGS[bug][0]
    verdict, attempt = timed_run(mixture(weight_prior), sampler_with(bug), 100 + list(BUGS).index(bug))
    record[f"planted bug: {bug}; {weight_prior}; 1-D, 0.5, 5"] = [attempt]
    assert not verdict.passed


@pytest.mark.slow
@pytest.mark.parametrize("weight_prior", WEIGHT_PRIORS)
def test_simulation_based_calibration_of_a_fit(weight_prior):
    verdict = sbc(
        mixture(weight_prior),
        "gibbs",
        8,
        key=jax.random.key(3),
        num_replicates=100,
        num_chains=1,
        num_warmup=200,
        num_samples=63,
        thinning=10,
    )
    assert verdict.passed, str(verdict)


@pytest.mark.slow
def test_simulation_based_calibration_sees_mean_field_variances():
    """The negative control: VB factorises labels and parameters, and its draws are too narrow."""
    model = mixture("dirichlet", concentration=1.3)
    verdict = sbc(model, "vb", 8, key=jax.random.key(3), num_replicates=60, num_samples=63)
    assert not verdict.passed
