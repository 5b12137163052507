"""Fits of cells of unknown noise follow the data's origin and unit in every moment of q, and in scores."""

import numpy as np
import pytest
from numpyro import handlers

import inference
import zoo
from inference import fit
from inference.coordinates import Return
from inference.methods.epca import vb
from inference.precision import in_precision
from tests.support.ppca_cases import projected_rows, with_holes
from zoo.coordinates import Unit
from zoo.exponential_family import Gaussian

pytestmark = pytest.mark.filterwarnings("ignore:.*has not converged")

POWERS = {"loadings_mean": 1, "loadings_covariance": 2, "loadings_loc_covariance": 2, "loc_mean": 1}
POWERS |= {"loc_variance": 2, "noise_variance_rate": 2}


def fitted(x):
    model = zoo.EPCA(family=Gaussian(noise_variance=None), num_latents=2)
    return fit(model, x, method="vb", max_iterations=10, tolerance=0.0, num_samples=2)


def q_of(tree):
    return {str(name): value.values for name, value in tree["variational"].data_vars.items()}


def test_every_moment_of_q_has_the_power_of_its_unit(monkeypatch):
    """By hand, of a table 50 times as large about 3; a planted power, location or axis is seen."""
    x = with_holes(projected_rows())
    first = q_of(fitted(x))

    def away():
        found = []
        for name, value in q_of(fitted(50.0 * x + 3.0)).items():
            wanted = first[name] * 50.0 ** POWERS.get(name, 0) + (3.0 if name == "loc_mean" else 0.0)
            found += [] if np.allclose(value, wanted, rtol=1e-8, atol=1e-8) else [name]
        return found

    assert away() == []
    right = vb.METHOD.units
    for name, wrong in (
        ("loadings_covariance", Unit(1, (-3,))),
        ("loc_mean", Unit(1, (-1,))),
        ("noise_variance_rate", Unit(-2)),
    ):

        def changed(self, values, turn, name=name, wrong=wrong):
            model = self.request.model
            units = {**right(model), **model.units, name: wrong}
            return {n: turn(value, units[n]) if n in units else value for n, value in values.items()}

        monkeypatch.setattr(Return, "changed", changed)
        assert away() == [name]


def test_scores_have_no_unit_and_those_in_an_orthonormal_basis_that_of_the_cells():
    x = with_holes(projected_rows())
    tables = x, 50.0 * x + 3.0
    trees = [fitted(own) for own in tables]
    for kind, factor in (("latent", 1.0), ("orthonormal", 50.0)):
        pairs = zip(trees, tables, strict=True)
        first, second = (inference.transform(*pair, scores=kind).to_numpy() for pair in pairs)
        np.testing.assert_allclose(second, factor * first, rtol=1e-6, atol=1e-8)


def test_the_guide_of_svi_is_in_the_coordinates_of_the_data():
    """Its few steps leave it about the start, which is near the origin in the fit's own coordinates."""
    x = projected_rows() + 1e3
    tree = fit(
        zoo.EPCA(family=Gaussian(noise_variance=None), num_latents=2), x, method="svi", max_iterations=5
    )
    with in_precision():
        sites = handlers.trace(handlers.seed(inference.guide(tree), 0)).get_trace(x)
    away = (np.asarray(sites["loc"]["value"]) - x.mean(axis=0)) / x.std()
    assert np.abs(away).max() < 10.0


def test_the_units_of_q_are_those_of_its_moments():
    """A table of units has an entry for each moment with one, and the axis over columns is the right one."""
    model = zoo.EPCA(family=Gaussian(noise_variance=None), unit=2.0, num_features=3)
    units = vb.units(model)
    assert {name: own.power for name, own in units.items()} == POWERS
    for name, own in units.items():
        dims = vb.OF_VIEWS[name]
        assert list(own.axes) == [n - len(dims) for n, dim in enumerate(dims) if dim == "feature"], name
    assert vb.units(zoo.EPCA(family="gaussian")) == {}
