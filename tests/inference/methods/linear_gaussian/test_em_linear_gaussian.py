"""EM of linear-Gaussian models: the likelihood it climbs, fixed points, speed, data structures."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from inference.methods.linear_gaussian import em as linear_gaussian
from inference.methods.linear_gaussian.em import (
    LoadingPrior,
    Parameters,
    given_start,
    log_prior,
    moments_of,
    pca_start,
    random_start,
)
from inference.methods.linear_gaussian.rows import compress, expanded, one_by_one
from inference.numerics.weighted_rows import Rows
from zoo.linear_gaussian import log_density

ROUNDING = 1e-12  # of the objective, relative
GROUPS = np.r_[np.zeros(12, int), np.ones(3, int)]
LABELLED = 45
PRIORS = [None, "gaussian", pytest.param("ard", marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def double():
    """64 bits throughout."""
    with jax.enable_x64(True):
        yield


def _toy(seed):
    """Latents and loadings N(0, 1), noise sd .5 of 12 inputs and .4 of 3 outputs, seen in 45 of 150 rows."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(150, 3))
    x = z @ rng.normal(size=(3, 12)) + 0.5 * rng.normal(size=(150, 12))
    y = z @ rng.normal(size=(3, 3)) + 0.4 * rng.normal(size=(150, 3))
    y[LABELLED:] = np.nan
    return np.concatenate([x, y], axis=1)


def _with_holes(x, share=0.2, seed=11):
    return np.where(np.random.default_rng(seed).uniform(size=x.shape) < share, np.nan, x)


@partial(jax.jit, static_argnames=("acceleration", "center", "num_sweeps"))
def _run(start, rows, prior=None, floor=1e-6, *, acceleration="px", center="joint", num_sweeps=300):
    """The final state and the objective before the first sweep and after each."""

    def sweep(state, _):
        state, info = linear_gaussian.step(
            state, rows, prior, acceleration=acceleration, center=center, floor=floor
        )
        return state, info.objective

    begin = linear_gaussian.begin(start, rows, prior)
    state, trace = jax.lax.scan(sweep, begin, None, num_sweeps)
    return state, jnp.concatenate([begin.objective[None], trace])


def _worst_drop(trace):
    trace = np.asarray(trace)
    return -np.diff(trace).min() / np.abs(trace[-1])


def _random(rows, num_latents=3, seed=0):
    return random_start(jax.random.key(seed), rows, num_latents)


def _prior(kind, size):
    variance = jnp.asarray(1.0) if kind == "gaussian" else None
    numbers = [jnp.asarray(v) for v in (1e-1, 1e-1)]
    return LoadingPrior(variance, *numbers, jnp.zeros(size), jnp.asarray(10.0), *numbers)


def test_objective_is_the_likelihood_of_the_program_s_density():
    """Blocks and single rows, groups and holes: equal to the sum of row densities, before and after a run."""
    for x in (_toy(0), _with_holes(_toy(0))):
        rows = compress(x, GROUPS)
        state, trace = _run(_random(rows), rows)
        loadings, loc = expanded(state.parameters.loadings, state.parameters.loc, rows)
        direct = log_density(x, loadings, loc, state.parameters.noise_variance[GROUPS]).sum()
        assert float(trace[-1]) == pytest.approx(float(direct), rel=1e-12)
        assert _worst_drop(trace) < ROUNDING


def test_expansion_needs_few_sweeps_and_plain_em_many():
    """Sweeps from random starts to 1e-5 nats, median of 8: PX at most 20, plain EM at least 150."""
    needed = {"px": [], "none": []}
    for seed in range(8):
        rows = compress(_toy(seed), GROUPS)
        traces = {
            name: np.asarray(_run(_random(rows, seed=seed), rows, acceleration=name)[1]) for name in needed
        }
        best = max(trace[-1] for trace in traces.values())
        for name, trace in traces.items():
            assert _worst_drop(trace) < ROUNDING
            reached = trace >= best - 1e-5
            needed[name].append(reached.argmax() if reached.any() else reached.size)
    assert np.median(needed["px"]) <= 20
    assert np.median(needed["none"]) >= 150


