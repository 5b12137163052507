"""Variational EM of repulsive mixtures of PCAs: the bound against the program, quadrature and EM."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.handlers import seed, trace
from scipy import stats

import inference
import zoo
from inference import fit
from inference.calibration import elbo_check
from inference.diagnostics import profile_text
from inference.fitting.verdict import convergence_judgements
from inference.methods.depcam import vb
from inference.methods.depcam.em import evaluate, rows_of, update_latents
from inference.methods.depcam.rows import tight_curves
from inference.methods.depcam.vb import _draws
from inference.precision import in_precision
from zoo.answers import start_of
from zoo.exponential_family import Binomial, Gaussian
from zoo.exponential_family.local_pca import components_of

SIZES = dict(num_components=2, num_latents=1)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(4)
    x = (rng.uniform(size=(24, 5)) < np.repeat([[0.8], [0.3]], 12, axis=0)).astype(float)
    x[3, 2] = np.nan
    return x


def at_random(model, x, seed=0):
    rng = np.random.default_rng(seed)
    values = jax.jit(lambda *given: start_of(model, *given))(jax.random.key(seed), jnp.asarray(x))
    values["bases"] = values.pop("carriers")
    values["scales"] = jnp.asarray(rng.normal(size=values["scales"].shape))
    values.pop("latents", None)
    return values | {"curves": jnp.ones((len(x), model.num_components, x.shape[1]))}


@pytest.mark.parametrize("family", ["bernoulli", Binomial(3)], ids=["bernoulli", "binomial"])
def test_bound_lies_below_the_integral_and_close(table, family):
    """Against the trapezoidal rule over the one latent; the best xi never lower it; within 0.2 nats a row."""
    model = zoo.DEPCAM.from_data(table, family=family, **SIZES)
    grid = np.linspace(-9.0, 9.0, 2001)
    with in_precision():
        x, zero = jnp.asarray(table), jnp.zeros((1, 1))
        values = at_random(model, table)
        local = components_of(model, values)
        theta = grid[:, None, None] * local.loadings[None, :, :, 0] + local.offsets
        seen = ~np.isnan(table)
        cells = model.family.log_density(theta[None], np.nan_to_num(table)[:, None, None])
        rows = jnp.sum(jnp.where(seen[:, None, None], cells, 0.0), -1)
        exact = jax.nn.logsumexp(
            rows + stats.norm.logpdf(grid)[None, :, None] + np.log(grid[1] - grid[0]), axis=1
        )
        before = -np.inf

        @jax.jit
        def judged_and_updated(values):
            objective, bound = (
                evaluate(values, model, x, zero).objective,
                rows_of(values, model, x).log_density,
            )
            return bound, objective, update_latents(values, model, x, zero)[0]

        for _ in range(30):
            bound, objective, values = judged_and_updated(values)
            assert (bound <= exact + 1e-10).all() and objective >= before - 1e-10
            before = objective
        assert (exact - bound).max() < 0.2


def test_curves_are_the_root_of_the_expected_square_of_theta():
    """Exactly, by the four points of two latents that have their mean and covariance."""
    rng = np.random.default_rng(6)
    loadings, offsets, mean = rng.normal(size=(3, 5, 2)), rng.normal(size=(3, 5)), rng.normal(size=(4, 3, 2))
    half = rng.normal(size=(4, 3, 2, 2))
    points = mean[..., None] + 2**0.5 * np.concatenate([half, -half], axis=-1)
    theta = np.einsum("kfi,nkis->nkfs", loadings, points) + offsets[..., None]
    with in_precision():
        values = {"bases": jnp.asarray(loadings), "scales": jnp.ones((3, 2)), "offsets": jnp.asarray(offsets)}
        rows = SimpleNamespace(
            mean=jnp.asarray(mean), covariance=jnp.asarray(half @ np.swapaxes(half, -1, -2))
        )
        found = tight_curves(values, SimpleNamespace(family=None, offset=True), rows)
    np.testing.assert_allclose(found, np.sqrt((theta**2).mean(axis=-1)), rtol=1e-10)


def test_gradients_by_hand_are_those_of_autodiff(table):
    model = zoo.DEPCAM.from_data(table, sparsity=0.0, repulsion=0.0, num_components=2, num_latents=2)
    with in_precision():
        values, x, zero = at_random(model, table), jnp.asarray(table), jnp.zeros((1, 1))

        @jax.jit
        def by_hand_and_by_autodiff(values):
            sums = evaluate(values, model, x, zero).sums
            own = {
                "offsets": sums.offsets - values["offsets"] / 100.0,
                "scales": jnp.einsum("kfi,kfi->ki", values["bases"], sums.loadings),
                "bases": sums.loadings * values["scales"][:, None, :],
            }
            changed = {name: values[name] for name in own}
            return own, jax.grad(lambda v: evaluate(values | v, model, x, zero).objective)(changed)

        own, auto = by_hand_and_by_autodiff(values)
        for name in own:
            np.testing.assert_allclose(own[name], auto[name], rtol=1e-9, atol=1e-10, err_msg=name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:depcam by .* has not converged")
def test_gaussian_objective_is_the_elbo_of_its_guide(table):
    """Up to the carriers' density; two-sided at four standard errors (6e-5); a shifted bound must fail."""
    x = np.nan_to_num(table) + np.random.default_rng(0).normal(size=table.shape)
    model = zoo.DEPCAM.from_data(x, family="gaussian", **SIZES)
    tree = fit(model, x, method="vb", max_iterations=30, num_samples=20)
    carriers = stats.norm.logpdf(tree["variational"]["bases"]).sum()
    bound = float(tree["trace"]["objective"][-1]) + carriers
    given = dict(key=jax.random.key(0), num_particles=2000)
    verdict = elbo_check(model, inference.guide(tree), bound, (x,), **given)
    assert verdict.passed
    assert abs(verdict.estimate - bound - 1.0) > verdict.threshold * verdict.standard_error  # planted


