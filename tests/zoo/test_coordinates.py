"""A model that declares units is the same model in other coordinates; a wrong unit is found."""

import copy
from dataclasses import fields, replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import zoo
from inference.coordinates import Return
from inference.precision import in_precision
from tests.support.log_joint import log_joint
from tests.support.models_with_units import CASES, NUM_ROWS, PLACE
from zoo.answers import answer_of, start_of
from zoo.coordinates import Coordinates, Freedom, Unit, coordinates_of, free_log_scales, freedom_of
from zoo.coordinates.of_models import expressed, inside, part_weights
from zoo.exponential_family import Categorical, Gaussian
from zoo.intake.families import for_data
from zoo.model import Model

SIZE = 3


def coordinates(rng, freedoms):
    """Random ones that a model allows."""
    found = [(None, None) if own is None else _coordinate(rng, own) for own in freedoms]
    return Coordinates(*zip(*found, strict=True))


def _coordinate(rng, free):
    if free.groups:
        origin, scale = np.zeros(SIZE), np.ones(SIZE)
        for columns, own in free.groups:
            origin[list(columns)] = 5.0 * rng.normal(size=len(columns)) if own.shift else 0.0
            scale[list(columns)] = np.exp(rng.normal(size=len(columns) if own.scale == "columns" else ()))
        return origin, scale
    scale = np.exp(rng.normal(size=SIZE if free.scale == "columns" else ()))
    origin = 5.0 * rng.normal(size=SIZE) if free.shift else None
    return origin, scale if free.scale else None


def rows_of(case, rng):
    """The parts of the data, each with a missing cell where that may be, and their means and deviations."""
    parts, moments = [], []
    for free in case.freedoms:
        cells = case.cells if case.shift and not case.groups else np.abs
        x = cells(rng.normal(size=(NUM_ROWS, SIZE)) * [0.1, 2.0, 30.0] + [3.0, 0.0, -40.0])
        if case.takes_missing:
            x[2, 1] = np.nan
        if free is None:
            parts.append(case.outputs(len(x)))
            continue
        parts.append(x)
        moments += [np.nanmean(x, axis=0), np.nanstd(x, axis=0)]
    return tuple(parts), moments


def worst_error(case, rng, make=lambda model: model):
    """By how much log p(x, v) differs from log p(x~, v~) less the log scales, relative to it."""
    data, moments = rows_of(case, rng)
    model = for_data(make(case.model(*moments)), *data)
    own = coordinates(rng, case.freedoms)
    sites, errors = model.units, []
    with in_precision():
        inner = expressed(model, own.inward)
        for a, b in zip(jax.tree.leaves(model), jax.tree.leaves(expressed(inner, own.outward)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
        weights = part_weights(model)
        parts = zip(case.freedoms, own.scales, strict=True)
        scales = (1.0 if scale is None else scale for free, scale in parts if free is not None)
        logs = [np.broadcast_to(np.log(scale), SIZE) for scale in scales]
        lost = own.log_scale_of_rows(data, weights).sum() + case.lost(*logs)
        for is_explicit in (False, True, False, True):
            values, drawn = case.values(rng, SIZE), case.locals(rng, len(data[0]))
            values |= {n: v for n, v in drawn.items() if is_explicit or n in answer_of(model, "kept_locals")}
            turned = {n: own.inward(v, sites[n]) if n in sites else v for n, v in values.items()}
            programs = (model.explicit, inner.explicit) if is_explicit else (model, inner)
            rows = data, own.parts_inward(data, model.data_names, sites)
            joint, inside = (
                float(log_joint(program, point, *own_rows))
                for program, own_rows, point in zip(programs, rows, (values, turned), strict=True)
            )
            errors.append(abs(joint - (inside - lost)) / abs(joint))
    return max(errors)


@pytest.mark.parametrize("name", CASES)
def test_a_model_is_the_same_in_other_coordinates(name):
    case = CASES[name]
    model = case.model(*rows_of(case, np.random.default_rng(1))[1])
    assert model.coordinate_freedom == case.freedoms
    assert worst_error(case, np.random.default_rng(0)) < 1e-12


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("mixture")])
def test_a_fit_computes_with_the_same_numbers_in_any_coordinates(name):
    """Its model and its rows, hyperparameters read off the rows: so samplers take the same path."""
    case, rng = CASES[name], np.random.default_rng(1)
    rows, found = np.exp(rng.normal(size=(20, SIZE))), []
    change = coordinates(rng, case.freedoms)
    with in_precision():
        for x in (rows, change.outward(rows, Unit(1, (-1,), is_location=True))):
            model = case.model(x.mean(axis=0), x.std(axis=0))
            own = coordinates_of((x,), model.coordinate_freedom)
            found.append(jax.tree.leaves((inside(model, own), own.inward(x, model.units["x"]))))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-9)


