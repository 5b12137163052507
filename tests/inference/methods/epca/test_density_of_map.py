"""MAP maximises the density at the sites' own scale, whatever coordinates it climbs in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density

import zoo
from inference.methods import map as maximum
from inference.precision import in_precision
from zoo.exponential_family import Gaussian


def test_the_objective_of_map_is_the_density_without_a_change_of_coordinates():
    """At a noise variance other than 1, where the Jacobian of its logarithm would count."""
    x = np.random.default_rng(0).normal(size=(9, 4))
    model = zoo.EPCA(Gaussian(None), num_latents=1, num_features=4)
    with in_precision():
        data = (jnp.asarray(x),)
        values = dict(model.starting_point(jax.random.key(0), *data)) | {"noise_variance": jnp.asarray(0.3)}
        point = maximum._state(values, model, data, 3).point
        wanted = log_density(maximum.program, (model, *data), {}, values)[0]
        found = maximum.log_joint(point, model, *data)
    assert float(found) == pytest.approx(float(wanted), rel=1e-10)
