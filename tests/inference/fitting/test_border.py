"""A fit in the coordinates of its data: answers, densities and steps are those of the data as passed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers

import inference
import zoo
from inference import fit
from inference.precision import in_precision
from tests.support.log_joint import log_joint
from tests.support.models_with_units import CASES, CorrelatedRows, EvenRows, RobustRows, StatedRows
from zoo.coordinates import Coordinates

SCALES, PLACES = np.array([1e-5, 1.0, 1e6]), np.array([2e-3, -4.0, 5e8])
CHAINS = {"num_warmup": 20, "num_samples": 10, "num_chains": 1, "max_tree_depth": 5}
CLIMB = {"max_iterations": 200, "tolerance": 1e-10, "num_samples": 1}

pytestmark = pytest.mark.filterwarnings("ignore:.*has not converged")


@pytest.fixture(autouse=True, scope="module")
def registered():
    models = (RobustRows, EvenRows, CorrelatedRows, StatedRows)
    for model in models:
        zoo.register(model, methods={})
    yield
    for model in models:
        zoo.unregister(model)


@pytest.fixture(scope="module")
def table():
    """30 standard rows, one cell missing."""
    z = np.random.default_rng(0).normal(size=(30, 3))
    z[4, 1] = np.nan
    return z


def model_of(name, x):
    return CASES[name].model(np.nanmean(x, axis=0), np.nanstd(x, axis=0))


def joint_of(model, x, values):
    """The log joint density of the program, nats."""
    with in_precision():
        given = {name: jnp.asarray(value) for name, value in values.items()}
        return float(log_joint(model, given, x))


def estimate(tree):
    return {str(name): value.values[0, -1] for name, value in tree["posterior"].data_vars.items()}


def test_nuts_takes_the_steps_of_the_standardised_table(table):
    """Columns from 1e-5 to 1e6, far from the origin; the objective is the log joint of the draws."""
    x = table * SCALES + PLACES
    trees = [fit(model_of("robust", rows), rows, method="nuts", **CHAINS) for rows in (table, x)]
    for name in ("step_size", "n_steps", "diverging"):
        first, second = (tree["sample_stats"][name].values for tree in trees)
        np.testing.assert_allclose(second, first, rtol=1e-5)
    first, second = (tree["posterior"] for tree in trees)
    np.testing.assert_allclose((second["loc"] - PLACES) / SCALES, first["loc"], atol=1e-5)
    np.testing.assert_allclose(second["scale"] / SCALES, first["scale"], rtol=1e-5)
    lp = trees[1]["sample_stats"]["lp"].values
    np.testing.assert_allclose(trees[1]["trace"]["objective"].values[:, 20:], lp, rtol=1e-10)
    last = joint_of(inference.model_of(trees[1]), x, estimate(trees[1]))
    assert lp[0, -1] == pytest.approx(last, rel=1e-8)
    np.testing.assert_array_equal(trees[1]["observed_data"]["x"], x)


@pytest.mark.parametrize(
    "name",
    [
        "robust",
        "stated in a unit",
        pytest.param("stated by column", marks=pytest.mark.slow),
        pytest.param("even", marks=pytest.mark.slow),
        pytest.param("correlated", marks=pytest.mark.slow),
    ],
)
def test_map_reports_the_log_joint_of_the_rows_as_passed_and_goes_on_from_its_tree(name, table):
    x = np.nan_to_num(table) * (1e4 if CASES[name].scale == "common" else SCALES) + PLACES
    model = model_of(name, x)
    start = {"loc": x.mean(axis=0)} | {"scale": x.std(axis=0)} if name == "robust" else None
    start = {"loc": x[0], "noise_precision": np.array(1 / x.var())} if name == "even" else start
    if name.startswith("stated"):
        start = {"loc": x[0], "noise_variance": np.array(x.var() if name.endswith("unit") else 1.0)}
    tree = fit(model, x, method="map", init=start, **CLIMB)
    own = float(tree["trace"]["objective"][-1])
    assert own == pytest.approx(joint_of(inference.model_of(tree), x, estimate(tree)), rel=1e-9)
    again = fit(model, x, method="map", init=tree, **CLIMB | {"max_iterations": 1, "tolerance": 0.0})
    assert -1e-9 < float(again["trace"]["objective"][0]) - own < 1e-3
    stored = jax.tree.leaves(inference.model_of(tree))
    for found, wanted in zip(stored, jax.tree.leaves(model), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_single_precision_sees_rows_a_million_deviations_away(table):
    x = table + 1e6
    ends = {}
    for dtype in ("float64", "float32"):
        tree = fit(
            model_of("robust", x),
            x,
            method="map",
            dtype=dtype,
            init={"loc": x[0] + 0.1, "scale": np.ones(3)},
            max_iterations=100,
        )
        ends[dtype] = estimate(tree)
    np.testing.assert_allclose(ends["float32"]["loc"] - 1e6, ends["float64"]["loc"] - 1e6, atol=2e-3)
    np.testing.assert_allclose(ends["float32"]["scale"], ends["float64"]["scale"], rtol=2e-3)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("robust", "normal"),
        pytest.param("even", "multivariate_normal", marks=pytest.mark.slow),
        pytest.param("correlated", "normal", marks=pytest.mark.slow),
        pytest.param("ppca ard isotropic", "low_rank_multivariate_normal", marks=pytest.mark.slow),
        pytest.param("ppca gaussian diagonal standardize", "normal", marks=pytest.mark.slow),
    ],
)
def test_a_guide_is_that_of_the_standardised_table(table, name, family):
    """Its draws by one key, real or positive or matrices, are those there in other coordinates."""
    rows = np.where(np.isnan(table), 0.0, table)
    common = not name.endswith("standardize") and CASES[name].scale == "common"
    scale, place = (np.array(20.0) if common else SCALES), np.array([3.0, -4.0, 5e2])
    own = Coordinates((place,), (scale,))
    draws, bounds = [], []
    for x in (rows, rows * scale + place):
        model = model_of(name, x)
        tree = fit(model, x, method="svi", guide=family, max_iterations=20, num_samples=2)
        bounds.append(tree.attrs["elbo"])
        with in_precision():
            program = handlers.seed(inference.guide(tree), jax.random.key(3))
            trace = handlers.trace(program).get_trace(jnp.asarray(x))
        sites = (site for site in trace.items() if site[1]["type"] == "sample")
        draws.append({n: np.asarray(s["value"]) for n, s in sites if not s["infer"].get("is_auxiliary")})
    units = model.units
    for site, value in draws[0].items():
        expected = own.outward(value, units[site]) if site in units else value
        np.testing.assert_allclose(draws[1][site], expected, rtol=1e-5, atol=1e-7, err_msg=site)
    lost = own.log_scale_of_rows((rows,)).sum()
    assert bounds[1] == pytest.approx(bounds[0] - lost, rel=1e-6)


@pytest.mark.slow
def test_rows_of_weight_two_lose_their_log_scale_twice(table):
    x = table * SCALES + PLACES
    settings = {"method": "nuts"} | CHAINS | {"num_warmup": 5}
    weighted = fit(model_of("robust", x), x, sample_weight=np.full(30, 2.0), **settings)
    doubled = fit(model_of("robust", x), np.concatenate([x, x]), **settings)
    np.testing.assert_allclose(weighted["trace"]["objective"], doubled["trace"]["objective"], rtol=1e-6)