@pytest.mark.parametrize("prior", PRIORS)
def test_gradient_vanishes_at_the_end(prior):
    """Of the program's density plus log prior, in loadings, mean and log noise: the joint M-step is exact."""
    x = _with_holes(_toy(2))
    rows = compress(x, GROUPS, rotate=False)
    prior = prior and _prior(prior, 15)
    end = _run(_random(rows), rows, prior)[0].parameters
    centre = jnp.asarray(rows.centre)

    def objective(loadings, loc, log_noise):
        noise = jnp.exp(log_noise)
        own = log_prior(Parameters(loadings, loc, noise), prior)
        return log_density(jnp.asarray(x), loadings, centre + loc, noise[GROUPS]).sum() + own

    gradients = jax.jit(jax.grad(objective, (0, 1, 2)))(end.loadings, end.loc, jnp.log(end.noise_variance))
    for gradient in gradients:
        assert np.abs(gradient).max() < 1e-3


@pytest.mark.parametrize("kind", ["gaussian", "ard"])
def test_log_prior_is_that_of_scipy(kind):
    """Constants included: with ARD precisions integrated out, columns have multivariate t distributions."""
    rng = np.random.default_rng(6)
    loadings, loc, noise = rng.normal(size=(5, 2)), rng.normal(size=5), rng.gamma(2.0, size=2)
    a, b, shape, rate = 2.5, 0.7, 1.5, 0.4
    variance = jnp.asarray(2.5) if kind == "gaussian" else None
    numbers = map(jnp.asarray, (a, b, np.full(5, 0.3), 4.0, shape, rate))
    prior = LoadingPrior(variance, *numbers)
    parameters = Parameters(*map(jnp.asarray, (loadings, loc, noise)))
    expected = stats.norm.logpdf(loc, 0.3, 2.0).sum() + stats.invgamma.logpdf(noise, shape, scale=rate).sum()
    if kind == "gaussian":
        expected += stats.norm.logpdf(loadings, 0.0, 2.5**0.5).sum()
    else:
        columns = stats.multivariate_t(np.zeros(5), b / a * np.eye(5), df=2 * a)
        expected += columns.logpdf(loadings.T).sum()
    np.testing.assert_allclose(log_prior(parameters, prior), expected, rtol=1e-10)


@pytest.mark.slow
def test_plugin_mean_is_not_the_maximum_and_joint_is_higher():
    """With unlabelled rows the plug-in mean of y leaves likelihood on the table; with none it does not."""
    x = _toy(3)
    rows = compress(x, GROUPS)
    ends = {c: _run(_random(rows), rows, center=c)[1] for c in ("joint", "plugin")}
    assert _worst_drop(ends["plugin"]) < ROUNDING
    assert ends["joint"][-1] > ends["plugin"][-1] + 1e-2
    whole = compress(x[:LABELLED], GROUPS)
    ends = [_run(_random(whole), whole, center=c)[1][-1] for c in ("joint", "plugin")]
    assert float(ends[0]) == pytest.approx(float(ends[1]), rel=1e-9)


