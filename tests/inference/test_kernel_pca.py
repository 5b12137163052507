"""Kernel PCA by eigenvalues and by EM: the program's maximum, new rows, rows added, bad input."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from numpyro.infer.util import log_density as joint_density

import inference
import zoo
from inference import fit
from zoo.gram_matrices import Centring, centring_of, cross_gram, gram_matrix
from zoo.kernels import RBF, Linear, Polynomial

X = np.random.default_rng(4).normal(size=(40, 3)) * [2.0, 1.0, 0.7]
NEW = np.random.default_rng(6).normal(size=(5, 3))


def clusters(third=30):
    """The toy of Yu (2006), Figures 5.2 and 5.4: three spherical Gaussians, the third one cut short."""
    rng = np.random.default_rng(2)
    means = [(-0.5, -0.2), (0.0, 0.6), (0.5, 0.0)]
    return np.concatenate([rng.normal(mean, 0.1, size=(30, 2)) for mean in means])[: 60 + third]


TOY = {"num_latents": 3, "kernel": RBF(20**-0.5), "noise_variance": 0.01}  # exp(-10 |x - y|^2)


def centred(kernel, x):
    gram = gram_matrix(kernel, x)
    return centring_of(gram).gram(gram)


def spectrum(kernel, x):
    """All eigenpairs of the centred Gram matrix, descending."""
    values, vectors = np.linalg.eigh(centred(kernel, x))
    return values[::-1], vectors[:, ::-1]


def largest_angle(a, b):
    return scipy.linalg.subspace_angles(a, b)[0]


def value_and_slopes(tree, x, **changed):
    """The program's log joint at a fit's estimate and its gradients there."""
    with jax.enable_x64(True):
        posterior = tree["posterior"]
        sites = [name for name in ("latents", "noise_variance") if name in posterior]
        values = {name: jnp.asarray(posterior[name].to_numpy()[0, 0]) for name in sites}
        model, data = inference.model_of(tree), (jnp.asarray(x),)
        value, slopes = jax.value_and_grad(lambda v: joint_density(model, data, {}, v)[0])(values)
        return float(value), {name: np.abs(slope).max() for name, slope in slopes.items()}


FLAT = {
    "rbf": {"kernel": RBF(1.5), "noise_variance": 0.02},
    "estimated noise": {"kernel": "linear"},
    "polynomial": {"kernel": Polynomial(2), "degrees_of_freedom": 40.0},
}
PRIOR = {"prior": {"kernel": RBF(1.5), "noise_variance": 0.02, "latent_variance": 0.3}}


@pytest.mark.parametrize("case", FLAT | PRIOR)
def test_the_closed_form_is_the_programs_maximum(case):
    """Its objective is the program's value; all gradients vanish; nothing nearby is higher."""
    fields = (FLAT | PRIOR)[case]
    tree = fit(zoo.KernelPCA(num_latents=2, **fields), X)
    value, slopes = value_and_slopes(tree, X)
    np.testing.assert_allclose(tree["trace"]["objective"], value, rtol=1e-12)
    assert max(slopes.values()) < 1e-7 * abs(value)
    assert tree.attrs["converged"] == 1 and tree.attrs["components_pruned"] == 0
    rng = np.random.default_rng(0)
    for scale in (1e-2, 1e-1):
        moved = tree.copy(deep=True)
        moved["posterior"]["latents"] += scale * rng.normal(size=(1, 1, 40, 2))
        assert value_and_slopes(moved, X)[0] < value


def test_estimated_noise_is_that_of_probabilistic_pca():
    """(5.19) with m in the place of N: what two components leave over, per remaining column."""
    tree = fit(zoo.KernelPCA(num_latents=2, kernel="linear", degrees_of_freedom=40.0), X)
    eigenvalues = np.linalg.eigvalsh(np.cov(X.T, bias=True))[::-1]
    np.testing.assert_allclose(tree["posterior"]["noise_variance"], eigenvalues[2], rtol=1e-12)
    np.testing.assert_allclose(
        tree["posterior"]["explained_variances"][0, 0], eigenvalues[:2] - eigenvalues[2], rtol=1e-10
    )


def test_lanczos_is_the_dense_solver_and_the_eigenvectors():
    model = zoo.KernelPCA(num_latents=4, kernel=RBF(1.5), noise_variance=0.01)
    lanczos, dense = (fit(model, X, solver=solver)["variational"] for solver in ("lanczos", "dense"))
    values, vectors = spectrum(RBF(1.5), X)
    for estimate in (lanczos, dense):
        np.testing.assert_allclose(estimate["eigenvalues"], values[:4], rtol=1e-11)
        found = estimate["gram_products"].to_numpy() / np.sqrt(values[:4])
        assert largest_angle(found, vectors[:, :4]) < 1e-10
        np.testing.assert_allclose(np.abs(np.sum(found * vectors[:, :4], axis=0)), 1.0, rtol=1e-10)
    np.testing.assert_allclose(lanczos["coefficients"], dense["coefficients"], atol=1e-10)  # signs too


