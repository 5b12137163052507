"""The default proper priors, the starts and the coordinates are in the units of the data.

With rows s x + c and outputs t y + d a fit is the same in other units: loadings times s, predictions s and c
apart. Samplers and SVI are compared draw by draw at one seed, because steps, masses and starts are taken in
coordinates of the data (`inference.coordinates`); over few steps rounding does not grow.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import unconstrain_fn

from inference import fit, predict
from inference.methods.nuts_hmc import program
from inference.precision import in_precision
from tests.support.log_joint import log_joint
from zoo import PPCA, SPPCA
from zoo.coordinates import coordinates_of
from zoo.coordinates.of_models import inside
from zoo.fields import continuing
from zoo.linear_gaussian.supervised import block_prior

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(40, 2))
X = Z @ RNG.normal(size=(2, 5)) + 0.5 * RNG.normal(size=(40, 5))
Y = Z @ RNG.normal(size=(2, 2)) + 0.3 * RNG.normal(size=(40, 2))
Y[30:] = np.nan  # semi-supervised
X[3, 2] = np.nan
LABELS = (Z[:, :1] + 0.3 * RNG.normal(size=(40, 1)) > 0).astype(float)
SCALE, SHIFT, OUTPUT_SCALE, OUTPUT_SHIFT = 1000.0, 1e6, 0.01, -300.0
CHAINS = {"num_chains": 2, "num_warmup": 8, "num_samples": 8}
RUNS = {
    "vb": {"max_iterations": 300, "tolerance": 1e-9, "num_samples": 5},
    "em": {"max_iterations": 300, "tolerance": 1e-9},
    "gibbs": {"num_chains": 2, "num_warmup": 4, "num_samples": 8},
    "nuts": CHAINS | {"max_tree_depth": 4},
    "hmc": CHAINS | {"num_steps": 4},
    "svi": {"max_iterations": 200, "num_samples": 5},
    "ep": {"max_iterations": 40},
}
MODELS = {
    "sppca": SPPCA(num_latents=2, loading_prior="gaussian"),
    "per_output": SPPCA(num_latents=2, loading_prior="gaussian", output_noise="per_output"),
    "probit": SPPCA(num_latents=2, loading_prior="gaussian", output_likelihood="probit"),
    "gaussian": PPCA(num_latents=2, loading_prior="gaussian"),
    "ard": PPCA(num_latents=2, loading_prior="ard"),
    "diagonal": PPCA(num_latents=2, loading_prior="ard", noise="diagonal"),
    "flat": PPCA(num_latents=2),
}
QUICK = [("vb", "sppca"), ("vb", "ard")]
SLOW = [
    *[("vb", name) for name in ("per_output", "gaussian", "diagonal")],
    *[("em", name) for name in ("sppca", "per_output", "ard", "diagonal")],
    *[("gibbs", name) for name in ("sppca", "per_output", "probit")],
    *[("nuts", name) for name in ("sppca", "probit", "ard", "flat", "diagonal")],
    *[("hmc", name) for name in ("sppca", "ard")],
    *[("svi", name) for name in ("sppca", "probit", "ard", "flat")],
    ("ep", "probit"),
]


def data_of(name, scale=1.0, shift=0.0, output_scale=1.0, output_shift=0.0):
    x = scale * X + shift
    if name in ("sppca", "per_output"):
        return x, output_scale * Y + output_shift
    return (x, LABELS) if name == "probit" else (x,)


def standard(tree, name, scale=1.0, shift=0.0, output_scale=1.0, output_shift=0.0):
    """Loadings, noise and predictions of a fit, brought to the units of X and Y."""
    suffix = "_x" if name in ("sppca", "per_output", "probit") else ""
    posterior = tree["posterior"]
    values = {
        "loadings": posterior[f"loadings{suffix}"].values / scale,
        "loc": (posterior[f"loc{suffix}"].values - shift) / scale,
        "noise_variance": posterior[f"noise_variance{suffix}"].values / scale**2,
    }
    if suffix:
        outputs = predict(tree, scale * X[:6] + shift).values
        values["outputs"] = outputs if name == "probit" else (outputs - output_shift) / output_scale
        values["loadings_y"] = posterior["loadings_y"].values / (1 if name == "probit" else output_scale)
    return values


def compare(method, name, tolerance=1e-6):
    units = (SCALE, SHIFT, OUTPUT_SCALE, OUTPUT_SHIFT)
    one, other = (
        fit(MODELS[name], *data_of(name, *own), method=method, **RUNS[method]) for own in ((), units)
    )
    want, got = standard(one, name), standard(other, name, *units)
    for part, value in want.items():
        np.testing.assert_allclose(got[part], value, atol=tolerance * value.std(), err_msg=part)
    assert one.attrs["converged"] == other.attrs["converged"]
    return one, other


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*has not converged")
@pytest.mark.parametrize(("method", "name"), QUICK)
def test_a_fit_is_the_same_in_other_units(method, name):
    one, other = compare(method, name)
    if method == "vb":
        assert other["variational"]["num_relevant"] == one["variational"]["num_relevant"] > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*has not converged")
@pytest.mark.parametrize(("method", "name"), SLOW)
def test_a_fit_is_the_same_in_other_units_by_every_method(method, name):
    compare(method, name)


@pytest.mark.slow
def test_a_prior_that_is_not_in_units_gives_another_fit():
    """The fault that was: the numbers of unit variance, whatever the unit."""
    fixed = dict(loading_variance=1.0, loc_mean=0.0, loc_variance=100.0, noise_rate=1e-3)
    given = SPPCA(num_latents=2, loading_prior="gaussian", **fixed)
    wrong, right = (
        fit(model, *data_of("sppca", 100.0), method="vb", **RUNS["vb"]) for model in (given, MODELS["sppca"])
    )
    assert wrong["variational"]["num_relevant"] < right["variational"]["num_relevant"] == 2
    assert wrong.attrs["converged"] == right.attrs["converged"] == 1


def test_numbers_are_those_of_unit_variance_on_standardised_columns():
    """Where columns have mean 0 and variance 1 the defaults are the numbers that they were."""
    x = (X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0)
    y = (Y - np.nanmean(Y, axis=0)) / np.nanstd(Y, axis=0)
    model = SPPCA.from_data(x, y, num_latents=2, loading_prior="gaussian")
    np.testing.assert_allclose(model.loading_variance, [1.0, 1.0])
    np.testing.assert_allclose(model.loc_mean, np.zeros(7), atol=1e-12)
    np.testing.assert_allclose(model.loc_variance, [100.0, 100.0])
    np.testing.assert_allclose(model.noise_rate, [1e-3, 1e-3])
    model = PPCA.from_data(x, num_latents=2, loading_prior="ard", noise="diagonal")
    np.testing.assert_allclose(model.noise_rate, np.full(5, 1e-3))
    np.testing.assert_allclose(model.ard_rate, 1e-3)


def test_numbers_that_are_given_keep_their_meaning():
    model = SPPCA.from_data(X, Y, num_latents=2, loading_prior="gaussian", loc_variance=4.0, noise_rate=0.5)
    assert model.loc_mean == 0.0 and model.loc_variance == 4.0 and model.noise_rate == 0.5
    np.testing.assert_allclose(model.loading_variance[0], np.nanvar(X, axis=0).mean())
    for block in "xy":
        prior = block_prior(model, block)
        assert float(prior.loc_mean) == 0.0 and float(prior.loc_variance) == 4.0


def test_a_fit_that_goes_on_keeps_the_prior_that_was_read_off():
    for model, data in ((MODELS["ard"], data_of("ard")), (MODELS["sppca"], data_of("sppca"))):
        former = model.from_data(*data, num_latents=2, loading_prior=model.loading_prior)
        more = tuple(2 * part for part in data)
        again = continuing(model, former).with_sizes_from(*more)
        for name in ("loading_variance", "loc_mean", "loc_variance", "noise_rate"):
            np.testing.assert_array_equal(getattr(again, name), getattr(former, name))
        other = continuing(model.replaced(standardize=True), former)
        assert other.loc_variance is None  # which is read in other units


@pytest.mark.parametrize("name", ["sppca", "probit", "ard", "flat"])
def test_unconstrained_coordinates_have_no_unit(name):
    """The same point in two units has the same coordinates in the fit: of NUTS, HMC, SVI and L-BFGS."""
    units = (SCALE, SHIFT, OUTPUT_SCALE, OUTPUT_SHIFT)
    found = []
    for own in ((1.0, 0.0, 1.0, 0.0), units):
        data = data_of(name, *own)
        model = MODELS[name].with_sizes_from(*data)
        scale, shift, t, d = own if name != "probit" else (*own[:2], 1.0, 0.0)
        rng = np.random.default_rng(3)
        x_values = {
            "loadings": scale * rng.normal(size=(5, 2)),
            "loc": shift + scale * rng.normal(size=5),
            "noise_variance": scale**2 * np.asarray(0.7),
        }
        values = {(key if name in ("ard", "flat") else f"{key}_x"): v for key, v in x_values.items()}
        if name == "ard":
            values["loading_precision"] = np.array([0.5, 2.0]) / scale**2
        if name in ("sppca", "probit"):
            size = model.num_outputs
            values |= {"loadings_y": t * rng.normal(size=(size, 2)), "loc_y": d + t * rng.normal(size=size)}
        if name == "sppca":
            values["noise_variance_y"] = t**2 * np.asarray(0.3)
        coordinates, units = coordinates_of(data, model.coordinate_freedom), model.units
        values = {n: coordinates.inward(v, units[n]) if n in units else v for n, v in values.items()}
        data = coordinates.parts_inward(data, model.data_names, units)
        with in_precision():
            model = inside(model, coordinates)
            values, data = jax.tree.map(jnp.asarray, (values, data))
            found.append(jax.tree.map(np.asarray, unconstrain_fn(program, (model, *data), {}, values)))
    for key, value in found[0].items():
        np.testing.assert_allclose(found[1][key], value, atol=1e-8, err_msg=key)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "name"), [("em", "sppca"), ("ep", "probit")])
def test_the_mode_under_priors_of_x_and_y_apart_has_no_gradient(method, name):
    """Log joint of the program at the estimate: expansion, M-step and prior agree, with 10 and .1 in y."""
    prior = {"loading_variance": (0.8, 0.1), "loc_variance": (2.0, 0.5), "noise_rate": (0.5, 0.1)}
    fields = {name_: getattr(MODELS[name], name_) for name_ in ("loading_prior", "output_likelihood")}
    model = SPPCA(num_latents=1, loc_mean=0.7, noise_concentration=2.0, **fields, **prior)
    x = X / np.nanstd(X)
    y = Y[:, :1] / np.nanstd(Y) if name == "sppca" else LABELS
    tree = fit(model, x, y, method=method, max_iterations=4000, tolerance=1e-13)
    sites = ("loadings_x", "loadings_y", "loc_x", "loc_y", "noise_variance_x", "noise_variance_y")
    values = {key: tree["variational"][key].values for key in sites if key in tree["variational"]}
    with in_precision():
        model = model.with_sizes_from(x, y)
        values, data = jax.tree.map(jnp.asarray, (values, (x, y)))
        joint = partial(log_joint, partial(program, model))
        slopes = jax.jit(jax.grad(joint))(values, *data)
        np.testing.assert_allclose(
            float(joint(values, *data)), float(tree["trace"]["objective"][-1]), rtol=1e-9
        )
    for key, slope in slopes.items():
        np.testing.assert_allclose(slope, 0.0, atol=2e-3, err_msg=key)
