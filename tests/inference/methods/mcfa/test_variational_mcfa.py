"""The mixture of factor analysers by VB: its bound against the program, its monotony, what it finds."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.linalg import subspace_angles
from scipy.special import logsumexp

import inference
import zoo
from inference.calibration import elbo_check
from inference.methods.linear_gaussian import vb as linear_gaussian
from inference.methods.mcfa import vb
from inference.precision import in_precision
from inference.symmetry import align_rotation
from tests.support.mcfa_cases import planted, with_holes

ROUNDING = 1e-12  # of the bound, relative


@pytest.fixture(scope="module")
def table():
    """A hundred and fifty rows of ten columns in three clusters on a plane."""
    return planted()


@pytest.fixture(scope="module")
def tree(table):
    """Ten clusters offered by the process."""
    model = zoo.MCFA(num_components=10, num_latents=2, weight_prior="stick_breaking")
    return inference.fit(model, table[0], method="vb", num_samples=200, progress=False)


@pytest.fixture(scope="module")
def holes():
    """Thirty rows with missing cells."""
    return with_holes(planted(30, 5)[0])


@pytest.fixture(scope="module")
def ard_tree(holes):
    """ARD, a noise variance a column, a concentration with a prior and missing cells."""
    model = zoo.MCFA(
        num_components=4,
        num_latents=2,
        loading_prior="ard",
        noise="diagonal",
        noise_concentration=2.0,
        ard_concentration=1.0,
        concentration=dist.Gamma(2.0, 1.0),
    )
    options = {"max_iterations": 40, "tolerance": 0, "num_samples": 20, "num_restarts": 1, "progress": False}
    return inference.fit(model, holes, method="vb", **options)


def _objective(tree):
    return tree["trace"]["objective"].to_numpy()


def test_bound_never_falls(tree, ard_tree):
    """Also through the transformations and the moves, which are kept only where the bound gains."""
    for fit in (tree, ard_tree):
        assert -np.diff(_objective(fit)).min() < ROUNDING * abs(_objective(fit)[-1])
    assert tree.attrs["converged"] == 1


def test_bound_is_that_of_the_program_and_the_guide(ard_tree, holes):
    """Whole, by Monte Carlo (false alarm rate 6e-5)."""
    model, bound = inference.model_of(ard_tree), _objective(ard_tree)[-1]
    guide = inference.guide(ard_tree)
    verdict = elbo_check(model, guide, bound, (holes,), key=jax.random.key(1), num_particles=2000)
    assert verdict.passed, verdict
    assert abs(verdict.estimate - bound - 1.0) > verdict.threshold * verdict.standard_error  # planted


def test_planted_clusters_and_their_plane_are_found(tree, table):
    """Of ten clusters three hold rows; labels are the planted ones, loadings span the planted plane."""
    _, labels, loadings = table
    q = tree["variational"]
    assert int(q["num_occupied"]) == 3 and int(q["num_relevant"]) == 2
    found = q["responsibilities"].to_numpy().argmax(axis=1)
    pairs = {(own, other) for own, other in zip(labels, found, strict=True)}
    assert len(pairs) == 3
    assert np.degrees(subspace_angles(q["raw_loadings_mean"].to_numpy(), loadings)).max() < 3
    shown = inference.transform(tree, table[0])
    stored = align_rotation(tree)["variational"]["latents"]
    np.testing.assert_allclose(shown, stored, rtol=1e-8, atol=1e-10)


def _shares_by_hand(x, seen, columns, clusters, log_weights):
    """Log of the integral over z of each row's exponent, by SciPy's dense normals at point values."""
    found = np.zeros((len(x), len(clusters)))
    for i, row in enumerate(x):
        o = seen[i]
        for k, (loc, precision) in enumerate(clusters):
            mean = columns[0][o] @ loc + columns[1][o]
            covariance = columns[0][o] @ np.linalg.inv(precision) @ columns[0][o].T + np.diag(columns[2][o])
            found[i, k] = stats.multivariate_normal(mean, covariance).logpdf(row[o]) + log_weights[k]
    return np.exp(found - logsumexp(found, axis=1, keepdims=True))


def test_local_step_at_sharp_factors_is_the_posterior_given_parameters(holes):
    """Where q of all parameters is a point, shares and latents are those of dense normals."""
    rng = np.random.default_rng(0)
    model = zoo.MCFA.from_data(holes, num_components=3, num_latents=2)
    loadings, loc, noise = rng.normal(size=(5, 2)), rng.normal(size=5), rng.uniform(0.3, 1.0, 5)
    roots, locs = rng.normal(size=(3, 2, 4)), rng.normal(size=(3, 2))
    precisions, sharp = roots @ np.swapaxes(roots, 1, 2), 1e9
    with in_precision():
        columns = vb.ColumnMoments(*map(jnp.asarray, (loadings, loc, np.zeros((5, 3, 3)), 1 / noise)))
        components = model.mixture.components.replaced(
            loc=jnp.asarray(locs),
            mean_precision=jnp.full(3, sharp),
            degrees_of_freedom=jnp.full(3, sharp),
            scale_matrix=jnp.asarray(precisions) / sharp,
        )
        weights = model.mixture.weights.posterior(sharp * jnp.asarray([0.5, 0.3, 0.2]), 1.0)
        state = vb.MixtureVBState(components, weights, jnp.ones(()))
        seen = vb.Holes(jnp.asarray(~np.isnan(holes), float), jnp.arange(len(holes)))
        local = vb.update_rows(columns, state, model, jnp.asarray(holes), seen)
        shares = np.asarray(local.shares)
    expected = _shares_by_hand(
        holes,
        ~np.isnan(holes),
        (loadings, loc, noise),
        list(zip(locs, precisions, strict=True)),
        np.log([0.5, 0.3, 0.2]),
    )
    np.testing.assert_allclose(shares, expected, rtol=1e-5, atol=1e-9)
    own = ~np.isnan(holes[0])
    scaled = loadings[own] / noise[own, None]
    covariance = np.linalg.inv(scaled.T @ loadings[own] + precisions[1])
    mean = covariance @ (scaled.T @ (holes[0, own] - loc[own]) + precisions[1] @ locs[1])
    np.testing.assert_allclose(local.covariance[0, 1], covariance, rtol=1e-6)
    np.testing.assert_allclose(local.mean[0, 1], mean, rtol=1e-6)


def test_rows_that_miss_the_same_cells_share_their_matrices(holes):
    """What is prepared by pattern is what every row would get by itself."""
    x = np.concatenate([holes, holes[:7]])
    model = zoo.MCFA.from_data(x, num_components=3, num_latents=2)
    with in_precision():
        _, rows, seen = vb.prepare(model, (x,), None)
        assert len(seen.seen) < len(x)
        state = vb.init(jax.random.key(0), model, x, rows, seen)
        columns = vb.columns_of(state.columns, rows)
        alone = vb.Holes(jnp.asarray(~np.isnan(x), float), jnp.arange(len(x)))
        weight = jnp.linspace(0.5, 2.0, len(x))
        found = []
        for own in (seen, alone):
            local = vb.update_rows(columns, state.mixture, model, jnp.asarray(x), own)
            moments = vb.moments_of(local, weight, jnp.asarray(x), own, rows)
            found.append((local.marginal(), vb.statistics_of(local, weight), moments))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), *found)


def test_transformation_leaves_rows_as_they_are(holes):
    """Moments that move with the loadings: expected residuals, and statistics of latents L^-1 (z - m)."""
    model = zoo.MCFA.from_data(holes, num_components=3, num_latents=2)
    rng = np.random.default_rng(0)
    root, m = rng.normal(size=(2, 2)), rng.normal(size=2)
    with in_precision():
        x, rows, seen = vb.prepare(model, (holes,), None)
        state = vb.init(jax.random.key(0), model, x, rows, seen)
        local = vb.update_rows(vb.columns_of(state.columns, rows), state.mixture, model, jnp.asarray(x), seen)
        inverse = np.linalg.inv(root)
        moved = local._replace(
            mean=(local.mean - m) @ inverse.T, covariance=inverse @ local.covariance @ inverse.T
        )
        weight = jnp.ones(len(x))
        sums = vb.mixture_vb.RowSums(*vb.statistics_of(local, weight))
        by = vb.Transformation(*map(jnp.asarray, (root, inverse, np.linalg.slogdet(root)[1], m)))
        found = vb.transformed_sums(sums, by)
        expected = vb.statistics_of(moved, weight)
        np.testing.assert_allclose(found.statistics, expected[0], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.entropy, expected[1], rtol=1e-9)
        columns = linear_gaussian._transformed(state.columns, by)
        squares = [
            linear_gaussian._expected_squares(
                own, vb.moments_of(rows_, weight, jnp.asarray(x), seen, rows), rows
            )
            for own, rows_ in ((state.columns, local), (columns, moved))
        ]
        np.testing.assert_allclose(*squares, rtol=1e-8)


def test_weights_of_rows_are_copies(table):
    """A row of weight two counts as two of it: the same bound after as many steps from the same shares."""
    x, labels, _ = table
    x, labels = x[:40], labels[:40]
    copied = np.concatenate([x, x[:10]])
    weight = np.where(np.arange(40) < 10, 2.0, 1.0)
    model = zoo.MCFA.from_data(copied, num_components=3, num_latents=2)
    options = {"max_iterations": 5, "tolerance": 0, "num_samples": 1, "num_restarts": 1, "progress": False}
    found = []
    for rows, own, more in (
        (copied, np.append(labels, labels[:10]), {}),
        (x, labels, {"sample_weight": weight}),
    ):
        start = {"assignments": own}
        found.append(inference.fit(model, rows, method="vb", init=start, **options, **more))
    np.testing.assert_allclose(*map(_objective, found), rtol=1e-10)


def test_a_start_that_is_none_is_refused(table):
    model = zoo.MCFA(num_components=3, num_latents=2)
    with pytest.raises(ValueError, match="init must hold 'responsibilities' or 'assignments'; got loc"):
        inference.fit(model, table[0], method="vb", init={"loc": np.zeros(10)})
    with pytest.raises(ValueError, match=r"responsibilities must have shape \(150, 3\); got \(150, 2\)"):
        inference.fit(model, table[0], method="vb", init={"responsibilities": np.full((150, 2), 0.5)})
