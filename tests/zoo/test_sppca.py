"""SPPCA as a program: its density against dense normals, its labels, its special cases, its errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from jax.flatten_util import ravel_pytree
from numpyro.handlers import seed, trace
from numpyro.infer.util import log_density

import zoo
from inference.precision import in_precision
from tests.support.fit_requests import check_method
from tests.support.log_joint import log_joint
from zoo import SPPCA
from zoo.answers import answer_of
from zoo.linear_gaussian import latents_mean
from zoo.linear_gaussian.class_labels import are_labels, class_names, code_labels
from zoo.sppca import SPPCA as SAME

N, M, L, K = 9, 4, 2, 2


def parameters(seed_=0, per_output=False):
    rng = np.random.default_rng(seed_)
    return {
        "loadings_x": rng.normal(size=(M, K)),
        "loadings_y": rng.normal(size=(L, K)),
        "loc_x": rng.normal(size=M),
        "loc_y": rng.normal(size=L),
        "noise_variance_x": np.asarray(0.3),
        "noise_variance_y": np.array([0.2, 0.5]) if per_output else np.asarray(0.2),
    }


def rows(holes="some"):
    """Rows with unlabelled ones, half-labelled ones, cells of x missing, and x missing altogether."""
    x, y = np.split(np.random.default_rng(1).normal(size=(N, M + L)), [M], axis=1)
    y[4:7] = np.nan
    if holes == "some":
        y[0, 1] = x[1, 2] = x[5, 0] = x[5, 3] = np.nan
        x[2] = np.nan
    return x, y


def dense(values, x, y):
    """Log density of each row by a dense normal on its observed cells."""
    w = np.concatenate([values["loadings_x"], values["loadings_y"]])
    noise = np.concatenate(
        [np.full(M, values["noise_variance_x"]), np.broadcast_to(values["noise_variance_y"], L)]
    )
    covariance, mean = w @ w.T + np.diag(noise), np.concatenate([values["loc_x"], values["loc_y"]])
    cells = np.concatenate([x, y], axis=1)
    return np.array(
        [
            scipy.stats.multivariate_normal(mean[o], covariance[np.ix_(o, o)]).logpdf(row[o])
            for row in cells
            for o in [~np.isnan(row)]
        ]
    )


def joint_density(model, values, *data):
    """The program's log density, flat priors counting zero, and the value of each site."""
    with in_precision():
        values = jax.tree.map(jnp.asarray, values)
        total, sites = log_density(model, tuple(map(jnp.asarray, data)), {}, values)
        return float(total), sites


@pytest.mark.parametrize("per_output", [False, True])
@pytest.mark.parametrize("holes", ["none", "some"])
def test_program_is_a_dense_normal_on_the_observed_cells(holes, per_output):
    values, (x, y) = parameters(per_output=per_output), rows(holes)
    noise = "per_output" if per_output else "shared"
    model = SPPCA.from_data(x, y, num_latents=K, output_noise=noise)
    expected = dense(values, x, y)
    total, _ = joint_density(model, values, x, y)
    np.testing.assert_allclose(total, expected.sum(), rtol=1e-11)
    with in_precision():
        own = model.log_likelihood(jax.tree.map(jnp.asarray, values), jnp.asarray(x), jnp.asarray(y))
        np.testing.assert_allclose(own, expected, rtol=1e-11)


def test_latents_drawn_and_summed_out_are_one_model():
    """log p(z, rows) - log p(z | rows) = log p(rows) for any z, so the explicit program is the same model."""
    values, (x, y) = parameters(), rows()
    model = SPPCA.from_data(x, y, num_latents=K)
    with in_precision():
        given = answer_of(
            model, "conditionals", jax.tree.map(jnp.asarray, values), jnp.asarray(x), jnp.asarray(y)
        )
        z = np.random.default_rng(2).normal(size=(N, K))
        posterior = float(given["latents"].log_prob(jnp.asarray(z)).sum())
    drawn, _ = joint_density(model.explicit, values | {"latents": z}, x, y)
    np.testing.assert_allclose(drawn - posterior, dense(values, x, y).sum(), rtol=1e-11)


