"""Mixtures of every component family: the hand-written inference agrees with the program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inference import fit, guide, load, model_of, predict, save
from inference import log_density as heldout
from inference.calibration import conditional_check, elbo_check, geweke
from inference.methods.mixture import gibbs
from inference.numerics.programs import log_prior
from tests.support.component_families import FAMILIES, mixture, priors, rows
from tests.support.log_joint import log_joint
from zoo.intake.families import for_data

EVERY_RUN = ("Product",)  # the others are the same code, marked slow


@pytest.fixture(autouse=True)
def forget_each_family():
    """A dozen families compile more programs than a process may map (see conftest)."""
    yield
    jax.clear_caches()


def slow_but(names):
    return [pytest.param(n, marks=() if n in names else pytest.mark.slow) for n in FAMILIES]


def values_of(name, model, x):
    """A state of the blocked sampler: values of every site."""
    with jax.enable_x64(True):
        return gibbs.ALGORITHM.init(jax.random.key(0), model, jnp.asarray(x)).values


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(EVERY_RUN))
def test_summed_out_program_is_the_explicit_one_summed(name):
    """With a missing cell where the family takes them: NumPyro must not take NaN to be out of the support."""
    model, x = mixture(name, num_components=2), rows(name, 3)
    if model.components.takes_missing:
        x[1, 0] = np.nan
        model = for_data(model, x)
    with jax.enable_x64(True):
        values = values_of(name, model, x)
        everything_else = {site: value for site, value in values.items() if site != "assignments"}
        codes = np.arange(8)
        labels = jnp.asarray(np.stack([codes // 4, codes // 2 % 2, codes % 2], axis=1))
        given = jax.vmap(lambda c: log_joint(model.explicit, values | {"assignments": c}, x))
        total = float(jax.nn.logsumexp(jax.jit(given)(labels)))
        np.testing.assert_allclose(log_joint(model, everything_else, x), total, rtol=1e-10)
        rows_only = jnp.sum(model.log_likelihood(everything_else, x))
        prior = log_prior(model, everything_else, x)
        np.testing.assert_allclose(rows_only + prior, total, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(EVERY_RUN))
def test_every_conditional_is_the_programs(name):
    model, x = mixture(name), rows(name, 7)
    for block in gibbs.blocks_of(model):
        assert conditional_check(model, block, values_of(name, model, x), (x,)).passed


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_bound_is_the_monte_carlo_elbo_of_program_and_guide(name):
    model, x = mixture(name), rows(name, 12)
    tree = fit(
        model, x, tolerance=1e-10, num_samples=50
    )  # at convergence: the bound is that of the labels too
    bound = float(tree["trace"]["objective"][-1])
    check = elbo_check(model, guide(tree), bound, (x,), key=jax.random.key(1), num_particles=2000)
    assert check.passed, check
    assert not elbo_check(
        model, guide(tree), bound + 1.0, (x,), key=jax.random.key(1), num_particles=2000
    ).passed


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(("SharedGaussianWishart",)))
def test_one_component_bound_is_the_evidence(name):
    model, x = mixture(name, num_components=1, concentration=1.0), rows(name, 9)
    tree = fit(model, x, max_iterations=2, tolerance=0, num_samples=10, num_restarts=1)
    with jax.enable_x64(True):
        components = priors()[name]
        evidence = jnp.sum(components.log_evidence(components.features(x).sum(axis=0)[None]))
    np.testing.assert_allclose(tree["trace"]["objective"][-1], evidence, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_fit_is_saved_and_used(name, tmp_path):
    model, x = mixture(name), rows(name, 20)
    for method in ("vb", "gibbs"):
        settings = {"num_warmup": 20, "num_samples": 30} if method == "gibbs" else {"num_samples": 30}
        tree = _quiet(fit, model, x, method=method, **settings)
        save(tree, tmp_path / "fit.nc")
        again = load(tmp_path / "fit.nc")
        assert type(model_of(again).components) is type(model.components)
        new = rows(name, 5, seed=1)
        assert np.isfinite(heldout(again, new)).all()
        assert predict(again, new).dims == ("observation",)
        for site, dims in model.components.parameter_dims.items():
            if site in again["posterior"]:
                assert again["posterior"][site].dims == ("chain", "draw", *dims)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_blocked_sampler_leaves_the_joint_invariant(name):
    """False alarm rate 1% over the families together."""
    model = mixture(name, num_components=2)
    rate = {"false_alarm_rate": 0.01 / len(FAMILIES)}
    check = geweke(model, gibbs.ALGORITHM, 5, key=jax.random.key(3), num_draws=1500, **rate)
    assert check.passed, check


def components_that_see_the_rows_twice(values, model, x):
    """Planted."""
    again = dict(values) | {"assignments": jnp.tile(values["assignments"], 2)}
    return gibbs.component_parameters(again, model, jnp.concatenate([x, x]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["NormalGamma", "BernoulliBeta", "PoissonGamma", "LogNormal", "LogGaussian", "CategoricalDirichlet"],
)
def test_components_that_see_the_rows_twice_are_found(name):
    model = mixture(name, num_components=2)

    def blocks(model):
        wrong, right = components_that_see_the_rows_twice, gibbs.component_parameters
        return tuple(wrong if block is right else block for block in gibbs.blocks_of(model))

    assert components_that_see_the_rows_twice in blocks(model)
    check = geweke(model, gibbs.algorithm_of(blocks), 5, key=jax.random.key(3), num_draws=1500)
    assert check.statistic < 1e-6, check


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["NormalGamma", "BernoulliBeta", "PoissonGamma", "Product", "LogGaussian", "CategoricalDirichlet"],
)
def test_nuts_and_gibbs_agree(name):
    """Posterior mean of the predictive density of ten rows, within 4 Monte Carlo errors (1e-3 a family)."""
    import arviz as az

    model, x = mixture(name, num_components=2), rows(name, 25)
    trees = [
        _quiet(fit, model, x, method=m, num_warmup=500, num_samples=1500, seed=5) for m in ("gibbs", "nuts")
    ]
    means, errors = [], []
    for tree in trees:
        rows_of = tree["log_likelihood"]["log_likelihood"][..., :10].mean("observation")
        means.append(float(rows_of.mean()))
        errors.append(float(az.mcse(rows_of.to_numpy(), method="mean")))
    assert abs(means[0] - means[1]) < 4 * np.hypot(*errors)


def _quiet(function, *args, **keywords):
    """Runs that are too short to converge warn of it."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*has not converged")
        return function(*args, **keywords)