def test_components_below_the_noise_vanish_and_are_counted():
    """The corrected Theorem 5.2.1: eigenvalues up to m s2 leave no component."""
    values, _ = spectrum(RBF(1.5), X)
    noise = (values[2] + values[3]) / 2 / 39
    model = zoo.KernelPCA(num_latents=5, kernel=RBF(1.5), noise_variance=noise)
    with pytest.warns(UserWarning, match="closed_form: 2 of 5 components vanish.*component 3 has"):
        tree = fit(model, X)
    variances = tree["variational"]["signal_variances"].to_numpy()
    np.testing.assert_allclose(variances, np.maximum(values[:5] / 39 - noise, 0.0), rtol=1e-10)
    assert (tree["posterior"]["latents"][0, 0, :, 3:] == 0).all()
    assert (inference.transform(tree, NEW)[:, 3:] == 0).all()
    assert max(value_and_slopes(tree, X)[1].values()) < 1e-8
    with pytest.warns(UserWarning, match="em: 2 of 5 components vanish"):
        em = fit(model, X, method="em", max_iterations=3000, tolerance=1e-10)
    np.testing.assert_allclose(em["trace"]["objective"][-1], tree["trace"]["objective"][0], rtol=1e-7)
    assert em.attrs["components_pruned"] == 2


# EM


@pytest.mark.parametrize("acceleration", ["px", "none"])
@pytest.mark.parametrize("case", FLAT)
def test_em_never_falls_and_ends_at_the_closed_form(case, acceleration):
    fields = {"num_latents": 2} | FLAT[case]
    best = fit(zoo.KernelPCA(**fields), X)
    settings = {"max_iterations": 400, "tolerance": 0, "num_restarts": 2, "acceleration": acceleration}
    tree = fit(zoo.KernelPCA(**fields), X, method="em", init="random", **settings)
    objective = tree["trace"]["objective"].to_numpy()
    assert np.diff(objective, axis=1).min() >= -1e-12 * np.abs(objective).max()
    assert objective.max() <= best["trace"]["objective"].item() + 1e-9
    if acceleration == "px":  # plain EM has the span as soon, but not the scale
        np.testing.assert_allclose(objective[:, -1], best["trace"]["objective"].item(), rtol=1e-10)
    name = "eigenvalues"
    np.testing.assert_allclose(tree["variational"][name], best["variational"][name], rtol=1e-6)


def geometric(num_rows, count, ratio):
    """A centred Gram matrix whose eigenvalue after the first ``count`` is ``ratio`` times their last."""
    rng = np.random.default_rng(0)
    q = np.linalg.qr(np.column_stack([np.ones(num_rows), rng.normal(size=(num_rows, num_rows - 1))]))[0]
    tail = ratio * 0.95 ** np.arange(num_rows - 1 - count)
    values = np.concatenate([np.linspace(4.8, 1.0, count), tail])
    gram = (q[:, 1:] * values) @ q[:, 1:].T
    return (gram + gram.T) / 2, values