def test_default_noise_rates_are_of_the_variances_whatever_the_concentration():
    x, y = rows()
    for concentration in (1e-3, 4.0):
        model = SPPCA.from_data(
            x, y, num_latents=K, loading_prior="gaussian", noise_concentration=concentration
        )
        variances = [np.nanvar(part, axis=0).mean() for part in (x, y)]
        np.testing.assert_allclose(concentration / model.noise_rate, np.reciprocal(variances))


def test_gaussian_prior_is_proper_and_is_added():
    values, (x, y) = parameters(), rows()
    model = SPPCA.from_data(x, y, num_latents=K, loading_prior="gaussian", noise_rate=0.5)
    normal = scipy.stats.norm
    prior = 0.0
    for b, part in (("x", x), ("y", y)):
        spread = np.sqrt(np.nanvar(part, axis=0).mean())
        prior += normal(0, spread).logpdf(values[f"loadings_{b}"]).sum()
        prior += normal(np.nanmean(part, axis=0), 10 * spread).logpdf(values[f"loc_{b}"]).sum()
    prior += sum(scipy.stats.invgamma(1e-3, scale=0.5).logpdf(values[f"noise_variance_{b}"]) for b in "xy")
    total, _ = joint_density(model, values, x, y)
    np.testing.assert_allclose(total, dense(values, x, y).sum() + prior, rtol=1e-11)
    drawn = trace(seed(model, 0)).get_trace(num_observations=5)
    assert model.prior == "proper" and drawn["x"]["value"].shape == (5, M)
    assert drawn["y"]["value"].shape == (5, L) and drawn["latents"]["value"].shape == (5, K)


def test_flat_prior_cannot_be_drawn_from():
    model = SPPCA(num_latents=2, num_features=3, num_outputs=1)
    assert model.prior == "improper" and SAME is SPPCA
    with pytest.raises(ValueError, match="is improper and draws nothing: .* loading_prior='gaussian'"):
        model(num_observations=3)
    with pytest.raises(ValueError, match="loading_variance is not set"):
        SPPCA(loading_prior="gaussian")(num_observations=3)
    with pytest.raises(ValueError, match="num_features is not set"):
        SPPCA(loading_prior="gaussian", loading_variance=1.0, loc_variance=1.0, noise_rate=1.0)(
            num_observations=3
        )
    with pytest.raises(ValueError, match="give x along with y"):
        model(None, np.zeros((3, 1)))
    with pytest.raises(ValueError, match="draws nothing: give x and y to condition on$"):
        SPPCA(kernel="linear", num_features=3, num_outputs=1)(num_observations=3)


def test_without_outputs_it_is_ppca():
    """L = 0, W_y = 0 and y missing all give the density of x alone."""
    values, (x, y) = parameters(), rows("none")
    w, mean = values["loadings_x"], values["loc_x"]
    expected = scipy.stats.multivariate_normal(mean, w @ w.T + 0.3 * np.eye(M)).logpdf(x)
    none = values | {"loadings_y": np.zeros((0, K)), "loc_y": np.zeros(0)}
    model = SPPCA(num_latents=K, num_features=M, num_outputs=0)
    total, _ = joint_density(model, none, x, np.zeros((N, 0)))
    np.testing.assert_allclose(total, expected.sum(), rtol=1e-11)
    model = SPPCA.from_data(x, y, num_latents=K)
    total, _ = joint_density(model, values, x, np.full((N, L), np.nan))
    np.testing.assert_allclose(total, expected.sum(), rtol=1e-11)
    apart = values | {"loadings_y": np.zeros((L, K))}
    own = scipy.stats.norm(values["loc_y"], 0.2**0.5).logpdf(y)
    total, _ = joint_density(model, apart, x, y)
    np.testing.assert_allclose(total, expected.sum() + np.nansum(own), rtol=1e-11)


