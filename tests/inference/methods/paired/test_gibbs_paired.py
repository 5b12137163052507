"""Gibbs for Paired: conditionals, joint invariance of both programs, the source's errors as planted bugs."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.handlers import seed, trace
from scipy import stats

import zoo
from inference import fit
from inference.algorithm import Algorithm
from inference.calibration import conditional_check, geweke
from inference.methods.epca import gibbs as projections
from inference.methods.paired import gibbs as full
from inference.methods.paired import gibbs as paired
from inference.precision import in_precision
from tests.tools.recording import add_part_to_record
from zoo.answers import start_of
from zoo.exponential_family import Binomial, Gaussian, Ordinal

COMMAND = "python -m pytest -m slow tests/inference/methods/paired/test_gibbs_paired.py"
ROWS = 3
PRIOR = {"loc_variance": 1.0, "ard_concentration": 3.0, "ard_rate": 3.0, "num_features": (2, 2)}
FULL = PRIOR | {"specific": "full_covariance", "num_shared": 1, "ard": True, "covariance_scale": 3.0}
LOW = PRIOR | {"num_shared": 1, "num_specific": (0, 1)}
MODELS = {
    "full, bernoulli": {"families": ("bernoulli", "bernoulli")} | FULL,
    "full, poisson": {"families": ("poisson", "poisson"), "latent_variance": 0.3} | FULL,
    "full, gaussian and bernoulli": {"families": (Gaussian(None), "bernoulli")} | FULL,
    "low rank": {"families": ("bernoulli", ("bernoulli", Gaussian(None))), "ard": True} | LOW,
}


def model_of(case):
    return zoo.Paired(**MODELS[case])


def draw_of(model, num_rows=6):
    """Values of all sites and data that agree with them."""
    with in_precision():
        sites = trace(seed(model, 3)).get_trace(num_observations=num_rows)
        values = {name: np.asarray(site["value"]) for name, site in sites.items() if site["type"] == "sample"}
    return values, (np.array(values.pop("y_0")), np.array(values.pop("y_1")))


# Costly: a program for each block of the full-covariance sampler.
@pytest.mark.parametrize(
    "case", ["full, gaussian and bernoulli", pytest.param("full, bernoulli", marks=pytest.mark.slow)]
)
def test_conditionals_are_those_of_the_program(case):
    model = model_of(case).replaced(loc_variance=2.5, latent_variance=0.6)
    values, data = draw_of(model)
    for block in (full.columns, full.precisions, full.latents, full.relevance):
        verdict = conditional_check(model, block, values, data, num_draws=3)
        assert verdict.passed, (block.__name__, verdict)


@pytest.mark.slow
def test_the_printed_covariance_of_loadings_is_found():
    """Planted: the printed Sigma of algorithm 2, a precision, taken for a covariance."""
    model = model_of("full, bernoulli")
    values, data = draw_of(model)

    def printed(values, model, *data):
        found = full.columns(values, model, *data)
        base = found["loadings_0"].base
        inverse = jnp.linalg.inv(base.precision)
        found["loadings_0"].base = type(base)((inverse @ inverse @ base.linear[..., None])[..., 0], inverse)
        return found

    assert not conditional_check(model, printed, values, data, num_draws=3).passed


@pytest.mark.slow
def test_relevance_and_noise_of_views_are_drawn_from_their_conditionals():
    model = model_of("low rank").replaced(loc_variance=2.5, latent_variance=0.6)
    values, data = draw_of(model)
    for block in (projections.relevance, projections.noise):
        verdict = conditional_check(model, block, values, data, num_draws=3)
        assert verdict.passed, (block.__name__, verdict)


# Joint invariance


def statistics(values):
    """Bounded statistics of a joint draw of a program with full covariances, correlations above all."""
    found = {
        "relevance": values["loading_precision"][0],
        "latents": jnp.tanh(jnp.mean(values["latents"] ** 2)),
    }
    for v in (0, 1):
        y, w, loc = values[f"y_{v}"], values[f"loadings_{v}"], values[f"loc_{v}"]
        covariance = jnp.linalg.inv(values[f"specific_precision_{v}"])
        spread = jnp.sqrt(jnp.diag(covariance))
        theta = values.get(f"natural_params_{v}", y)
        away = (theta - loc - values["latents"] @ w.T) / spread
        found |= {
            f"correlation_{v}": covariance[0, 1] / (spread[0] * spread[1]),
            f"log_spread_{v}": jnp.log(spread[0]),
            f"loadings_{v}": jnp.mean(w**2),
            f"loc_{v}": loc[0],
            f"residuals_{v}": jnp.mean(jnp.tanh(away[:, 0] * away[:, 1])),
            f"residual_squares_{v}": jnp.mean(away**2),
            f"theta_{v}": jnp.mean(jnp.tanh(theta[:, 0])),
            f"theta_square_{v}": jnp.mean(theta**2),
            f"theta_product_{v}": jnp.mean(jnp.tanh(theta[:, 0] * theta[:, 1])),
            f"theta_y_{v}": jnp.mean(jnp.tanh(theta * (y - 0.5))),
            f"explained_{v}": jnp.mean(jnp.tanh(values["latents"] * away @ w)),
            f"loc_theta_{v}": jnp.tanh(jnp.mean(loc * (theta - loc))),
        }
    return found


def deviates(case, algorithm=paired.ALGORITHM, num_rounds=10):
    """|z| of every statistic, from 20 000 draws."""
    verdict = geweke(
        model_of(case),
        algorithm,
        ROWS,
        key=jax.random.key(5),
        num_draws=20_000,
        num_rounds=num_rounds,
        functionals=statistics if "full" in case else None,
    )
    return {name: float(stats.norm.isf(max(p, 1e-300) / 2)) for name, p in verdict.p_values.items()}


def record(name, found):
    """The largest |z|, which is returned, beside the figures of the other programs."""
    worst = max(found, key=found.get)
    told = {"statistics": len(found), "largest_z": round(found[worst], 2), "of": worst}
    add_part_to_record("geweke_paired", name, COMMAND, num_draws=20_000, **told)
    return found[worst]


@pytest.mark.slow
@pytest.mark.parametrize("case", list(MODELS))
def test_the_samplers_leave_the_joint_distribution_invariant(case):
    """Max |z| < 4 over some hundred statistics: false alarm rate about 0.7 %."""
    assert record(f"joint invariance, {case}", deviates(case)) < 4


# The joint prior: its normaliser is unknown, so joint draws are by rejection, the kernel being bounded

KERNELS = np.array([[0.6, 1.2], [0.6, 1.2], [0.3, 1.5], [0.3, 1.5]])
WITH_KERNELS = {
    "families": ("bernoulli", Binomial(2)),
    "num_shared": 1,
    "num_specific": (0, 1),
    "num_features": (2, 2),
    "loc_variance": 1.0,
}


def draws_with_kernels(model, num_draws):
    """Joint draws of all sites and data, those of the Gaussian part kept in proportion to the kernels."""
    gaussian = {
        name: getattr(model, name) / (1 - model.beta) for name in ("latent_variance", "loading_variance")
    }
    proper = zoo.Paired(**WITH_KERNELS, **gaussian)

    def one(key):
        first, second = jax.random.split(key)
        sites = trace(seed(proper, first)).get_trace(num_observations=ROWS)
        values = {name: site["value"] for name, site in sites.items() if site["type"] == "sample"}
        gain = 0.0
        for v, family in enumerate(model.families):
            lam, nu = KERNELS[2 * v]
            mean = lam / nu * getattr(family, "total_count", 1)
            best = family.log_kernel(family.natural(jnp.asarray(mean)), lam, nu)
            gain += jnp.sum(family.log_kernel(model.mean_theta(v, values).whole(), lam, nu) - best)
        return values, -jax.random.exponential(second) < model.beta * gain

    batch = jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=5000))
    draws, found = [], 0
    while found < num_draws:
        values, kept = batch(jax.random.split(jax.random.fold_in(jax.random.key(3), len(draws)), 50_000))
        draws.append({name: np.asarray(value)[np.asarray(kept)] for name, value in values.items()})
        found += int(kept.sum())
    return {name: np.concatenate([d[name] for d in draws])[:num_draws] for name in draws[0]}


@pytest.fixture(scope="module")
def kernel_deviates():
    """|z| of every statistic from 20 000 draws, the joint draws made once."""
    model = zoo.Paired(**WITH_KERNELS, beta=0.4, conjugate=KERNELS)
    with in_precision():
        given = draws_with_kernels(model, 40_000)

    def deviates(algorithm):
        test = {"key": jax.random.key(5), "num_draws": 20_000, "num_rounds": 5, "prior_draws": given}
        verdict = geweke(model, algorithm, ROWS, **test)
        return {name: float(stats.norm.isf(max(p, 1e-300) / 2)) for name, p in verdict.p_values.items()}

    return deviates


@pytest.mark.slow
def test_the_sampler_leaves_the_joint_prior_invariant(kernel_deviates):
    """Two views with kernels of their own. Max |z| < 4 over some sixty statistics: false alarm rate 0.4 %."""
    assert record("joint prior, joint invariance", kernel_deviates(paired.ALGORITHM)) < 4


def _kernels_left_out(view):
    return None


def _kernels_of_the_other_view(view):
    return KERNELS[:2] if view.suffix == "_1" else KERNELS[2:]


@pytest.mark.slow
@pytest.mark.parametrize("bug", [_kernels_left_out, _kernels_of_the_other_view])
def test_wrong_kernels_of_views_fail(bug, kernel_deviates, monkeypatch):
    views_of = projections.views_of
    monkeypatch.setattr(
        projections,
        "views_of",
        lambda model: tuple(view._replace(conjugate=bug(view)) for view in views_of(model)),
    )
    found = kernel_deviates(Algorithm(projections.init, partial(projections._step, moves=True)))
    assert record(f"joint prior, planted: {bug.__name__[1:].replace('_', ' ')}", found) > 8


class _State(NamedTuple):
    values: dict


class _Info(NamedTuple):
    objective: jax.Array


def _planted(sweep):
    def init(key, model, *data):
        return _State(start_of(model, key, *data))

    def step(key, state, model, *data):
        return _State(sweep(key, state.values, model, *data)), _Info(jnp.zeros(()))

    return Algorithm(init, step)


def _elementwise(key, values, model, *data):
    """Planted: rows proposed from the whole of Psi, each entry accepted by itself."""
    moved = dict(values)
    for v, y in enumerate(data):
        draw, accept = jax.random.split(jax.random.fold_in(key, v))
        name, mean = f"natural_params_{v}", model.mean_theta(v, values).whole()
        factor = jnp.linalg.cholesky(model.specific_covariance(v, values))
        proposed = mean + jax.random.normal(draw, mean.shape) @ factor.T

        def height(theta, family=model.families[v], y=y):
            return family.log_density(theta, y)

        gain = height(proposed) - height(values[name])
        kept = gain > -jax.random.exponential(accept, gain.shape)
        moved[name] = jnp.where(kept, proposed, values[name])
    return moved


def _elementwise_sweep(key, values, model, *data):
    own, rest = jax.random.split(key)
    keys = jax.random.split(rest, 4)
    values = _elementwise(own, values, model, *data)
    for block, block_key in zip(
        (full.columns, full.precisions, full.latents, full.relevance), keys, strict=True
    ):
        values = _drawn(block_key, block, values, model, *data)
    return values


def _drawn(key, block, values, model, *data):
    values = dict(values)
    for place, name in enumerate(block(values, model, *data)):
        values[name] = block(values, model, *data)[name].sample(jax.random.fold_in(key, place))
    return values


def _printed_order_sweep(key, values, model, *data):
    """Planted: the mean with the latents integrated out, loadings given the old latents, then latents."""
    keys = jax.random.split(key, 6)
    values = full.move_theta(keys[0], values, model, *data)
    means = {}
    for v in range(len(data)):
        w, size = values[f"loadings_{v}"], values[f"loadings_{v}"].shape[0]
        marginal = model.specific_covariance(v, values) + w @ w.T * full.prior_variance(model)
        theta = values[f"natural_params_{v}"]
        precision = len(theta) * jnp.linalg.inv(marginal) + jnp.eye(size) / model.loc_variance
        linear = jnp.linalg.solve(marginal, jnp.sum(theta, axis=0))
        own = full.CanonicalNormal(linear, precision)
        means[f"loc_{v}"] = own.sample(jax.random.fold_in(keys[1], v))
    values = dict(values) | means
    ridge = values["loading_precision"] / full.prior_variance(model)
    for v in range(len(data)):  # loadings given the means just drawn and the old latents
        eigenvalues, rotation = jnp.linalg.eigh(values[f"specific_precision_{v}"])
        theta = (values[f"natural_params_{v}"] - values[f"loc_{v}"]) @ rotation
        u = values["latents"]
        precision = eigenvalues[:, None, None] * (u.T @ u) + jnp.diag(ridge)
        own = full.CanonicalNormal((eigenvalues * theta).T @ u, precision)
        values[f"loadings_{v}"] = rotation @ own.sample(jax.random.fold_in(keys[2], v))
    for block, block_key in zip((full.latents, full.precisions, full.relevance), keys[3:], strict=True):
        values = _drawn(block_key, block, values, model, *data)
    return values


@pytest.mark.slow
@pytest.mark.parametrize("case", ["full, bernoulli", "full, poisson"])
@pytest.mark.parametrize("bug", [_elementwise_sweep, _printed_order_sweep])
def test_the_printed_algorithm_fails(bug, case):
    found = deviates(case, _planted(bug))
    assert record(f"planted: {bug.__name__[1:].replace('_', ' ')}, {case}", found) > 8


# Fits


def test_missing_cells_are_drawn_given_those_of_their_row():
    """The normal conditional by the covariance's blocks; 4.5 standard errors of 4000 rows (2e-5)."""
    rng, cell = np.random.default_rng(0), np.array([2.0, np.nan, np.nan])
    model = zoo.Paired((Gaussian(None),) * 2, num_shared=1, specific="full_covariance", num_features=(3, 3))
    square = rng.normal(size=(3, 3))
    covariance = square @ square.T + 0.5 * np.eye(3)
    loadings, loc = rng.normal(size=(3, 1)), rng.normal(size=3)
    with in_precision():
        y = jnp.tile(cell, (4000, 1)), jnp.tile(cell[::-1], (4000, 1))
        values = start_of(model, jax.random.key(0), *y) | {"latents": jnp.full((4000, 1), 0.7)}
        for v in (0, 1):
            own = {"specific_precision": np.linalg.inv(covariance), "loadings": loadings, "loc": loc}
            values |= {f"{name}_{v}": jnp.asarray(value) for name, value in own.items()}
        found = full.completed_views(jax.random.key(1), values, model, *y)
    mean = loc + 0.7 * loadings[:, 0]
    for v, seen in ((0, 0), (1, 2)):
        draws, gone = np.asarray(found[f"completed_{v}"]), [i for i in range(3) if i != seen]
        assert (draws[:, seen] == 2.0).all()
        slope = covariance[gone, seen] / covariance[seen, seen]
        rest = covariance[np.ix_(gone, gone)] - np.outer(slope, covariance[seen, gone])
        away = draws[:, gone] - mean[gone] - slope * (2.0 - mean[seen])
        white = np.linalg.solve(np.linalg.cholesky(rest), away.T)
        error = 4.5 / np.sqrt(4000)
        assert np.abs(white.mean(1)).max() < error
        assert np.abs(white @ white.T / 4000 - np.eye(2)).max() < np.sqrt(2) * error


