"""Gaussian cells of unknown noise: x -> s x + c gives the same scores, and a bound moved by log s a cell."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inference
import zoo
from inference import fit
from inference.calibration import elbo_check
from inference.precision import in_precision
from tests.support.log_joint import log_joint
from zoo.exponential_family import Gaussian

UNKNOWN = Gaussian(noise_variance=None)
CHANGES = {  # L-BFGS ends anywhere along a rotation: exact only where no number is rounded
    "map": ((1.0, 0.0), (1024.0, 0.0)),
    "vb": ((1.0, 0.0), (1e3, 1e6), (1e-3, -7.0)),
    "gibbs": ((1.0, 0.0), (1e3, -7e3)),
    "nuts": ((1.0, 0.0), (1024.0, 0.0)),
}


@pytest.fixture(scope="module")
def table():
    r = np.random.default_rng(4)
    x = r.normal(size=(40, 2)) @ r.normal(size=(2, 5)) + 0.3 * r.normal(size=(40, 5)) + r.normal(size=5)
    x[2, 3] = np.nan
    return x


def options_of(method):
    if method in ("gibbs", "nuts"):
        return dict(num_chains=1, num_warmup=15, num_samples=10)
    return dict(max_iterations=200, tolerance=1e-9, num_samples=10)


def fitted(model, *data, method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(model, *data, method=method, **options_of(method))


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        "map",
        "vb",
        pytest.param("gibbs", marks=pytest.mark.slow),
        pytest.param("nuts", marks=pytest.mark.slow),
    ],
)
def test_epca(table, method):
    model, found = zoo.EPCA(family=UNKNOWN, num_latents=2), []
    for scale, shift in CHANGES[method]:
        x = scale * table + shift
        tree = fitted(model, x, method=method)
        last = float(np.asarray(tree["trace"]["objective"]).ravel()[-1])
        lost = np.isfinite(x).sum() * np.log(scale)
        lost += (5 * 3 + 2) * np.log(scale) if method == "map" else 0.0  # loadings and means, and the noise
        new = x[:5].copy()
        new[0, 0] = np.nan
        scores = inference.transform(tree, new).to_numpy()
        predicted = inference.predict(tree, new)
        found.append(
            (
                last + lost if method in ("map", "vb") else 0.0,
                scores,
                (predicted.to_numpy() - shift) / scale,
                predicted.standard_deviation.to_numpy() / scale,
                inference.log_density(tree, new).to_numpy() + np.isfinite(new).sum(1) * np.log(scale),
                tree["posterior"]["loadings"].to_numpy() / scale,
                tree["posterior"]["noise_variance"].to_numpy() / scale**2,
            )
        )
    for other in found[1:]:
        for first, value in zip(found[0], other, strict=True):
            np.testing.assert_allclose(value, first, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "specific"),
    [("map", "low_rank"), ("vb", "low_rank"), ("gibbs", "low_rank"), ("vb", "full_covariance")]
    + [("gibbs", "full_covariance"), ("nuts", "full_covariance"), ("closed_form", "full_covariance")],
)
def test_paired_views_in_units_of_their_own(table, method, specific):
    x, y = np.nan_to_num(table)[:, :3], np.nan_to_num(table)[:, 3:]
    fields = {"num_specific": (1, 0)} if specific == "low_rank" else {"specific": specific}
    model, found = zoo.Paired(families=(UNKNOWN, UNKNOWN), num_shared=1, **fields), []
    rounds = method not in ("map", "nuts")  # see CHANGES
    for (s, c), (t, d) in (
        ((1.0, 0.0), (1.0, 0.0)),
        ((1e3, -5e4), (1e-2, 3.0)) if rounds else ((1024.0, 0.0), (2.0**-7, 0.0)),
    ):
        views = s * x + c, t * y + d
        if method == "closed_form":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = fit(model, *views, method=method)
        else:
            tree = fitted(model, *views, method=method)
        filled = inference.predict(tree, views[0][:5], None, what="y_1")
        scores = inference.transform(tree, *(view[:5] for view in views)).to_numpy()
        found.append(
            (
                scores * np.sign(scores[0]),  # the sign is that of the largest loading, which has a unit
                (filled.to_numpy() - d) / t,
                filled.standard_deviation.to_numpy() / t,
                inference.log_density(tree, *(v[:5] for v in views)).to_numpy()
                + 3 * np.log(s)
                + 2 * np.log(t),
            )
        )
    for first, value in zip(*found, strict=True):
        np.testing.assert_allclose(value, first, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {"num_specific": (1, 1), "ard": True, "view_weights": (1.0, 0.6)},
        pytest.param({"specific": "full_covariance", "view_weights": (1.0, 0.6)}, marks=pytest.mark.slow),
    ],
    ids=["low_rank", "full_covariance"],
)
def test_the_objective_of_a_point_is_the_density_of_the_program(table, fields):
    """Fixed zeros, the second half of a symmetric matrix, weighted views: each has its own share of log s."""
    views = 1e3 * np.nan_to_num(table)[:, :3] + 5.0, 1e-2 * np.nan_to_num(table)[:, 3:] - 7.0
    model = zoo.Paired(families=(UNKNOWN, UNKNOWN), num_shared=1, **fields)
    tree = fitted(model, *views, method="map")
    values = {name: value[0, 0].to_numpy() for name, value in tree["posterior"].data_vars.items()}
    with in_precision():
        model = model.with_sizes_from(*views)
        density = float(log_joint(model.explicit, values, *views))
    np.testing.assert_allclose(float(tree["trace"]["objective"][-1]), density, rtol=1e-9)


def test_programs_and_units(table):
    """The log density of all sites at values moved by hand; a planted fault; known noise has no unit."""
    x, (scale, shift) = np.nan_to_num(table), (50.0, 7.0)
    values = {
        "loadings": np.random.default_rng(0).normal(size=(5, 2)),
        "loc": np.zeros(5),
        "latents": np.random.default_rng(1).normal(size=(40, 2)),
        "noise_variance": np.array(0.4),
    }
    density = {}
    with in_precision():
        for s, c in ((1.0, 0.0), (scale, shift)):
            model = zoo.EPCA.from_data(s * x + c, family=UNKNOWN, num_latents=2)
            moved = values | {"loadings": s * values["loadings"], "loc": c + s * values["loc"]}
            moved["noise_variance"] = s**2 * values["noise_variance"]
            density[s] = float(log_joint(model, moved, jnp.asarray(s * x + c)))
        wrong = float(log_joint(model, moved | {"loc": s * x[0]}, jnp.asarray(s * x + c)))
    lost = (x.size + 15 + 2) * np.log(scale)
    np.testing.assert_allclose(density[scale] + lost, density[1.0], rtol=1e-10)
    assert abs(wrong + lost - density[1.0]) > 1.0
    assert zoo.EPCA.from_data(x, family="gaussian").unit is None
    assert zoo.EPCA.from_data(x, family=UNKNOWN, loc_variance=7.0).unit is None  # given: in the data's units
    mixed = zoo.Paired.from_data(x, np.eye(40, 3), families=(UNKNOWN, "bernoulli"))
    assert mixed.unit[1] == 1.0 and set(mixed.units) & {"y_0", "y_1"} == {"y_0"}


@pytest.mark.slow
def test_the_guide_of_a_bound_in_units(table):
    x = 1e3 * np.nan_to_num(table) + 5e3
    tree = fitted(zoo.EPCA(family=UNKNOWN, num_latents=1), x, method="vb")
    with in_precision():
        check = elbo_check(
            inference.model_of(tree).explicit,
            inference.guide(tree),
            float(tree["trace"]["objective"][-1]),
            (x,),
            key=jax.random.key(0),
            num_particles=1000,
        )
    assert check.passed, check
