"""The program of kernel PCA against dense algebra, probabilistic PCA, and its own refusals."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import zoo
from tests.support.log_joint import log_joint
from zoo.kernels import RBF, Polynomial
from zoo.kernels.gram import centring_of, gram_score

X = np.random.default_rng(4).normal(size=(12, 3)) * [2.0, 1.0, 0.5]
LATENTS = np.random.default_rng(5).normal(size=(12, 2))


def score(model, latents, x=X, **values):
    """The program's log joint density, in nats."""
    with jax.enable_x64(True):
        values = {"latents": jnp.asarray(latents)} | {k: jnp.asarray(v) for k, v in values.items()}
        return float(log_joint(model, values, x))


def dense(latents, noise_variance, gram, freedom):
    """The same with N x N matrices."""
    covariance = latents @ latents.T + noise_variance * np.eye(len(gram))
    trace = np.trace(np.linalg.solve(covariance, gram))
    return -freedom / 2 * np.linalg.slogdet(covariance)[1] - trace / 2


@pytest.mark.parametrize("kernel", [RBF(1.2), Polynomial(2)], ids=["rbf", "polynomial"])
def test_the_program_scores_the_centred_gram_matrix(kernel):
    values = kernel.matrix(X, X)
    gram = centring_of(values).gram(values)
    model = zoo.KernelPCA(num_latents=2, kernel=kernel, noise_variance=0.3)
    np.testing.assert_allclose(score(model, LATENTS), dense(LATENTS, 0.3, gram, 11), rtol=1e-12)
    own = zoo.KernelPCA(num_latents=2, kernel=kernel, noise_variance=0.3, degrees_of_freedom=40.0)
    np.testing.assert_allclose(score(own, LATENTS), dense(LATENTS, 0.3, gram, 40), rtol=1e-12)
    with_prior = zoo.KernelPCA(num_latents=2, kernel=kernel, noise_variance=0.3, latent_variance=0.7)
    prior = scipy.stats.norm(0, math.sqrt(0.7)).logpdf(LATENTS).sum()
    np.testing.assert_allclose(score(with_prior, LATENTS), dense(LATENTS, 0.3, gram, 11) + prior, rtol=1e-12)
    precomputed = zoo.KernelPCA(num_latents=2, kernel="precomputed", noise_variance=0.3)
    np.testing.assert_allclose(
        score(precomputed, LATENTS, x=values), dense(LATENTS, 0.3, gram, 11), rtol=1e-12
    )
    turned = LATENTS @ scipy.stats.ortho_group.rvs(2, random_state=0)
    np.testing.assert_allclose(score(model, turned), score(model, LATENTS), rtol=1e-12)


def test_with_a_linear_kernel_and_m_equal_to_n_it_is_the_likelihood_of_probabilistic_pca():
    """Loadings W with W'W = Z'Z, along the same components, give the density of the rows.

    Up to (N M / 2) log(2 pi), whatever the noise.
    """
    n, features = X.shape
    centred = X - X.mean(axis=0)
    v, d, u = np.linalg.svd(centred, full_matrices=False)
    lengths = np.array([1.3, 0.4])
    for noise in (0.2, 1.1):
        model = zoo.KernelPCA(num_latents=2, kernel="linear", degrees_of_freedom=float(n))
        loadings = u[:2].T * lengths
        covariance = loadings @ loadings.T + noise * np.eye(features)
        likelihood = scipy.stats.multivariate_normal(np.zeros(features), covariance).logpdf(centred).sum()
        constant = n * features / 2 * math.log(2 * math.pi)
        ours = score(model, v[:, :2] * lengths, noise_variance=noise)
        np.testing.assert_allclose(ours, likelihood + constant, rtol=1e-11)


def test_the_score_is_differentiable_and_the_same_under_jit():
    model = zoo.KernelPCA(num_latents=2, kernel=RBF(1.2), noise_variance=0.3)
    with jax.enable_x64(True):
        gram = jnp.asarray(RBF(1.2).matrix(X, X))
        arguments = (jnp.asarray(LATENTS), 0.3, centring_of(gram).gram(gram), 11.0, 12.0)
        np.testing.assert_allclose(jax.jit(gram_score)(*arguments), score(model, LATENTS), rtol=1e-12)
        slope = jax.jit(jax.grad(gram_score))(*arguments)
        step = 1e-5 * np.ones_like(LATENTS)
        difference = score(model, LATENTS + step) - score(model, LATENTS - step)
        np.testing.assert_allclose(2e-5 * np.sum(slope), difference, rtol=1e-6)