@pytest.mark.slow
def test_row_form_and_compressed_form_agree():
    """Rows one by one, patterns of holes, a wide group rotated to its rows: one likelihood and estimate."""
    rng = np.random.default_rng(4)
    z = rng.normal(size=(40, 3))
    wide = z @ rng.normal(size=(3, 100)) + 0.5 * rng.normal(size=(40, 100))
    x = np.concatenate([wide, (z @ rng.normal(size=(3, 2)))], axis=1) + 0.1
    x[30:, 100:] = np.nan
    groups = np.r_[np.zeros(100, int), np.ones(2, int)]
    loadings = rng.normal(size=(102, 3))
    ends = []
    for rows in (compress(x, groups), compress(x, groups, rotate=False), one_by_one(jnp.asarray(x), groups)):
        start = given_start(loadings, jnp.asarray(rows.original_centre), jnp.ones(2), rows)
        state, trace = _run(start, rows, None, 1e-3)
        assert _worst_drop(trace) < ROUNDING
        full, loc = expanded(state.parameters.loadings, state.parameters.loc, rows)
        ends.append((trace[-1], full @ full.T, loc, state.parameters.noise_variance))
    assert compress(x, groups).sums.shape[0] == 41
    for end in ends[1:]:
        assert float(end[0]) == pytest.approx(float(ends[0][0]), rel=1e-8)
        for ours, theirs in zip(end[1:], ends[0][1:], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_a_wide_group_turned_to_its_rows_has_the_likelihood_of_all_its_columns():
    """Twelve rows of thirty columns and of two, loadings in the space of the rows, noises unlike."""
    rng = np.random.default_rng(4)
    x, groups = rng.normal(size=(12, 32)) + 0.5, np.r_[np.zeros(30, int), np.ones(2, int)]
    rows, noise = compress(x, groups), np.array([0.3, 1.7])
    of_rows = (x[:, :30] - x[:, :30].mean(0)).T @ rng.normal(size=(12, 3)) / 5
    loadings = np.concatenate([of_rows, np.ones((2, 3))])
    start = given_start(loadings, jnp.asarray(x.mean(0)), jnp.asarray(noise), rows)
    assert rows.sums.shape[0] < 20
    direct = log_density(x, loadings, x.mean(0), noise[groups]).sum()
    assert float(moments_of(start, rows).log_likelihood) == pytest.approx(float(direct), rel=1e-9)


def test_weights_are_copies():
    """A row of weight w is w copies of it, whether its pattern is frequent or not."""
    x = np.concatenate([_toy(5)[:60], _with_holes(_toy(5)[:60])])
    weight = np.random.default_rng(0).integers(0, 3, x.shape[0]).astype(float)
    copied = np.repeat(x, weight.astype(int), axis=0)
    start = Parameters(jnp.asarray(np.random.default_rng(1).normal(size=(15, 3))), jnp.zeros(15), jnp.ones(2))
    of = jax.jit(moments_of)
    weighed, plain = (of(start, compress(rows, GROUPS)) for rows in (Rows(x, weight), copied))
    assert weighed.latents is None and plain.latents is None  # of sparse rows alone
    for ours, theirs in zip(weighed[1:5], plain[1:5], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-9)
    first, other = (pca_start(compress(rows, GROUPS), 3) for rows in (Rows(x, weight), copied))
    np.testing.assert_allclose(first.noise_variance, other.noise_variance, rtol=1e-8)
    products = first.loadings @ first.loadings.T, other.loadings @ other.loadings.T
    np.testing.assert_allclose(*products, rtol=1e-7, atol=1e-9)


def test_floor_holds_a_noise_that_would_vanish():
    """Outputs that the latents explain whole send their noise to the floor, monotonically, and it is said."""
    x = _toy(6)
    x[:, 13:] = x[:, 12:13] * [1.0, -2.0]  # three outputs of rank one
    x[LABELLED:, 12:] = np.nan
    rows = compress(x, GROUPS)
    state, trace = _run(_random(rows), rows, None, 1e-6)
    assert _worst_drop(trace) < ROUNDING
    assert np.asarray(state.at_floor).tolist() == [False, True]
    np.testing.assert_allclose(state.parameters.noise_variance[1], 1e-6 * rows.group_variance[1])
    given, info = linear_gaussian.step(state, rows, None, fixed_noise=jnp.array([jnp.nan, 1e-9]))
    assert given.parameters.noise_variance[1] == 1e-9 and info.num_at_floor == 0  # a given noise has no floor


def test_pca_start_is_the_answer_where_it_can_be():
    """Complete rows and isotropic noise: no sweep gains anything; of primary groups: outputs follow."""
    x = _toy(7)
    rows = compress(x[:, :12], np.zeros(12, int))
    trace = _run(jax.jit(pca_start, static_argnums=1)(rows, 3), rows)[1]
    assert float(trace[-1] - trace[0]) < 1e-8 * abs(float(trace[0]))
    rows = compress(x, GROUPS)
    begin = jax.jit(pca_start, static_argnums=(1, 2))(rows, 3, (0,))
    start, random = (_run(s, rows)[1] for s in (begin, _random(rows)))
    assert float(start[0]) > float(random[0]) + 100
    assert float(start[-1]) == pytest.approx(float(random[-1]), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("acceleration", ["px", "none"])
def test_the_first_step_of_an_unseen_start_is_its_e_step(acceleration):
    """And nothing else, such as a sweep; a start that is seen is swept."""
    rows = compress(_with_holes(_toy(0)), GROUPS)
    parameters = _random(rows)
    step = jax.jit(partial(linear_gaussian.step, acceleration=acceleration))
    wanted, unseen = linear_gaussian.begin(parameters, rows), linear_gaussian.unseen(parameters, rows)
    found, _ = step(unseen, rows)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-12), found._asdict()["parameters"], parameters)
    np.testing.assert_allclose(found.objective, wanted.objective, rtol=1e-12)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9), found.moments, wanted.moments)
    assert linear_gaussian.settling_steps(unseen) == 1 and linear_gaussian.settling_steps(found) == 0
    assert step(found, rows)[0].objective > wanted.objective + 1


