"""VB of mixtures of Poisson PCAs: the bound against the program and quadrature, its gradients, its steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import inference
import zoo
from inference import fit
from inference.calibration import elbo_check
from inference.methods.depcam.em import evaluate, rescale, update_latents
from inference.methods.depcam.rows import best_scaling, prior_latents, scaled_bound
from inference.precision import in_precision
from zoo.answers import start_of
from zoo.exponential_family.local_pca import components_of

SIZES = dict(num_components=2, num_latents=1)
ZERO = np.zeros((1, 1))


@pytest.fixture(scope="module")
def counts():
    """Two groups of twelve rows; a row's rates move together along one direction; a cell missing."""
    rng = np.random.default_rng(5)
    centre = np.repeat([[2.0, 2.0, 0.0, 0.0], [0.0, 0.0, 1.5, 1.5]], 12, axis=0)
    direction = np.repeat([[0.8, -0.8, 0.0, 0.0], [0.0, 0.0, 0.8, 0.8]], 12, axis=0)
    x = rng.poisson(np.exp(centre + direction * rng.normal(size=(24, 1)))).astype(float)
    x[3, 2] = np.nan
    return x


def at_random(model, x, seed=0):
    rng = np.random.default_rng(seed)
    values = jax.jit(lambda *given: start_of(model, *given))(jax.random.key(seed), jnp.asarray(x))
    values["bases"] = values.pop("carriers")
    values["scales"] = jnp.asarray(rng.normal(size=values["scales"].shape))
    values.pop("latents", None)
    return values | prior_latents(model, len(x))


@pytest.fixture(scope="module")
def climbed(counts):
    """Values, objectives and row bounds over 40 updates of q from its prior; all else at random."""
    model = zoo.DEPCAM.from_data(counts, family="poisson", **SIZES)
    with in_precision():
        x = jnp.asarray(counts)
        update, judge = jax.jit(update_latents), jax.jit(evaluate)
        values, found = at_random(model, counts), []
        for _ in range(40):
            now = judge(values, model, x, ZERO)
            found.append((float(now.objective), np.asarray(now.log_rows)))
            values, _ = update(values, model, x, ZERO)
        return model, values, *zip(*found, strict=True)


def test_steps_of_q_climb_and_the_bound_lies_close_below_the_integral(counts, climbed):
    """Against the trapezoidal rule over the one latent: below it, within 0.1 nats a row at the end."""
    model, values, objectives, bounds = climbed
    assert np.diff(objectives).min() > -1e-10 * abs(objectives[0])
    grid = np.linspace(-9.0, 9.0, 4001)
    with in_precision():
        local = jax.tree.map(np.asarray, components_of(model, values))
    theta = grid[:, None, None] * local.loadings[None, :, :, 0] + local.offsets
    cells = stats.poisson.logpmf(np.nan_to_num(counts)[:, None, None], np.exp(theta))
    rows = np.where(np.isnan(counts)[:, None, None], 0.0, cells).sum(-1) + stats.norm.logpdf(grid)[:, None]
    exact = np.logaddexp.reduce(rows + np.log(grid[1] - grid[0]), axis=1)
    assert all((bound <= exact + 1e-9).all() for bound in bounds)
    assert (exact - bounds[-1]).max() < 0.1 < (exact - bounds[0]).max()


def test_q_ends_at_its_fixed_point(counts, climbed):
    """V^-1 = I + W' diag(rate) W and W'(x - rate) = m."""
    model, values, *_ = climbed
    with in_precision():
        local = jax.tree.map(np.asarray, components_of(model, values))
    mean, covariance = np.asarray(values["latents_loc"]), np.asarray(values["latents_covariance"])
    w, b = local.loadings[..., 0], local.offsets
    rate = np.exp(b + w * mean + 0.5 * w**2 * covariance[..., 0])
    rate = np.where(np.isnan(counts)[:, None], 0.0, rate)
    x = np.where(np.isnan(counts), 0.0, counts)[:, None]
    np.testing.assert_allclose(1 / covariance[..., 0, 0], 1 + (w**2 * rate).sum(-1), rtol=1e-6)
    np.testing.assert_allclose((w * (x - rate)).sum(-1), mean[..., 0], atol=1e-6)