def test_rows_move_by_the_weighted_density_of_their_cells(monkeypatch):
    """What the slice is given, by hand: prior mean, a root of Psi, and weight times the row's log density."""
    weights, fields = (2.0, 0.5), FULL | {"ard": False, "view_weights": (2.0, 0.5)}
    model = zoo.Paired(families=("bernoulli", "poisson"), **fields)
    rng = np.random.default_rng(0)
    theta, loadings = rng.normal(size=(2, ROWS, 2)), rng.normal(size=(2, 2, 1))
    loc, half, latents = rng.normal(size=(2, 2)), rng.normal(size=(2, 2, 2)), rng.normal(size=(ROWS, 1))
    precision = half @ half.transpose(0, 2, 1) + np.eye(2)
    cells = [
        np.array([[1.0, 0.0], [0.0, np.nan], [1.0, 1.0]]),
        np.array([[3.0, 0.0], [1.0, 4.0], [np.nan, 2.0]]),
    ]

    def given(key, current, mean, factor, height, row):
        return jnp.concatenate([current, mean, factor.ravel(), height(current, row)[None]])

    monkeypatch.setattr(full, "_elliptical_slice", given)
    with in_precision():
        values = {"latents": latents}
        for v in range(2):
            values |= {f"natural_params_{v}": theta[v], f"loadings_{v}": loadings[v], f"loc_{v}": loc[v]}
            values |= {f"specific_precision_{v}": precision[v]}
        values = {name: jnp.asarray(value) for name, value in values.items()}
        found = jax.jit(full.move_theta)(jax.random.key(0), values, model, *map(jnp.asarray, cells))
    densities = (
        stats.bernoulli.logpmf(np.nan_to_num(cells[0]), 1 / (1 + np.exp(-theta[0]))),
        stats.poisson.logpmf(np.nan_to_num(cells[1]), np.exp(theta[1])),
    )
    for v in range(2):
        own = np.asarray(found[f"natural_params_{v}"])
        np.testing.assert_allclose(own[:, :2], theta[v])
        np.testing.assert_allclose(own[:, 2:4], latents @ loadings[v].T + loc[v], rtol=1e-12)
        root = own[0, 4:8].reshape(2, 2)
        np.testing.assert_allclose(root @ root.T @ precision[v], np.eye(2), atol=1e-10)
        expected = np.where(np.isnan(cells[v]), 0.0, densities[v]).sum(axis=1)
        np.testing.assert_allclose(own[:, 8], weights[v] * expected, rtol=1e-10)


