"""The program of the mixture of factor analysers: its densities, its special cases, what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp, softmax

import zoo
from tests.support.fit_requests import check_method
from tests.support.log_joint import log_joint
from zoo.answers import answer_of
from zoo.conjugate import GaussianWishart
from zoo.intake.families import for_data
from zoo.linear_gaussian import rows as linear_gaussian
from zoo.linear_gaussian.clustered import ClusteredRows

ROWS, FEATURES, LATENTS, CLUSTERS = 9, 5, 2, 3
SIZES = {"num_components": CLUSTERS, "num_latents": LATENTS}


@pytest.fixture(autouse=True)
def double():
    """64 bits throughout."""
    with jax.enable_x64(True):
        yield


def _table(seed=0):
    x = np.random.default_rng(seed).normal(size=(ROWS, FEATURES)) * [1, 2, 3, 1, 0.5] + 3
    x[2, 1] = x[5, 0] = x[5, 3] = np.nan
    return x


def _values(noise="isotropic", d=FEATURES, k=LATENTS, m=CLUSTERS, seed=0):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(m, k, k + 2))
    values = {
        "weights": rng.dirichlet(np.ones(m)),
        "precisions": roots @ np.swapaxes(roots, -1, -2),
        "locs": rng.normal(size=(m, k)),
        "raw_loadings": rng.normal(size=(d, k)),
        "raw_loc": rng.normal(size=d) + 3,
        "noise_variance": rng.uniform(0.2, 1.0, d if noise == "diagonal" else ()),
    }
    return {name: jnp.asarray(value) for name, value in values.items()}


def _normals(values, scale=1.0):
    """Weights, means and covariances of rows, by hand."""
    own = {name: np.asarray(value) for name, value in values.items()}
    w = own["raw_loadings"]
    noise = np.diag(np.broadcast_to(own["noise_variance"], len(w)) * scale**2)
    means = own["locs"] @ w.T + own["raw_loc"]
    return own["weights"], means, w @ np.linalg.inv(own["precisions"]) @ w.T + noise


def _log_joint(values, x, scale=1.0):
    weights, means, covariances = _normals(values, scale)
    found = np.empty((len(x), len(weights)))
    for i, row in enumerate(x):
        o = ~np.isnan(row)
        for k, (mean, covariance) in enumerate(zip(means, covariances, strict=True)):
            found[i, k] = stats.multivariate_normal(mean[o], covariance[np.ix_(o, o)]).logpdf(row[o])
    return found + np.log(weights)


@pytest.mark.parametrize("noise", ["isotropic", "diagonal"])
@pytest.mark.parametrize("standardize", [False, True])
def test_rows_are_a_mixture_of_normals(noise, standardize):
    """Labels and latents summed out, missing cells left out: the program's term, and that of each row."""
    x, values = _table(), _values(noise)
    model = zoo.MCFA.from_data(x, noise=noise, standardize=standardize, **SIZES)
    scale = model.column_scale if standardize else 1.0
    joint = _log_joint(values, x, scale)
    np.testing.assert_allclose(model.log_likelihood(values, x), logsumexp(joint, axis=1), rtol=1e-11)
    shares = answer_of(model, "conditionals", values, x)["assignments"].logits
    np.testing.assert_allclose(softmax(shares, axis=1), softmax(joint, axis=1), rtol=1e-9)


@pytest.mark.parametrize("weight_prior", ["dirichlet", "stick_breaking"])
@pytest.mark.parametrize("loading_prior", ["gaussian", "ard"])
def test_explicit_program_less_its_locals_is_the_marginal_one(weight_prior, loading_prior):
    """log p(x, c, z) - log p(c | x) - log p(z | c, x) = log p(x), at any c and z, priors included."""
    x, values = _table(), _values()
    model = zoo.MCFA.from_data(x, weight_prior=weight_prior, loading_prior=loading_prior, **SIZES)
    if weight_prior == "stick_breaking":
        values["stick_decays"] = jnp.asarray([0.4, 1.1])
    if loading_prior == "ard":
        values["loading_precision"] = jnp.asarray([0.5, 2.0])
    labels = jnp.arange(ROWS) % CLUSTERS
    latents = jax.random.normal(jax.random.key(0), (ROWS, LATENTS))
    given = answer_of(model, "conditionals", values | {"assignments": labels}, x)
    own = {"assignments": labels, "raw_latents": latents}
    explicit = log_joint(model.explicit, values | own, x)
    locals_given = sum(given[name].log_prob(own[name]).sum() for name in own)
    marginal = log_joint(model, values, x)
    assert float(explicit - locals_given) == pytest.approx(float(marginal), rel=1e-11)