def test_gradients_by_hand_are_those_of_autodiff(counts):
    fields = dict(num_components=2, num_latents=2, sparsity=0.0, repulsion=0.0)
    model = zoo.DEPCAM.from_data(counts, family="poisson", **fields)
    with in_precision():
        x, values = jnp.asarray(counts), at_random(model, counts)
        rng = np.random.default_rng(1)
        root = rng.normal(size=(24, 2, 2, 2))
        values["latents_loc"] = jnp.asarray(rng.normal(size=(24, 2, 2)))
        values["latents_covariance"] = jnp.asarray(root @ np.swapaxes(root, -1, -2) / 8 + 0.1 * np.eye(2))

        @jax.jit
        def by_hand_and_by_autodiff(values):
            sums = evaluate(values, model, x, ZERO).sums
            own = {
                "offsets": sums.offsets - values["offsets"] / 100.0,
                "scales": jnp.einsum("kfi,kfi->ki", values["bases"], sums.loadings),
                "bases": sums.loadings * values["scales"][:, None, :],
            }
            changed = {name: values[name] for name in own}
            return own, jax.grad(lambda v: evaluate(values | v, model, x, ZERO).objective)(changed)

        own, auto = by_hand_and_by_autodiff(values)
        for name in own:
            np.testing.assert_allclose(own[name], auto[name], rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("power", [3, 4])
def test_best_scaling_is_the_root(power):
    rng = np.random.default_rng(0)
    count, squares, cost = rng.uniform(0.1, 20.0, size=(3, 50))
    cost[0] = 0.0
    with in_precision():
        c = np.asarray(best_scaling(*map(jnp.asarray, (count, squares, cost)), power))
        nothing = np.asarray(best_scaling(jnp.zeros(2), jnp.zeros(2), jnp.ones(2), power))
    np.testing.assert_allclose(cost * c**power + count * c**2, squares, rtol=1e-10)
    np.testing.assert_array_equal(nothing, 1.0)


def test_rescaling_is_free_and_never_falls(counts, climbed):
    """The objective it says is the one of the values it gives, and it gains at values off the optimum."""
    model, values, *_ = climbed
    with in_precision():
        x = jnp.asarray(counts)
        now = evaluate(values, model, x, ZERO)
        new, objective = rescale(values, model, now, ZERO)
        again = evaluate(new, model, x, ZERO).objective
        gain, rounding = float(objective - now.objective), abs(float(objective))
    np.testing.assert_allclose(again, objective, rtol=1e-12)
    assert gain > 1e-8 * rounding


def test_rescaled_latents_diverge_from_their_prior_by_as_much_less():
    """Normal q with two latents: the gain is the fall of KL(q || N(0, I)), here by SciPy's entropies."""
    rng = np.random.default_rng(2)
    root, c = rng.normal(size=(3, 2, 2, 2)), rng.uniform(0.5, 2.0, size=(2, 2))
    q = {
        "latents_loc": rng.normal(size=(3, 2, 2)),
        "latents_covariance": root @ np.swapaxes(root, -1, -2) + 0.2 * np.eye(2),
    }

    def divergence(q):
        found = np.empty((3, 2))
        for place in np.ndindex(3, 2):
            mean, covariance = (np.asarray(q[name])[place] for name in ("latents_loc", "latents_covariance"))
            cross = np.log(2 * np.pi) + 0.5 * (mean @ mean + np.trace(covariance))
            found[place] = cross - stats.multivariate_normal(mean, covariance).entropy()
        return found

    with in_precision():
        gain, new = scaled_bound(jax.tree.map(jnp.asarray, q), jnp.asarray(c))
    np.testing.assert_allclose(new["latents_loc"], q["latents_loc"] / c, rtol=1e-12)
    np.testing.assert_allclose(gain, divergence(q) - divergence(new), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("latents", ["component", "shared"])
def test_objective_is_the_elbo_of_its_guide_and_never_falls(counts, latents, tmp_path):
    """Up to the carriers' density, four standard errors (6e-5), a shifted bound must fail; zero sparsity."""
    model = zoo.DEPCAM.from_data(counts, family="poisson", latents=latents, sparsity=0.0, **SIZES)
    tree = fit(model, counts, method="vb", num_samples=20, num_restarts=2, max_iterations=3000)
    objective = tree["trace"]["objective_by_restart"].to_numpy()
    assert np.nanmin(np.diff(objective, axis=0)) > -1e-8 * np.nanmax(np.abs(objective))
    assert tree.attrs["converged"] == 1 and np.abs(tree["variational"]["scales"]).max() < 20
    carriers = stats.norm.logpdf(tree["variational"]["bases"]).sum()
    given = dict(key=jax.random.key(1), num_particles=2000)
    bound = float(np.nanmax(objective)) + carriers
    verdict = elbo_check(model, inference.guide(tree), bound, (counts,), **given)
    assert verdict.passed, verdict
    assert not elbo_check(model, inference.guide(tree), bound + 1.0, (counts,), **given).passed
    again = fit(model, counts, method="vb", num_samples=2, init=tree, max_iterations=3, tolerance=0)
    assert float(again["trace"]["objective"].min()) > np.nanmax(objective) - 1e-8 * abs(bound)
    inference.save(tree, tmp_path / "poisson.nc")
    back = inference.load(tmp_path / "poisson.nc")
    shares = inference.transform(back, counts)
    np.testing.assert_allclose(shares.sum("component"), 1.0)  # whose rows they are, a density does not say
    assert inference.predict(back, counts, what="cells").shape == counts.shape
