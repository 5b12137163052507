"""Natural parameters by their factors: large tables in blocks give what the whole gives, derivatives too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import zoo.exponential_family.natural_params
from inference.precision import in_precision
from zoo.exponential_family import Bernoulli, Binomial, Poisson
from zoo.exponential_family.cells import FamilyCells
from zoo.exponential_family.natural_params import LowRank


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("derivative", [jax.grad, jax.hessian])
def test_blocks_change_nothing(derivative, monkeypatch):
    """23 rows in blocks of 5 and a rest, a hidden cell among them: values, gradients and Hessians."""
    rng = np.random.default_rng(0)
    x = (rng.uniform(size=(23, 4)) < 0.5).astype(float)
    x[7, 2] = np.nan
    with in_precision():
        theta = LowRank(*(jnp.asarray(rng.normal(size=shape)) for shape in ((23, 2), (4, 2), 4)))

        def total(theta):
            return jnp.sum(FamilyCells(Bernoulli(), theta).log_prob(jnp.asarray(x)) ** 2)

        whole = total(theta), jax.jit(derivative(total))(theta)
        monkeypatch.setattr(zoo.exponential_family.natural_params, "BLOCK_CELLS", 20)
        monkeypatch.setattr(zoo.exponential_family.natural_params, "LARGE_TABLE", 50)
        blocks = total(theta), jax.jit(derivative(total))(theta)
        dense = total(theta.whole())
    np.testing.assert_allclose(whole[0], dense, rtol=1e-14)
    for one, other in zip(jax.tree.leaves(blocks), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_rows_that_count_alike_and_lanes_that_do_not(monkeypatch):
    """A total's gradient is had with its value, another pass is made where weights differ, lane by lane.

    Guards against a second pass that is left out (the rows' weights are then taken for the first one's).
    """
    rng = np.random.default_rng(1)
    x = rng.integers(0, 4, size=(23, 9)).astype(float)
    x[3, 1] = np.nan
    with in_precision():
        lanes = LowRank(*(jnp.asarray(rng.normal(size=shape)) for shape in ((2, 23, 2), (2, 9, 2), (2, 9))))
        weights = jnp.stack([jnp.full(23, 3.0), jnp.arange(23.0)])

        def gradient(family, theta, weights):
            def total(at):
                return weights @ FamilyCells(family, at).log_prob(jnp.asarray(x))

            return jax.value_and_grad(total)(theta)

        for family in (Poisson(), Binomial(3)):
            of_lanes = jax.vmap(gradient, (None, 0, 0))
            whole = of_lanes(family, lanes, weights)
            with monkeypatch.context() as patch:
                patch.setattr(zoo.exponential_family.natural_params, "BLOCK_CELLS", 45)
                patch.setattr(zoo.exponential_family.natural_params, "LARGE_TABLE", 50)
                blocks = of_lanes(family, lanes, weights)
            for one, other in zip(jax.tree.leaves(blocks), jax.tree.leaves(whole), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)


def test_the_written_derivative_is_that_of_the_density():
    """At zero too, where the two sides of |theta| meet: gradient and curvature of a Bernoulli cell."""
    with in_precision():
        cells = jnp.array([[1.0, 0.0, np.nan]])
        for theta in (-30.0, -1.0, 0.0, 0.5, 40.0):
            at = jnp.full((1, 3), theta)
            gradient = jax.jit(jax.grad(lambda t: FamilyCells(Bernoulli(), t).log_prob(cells)[0]))(at)[0]
            curvature = jax.jit(jax.hessian(lambda t: FamilyCells(Bernoulli(), t).log_prob(cells)[0]))(at)[
                0, :, 0
            ]
            p = 1 / (1 + np.exp(-theta))
            np.testing.assert_allclose(gradient, [1 - p, -p, 0], rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(np.diag(curvature), [-p * (1 - p)] * 2 + [0], rtol=1e-12, atol=1e-14)
