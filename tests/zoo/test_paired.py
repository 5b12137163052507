"""The program of paired views: the joint density by hand, zero blocks, missing views, priors, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from scipy import linalg, special, stats

import zoo
from inference.precision import in_precision
from tests.support.log_joint import log_joint
from zoo.answers import start_of
from zoo.exponential_family import Binomial, Gaussian
from zoo.exponential_family.natural_params import PadZeros, padded

ROWS = 7
DRAWS = {
    "gaussian": lambda rng, d: rng.normal(size=(ROWS, d)),
    "bernoulli": lambda rng, d: rng.integers(0, 2, (ROWS, d)).astype(float),
    "poisson": lambda rng, d: rng.poisson(2.0, (ROWS, d)).astype(float),
}


def views_of(families, sizes=(4, 3, 5), seed=0):
    """Views with a hole each, and a row that misses the last view."""
    rng = np.random.default_rng(seed)
    views = [DRAWS[family](rng, d) for family, d in zip(families, sizes, strict=False)]
    for v, view in enumerate(views):
        view[v + 1, v] = np.nan
    views[-1][6] = np.nan
    return views


def start(model, views, seed=0):
    with in_precision():
        values = start_of(model, jax.random.key(seed), *map(jnp.asarray, views))
        return jax.tree.map(np.asarray, values)


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("beta", [0.0, 0.4])
def test_joint_density_is_the_one_on_paper(beta):
    """Three views of three families with weights: Gaussians over free entries, kernels over all cells."""
    families = ("bernoulli", "poisson", "gaussian")
    views, alpha = views_of(families), np.array([1.0, 0.5, 2.0])
    model = zoo.Paired.from_data(
        *views,
        families=families,
        num_shared=1,
        num_specific=(0, 1, 2),
        beta=beta,
        latent_variance=0.5,
        loading_variance=2.0,
        view_weights=alpha,
    )
    values = start(model, views)
    pattern = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 1]]
    scale = 1 / (1 - beta) ** 0.5
    expected = stats.norm.logpdf(values["latents"], 0, scale).sum()
    first = 0
    for v, y in enumerate(views):
        loadings, loc = values[f"loadings_{v}"], values[f"loc_{v}"]
        seen = np.array(pattern[v], bool)
        assert (loadings[:, ~seen] == 0).all() and (loadings[:, seen] != 0).all()
        expected += stats.norm.logpdf(loadings[:, seen], 0, scale).sum() + stats.norm.logpdf(loc, 0, 10).sum()
        theta = values["latents"] @ loadings.T + loc
        cells = (
            stats.bernoulli.logpmf(np.nan_to_num(y), 1 / (1 + np.exp(-theta))),
            stats.poisson.logpmf(np.nan_to_num(y), np.exp(theta)),
            stats.norm.logpdf(y, theta),
        )[v]
        expected += alpha[v] * np.where(np.isnan(y), 0, cells).sum()
        if beta:
            g = (np.log1p(np.exp(theta)), np.exp(theta), theta**2 / 2)[v]
            lam, nu = model.conjugate[first : first + y.shape[1]].T
            expected += beta * (lam * theta - nu * g).sum()
        first += y.shape[1]
    np.testing.assert_allclose(log_joint(model, values, *views), expected, rtol=1e-11)


def test_full_covariance_is_the_model_of_gibecca():
    """Inverse-Wishart covariances (as Wishart precisions), noisy natural parameters, ARD over both views."""
    views = views_of(("bernoulli", "gaussian"))
    model = zoo.Paired.from_data(
        *views,
        families=("bernoulli", Gaussian(None)),
        num_shared=2,
        specific="full_covariance",
        ard=True,
        covariance_scale=0.7,
        covariance_degrees=3.0,
    )
    rng = np.random.default_rng(1)
    values = start(model, views)
    assert set(values) == {
        *("latents", "loadings_0", "loadings_1", "loc_0", "loc_1", "loading_precision"),
        *("specific_precision_0", "specific_precision_1", "natural_params_0"),
    }
    for v, d in enumerate((4, 3)):
        values[f"specific_precision_{v}"] = stats.wishart(d + 4, np.eye(d)).rvs(random_state=rng)
    values["natural_params_0"] = rng.normal(size=(ROWS, 4))
    values["loading_precision"] = np.array([0.5, 2.0])
    expected = stats.norm.logpdf(values["latents"]).sum()
    expected += stats.gamma.logpdf(values["loading_precision"], 1.0).sum()
    for v, d in enumerate((4, 3)):
        precision = values[f"specific_precision_{v}"]
        expected += stats.wishart.logpdf(precision, d + 3.0, np.eye(d) / 0.7)
        expected += stats.norm.logpdf(values[f"loadings_{v}"], 0, values["loading_precision"] ** -0.5).sum()
        expected += stats.norm.logpdf(values[f"loc_{v}"], 0, 10).sum()
        mean, covariance = (
            values["latents"] @ values[f"loadings_{v}"].T + values[f"loc_{v}"],
            np.linalg.inv(precision),
        )
        for n, row in enumerate(values["natural_params_0"] if v == 0 else views[1]):
            seen = ~np.isnan(row)
            if seen.any():
                part = covariance[np.ix_(seen, seen)]
                expected += stats.multivariate_normal.logpdf(row[seen], mean[n, seen], part)
    probs = 1 / (1 + np.exp(-values["natural_params_0"]))
    expected += np.where(np.isnan(views[0]), 0, stats.bernoulli.logpmf(np.nan_to_num(views[0]), probs)).sum()
    np.testing.assert_allclose(log_joint(model, values, *views), expected, rtol=1e-10)


def test_bits_with_a_full_covariance_are_predicted_through_their_noisy_parameters():
    """One bit of a row of two views is known; the others by quadrature over pairs of natural parameters."""
    rng = np.random.default_rng(7)
    views = tuple(rng.integers(0, 2, (9, 2)).astype(float) for _ in range(2))
    fields = {"families": ("bernoulli", "bernoulli"), "num_shared": 1, "specific": "full_covariance"}
    model = zoo.Paired.from_data(*views, **fields)
    values, covariance = {"latents": np.zeros((1, 1))}, np.zeros((4, 4))
    for v in range(2):
        values[f"loadings_{v}"] = np.array([[1.5], [-1.0]]) * (1.0 + 0.5 * v)
        values[f"loc_{v}"] = np.array([0.3, -0.4])
        values[f"specific_precision_{v}"] = np.array([[1.0, 0.4], [0.4, 0.8]])
        own = slice(2 * v, 2 * v + 2)
        covariance[own, own] = np.linalg.inv(values[f"specific_precision_{v}"])
    w = np.concatenate([values["loadings_0"], values["loadings_1"]])
    covariance += w @ w.T
    loc = np.concatenate([values["loc_0"], values["loc_1"]])
    rows = np.array([[1.0, np.nan]]), np.full((1, 2), np.nan)
    with in_precision():
        given = jax.tree.map(jnp.asarray, values)
        found = [model.predicted(given, *map(jnp.asarray, rows), what=f"y_{v}")[0] for v in range(2)]
        found = np.concatenate([np.asarray(part)[0] for part in found])
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    a, b = np.meshgrid(points, points, indexing="ij")
    weights = np.outer(weights, weights) / weights.sum() ** 2
    known = special.expit(loc[0] + np.sqrt(covariance[0, 0]) * a)
    for d in (1, 2, 3):
        factor = np.linalg.cholesky(covariance[np.ix_([0, d], [0, d])])
        other = special.expit(loc[d] + factor[1, 0] * a + factor[1, 1] * b)
        assert abs(found[d] - (weights * known * other).sum() / (weights * known).sum()) < 5e-3
        assert abs(found[d] - (weights * other).sum()) > 0.02  # and not what nothing known would give
    assert found[0] == 1.0


def test_padding_moves_free_columns_only():
    """NUTS and MAP see the free columns: there, back, and no volume."""
    transform = PadZeros((0, 2), 4, 2)
    x = jnp.arange(6.0).reshape(3, 2)
    y = transform(x)
    np.testing.assert_array_equal(y[:, [1, 3]], 0)
    np.testing.assert_array_equal(transform.inv(y), x)
    assert transform.forward_shape((3, 2)) == (3, 4) and transform.inverse_shape((3, 4)) == (3, 2)
    own = padded(numpyro.distributions.Normal(0.0, 2.0).expand([3, 2]).to_event(2), (0, 2), 4)
    np.testing.assert_allclose(own.log_prob(y), stats.norm.logpdf(x, 0, 2).sum(), rtol=1e-5)
    assert bool(own.support(y)) and not bool(own.support(y + 1))
    assert numpyro.distributions.biject_to(own.support) == transform


def test_hidden_cells_have_no_influence():
    """What stands in a hidden cell cannot matter, and a row of NaN in a view costs nothing there."""
    views = views_of(("bernoulli", "poisson"))
    model = zoo.Paired.from_data(*views, families=("bernoulli", "poisson"), num_shared=2)
    with in_precision():
        data, values = tuple(map(jnp.asarray, views)), start(model, views)
        values = jax.tree.map(jnp.asarray, values)
        gradient = jax.jit(jax.grad(lambda v: log_joint(model, v, *data)))(values)
        rows = model.log_likelihood(values, *data)
        alone = model.log_likelihood(values, data[0], jnp.full_like(data[1], jnp.nan))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    assert rows[6] == alone[6] and (rows[:6] < alone[:6]).all()


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize(
    "fields",
    [
        {"families": ("bernoulli", "poisson"), "num_specific": (1, 0)},
        {"families": ("bernoulli", Gaussian(None)), "specific": "full_covariance", "ard": True},
    ],
)
def test_a_proper_prior_draws_every_view(fields):
    model = zoo.Paired(num_shared=1, num_features=(4, 3), loc_variance=1.0, **fields)
    with in_precision():
        drawn = jax.jit(lambda key: numpyro.handlers.seed(model, key)(num_observations=11))(jax.random.key(0))
    assert [view.shape for view in drawn] == [(11, 4), (11, 3)]
    for family, view in zip(model.families, drawn, strict=True):
        family.check(np.asarray(view))


def test_the_papers_models_are_patterns_of_latents():
    two, three = ("bernoulli",) * 2, ("bernoulli",) * 3
    assert zoo.Paired.sepca(two, 3).num_specific == (0, 0)
    assert zoo.Paired.epls(two, 1, 5).num_specific == (0, 5)
    assert zoo.Paired.ecca(two, 1, (2, 3)).latents_of(1) == (0, 3, 4, 5)
    assert zoo.Paired.secca(three, 1, (2, 2)).num_specific == (0, 2, 2)
    assert zoo.Paired.secca(three, 1, (2, 2)).data_names == ("y_0", "y_1", "y_2")


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"num_specific": (1,)}, ValueError, r"one number for each of the 2 views; got \(1,\)"),
        ({"num_specific": 2}, TypeError, "num_specific must be a tuple of whole numbers"),
        (
            {"num_shared": 0},
            ValueError,
            "with num_shared=0 every view needs a latent of its own; num_specific is",
        ),
        ({"num_shared": -1}, ValueError, "num_shared must be at least 0; got -1"),
        ({"beta": 1.5}, ValueError, r"beta must lie in \[0, 1\]; got 1.5"),
        ({"beta": 0.4, "conjugate": (-1.0, 1.0)}, ValueError, "kernel of Bernoulli has no maximum"),
        ({"beta": 0.4, "families": ("ordinal", "bernoulli")}, ValueError, "Ordinal has no conjugate kernel"),
        ({"families": ("bernoulli", "cauchy")}, ValueError, "no family is called 'cauchy'; there are gauss"),
        ({"families": "bernoulli"}, TypeError, "families must be a tuple with one for each view"),
        ({"view_weights": (1.0, 0.0)}, ValueError, "view_weights must be positive; got"),
        ({"specific": "diagonal"}, ValueError, "specific must be one of low_rank, full_covariance"),
        ({"specific": "full_covariance", "beta": 0.4}, ValueError, "goes with beta=0"),
        ({"specific": "full_covariance", "num_specific": (1, 1)}, ValueError, "leave num_specific out"),
        (
            {"specific": "full_covariance", "families": ("exponential", "bernoulli")},
            ValueError,
            r"those of view 0 \(Exponential\) are negative",
        ),
        ({"ard": True, "beta": 0.2}, ValueError, "ard=True goes with beta=0"),
        ({"covariance_degrees": -1.0}, ValueError, "covariance_degrees must be a number above -1"),
    ],
)
def test_fields_outside_their_domain_are_errors(fields, error, message):
    with pytest.raises(error, match=message):
        zoo.Paired(**fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, b: (a + 2, b), "y_0 must hold 0 or 1; row 0, column 0 is"),
        (lambda a, b: (a, b[:5]), "y_0 and y_1 must have the same rows; y_0 has 7 and y_1 has 5"),
        (lambda a, b: (a, np.full_like(b, np.nan)), "y_1 is missing as a whole"),
        (lambda a, b: (a, None), "y_1 is missing as a whole"),
        (lambda a, b: (a,), "takes 2 parts of data, .*; got 1: y_1 is missing"),
        (
            lambda a, b: (a, b[:, :1]),
            "num_specific of view 1 must be at most its number of columns, 1; got 2",
        ),
        (lambda a, b: (a[:3], b[:3]), "at most as many latents as the rows, 3; got 4"),
        (
            lambda a, b: (np.where(np.arange(7)[:, None] == 6, np.nan, a), b),
            "row 6 has no observed cell in y_0 or y_1",
        ),
        (lambda a, b: (np.where(np.arange(4) == 2, np.nan, a), b), "column 2 of y_0 is missing in all rows"),
    ],
)
def test_views_that_do_not_suit_are_errors(change, message):
    from inference import fit

    views = change(*views_of(("bernoulli", "poisson")))
    with pytest.raises((TypeError, ValueError), match=message):
        fit(zoo.Paired.ecca(("bernoulli", "poisson"), 1, (1, 2)), *views)


def test_a_weight_that_leaves_a_view_to_the_prior_is_warned_of():
    views = views_of(("bernoulli", "bernoulli"))
    model = zoo.Paired.sepca(("bernoulli", "bernoulli"), 1, view_weights=(1.0, 1e-3))
    with pytest.warns(UserWarning, match="view_weights of 0.001 for y_1 with 3 columns is less than"):
        model.check(*views)
    zoo.Paired.sepca(("bernoulli", "bernoulli"), 1, view_weights=(1.0, 1e-3), loading_variance=1e6).check(
        *views
    )


def test_what_a_program_without_sizes_says():
    model = zoo.Paired(beta=0.4)
    with pytest.raises(ValueError, match="num_features is not set"):
        zoo.Paired()(num_observations=3)
    with pytest.raises(ValueError, match="conjugate is not set"):
        model(np.zeros((2, 2)), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="the prior of Paired is unnormalised and draws nothing"):
        zoo.Paired(beta=0.4, conjugate=(0.1, 0.2), num_features=(2, 2))(num_observations=3)
    with pytest.raises(ValueError, match="num_features is not set"):
        zoo.Paired()(np.zeros((2, 2)))
    with pytest.raises(TypeError, match="the program takes y_0, y_1; got 3 parts of data"):
        zoo.Paired()(*np.zeros((3, 2, 2)))
    assert zoo.Paired(families=(Binomial(3), "poisson")).families[0].total_count == 3


def test_a_view_that_is_left_out_is_drawn_in_its_own_coordinates():
    """About its mean in its unit, given the other view; a program of one view has one."""
    unknown, rng = Gaussian(noise_variance=None), np.random.default_rng(0)
    views = [rng.normal(size=(ROWS, 2)), 1e3 + rng.normal(size=(ROWS, 3))]
    model = zoo.Paired((unknown, unknown)).with_sizes_from(*views)
    with in_precision():
        first, second = numpyro.handlers.seed(model, 0)(jnp.asarray(views[0]))
        (alone,) = numpyro.handlers.seed(zoo.Paired((unknown,)).with_sizes_from(views[1]), 0)(
            num_observations=4
        )
    np.testing.assert_array_equal(first, views[0])
    assert second.shape == (ROWS, 3) and alone.shape == (4, 3)
    for drawn in (second, alone):
        assert 900 < float(np.median(drawn)) < 1100


def test_a_unit_of_cells_without_one_is_refused():
    unknown = Gaussian(noise_variance=None)
    with pytest.raises(ValueError, match="and not of Bernoulli cells: give 1 for view 1"):
        zoo.Paired((unknown, "bernoulli"), unit=(2.0, 3.0))
    with pytest.raises(ValueError, match=r"one number for each of the 2 views; got shape \(3,\)"):
        zoo.Paired((unknown, unknown), unit=(2.0, 3.0, 1.0))


def test_reversed_views_take_all_that_is_given_by_view_and_by_column_along():
    """The density of a row of the reversed model is that of the row; units and means once stayed behind."""
    rng = np.random.default_rng(4)
    first, second = rng.normal(size=(ROWS, 2)) * 3 + 5, rng.normal(size=(ROWS, 3)) * 0.1 - 2
    model = zoo.Paired.ecca((Gaussian(noise_variance=None),) * 2, 1, (1, 0), view_weights=(0.5, 2.0))
    model = model.with_sizes_from(first, second)
    other, _ = model.views_reversed()
    again = model.replaced(
        families=model.families[::-1], num_specific=(0, 1), num_features=None, unit=None, loc_mean=None
    )
    again = again.replaced(view_weights=(2.0, 0.5)).with_sizes_from(second, first)
    for name in ("unit", "loc_mean", "view_weights", "num_features", "num_specific"):
        np.testing.assert_array_equal(getattr(other, name), getattr(again, name), err_msg=name)
    assert (np.asarray(other.unit) != np.asarray(model.unit)).all()


def test_orthonormal_scores_are_those_of_loadings_in_standard_units():
    """The latents times the root of L'L, by SciPy, with L the loadings of all views over the deviations."""
    r = np.random.default_rng(0)
    views = [r.normal(size=(7, 3)) * [1.0, 10.0, 100.0], r.normal(size=(7, 2)) * [1e3, 1.0]]
    unknown = Gaussian(noise_variance=None)
    model = zoo.Paired((unknown, unknown), num_shared=2, standardize=True).with_sizes_from(*views)
    with in_precision():
        given = tuple(map(jnp.asarray, views))
        values = start_of(model, jax.random.key(0), *given)
        latent, found = (np.asarray(model.scores(values, *given, kind=k)) for k in ("latent", "orthonormal"))
    standard = np.concatenate(
        [np.asarray(values[f"loadings_{v}"]) / view.std(axis=0)[:, None] for v, view in enumerate(views)]
    )
    np.testing.assert_allclose(found, latent @ linalg.sqrtm(standard.T @ standard), rtol=1e-7)