@pytest.mark.parametrize("kind", ["ard", "gaussian"])
def test_the_prior_of_the_parameters_is_that_of_scipy(kind):
    """ARD precisions by quadrature: the log density with them integrated out, and their posterior means."""
    rng = np.random.default_rng(0)
    loadings, loc, noise = rng.normal(size=(5, 2)) * [1.0, 3.0], rng.normal(size=5), np.array([0.4, 1.2])
    variance = None if kind == "ard" else np.array([0.5, 1.0, 2.0, 2.0, 4.0])
    prior = LoadingPrior(variance, 1.4, 0.6, np.arange(5.0), np.arange(1.0, 6.0), 3.0, np.array([0.5, 0.7]))
    wanted = stats.norm.logpdf(loc, np.arange(5), np.sqrt(np.arange(1, 6))).sum()
    wanted += stats.invgamma.logpdf(noise, 3.0, scale=prior.noise_rate).sum()
    precisions = np.ones(2)
    if kind == "ard":
        logs = np.linspace(-25.0, 8.0, 4001)  # of the precision; the rule of equal steps is exact to rounding
        alpha = np.exp(logs)
        joint = np.stack([stats.norm.logpdf(w[:, None], 0, alpha**-0.5).sum(axis=0) for w in loadings.T])
        joint = np.exp(joint + stats.gamma.logpdf(alpha, 1.4, scale=1 / 0.6) + logs) * (logs[1] - logs[0])
        wanted += np.log(joint.sum(axis=1)).sum()
        precisions = joint @ alpha / joint.sum(axis=1)
    else:
        wanted += stats.norm.logpdf(loadings, 0, np.sqrt(variance)[:, None]).sum()
    parameters = Parameters(*map(jnp.asarray, (loadings, loc, noise)))
    np.testing.assert_allclose(log_prior(parameters, prior), wanted, rtol=1e-9)
    found = linear_gaussian.expected_precision(parameters.loadings, prior)
    np.testing.assert_allclose(found, precisions, rtol=1e-9)


def test_planted_bug_of_the_printed_covariance_is_caught():
    """(7.12) as printed drops the factor s2 of the latents' covariance: the likelihood then falls."""
    x = _toy(0)[:, :12]
    rows = compress(x, np.zeros(12, int))
    state = linear_gaussian.begin(pca_start(rows, 3), rows)
    noise = state.parameters.noise_variance[0]
    covariance = jnp.linalg.inv(jnp.eye(3) + state.parameters.loadings.T @ state.parameters.loadings / noise)
    extra = rows.total_weight * covariance * (1 / noise - 1)
    wrong = state.moments._replace(second=state.moments.second.at[:, :3, :3].add(extra))
    keywords = {"center": "joint", "lowest": jnp.zeros(1)}
    drops = []
    for moments in (state.moments, wrong):
        new, _ = linear_gaussian.m_step(state.parameters, moments, rows, None, **keywords)
        drops.append(float(state.objective - moments_of(new, rows).log_likelihood))
    assert drops[0] < 1e-9 * abs(float(state.objective))
    assert drops[1] > 1.0