def test_prior_of_the_clusters_is_on_paper():
    """Wishart and normal of latents of covariance one, by SciPy; the Gaussian prior of loadings and mean."""
    x, values = _table(), _values()
    model = zoo.MCFA.from_data(x, mean_precision=0.3, degrees_of_freedom=3.5, **SIZES)
    total = _log_joint(values, x)
    expected = logsumexp(total, axis=1).sum()
    for precision, loc in zip(values["precisions"], values["locs"], strict=True):
        expected += stats.wishart(3.5, np.eye(2) / (0.3 * 3.5)).logpdf(precision)
        expected += stats.multivariate_normal(np.zeros(2), np.linalg.inv(0.3 * precision)).logpdf(loc)
    scale = np.nanvar(x, axis=0).mean()
    expected += stats.norm(0, scale**0.5).logpdf(values["raw_loadings"]).sum()
    expected += stats.norm(np.nanmean(x, axis=0), 10 * scale**0.5).logpdf(values["raw_loc"]).sum()
    expected += stats.invgamma(1e-3, scale=1e-3 * scale).logpdf(values["noise_variance"])
    expected += stats.dirichlet(np.full(CLUSTERS, 1 / CLUSTERS)).logpdf(np.asarray(values["weights"]))
    assert float(log_joint(model, values, x)) == pytest.approx(expected, rel=1e-10)


# Special cases


