"""Cells that change steeply with the latents, whose mean between the nodes of a grid would be lost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import expit

import inference
import zoo
from zoo.answers import answer_of
from zoo.exponential_family import as_family
from zoo.exponential_family.expectations import (
    STEEP,
    Nodes,
    are_steep,
    expected_log_density,
    unit_nodes,
    with_spread,
)

FINE = np.linspace(-9, 9, 100_001)
NORMAL = np.exp(-(FINE**2) / 2) / np.exp(-(FINE**2) / 2).sum()


@pytest.mark.parametrize("num_latents", STEEP)
def test_the_mean_of_a_bit_is_that_of_quadrature_at_any_slope(num_latents):
    """Along an axis and along a diagonal; at the limit by the grid, beyond it by the other nodes."""
    for deviation in (0.5, STEEP[num_latents], 1.01 * STEEP[num_latents], 20.0, 200.0):
        for direction in (np.eye(num_latents)[0], np.full(num_latents, num_latents**-0.5)):
            loadings = deviation * direction[None]
            steep = are_steep(as_family("bernoulli"), loadings, 1.0)
            assert steep == (deviation > STEEP[num_latents])
            points, weights, is_grid = unit_nodes(num_latents, steep)
            assert is_grid is not steep
            for shift in np.linspace(-1.5, 1.5, 13):
                found = weights @ expit(points @ loadings[0] - deviation * shift)
                assert abs(found - NORMAL @ expit(deviation * (FINE - shift))) < 0.0155


def test_the_grid_alone_loses_a_step():
    """The planted fault: the same nodes for all slopes."""
    points, weights, _ = unit_nodes(1)
    worst = max(
        abs(weights @ expit(200.0 * (points[:, 0] - shift)) - NORMAL @ expit(200.0 * (FINE - shift)))
        for shift in np.linspace(-1.5, 1.5, 61)
    )
    assert worst > 0.05


@pytest.mark.cases_by_default(2)
@pytest.mark.parametrize(
    ("deviation", "most"), [(1.0, 1e-5), (3.0, 1e-3), (4.0, 4e-3), (6.0, 0.02), (10.0, 0.042)]
)
def test_uncertain_loadings_are_averaged_over_as_quadrature_does(deviation, most):
    """At 3 and 6 eight nodes were wrong by 0.006 and 0.04, which must fail."""
    nodes = Nodes(jnp.zeros((1, 1)), jnp.ones(1), None)
    wrong = []
    for mean in np.linspace(-8.0, 8.0, 41):
        exact = NORMAL @ expit(mean + deviation * FINE)
        theta, variance = jnp.full((1, 1), mean), jnp.full((1, 1), deviation**2)
        wide, weights, _ = with_spread(theta, variance, nodes)
        density = expected_log_density(jax.nn.log_sigmoid, theta[0], variance[0])
        assert abs(float(weights @ jax.nn.sigmoid(wide[:, 0])) - exact) < most
        assert abs(float(jnp.exp(density[0])) - exact) < most
        points, base = hermegauss(8)
        wrong.append(abs(base / base.sum() @ expit(mean + deviation * points) - exact))
    assert deviation == 1.0 or max(wrong) > 2 * most


def test_cells_without_a_bound_and_gaussian_ones_keep_the_grid():
    steep = np.full((4, 1), 50.0)
    assert are_steep(as_family("bernoulli"), steep, 1.0) and are_steep(
        as_family("bernoulli"), steep / 10, 9.0
    )
    assert not are_steep(as_family("poisson"), steep, 1.0)
    assert not are_steep(as_family("gaussian"), steep, 1.0)
    assert not are_steep(as_family("bernoulli"), np.tile(steep, 5), 1.0)  # five latents have no grid
    draws = np.stack([steep / 50, steep / 50, steep])
    assert not are_steep(as_family("bernoulli"), draws, 1.0)  # one draw of three


@pytest.mark.slow
def test_a_prediction_sees_a_step_that_a_fit_has_found():
    """MAP under weak priors takes a column that is the sign of the latent for a step; by quadrature."""
    rng = np.random.default_rng(0)
    u = rng.normal(size=60)
    x = (rng.random((60, 4)) < expit(1.5 * u[:, None])).astype(float)
    x = np.column_stack([x, u > 0.3])
    tree = inference.fit(zoo.EPCA(num_latents=1, loading_variance=1e5), x, method="map", max_iterations=200)
    point = {name: tree["variational"][name].to_numpy() for name in ("loadings", "loc")}
    gap = x[:8].copy()
    gap[:, 4] = np.nan
    deviation = 1e5**0.25  # of the latents: both variances become the root of their product
    theta = deviation * FINE[:, None] * point["loadings"][:, 0] + point["loc"]
    seen = -np.logaddexp(0, -theta[:, :4]) @ gap[:, :4].T - np.logaddexp(0, theta[:, :4]) @ (1 - gap[:, :4]).T
    posterior = NORMAL[:, None] * np.exp(seen - seen.max(axis=0))
    exact = expit(theta[:, 4]) @ posterior / posterior.sum(axis=0)
    assert deviation * np.abs(point["loadings"][4, 0]) > 10 * STEEP[1]
    found = inference.predict(tree, gap).to_numpy()[:, 4]
    np.testing.assert_allclose(found, exact, atol=0.005)
    assert answer_of(inference.model_of(tree), "resolving", point).has_steep_cells


def test_typical_cells_of_a_cluster_see_steps_too():
    """A component of DEPCAM whose bits are steps of its latent in many places, by quadrature."""
    offsets = np.linspace(-150.0, 150.0, 61)
    values = {"bases": np.ones((1, 61, 1)), "scales": np.full((1, 1), 100.0), "offsets": offsets[None]}
    model = zoo.DEPCAM(family="bernoulli", num_components=1, num_latents=1, num_features=61)
    model = answer_of(model, "resolving", values)
    assert model.has_steep_cells
    exact = NORMAL @ expit(100.0 * FINE[:, None] + offsets)
    with jax.enable_x64(True):
        models = model, model.replaced(has_steep_cells=False)
        fine, coarse = (np.asarray(answer_of(own, "typical_cells", values)[0].values)[0] for own in models)
    np.testing.assert_allclose(fine, exact, atol=0.002)
    assert np.abs(coarse - exact).max() > 0.05  # planted: the grid for all
