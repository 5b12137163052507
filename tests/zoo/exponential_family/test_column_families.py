"""Mixed tables: every column by its own family, in any order, equal to the families one by one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density as program_log_density

import zoo
from inference import fit, load, model_of, predict, save
from inference.precision import in_precision
from zoo.exponential_family import ByColumn, Categorical, Gaussian, Ordinal, as_family
from zoo.exponential_family.cells import FamilyCells

KINDS = ("poisson", Categorical(3), "bernoulli", Ordinal(4), "poisson", Gaussian(None), "bernoulli")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    columns = [
        rng.poisson(2.0, 30),
        rng.integers(0, 3, 30),
        rng.integers(0, 2, 30),
        rng.integers(1, 5, 30),
        rng.poisson(1.0, 30),
        rng.normal(size=30),
        rng.integers(0, 2, 30),
    ]
    x = np.stack(columns, axis=1).astype(float)
    x[rng.uniform(size=x.shape) < 0.1] = np.nan
    return x


def test_cells_are_those_of_the_families(table):
    """Natural parameters lie column by column, a categorical column has two; cells and moments by family."""
    family = as_family(KINDS)
    assert family.columns == (0, 1, 2, 3, 0, 4, 2) and family.num_params(7) == 8
    assert family.param_columns(7) == (0, 1, 1, 2, 3, 4, 5, 6) and family.level_columns(7) == (3,)
    rng = np.random.default_rng(1)
    with in_precision():
        theta = jnp.asarray(rng.normal(size=(30, 8)))
        cuts = jnp.sort(jnp.asarray(rng.normal(size=(1, 3))), axis=1)
        x, noise = jnp.asarray(table), jnp.asarray(0.5)

        @jax.jit
        def of_all(theta):
            cells = FamilyCells(family.with_noise(noise), theta, cuts)
            return cells.log_cells(x), cells.mean_and_variance(), cells.sample(jax.random.key(0))

        @functools.partial(jax.jit, static_argnums=0)
        def alone(column, theta):
            own = as_family(KINDS[column])
            own = own.with_noise(noise) if own.learns_noise else own
            cells = FamilyCells(own, own.shaped(theta), cuts)
            return cells.log_cells(x[:, [column]])[:, 0], cells.mean_and_variance()

        found, moments, drawn = of_all(theta)
        place = {0: [0], 1: [1, 2], 2: [3], 3: [4], 4: [5], 5: [6], 6: [7]}
        for column in range(len(KINDS)):
            own, own_moments = alone(column, theta[:, np.asarray(place[column])])
            np.testing.assert_allclose(found[:, column], own, rtol=1e-12)
            for mixed, single in zip(moments, own_moments, strict=True):
                np.testing.assert_allclose(mixed[:, column], single[:, 0], rtol=1e-12)
    family.check(np.asarray(drawn))


def test_one_family_for_all_columns_is_that_family(table):
    x = table[:, [0, 4]]
    mixed = zoo.EPCA.from_data(x, family=("poisson", "poisson"), num_latents=1, beta=0.3)
    plain = zoo.EPCA.from_data(x, family="poisson", num_latents=1, beta=0.3)
    with in_precision():
        values = plain.starting_point(jax.random.key(0), jnp.asarray(x))
        one, other = (program_log_density(m, (jnp.asarray(x),), {}, values)[0] for m in (mixed, plain))
    np.testing.assert_allclose(one, other, rtol=1e-13)
    np.testing.assert_allclose(mixed.conjugate, np.broadcast_to(plain.conjugate, (2, 2)))


@pytest.mark.slow
def test_a_mixed_table_is_fitted_kept_and_completed(table, tmp_path):
    tree = fit(zoo.EPCA(family=KINDS, num_latents=1), table, method="map", max_iterations=60, tolerance=1e-4)
    assert tree["posterior"]["loc"].dims == ("chain", "draw", "feature_class")
    assert tree["posterior"]["cut_points"].dims == ("chain", "draw", "level_feature", "cut")
    assert float(tree["posterior"]["loc"][0, 0, 4]) == 0.0  # the ordinal column's cut points stand for it
    save(tree, tmp_path / "mixed.nc")
    back = load(tmp_path / "mixed.nc")
    assert model_of(back).family.columns == (0, 1, 2, 3, 0, 4, 2)
    filled = predict(back, table).to_numpy()
    missing = np.isnan(table)
    np.testing.assert_array_equal(filled[~missing], table[~missing])
    assert np.isfinite(filled).all() and set(filled[missing[:, 1], 1]) <= {0.0, 1.0, 2.0}


@pytest.mark.parametrize(
    ("families", "message"),
    [
        ((Gaussian(None), "ordinal", Ordinal(3)), "one Ordinal for several columns, not 2"),
        (("bernoulli", "cauchy"), "no family is called 'cauchy'"),
    ],
)
def test_mixtures_that_cannot_be(families, message):
    with pytest.raises(ValueError, match=message):
        zoo.EPCA(family=families)


def test_cells_are_checked_by_column(table):
    family = as_family(KINDS)
    bad = table.copy()
    bad[4, 3] = 5
    with pytest.raises(ValueError, match="levels from 1 to 4; row 4, column 3 is 5"):
        family.check(bad)
    with pytest.raises(ValueError, match="x has 2 columns and 7 families were given"):
        family.check(table[:, :2])
    with pytest.raises(ValueError, match="columns must name the place"):
        ByColumn((Gaussian(),), (0, 1))
    with pytest.raises(ValueError, match="ByColumn has no conjugate kernel"):
        zoo.EPCA(family=KINDS, beta=0.4)


def test_levels_that_differ_are_views():
    """Two numbers of levels in one table are refused with that way out; the fit ended in an error of dims."""
    families = Ordinal(3), Ordinal(5)
    with pytest.raises(
        ValueError, match=r"put the columns of each in a view of zoo\.Paired\(families, num_sh"
    ):
        zoo.EPCA(family=families, num_latents=1)
    dims = zoo.Paired(families, num_shared=1, num_features=(2, 1)).variable_dims
    assert dims["cut_points_0"] == ("feature_0", "cut_0") and dims["cut_points_1"] == ("feature_1", "cut_1")
    same = zoo.Paired((Ordinal(3), Ordinal(3)), num_shared=1, num_features=(2, 1)).variable_dims
    assert same["cut_points_0"] == ("feature_0", "cut")


@pytest.mark.slow
def test_views_with_different_levels_are_fitted_and_predicted():
    rng = np.random.default_rng(0)
    y = rng.integers(1, 4, size=(30, 1)), rng.integers(1, 6, size=(30, 1))
    tree = fit(zoo.Paired((Ordinal(3), Ordinal(5)), num_shared=1), *y, method="map")
    assert tree["posterior"].sizes["cut_0"] == 2 and tree["posterior"].sizes["cut_1"] == 4
    levels = predict(tree, y[0], None)
    assert float(levels.min()) > 1 and float(levels.max()) < 5
