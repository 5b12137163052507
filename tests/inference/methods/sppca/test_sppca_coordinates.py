"""Fits of SPPCA are those of inputs and outputs, each about its origin and in its scale."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.handlers import seed, substitute, trace

import inference
import zoo
from inference import fit
from inference.coordinates import Return
from inference.methods.sppca import morp, vb
from inference.precision import in_precision
from tests.support.log_joint import log_joint
from zoo.coordinates import Unit
from zoo.coordinates.of_models import inside

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(40, 2))
X = Z @ RNG.normal(size=(2, 4)) + 0.5 * RNG.normal(size=(40, 4))
Y = Z @ RNG.normal(size=(2, 2)) + 0.3 * RNG.normal(size=(40, 2))
Y[30:], X[3, 2] = np.nan, np.nan
MODEL = zoo.SPPCA(num_latents=2, loading_prior="gaussian", noise_concentration=2.0)

pytestmark = pytest.mark.filterwarnings("ignore:.*has not converged")


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("em", {}),
        pytest.param("em", {"standardize": True}, marks=pytest.mark.slow),
        pytest.param("em", {"loading_prior": "gaussian"}, marks=pytest.mark.slow),
    ],
)
def test_single_precision_sees_rows_a_million_deviations_away(method, fields):
    """Of inputs and of outputs; the estimate of their means keeps the digits."""
    settings = {"max_iterations": 40, "tolerance": 0.0}
    trees = [
        fit(zoo.SPPCA(num_latents=2, **fields), X + 1e6, Y - 3e6, method=method, dtype=dtype, **settings)
        for dtype in ("float64", "float32")
    ]
    double, single = (inference.log_density(tree, X + 1e6, Y - 3e6).to_numpy() for tree in trees)
    np.testing.assert_allclose(single, double, rtol=1e-3, atol=1e-3)
    for name, origin in (("loc_x", 1e6), ("loc_y", -3e6)):
        double, single = (tree["posterior"][name].values.mean((0, 1)) - origin for tree in trees)
        np.testing.assert_allclose(single, double, atol=2e-3)


def test_single_precision_sees_rows_far_away_through_a_kernel_of_distances():
    """New rows are compared with the fitted ones as they were passed, and nothing is warned of."""
    model, x, y = (
        zoo.SPPCA(num_latents=1, kernel="rbf", noise_variance_x=0.3),
        np.nan_to_num(X) + 1e6,
        Y + 1e6,
    )
    trees = [fit(model, x, y, method="em", dtype=dtype, max_iterations=5) for dtype in ("float64", "float32")]
    double, single = (inference.log_density(tree, x[:5], y[:5]).to_numpy() for tree in trees)
    np.testing.assert_allclose(single, double, rtol=1e-4)


UNITS, PLACES = (50.0, 0.2), (3.0, -7.0)
MOMENTS = {"loadings_{}_mean": 1, "loadings_{}_covariance": 2, "loadings_loc_{}_covariance": 2}
MOMENTS |= {"loc_{}_mean": 1, "loc_{}_variance": 2, "noise_precision_{}_rate": 2}
POWERS = {name.format(b): (part, p) for part, b in enumerate("xy") for name, p in MOMENTS.items()}


def of_q(units, places):
    data = (own * unit + place for own, unit, place in zip((X, Y), units, places, strict=True))
    tree = fit(MODEL, *data, method="vb", max_iterations=10, tolerance=0.0, num_samples=2)
    moments = {str(name): value.values for name, value in tree["variational"].data_vars.items()}
    return moments | {"trace": tree["trace"]["noise_variance"].values}


def test_every_moment_of_q_has_the_power_and_the_part_of_its_unit(monkeypatch):
    """By hand, of inputs 50 times as large about 3 and outputs a fifth about -7; what is planted is seen."""
    first = of_q((1.0, 1.0), (0.0, 0.0))

    def away():
        found = []
        for name, value in of_q(UNITS, PLACES).items():
            part, power = (0, 2) if name == "trace" else POWERS.get(name, (0, 0))
            place = PLACES[part] if name in ("loc_x_mean", "loc_y_mean") else 0.0
            is_right = np.allclose(value, first[name] * UNITS[part] ** power + place, rtol=1e-8, atol=1e-8)
            found += [] if is_right else [name]
        return found

    assert away() == []
    right = Return.changed
    for name, wrong in (
        ("loadings_y_covariance", Unit(1, (-3,), part=1)),
        ("loc_y_mean", Unit(1, (-1,), part=1)),
        ("loadings_y_mean", Unit(1, (-2,))),
        ("noise_precision_x_rate", Unit(-2)),
    ):

        def planted(self, values, turn, name=name, wrong=wrong):
            found = right(self, values, turn)
            return found | ({name: turn(values[name], wrong)} if name in values else {})

        monkeypatch.setattr(Return, "changed", planted)
        assert away() == [name]


def test_the_units_of_q_lie_along_its_axes_over_columns():
    units, dims = vb.units(MODEL), {}
    for block, dim in vb.BLOCKS.items():
        dims |= {n.format(block): tuple(d.format(dim) for d in own) for n, own in vb.PARTS.items()}
    assert {name: (own.part, own.power) for name, own in units.items()} == POWERS
    for name, own in units.items():
        places = [n - len(dims[name]) for n, dim in enumerate(dims[name]) if dim in vb.BLOCKS.values()]
        assert list(own.axes) == places, name


def test_projections_take_the_data_as_they_are(monkeypatch):
    """Ridge and scores of MORP have the unit of the data; if they had none, scores would change."""
    x, y = 50.0 * np.nan_to_num(X) + 3.0, np.nan_to_num(Y)

    def scores():
        return fit(zoo.SPPCA(num_latents=1), x, y, method="morp", ridge=9e4)["variational"]["latents"].values

    first = scores()
    method = morp.METHODS["morp"]
    solved = morp.solve(None, zoo.SPPCA(num_latents=1), (x, y), **(method.options | {"ridge": 9e4}))
    np.testing.assert_allclose(first, np.asarray(solved[0].variational["latents"]), rtol=1e-9)
    blind = morp.replace(method, has_unit=False)
    monkeypatch.setattr(morp, "METHODS", {"morp": blind})
    assert not np.allclose(scores(), first, rtol=1e-2)


def drawn_parameters(x):
    """A standardised model, and a draw of its parameters in the units of the data."""
    model = MODEL.replaced(standardize=True).with_sizes_from(X, Y)
    sites = trace(seed(model, 0)).get_trace(x)
    return model, {name: sites[name]["value"] for name in model.units if name not in ("x", "y")}


def test_outputs_that_are_drawn_are_in_the_units_of_the_data():
    """Given x alone, of a program in its own coordinates: each draw is that of the plain one in its scale."""
    with in_precision():
        x = jnp.asarray(X)
        model, values = drawn_parameters(x)
        again = substitute(seed(model, 0), values)
        given, drawn = again(x)
        np.testing.assert_array_equal(given, x)
        coordinates, units = model.own_coordinates, model.units
        inner = {n: coordinates.inward(v, units[n]) for n, v in values.items()}
        plain = substitute(seed(inside(model, coordinates), 0), inner)
        _, standard = plain(coordinates.inward(x, units["x"]))
        np.testing.assert_allclose(drawn, coordinates.outward(standard, units["y"]), rtol=1e-9)
        assert not np.allclose(drawn, standard)


def test_the_density_of_outputs_that_are_left_out_is_none():
    """A missing y is one whose cells are all missing, in the coordinates of a standardised model too."""
    with in_precision():
        x, nothing = jnp.asarray(X), jnp.full(Y.shape, jnp.nan)
        model, values = drawn_parameters(x)
        np.testing.assert_allclose(
            model.log_likelihood(values, x), model.log_likelihood(values, x, nothing), rtol=1e-12
        )
        joint = [float(log_joint(model, values, x, y)) for y in (nothing, jnp.asarray(Y))]
        rows = [model.log_likelihood(values, x, y).sum() for y in (nothing, jnp.asarray(Y))]
        np.testing.assert_allclose(joint[1] - joint[0], float(rows[1] - rows[0]), rtol=1e-9)
