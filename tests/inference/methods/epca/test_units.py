"""Exponential, gamma and negative binomial cells in any unit: starts inside the domain, equal fits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import zoo
from inference import fit, log_density, predict
from inference.precision import in_precision
from tests.support.log_joint import log_joint
from zoo.answers import start_of
from zoo.exponential_family import GammaWithShape, NegativeBinomial

X = np.random.default_rng(0).exponential(1.0, (40, 6))
MEANS = [1e-6, 1.0, 100.0, 1000.0, 1e6]
ROWS, COLUMNS, K = 40, 6, 2


def trivial(model, x):
    """The program's log density at the column means, loadings and latents of zero."""
    with in_precision():
        given = jnp.asarray(x)
        values = start_of(model, jax.random.key(0), given)
        values |= {name: 0.0 * values[name] for name in ("loadings", "latents")}
        return float(log_joint(model, values, given))


def fitted(family, x, **options):
    model = zoo.EPCA.from_data(x, family=family, num_latents=K)
    tree = fit(model, x, method="map", max_iterations=2000, **options)
    assert tree.attrs["converged"]
    assert float(tree["trace"]["objective"].max()) > trivial(model, x)
    return tree


@pytest.mark.slow
@pytest.mark.parametrize("family", ["exponential", pytest.param(GammaWithShape(2.0), marks=pytest.mark.slow)])
def test_the_unit_of_the_data_changes_nothing(family):
    """Objectives differ by the Jacobians: of cells, and of loadings and means, which have the inverse unit.

    Steps: the same but for the last ones, where rounding decides. Planted: with a unit of one, as it was, the
    fit of the table of mean 1000 differs or fails (next test).
    """
    trees = {mean: fitted(family, mean * X) for mean in MEANS}
    one = trees[1.0]
    new = np.where(np.arange(COLUMNS) < 3, X[:4], np.nan)
    for mean, tree in trees.items():
        jacobian = -(ROWS * COLUMNS - COLUMNS * (K + 1)) * np.log(mean)
        gap = float(tree["trace"]["objective"].max()) - jacobian - float(one["trace"]["objective"].max())
        assert abs(gap) < 1e-4
        assert abs(int(tree.attrs["num_iterations"]) - int(one.attrs["num_iterations"])) <= 5
        np.testing.assert_allclose(predict(tree, mean * new) / mean, predict(one, new), rtol=1e-2)
        np.testing.assert_allclose(
            log_density(tree, mean * X[:4]) + COLUMNS * np.log(mean), log_density(one, X[:4]), atol=1e-2
        )


@pytest.mark.slow
def test_columns_may_have_units_of_their_own():
    units = 10.0 ** np.arange(-3, 3)
    tree, one = fitted("exponential", X * units), fitted("exponential", X)
    gap = float(tree["trace"]["objective"].max() - one["trace"]["objective"].max())
    assert abs(gap + (ROWS - K - 1) * np.log(units).sum()) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("mean", [1.0, 100.0, 1000.0, 1e6])
def test_negative_binomial_counts_of_any_size_beat_the_trivial_point(mean):
    counts = np.random.default_rng(1).negative_binomial(2, 2 / (2 + mean), (ROWS, COLUMNS)) * 1.0
    fitted(NegativeBinomial(2.0), counts)


def test_counts_of_a_million_are_fitted_to_their_maximum_by_default():
    """Of three tables of noise; one number as scale of the first direction stops .02 to .1 nats short."""
    for seed in range(3):
        counts = np.random.default_rng(seed).poisson(1e6, (12, 5))
        model = zoo.EPCA(family="poisson", num_latents=1)
        stops = fit(model, counts, method="map", num_restarts=1)
        runs_on = fit(model, counts, method="map", num_restarts=1, tolerance=0.0, max_iterations=400)
        stops, runs_on = (float(tree["trace"]["objective"].max()) for tree in (stops, runs_on))
        assert abs(runs_on - stops) < 2e-3


@pytest.mark.slow
@pytest.mark.parametrize("mean", [1000.0, 1e6])
def test_paired_views_of_any_size(mean):
    model = zoo.Paired.ecca(("exponential", "poisson"), 1, (1, 1))
    found = [
        float(
            fit(model, s * X, np.floor(3 * X), method="map", max_iterations=2000)["trace"]["objective"].max()
        )
        for s in (1.0, mean)
    ]
    assert abs(found[1] - found[0] + (ROWS * COLUMNS - COLUMNS * 3) * np.log(mean)) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("method", ["em", "map"])
def test_repulsive_components_start_inside_the_domain(method):
    """Their priors are in natural parameters' units; the fits of large means are those with flat priors."""
    model = zoo.DEPCAM(family="exponential", num_components=2, num_latents=1)
    found = []
    for mean in (1e3, 1e6):
        tree = fit(model, mean * X, method=method, max_iterations=2000)
        assert tree.attrs["converged"]
        found.append(float(tree["trace"]["objective"].max()) + X.size * np.log(mean))
    assert abs(found[1] - found[0]) < 2.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:epca by nuts has not converged")
def test_nuts_moves_on_a_table_of_any_size():
    """Times 1e5: acceptance and spread of the means as on the table itself.

    That many trajectories diverge at the end of the domain, and the chains are short of draws, is said by the
    warning in either unit.
    """
    model = zoo.EPCA(family="exponential", num_latents=1)
    for mean in (1.0, 1e5):
        tree = fit(model, mean * X[:20, :4], method="nuts", num_chains=2, num_warmup=200, num_samples=200)
        assert (tree["sample_stats"]["acceptance_rate"].mean("draw") > 0.5).all()
        spread = mean * tree["posterior"]["loc"].std("draw").to_numpy()
        assert (spread > 0.05).all() and (spread < 2.0).all()
        assert (tree["posterior"]["loc"] < 5 / mean).all()


def test_svi_says_that_it_has_no_bound():
    with pytest.raises(ValueError, match="svi has no bound for exponential"):
        fit(zoo.EPCA(family="exponential", num_latents=1), X, method="svi")


@pytest.mark.slow
def test_zeros_are_exponential_cells():
    """Rounded durations: the log density at zero is the log of the rate."""
    model = zoo.EPCA.from_data(X, family="exponential", num_latents=1)
    with in_precision():
        cells = model.family.log_density(jnp.asarray([-0.5, -2.0]), jnp.zeros(2))
    np.testing.assert_allclose(cells, np.log([0.5, 2.0]))
    rounded = np.floor(X)
    rounded[:, 0] = 0.0
    assert np.isfinite(fitted("exponential", rounded)["trace"]["objective"]).all()
    with pytest.raises(ValueError, match="positive numbers"):
        zoo.EPCA(family=GammaWithShape(2.0)).family.check(rounded)


def test_the_unit_is_positive():
    with pytest.raises(ValueError, match="natural_unit must be a positive number"):
        zoo.EPCA(family="exponential", natural_unit=-1.0)
    words = r"natural_unit must have one number or one for each column or view; got shape \(2, 2\)"
    with pytest.raises(ValueError, match=words):
        zoo.EPCA(natural_unit=np.ones((2, 2)))


def test_a_view_without_columns_is_named():
    with pytest.raises(ValueError, match="y_1 has no columns"):
        fit(zoo.Paired.ecca(("poisson", "poisson"), 1, (0, 0)), np.floor(3 * X), X[:, :0], method="map")