def test_nothing_is_drawn_without_rows():
    model = zoo.KernelPCA(num_latents=2, kernel="rbf", noise_variance=0.1)
    assert model.prior == "improper" and model.explicit.prior == "improper"
    with pytest.raises(
        ValueError, match="the prior of KernelPCA is improper and draws nothing: give x to condition on"
    ):
        model(num_observations=5)


def test_kernel_parameters_are_read_off_the_rows_and_the_rest_stays():
    model = zoo.KernelPCA(num_latents=2, kernel="rbf", noise_variance=0.1)
    filled = model.with_sizes_from(X)
    np.testing.assert_allclose(filled.kernel.length_scale**2, X.var(axis=0).sum(), rtol=1e-12)
    assert filled.with_sizes_from(X[:5]) is filled and filled.degrees_of_freedom is None
    again = zoo.KernelPCA.from_data(X, num_latents=2, kernel="rbf", noise_variance=0.1)
    assert float(again.kernel.length_scale) == float(filled.kernel.length_scale)


def test_the_command_line_fits_it_and_says_what_is_missing(tmp_path, capsys, monkeypatch):
    from inference.cli import main

    monkeypatch.chdir(tmp_path)
    settings = ["--set", "kernel=RBF(5)", "--set", "noise_variance=0.001", "--set", "num_latents=3"]
    assert main(["fit", "kernel-pca", "faithful", *settings, "--details", "--out", "fit.nc"]) == 0
    printed = capsys.readouterr().out
    assert "closed_form" in printed and "explained_variances[2]" in printed and (tmp_path / "fit.nc").exists()
    assert main(["fit", "kernelpca", "faithful", "--set", "kernel=rbf"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "noise_variance must be given with the kernel RBF" in error


BAD_MODELS = {
    "latents": ({"num_latents": 0}, "num_latents must be a whole number of at least 1; got 0"),
    "noise": ({"noise_variance": 0.0}, "noise_variance must be a positive number; got 0.0"),
    "freedom": ({"degrees_of_freedom": -1.0}, "degrees_of_freedom must be a positive number"),
    "prior": ({"latent_variance": [1.0, 2.0]}, "latent_variance must be a positive number"),
    "infinite": (
        {"kernel": "rbf"},
        "noise_variance must be given with the kernel RBF: it has inf",
    ),
    "unknown": ({"kernel": "precomputed"}, "kernel Precomputed: it does not say how many dimensions"),
    "name": ({"kernel": "cosine"}, "no kernel is called 'cosine'"),
}


@pytest.mark.parametrize("case", BAD_MODELS)
def test_bad_models_get_one_clear_message(case):
    fields, message = BAD_MODELS[case]
    with pytest.raises(ValueError, match=message):
        zoo.KernelPCA(**fields)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_an_offset_of_the_rows_does_not_change_the_score(kernel):
    model = zoo.KernelPCA(num_latents=2, kernel=RBF(1.5) if kernel == "rbf" else kernel, noise_variance=0.3)
    near = score(model, LATENTS, (X + 1e6) - 1e6)
    np.testing.assert_allclose(score(model, LATENTS, X + 1e6), near, rtol=1e-9)


def test_the_prior_of_a_row_and_the_sizes_of_the_score_are_as_given_or_follow_from_the_rows():
    """Normal of variance 0.7; N - 1 degrees of freedom; N dimensions, or the space's where s2 is unknown."""
    given = zoo.KernelPCA(num_latents=2, kernel="rbf", noise_variance=0.3, latent_variance=0.7)
    wanted = scipy.stats.norm(0, math.sqrt(0.7)).logpdf(LATENTS).sum(axis=1)
    np.testing.assert_allclose(given.latents_prior().log_prob(LATENTS), wanted, rtol=1e-5)
    assert float(given.freedom(12)) == 11.0 and float(given.score_dimension(12, 3)) == 12.0
    open_noise = zoo.KernelPCA(num_latents=2, kernel="linear", degrees_of_freedom=40.0)
    assert float(open_noise.freedom(12)) == 40.0 and float(open_noise.score_dimension(12, 3)) == 3.0
