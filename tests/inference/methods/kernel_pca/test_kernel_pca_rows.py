"""Rows that come later: scores of new ones, fits that go on with more, all of them or online."""

import numpy as np
import pytest
import scipy.linalg
import xarray as xr

import inference
import zoo
from inference import fit
from inference.methods.kernel_pca import em
from tests.support.kernel_rows_cases import NEW, TOY, X, centred, clusters, spectrum
from zoo.kernels import RBF, Linear, Polynomial, Precomputed
from zoo.kernels.gram import Centring, centring_of, cross_gram, gram_matrix


def largest_angle(a, b):
    return scipy.linalg.subspace_angles(a, b)[0]


# Rows added


@pytest.mark.slow
def test_new_rows_are_taken_up_and_end_where_all_rows_together_do():
    """Algorithm 5.2, corrected: points of the third cluster in two instalments, from either start."""
    tree = fit(zoo.KernelPCA(**TOY), clusters(0), method="em")
    for third in (10, 30):
        x = clusters(third)
        best = fit(zoo.KernelPCA(**TOY), x)
        for new_rows in ("random", "projected"):
            settings = {"max_iterations": 300, "tolerance": 0, "new_rows": new_rows}
            again = fit(zoo.KernelPCA(**TOY), x, method="em", init=tree, **settings)
            objective = again["trace"]["objective"].to_numpy()
            assert np.diff(objective).min() >= -1e-12 * np.abs(objective).max()
            np.testing.assert_allclose(objective[-1], best["trace"]["objective"].item(), rtol=1e-12)
            np.testing.assert_allclose(
                again["variational"]["eigenvalues"], best["variational"]["eigenvalues"], rtol=1e-8
            )
        tree = again


def explicit_span(old, new, num_latents):
    """PCA within the span of old loadings and new rows, in the columns themselves (linear kernel)."""
    both = np.concatenate([old, new])
    loadings = np.linalg.svd(old - old.mean(axis=0), full_matrices=False)[2][:num_latents]
    rows = both - both.mean(axis=0)
    basis = np.linalg.qr(np.concatenate([loadings, rows[len(old) :]]).T)[0]
    u, d, vt = np.linalg.svd(rows @ basis, full_matrices=False)
    return d[:num_latents] ** 2, basis @ vt[:num_latents].T, both.mean(axis=0)


