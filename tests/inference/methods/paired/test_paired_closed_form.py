"""Gaussian paired views in closed form: CCA, PLS, and their densities, against other ways to them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from scipy import stats

import zoo
from inference import fit, log_density, predict, transform
from inference.methods.paired.closed_form import solve
from inference.precision import in_precision
from inference.symmetry.identified import canonical_correlations
from tests.support.log_joint import log_joint
from zoo.exponential_family import Gaussian

UNKNOWN = (Gaussian(None), Gaussian(None))


@pytest.fixture(scope="module")
def views():
    rng = np.random.default_rng(0)
    u = rng.normal(size=(200, 2))
    first = u @ rng.normal(size=(2, 4)) + rng.normal(size=(200, 4)) @ rng.normal(size=(4, 4))
    second = 3 + u @ rng.normal(size=(2, 3)) + rng.normal(size=(200, 3)) @ rng.normal(size=(3, 3))
    return first, second


@pytest.fixture(scope="module")
def cca(views):
    model = zoo.Paired(families=UNKNOWN, num_shared=2, specific="full_covariance", latent_variance=4.0)
    return fit(model, *views, method="closed_form")


def classical(first, second):
    """Correlations and directions from the generalised eigenvalue problem of section 4.3.1."""
    joint = np.cov(np.hstack([first, second]), rowvar=False, bias=True)
    d = first.shape[1]
    inside = joint.copy()
    inside[:d, d:] = inside[d:, :d] = 0
    values, vectors = scipy.linalg.eigh(joint - inside, inside)
    top = vectors[:, ::-1] * 2**0.5
    return values[::-1], top[:d], top[d:]


def test_canonical_correlations_and_directions_are_recovered(views, cca):
    """Against the eigenvalue problem."""
    correlations, *directions = classical(*views)
    found = canonical_correlations(cca)
    np.testing.assert_allclose(found["correlations"][0, 0], correlations[:2], rtol=1e-8)
    for v in (0, 1):
        own, other = found[f"directions_{v}"][0, 0].to_numpy(), directions[v][:, :2]
        cosines = np.abs(np.sum(own * other, 0) / np.linalg.norm(own, axis=0) / np.linalg.norm(other, axis=0))
        np.testing.assert_allclose(cosines, 1, atol=1e-8)


def test_canonical_correlations_do_not_depend_on_units(views):
    """A column of small numbers was lost beside one of large numbers."""
    units = np.array([1e-6, 1e6, 10.0, 1.0])
    model = zoo.Paired(UNKNOWN, num_shared=2, specific="full_covariance", standardize=True)
    fits = [fit(model, views[0] * unit, views[1], method="closed_form") for unit in (1.0, units)]
    one, other = map(canonical_correlations, fits)
    np.testing.assert_allclose(one["correlations"], other["correlations"], rtol=1e-6)
    np.testing.assert_allclose(one["directions_0"] / units[:, None], other["directions_0"], rtol=1e-5)


@pytest.mark.needs_peer
def test_canonical_correlations_are_scikit_learns(views, cca):
    """To the tolerance of its iteration."""
    from sklearn.cross_decomposition import CCA

    found = canonical_correlations(cca)
    scores = CCA(n_components=2, max_iter=2000, tol=1e-12).fit_transform(*views)
    peer = [np.corrcoef(a, b)[0, 1] for a, b in zip(scores[0].T, scores[1].T, strict=True)]
    np.testing.assert_allclose(found["correlations"][0, 0], peer, atol=1e-6)


def test_likelihood_is_that_of_a_dense_normal_and_at_its_maximum(views, cca):
    """The objective is the density of the estimate; moving any parameter lowers it."""
    values = {name: value.to_numpy() for name, value in cca["variational"].data_vars.items()}

    def density(values):
        unit = 2**0.5  # standard deviation of the latents in the balanced scale
        loadings = unit * np.concatenate([values["loadings_0"], values["loadings_1"]])
        noise = scipy.linalg.block_diag(*(np.linalg.inv(values[f"specific_precision_{v}"]) for v in (0, 1)))
        loc = np.concatenate([values["loc_0"], values["loc_1"]])
        return stats.multivariate_normal(loc, loadings @ loadings.T + noise).logpdf(np.hstack(views)).sum()

    top = float(cca["trace"]["objective"][-1])
    np.testing.assert_allclose(density(values), top, rtol=1e-10)
    np.testing.assert_allclose(log_density(cca, *views).sum(), top, rtol=1e-8)
    rng = np.random.default_rng(1)
    for name in ("loadings_0", "loadings_1", "loc_1", "specific_precision_0"):
        step = 1e-3 * rng.normal(size=values[name].shape)
        step = step + step.T if name.startswith("specific") else step
        assert density(values | {name: values[name] + step}) < top
        assert density(values | {name: values[name] - step}) < top


@pytest.mark.slow
def test_one_view_from_another_is_reduced_rank_regression(views, cca):
    """E[y_1 | y_0] by the joint normal of the estimate; latents of y_0 alone are the canonical variates."""
    first, second = views
    filled = predict(cca, first)
    values = {name: value.to_numpy() for name, value in cca["variational"].data_vars.items()}
    loadings = [values[f"loadings_{v}"] * 2**0.5 for v in (0, 1)]
    square = loadings[0] @ loadings[0].T + np.linalg.inv(values["specific_precision_0"])
    expected = second.mean(0) + (first - first.mean(0)) @ np.linalg.solve(square, loadings[0] @ loadings[1].T)
    np.testing.assert_allclose(filled, expected, rtol=1e-6, atol=1e-8)
    variates = (first - first.mean(0)) @ canonical_correlations(cca)["directions_0"][0, 0].to_numpy()
    scores = transform(cca, first).to_numpy()
    assert np.abs(np.corrcoef(variates.T, scores.T)[:2, 2:]).max(0) == pytest.approx(1, abs=1e-8)


def test_supervised_pca_and_pls_are_ppca_of_the_views_side_by_side(views):
    """SEPCA(3) is PPCA; EPLS with one target column and 1 + 2 latents has its density, and its zeros."""
    first, second = views[0][:, :1], views[1]
    families = (Gaussian(0.7), Gaussian(0.7))
    sepca = fit(zoo.Paired.sepca(families, 3), first, second, method="closed_form")
    epls = fit(zoo.Paired.epls(families, 1, 2), first, second, method="closed_form")
    np.testing.assert_allclose(epls["trace"]["objective"], sepca["trace"]["objective"], rtol=1e-12)
    np.testing.assert_allclose(log_density(epls, first, second), log_density(sepca, first, second), rtol=1e-9)
    assert (epls["posterior"]["loadings_0"][0, 0, :, 1:] == 0).all()
    assert (epls["posterior"]["loadings_0"][0, 0, :, 0] != 0).all()
    np.testing.assert_allclose(predict(epls, None, second), predict(sepca, None, second), rtol=1e-8)
    np.testing.assert_allclose(
        log_density(sepca, first, second).sum(), sepca["trace"]["objective"][-1], rtol=1e-9
    )


def test_the_cross_covariance_has_the_directions_of_pls(views):
    """With all pairs V_0 V_1' is the sample's cross-covariance, whose singular vectors PLS takes."""
    first, second = views
    model = zoo.Paired(families=UNKNOWN, num_shared=3, specific="full_covariance")
    values = fit(model, first, second, method="closed_form")["variational"]
    product = values["loadings_0"].to_numpy() @ values["loadings_1"].to_numpy().T
    sample = (first - first.mean(0)).T @ (second - second.mean(0)) / len(first)
    np.testing.assert_allclose(product, sample, atol=1e-10)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (zoo.Paired.ecca(("gaussian", "gaussian"), 1, (1, 1)), "closed_form is for targets y_0"),
        (zoo.Paired.sepca(UNKNOWN, 1), "given noise variance.*or specific='full_covariance', which is CCA"),
        (zoo.Paired.sepca(("gaussian", Gaussian(2.0)), 1), "the same noise variance in all views"),
        (zoo.Paired.sepca(("gaussian",) * 2, 1, view_weights=(1.0, 2.0)), "view_weights of one"),
        (zoo.Paired(families=("gaussian", "gaussian"), specific="full_covariance"), "is probabilistic CCA"),
        (zoo.Paired(families=UNKNOWN, num_shared=4, specific="full_covariance"), "at most 3 canonical"),
    ],
)
def test_what_has_no_closed_form_is_refused(views, model, message):
    with pytest.raises(ValueError, match=message):
        fit(model, *views, method="closed_form")


def test_data_without_a_maximum_are_refused(views):
    model = zoo.Paired(families=UNKNOWN, num_shared=1, specific="full_covariance")
    first, second = views
    holes = first.copy()
    holes[3, 1] = np.nan
    with pytest.raises(ValueError, match="row 3, column 1 of y_0 is missing"):
        fit(model, holes, second, method="closed_form")
    with pytest.raises(ValueError, match="a canonical correlation is 1"):
        fit(model, first, np.hstack([second, first[:, :1]]), method="closed_form")
    with pytest.raises(ValueError, match="the covariance of y_1 is singular"):
        fit(model, first, np.hstack([second, np.ones((200, 1))]), method="closed_form")


def test_the_program_at_the_estimate_has_the_latents_posterior(views, cca):
    """The stored latents are E[u | y]: the gradient of the program's joint in them is zero."""
    from inference.results.files import model_of

    with in_precision():
        model, data = model_of(cca), tuple(map(jnp.asarray, views))
        values = {name: jnp.asarray(v.to_numpy()) for name, v in cca["variational"].data_vars.items()}
        slope = jax.jit(jax.grad(lambda u: log_joint(model, values | {"latents": u}, *data)))(
            values["latents"]
        )
    np.testing.assert_allclose(slope, 0, atol=1e-8)