def test_every_model_of_the_zoo_that_declares_units_has_a_case():
    declared = {n for n in zoo.MODELS if zoo.model_class(n).units is not Model.units}
    assert declared <= {name.partition(" ")[0] for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_a_model_returns_from_the_coordinates_of_a_fit_as_it_was(name):
    """Those of a fit are its own, about any origin if they have none, and others where it has none."""
    rng = np.random.default_rng(0)
    model = CASES[name].model(*rows_of(CASES[name], rng)[1])
    own, stated = coordinates(rng, CASES[name].freedoms), model.own_coordinates
    if stated is not None:
        own = replace(stated, origins=own.origins) if stated.origins[0] is None else stated
    with in_precision():
        inner = inside(model, own)
        assert inner.own_coordinates is None
        found = Return(SimpleNamespace(model=model), own).model(inner)
    for field in (field for field in fields(model) if getattr(model, field.name) is not None):
        wanted, value = (jax.tree.leaves(getattr(own, field.name)) for own in (model, found))
        for one, other in zip(wanted, value, strict=True):
            if isinstance(one, np.ndarray):
                np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-12, err_msg=field.name)
            else:
                assert one == other, field.name


@pytest.mark.parametrize("name", ["stated in a unit", "stated by column"])
def test_a_model_stated_elsewhere_is_the_plain_one_there(name):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(7, SIZE)) * [0.1, 2.0, 30.0] + [3.0, 0.0, -40.0]
    model, values = CASES[name].model(x.mean(0), x.std(0)), CASES[name].values(rng, SIZE)
    own, sites = model.own_coordinates, model.units
    inner = {site: own.inward(value, sites[site]) for site, value in values.items()}
    lost = own.log_scale_of_rows((x,)).sum() + CASES[name].lost(np.broadcast_to(np.log(own.scales[0]), SIZE))
    with in_precision():
        joint = log_joint(model, values, x)
        inner_joint = log_joint(inside(model, own), inner, jnp.asarray(own.inward(x, PLACE)))
    assert float(joint) == pytest.approx(float(inner_joint) - lost, rel=1e-12)


