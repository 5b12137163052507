"""EM for finite mixtures: the likelihood's maximiser, step by step, for every family."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.stats

from inference import fit, log_density, model_of, predict, transform
from inference.plots import plot_em
from tests.support.component_families import FAMILIES, priors, rows
from zoo import Mixture
from zoo.conjugate import (
    BernoulliBeta,
    GaussianKnownMean,
    GaussianWishart,
    MultinomialDirichlet,
    SharedGaussianWishart,
)

GAUSSIAN = {
    "GaussianWishart": "full",
    "NormalGamma": "diag",
    "SphericalNormalGamma": "spherical",
    "SharedGaussianWishart": "tied",
}


def priors_of_four(name, x):
    """A family in four dimensions."""
    if name == "GaussianKnownMean":
        return GaussianKnownMean(x.mean(axis=0), np.eye(4), 5.0)
    return {"GaussianWishart": GaussianWishart, "SharedGaussianWishart": SharedGaussianWishart}[
        name
    ].from_data(x)


def slow_em(x, r, shape, steps):
    """EM with loops and no shortcuts: log likelihoods after each M-step."""
    n, d = x.shape
    trace = []
    for _ in range(steps):
        weights = r.sum(axis=0) / n
        means = [np.average(x, axis=0, weights=r[:, k]) for k in range(r.shape[1])]
        covariances = []
        for k, mean in enumerate(means):
            scatter = sum(r[i, k] * np.outer(x[i] - mean, x[i] - mean) for i in range(n)) / r[:, k].sum()
            if shape == "diag":
                scatter = np.diag(np.diag(scatter))
            if shape == "spherical":
                scatter = np.eye(d) * np.trace(scatter) / d
            covariances.append(scatter)
        if shape == "tied":
            covariances = [sum(w * c for w, c in zip(weights, covariances, strict=True))] * len(means)
        density = np.stack(
            [
                w * scipy.stats.multivariate_normal(m, c).pdf(x)
                for w, m, c in zip(weights, means, covariances, strict=True)
            ],
            axis=1,
        )
        trace.append(np.log(density.sum(axis=1)).sum())
        r = density / density.sum(axis=1, keepdims=True)
    return trace, r


@pytest.mark.parametrize("name", GAUSSIAN)
def test_every_covariance_shape_is_the_slow_em(name):
    x = np.concatenate(
        [rows("GaussianWishart", 20), rows("GaussianWishart", 15, 1) * [0.5, 2.0] + [4.0, 1.0]]
    )
    r = np.random.default_rng(0).dirichlet(np.ones(3), len(x))
    model = Mixture(components=priors()[name], num_components=3)
    settings = {"max_iterations": 12, "tolerance": 0, "init": {"responsibilities": r}}
    tree = fit(model, x, method="em", **settings)
    trace, shares = slow_em(x, r, GAUSSIAN[name], 13)
    np.testing.assert_allclose(tree["trace"]["objective"], trace[1:], rtol=1e-9)
    by_size = shares[:, np.argsort(-shares.sum(axis=0))]
    np.testing.assert_allclose(tree["variational"]["responsibilities"], by_size, atol=1e-7)
    bound = tree["trace"]["bound"].to_numpy()
    assert (bound <= tree["trace"]["objective"].to_numpy() + 1e-9).all()
    assert (bound[1:] >= tree["trace"]["objective"].to_numpy()[:-1] - 1e-9).all()  # it touches, then climbs


@pytest.mark.parametrize("name", FAMILIES)
def test_maximum_likelihood_is_a_stationary_point(name):
    """The gradient of the weighted log likelihood vanishes at the M-step, in every family."""
    with jax.enable_x64(True):
        components, x = priors()[name], rows(name, 40)
        r = np.random.default_rng(1).dirichlet(np.ones(2), 40)
        statistics = r.T @ components.features(x)
        estimate = components.maximum_likelihood(statistics, 1e-6)
        assert int(estimate.at_floor) == 0

        def likelihood(moved):
            parameters = {}
            for site, value in estimate.parameters.items():
                change = moved[site]
                if site.startswith("probs") and "Dirichlet" in name:
                    parameters[site] = jax.nn.softmax(jnp.log(value) + change)
                elif "precision" in site and value.ndim >= 2 and value.shape[-1] == value.shape[-2]:
                    parameters[site] = value + change + jnp.swapaxes(change, -1, -2)
                else:
                    parameters[site] = value + change
            return jnp.sum(components.coefficients(parameters) * statistics)

        zero = jax.tree.map(jnp.zeros_like, estimate.parameters)
        slopes = jax.jit(jax.grad(likelihood))(zero)
        scale = abs(likelihood(zero))
        assert max(float(jnp.abs(s).max()) for s in jax.tree.leaves(slopes)) < 1e-8 * max(scale, 1.0)


def test_one_component_is_the_closed_form_and_bic_is_by_hand():
    x = rows("GaussianWishart", 30)
    tree = fit(Mixture.from_data(x, num_components=1), x, method="em")
    density = scipy.stats.multivariate_normal(x.mean(axis=0), np.cov(x.T, bias=True)).logpdf(x)
    np.testing.assert_allclose(tree["trace"]["objective"][-1], density.sum(), rtol=1e-10)
    np.testing.assert_allclose(log_density(tree, x), density, rtol=1e-9)
    assert tree.attrs["num_parameters"] == 5
    np.testing.assert_allclose(tree.attrs["bic"], -2 * density.sum() + 5 * np.log(30), rtol=1e-10)
    np.testing.assert_allclose(tree.attrs["aic"], -2 * density.sum() + 10, rtol=1e-10)


@pytest.mark.slow
def test_a_fit_is_a_point_estimate_that_predicts(two_clusters):
    model = Mixture.from_data(two_clusters, num_components=2)
    tree = fit(model, two_clusters, method="em", num_restarts=5, init="kmeans")
    assert "log_likelihood" not in tree.children
    assert tree["posterior"].sizes["draw"] == tree["posterior"].sizes["chain"] == 1
    assert tree.attrs["converged"] == 1
    labels = predict(tree, two_clusters).to_numpy()
    assert (labels[:35] == labels[0]).all() and (labels[35:] != labels[0]).all()
    np.testing.assert_allclose(
        transform(tree, two_clusters), tree["variational"]["responsibilities"], atol=1e-9
    )
    np.testing.assert_allclose(
        tree["trace"]["objective"].max(), log_density(tree, two_clusters).sum(), rtol=1e-9
    )
    assert model_of(tree).num_components == 2


def test_binary_rows_with_missing_cells():
    """Bernoulli EM by hand, on the observed cells."""
    x = rows("BernoulliBeta", 30)
    x[np.random.default_rng(3).uniform(size=x.shape) < 0.2] = np.nan
    r = np.random.default_rng(0).dirichlet(np.ones(2), 30)
    tree = fit(
        Mixture(components=BernoulliBeta.from_data(x), num_components=2),
        x,
        method="em",
        init={"responsibilities": r},
        max_iterations=8,
        tolerance=0,
    )
    seen, filled = ~np.isnan(x), np.nan_to_num(x)
    for _ in range(9):
        probs = (r.T @ filled) / (r.T @ seen)
        log = np.log(r.mean(axis=0)) + filled @ np.log(probs).T + (seen - filled) @ np.log1p(-probs).T
        total = np.logaddexp.reduce(log, axis=1)
        r = np.exp(log - total[:, None])
    np.testing.assert_allclose(tree["trace"]["objective"][-1], total.sum(), rtol=1e-9)
    np.testing.assert_allclose(tree["posterior"]["probs"][0, 0], probs, rtol=1e-8)


@pytest.mark.parametrize("name", ["GaussianWishart", "SharedGaussianWishart", "GaussianKnownMean"])
def test_precisions_at_the_floor_keep_their_small_eigenvalues(name):
    """Two rows in four dimensions: to 1e-9; a plain inverse of the raised covariance is 1e-8 off and more."""
    x = np.random.default_rng(2).normal(size=(20, 4)) @ np.diag([3.0, 1.0, 1e-2, 1e-3])
    with jax.enable_x64(True):
        components = priors_of_four(name, x)
        r = np.zeros((1 if name == "SharedGaussianWishart" else 2, 20))
        r[0, :2] = 1.0
        r[-1, 2:] = r.shape[0] - 1
        estimate = components.maximum_likelihood(r @ np.asarray(components.features(x)), 1e-6)
    site = "shared_precision" if name == "SharedGaussianWishart" else "precisions"
    found = np.asarray(estimate.parameters[site]).reshape(-1, 4, 4)[0]
    about = np.asarray(components.loc) if name == "GaussianKnownMean" else x[:2].mean(axis=0)
    away, total = x[:2] - about, r.sum(axis=0)
    scale = np.sqrt(np.average((x - np.average(x, axis=0, weights=total)) ** 2, axis=0, weights=total))
    values = np.linalg.svd(away / scale / np.sqrt(2), compute_uv=False) ** 2
    wanted = 1 / np.maximum(np.r_[values, np.zeros(4 - len(values))], 1e-6)
    got = np.linalg.eigvalsh(found * np.outer(scale, scale))
    plain = np.linalg.eigvalsh(np.linalg.inv(np.linalg.inv(found * np.outer(scale, scale))))
    np.testing.assert_allclose(got, np.sort(wanted), rtol=1e-9)
    assert np.abs(plain / np.sort(wanted) - 1).max() > 1e-8


@pytest.mark.slow
def test_an_ascent_with_a_component_at_the_floor_climbs_in_any_unit():
    """By 1e-9 nats; with an LU inverse it fell by 2e-5 nats, and ended there."""
    x = np.random.default_rng(0).normal(size=(20, 4)) @ np.diag([3.0, 1.0, 1.0, 0.2])
    r = np.random.default_rng(1).dirichlet(np.ones(3), 20)
    r[:3], r[3:, 0] = [1.0, 0.0, 0.0], 0.0
    r /= r.sum(axis=1, keepdims=True)
    call = dict(method="em", max_iterations=12, tolerance=0.0, init={"responsibilities": r})
    with pytest.warns(UserWarning, match="a guard holds"):
        trees = [fit(Mixture.from_data(s * x, num_components=3), s * x, **call) for s in (1.0, 1000.0)]
    one, other = (tree["trace"]["objective"].to_numpy() for tree in trees)
    assert len(one) == len(other) == 12 and np.diff(one).min() > -1e-9
    np.testing.assert_allclose(other + 20 * 4 * np.log(1000.0), one, atol=1e-8)


@pytest.mark.slow
def test_singular_components_are_held_and_reported():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(12, 2)), np.full((3, 2), 9.0)])
    with pytest.warns(UserWarning, match=r"a guard holds [1-9] of 4 components"):
        tree = fit(Mixture.from_data(x, num_components=4), x, method="em", variance_floor=1e-4)
    objective = tree["trace"]["objective"].to_numpy()
    assert np.isfinite(objective).all() and tree.attrs["components_at_floor"] >= 1
    assert (np.diff(objective) > -1e-8 * np.abs(objective[1:])).all()
    smallest = np.linalg.eigvalsh(
        tree["posterior"]["covariances"][0, 0] / np.sqrt(np.outer(x.var(axis=0), x.var(axis=0)))
    )
    assert smallest.min() > 0.999e-4


@pytest.mark.parametrize("cells", [("ab", "bc"), ([0], [1]), ([0], [4, 5, 6, 7, 8, 9])])
def test_cells_that_never_occur_in_a_cluster_are_held_by_no_guard(cells):
    """Guards a false "the likelihood has no maximum there" of discrete cells, which are warnings here."""
    rng = np.random.default_rng(0)
    first, second = (rng.choice(own, (60, 3)) for own in map(list, cells))
    table = pd.DataFrame(np.concatenate([first, second]), columns=list("pqr"))
    tree = fit(Mixture(num_components=2), table, method="em", progress=False)
    assert tree.attrs["components_at_floor"] == 0


@pytest.mark.parametrize("name", FAMILIES)
def test_no_guard_holds_a_component_without_rows(name):
    """Sizes that share a program have such components beside theirs."""
    with jax.enable_x64(True):
        components = priors()[name]
        statistics = jnp.stack([components.features(jnp.asarray(rows(name, 40))).sum(axis=0)])
        estimate = components.maximum_likelihood(jnp.pad(statistics, ((0, 2), (0, 0))), 1e-6)
    assert int(estimate.at_floor) == 0
    assert all(np.isfinite(value).all() for value in estimate.parameters.values())


def test_numbers_of_parameters():
    d, k = 2, 3
    expected = {
        "GaussianWishart": k * (d + 3),
        "SharedGaussianWishart": k * d + 3,
        "GaussianKnownCovariance": k * d,
        "GaussianKnownMean": k * 3,
        "NormalGamma": 2 * k * d,
        "SphericalNormalGamma": k * (d + 1),
        "BernoulliBeta": 3 * k,
        "BinomialBeta": 2 * k,
        "PoissonGamma": 2 * k,
        "ExponentialGamma": 2 * k,
        "GammaKnownShape": 2 * k,
        "MultinomialDirichlet": 2 * k,
        "CategoricalDirichlet": k * d * 2,
        "Product": k * 5 + k + k,
        "LogNormal": 2 * k * d,
        "LogGaussian": k * 5 + k + k,
    }
    made = priors()
    made["Product"] = made["Product"].replaced(
        families=(*made["Product"].families[:2], BernoulliBeta([1.0], [1.0]))
    )
    assert {name: made[name].num_free_parameters(k) for name in FAMILIES} == expected


@pytest.mark.parametrize(
    ("fields", "options", "error", "message"),
    [
        ({"weight_prior": "stick_breaking"}, {}, ValueError, "em estimates the weights of a finite mixture"),
        ({}, {"variance_floor": 2.0}, ValueError, r"variance_floor must be a share .* in \[0, 1\); got 2"),
        ({}, {"variance_floor": "x"}, TypeError, "variance_floor must be a number; got 'x'"),
    ],
)
def test_bad_calls_are_refused(fields, options, error, message):
    model = Mixture(components=priors()["GaussianWishart"], num_components=2, **fields)
    with pytest.raises(error, match=message):
        fit(model, rows("GaussianWishart", 9), method="em", **options)


@pytest.mark.needs_peer
@pytest.mark.parametrize("name", GAUSSIAN)
def test_equal_to_scikit_learn_from_the_same_start(name):
    from sklearn.mixture import GaussianMixture

    class Started(GaussianMixture):
        def _initialize_parameters(self, X, random_state, xp=None):
            self._initialize(X, np.random.default_rng(0).dirichlet(np.ones(3), len(X)))

    x = np.concatenate([rows("GaussianWishart", 80), rows("GaussianWishart", 60, 1) * 0.5 + [4.0, 1.0]])
    peer = Started(3, covariance_type=GAUSSIAN[name], reg_covar=0.0, tol=0.0, max_iter=20)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer.fit(x)
    r = np.random.default_rng(0).dirichlet(np.ones(3), len(x))
    tree = fit(
        Mixture(components=priors()[name], num_components=3),
        x,
        method="em",
        init={"responsibilities": r},
        max_iterations=20,
        tolerance=0,
    )
    np.testing.assert_allclose(tree["posterior"]["locs"][0, 0], peer.means_, atol=1e-6)
    np.testing.assert_allclose(log_density(tree, x), peer.score_samples(x), atol=1e-6)


@pytest.mark.slow
def test_sparse_rows_are_the_dense_ones():
    import scipy.sparse

    x = rows("MultinomialDirichlet", 25)
    r = np.random.default_rng(0).dirichlet(np.ones(2), 25)
    model = Mixture(components=MultinomialDirichlet(np.ones(3)), num_components=2)
    call = {"method": "em", "init": {"responsibilities": r}, "max_iterations": 5, "tolerance": 0}
    dense, sparse = fit(model, x, **call), fit(model, scipy.sparse.csr_matrix(x), **call)
    np.testing.assert_allclose(dense["trace"]["objective"], sparse["trace"]["objective"], rtol=1e-10)


@pytest.mark.slow
def test_picture_draws_bound_and_likelihood_together(two_clusters):
    tree = fit(Mixture.from_data(two_clusters, num_components=2), two_clusters, method="em", num_restarts=2)
    axis = plot_em(tree, 8).axes[0]
    likelihood, bound = axis.lines[-2].get_ydata(), axis.lines[-1].get_ydata()
    np.testing.assert_array_equal(likelihood, tree["trace"]["objective"][: len(likelihood)])
    assert (bound <= likelihood[1:]).all() and (bound >= likelihood[:-1] - 1e-9).all()
    assert not axis.yaxis.get_major_formatter().get_useOffset()  # nats can be read off
    with pytest.raises(ValueError, match="iterations must be at least 2"):
        plot_em(tree, 1)


def test_default_components_are_full_gaussians(two_clusters):
    assert isinstance(Mixture.from_data(two_clusters).components, GaussianWishart)