@pytest.mark.slow
@pytest.mark.parametrize("latents", ["component", "shared"])
def test_binary_bound_climbs_and_lies_below_its_elbo(table, latents, tmp_path):
    """At zero sparsity, where em drifts, the scales settle; q has the draws it promises."""
    model = zoo.DEPCAM.from_data(table, sparsity=0.0, latents=latents, **SIZES)
    tree = fit(model, table, method="vb", max_iterations=1000, num_samples=20, num_restarts=2)
    assert tree.attrs["converged"] == 1
    objective = tree["trace"]["objective_by_restart"].to_numpy()
    assert np.nanmin(np.diff(objective, axis=0)) > -1e-8 * np.nanmax(np.abs(objective))
    assert np.abs(tree["variational"]["scales"]).max() < 20
    assert tree["posterior"].sizes["draw"] == 20 and "log_likelihood" in tree.children
    carriers = stats.norm.logpdf(tree["variational"]["bases"]).sum()
    given = dict(key=jax.random.key(1), num_particles=500)
    bound = float(np.nanmax(objective)) + carriers
    verdict = elbo_check(model, inference.guide(tree), bound, (table,), **given)
    assert verdict.statistic > -4.0  # the ELBO of q is above what bounds it
    inference.save(tree, tmp_path / "vb.nc")
    shares = inference.transform(inference.load(tmp_path / "vb.nc"), table)
    np.testing.assert_allclose(shares.sum("component"), 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    ["bernoulli", Binomial(3), "poisson", Gaussian(noise_variance=None)],
    ids=lambda family: family if isinstance(family, str) else type(family).__name__,
)
def test_no_sweep_lowers_the_bound(table, family):
    """By more than 1e-8 relative, at four repulsions; both kinds of latents are the same bound."""
    x = table + np.random.default_rng(0).normal(size=table.shape) if isinstance(family, Gaussian) else table
    for repulsion in (0.0, 1.0, 10.0, 100.0):
        fields = dict(num_components=3, num_latents=2, repulsion=repulsion, kernel="subspace")
        model = zoo.DEPCAM.from_data(x, family=family, **fields)
        options = dict(method="vb", max_iterations=60, tolerance=0, num_samples=1, num_restarts=2)
        objective = fit(model, x, **options)["trace"]["objective_by_restart"].to_numpy()
        assert np.nanmin(np.diff(objective, axis=0)) > -1e-8 * np.nanmax(np.abs(objective)), repulsion


def test_families_without_a_bound_are_refused(table):
    with pytest.raises(ValueError, match="vb integrates the latents of.*for Exponential use em"):
        fit(zoo.DEPCAM(family="exponential", **SIZES), table + 1.0, method="vb")


def drawn_moments(latents_kind, draws=_draws):
    """Largest distance of draws of labels and latents from q, in standard errors of their moments."""
    rng, number, model = np.random.default_rng(1), 4000, zoo.DEPCAM(num_components=3, num_latents=2)
    model = model.replaced(latents=latents_kind)
    root = rng.normal(size=(2, 3, 2, 2))
    stored = {
        "responsibilities": np.array([[0.2, 0.5, 0.3], [0.0, 0.9, 0.1]]),
        "latents_loc": rng.normal(size=(2, 3, 2)),
        "latents_covariance": root @ np.swapaxes(root, -1, -2) + 0.1 * np.eye(2),
    }
    found = {
        name: np.asarray(value) for name, value in draws(jax.random.key(0), number, stored, model).items()
    }
    worst = []
    for row in range(2):
        for own in range(3):
            share, labels = stored["responsibilities"][row, own], found["assignments"][:, row]
            worst.append(abs((labels == own).mean() - share) / np.sqrt(share * (1 - share) / number + 1e-12))
            taken = labels == own
            if taken.sum() < 100:
                continue
            y = (
                found["latents"][taken, row]
                if latents_kind == "shared"
                else found["latents"][taken, row, own]
            )
            away = np.linalg.solve(
                np.linalg.cholesky(stored["latents_covariance"][row, own]),
                (y - stored["latents_loc"][row, own]).T,
            )
            second = np.stack([away[0] ** 2 - 1, away[1] ** 2 - 1, away[0] * away[1]]) / np.sqrt(
                [[2], [2], [1]]
            )
            worst.extend(np.abs(away.mean(axis=1)) * np.sqrt(taken.sum()))
            worst.extend(np.abs(second.mean(axis=1)) * np.sqrt(taken.sum()))
            if latents_kind == "component":
                others = np.delete(found["latents"][taken, row], own, axis=1).reshape(taken.sum(), -1)
                worst.extend(np.abs(others.mean(axis=0)) * np.sqrt(taken.sum()))
                worst.extend(np.abs((others**2 - 1).mean(axis=0)) * np.sqrt(taken.sum() / 2))
    return max(worst)


