"""MAP maximises the density at the sites' own scale, whatever coordinates it climbs in."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import zoo
from inference import fit, model_of
from inference.methods import map as maximum
from inference.precision import in_precision
from tests.support.log_joint import log_joint
from zoo.answers import start_of
from zoo.exponential_family import Gaussian


def test_the_objective_of_map_is_the_density_without_a_change_of_coordinates():
    """At a noise variance other than 1, where the Jacobian of its logarithm would count."""
    x = np.random.default_rng(0).normal(size=(9, 4))
    model = zoo.EPCA(Gaussian(None), num_latents=1, num_features=4)
    with in_precision():
        data = (jnp.asarray(x),)
        values = dict(start_of(model, jax.random.key(0), *data)) | {"noise_variance": jnp.asarray(0.3)}
        point = maximum._state(values, model, data, 3).point
        wanted = log_joint(partial(maximum.program, model), values, *data)
        found = maximum.log_joint(point, model, *data)
    assert float(found) == pytest.approx(float(wanted), rel=1e-10)


def test_the_gradient_vanishes_at_the_end_of_map():
    """In every site, precisions of loadings and noise variance at their own scale, relative to their size.

    Planted: at a noise variance that is 5 % larger there is a slope.
    """
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20, 1)) @ rng.normal(size=(1, 4)) + 0.5 * rng.normal(size=(20, 4))
    given = zoo.EPCA(Gaussian(None), num_latents=1, ard=True, ard_concentration=3.0, ard_rate=2.0)
    tree = fit(given, x, method="map", num_restarts=1, max_iterations=2000, tolerance=1e-12)
    model = model_of(tree)
    values = {name: jnp.asarray(own.to_numpy()[0, 0]) for name, own in tree["posterior"].data_vars.items()}
    with in_precision():
        sites = {name: values[name] for name in start_of(model, jax.random.key(0), jnp.asarray(x))}

        @jax.jit
        def slopes(at):
            return jax.grad(lambda at: log_joint(partial(maximum.program, model), at, x))(at)

        def worst(at):
            return {
                name: float(jnp.abs(own).max() * jnp.abs(at[name]).max()) for name, own in slopes(at).items()
            }

        found = worst(sites)
        wrong = worst(sites | {"noise_variance": 1.05 * sites["noise_variance"]})
    assert set(found) == {"latents", "loadings", "loc", "loading_precision", "noise_variance"}
    assert max(found.values()) < 1e-3 < wrong["noise_variance"], (found, wrong)
