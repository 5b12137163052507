"""Mixed tables: every column by its own family, in any order, equal to the families one by one."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pandas as pd
import pytest
from numpyro.infer.util import constrain_fn, potential_energy
from scipy import stats

import zoo
from inference import fit, load, model_of, predict, save
from inference.precision import in_precision
from tests.support.log_joint import log_joint
from zoo.answers import start_of
from zoo.exponential_family import ByColumn, Categorical, Gaussian, Ordinal, as_family
from zoo.exponential_family.cells import FamilyCells
from zoo.exponential_family.cut_points import OrderBlocks, cut_points_prior, starting_cut_points
from zoo.intake import read_columns
from zoo.intake.families import dim_labels

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
        values = start_of(plain, jax.random.key(0), jnp.asarray(x))
        one, other = (log_joint(m, values, x) for m in (mixed, plain))
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


def test_mixtures_that_cannot_be():
    with pytest.raises(ValueError, match="no family is called 'cauchy'"):
        zoo.EPCA(family=("bernoulli", "cauchy"))
    with pytest.raises(ValueError, match="one Gaussian of unknown variance for several columns, not 2 of"):
        ByColumn((Gaussian(None), Gaussian(None)), (0, 1))


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


LEVELS = (Ordinal(3), "poisson", Ordinal(5), Ordinal(3), Ordinal(2))
AS_VIEWS = ((0, 3), (1,), (2,), (4,))  # the same columns, those of a family together


@pytest.fixture(scope="module")
def levels():
    """A table whose ordinal columns have 3, 5, 3 and 2 levels, with holes."""
    rng = np.random.default_rng(5)
    sizes = {0: 3, 2: 5, 3: 3, 4: 2}
    columns = [rng.integers(1, sizes[c] + 1, 25) if c in sizes else rng.poisson(2.0, 25) for c in range(5)]
    x = np.stack(columns, axis=1).astype(float)
    x[rng.uniform(size=x.shape) < 0.1] = np.nan
    return x


def test_blocks_are_put_in_order_as_vectors_are():
    sizes = (2, 4, 1, 3)
    with in_precision():
        x = jnp.asarray(np.random.default_rng(0).normal(scale=2.0, size=(3, sum(sizes))))
        transform, vector = OrderBlocks(sizes), numpyro.distributions.transforms.OrderedTransform()
        y = transform(x)
        parts = [vector(part) for part in jnp.split(x, np.cumsum(sizes)[:-1].tolist(), axis=-1)]
        np.testing.assert_allclose(y, jnp.concatenate(parts, axis=-1), rtol=1e-15)
        np.testing.assert_allclose(transform.inv(y), x, rtol=1e-12, atol=1e-12)
        slope = jax.vmap(jax.jacobian(transform))(x)
        np.testing.assert_allclose(
            transform.log_abs_det_jacobian(x, y), jnp.linalg.slogdet(slope)[1], rtol=1e-12
        )
        assert bool(transform.codomain(y).all()) and not bool(transform.codomain(-y).any())
        assert bool(transform.codomain(transform.codomain.feasible_like(y)).all())


def _both_models(rng):
    """The table and the views, and unconstrained values of their sites that say the same."""
    table = zoo.EPCA(family=LEVELS, num_latents=2, num_features=5)
    families = (Ordinal(3), "poisson", Ordinal(5), Ordinal(2))
    views = zoo.Paired(families, num_shared=2, num_specific=(0,) * 4, num_features=(2, 1, 1, 1))
    cuts = {0: rng.normal(size=2), 2: rng.normal(size=4), 3: rng.normal(size=2), 4: rng.normal(size=1)}
    loadings, latents, loc = rng.normal(size=(5, 2)), rng.normal(size=(25, 2)), rng.normal(size=1)
    own = {"loadings": loadings, "latents": latents, "loc": loc}
    own["cut_points"] = np.concatenate([cuts[c] for c in (0, 2, 3, 4)])
    split = {"latents": latents, "loc_1": loc}
    for v, columns in enumerate(AS_VIEWS):
        split[f"loadings_{v}"] = loadings[list(columns)]
        if v != 1:
            split[f"cut_points_{v}"] = np.stack([cuts[c] for c in columns])
    return table, views, own, split


def test_cut_points_begin_where_the_levels_of_each_column_are_equally_probable():
    found = 1 / (1 + np.exp(-starting_cut_points((1, 3))))
    np.testing.assert_allclose(found, [1 / 2, 1 / 4, 2 / 4, 3 / 4], rtol=1e-6)


@pytest.mark.parametrize("counts", [(3, 3), (1, 3)])
def test_the_first_cut_point_and_the_logs_of_the_steps_are_normal_of_deviation_five(counts):
    """Whether columns have equally many or not: density by SciPy and the change of variables."""
    rows = [np.array([-4.0, 1.5, 9.0])[:count] + column for column, count in enumerate(counts)]
    expected = 0.0
    for row in rows:
        steps = np.diff(row)
        own = np.concatenate([row[:1], np.log(steps)])
        expected += stats.norm.logpdf(own, 0.0, 5.0).sum() - np.log(steps).sum()
    with in_precision():
        whole = jnp.asarray(np.stack(rows) if len(set(counts)) == 1 else np.concatenate(rows))
        np.testing.assert_allclose(cut_points_prior(counts).log_prob(whole), expected, rtol=1e-12)


def test_levels_that_differ_lie_in_one_table(levels):
    """The table is the views of `zoo.Paired` with a number of levels each: energy and gradient are equal."""
    table, views, own, split = _both_models(np.random.default_rng(6))
    with in_precision():
        data = (jnp.asarray(levels),), tuple(jnp.asarray(levels[:, list(own)]) for own in AS_VIEWS)
        found = []
        for model, parts, values in ((table, data[0], own), (views, data[1], split)):
            energy = functools.partial(potential_energy, model, parts, {})
            found.append(jax.jit(jax.value_and_grad(energy))(jax.tree.map(jnp.asarray, values)))
        (one, slope), (other, slopes) = found
        np.testing.assert_allclose(one, other, rtol=1e-13)
        order = [slopes[f"cut_points_{v}"][row] for v, row in ((0, 0), (2, 0), (0, 1), (3, 0))]
        np.testing.assert_allclose(slope["cut_points"], jnp.concatenate(order), rtol=1e-10)
        np.testing.assert_allclose(slope["latents"], slopes["latents"], rtol=1e-10)


@pytest.mark.slow
def test_cells_of_one_table_are_completed_as_those_of_views(levels):
    table, views, own, split = _both_models(np.random.default_rng(7))
    with in_precision():
        whole, parts = (jnp.asarray(levels),), tuple(jnp.asarray(levels[:, list(own)]) for own in AS_VIEWS)
        found = table.predicted(_in_order(table, whole, own), *whole)
        for v, columns in enumerate(AS_VIEWS):
            expected = views.predicted(_in_order(views, parts, split), *parts, what=f"y_{v}")
            for mine, theirs in zip(found, expected, strict=True):
                np.testing.assert_allclose(mine[:, list(columns)], theirs, rtol=1e-9)


def _in_order(model, data, values):
    return constrain_fn(model, data, {}, jax.tree.map(jnp.asarray, values))


def test_cut_points_have_names(levels):
    frame = pd.DataFrame(levels, columns=list("abcde"))
    words = {1: "low", 2: "high"}
    frame["e"] = pd.Categorical(frame["e"].map(words), ["low", "high", "higher", "most"], ordered=True)
    frame["a"] = pd.Categorical(
        frame["a"].map({1: "no", 2: "maybe", 3: "yes"}), ["no", "maybe", "yes"], ordered=True
    )
    model = zoo.EPCA.from_data(frame[["a", "e"]], num_latents=1)
    assert [model.family.families[place].num_levels for place in model.family.columns] == [3, 4]
    assert model.variable_dims["cut_points"] == ("level_cut",)
    read = read_columns(frame[["a", "e"]])
    named = dim_labels(model, {"feature": ["a", "e"]}, (read,))
    assert named == {
        "level_cut": ["a: no|maybe", "a: maybe|yes", "e: low|high", "e: high|higher", "e: higher|most"]
    }
    numbered = dim_labels(zoo.EPCA(family=LEVELS, num_features=5), {"feature": list("abcde")})
    assert numbered["level_cut"][:3] == ["a: 1|2", "a: 2|3", "c: 1|2"] and len(numbered["level_cut"]) == 9
    dims = zoo.Paired((LEVELS, Ordinal(5)), num_shared=1, num_features=(5, 2)).variable_dims
    assert dims["cut_points_0"] == ("level_cut_0",) and dims["cut_points_1"] == ("feature_1", "cut_1")
    dims = zoo.Paired((Ordinal(3), Ordinal(5)), num_shared=1, num_features=(2, 1)).variable_dims
    assert dims["cut_points_0"] == ("feature_0", "cut_0") and dims["cut_points_1"] == ("feature_1", "cut_1")
    same = zoo.Paired((Ordinal(3), Ordinal(3)), num_shared=1, num_features=(2, 1)).variable_dims
    assert same["cut_points_0"] == ("feature_0", "cut")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["map", "svi", "nuts"])
def test_levels_that_differ_are_fitted_kept_and_completed(levels, tmp_path, method):
    frame = pd.DataFrame(levels, columns=list("abcde"))
    settings = {"nuts": {"num_warmup": 30, "num_samples": 20, "num_chains": 1}, "svi": {"max_iterations": 50}}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*has not converged")
        model = zoo.EPCA(family=LEVELS, num_latents=1)
        tree = fit(model, frame, method=method, **settings.get(method, {}))
    cuts = tree["posterior"]["cut_points"]
    assert cuts.dims == ("chain", "draw", "level_cut") and cuts["level_cut"].values[2] == "c: 1|2"
    rising = np.diff(cuts.to_numpy(), axis=-1) > 0
    assert rising[..., [0, 2, 3, 4, 6]].all()
    save(tree, tmp_path / "levels.nc")
    filled = predict(load(tmp_path / "levels.nc"), frame).to_numpy()
    missing = np.isnan(levels)
    np.testing.assert_array_equal(filled[~missing], levels[~missing])
    assert (filled >= 0).all() and (filled[:, [0, 2, 3, 4]] <= [3, 5, 3, 2]).all()


@pytest.mark.slow
def test_views_with_different_levels_are_fitted_and_predicted():
    rng = np.random.default_rng(0)
    y = rng.integers(1, 4, size=(30, 1)), rng.integers(1, 6, size=(30, 1))
    tree = fit(zoo.Paired((Ordinal(3), Ordinal(5)), num_shared=1), *y, method="map")
    assert tree["posterior"].sizes["cut_0"] == 2 and tree["posterior"].sizes["cut_1"] == 4
    levels = predict(tree, y[0], None)
    assert float(levels.min()) > 1 and float(levels.max()) < 5
