"""Gibbs for EPCA: its conditionals, the augmentation against the program, joint invariance, its draws."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import zoo
from inference import fit
from inference.algorithm import Algorithm
from inference.calibration import conditional_check, geweke
from inference.methods.epca import gibbs
from inference.methods.epca.quadratic_cells import (
    FIXED_PRECISION,
    QuadraticCells,
    draw_precisions,
    log_lacking,
)
from inference.numerics import polya_gamma
from inference.precision import in_precision
from tests.tools.recording import add_part_to_record
from zoo.answers import start_of
from zoo.exponential_family import Binomial, ByColumn, Gaussian

ALGORITHM = gibbs.algorithm_of()
ROWS, FEATURES = 5, 3
COMMAND = "python -m pytest -m slow tests/inference/methods/epca/test_gibbs_epca.py -k 'leaves or fail'"
CASES = {
    "bernoulli": {"family": "bernoulli", "ard": True},
    "bernoulli, joint prior": {"family": "bernoulli", "beta": 0.4, "conjugate": (0.5, 1.2)},
    "bernoulli, weak joint prior": {"family": "bernoulli", "beta": 0.5, "conjugate": (0.1, 0.4)},
    "binomial, joint prior": {"family": Binomial(3), "beta": 0.3, "conjugate": (0.6, 0.5)},
    "gaussian": {"family": Gaussian(None), "ard": True},
    "mixed": {"family": ("bernoulli", Gaussian(None), Binomial(2))},
    "gaussian, joint prior": {"family": Gaussian(0.7), "beta": 0.4, "conjugate": (0.1, 0.2)},
}


def model_of(case, **fields):
    given = {"num_latents": 2, "num_features": FEATURES, "loc_variance": 1.0, "ard_concentration": 3.0}
    return zoo.EPCA(**(given | {"ard_rate": 3.0} | CASES[case] | fields))


def data_of(model, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, FEATURES))
    if isinstance(model.family, ByColumn):
        x[:, [0, 2]] = rng.integers(0, 2, (ROWS, 2))
    elif not isinstance(model.family, Gaussian):
        x = rng.binomial(getattr(model.family, "total_count", 1), 0.4, (ROWS, FEATURES)).astype(float)
    x[1, 2] = x[4, 0] = np.nan
    return x


def values_of(model, x, seed=0):
    with in_precision():
        values = start_of(model, jax.random.key(seed), jnp.asarray(x))
        values = {name: 1.5 * value for name, value in values.items()}
        return jax.tree.map(np.asarray, values)


class Augmented:
    """The program with a precision for every cell, half normal.

    Given the precisions the cells are quadratic; how they come about is for other tests.
    """

    prior = "unnormalised"

    def __init__(self, model):
        self.model = model

    def __call__(self, x):
        precisions = dist.HalfNormal(1.0).expand(x.shape).to_event(2)
        precisions = numpyro.sample("cell_precisions", precisions)
        with numpyro.handlers.trace() as trace, numpyro.handlers.block(hide_fn=lambda s: s["name"] in HIDDEN):
            self.model(jnp.full_like(x, jnp.nan))
        values = {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}
        theta = self.model.family.shaped(self.model.low_rank(values).whole())
        linear = gibbs.cells_of(values, self.model, x).linear
        numpyro.factor("quadratic", jnp.sum(linear * theta - precisions * theta**2 / 2))


HIDDEN = ("x", "joint_prior", "observations")


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("case", ["bernoulli", "binomial, joint prior"])
def test_rows_and_columns_are_drawn_from_their_conditionals(case):
    model = model_of(case)
    x = data_of(model)
    values = values_of(model, x) | {"cell_precisions": np.random.default_rng(2).uniform(0.1, 1, x.shape)}
    for block in (gibbs.latents, gibbs.columns):
        verdict = conditional_check(
            Augmented(model),
            lambda values, _, x, block=block: block(values, model, x),
            values,
            (x,),
            num_draws=3,
        )
        assert verdict.passed, (block.__name__, verdict)


def test_a_conditional_that_forgets_the_mean_is_found():
    model = model_of("bernoulli")
    x = data_of(model)
    values = values_of(model, x) | {"cell_precisions": np.full(x.shape, 0.3)}

    def wrong(values, _, x):
        return gibbs.latents(values | {"loc": 0.9 * values["loc"]}, model, x)

    assert not conditional_check(Augmented(model), wrong, values, (x,), num_draws=3).passed


def test_relevance_and_noise_are_drawn_from_their_conditionals():
    for case, block in (("gaussian", gibbs.relevance), ("gaussian", gibbs.noise), ("mixed", gibbs.noise)):
        model = model_of(case)
        x = data_of(model)
        verdict = conditional_check(model, block, values_of(model, x), (x,), num_draws=3)
        assert verdict.passed, (block.__name__, verdict)


@pytest.mark.parametrize("case", list(CASES))
def test_coefficients_of_the_cells_are_those_of_the_program(case):
    """Log joint of the program, likelihood and kernel, against kappa theta - tau theta^2 / 2 - b log cosh."""
    model = model_of(case)
    x = data_of(model)
    difference = []
    with in_precision():
        for seed in range(3):
            values = values_of(model, x, seed)
            values |= {"noise_variance": np.array(0.8)} if "noise_variance" in values else {}
            theta = model.family.shaped(model.low_rank(values).whole())
            cells = gibbs.cells_of(values, model, jnp.asarray(x))
            quadratic = cells.linear * theta - cells.precision * theta**2 / 2
            own = jnp.sum(quadratic - cells.count * polya_gamma.log_cosh(theta / 2))
            found = jnp.sum(model.log_likelihood(values, jnp.asarray(x)))
            if model.has_kernel:
                found += model.beta * jnp.sum(model.family.log_kernel(theta, *model.conjugate))
            difference.append(float(found - own))
    np.testing.assert_allclose(difference, difference[0], rtol=1e-11)


@pytest.mark.parametrize(("axis", "sites"), [(1, ["latents"]), (0, ["loadings", "loc"])])
def test_a_row_or_column_is_kept_with_the_probability_of_what_the_substitutes_lack(axis, sites):
    """Of 4000 draws of the same proposal min(1, e^gain), within five deviations: false alarms 3e-6 at most.

    Loadings and mean of a column are kept or refused together.
    """
    model = model_of("bernoulli, joint prior")
    x, num_draws = data_of(model), 4000
    with in_precision():
        values = jax.tree.map(jnp.asarray, values_of(model, x))
        size = len(values[sites[0]])
        stretch = jnp.linspace(4.0, 24.0, size)
        proposal = {
            name: values[name] * stretch.reshape(-1, *[1] * (values[name].ndim - 1)) for name in sites
        }
        cells = gibbs.cells_of(values, model, jnp.asarray(x))
        lacks = [log_lacking(cells, gibbs.theta_of(own, model)) for own in (values, values | proposal)]
        gain = np.asarray(jnp.sum(lacks[1] - lacks[0], axis=axis))

        @jax.jit
        @jax.vmap
        def kept(key):
            found = gibbs._draw_block(
                key, lambda *_: proposal, values, lacks[0], cells, model, (jnp.asarray(x),), axis=axis
            )
            each = [found[0][name] == proposal[name] for name in sites]
            whole = [jnp.all(own.reshape(size, -1), axis=1) for own in each]
            return whole, jnp.isclose(found[1], lacks[1], rtol=1e-9), found[2]

        of_sites, cells_moved, rate = kept(jax.random.split(jax.random.key(0), num_draws))
    first = np.asarray(of_sites[0])
    for other in of_sites:
        np.testing.assert_array_equal(other, first)
    np.testing.assert_array_equal(np.asarray(cells_moved).all(axis=1 + axis), first)
    np.testing.assert_allclose(rate, first.mean(axis=1))
    p = np.exp(np.minimum(gain, 0.0))
    assert (np.abs(first.mean(axis=0) - p) <= 5 * np.sqrt(p * (1 - p) / num_draws) + 1e-12).all()
    assert p.min() < 0.9


# Joint invariance


def prior_draws(model, num_draws, seed):
    """Joint draws of all sites and data; of an unnormalised prior by rejection, the kernel being bounded."""
    proper = zoo.EPCA(
        num_latents=model.num_latents,
        num_features=model.num_features,
        family=model.family,
        latent_variance=model.latent_variance / (1 - model.beta),
        loading_variance=model.loading_variance / (1 - model.beta),
        loc_variance=model.loc_variance,
    )
    lam, nu = model.conjugate  # the same for all columns
    at_best = model.family.log_kernel(model.family.natural(jnp.asarray(lam / nu)), lam, nu)

    def one(key):
        first, second = jax.random.split(key)
        trace = numpyro.handlers.trace(numpyro.handlers.seed(proper, first)).get_trace(num_observations=ROWS)
        values = {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}
        kernel = (
            model.family.log_kernel(model.family.shaped(model.low_rank(values).whole()), lam, nu) - at_best
        )
        return values, -jax.random.exponential(second) < model.beta * jnp.sum(kernel)

    batch = jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=5000))
    draws = []
    while sum(map(len, (d["x"] for d in draws))) < num_draws:
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), len(draws)), 20_000)
        values, kept = batch(keys)
        draws.append({name: np.asarray(value)[np.asarray(kept)] for name, value in values.items()})
    return {name: np.concatenate([d[name] for d in draws])[:num_draws] for name in draws[0]}


def largest_z(verdict):
    """The p-values as deviates of a normal."""
    return {name: float(stats.norm.isf(max(p, 1e-300) / 2)) for name, p in verdict.p_values.items()}


def joint_test(case, algorithm=ALGORITHM, num_draws=20_000):
    model = model_of(case)
    given = None
    if model.has_kernel:
        with in_precision():
            given = prior_draws(model, 2 * num_draws, 3)
    return geweke(
        model, algorithm, ROWS, key=jax.random.key(5), num_draws=num_draws, num_rounds=5, prior_draws=given
    )


def record(name, deviates):
    """The largest |z|, which is returned."""
    worst = max(deviates, key=deviates.get)
    found = {"statistics": len(deviates), "largest_z": round(deviates[worst], 2), "of": worst}
    add_part_to_record("geweke_epca", name, COMMAND, num_draws=20_000, num_rounds=5, **found)
    return deviates[worst]


@pytest.mark.slow
@pytest.mark.parametrize("case", list(CASES))
def test_the_sampler_leaves_the_joint_distribution_invariant(case):
    """Max |z| < 4 over about 60 statistics: false alarm rate about 0.4 %."""
    assert record(f"joint invariance, {case}", largest_z(joint_test(case))) < 4


def _with_fixed_count(key, cells, theta):
    """Planted: every cell has a count of one, seen or not, whatever its trials."""
    return cells.precision + polya_gamma.draw_whole(key, jnp.ones_like(theta), theta)


def _with_one_term(key, cells, theta):
    """Planted: the series of the Polya-Gamma variable is cut off after its first term."""
    return cells.precision + jax.random.gamma(key, cells.count) / (jnp.pi**2 / 2 + theta**2 / 2)


@pytest.mark.slow
@pytest.mark.parametrize("bug", [_with_fixed_count, _with_one_term])
def test_wrong_polya_gamma_variables_fail(bug, monkeypatch):
    monkeypatch.setattr(gibbs, "draw_precisions", bug)
    algorithm = Algorithm(gibbs.init, partial(gibbs._step, moves=False))
    deviates = largest_z(joint_test("binomial, joint prior", algorithm))
    assert record(f"planted: {bug.__name__[1:].replace('_', ' ')}", deviates) > 8


@pytest.mark.slow
def test_a_kernel_left_out_fails(monkeypatch):
    def without(values, model, x):
        cells = cells_of(values, model, x)
        seen = ~jnp.isnan(x)
        total = model.family.total_count
        return QuadraticCells(jnp.nan_to_num(x) - total * seen / 2, cells.precision, 1.0 * total * seen)

    cells_of = gibbs.cells_of
    monkeypatch.setattr(gibbs, "cells_of", without)
    algorithm = Algorithm(gibbs.init, partial(gibbs._step, moves=True))
    deviates = largest_z(joint_test("binomial, joint prior", algorithm))
    assert record("planted: kernel left out", deviates) > 8


# Fits


@pytest.mark.slow
def test_a_fit_has_its_draws_and_their_statistics():
    model = model_of("bernoulli, joint prior")
    with pytest.warns(UserWarning, match="has not converged"):
        tree = fit(model, data_of(model), method="gibbs", num_chains=2, num_warmup=5, num_samples=10)
    assert tree["posterior"]["loadings"].dims == ("chain", "draw", "feature", "latent")
    assert float(tree["sample_stats"]["acceptance_rate"].mean()) > 0.98
    assert np.isfinite(tree["sample_stats"]["lp"]).all()


def test_families_without_the_augmentation_are_refused():
    x = data_of(model_of("bernoulli"))
    with pytest.raises(ValueError, match="gibbs needs Gaussian, Bernoulli or binomial cells"):
        fit(zoo.EPCA(family="poisson"), x, method="gibbs")
    with pytest.raises(TypeError, match="moves must be True or False"):
        fit(zoo.EPCA(), x, method="gibbs", moves="all")


def test_every_turn_starts_where_the_last_one_ended(monkeypatch):
    """Turns that add what they are handed and double it: 1 + 2 + 4 of it, not 3, after three."""
    model = model_of("bernoulli, joint prior")
    x = data_of(model)
    seen = []

    def turn(key, values, lacking, *rest):
        seen.append(sorted(values))
        return values | {"latents": values["latents"] + lacking[0, 0]}, 2.0 * lacking, 0.5

    monkeypatch.setattr(gibbs, "_turn", turn)
    monkeypatch.setattr(gibbs, "TURNS", 3)
    with in_precision():
        values = jax.tree.map(jnp.asarray, values_of(model, x))
        cells = gibbs.cells_of(values, model, jnp.asarray(x))
        given = np.asarray(log_lacking(cells, gibbs.theta_of(values, model)))[0, 0]
        state = gibbs.GibbsState(values, jnp.ones(()))
        new = gibbs.algorithm_of(False).step(jax.random.key(0), state, model, jnp.asarray(x))[0]
        new = jax.tree.map(np.asarray, new)
    assert given != 0 and len(seen) == 1 and "cell_precisions" in seen[0]
    np.testing.assert_allclose(new.values["latents"] - np.asarray(values["latents"]), 7 * given, rtol=1e-9)
    assert sorted(new.values) == sorted(values) and new.acceptance_rate == 0.5


def test_what_the_substitutes_of_small_fractions_lack():
    """cosh(theta / 2)^-f over exp(-f omega theta^2 / 2), omega fixed, by hand; whole counts lack nothing."""
    theta, count = np.array([[-3.0, 0.5, 4.0]]), np.array([[0.2, 3.1, 2.0]])
    with in_precision():
        cells = QuadraticCells(*(jnp.zeros((1, 3)),) * len(QuadraticCells._fields))._replace(
            count=jnp.asarray(count)
        )
        found = np.asarray(log_lacking(cells, jnp.asarray(theta)))
    fraction = np.array([[0.2, 0.1, 0.0]])
    by_hand = fraction * (FIXED_PRECISION * theta**2 / 2 - np.log(np.cosh(theta / 2)))
    np.testing.assert_allclose(found, by_hand, rtol=1e-9, atol=1e-15)


def test_small_fractions_of_a_count_have_a_fixed_precision():
    """No variable is drawn for counts below a quarter: tau + b tanh(1) / 4 at any natural parameter."""
    count, tau = jnp.asarray([[0.0, 0.1, 0.2]]), jnp.asarray([[0.5, 1.5, 2.5]])
    cells = QuadraticCells(jnp.zeros((1, 3)), tau, count)
    for theta in (0.0, 3.0):
        found = draw_precisions(jax.random.key(0), cells, jnp.full((1, 3), theta))
        np.testing.assert_allclose(found, tau + count * np.tanh(1.0) / 4, rtol=1e-6)