@pytest.mark.slow
def test_online_is_pca_in_the_span_of_old_loadings_and_new_rows():
    """Where feature space has columns all is known: eigenvalues, scores, K Z, the next addition."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=(36, 12)) * np.linspace(2.0, 0.5, 12) + 1.0
    model = zoo.KernelPCA(num_latents=2, kernel="linear", noise_variance=0.05)
    settings = {"max_iterations": 2000, "tolerance": 1e-12, "memory": "online"}
    tree = fit(model, x[:30], method="em", **settings)  # the first rows have nothing to leave out
    tree = fit(model, x[:33], method="em", init=tree, **settings)
    values, directions, mean = explicit_span(x[:30], x[30:33], 2)
    np.testing.assert_allclose(tree["variational"]["eigenvalues"], values, rtol=1e-9)
    new = rng.normal(size=(4, 12))
    coordinates = inference.transform(tree, new, scores="orthonormal").to_numpy()
    np.testing.assert_allclose(np.abs(coordinates), np.abs((new - mean) @ directions), atol=1e-5)
    objective = tree["trace"]["objective"].to_numpy()
    assert np.diff(objective).min() >= -1e-12 * np.abs(objective).max()
    best = fit(model, x[:33])
    assert objective[-1] < best["trace"]["objective"].item()  # the third direction of old rows is gone
    kept = tree["variational"]
    gram = gram_matrix(Linear(), x[:33])
    np.testing.assert_allclose(kept["gram_means"], gram.mean(axis=0), rtol=1e-10)
    exact = centring_of(gram).gram(gram) @ kept["coefficients"].to_numpy()
    np.testing.assert_allclose(kept["gram_products"], exact, atol=1e-8)  # K Z without K
    np.testing.assert_allclose(kept["coefficients"].sum("observation"), 0.0, atol=1e-10)
    third = fit(model, x, method="em", init=tree, **settings)
    exact = centred(Linear(), x) @ third["variational"]["coefficients"].to_numpy()
    np.testing.assert_allclose(third["variational"]["gram_products"], exact, atol=1e-8)


@pytest.mark.parametrize("kernel", [Linear(), Precomputed()], ids=["linear", "precomputed"])
def test_rows_online_are_the_projections_onto_old_directions_and_new_rows(kernel):
    """Rows far from zero, a third old direction that is none: inner products, directions and means."""
    x = np.random.default_rng(8).normal(size=(11, 9)) + 5.0
    old, rows = x[:8] - x[:8].mean(axis=0), x - x.mean(axis=0)
    u, s, vt = np.linalg.svd(old, full_matrices=False)
    coefficients = np.c_[u[:, :2] / s[:2], np.zeros(8)]
    former = {
        "coefficients": (("observation", "latent"), coefficients),
        "gram_products": (("observation", "latent"), old @ old.T @ coefficients),
        "gram_means": ("observation", (x[:8] @ x[:8].T).mean(axis=0)),
    }
    data = x if isinstance(kernel, Linear) else x @ x.T
    found = em._online(kernel, data, xr.Dataset(former), freedom=np.ones(()), dimension=np.ones(()))
    span = np.linalg.qr(np.concatenate([vt[:2], rows[8:]]).T)[0]
    projected = rows @ span
    np.testing.assert_allclose(found.coordinates @ found.coordinates.T, projected @ projected.T, atol=1e-10)
    np.testing.assert_allclose(found.coordinates.mean(axis=0), 0.0, atol=1e-10)
    directions = found.coefficients(np.eye(found.basis.shape[1])).T @ rows  # of the basis
    np.testing.assert_allclose(directions @ directions.T, np.eye(len(directions)), atol=1e-10)
    np.testing.assert_allclose(rows @ directions.T, found.coordinates, atol=1e-10)
    begun = found.product(found.from_former(coefficients))
    np.testing.assert_allclose(begun, np.c_[rows @ vt[:2].T, np.zeros(11)], atol=1e-10)
    np.testing.assert_allclose(found.gram_means, x @ x.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.trace, (rows**2).sum(), rtol=1e-9)


def literal_online(gram, z, c, fixed, num_old, noise, sweeps):
    """The text's trade-off: K_11 Z_1 held fixed while Z moves, (5.27) in Algorithm 5.2."""
    num_rows, trace = len(gram), []
    for _ in range(sweeps):
        product = np.concatenate([fixed + gram[:num_old, num_old:] @ z[num_old:], gram[num_old:] @ z])
        inner = np.linalg.inv(z.T @ product + noise * c @ c)
        z, c_new = product @ inner @ c, num_rows * noise * c @ inner @ c
        c = c_new + z.T @ z
        b = np.linalg.solve(c.T, z.T).T
        full = b.T @ gram @ b + noise * np.eye(len(c))
        explained = np.trace(np.linalg.solve(full, b.T @ gram @ gram @ b))
        trace.append(-num_rows / 2 * (np.linalg.slogdet(full)[1] - explained / (num_rows * noise)))
    return z, np.array(trace)


@pytest.mark.slow
def test_online_ends_at_a_lower_maximum_and_the_texts_trade_off_at_a_worse_one():
    """Ten points of the third cluster: eigenvalues captured by all rows, by ours, by K Z held fixed."""
    x, num_old = clusters(10), 60
    model = zoo.KernelPCA(**TOY)
    old, best = fit(model, x[:num_old]), fit(model, x)
    online = fit(model, x, method="em", init=old, memory="online", max_iterations=2000, tolerance=1e-10)
    gap = best["trace"]["objective"].item() - online["trace"]["objective"][-1].item()
    assert gap > 0.1  # nats: another maximum, not one that more sweeps would reach
    gram, kernel = centred(TOY["kernel"], x), TOY["kernel"]
    estimate = old["variational"]
    z = estimate["gram_products"].to_numpy() / np.sqrt(estimate["eigenvalues"].to_numpy()) * np.sqrt(num_old)
    z = np.concatenate([z, np.random.default_rng(0).normal(size=(len(x) - num_old, 3))])
    fixed = gram[:num_old, :num_old] @ z[:num_old]
    literal, trace = literal_online(gram, z, z.T @ z, fixed, num_old, 0.01, 300)
    assert np.diff(trace).min() < 0  # its likelihood falls: K Z and Z do not belong together
    values, vectors = spectrum(kernel, x)

    def captured(span):
        q = np.linalg.qr(span)[0]
        return np.trace(q.T @ gram @ q) / values[:3].sum()

    ours = captured(online["variational"]["gram_products"].to_numpy())
    assert captured(literal) < ours < 1 - 1e-6


# New rows