def test_rotating_the_latents_changes_nothing_and_gradients_are_finite():
    values, (x, y) = parameters(), rows()
    model = SPPCA.from_data(x, y, num_latents=K)
    turn = np.linalg.qr(np.random.default_rng(3).normal(size=(K, K)))[0]
    turned = values | {f"loadings_{b}": values[f"loadings_{b}"] @ turn for b in "xy"}
    np.testing.assert_allclose(joint_density(model, values, x, y)[0], joint_density(model, turned, x, y)[0])
    with in_precision():
        flat, back = ravel_pytree(jax.tree.map(jnp.asarray, values))
        data = jnp.asarray(x), jnp.asarray(y)
        slopes = jax.jit(jax.grad(lambda v: log_joint(model, back(v), *data)))(flat)
        assert np.isfinite(slopes).all() and np.abs(slopes).min() > 0


def test_outputs_are_drawn_from_their_predictive_given_x():
    """Mean and covariance of 4000 draws of y given x; false alarm below 1e-6 by the bound of 6 sigma."""
    values, (x, y) = parameters(), rows()
    model = SPPCA.from_data(x, y, num_latents=K)
    from numpyro.handlers import substitute

    with in_precision():
        values = jax.tree.map(jnp.asarray, values)

        def one(key):
            sites = trace(substitute(seed(model, key), data=values)).get_trace(jnp.asarray(x))
            return sites["y"]["value"]

        draws = np.asarray(jax.vmap(one)(jax.random.split(jax.random.key(0), 4000)))
        known = values["loadings_x"], values["loc_x"], values["noise_variance_x"]
        mean = np.asarray(values["loc_y"] + latents_mean(jnp.asarray(x), *known) @ values["loadings_y"].T)
    for row in range(N):
        o = ~np.isnan(x[row])
        w = np.asarray(known[0])[o]
        spread = np.linalg.inv(np.eye(K) + w.T @ w / 0.3)
        covariance = np.asarray(values["loadings_y"]) @ spread @ np.asarray(values["loadings_y"]).T
        covariance = covariance + 0.2 * np.eye(L)
        error = np.sqrt(np.diag(covariance) / 4000)
        assert (np.abs(draws[:, row].mean(axis=0) - mean[row]) < 6 * error).all()
        np.testing.assert_allclose(np.cov(draws[:, row].T), covariance, atol=6 * covariance.max() * 0.03)


# In feature space


def test_linear_kernel_is_the_primal_program():
    """With B such that Phi' B = W the dual density of centred rows is the primal one."""
    x, y = rows("none")
    x = x - x.mean(axis=0)
    b = np.random.default_rng(4).normal(size=(N, K)) * 0.3
    primal_values = parameters() | {"loadings_x": x.T @ b, "loc_x": np.zeros(M)}
    dual_values = {name: v for name, v in primal_values.items() if name not in ("loadings_x", "loc_x")}
    dual_values["coefficients"] = b
    primal = SPPCA.from_data(x, y, num_latents=K)
    dual = SPPCA.from_data(x, y, num_latents=K, kernel="linear")
    expected = dense(primal_values, x, y)
    np.testing.assert_allclose(joint_density(dual, dual_values, x + 3.0, y)[0], expected.sum(), rtol=1e-11)
    z = np.random.default_rng(5).normal(size=(N, K))
    np.testing.assert_allclose(
        joint_density(dual.explicit, dual_values | {"latents": z}, x, y)[0],
        joint_density(primal.explicit, primal_values | {"latents": z}, x, y)[0],
        rtol=1e-11,
    )
    with in_precision():
        own = dual.log_likelihood(jax.tree.map(jnp.asarray, dual_values), jnp.asarray(x), jnp.asarray(y))
        np.testing.assert_allclose(own, expected, rtol=1e-10)


