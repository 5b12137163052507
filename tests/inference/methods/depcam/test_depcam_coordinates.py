"""Fits of DEPCAM are those of the table about its origin and in its scale, whatever the method."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import inference
import zoo
from inference import fit
from inference.precision import in_precision
from tests.support.log_joint import log_joint
from zoo.exponential_family import Exponential, Gaussian
from zoo.exponential_family.local_pca import components_of

CLIMB = {"max_iterations": 12, "tolerance": 0.0, "num_restarts": 1}
CHAIN = {"num_warmup": 20, "num_samples": 6, "num_chains": 1, "max_tree_depth": 4}
SIZES = {"num_components": 2, "num_latents": 1}
UNKNOWN = Gaussian(noise_variance=None)

pytestmark = pytest.mark.filterwarnings("ignore:.*has not converged")


@pytest.fixture(scope="module")
def table():
    """30 rows in two groups, one cell missing, mean variance 1."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 4)) + 3.0 * (np.arange(30) < 15)[:, None] * [1.0, -1.0, 0.5, 0.0]
    x[3, 2] = np.nan
    return (x - np.nanmean(x, axis=0)) / np.sqrt(np.nanvar(x, axis=0).mean())


def joint_of(tree, x):
    """The log joint density of the program at the estimate, nats."""
    values = {str(name): value.values[0, -1] for name, value in tree["posterior"].data_vars.items()}
    with in_precision():
        held = {n: jnp.asarray(v) for n, v in values.items() if n not in ("assignments", "num_occupied")}
        return float(log_joint(inference.model_of(tree), held, x)), values


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("em", {"sparsity": 0.0}),
        *[
            pytest.param(*pair, marks=pytest.mark.slow)
            for pair in (
                ("em", {"scale_prior": "ard"}),
                ("vb", {}),
                ("map", {"sparsity": 0.0}),
                ("em", {"standardize": True}),
                ("em", {"family": Exponential(), "scale_prior": "ard"}),
                ("map", {"family": Exponential()}),
            )
        ],
    ],
)
@pytest.mark.filterwarnings("ignore:sparsity=0 has no optimum")
def test_the_objective_is_the_log_joint_of_the_rows_as_passed(table, method, fields):
    """That of em and vb without the carriers' density, and of em's latents those of the other component."""
    x = np.exp(table) * 40.0 if "family" in fields else table * 40.0 + 7.0
    tree = fit(zoo.DEPCAM(**SIZES | {"family": UNKNOWN} | fields), x, method=method, **CLIMB)
    joint, values = joint_of(tree, x)
    if method != "map":
        joint -= stats.norm.logpdf(values["carriers"]).sum()
    own = float(tree["trace"]["objective"][-1])
    if method == "em" and "latents" in values:  # whose density stands within the sum over components
        y = values["latents"]
        with in_precision():
            local = components_of(inference.model_of(tree), jax.tree.map(jnp.asarray, values))
            theta = np.asarray(local.natural_params(jnp.asarray(y)))
        cells = np.where(np.isnan(x)[:, None], 0.0, np.log(-theta) + theta * np.nan_to_num(x)[:, None])
        by_component = cells.sum(-1) + np.log(values["weights"])
        own_prior = stats.norm.logpdf(y).sum(-1)
        joint -= np.logaddexp.reduce(by_component, axis=1).sum() + own_prior.sum()
        joint += np.logaddexp.reduce(by_component + own_prior, axis=1).sum()
    assert own == pytest.approx(joint, rel=1e-9)


@pytest.mark.slow
def test_rows_a_million_deviations_away_are_seen_in_single_precision(table):
    ends = [
        fit(zoo.DEPCAM(family=UNKNOWN, **SIZES), table + 1e6, method="em", dtype=dtype, **CLIMB)
        for dtype in ("float64", "float32")
    ]
    double, single = (float(tree["trace"]["objective"][-1]) for tree in ends)
    assert single == pytest.approx(double, abs=2e-3)
    offsets = [tree["posterior"]["offsets"].values - 1e6 for tree in ends]
    np.testing.assert_allclose(offsets[1], offsets[0], atol=2e-3)


def test_digits_that_a_shift_would_keep_are_missed_where_there_is_none():
    x = 1e7 + np.random.default_rng(0).uniform(size=(20, 3))
    model = zoo.DEPCAM(family=Exponential(), **SIZES)
    with pytest.warns(UserWarning, match="float32.* loses digits far from the origin: column 0 of x keeps"):
        fit(model, x, method="map", dtype="float32", max_iterations=1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the expectations of")
@pytest.mark.filterwarnings("ignore:[25] of 5 rows have NaN")  # of rates, in both units
@pytest.mark.parametrize("family", [UNKNOWN, Exponential()])
@pytest.mark.parametrize("method", ["nuts", "map", "em"])
def test_steps_and_answers_are_those_of_the_table_in_its_scale(table, family, method):
    """Of rows 1e4 as large, Gaussian ones about 1e5; defaults of the priors of rates are given."""
    is_rate = family.theta_is_negative
    rows = np.exp(table) if is_rate else table
    scale, place = 1e4, 0.0 if is_rate else 1e5
    fields = {"sparsity": 0.5, "offset_variance": 2.0} if is_rate else {}
    away = {"sparsity": 0.5 * scale, "offset_variance": 2.0 / scale**2} if is_rate else {}
    settings = CHAIN if method == "nuts" else CLIMB
    trees = [
        fit(zoo.DEPCAM(family=family, **SIZES, **own), x, method=method, **settings)
        for x, own in ((rows, fields), (rows * scale + place, away))
    ]
    power = -1.0 if is_rate else 1.0
    first, second = (tree["posterior"] for tree in trees)
    np.testing.assert_allclose((second["offsets"] - place) / scale**power, first["offsets"], rtol=1e-5)
    np.testing.assert_allclose(second["scales"] / scale**power, first["scales"], rtol=1e-5, atol=1e-7)
    norms = first["loading_norms"] if "loading_norms" in first else None
    if norms is not None:
        np.testing.assert_allclose(second["loading_norms"] / scale ** (2 * power), norms, rtol=1e-5)
    if method == "nuts":
        for name in ("step_size", "n_steps", "diverging"):
            np.testing.assert_allclose(*(tree["sample_stats"][name].values for tree in trees), rtol=1e-4)
    new = rows[:5].copy()
    new[0, 1] = np.nan
    for what in ("cells", "reconstruction"):
        one, other = (
            inference.predict(tree, own, what=what)
            for tree, own in zip(trees, (new, new * scale + place), strict=True)
        )
        np.testing.assert_allclose((other - place) / scale, one, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(
            other.standard_deviation / scale, one.standard_deviation, rtol=1e-5, atol=1e-7
        )
    one, other = (
        inference.log_density(tree, own) for tree, own in zip(trees, (new, new * scale + place), strict=True)
    )
    np.testing.assert_allclose(other + np.isfinite(new).sum(1) * np.log(scale), one, rtol=1e-5, atol=1e-6)