WRONG = [
    ("robust", "loc", Unit(2, (-1,), True)),  # power
    ("robust", "scale", Unit(1, ())),  # axis
    ("robust", "loc", Unit(1, (-1,))),  # location
    ("even", "noise_precision", Unit(2)),
    ("even", "loc", Unit(1, (-1,))),
    ("correlated", "precision", Unit(1, (-2, -1))),
    ("correlated", "precision", Unit(-1)),
    ("correlated", "loc", Unit(1, (-1,))),
    ("stated in a unit", "noise_variance", Unit(0)),
    ("stated by column", "noise_variance", Unit(2, (-1,))),
    ("ppca gaussian isotropic", "loadings", Unit(2, (-2,))),
    ("ppca ard isotropic", "loading_precision", Unit(2)),
    ("ppca ard diagonal", "loc", Unit(1, (-1,))),
    ("ppca flat isotropic", "noise_variance", Unit(1)),
    ("ppca flat diagonal", "noise_variance", Unit(2)),  # axis
    ("ppca flat diagonal", "loadings", Unit(1)),
    ("ppca gaussian diagonal standardize", "noise_variance", Unit(2, (-1,))),
    ("depcam unknown laplace", "scales", Unit(2)),
    ("depcam unknown laplace", "offsets", Unit(1, (-1,))),  # location
    ("depcam unknown ard", "scales_precision", Unit(2)),
    ("depcam unknown laplace", "noise_variance", Unit(1)),
    ("depcam unknown laplace standardize", "offsets", Unit(1)),  # axis
    ("depcam unknown ard standardize", "offsets", Unit(2, (-1,))),
    ("depcam known laplace", "offsets", Unit(0, (-1,))),  # location
    ("depcam rates laplace", "scales", Unit(1)),
    ("depcam rates ard", "scales_precision", Unit(-2)),
    ("depcam shared rates", "offsets", Unit(1, (-1,))),
    ("sppca gaussian shared", "loadings_y", Unit(2, (-2,), part=1)),
    ("sppca flat shared", "loc_y", Unit(1, (-1,), part=1)),
    ("sppca flat per_output", "noise_variance_y", Unit(2, part=1)),  # axis
    ("sppca flat shared", "noise_variance_y", Unit(2)),  # part
    ("sppca gaussian binary", "loadings_x", Unit(2, (-2,))),
    ("sppca gaussian classes standardize", "loc_x", Unit(1, (-1,))),
    ("epca of unknown noise", "loadings", Unit(2, (-2,))),
    ("epca of unknown noise", "noise_variance", Unit(0)),
    ("epca standardize", "loadings", Unit(1)),  # axis
    ("epca standardize", "noise_variance", Unit(2, (-1,))),
    ("epca standardize", "loc", Unit(2, (-1,), True)),
    ("epca of exponential cells", "loadings", Unit(1, (-2,))),
    ("epca of gamma cells", "loc", Unit(-1)),  # axis
    ("paired", "loadings_1", Unit(1, (-2,))),  # part
    ("paired", "noise_variance_0", Unit(1)),
    ("paired", "loc_1", Unit(2, (-1,), True, part=1)),
    ("paired standardize", "loadings_0", Unit(1)),  # axis
    ("paired standardize", "noise_variance_1", Unit(2, (-1,), part=1)),
    ("paired with bits", "loadings_0", Unit(2, (-2,))),
    ("paired full", "specific_precision_1", Unit(1, (-2, -1), part=1)),
    ("paired full standardize", "specific_precision_0", Unit(-2)),  # axis
    ("mcfa gaussian diagonal", "noise_variance", Unit(1, (-1,))),
    ("mcfa gaussian diagonal standardize", "raw_loadings", Unit(1)),  # axis
    ("mcfa ard isotropic", "loading_precision", Unit(2)),
    ("mcfa ard isotropic", "raw_loc", Unit(1, (-1,))),  # location
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
    ("mixture log-normal", "locs_0", Unit(1, (-1,), columns=(0, 1, 2))),
    ("mixture log-normal", "locs_0", Unit(1, (-1,), True, columns=(0, 1, 2))),  # logarithms
    ("mixture logarithms", "locs_0", Unit(1, (-1,), True, columns=(0, 1, 2))),
    ("mixture logarithms", "precisions_0", Unit(-1, (-2, -1), columns=(0, 1, 2))),
    ("mixture logarithms", "locs_0", Unit(1, (-1,), True, columns=(0, 1, 2), logs=(0,))),
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
        return with_table(model, "units", {**model.units, site: unit})

    with np.errstate(all="ignore"):
        try:
            error = worst_error(CASES[name], np.random.default_rng(0), planted)
        except ValueError as refusal:  # an axis that the value does not have
            assert "Incompatible shapes" in str(refusal)
            return
    assert not error < 1e-6


def kinds_of_difference(unit, right):
    """In which of power, axes and location two units differ."""
    return {kind for kind in ("power", "axes", "is_location") if getattr(unit, kind) != getattr(right, kind)}


def test_every_model_has_a_planted_power_axis_and_location():
    planted = {name.partition(" ")[0]: set() for name in CASES}
    for name, site, unit in WRONG:
        data, moments = rows_of(CASES[name], np.random.default_rng(0))
        right = for_data(CASES[name].model(*moments), *data).units[site]
        planted[name.partition(" ")[0]] |= kinds_of_difference(unit, right)
    # Kernel PCA's rows alone have a unit; a mean about the program's origin is as equivariant, see the next
    lacking = {
        "kernelpca": {"power", "axes", "is_location"},
        "epca": {"is_location"},
        "paired": {"is_location"},
    }
    for name in planted.keys() & zoo.MODELS.keys():
        assert planted[name] == {"power", "axes", "is_location"} - lacking.get(name, set()), name


def error_of_cells(case, make=lambda model: model):
    """By how much two tables' log joints differ from the normal densities of their cells about the means."""
    rng = np.random.default_rng(0)
    data, moments = rows_of(case, rng)
    model = for_data(make(case.model(*moments)), *data)
    values = case.values(rng, SIZE) | case.locals(rng, len(data[0]))
    joints, by_hand = [], []
    with in_precision():
        for parts in (data, tuple(x + rng.normal(size=x.shape) for x in data)):
            joint = log_joint(model.explicit, values, *parts)
            joints.append(float(joint))
            total = 0.0
            for name, x, weight in zip(model.data_names, parts, part_weights(model), strict=True):
                end = name.removeprefix("y") if name != "x" else ""
                mean = values["latents"] @ values[f"loadings{end}"].T + values[f"loc{end}"]
                seen, spread = ~np.isnan(x), values[f"noise_variance{end}"] ** 0.5
                cells = jnp.where(seen, dist.Normal(mean, spread).log_prob(np.where(seen, x, 0.0)), 0.0)
                total += weight * jnp.sum(cells)
            by_hand.append(float(total))
    return abs((joints[0] - joints[1]) / (by_hand[0] - by_hand[1]) - 1)


@pytest.mark.parametrize(
    ("name", "site"), [("epca of unknown noise", "loc"), ("paired", "loc_0"), ("paired", "loc_1")]
)
def test_means_of_a_model_stated_about_an_origin_are_those_of_the_data(name, site):
    """A mean without its location would be one about the origin: equivariant, but another parameter."""

    def planted(model):
        right = model.units[site]
        return with_table(model, "units", {**model.units, site: right._replace(is_location=False)})

    assert error_of_cells(CASES[name]) < 1e-9
    assert error_of_cells(CASES[name], planted) > 1e-3


@pytest.mark.parametrize(
    ("name", "field", "unit"),
    [
        ("robust", "centre", Unit(1, (-1,))),
        ("robust", "spread", Unit(2, (-1,))),
        ("robust", "deviation", Unit(1)),
        ("even", "noise", Unit(-1)),
        ("correlated", "centre", Unit(1, (-1,))),
        ("correlated", "precision", Unit(-2, (-2, -1))),
        ("stated in a unit", "place", Unit(1, (-1,))),
        ("stated in a unit", "unit", Unit(2)),
        ("stated by column", "unit", Unit(1)),
        ("ppca gaussian isotropic", "loading_variance", Unit(1)),
        ("ppca ard diagonal", "ard_rate", Unit(-2)),
        ("ppca gaussian diagonal", "loc_mean", Unit(1, (-1,))),
        ("ppca gaussian isotropic", "loc_variance", Unit(1)),
        ("ppca gaussian diagonal", "noise_rate", Unit(1, (-1,))),
        ("ppca flat diagonal standardize", "column_scale", Unit(1)),
        ("kernelpca standardize", "column_scale", Unit(2, (-1,))),
        ("mcfa gaussian diagonal", "loading_variance", Unit(1)),
        ("mcfa ard isotropic", "ard_rate", Unit(-2)),
        ("mcfa ard isotropic", "loc_mean", Unit(1, (-1,))),
        ("mcfa gaussian diagonal standardize", "column_scale", Unit(1)),
        ("depcam unknown laplace", "sparsity", Unit(1)),
        ("depcam unknown laplace", "offset_mean", Unit(1, (-1,))),
        ("depcam unknown ard", "ard_rate", Unit(-2)),
        ("depcam shared", "noise_rate", Unit(1)),
        ("depcam shared", "offset_variance", Unit(1)),
        ("depcam unknown ard standardize", "column_scale", Unit(1)),
        ("depcam unknown laplace standardize", "offset_mean", Unit(1)),
        ("depcam known laplace", "offset_mean", Unit(0, (-1,))),
        ("depcam rates laplace", "sparsity", Unit(-1)),
        ("depcam rates laplace", "offset_mean", Unit(1, (-1,))),
        ("depcam rates laplace", "offset_variance", Unit(2)),
        ("sppca gaussian shared", "loading_variance", (Unit(2), Unit(1, part=1))),
        ("sppca gaussian shared", "loc_variance", (Unit(2), Unit(2))),  # part
        ("sppca gaussian per_output", "noise_rate", (Unit(2), Unit(1, (-1,), part=1))),
        ("sppca gaussian binary", "loc_mean", (Unit(1, (-1,)), Unit(0, (-1,), part=1))),
        ("sppca gaussian shared given", "noise_variance_x", Unit(1)),
        ("sppca flat shared standardize", "column_scale_y", Unit(1, (-1,))),
        ("epca of unknown noise", "unit", Unit(2)),
        ("epca of unknown noise", "loc_mean", Unit(1, (-1,))),
        ("epca standardize", "unit", Unit(1)),
        ("epca of exponential cells", "natural_unit", Unit(1, (-1,))),
        ("paired", "unit", (Unit(1), Unit(2, part=1))),
        ("paired", "unit", (Unit(1), Unit(1))),  # part
        ("paired", "loc_mean", (Unit(1, (-1,), True), Unit(1, (-1,), part=1))),
        ("paired with bits", "unit", (Unit(0), Unit(0, part=1))),
        ("paired standardize", "unit", (Unit(1, (-1,)), Unit(2, (-1,), part=1))),
        ("mixture full", "loc", Unit(1, (-1,))),
        ("mixture full", "scale_matrix", Unit(1, (-2, -1))),
        ("mixture full", "scale_matrix", Unit(-2)),
        ("mixture known covariance", "covariance", Unit(2, (-2, -1))),
        ("mixture columns", "rate", Unit(1, (-1,))),
        ("mixture columns hyperpriors", "loc", Unit(1, (-1,))),
        ("mixture spherical", "rate", Unit(1)),
        ("mixture exponential", "rate", Unit(-1, (-1,))),
    ],
)
def test_a_wrong_unit_of_a_field_is_found(name, field, unit):
    def planted(model):
        if not hasattr(model, "components"):
            own = copy.copy(model.__dataclass_fields__[field])
            own.metadata = {**own.metadata, "unit": unit}
            return with_table(model, "__dataclass_fields__", {**model.__dataclass_fields__, field: own})
        owner = model.components
        table = {**owner.units_of_fields, field: unit}
        return model.replaced(components=with_table(owner, "units_of_fields", table))

    assert not worst_error(CASES[name], np.random.default_rng(0), planted) < 1e-6


def test_freedom_follows_from_the_units():
    place = Unit(1, (-1,), True)
    assert freedom_of({"x": place, "v": Unit(2)}, ("x",)) == (Freedom("common", True),)
    assert freedom_of({"x": Unit(1, (-1,)), "v": Unit(2, (-1,))}, ("x",)) == (Freedom("columns", False),)
    units = {"x": place, "y": Unit(1, (-1,), part=1), "v": Unit(2, part=1)}
    assert freedom_of(units, ("x", "y", "z")) == (Freedom("columns", True), Freedom("common", False), None)


def test_a_mixed_table_keeps_its_coordinates():
    unknown = Gaussian(noise_variance=None)
    model = zoo.Paired(((unknown, "bernoulli"), unknown), num_shared=1, standardize=True)
    assert model.coordinate_freedom == (None, Freedom("columns", True))


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


def mixed_error(rng, make=lambda model: model):
    """By how much a mixed table's log density differs from that of the plain model in its own coordinates."""
    x = np.column_stack([rng.normal(40.0, 3.0, 9), rng.integers(0, 3, 9), rng.normal(-5.0, 0.1, 9)])
    unknown = Gaussian(noise_variance=None)
    model = zoo.EPCA(family=(unknown, Categorical(3), unknown), num_latents=1, standardize=True)
    model = make(model.with_sizes_from(x))
    with in_precision():
        values = start_of(model, jax.random.key(0), jnp.asarray(x))
        values = jax.tree.map(np.asarray, values)
        is_real, at = [True, False, True], [0, 1, 1, 2]
        scale, place = np.where(is_real, x.std(axis=0), 1.0), np.where(is_real, x.mean(axis=0), 0.0)
        inner = values | {"loadings": values["loadings"] / scale[at, None]}
        inner["loc"] = (values["loc"] - place[at]) / scale[at]
        plain = model.replaced(standardize=False, unit=None, loc_mean=None)
        joint, inside = (
            float(log_joint(own, point, rows))
            for own, rows, point in ((model, x, values), (plain, (x - place) / scale, inner))
        )
    lost = (len(x) + 2) * np.log(scale).sum()  # of cells, and of a loading and a mean of each column
    return abs(joint - (inside - lost)) / abs(joint)


def test_columns_with_several_parameters_have_the_unit_of_their_column():
    assert mixed_error(np.random.default_rng(0)) < 1e-12

    def planted(model):
        units = dict(model.units)
        units["loc"] = units["loc"]._replace(columns=(2, 1, 1, 0))
        return with_table(model, "units", units)

    assert mixed_error(np.random.default_rng(0), planted) > 1e-3