def test_kernels_that_need_a_noise_variance():
    x, y = rows("none")
    with pytest.raises(ValueError, match="feature space of RBF has infinitely many dimensions"):
        check_method(SPPCA(kernel="rbf"), "em")
    model = SPPCA.from_data(x, y, num_latents=K, kernel="rbf", noise_variance_x=0.1)
    assert model.feature_dimension == 0 and model.kernel.length_scale > 0
    assert SPPCA.from_data(x @ x.T, y, kernel="precomputed").feature_dimension == N - 1
    with pytest.raises(ValueError, match="loading_prior='flat'"):
        SPPCA(kernel="linear", loading_prior="gaussian")
    x[1, 1] = np.nan
    with pytest.raises(ValueError, match="a kernel needs every cell of x; row 1, column 1 is missing"):
        SPPCA(kernel="linear").check(x, y)
    with pytest.raises(ValueError, match="must be symmetric"):
        SPPCA(kernel="precomputed").check(np.arange(81.0).reshape(9, 9), y)


# Labels


@pytest.mark.parametrize(
    ("labels", "yes"),
    [
        (pd.Series(["a", "b"], dtype="category"), True),
        (pd.DataFrame({"kind": ["a", None]}), True),
        (pd.Series([1, None], dtype="Int64"), True),
        (np.array([0, 1, 1]), True),
        (["b", "a", None], True),
        (np.array(["u", "v"]), True),
        (np.array([[0], [1]]), False),
        (np.array([0.0, 1.0]), False),
        (pd.DataFrame({"a": [0.0], "b": [1.0]}), False),
        (pd.DataFrame({"a": [0, 1]}), False),
        ("kinds.csv", False),
    ],
)
def test_what_is_taken_for_labels(labels, yes):
    assert are_labels(labels) is yes


def test_labels_become_columns_of_zeros_and_ones():
    y = pd.Series(["b", None, "a", "b", "a"], index=list("vwxyz"), dtype="category")
    x = np.random.default_rng(0).normal(size=(5, 3))
    model, (_, coded) = SPPCA().encoded(x, y)
    assert model.classes == ("a", "b") and list(coded.index) == list("vwxyz")
    expected = [[0, 1], [np.nan, np.nan], [1, 0], [0, 1], [1, 0]]
    np.testing.assert_array_equal(coded, np.array(expected, float))
    assert SPPCA.from_data(x, y).num_outputs == 2
    assert SPPCA.from_data(x, y, label_coding="reduced").num_outputs == 1
    ordered = pd.Categorical([2, 1, 2, 1], categories=[2, 1, 0])
    assert class_names(ordered) == (2, 1) and list(code_labels(ordered, (2, 1)).columns) == [2, 1]
    assert class_names(["b", 2, "a", 2, 1, "b", 1, "a"]) == (1, 2, "a", "b")  # in order within each kind
    numbers = [1, 0, None, 1, 0]  # whole numbers with a gap, which pandas would make floats
    assert class_names(numbers) == (0, 1) and list(map(type, class_names(numbers))) == [int, int]
    np.testing.assert_array_equal(code_labels(numbers, (0, 1))[1], [1, 0, np.nan, 1, 0])
    with pytest.raises(ValueError, match="label 'c' in row 1 of y is none of the classes a, b"):
        code_labels(["a", "c"], ("a", "b"))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([None, None], "every label of y is missing"),
        (["a", "a"], "at least two classes; every label is 'a'"),
        ([np.int64(1)] * 2, "at least two classes; every label is 1:"),
        (["a", "b", "a"], "class 'b' of y has one example, row 1"),
    ],
)
def test_labels_that_cannot_be_learnt_from(labels, message):
    with pytest.raises(ValueError, match=message):
        class_names(pd.Series(labels, dtype="object"))


# Bad input