def test_one_cluster_is_ppca():
    """With latents of any mean and covariance: PPCA's density, completed cells and scores, turned at most."""
    x, values = _table(), _values(m=1)
    model = zoo.MCFA.from_data(x, num_components=1, num_latents=LATENTS)
    standard = ClusteredRows.of(model, values).standard
    ppca, own = zoo.PPCA(num_latents=LATENTS), {"noise_variance": values["noise_variance"]}
    own |= {"loadings": standard.loadings, "loc": standard.loc}
    np.testing.assert_allclose(model.log_likelihood(values, x), ppca.log_likelihood(own, x), rtol=1e-11)
    for found, expected in zip(model.predicted(values, x), ppca.predicted(own, x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    for kind in ("latent", "orthonormal"):
        expected = ppca.scores(own, x, kind=kind)
        np.testing.assert_allclose(model.scores(values, x, kind=kind), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        answer_of(model, "scores_covariance", values, x),
        answer_of(ppca, "scores_covariance", own, x),
        rtol=1e-9,
    )


def test_no_reduction_is_the_gaussian_mixture():
    """W = I: a mixture whose covariances have the noise added, at any noise."""
    x = _table()[:, :3]
    values = _values(d=3, k=3) | {"raw_loadings": jnp.eye(3), "raw_loc": jnp.zeros(3)}
    model = zoo.MCFA.from_data(x, num_components=CLUSTERS, num_latents=3)
    covariances = jnp.linalg.inv(values["precisions"]) + values["noise_variance"] * jnp.eye(3)
    mixture = for_data(zoo.Mixture.from_data(x, num_components=CLUSTERS), x)
    own = {"weights": values["weights"], "locs": values["locs"], "precisions": jnp.linalg.inv(covariances)}
    np.testing.assert_allclose(model.log_likelihood(values, x), mixture.log_likelihood(own, x), rtol=1e-10)
    assert isinstance(model.mixture.components, GaussianWishart)


def test_given_labels_a_row_is_linear_gaussian():
    x, values = _table(), _values()
    model = zoo.MCFA.from_data(x, **SIZES)
    joint = ClusteredRows.of(model, values).log_joint(x) - jnp.log(values["weights"])
    for k in range(CLUSTERS):
        loadings = values["raw_loadings"] @ jnp.linalg.cholesky(jnp.linalg.inv(values["precisions"][k]))
        loc = values["raw_loc"] + values["raw_loadings"] @ values["locs"][k]
        own = linear_gaussian.log_density(x, loadings, loc, values["noise_variance"])
        np.testing.assert_allclose(joint[:, k], own, rtol=1e-11)


# What the data identify


def _moved(values, seed=1):
    """The same rows with latents A z + b."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(LATENTS, LATENTS)), rng.normal(size=LATENTS)
    back = np.linalg.inv(a)
    return values | {
        "raw_loadings": values["raw_loadings"] @ back,
        "raw_loc": values["raw_loc"] - values["raw_loadings"] @ back @ b,
        "locs": values["locs"] @ a.T + b,
        "precisions": back.T @ values["precisions"] @ back,
    }


def test_what_is_shown_is_what_rows_can_tell():
    """Latents may be moved by any affine map: density, moments of rows, L L' and scores up to a rotation."""
    x, values = _table(), _values()
    model, moved = zoo.MCFA.from_data(x, **SIZES), _moved(values)
    np.testing.assert_allclose(model.log_likelihood(values, x), model.log_likelihood(moved, x), rtol=1e-9)
    here, there = (ClusteredRows.of(model, own).standard for own in (values, moved))
    weights, means, covariances = _normals(values)
    mean = weights @ means
    total = np.einsum("m,mij->ij", weights, covariances) + (weights * (means - mean).T) @ (means - mean)
    noise = float(values["noise_variance"]) * np.eye(FEATURES)
    for own in (here, there):
        np.testing.assert_allclose(own.loc, mean, rtol=1e-9)
        np.testing.assert_allclose(own.loadings @ own.loadings.T + noise, total, rtol=1e-9)
    first, second = model.scores(values, x), model.scores(moved, x)
    np.testing.assert_allclose(first @ here.loadings.T, second @ there.loadings.T, rtol=1e-8, atol=1e-10)
    cells, others = answer_of(model, "typical_cells", values)[0], answer_of(model, "typical_cells", moved)[0]
    np.testing.assert_allclose(cells.values, means, rtol=1e-10)
    np.testing.assert_allclose(cells.spread**2, np.diagonal(covariances, axis1=1, axis2=2), rtol=1e-9)
    np.testing.assert_allclose(others.values, means, rtol=1e-9)


def test_standard_latents_turn_with_those_of_the_program():
    values = _values()
    model = zoo.MCFA.from_data(_table(), **SIZES)
    turn = np.linalg.qr(np.random.default_rng(2).normal(size=(LATENTS, LATENTS)))[0]
    turned = values | {
        "raw_loadings": values["raw_loadings"] @ turn,
        "locs": values["locs"] @ turn,
        "precisions": turn.T @ values["precisions"] @ turn,
    }
    loadings = ClusteredRows.of(model, values).standard.loadings
    np.testing.assert_allclose(ClusteredRows.of(model, turned).standard.loadings, loadings @ turn, rtol=1e-9)


def test_completed_cells_are_those_of_the_mixture():
    """Mean and variance of missing cells given the others: conditional normals, weighted by the shares."""
    x, values = _table(), _values()
    found, variance = zoo.MCFA.from_data(x, **SIZES).predicted(values, x)
    weights, means, covariances = _normals(values)
    shares = softmax(_log_joint(values, x), axis=1)
    for i, row in enumerate(x):
        o, gone = ~np.isnan(row), np.isnan(row)
        first, second = np.zeros(gone.sum()), np.zeros(gone.sum())
        for share, mean, covariance in zip(shares[i], means, covariances, strict=True):
            gain = np.linalg.solve(covariance[np.ix_(o, o)], covariance[np.ix_(o, gone)]).T
            own = mean[gone] + gain @ (row[o] - mean[o])
            spread = np.diag(covariance[np.ix_(gone, gone)] - gain @ covariance[np.ix_(o, gone)])
            first, second = first + share * own, second + share * (spread + own**2)
        np.testing.assert_allclose(found[i, gone], first, rtol=1e-9)
        np.testing.assert_allclose(variance[i, gone], second - first**2, rtol=1e-8)
        np.testing.assert_array_equal(found[i, o], row[o])


def test_draws_of_rows_have_the_moments_of_the_row():
    """4 standard errors of 40 000 rows: 30 numbers, 2e-3 false alarms."""
    values = _values()
    row = ClusteredRows.of(zoo.MCFA.from_data(_table(), **SIZES), values)
    drawn = np.asarray(row.sample(jax.random.key(0), (40_000,)))
    total = row.standard.loadings @ row.standard.loadings.T + values["noise_variance"] * jnp.eye(FEATURES)
    errors = np.sqrt(np.diag(total) / len(drawn))
    assert (np.abs(drawn.mean(0) - row.standard.loc) < 4 * errors).all()
    squares = (drawn - np.asarray(row.standard.loc))[:, :, None] * (drawn - np.asarray(row.standard.loc))[
        :, None
    ]
    assert (np.abs(squares.mean(0) - total) < 4 * squares.std(0) / np.sqrt(len(drawn))).all()


# What it refuses


def test_bad_fields_are_named():
    with pytest.raises(ValueError, match="degrees_of_freedom must exceed num_latents - 1 = 2"):
        zoo.MCFA(num_latents=3, degrees_of_freedom=2)
    with pytest.raises(ValueError, match="map has no maximum.* give concentration=4 or weight_prior"):
        check_method(zoo.MCFA(num_components=4), "map")
    check_method(zoo.MCFA(num_components=4, concentration=4.0), "map")
    check_method(zoo.MCFA(num_components=4, weight_prior="stick_breaking", concentration=0.1), "map")