@pytest.mark.parametrize("sweeps, bar", [(20, 1e-3), (50, 1e-7)])
def test_em_and_rayleigh_ritz_have_the_eigenvalues_after_few_sweeps(sweeps, bar):
    """Ten components, gap ratio 0.87, four starts: the bars hold from each; a tenth of the sweeps fails."""
    gram, values = geometric(150, 10, 0.87)
    model = zoo.KernelPCA(num_latents=10, kernel="precomputed", noise_variance=1e-4)

    def error(seed, count):
        settings = {"max_iterations": count, "tolerance": 0, "seed": seed}
        found = fit(model, gram, method="em", **settings)["variational"]["eigenvalues"]
        return np.abs(found.to_numpy() / values[:10] - 1).max()

    assert max(error(seed, sweeps) for seed in range(4)) < bar
    assert error(0, sweeps // 10) > bar


def test_parameter_expansion_has_the_scale_where_plain_em_crawls():
    """Z Z' / N after 60 sweeps from the same start; the subspaces are alike."""
    fields = {"num_latents": 2, "kernel": RBF(1.5), "noise_variance": 1e-4}
    best = fit(zoo.KernelPCA(**fields), X)["trace"]["objective"].item()
    gap = {}
    for acceleration in ("px", "none"):
        settings = {"max_iterations": 100, "tolerance": 0, "acceleration": acceleration, "init": "random"}
        gap[acceleration] = (
            best - fit(zoo.KernelPCA(**fields), X, method="em", **settings)["trace"]["objective"][-1].item()
        )
    assert gap["px"] < 1e-6 and gap["none"] > 1e3 * gap["px"]


def test_the_objective_is_the_texts_with_its_constants():
    """(5.24) at m = N, evaluated as printed from the coefficients of the estimate."""
    model = zoo.KernelPCA(num_latents=2, kernel=RBF(1.5), noise_variance=0.05, degrees_of_freedom=40.0)
    estimate, gram = fit(model, X)["variational"], centred(RBF(1.5), X)
    b = estimate["coefficients"].to_numpy() * np.sqrt(estimate["signal_variances"].to_numpy())
    inner = b.T @ gram @ b + 0.05 * np.eye(2)
    explained = np.trace(gram @ b @ np.linalg.solve(inner, b.T @ gram)) / (40 * 0.05)
    printed = -20 * (np.linalg.slogdet(inner)[1] - explained)
    constants = -20 * 38 * np.log(0.05) - np.trace(gram) / (2 * 0.05)
    np.testing.assert_allclose(fit(model, X)["trace"]["objective"].item(), printed + constants, rtol=1e-12)


# Rows added


def test_new_rows_are_taken_up_and_end_where_all_rows_together_do():
    """Algorithm 5.2, corrected: ten points of the third cluster at a time, from either start."""
    tree = fit(zoo.KernelPCA(**TOY), clusters(0), method="em")
    for third in (10, 20, 30):
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
    with pytest.raises(ValueError, match="improper"):
        inference.extend(tree, "prior")
    with pytest.raises(ValueError, match="has no density of rows"):
        inference.extend(tree, "log_likelihood")


# The way in and out


@pytest.mark.parametrize("method", ["closed_form", "em"])
def test_a_fit_is_stored_and_goes_on(method, tmp_path):
    model = zoo.KernelPCA(num_latents=2, kernel="rbf", noise_variance=0.02)
    tree = fit(model, X, method=method)
    inference.save(tree, tmp_path / "fit.nc")
    again = inference.load(tmp_path / "fit.nc")
    restored = inference.model_of(again)
    np.testing.assert_allclose(restored.kernel.length_scale**2, X.var(axis=0).sum())
    np.testing.assert_array_equal(inference.transform(again, NEW), inference.transform(tree, NEW))
    on = fit(restored, np.concatenate([X, NEW]), method="em", init=again)
    assert on["posterior"].sizes["observation"] == 45
    assert tree["posterior"]["latents"].dims == ("chain", "draw", "observation", "latent")


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
        "former fit has 2 latents and this model has 4",
    ),
    "no new rows": (
        lambda tree: fit(inference.model_of(tree), X, method="em", init=tree, memory="online"),
        "memory='online' adds rows to a former fit; x has no more rows",
    ),
    "direct": (lambda tree: fit(inference.model_of(tree), X, init=tree), "solves directly .*leave init out"),
    "dict": (
        lambda tree: fit(inference.model_of(tree), X, method="em", init={"latents": X}),
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


NAN = X.copy()
NAN[3, 1] = np.nan
BAD_FITS = {
    "NaN": ({"x": NAN}, "x must be finite.*row 3, column 1 is nan"),
    "K >= N": ({"num_latents": 40}, "at least 41 rows .*N - 1 components, and num_latents is 40"),
    "K >= M": (
        {"kernel": "linear", "noise_variance": None, "num_latents": 3},
        "feature space, 3, or no",
    ),
    "equal rows": ({"x": np.ones((5, 2))}, "the rows of x are all the same in feature space"),
    "not square": ({"kernel": "precomputed"}, r"is square; got shape \(40, 3\)"),
    "no noise": (
        {"kernel": "polynomial", "noise_variance": None, "num_latents": 10, "x": X[:11]},
        "explain the Gram matrix whole",
    ),
    "nuts": ({"method": "nuts"}, "nuts needs a prior of the latents.*give latent_variance"),
    "em prior": ({"method": "em", "latent_variance": 1.0}, "em maximises the score under a flat prior"),
    "noise and prior": (
        {"kernel": "linear", "noise_variance": None, "latent_variance": 1.0},
        "closed_form knows the maximum for a given noise_variance",
    ),
    "solver": ({"solver": "magic"}, "solver must be one of auto, lanczos, dense; got 'magic'"),
    "acceleration": ({"method": "em", "acceleration": "squarem"}, "acceleration must be one of px, none"),
}


@pytest.mark.parametrize("case", BAD_FITS)
def test_bad_fits_get_one_clear_message(case):
    given, message = BAD_FITS[case]
    given = {"num_latents": 2, "kernel": RBF(1.5), "noise_variance": 0.1, "x": X, "method": "auto"} | given
    fields = ("num_latents", "kernel", "noise_variance", "latent_variance")
    model = zoo.KernelPCA(**{name: given.pop(name) for name in fields if name in given})
    with pytest.raises(ValueError, match=message):
        fit(model, given.pop("x"), **given)


def test_the_cost_is_said_before_the_matrix_is_made(monkeypatch):
    from zoo import gram_matrices

    monkeypatch.setattr(gram_matrices, "LARGE_BYTES", 8 * 40**2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(zoo.KernelPCA(num_latents=2, kernel="linear"), X)
    said = [str(warning.message) for warning in caught]
    assert len(said) == 1 and "the 40 x 40 matrix of kernel values needs 0.0 MiB of memory" in said[0]