@pytest.mark.parametrize("specific", ["full_covariance", "low_rank"])
def test_the_estimate_shares_correlations_equally_and_its_latents_are_their_posterior_means(views, specific):
    """In whatever scale: loadings for latents of variance 3, from latent_variance 4.5 and loading_variance 2.

    Canonical correlations P are V_v' S_vv^-1 V_v of either view, and V_0' S_00^-1 S_01 S_11^-1 V_1 is P^2.
    """
    own = {"full_covariance": UNKNOWN, "low_rank": (Gaussian(0.7), Gaussian(0.7))}[specific]
    fields = {"num_shared": 2, "latent_variance": 4.5, "loading_variance": 2.0}
    values = solve(None, zoo.Paired(own, specific=specific, **fields), views)[0].variational
    whole = np.sqrt(3.0) * np.concatenate([values["loadings_0"], values["loadings_1"]])
    sample = np.cov(np.hstack(views), rowvar=False, bias=True)
    noise = 0.7 * np.eye(7)
    if specific == "full_covariance":
        noise = scipy.linalg.block_diag(*(np.linalg.inv(values[f"specific_precision_{v}"]) for v in (0, 1)))
        correlations = classical(*views)[0][:2]
        squares = sample[:4, :4], sample[4:, 4:]
        regressed = [
            np.linalg.solve(square, v) for square, v in zip(squares, (whole[:4], whole[4:]), strict=True)
        ]
        for v, one in zip((whole[:4], whole[4:]), regressed, strict=True):
            np.testing.assert_allclose(v.T @ one, np.diag(correlations), atol=1e-10)
        product = regressed[0].T @ sample[:4, 4:] @ regressed[1]
        np.testing.assert_allclose(product, np.diag(correlations**2), atol=1e-10)
        for place in (slice(4), slice(4, 7)):
            np.testing.assert_allclose(
                (whole @ whole.T + noise)[place, place], sample[place, place], atol=1e-10
            )
    centred = np.hstack(views) - np.hstack(views).mean(axis=0)
    unit_latents = centred @ np.linalg.inv(whole @ whole.T + noise) @ whole
    np.testing.assert_allclose(values["latents"], np.sqrt(3.0) * unit_latents, rtol=1e-8, atol=1e-10)
