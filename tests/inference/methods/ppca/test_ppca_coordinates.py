"""Fits of probabilistic PCA are those of the table about its origin and in its scale, whatever the method."""

import numpy as np
import pytest

import inference
import zoo
from inference import fit
from inference.coordinates import Return
from inference.methods.ppca import vb
from tests.support.ppca_cases import projected_rows, with_holes
from zoo.coordinates import Unit

SCALES, PLACES = np.array([1e-4, 1e-2, 1.0, 1e3, 1e6]), np.array([1e-3, 0.0, -7.0, 2e3, 5e7])

pytestmark = pytest.mark.filterwarnings("ignore:.*has not converged")


@pytest.fixture(scope="module")
def table():
    """60 rows whose columns have mean 0 and deviation 1."""
    x = projected_rows()
    return (x - x.mean(0)) / x.std(0)


def test_nuts_of_factor_analysis_takes_the_steps_of_the_standardised_table(table):
    """Columns from 1e-4 to 1e6; steps and leapfrogs are equal, draws are those in other coordinates."""
    settings = {"num_warmup": 20, "num_samples": 10, "num_chains": 1, "max_tree_depth": 6}
    model = zoo.PPCA(num_latents=2, noise="diagonal")
    trees = [fit(model, x, method="nuts", **settings) for x in (table, table * SCALES + PLACES)]
    for name in ("step_size", "n_steps", "diverging"):
        first, second = (tree["sample_stats"][name].values for tree in trees)
        np.testing.assert_allclose(second, first, rtol=1e-4)
    first, second = (tree["posterior"] for tree in trees)
    np.testing.assert_allclose(second["loadings"] / SCALES[:, None], first["loadings"], atol=1e-4)
    np.testing.assert_allclose((second["loc"] - PLACES) / SCALES, first["loc"], atol=1e-4)
    np.testing.assert_allclose(second["noise_variance"] / SCALES**2, first["noise_variance"], rtol=1e-4)
    lost = 60 * np.log(SCALES).sum()
    first, second = (tree["sample_stats"]["lp"].values for tree in trees)
    np.testing.assert_allclose(second, first - lost, rtol=1e-5)


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("closed_form", {}),
        ("em", {"noise": "diagonal"}),
        pytest.param("em", {"loading_prior": "ard"}, marks=pytest.mark.slow),
        pytest.param("vb", {"loading_prior": "ard", "standardize": True}, marks=pytest.mark.slow),
    ],
)
def test_single_precision_sees_rows_a_million_deviations_away(table, method, fields):
    x = (table if method == "closed_form" else with_holes(table)) + 1e6
    settings = {} if method == "closed_form" else {"max_iterations": 40, "tolerance": 0.0}
    trees = [
        fit(zoo.PPCA(num_latents=2, **fields), x, method=method, dtype=dtype, **settings)
        for dtype in ("float64", "float32")
    ]
    double, single = (inference.log_density(tree, x).to_numpy() for tree in trees)
    np.testing.assert_allclose(single, double, rtol=1e-4, atol=1e-3)
    centres = [tree["posterior"]["loc"].values.mean((0, 1)) - 1e6 for tree in trees]
    if method != "vb":  # whose draws are not of one path
        np.testing.assert_allclose(centres[1], centres[0], atol=1e-3)


def q_of(x, unit, prior, **fields):
    tree = fit(
        zoo.PPCA(num_latents=2, loading_prior=prior, **fields),
        x * unit + 3.0,
        method="vb",
        max_iterations=10,
        tolerance=0.0,
        num_samples=2,
    )
    return {str(name): value.values for name, value in tree["variational"].data_vars.items()}


POWERS = {"loadings_mean": 1, "loadings_covariance": 2, "loadings_loc_covariance": 2, "loc_mean": 1}
POWERS |= {"loc_variance": 2, "noise_precision_rate": 2, "loading_precision_rate": 2}


@pytest.mark.parametrize("noise", ["isotropic", "diagonal"])
def test_every_moment_of_q_has_the_power_of_its_unit(table, noise, monkeypatch):
    """By hand, of a table 50 times as large about 3; a planted power, location or axis is seen."""
    x = with_holes(table)
    first = q_of(x, 1.0, "ard", noise=noise)

    def away():
        second = q_of(x, 50.0, "ard", noise=noise)
        found = []
        for name, value in second.items():
            wanted = first[name] * 50.0 ** POWERS.get(name, 0)
            if name == "loc_mean":
                wanted = (first[name] - 3.0) * 50.0 + 3.0
            found += [] if np.allclose(value, wanted, rtol=1e-8, atol=1e-8) else [name]
        return found

    assert away() == []
    right = vb.METHOD.units
    for name, wrong in (
        ("loadings_covariance", Unit(1, (-3,))),
        ("loc_mean", Unit(1, (-1,))),
        ("noise_precision_rate", Unit(-2)),
    ):
        monkeypatch.setattr(Return, "changed", _with(right, name, wrong))
        assert away() == [name]


def _with(right, name, wrong):
    def changed(self, values, turn):
        model = self.request.model
        units = {**right(model), **model.units, name: wrong}
        return {name: turn(value, units[name]) if name in units else value for name, value in values.items()}

    return changed


def test_the_units_of_q_are_those_of_its_moments():
    """A table of units has an entry for each moment with one, and the axis over columns is the right one."""
    for noise in ("isotropic", "diagonal"):
        model = zoo.PPCA(num_latents=2, loading_prior="ard", noise=noise)
        units = vb.units(model)
        assert {name: own.power for name, own in units.items()} == POWERS
        dims = vb.DIMS | (dict.fromkeys(vb.OF_NOISE, ("feature",)) if noise == "diagonal" else {})
        for name, own in units.items():
            places = [number - len(dims[name]) for number, dim in enumerate(dims[name]) if dim == "feature"]
            assert list(own.axes) == places, name


def test_the_density_of_new_rows_by_q_loses_the_deviations_of_their_cells(table):
    """Against the fit of the table divided by hand; a missing cell loses nothing."""
    settings = {"method": "vb", "max_iterations": 3, "tolerance": 0.0, "num_samples": 2}
    x, new = table * SCALES, table[:4].copy()
    new[1, 0] = np.nan
    own, plain = (
        fit(zoo.PPCA(num_latents=1, loading_prior="gaussian", standardize=is_own), rows, **settings)
        for is_own, rows in ((True, x), (False, table))
    )
    wanted = inference.log_density(plain, new).to_numpy() - (np.isfinite(new) * np.log(SCALES)).sum(axis=1)
    np.testing.assert_allclose(inference.log_density(own, new * SCALES).to_numpy(), wanted, rtol=1e-6)
