"""Each view of unknown noise follows the origin and unit of its own cells, in moments of q and in answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import inference
import zoo
from inference import fit
from inference.coordinates import Return
from inference.methods.epca import vb as projections
from inference.methods.paired import full_covariance_vb, vb
from inference.precision import in_precision
from zoo.answers import answer_of, start_of
from zoo.coordinates import Unit
from zoo.exponential_family import Gaussian

pytestmark = pytest.mark.filterwarnings("ignore:.*has not converged")

UNKNOWN = Gaussian(noise_variance=None)
FORMS = {"low_rank": {"num_specific": (1, 0)}, "full_covariance": {"specific": "full_covariance"}}
MOVES = ((50.0, 3.0), (0.02, -1.0))
POWERS = {
    **{"loadings_mean": 1, "loadings_covariance": 2, "loadings_loc_covariance": 2, "loc_mean": 1},
    **{"loc_variance": 2, "noise_variance_rate": 2, "specific_precision_scale": -2},
}


def views():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(20, 1))
    return [z @ rng.normal(size=(1, d)) + 0.5 * rng.normal(size=(20, d)) for d in (3, 2)]


def moved():
    return [scale * y + shift for y, (scale, shift) in zip(views(), MOVES, strict=True)]


def fitted(form, data):
    model = zoo.Paired((UNKNOWN, UNKNOWN), view_weights=(1.0, 0.5), **FORMS[form])
    return fit(model, *data, method="vb", max_iterations=8, tolerance=0.0, num_samples=2)


def q_of(tree):
    return {str(name): value.values for name, value in tree["variational"].data_vars.items()}


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("form", FORMS)
def test_every_moment_of_q_has_the_power_of_the_unit_of_its_view(form, monkeypatch):
    """By hand, of views 50 times as large about 3 and 50 times smaller about -1; a planted unit is seen."""
    tree, first = fitted(form, moved()), q_of(fitted(form, views()))
    wanted = dict(first)
    for v, (scale, shift) in enumerate(MOVES):
        for name, power in POWERS.items():
            if f"{name}_{v}" in first:
                wanted[f"{name}_{v}"] = first[f"{name}_{v}"] * scale**power + shift * (name == "loc_mean")

    def away(found):
        return [name for name in wanted if not np.allclose(found[name], wanted[name], rtol=1e-7, atol=1e-9)]

    assert away(q_of(tree)) == []
    right = vb.METHOD.units
    name = "noise_variance_rate_1" if form == "low_rank" else "specific_precision_scale_1"

    def changed(self, values, turn):
        model = self.request.model
        units = {**right(model), **model.units, name: Unit(2)}  # of the other view
        return {n: turn(value, units[n]) if n in units else value for n, value in values.items()}

    monkeypatch.setattr(Return, "changed", changed)
    assert away(q_of(fitted(form, moved()))) == [name]


def test_scores_have_no_unit_where_each_view_has_its_own():
    """Neither latent ones nor those in an orthonormal basis of natural parameters in standard units."""
    trees = [(fitted("low_rank", data), data) for data in (views(), moved())]
    for kind in ("latent", "orthonormal"):
        first, second = (inference.transform(tree, *data, scores=kind).to_numpy() for tree, data in trees)
        np.testing.assert_allclose(second, first, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("module", [projections, full_covariance_vb])
def test_the_units_of_q_are_those_of_its_moments(module, standardize):
    """An axis over columns for each column's scale; along the axes of a full covariance there is none."""
    is_full = module is full_covariance_vb
    sizes = (3, 2)
    fields = {"unit": np.full(5, 2.0) if standardize else (2.0, 3.0), "standardize": standardize}
    form = FORMS["full_covariance" if is_full else "low_rank"]
    model = zoo.Paired((UNKNOWN, UNKNOWN), num_features=sizes, **form, **fields)
    units = vb.METHOD.units(model)
    assert {own.part for own in units.values()} == {0, 1}
    for name, own in units.items():
        base = name[:-2]
        dims = module.OF_VIEWS[base]
        columns = [n - len(dims) for n, dim in enumerate(dims) if dim in ("feature", "feature_2")]
        assert list(own.axes) == columns, name
        assert own.part == int(name[-1])
        if base != "axes":
            is_plain = standardize and base == "noise_variance_rate"
            assert own.power * max(1, len(own.axes)) == (0 if is_plain else POWERS[base]), name
    assert ("axes_0" in units) == (is_full and standardize)
    assert vb.METHOD.units(zoo.Paired(("gaussian", "bernoulli"))) == {}


@pytest.mark.parametrize("standardize", [False, True])
def test_a_density_of_rows_loses_the_scales_of_its_cells_by_the_weights_of_views(standardize):
    """Against the plain model of the views moved by hand; a missing cell loses nothing."""
    data = moved()
    data[0][2, 1] = np.nan
    weights = np.array([0.5, 2.0])
    model = zoo.Paired((UNKNOWN, UNKNOWN), view_weights=weights, standardize=standardize)
    model = model.with_sizes_from(*data)
    sizes = [np.nanstd(y, axis=0) for y in data]
    scales = sizes if standardize else [np.full_like(s, np.sqrt(np.mean(s**2))) for s in sizes]
    inner = [(y - np.nanmean(y, axis=0)) / s for y, s in zip(data, scales, strict=True)]
    plain = model.replaced(standardize=False, unit=None, loc_mean=None)
    with in_precision():
        values = start_of(plain, jax.random.key(0), *map(jnp.asarray, inner))
        values = {name: value for name, value in values.items() if name != "latents"}
        given = dict(values)
        for v, (y, s) in enumerate(zip(data, scales, strict=True)):
            given[f"loadings_{v}"] = values[f"loadings_{v}"] * s[:, None]
            given[f"loc_{v}"] = values[f"loc_{v}"] * s + np.nanmean(y, axis=0)
            given[f"noise_variance_{v}"] = values[f"noise_variance_{v}"] * (1.0 if standardize else s[0] ** 2)
        found = np.asarray(model.log_likelihood(given, *map(jnp.asarray, data)))
        wanted = np.asarray(plain.log_likelihood(values, *map(jnp.asarray, inner)))
    for weight, y, s in zip(weights, data, scales, strict=True):
        wanted = wanted - weight * (np.isfinite(y) * np.log(s)).sum(axis=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_variances_of_columns_are_in_the_unit_of_their_view():
    """Explained and left, by hand; a view without a unit comes first."""
    _, y = moved()
    bits = np.resize(np.eye(3), (20, 3))
    model = zoo.Paired(("bernoulli", UNKNOWN)).with_sizes_from(bits, y)
    with in_precision():
        values = start_of(model, jax.random.key(0), jnp.asarray(bits), jnp.asarray(y))
        values, found = jax.tree.map(np.asarray, (values, answer_of(model, "view_variances", values)))
    theta = values["latents"] @ values["loadings_1"].T
    np.testing.assert_allclose(found["_1"][0], theta.var(axis=0), rtol=1e-9)
    np.testing.assert_allclose(found["_1"][1], np.full(2, values["noise_variance_1"]), rtol=1e-9)
    means = special.expit(values["latents"] @ values["loadings_0"].T + values["loc_0"])
    np.testing.assert_allclose(found["_0"][0], means.var(axis=0), rtol=1e-9)