@pytest.mark.parametrize("kernel", [RBF(1.5), Polynomial(2), Linear()], ids=lambda k: type(k).__name__)
def test_scores_of_new_rows_are_the_texts_formula(kernel):
    """(5.14) with the corrected eigen-function, and the coordinates of kernel PCA."""
    model = zoo.KernelPCA(num_latents=2, kernel=kernel, noise_variance=0.02, degrees_of_freedom=40.0)
    tree = fit(model, X)
    values, vectors = spectrum(kernel, X)
    crossed = cross_gram(kernel, NEW, X)
    centring = Centring(gram_matrix(kernel, X).mean(axis=0))
    projected = centring.cross(crossed) @ vectors[:, :2]
    signs = np.sign(np.sum(vectors[:, :2] * tree["variational"]["coefficients"].to_numpy(), axis=0))
    latent = np.sqrt(40) / values[:2] * np.sqrt(1 - 40 * 0.02 / values[:2]) * projected * signs
    np.testing.assert_allclose(inference.transform(tree, NEW), latent, rtol=1e-8, atol=1e-10)
    orthonormal = inference.transform(tree, NEW, scores="orthonormal")
    assert orthonormal.dims == ("observation", "latent")
    np.testing.assert_allclose(orthonormal, projected / np.sqrt(values[:2]) * signs, rtol=1e-8, atol=1e-10)
    fitted = inference.transform(tree, X, scores="orthonormal")
    np.testing.assert_allclose(fitted, tree["variational"]["gram_products"], atol=1e-9)
    precomputed = zoo.KernelPCA(num_latents=2, kernel="precomputed", noise_variance=0.02)
    by_values = inference.transform(fit(precomputed, gram_matrix(kernel, X)), crossed, scores="orthonormal")
    np.testing.assert_allclose(by_values, orthonormal, atol=1e-8)
    one = inference.transform(tree, NEW[:1])
    np.testing.assert_allclose(one, latent[:1], rtol=1e-8, atol=1e-10)


def test_latent_covariance_is_the_posteriors():
    tree = fit(zoo.KernelPCA(num_latents=2, kernel=RBF(1.5), noise_variance=0.02), X)
    both = inference.transform(tree, NEW, covariance=True)
    variances = tree["variational"]["signal_variances"].to_numpy()
    np.testing.assert_allclose(both["covariance"][3], np.diag(0.02 / (variances + 0.02)), rtol=1e-12)
    np.testing.assert_allclose(both["scores"], inference.transform(tree, NEW))


@pytest.mark.needs_peer
@pytest.mark.parametrize("kernel", [RBF(1.5), Polynomial(3, offset=0.5, scale=0.4), Linear()])
def test_scikit_learns_kernel_pca_has_the_same_subspace_and_scores(kernel):
    from sklearn.decomposition import KernelPCA

    keywords = {
        RBF: {"kernel": "rbf", "gamma": 0.5 / 1.5**2},
        Polynomial: {"kernel": "poly", "degree": 3, "gamma": 0.4, "coef0": 0.5},
        Linear: {"kernel": "linear"},
    }[type(kernel)]
    peer = KernelPCA(2, **keywords).fit(X)
    tree = fit(zoo.KernelPCA(num_latents=2, kernel=kernel, noise_variance=0.01), X)
    ours = inference.transform(tree, NEW, scores="orthonormal").to_numpy()
    np.testing.assert_allclose(np.abs(ours), np.abs(peer.transform(NEW)), atol=1e-8)
    np.testing.assert_allclose(tree["variational"]["eigenvalues"], peer.eigenvalues_, rtol=1e-9)
    assert largest_angle(tree["variational"]["gram_products"].to_numpy(), peer.eigenvectors_) < 1e-6


def test_no_density_of_rows_is_pretended():
    tree = fit(zoo.KernelPCA(num_latents=2, kernel="linear"), X)
    assert "log_likelihood" not in tree.children
    with pytest.raises(ValueError, match="KernelPCA scores a Gram matrix and has no density of rows"):
        inference.log_density(tree, NEW)
    with pytest.raises(ValueError, match="KernelPCA predicts nothing"):
        inference.predict(tree, NEW)
    with pytest.raises(ValueError, match="the prior of KernelPCA is improper and draws nothing"):
        inference.extend(tree, "prior")
    with pytest.raises(ValueError, match="KernelPCA is no distribution of rows: it has none to replicate"):
        inference.extend(tree, "posterior_predictive")
    log_prior = inference.extend(tree, "log_prior")["log_prior"]["log_prior"]  # with the program's factors
    np.testing.assert_allclose(log_prior.item(), tree["trace"]["objective"].item(), rtol=1e-10)
    with pytest.raises(ValueError, match="x must have the 3 columns that were fitted; got 2"):
        inference.transform(tree, NEW[:, :2])
    with pytest.raises(ValueError, match="has no density of rows"):
        inference.extend(tree, "log_likelihood")