def spoilt(change):
    x, y = rows("none")
    change(x, y)
    return x, y


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: y.fill(np.nan), "every cell of y is missing: without outputs the model is zoo.PPCA"),
        (lambda x, y: x[:, 1].fill(2.0), r"column 1 of x is constant \(2.0\)"),
        (lambda x, y: y[:4, 0].fill(7.0) or y[4:, 0].fill(np.nan), r"column 0 of y is constant \(7.0\)"),
        (lambda x, y: x[:, 3].fill(np.nan), "column 3 of x is missing in all rows"),
        (lambda x, y: y[:, 1].fill(np.nan), "column 1 of y is missing in all rows"),
        (lambda x, y: x[5].fill(np.nan), "row 5 has no observed cell in x or y"),
        (lambda x, y: x[2:3, 2].fill(np.inf), "x must be finite or NaN .missing.; row 2, column 2 is inf"),
    ],
)
def test_data_that_do_not_suit(change, message):
    x, y = spoilt(change)
    with pytest.raises(ValueError, match=message):
        SPPCA(num_latents=K).check(x, y)


def test_sizes_that_do_not_suit():
    x, y = rows("none")
    with pytest.raises(ValueError, match="x and y must have the same rows; x has 9 and y has 8"):
        SPPCA().check(x, y[:8])
    with pytest.raises(ValueError, match="num_latents must be below the number of columns of x, 4; got 4"):
        SPPCA(num_latents=4).check(x, y)
    with pytest.raises(ValueError, match="num_latents must be below the number of rows, 9; got 9"):
        SPPCA(num_latents=9).check(np.tile(x, 3) + np.arange(12.0), y)
    with pytest.raises(ValueError, match="y must have 3 columns, as the model has; got 2"):
        SPPCA(num_outputs=3).check(x, y)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"num_latents": 0}, ValueError),
        ({"num_latents": 1.5}, TypeError),
        ({"output_likelihood": "poisson"}, ValueError),
        ({"output_noise": "none"}, ValueError),
        ({"center": "mean"}, ValueError),
        ({"loading_prior": "ard"}, ValueError),
        ({"noise_floor": (0.1, 0.1, 0.1)}, ValueError),
        ({"noise_floor": -1.0}, ValueError),
        ({"noise_variance_x": 0.0}, ValueError),
        ({"loading_variance": np.ones(3)}, ValueError),
        ({"loading_variance": (1.0, -1.0)}, ValueError),
        ({"noise_rate": np.ones((2, 2))}, ValueError),
        ({"loc_mean": np.nan}, ValueError),
        ({"loc_mean": np.ones(2), "num_features": 3, "num_outputs": 1}, ValueError),
        ({"kernel": "sigmoid"}, ValueError),
        ({"kernel": 3}, TypeError),
    ],
)
def test_fields_outside_their_domain(fields, error):
    with pytest.raises(error, match=next(iter(fields))):
        SPPCA(**fields)


def test_registered_under_the_papers_names():
    assert zoo.canonical_name("s2ppca") == zoo.canonical_name("MORP") == "sppca" and zoo.SPPCA is SPPCA


def test_two_classes_with_one_utility_share_the_probability():
    """By hand: Phi of the utility's mean given the inputs over its deviation, and what is left."""
    rng = np.random.default_rng(5)
    fields = {"num_features": 3, "num_outputs": 1, "classes": ("a", "b"), "label_coding": "reduced"}
    model = SPPCA(num_latents=2, output_likelihood="probit", **fields)
    values = {
        "loadings_x": rng.normal(size=(3, 2)),
        "loadings_y": rng.normal(size=(1, 2)),
        "loc_x": rng.normal(size=3),
        "loc_y": np.array([0.4]),
        "noise_variance_x": np.array(0.5),
    }
    x = rng.normal(size=(4, 3))
    with in_precision():
        found, _ = model.predicted(jax.tree.map(jnp.asarray, values), jnp.asarray(x), what="classes")
        found = np.asarray(found)
    w, v = values["loadings_x"], values["loadings_y"]
    spread = np.linalg.inv(np.eye(2) + w.T @ w / 0.5)
    mean = (x - values["loc_x"]) @ w @ spread / 0.5
    one = scipy.stats.norm.cdf((0.4 + mean @ v[0]) / np.sqrt(1.0 + v[0] @ spread @ v[0]))
    np.testing.assert_allclose(found[:, 0], one, rtol=1e-6)
    np.testing.assert_allclose(found[:, 1], 1.0 - one, rtol=1e-6)