@pytest.mark.slow
def test_a_row_moves_as_a_whole_given_a_full_covariance():
    """Against quadrature: mean and correlation of two natural parameters given cells (1, 1); |z| < 4.5."""
    psi = np.array([[4.0, 3.2], [3.2, 4.0]])
    model = zoo.Paired(families=("bernoulli",) * 2, **(FULL | {"ard": False}))
    with in_precision():
        y = jnp.ones((4000, 2))
        values = start_of(model, jax.random.key(0), y, y)
        values |= {f"specific_precision_{v}": jnp.asarray(np.linalg.inv(psi)) for v in (0, 1)}
        values |= {f"loadings_{v}": jnp.zeros((2, 1)) for v in (0, 1)}
        values |= {f"loc_{v}": jnp.zeros(2) for v in (0, 1)}
        values |= {f"natural_params_{v}": jnp.zeros((4000, 2)) for v in (0, 1)}
        move = jax.jit(lambda key, values: full.move_theta(key, values, model, y, y))
        for sweep in range(40):
            values = move(jax.random.key(sweep), values)
        theta = np.concatenate([np.asarray(values[f"natural_params_{v}"]) for v in (0, 1)])
    grid = np.linspace(-12, 14, 521)
    a, b = np.meshgrid(grid, grid, indexing="ij")
    weight = (
        stats.multivariate_normal([0, 0], psi).pdf(np.stack([a, b], -1)) / (1 + np.exp(-a)) / (1 + np.exp(-b))
    )
    weight /= weight.sum()
    for function in (lambda s, t: s, lambda s, t: s * t):
        draws, expected = function(*theta.T), (weight * function(a, b)).sum()
        assert abs(draws.mean() - expected) < 4.5 * draws.std() / np.sqrt(len(draws))


