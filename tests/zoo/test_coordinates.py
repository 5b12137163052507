"""A model that declares units is the same model in other coordinates; a wrong unit is found."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density

import zoo
from inference.precision import in_precision
from tests.models_with_units import CASES
from zoo.coordinates import Coordinates, Freedom, Unit, coordinates_of, free_log_scales, freedom_of
from zoo.model import Model

SIZE = 3


def coordinates(rng, free):
    """Random ones that a model allows."""
    if free.groups:
        origin, scale = np.zeros(SIZE), np.ones(SIZE)
        for columns, own in free.groups:
            origin[list(columns)] = 5.0 * rng.normal(size=len(columns)) if own.shift else 0.0
            scale[list(columns)] = np.exp(rng.normal(size=len(columns) if own.scale == "columns" else ()))
        return Coordinates((origin,), (scale,))
    scale = np.exp(rng.normal(size=SIZE if free.scale == "columns" else ()))
    return Coordinates((5.0 * rng.normal(size=SIZE) if free.shift else None,), (scale,))


def worst_error(case, rng, make=lambda model: model):
    """By how much log p(x, v) differs from log p(x~, v~) less the log scales, relative to it."""
    x = rng.normal(size=(7, SIZE)) * [0.1, 2.0, 30.0] + [3.0, 0.0, -40.0]
    if not case.shift or case.groups:
        x = np.abs(x)
    if case.takes_missing:
        x[2, 1] = np.nan
    model = make(case.model(np.nanmean(x, axis=0), np.nanstd(x, axis=0))).for_data(x)
    own = coordinates(rng, case.freedom)
    sites, errors = model.units_of_sites, []
    with in_precision():
        inner = model.expressed(own.inward)
        for a, b in zip(jax.tree.leaves(model), jax.tree.leaves(inner.expressed(own.outward)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
        lost = own.log_scale_of_rows((x,)).sum() + case.lost(np.broadcast_to(np.log(own.scales[0]), SIZE))
        for is_explicit in (False, True, False, True):
            values = case.values(rng, SIZE) | (case.locals(rng, len(x)) if is_explicit else {})
            turned = {n: own.inward(v, sites[n]) if n in sites else v for n, v in values.items()}
            programs = (model.explicit, inner.explicit) if is_explicit else (model, inner)
            rows = x, own.inward(x, sites["x"])
            joint, inside = (
                float(log_density(program, (jnp.asarray(own_rows),), {}, point)[0])
                for program, own_rows, point in zip(programs, rows, (values, turned), strict=True)
            )
            errors.append(abs(joint - (inside - lost)) / abs(joint))
    return max(errors)


@pytest.mark.parametrize("name", CASES)
def test_a_model_is_the_same_in_other_coordinates(name):
    case = CASES[name]
    model = case.model(np.zeros(SIZE), np.ones(SIZE))
    assert model.coordinate_freedom == (case.freedom,)
    assert worst_error(case, np.random.default_rng(0)) < 1e-12


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("mixture")])
def test_a_fit_computes_with_the_same_numbers_in_any_coordinates(name):
    """Its model and its rows, hyperparameters read off the rows: so samplers take the same path."""
    case, rng = CASES[name], np.random.default_rng(1)
    rows, found = np.exp(rng.normal(size=(20, SIZE))), []
    change = coordinates(rng, case.freedom)
    with in_precision():
        for x in (rows, change.outward(rows, Unit(1, (-1,), is_location=True))):
            model = case.model(x.mean(axis=0), x.std(axis=0))
            own = coordinates_of((x,), model.coordinate_freedom)
            found.append(jax.tree.leaves((model.inside(own), own.inward(x, model.units_of_sites["x"]))))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-9)


def test_every_model_of_the_zoo_that_declares_units_has_a_case():
    declared = {n for n in zoo.MODELS if zoo.model_class(n).units_of_sites is not Model.units_of_sites}
    assert declared <= {name.partition(" ")[0] for name in CASES}


WRONG = [
    ("robust", "loc", Unit(2, (-1,), True)),  # power
    ("robust", "scale", Unit(1, ())),  # axis
    ("robust", "loc", Unit(1, (-1,))),  # location
    ("even", "noise_precision", Unit(2)),
    ("even", "loc", Unit(1, (-1,))),
    ("correlated", "precision", Unit(1, (-2, -1))),
    ("correlated", "precision", Unit(-1)),
    ("correlated", "loc", Unit(1, (-1,))),
    ("ppca gaussian isotropic", "loadings", Unit(2, (-2,))),
    ("ppca ard isotropic", "loading_precision", Unit(2)),
    ("ppca ard diagonal", "loc", Unit(1, (-1,))),
    ("ppca flat isotropic", "noise_variance", Unit(1)),
    ("ppca flat diagonal", "noise_variance", Unit(2)),  # axis
    ("ppca flat diagonal", "loadings", Unit(1)),
    ("ppca gaussian diagonal standardize", "noise_variance", Unit(2, (-1,))),
    ("mixture full", "precisions", Unit(1, (-2, -1))),
    ("mixture full", "precisions", Unit(-2, (-1,))),  # axis
    ("mixture full", "locs", Unit(1, (-1,))),
    ("mixture full hyperpriors sticks", "prior_inverse_scale_matrix", Unit(-1, (-2, -1))),
    ("mixture full hyperpriors sticks", "prior_loc", Unit(1, (-1,))),
    ("mixture shared", "shared_precision", Unit(-2)),
    ("mixture columns", "precisions", Unit(-1, (-1,))),
    ("mixture columns hyperpriors", "prior_rate", Unit(-2, (-1,))),
    ("mixture spherical", "precisions", Unit(-1)),
    ("mixture exponential", "rates", Unit(1, (-1,))),
    ("mixture log-normal", "locs", Unit(1, (-1,))),
    ("mixture product", "precisions_0", Unit(-2)),  # columns
    ("mixture product", "rates_1", Unit(-1, (-1,), columns=(0,))),
    ("mixture product", "locs_0", Unit(1, (-1,), columns=(0, 2))),  # location
]


def with_table(model, name, table):
    """The model with another table of units."""
    own = type("Wrong", (type(model),), {name: table})
    new = copy.copy(model)
    object.__setattr__(new, "__class__", own)
    return new


@pytest.mark.parametrize(("name", "site", "unit"), WRONG)
def test_a_wrong_unit_of_a_site_is_found(name, site, unit):
    def planted(model):
        return with_table(model, "units_of_sites", {**model.units_of_sites, site: unit})

    with np.errstate(all="ignore"):
        assert not worst_error(CASES[name], np.random.default_rng(0), planted) < 1e-6


@pytest.mark.parametrize(
    ("name", "field", "unit"),
    [
        ("robust", "centre", Unit(1, (-1,))),
        ("robust", "spread", Unit(2, (-1,))),
        ("robust", "deviation", Unit(1)),
        ("even", "noise", Unit(-1)),
        ("correlated", "centre", Unit(1, (-1,))),
        ("correlated", "precision", Unit(-2, (-2, -1))),
        ("ppca gaussian isotropic", "loading_variance", Unit(1)),
        ("ppca ard diagonal", "ard_rate", Unit(-2)),
        ("ppca gaussian diagonal", "loc_mean", Unit(1, (-1,))),
        ("ppca gaussian isotropic", "loc_variance", Unit(1)),
        ("ppca gaussian diagonal", "noise_rate", Unit(1, (-1,))),
        ("ppca flat diagonal standardize", "column_scale", Unit(1)),
        ("mixture full", "loc", Unit(1, (-1,))),
        ("mixture full", "scale_matrix", Unit(1, (-2, -1))),
        ("mixture full", "scale_matrix", Unit(-2)),
        ("mixture known covariance", "covariance", Unit(2, (-2, -1))),
        ("mixture columns", "rate", Unit(1, (-1,))),
        ("mixture columns hyperpriors", "loc", Unit(1, (-1,))),
        ("mixture spherical", "rate", Unit(1)),
        ("mixture exponential", "rate", Unit(-1, (-1,))),
        ("mixture log-normal", "loc", Unit(1, (-1,))),
    ],
)
def test_a_wrong_unit_of_a_field_is_found(name, field, unit):
    def planted(model):
        owner = getattr(model, "components", model)
        wrong = with_table(owner, "units_of_fields", {**owner.units_of_fields, field: unit})
        return wrong if owner is model else model.replaced(components=wrong)

    assert not worst_error(CASES[name], np.random.default_rng(0), planted) < 1e-6


def test_freedom_follows_from_the_units():
    place = Unit(1, (-1,), True)
    assert freedom_of({"x": place, "v": Unit(2)}, ("x",)) == (Freedom("common", True),)
    assert freedom_of({"x": Unit(1, (-1,)), "v": Unit(2, (-1,))}, ("x",)) == (Freedom("columns", False),)
    units = {"x": place, "y": Unit(1, (-1,), part=1), "v": Unit(2, part=1)}
    assert freedom_of(units, ("x", "y", "z")) == (Freedom("columns", True), Freedom("common", False), None)


def test_coordinates_are_about_the_mean_in_deviations_of_the_observed_cells():
    x = np.array([[1.0, 10.0, 5.0], [3.0, np.nan, 5.0], [5.0, 30.0, 5.0]])
    own = coordinates_of((x,), (Freedom("columns", True),))
    np.testing.assert_allclose(own.origins[0], [3.0, 20.0, 5.0])
    np.testing.assert_allclose(own.scales[0], [np.sqrt(8 / 3), 10.0, 1.0])
    common = coordinates_of((x,), (Freedom("common", True),))
    assert common.scales[0] == pytest.approx(np.sqrt((8 / 3 + 100) / 3))
    stays = coordinates_of((x,), (Freedom("columns", False),))
    assert stays.origins == (None,)
    np.testing.assert_allclose(stays.scales[0], [3.0, 20.0, 5.0])
    assert coordinates_of((x, object()), (None, Freedom())) is None


def test_only_observed_cells_and_free_entries_have_a_log_scale():
    own = Coordinates((None, None), (np.array([2.0, 4.0]), np.array(8.0)))
    x, y = np.array([[1.0, np.nan], [0.0, 0.0]]), np.array([[1.0], [np.nan]])
    np.testing.assert_allclose(own.log_scale_of_rows((x, y)) / np.log(2), [4.0, 3.0])
    np.testing.assert_allclose(own.log_scale_of_rows((x, y), (1.0, 0.5)) / np.log(2), [2.5, 3.0])
    matrix = own.factor(Unit(-1, (-2, -1)))
    np.testing.assert_allclose(matrix, 1 / np.outer([2.0, 4.0], [2.0, 4.0]))
    logs = free_log_scales(dist.constraints.positive_definite, matrix, (2, 2))
    assert float(jnp.sum(logs)) == pytest.approx(-np.log(4) - np.log(8) - np.log(16), rel=1e-6)
    assert own.factor(Unit(3, part=1)) == 512.0 and own.factor(Unit(2, (-1,), part=1)) == 64.0


def test_a_prior_without_a_rule_is_refused():
    own = Coordinates((None,), (np.array(2.0),))
    with pytest.raises(TypeError, match="must be Normal, MultivariateNormal, .*; got Cauchy"):
        own.inward(dist.Cauchy(0.0, 1.0), Unit(1))
