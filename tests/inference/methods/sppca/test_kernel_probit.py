"""Probit outputs in feature space: the program, its exact EM for one output, the linear kernel as a check."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import log_ndtr
from scipy import stats

from inference import fit, load, log_density, predict, save, transform
from inference.methods.sppca import ep
from inference.precision import in_precision
from tests.support.log_joint import log_joint
from zoo import SPPCA
from zoo.answers import answer_of
from zoo.kernels import RBF
from zoo.linear_gaussian.probit import ProbitOutputs

SITES = ("coefficients", "loadings_y", "loc_y")


def four_clusters(seed=0, each=15, wrong=0.15):
    """Clusters at (+-2, +-2), sd .5, classes by XOR, some labels exchanged so that nothing separates them."""
    rng = np.random.default_rng(seed)
    centres = np.array([[2.0, 2.0], [-2.0, -2.0], [2.0, -2.0], [-2.0, 2.0]])
    x = np.repeat(centres, each, axis=0) + 0.5 * rng.normal(size=(4 * each, 2))
    y = np.repeat([1.0, 1.0, 0.0, 0.0], each)
    return x, np.where(rng.uniform(size=len(y)) < wrong, 1 - y, y)[:, None]


def rows(seed=0, num_rows=40, num_outputs=1):
    """Rows of two latents, the last third unlabelled."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(num_rows, 2))
    x = z @ rng.normal(size=(2, 4)) + 0.7 * rng.normal(size=(num_rows, 4))
    u = z @ rng.normal(size=(2, num_outputs)) + rng.normal(size=(num_rows, num_outputs))
    y = (u > 0).astype(float)
    y[num_rows * 2 // 3 :] = np.nan
    return x, y


def last(tree):
    return float(tree["trace"]["objective"][-1])


def test_the_explicit_program_is_the_one_with_locals_summed_out():
    """At any latents and utilities: log p(x, y) = log p(x, y, z, u) - log p(z | x, y) - log p(u | z, y)."""
    rng = np.random.default_rng(1)
    x, y = four_clusters(each=3)
    y[4] = np.nan
    model = SPPCA(num_latents=2, kernel=RBF(1.0), noise_variance_x=0.1, output_likelihood="probit")
    model = model.with_sizes_from(x, y)
    with in_precision():
        x, y = jnp.asarray(x), jnp.asarray(y)
        shapes = {"coefficients": (12, 2), "loadings_y": (1, 2), "loc_y": (1,)}
        values = {name: jnp.asarray(rng.normal(size=shape)) for name, shape in shapes.items()}
        given = values | {"noise_variance_x": jnp.asarray(0.1)}
        z = jnp.asarray(rng.normal(size=(12, 2)))
        known, sign = ~jnp.isnan(y), jnp.where(jnp.isnan(y), 1.0, 2 * y - 1)
        u = sign * jnp.abs(jnp.asarray(rng.normal(size=(12, 1))))
        predictor = values["loc_y"] + z @ values["loadings_y"].T
        of_z = answer_of(model, "conditionals", given, x, y)["latents"].log_prob(z)
        of_u = stats.norm.logpdf(u - predictor * known) - known * log_ndtr(sign * predictor)
        whole = log_joint(model.explicit, values | {"latents": z, "utilities": u}, x, y)
        summed = log_joint(model, values, x, y)
        np.testing.assert_allclose(whole - jnp.sum(of_z) - jnp.sum(of_u), summed, rtol=1e-11)
        assert (
            abs(float(whole - jnp.sum(of_z[1:]) - jnp.sum(of_u) - summed)) > 1e-3
        )  # planted: a row left out
        per_row = model.log_likelihood(given, x, y)
        np.testing.assert_allclose(jnp.sum(per_row), summed, rtol=1e-12)


@pytest.mark.slow
def test_several_outputs_keep_the_latents_in_the_program():
    """Given the latents, x and the outputs are independent; that x is scored right is the test above."""
    rng = np.random.default_rng(2)
    x, y = rows(num_outputs=2, num_rows=10)
    model = SPPCA(num_latents=2, kernel="linear", output_likelihood="probit").with_sizes_from(x, y)
    with in_precision():
        x, y = jnp.asarray(x), jnp.asarray(y)
        shapes = {"coefficients": (10, 2), "loadings_y": (2, 2), "loc_y": (2,), "latents": (10, 2)}
        values = {name: jnp.asarray(rng.normal(size=shape)) for name, shape in shapes.items()}
        values["noise_variance_x"] = jnp.asarray(0.3)
        predictor = values["loc_y"] + values["latents"] @ values["loadings_y"].T
        one = log_joint(model, values, x, y)
        bare = log_joint(model, values, x, jnp.full_like(y, jnp.nan))
        np.testing.assert_allclose(
            one - bare, jnp.sum(ProbitOutputs(predictor, False).log_prob(y)), rtol=1e-10
        )


def expected_log_joint(parameters, moments, gram, dimension, y):
    """E[log p(phi(x), u | z)] of fitted rows and their observed utilities, cell by cell; up to a constant."""
    b, w, loc, noise = parameters
    known = ~jnp.isnan(y)
    second = moments.covariance + moments.mean[:, :, None] * moments.mean[:, None, :]
    inner, projected = b.T @ gram @ b, gram @ b
    distance = jnp.diag(gram) - 2 * jnp.sum(moments.mean * projected, axis=1)
    distance += jnp.einsum("nij,ij->n", second, inner)
    of_x = -0.5 * jnp.sum(dimension * jnp.log(2 * jnp.pi * noise[0]) + distance / noise[0])
    with_z = moments.cross + moments.utilities[:, :, None] * moments.mean[:, None, :]
    squares = jnp.einsum("li,nij,lj->nl", w, second, w) + 2 * loc * (moments.mean @ w.T) + loc**2
    squares -= 2 * jnp.einsum("nlk,lk->nl", with_z, w) + 2 * loc * moments.utilities
    return of_x - 0.5 * jnp.sum(jnp.where(known, squares, 0.0))


def test_e_and_m_step_are_exact_for_one_output():
    """Fisher's identity: the slope of the log likelihood is that of the expected log joint, at any values.

    And the plain step ends where the slope of the expected log joint is zero. Planted: the moments of rows
    whose outputs are exchanged.
    """
    x, y = rows(num_rows=20)
    model = SPPCA(num_latents=2, kernel="linear", output_likelihood="probit").with_sizes_from(x, y)
    with in_precision():
        features, y = jax.tree.map(jnp.asarray, ep.prepare(model, (x, y), None))

        @jax.jit
        def slopes(start, y):
            state = ep._begin(start, model, features, y)
            joint = partial(expected_log_joint, gram=features.gram, dimension=4, y=y)
            own, other = (
                jax.grad(joint)(start, ep._begin(start, model, features, o).moments) for o in (y, 1 - y)
            )
            likelihood = jax.grad(lambda given: ep._begin(given, model, features, y).objective)(start)
            moved = ep._feature_m_step(state, model, features, y)[1]
            return own, other, likelihood, jax.grad(joint)(moved, state.moments)

        start = ep.init(jax.random.key(0), model, features, y, strategy="random").parameters
        start = start._replace(loadings=jnp.array([[0.7, -0.4]]))
        found, planted, exact, at_end = slopes(start, y)
        for part, wrong, whole, end in zip(found, planted, exact, at_end, strict=True):
            size = float(jnp.abs(whole).max())
            np.testing.assert_allclose(part, whole, atol=1e-8 * size)
            np.testing.assert_allclose(end, 0.0, atol=1e-8 * size)
            assert float(jnp.abs(wrong - whole).max()) > 1e-3 * size


def test_the_expanded_step_says_what_the_plain_one_does_of_standardised_latents_and_keeps_to_the_floor():
    """With z = E + R z', R R' the latents' second moment about E: outputs, and phi(x) but for its mean."""
    x, y = rows(num_rows=12)
    model = SPPCA(2, kernel="linear", output_likelihood="probit", noise_floor=(0.9, 0.0))
    model = model.with_sizes_from(x, y)
    with in_precision():
        features, y = jax.tree.map(jnp.asarray, ep.prepare(model, (x, y), None))

        @jax.jit
        def stepped(start):
            state = ep._begin(start, model, features, y)
            return state.moments, ep._feature_m_step(state, model, features, y)

        start = ep.init(jax.random.key(0), model, features, y, strategy="random").parameters
        moments, steps = stepped(start._replace(loadings=jnp.array([[0.7, -0.4]])))
        expanded, plain, at_floor = steps
        z, covariance = np.asarray(moments.mean), np.asarray(moments.covariance)
        centre = z.mean(axis=0)
        root = np.linalg.cholesky(covariance.mean(axis=0) + z.T @ z / 12 - np.outer(centre, centre))
        ours = np.random.default_rng(0).normal(size=(5, 2))
        np.testing.assert_allclose(
            ours @ expanded.loadings.T + expanded.loc,
            (centre + ours @ root.T) @ plain.loadings.T + plain.loc,
            rtol=1e-10,
        )
        alone = np.linalg.solve(12 * root @ root.T, (z - centre).T).T
        np.testing.assert_allclose(expanded.coefficients, alone @ root, rtol=1e-10)
        floor = 0.9 * np.trace(features.gram) / (12 * 4)  # of four columns
        np.testing.assert_allclose([plain.noise_variance[0], expanded.noise_variance[0]], floor, rtol=1e-12)
        assert bool(at_floor)


@pytest.fixture(scope="module")
def clusters():
    """A fit with the RBF kernel."""
    x, y = four_clusters()
    y[::4] = np.nan
    model = SPPCA(num_latents=3, kernel=RBF(1.0), noise_variance_x=0.05, output_likelihood="probit")
    return fit(model, x, y, tolerance=1e-5, max_iterations=5000), model.with_sizes_from(x, y), x, y


@pytest.mark.slow
def test_the_objective_is_that_of_the_program(clusters):
    """It never falls, and is the program's log density and that of the rows."""
    tree, model, x, y = clusters
    objective = tree["trace"]["objective"].to_numpy()
    assert tree.attrs["method"] == "ep" and tree.attrs["converged"]
    assert (np.diff(objective) > -1e-12 * np.abs(objective[1:])).all()
    np.testing.assert_allclose(float(log_density(tree, x, y).sum()), objective[-1], rtol=1e-11)
    with in_precision():
        values = {name: jnp.asarray(tree["variational"][name].to_numpy()) for name in SITES}
        value = jax.jit(lambda v: log_joint(model, v, x, y))(values)
    np.testing.assert_allclose(value, objective[-1], rtol=1e-11)
    np.testing.assert_allclose(transform(tree, x, y), tree["variational"]["latents"], atol=1e-8)


def test_classes_that_no_line_separates_have_probabilities(clusters):
    """New rows against the true classes of the clusters; without a kernel no better than chance allows.

    A right rule errs on none of 60 rows; one that guesses passes 0.95 with probability 1e-13.
    """
    tree, *_ = clusters
    new_x, new_y = four_clusters(seed=1, wrong=0.0)
    shares = predict(tree, new_x).to_numpy()
    assert ((shares > 0.5) == (new_y == 1)).mean() > 0.95
    assert 0.6 < np.where(new_y == 1, shares, 1 - shares).mean() < 0.95  # 15 % of the labels are wrong


@pytest.mark.slow
def test_the_linear_kernel_is_the_primal_model():
    """With its noise estimated, labels missing: objective, noise, probabilities of new rows."""
    x, y = rows()
    settings = {"num_latents": 2, "output_likelihood": "probit"}
    trees = [
        fit(SPPCA(kernel=k, **settings), x, y, tolerance=1e-11, max_iterations=5000) for k in (None, "linear")
    ]
    primal, dual = trees
    np.testing.assert_allclose(last(dual), last(primal), atol=1e-6)
    noise = [float(tree["variational"]["noise_variance_x"]) for tree in trees]
    np.testing.assert_allclose(noise[1], noise[0], rtol=1e-5)
    new = rows(seed=3, num_rows=8)[0]
    np.testing.assert_allclose(predict(dual, new), predict(primal, new), atol=1e-4)
    np.testing.assert_allclose(log_density(dual, new), log_density(primal, new), atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("acceleration", ["px", "none"])
def test_several_outputs_and_classes_are_those_of_the_primal_model(acceleration, tmp_path):
    x, y = rows(num_rows=60, num_outputs=3)
    y[3, 1] = np.nan
    labels = [None if np.isnan(own).all() else "abc"[int(np.nanargmax(own))] for own in y]
    settings = {"num_latents": 2, "output_likelihood": "probit"}
    for outputs in (y, labels):
        trees = [
            fit(
                SPPCA(kernel=k, **settings),
                x,
                outputs,
                acceleration=acceleration,
                tolerance=1e-9,
                max_iterations=20_000,
            )
            for k in (None, "linear")
        ]
        np.testing.assert_allclose(last(trees[1]), last(trees[0]), atol=1e-3)
        np.testing.assert_allclose(predict(trees[1], x[:9]), predict(trees[0], x[:9]), atol=5e-3)
    save(trees[1], tmp_path / "kernel.nc")
    np.testing.assert_array_equal(predict(load(tmp_path / "kernel.nc"), x[:9]), predict(trees[1], x[:9]))
    again = fit(SPPCA(kernel="linear", **settings), x, labels, init=trees[1], max_iterations=50)
    assert last(again) >= last(trees[1]) - 1e-6


@pytest.mark.slow
def test_labels_that_the_latents_separate_are_warned_of():
    x, y = four_clusters(wrong=0.0)
    model = SPPCA(num_latents=3, kernel=RBF(1.0), noise_variance_x=0.05, output_likelihood="probit")
    with pytest.warns(
        UserWarning, match="separate the outputs.* use fewer latents, more labels, or kernel=None"
    ):
        fit(model, x, y, tolerance=1e-3)