@pytest.mark.slow
def test_a_fit_of_either_program_has_its_draws():
    for case in ("low rank", "full, gaussian and bernoulli"):
        model = model_of(case)
        _, data = draw_of(model)
        data[0][1, 1] = data[1][2] = np.nan
        with pytest.warns(UserWarning, match="has not converged"):
            tree = fit(model, *data, method="gibbs", num_chains=2, num_warmup=2, num_samples=5)
        assert tree["posterior"]["loadings_1"].dims == ("chain", "draw", "feature_1", "latent")
        assert np.isfinite(tree["sample_stats"]["lp"]).all()


def test_what_gibbs_cannot_do_is_said():
    _, data = draw_of(model_of("full, bernoulli"))
    with pytest.raises(ValueError, match="gibbs needs Gaussian, Bernoulli or binomial cells"):
        fit(zoo.Paired(("poisson", "bernoulli")), *data, method="gibbs")
    with pytest.raises(ValueError, match="gibbs has no draw of the cut points of Ordinal cells"):
        families = (Ordinal(2), "bernoulli")
        fit(zoo.Paired(families, specific="full_covariance"), data[0] + 1, data[1], method="gibbs")


def test_latents_are_drawn_given_both_views_by_their_joint_normal():
    """Mean and covariance of latents given completed cells and noisy parameters, by the joint covariance."""
    rng, variance, sizes = np.random.default_rng(0), 0.6, (3, 2)
    fields = {"num_shared": 2, "specific": "full_covariance", "latent_variance": variance}
    model = zoo.Paired((Gaussian(None), "bernoulli"), num_features=sizes, **fields)
    variance = variance**0.5  # of the balanced scale: latent_variance loading_variance, the root of it
    loadings, loc = [rng.normal(size=(d, 2)) for d in sizes], [3.0 + rng.normal(size=d) for d in sizes]
    psi = [half @ half.T + 0.5 * np.eye(len(half)) for half in (rng.normal(size=(d, d)) for d in sizes)]
    theta = [rng.normal(size=(ROWS, d)) for d in sizes]
    cells = np.where(np.eye(ROWS, 3) > 0, np.nan, theta[0]), np.ones((ROWS, 2))
    values = {"completed_0": theta[0], "natural_params_1": theta[1], "latents": np.zeros((ROWS, 2))}
    for v in (0, 1):
        values |= {f"loadings_{v}": loadings[v], f"loc_{v}": loc[v]}
        values |= {f"specific_precision_{v}": np.linalg.inv(psi[v])}
    with in_precision():
        values = {name: jnp.asarray(value) for name, value in values.items()}
        found = full.latents(values, model, *map(jnp.asarray, cells))["latents"]
    whole, noise = np.concatenate(loadings), np.zeros((5, 5))
    noise[:3, :3], noise[3:, 3:] = psi
    gain = np.linalg.solve(variance * whole @ whole.T + noise, variance * whole).T
    mean = (np.hstack(theta) - np.concatenate(loc)) @ gain.T
    covariance = np.linalg.inv(found.precision)
    np.testing.assert_allclose(covariance, np.tile(variance * (np.eye(2) - gain @ whole), (ROWS, 1, 1)))
    np.testing.assert_allclose(np.einsum("nij,nj->ni", covariance, found.linear), mean, rtol=1e-9)
