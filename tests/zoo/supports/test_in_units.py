"""Coordinates in the units of the data: their Jacobian, and the path of a mixture's sampler in any unit."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions.transforms import biject_to
from numpyro.infer.util import potential_energy

import zoo
from inference.methods.nuts_hmc import program
from inference.precision import in_precision
from zoo.conjugate import (
    ExponentialGamma,
    GammaKnownShape,
    GaussianKnownCovariance,
    GaussianKnownMean,
    GaussianWishart,
    NormalGamma,
    Product,
    SharedGaussianWishart,
    SphericalNormalGamma,
)
from zoo.supports.in_units import InUnits, PositiveDefiniteInUnits

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 4)) @ RNG.normal(size=(4, 4)) + [3.0, 0.0, -2.0, 1.0]
UNITS = np.array([1e-3, 1.0, 10.0, 1e3])
POSITIVE = np.exp(X / 4)


def _hyperpriors(x):
    """The default prior with a prior of its locations and of its scale matrix, both read off the rows."""
    covariance, num_features = np.cov(x, rowvar=False), x.shape[1]
    return GaussianWishart(
        loc=dist.MultivariateNormal(x.mean(0), covariance),
        mean_precision=0.1,
        scale_matrix=dist.Wishart(num_features + 2.0, scale_matrix=covariance / (num_features + 2)),
        degrees_of_freedom=num_features + 1.0,
        center=x.mean(0),
    )


FAMILIES = {
    "GaussianWishart": (GaussianWishart.from_data, X, True),
    "with hyperpriors": (_hyperpriors, X, True),
    "SharedGaussianWishart": (SharedGaussianWishart.from_data, X, True),
    "GaussianKnownCovariance": (
        lambda x: GaussianKnownCovariance.from_data(x, covariance=np.cov(x, rowvar=False) / 9),
        X,
        True,
    ),
    "GaussianKnownMean": (GaussianKnownMean.from_data, X, True),
    "NormalGamma": (NormalGamma.from_data, X, True),
    "SphericalNormalGamma": (SphericalNormalGamma.from_data, X, False),
    "ExponentialGamma": (ExponentialGamma.from_data, POSITIVE, True),
    "GammaKnownShape": (lambda x: GammaKnownShape.from_data(x, known_shape=2.0), POSITIVE, True),
    "Product": (
        lambda x: Product.from_data(x, families=(GaussianWishart, NormalGamma), columns=((0, 1), (2, 3))),
        X,
        True,
    ),
}


@jax.jit
def _potential(model, x, point):
    return potential_energy(program, (model, x), {}, point)


def _points(model, x):
    """Three points of the unconstrained space."""
    sites = handlers.trace(handlers.seed(model, 0)).get_trace(x)
    latent = {n: s for n, s in sites.items() if s["type"] == "sample" and not s["is_observed"]}
    shapes = {n: biject_to(s["fn"].support).inv(s["value"]).shape for n, s in latent.items()}
    rng = np.random.default_rng(1)
    return [{name: rng.normal(size=shape) for name, shape in shapes.items()} for _ in range(3)]


#: A precision by column, one for all, cells without an origin; the others are variants of these.
EVERY_RUN = ("NormalGamma", "SphericalNormalGamma", "ExponentialGamma")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in EVERY_RUN else pytest.mark.slow) for n in FAMILIES]
)
def test_the_path_of_a_mixture_does_not_depend_on_units(name):
    components, x, by_column = FAMILIES[name]
    with in_precision("float64"):
        tables = [x, 1e3 * x, UNITS * x if by_column else 1e-3 * x]
        if components(x).cell_units == "location_scale":
            tables.append(x + 1e3)
        models = [zoo.Mixture(components=components(own), num_components=3) for own in tables]
        points = _points(models[0], x)
        moves = [
            np.diff([_potential(model, own, point) for point in points])
            for model, own in zip(models, tables, strict=True)
        ]
    for other in moves[1:]:
        np.testing.assert_allclose(other, moves[0], rtol=1e-7)


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
