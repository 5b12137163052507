"""Fits of mixtures are those of the table about its origin and in its scale, whatever family and method."""

import json

import numpy as np
import pytest

import inference
import zoo
from inference import fit
from inference.coordinates import Return
from inference.extension import extend
from inference.methods.mixture import vb
from zoo.conjugate import (
    BernoulliBeta,
    ExponentialGamma,
    GaussianWishart,
    NormalGamma,
    Product,
    SphericalNormalGamma,
)
from zoo.coordinates import Unit

SCALES, PLACES = np.array([1e-5, 1.0, 1e6]), np.array([2e-3, -4.0, 5e8])

pytestmark = pytest.mark.filterwarnings("ignore:.*has not converged")


@pytest.fixture(scope="module")
def table():
    """Two groups of 20 rows; columns have mean 0 and deviation 1."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(20, 3)), 4.0 + rng.normal(size=(20, 3))])
    return (x - x.mean(axis=0)) / x.std(axis=0)


def test_densities_of_draws_follow_the_components_that_have_rows(table):
    """Two blocks of rows in six components; the others are in neither density, nor is their change of unit.

    A component loses -3 log scales of its precision's and one of its mean's entries.
    """
    trees = [
        fit(
            zoo.Mixture(num_components=6),
            x,
            method="gibbs",
            num_chains=1,
            num_warmup=5,
            num_samples=8,
        )
        for x in (table, table * SCALES + PLACES)
    ]
    first, second = (tree["posterior"] for tree in trees)
    occupied = second["num_occupied"].values
    assert occupied.min() < 6 and occupied.min() < occupied.max()
    np.testing.assert_array_equal(second["assignments"], first["assignments"])
    np.testing.assert_allclose((second["locs"] - PLACES) / SCALES, first["locs"], rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(
        second["covariances"] / np.outer(SCALES, SCALES), first["covariances"], rtol=1e-6
    )
    lost = np.log(SCALES).sum() * (40 - 3 * occupied)
    lp = [tree["sample_stats"]["lp"].values for tree in trees]
    np.testing.assert_allclose(lp[1], lp[0] - lost, rtol=1e-8)
    np.testing.assert_allclose(trees[1]["trace"]["objective"].values[:, 5:], lp[1], rtol=1e-8)
    again = extend(trees[1], "log_prior")["log_prior"]["log_prior"].values
    rows = trees[1]["log_likelihood"]["log_likelihood"].values.sum(axis=-1)
    np.testing.assert_allclose(lp[1] - rows, again, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["collapsed_gibbs", "em"])
def test_an_objective_without_parameters_loses_the_rows_alone(table, method):
    settings = (
        {"num_chains": 1, "num_warmup": 3, "num_samples": 4} if method != "em" else {"max_iterations": 5}
    )
    trees = [
        fit(zoo.Mixture(num_components=3), x, method=method, **settings)
        for x in (table, table * SCALES + PLACES)
    ]
    first, second = (tree["trace"]["objective"].values for tree in trees)
    np.testing.assert_allclose(second, first - 40 * np.log(SCALES).sum(), rtol=1e-8)


@pytest.mark.slow
def test_nuts_takes_the_steps_of_the_standardised_table(table):
    settings = {"num_warmup": 20, "num_samples": 10, "num_chains": 1, "max_tree_depth": 6}
    trees = [
        fit(zoo.Mixture(num_components=2), x, method="nuts", **settings)
        for x in (table, table * SCALES + PLACES)
    ]
    for name in ("step_size", "n_steps", "diverging"):
        first, second = (tree["sample_stats"][name].values for tree in trees)
        np.testing.assert_allclose(second, first, rtol=1e-4)


FAMILIES = {
    "full": lambda x: GaussianWishart.from_data(x),
    "columns": lambda x: NormalGamma.from_data(x),
    "spherical": lambda x: SphericalNormalGamma.from_data(x),
    "positive": lambda x: ExponentialGamma.from_data(x),
    "logarithms": lambda x: Product.from_data(
        x, families=(NormalGamma,), columns=((0, 1, 2),), logs=(0, 1, 2)
    ),
    "joint logarithms": lambda x: Product.from_data(
        x, families=(GaussianWishart,), columns=((0, 1, 2),), logs=(1,)
    ),
    "groups": lambda x: Product(
        (NormalGamma.from_data(x[:, :1]), ExponentialGamma.from_data(x[:, 1:])), ((0,), (1, 2))
    ),
}
#: Power of the scale of each parameter of q, by hand; those of places are shifted.
POWERS = {
    "full": {"loc": 1, "scale_matrix": -2},
    "columns": {"loc": 1, "rate": 2},
    "spherical": {"loc": 1, "rate": 2},
    "positive": {"rate": 1},
    "logarithms": {},
    "joint logarithms": {
        "families_0_loc": np.array([1, 0, 1]),
        "families_0_scale_matrix": np.array([[-2, -1, -2], [-1, 0, -1], [-2, -1, -2]]),
    },
    "groups": {"families_0_loc": 1, "families_0_rate": 2, "families_1_rate": 1},
}
LOGS = {"logarithms": np.ones(3), "joint logarithms": np.array([0.0, 1.0, 0.0])}
SLOW = ("spherical", "logarithms", "groups")


def q_of(name, x):
    model = zoo.Mixture(components=FAMILIES[name](x), num_components=2)
    tree = fit(model, x, method="vb", max_iterations=5, tolerance=0.0, num_restarts=1, num_samples=2)
    return tree, {str(name): value.values for name, value in tree["variational"].data_vars.items()}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in FAMILIES])
def test_every_parameter_of_q_has_the_power_of_its_unit(table, name, monkeypatch):
    """By hand, of a table 50 times as large about 3; a planted power or location is seen."""
    is_placed = name in ("full", "columns", "spherical")
    rows, place = (table, 3.0) if is_placed else (np.exp(table), 0.0)
    (first_tree, first), x = q_of(name, rows), 50.0 * rows + place

    def away():
        tree, second = q_of(name, x)
        found = []
        for own, value in second.items():
            field = own.removeprefix("components_")
            wanted = first[own] * 50.0 ** POWERS[name].get(field, 0)
            wanted = wanted + place if field == "loc" and is_placed else wanted
            wanted = (
                wanted + np.log(50.0) * LOGS[name] if name in LOGS and field == "families_0_loc" else wanted
            )
            found += [] if np.allclose(value, wanted, rtol=1e-8, atol=1e-8) else [own]
        return tree, found

    tree, found = away()
    assert found == []
    wanted = inference.log_density(first_tree, rows).to_numpy() - 3 * np.log(50.0)
    np.testing.assert_allclose(inference.log_density(tree, x).to_numpy(), wanted, rtol=1e-8)
    first_bound, bound = (float(t["trace"]["objective"][-1]) for t in (first_tree, tree))
    assert bound == pytest.approx(first_bound - 3 * len(x) * np.log(50.0), rel=1e-10)
    if name == "full":
        for own, wrong in (("loc", Unit(1, (-1,))), ("scale_matrix", Unit(-2, (-2, -1)))):
            monkeypatch.setattr(Return, "changed", _with(f"components_{own}", wrong))
            assert away()[1] == [f"components_{own}"]


def _with(name, wrong):
    def changed(self, values, turn):
        model = self.request.model
        units = {**vb.METHOD.units(model), **model.units, name: wrong}
        return {name: turn(value, units[name]) if name in units else value for name, value in values.items()}

    return changed


@pytest.mark.slow
def test_what_is_learnt_is_in_the_units_of_the_data(table):
    learn = ("loc", "scale_matrix")
    settings = {"method": "vb", "learn": learn, "num_restarts": 1, "num_samples": 2}
    first, second = (
        fit(zoo.Mixture(num_components=2), x, **settings) for x in (table, table * SCALES + PLACES)
    )
    (one, other) = (inference.model_of(tree).components for tree in (first, second))
    np.testing.assert_allclose((other.loc - PLACES) / SCALES, one.loc, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(other.scale_matrix * np.outer(SCALES, SCALES), one.scale_matrix, rtol=1e-5)
    begun = json.loads(second.attrs["options"])["learnt_from"]
    np.testing.assert_allclose(begun["loc"], (table * SCALES + PLACES).mean(axis=0), rtol=1e-9)


@pytest.mark.slow
def test_columns_that_have_no_unit_stay_in_a_mixed_table(table):
    """Zeros and ones beside a column in its own unit: the density of a row is that of the standard table."""
    bits = (table[:, 1:] > 0).astype(float)
    trees, tables = [], []
    for scale, place in ((1.0, 0.0), (1e6, 5e8)):
        x = np.column_stack([table[:, 0] * scale + place, bits])
        components = Product.from_data(x, families=(NormalGamma, BernoulliBeta), columns=((0,), (1, 2)))
        model = zoo.Mixture(components=components, num_components=2)
        trees.append(fit(model, x, method="vb", max_iterations=5, tolerance=0.0, num_restarts=1))
        tables.append(x)
    first, second = (inference.log_density(tree, x).to_numpy() for tree, x in zip(trees, tables, strict=True))
    np.testing.assert_allclose(second, first - np.log(1e6), rtol=1e-8)


def test_a_far_center_of_moments_is_moved_to_the_rows(table):
    """What is asked of a fit is then exact however far the prior's location is from them."""
    x = table + 1e6
    model = zoo.Mixture(components=GaussianWishart.from_data(table, loc=np.zeros(3), center=np.zeros(3)))
    moved = model.with_sizes_from(x).components
    np.testing.assert_allclose(moved.center, 1e6, rtol=1e-12)
    np.testing.assert_array_equal(moved.loc, 0.0)
    assert model.with_sizes_from(table) is model
    assert model.with_sizes_from(np.zeros((4, 2))) is model  # which is refused later