def shuffled(tree):
    return fit(inference.model_of(tree), X[::-1], method="em", init=tree)


BAD_STARTS = {
    "other rows": (lambda tree: shuffled(tree), "begin with the 40 rows of the former fit.*; row 0 differs"),
    "fewer rows": (
        lambda tree: fit(inference.model_of(tree), X[:20], method="em", init=tree),
        r"begin with the 40 rows .*; they have shape \(40, 3\), these \(20, 3\)",
    ),
    "another kernel": (
        lambda tree: fit(zoo.KernelPCA(kernel=RBF(9.0), noise_variance=0.1), X, method="em", init=tree),
        r"former fit has the kernel RBF\(length_scale=1.5\) and this model has RBF\(length_scale=9.0\)",
    ),
    "latents": (
        lambda tree: fit(
            zoo.KernelPCA(num_latents=4, kernel=RBF(1.5), noise_variance=0.1), X, method="em", init=tree
        ),
        "it has num_latents=2, and the model has num_latents=4",
    ),
    "no new rows": (
        lambda tree: fit(inference.model_of(tree), X, method="em", init=tree, memory="online"),
        "memory='online' adds rows to a former fit; x has no more rows",
    ),
    "direct": (
        lambda tree: fit(inference.model_of(tree), X, init=tree, method="closed_form"),
        "solves directly .*leave init out",
    ),
    "dict": (
        lambda tree: fit(inference.model_of(tree), X, method="em", init={"latents": X[:, :2]}),
        "init must hold coefficients, signal_variances, noise_variance; missing: coefficients",
    ),
}


@pytest.fixture(scope="module")
def former():
    return fit(zoo.KernelPCA(kernel=RBF(1.5), noise_variance=0.1), X)


@pytest.mark.parametrize("case", BAD_STARTS)
def test_a_former_fit_that_does_not_suit_is_refused(case, former):
    call, message = BAD_STARTS[case]
    with pytest.raises(ValueError, match=message):
        call(former)


@pytest.mark.parametrize(("kernel", "offset"), [("rbf", 1e6), ("linear", 1e8), (Polynomial(1), 1e6)])
def test_fitted_rows_as_new_rows_far_from_zero(kernel, offset):
    """New rows are shifted as the fitted ones are: what counts is the spread, not the offset."""
    model, far = zoo.KernelPCA(num_latents=2, kernel=kernel, noise_variance=0.01), X + offset
    near, tree = fit(model, far - offset), fit(model, far)
    stored, size = (
        tree["variational"]["gram_products"],
        float(np.abs(near["variational"]["gram_products"]).max()),
    )
    again = inference.transform(tree, far, scores="orthonormal")
    np.testing.assert_allclose(again, stored, atol=1e-12 * size)
    np.testing.assert_allclose(stored, near["variational"]["gram_products"], atol=1e-15 * offset * size)
    em = fit(model, far, method="em", max_iterations=500)
    np.testing.assert_allclose(
        em["variational"]["eigenvalues"], tree["variational"]["eigenvalues"], rtol=1e-6
    )


@pytest.mark.slow
def test_a_linear_kernel_goes_on_online_far_from_zero():
    model, settings = zoo.KernelPCA(num_latents=2, kernel="linear"), {"max_iterations": 200, "method": "em"}
    first, last = fit(model, X[:20], **settings), fit(model, X[:20] + 1e6, **settings)
    near = fit(model, X, init=first, memory="online", **settings)
    far = fit(model, X + 1e6, init=last, memory="online", **settings)
    for name in ("eigenvalues", "gram_products"):
        want = near["variational"][name].values
        np.testing.assert_allclose(
            np.abs(far["variational"][name]), np.abs(want), atol=1e-8 * np.abs(want).max()
        )


def test_values_far_beyond_their_differences_are_warned_of():
    with pytest.warns(UserWarning, match="rounding shows in the components: subtract the columns' means"):
        fit(zoo.KernelPCA(num_latents=2, kernel="polynomial", noise_variance=1.0), X + 1e6)
    gram = gram_matrix(Linear(), X + 1e6)
    with pytest.warns(UserWarning, match="make the Gram matrix of rows about their mean"):
        fit(zoo.KernelPCA(num_latents=2, kernel="precomputed", noise_variance=0.01), gram)
