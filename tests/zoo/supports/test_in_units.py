"""Coordinates in the units of the data: their Jacobian."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions.transforms import biject_to

from zoo.supports.in_units import InUnits, PositiveDefiniteInUnits

RNG = np.random.default_rng(0)


def test_coordinates_of_matrices_have_the_jacobian_of_their_entries():
    scale = jnp.array([1e-2, 1.0, 30.0])
    own = InUnits(dist.Wishart(4.0, scale_matrix=jnp.diag(scale**2)), scale).expand((2,))
    assert isinstance(own.support, PositiveDefiniteInUnits) and own.batch_shape == (2,)
    to_matrix = biject_to(own.support)
    below = np.tril_indices(3)
    u = jnp.asarray(RNG.normal(size=6))
    jacobian = jax.jit(jax.jacobian(lambda u: to_matrix(u)[below]))(u)
    expected = np.linalg.slogdet(np.asarray(jacobian))[1]
    assert float(to_matrix.log_abs_det_jacobian(u, to_matrix(u))) == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(to_matrix.inv(to_matrix(u)), u, rtol=1e-4, atol=1e-5)
    assert own.support(to_matrix(u)).all()
    np.testing.assert_allclose(own.support.feasible_like(jnp.zeros((3, 3))), np.diag(scale**2), rtol=1e-6)