@pytest.mark.parametrize("latents_kind", ["component", "shared"])
def test_draws_have_the_moments_of_q(latents_kind):
    """At 5 standard errors each of at most 71 (false alarm rate 4e-5); planted: covariances as factors."""
    assert drawn_moments(latents_kind) < 5

    def planted(key, number, stored, model):
        wrong = stored | {"latents_covariance": stored["latents_covariance"] @ stored["latents_covariance"]}
        return _draws(key, number, wrong, model)

    assert drawn_moments(latents_kind, planted) > 5


def test_latents_without_spread_in_a_direction_are_drawn():
    """Where rounding leaves no Cholesky factor of a covariance a fit does not end without its answer."""
    stored = {
        "responsibilities": np.ones((1, 1)),
        "latents_loc": np.zeros((1, 1, 2)),
        "latents_covariance": np.array([[[[1.0, 1.0], [1.0, 1.0 - 1e-17]]]]) - 1e-17 * np.eye(2),
    }
    drawn = _draws(jax.random.key(0), 50, stored, zoo.DEPCAM(num_components=1, num_latents=2))["latents"]
    np.testing.assert_allclose(drawn[..., 0], drawn[..., 1], atol=1e-7)
    assert np.isfinite(drawn).all() and drawn.std() > 0.5


def test_a_point_of_sticks_has_the_density_of_their_decays(table):
    """Equal weights are fractions of 1/4, 1/3 and 1/2; of their decays E = -log(1 - V), log |dV/dE| = -E."""
    model = zoo.DEPCAM.from_data(table, weight_prior="stick_breaking", num_components=4, num_latents=1)
    with in_precision():
        values = at_random(model, table)
        fractions = np.array([1 / 4, 1 / 3, 1 / 2])
        values |= {"stick_fractions": jnp.asarray(fractions), "weights": jnp.full(4, 0.25)}
        stored = values | {
            "responsibilities": jnp.full((len(table), 4), 0.25),
            "latents_loc": jnp.zeros((len(table), 4, 1)),
            "latents_covariance": jnp.ones((len(table), 4, 1, 1)),
        }
        sites = trace(seed(vb.guide, 0)).get_trace(stored, model, jnp.asarray(table))
        decays = sites["stick_decays"]
        np.testing.assert_allclose(decays["value"], -np.log1p(-fractions))
        density = float(decays["fn"].log_prob(decays["value"]))
    np.testing.assert_allclose(density, np.log1p(-fractions).sum())


@pytest.mark.parametrize("latents_kind", ["component", "shared"])
def test_latents_given_labels_have_the_density_of_their_component_and_the_others_their_prior(latents_kind):
    rng, labels = np.random.default_rng(0), [2, 0, 2, 1]
    root = rng.normal(size=(4, 3, 2, 2))
    loc, covariance = 2.0 + rng.normal(size=(4, 3, 2)), root @ np.swapaxes(root, -1, -2) + 0.1 * np.eye(2)
    z = rng.normal(size=(4, 2) if latents_kind == "shared" else (4, 3, 2))
    expected = np.zeros(4)
    for n, own in enumerate(labels):
        mine = z[n] if latents_kind == "shared" else z[n, own]
        expected[n] = stats.multivariate_normal.logpdf(mine, loc[n, own], covariance[n, own])
        if latents_kind == "component":
            expected[n] += stats.norm.logpdf(np.delete(z[n], own, axis=0)).sum()
    model = zoo.DEPCAM(num_components=3, num_latents=2, latents=latents_kind)
    with in_precision():
        given = jnp.array(labels), jnp.asarray(loc), jnp.asarray(covariance)
        found = vb._latents_given(*given, model).log_prob(jnp.asarray(z))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_parameters_are_told_as_points_without_uncertainty(table):
    """Intervals of means were announced where no mean has one; shares of rows have one, by the labels' q."""
    family = Gaussian(noise_variance=None)
    tree = fit(zoo.DEPCAM(family=family, **SIZES), table, method="vb", max_iterations=500, num_samples=20)
    told = " ".join(profile_text(tree).split())
    assert "The parameters are points, without uncertainty." in told and "The other intervals" not in told
    x = np.random.default_rng(0).normal(size=(60, 3)) + np.repeat([[0.0], [9.0]], 30, axis=0)
    sure = fit(zoo.DEPCAM(family=family, **SIZES), x, method="vb", max_iterations=30, num_samples=20)
    assert "In brackets" not in profile_text(sure)
    assert "one estimate, without uncertainty" in convergence_judgements(tree)[0].reason
