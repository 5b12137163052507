"""SePCA as DEPCAM of one component: the density of normal columns, Bishop's precisions, the same optimum."""

import numpy as np
import pytest
from scipy import stats

import inference
import zoo
from inference import fit
from inference.methods.depcam.em import log_prior
from inference.precision import in_precision
from zoo.exponential_family import Gaussian

FEATURES, RATE = 6, 1e-3


def rows():
    """Two strong directions in six columns, noise variance one."""
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(FEATURES, 2)))[0] * [3.0, 2.0]
    return rng.normal(size=(80, 2)) @ axes.T + rng.normal(size=(80, FEATURES))


def test_scales_with_their_precisions_are_normal_columns():
    """Log densities differ by a constant, at any scales and precisions; another Gamma shape must not do."""
    x, rng = rows(), np.random.default_rng(1)
    bases = np.linalg.qr(rng.normal(size=(FEATURES, 3)))[0]
    gaps = {shape: [] for shape in ((FEATURES + 1) / 2, FEATURES / 2)}
    for _ in range(5):
        scales, precision = rng.normal(size=3), rng.gamma(2.0, size=3)
        columns = bases * scales
        by_columns = stats.norm.logpdf(columns, scale=1 / np.sqrt(precision)).sum() - RATE * precision.sum()
        for shape, gap in gaps.items():
            model = zoo.DEPCAM.simple_epca(x, 3, ard_concentration=shape, offset=False)
            with in_precision():
                values = {"bases": bases[None], "scales": scales[None], "scales_precision": precision[None]}
                gap.append(float(log_prior(values, model)) - by_columns)
    right, wrong = gaps.values()
    assert np.ptp(right) < 1e-10 < 0.1 < np.ptp(wrong)


def bishop(x, num_latents, variance, num_steps=20000):
    """EM of PPCA with normal columns, alpha_j = D / (|w_j|^2 + 2 rate) (Bishop 1999), columns free."""
    w = np.linalg.qr(np.random.default_rng(2).normal(size=(FEATURES, num_latents)))[0]
    w = w @ (np.eye(num_latents) + 0.3 * np.random.default_rng(3).normal(size=(num_latents, num_latents)))
    away = x - x.mean(0)
    for _ in range(num_steps):
        alpha = FEATURES / ((w**2).sum(0) + 2 * RATE)
        covariance = np.linalg.inv(np.eye(num_latents) + w.T @ w / variance)
        mean = away @ w @ covariance / variance
        moments = len(x) * covariance + mean.T @ mean
        w = away.T @ mean @ np.linalg.inv(moments + variance * np.diag(alpha))
    return w, FEATURES / ((w**2).sum(0) + 2 * RATE)


@pytest.mark.slow
def test_optimum_is_that_of_bishop_s_bayesian_pca():
    """Four directions offered, two kept; free columns end orthogonal, at the same W W' and precisions."""
    x = rows()
    w, alpha = bishop(x, 4, 1.0)
    inner = w.T @ w
    assert np.abs(inner - np.diag(np.diag(inner))).max() < 1e-6 * inner.max()
    family = Gaussian(noise_variance=1.0)
    model = zoo.DEPCAM.simple_epca(x, 4, family=family, offset_variance=1e12)
    tree = fit(model, x, method="em", init="random", tolerance=1e-13, max_iterations=20000)
    q = {name: value.to_numpy()[0] for name, value in tree["variational"].data_vars.items() if value.ndim > 1}
    own = q["bases"] * q["scales"]
    np.testing.assert_allclose(own @ own.T, w @ w.T, atol=1e-4)
    np.testing.assert_allclose(q["scales_precision"], FEATURES / (q["scales"] ** 2 + 2 * RATE), rtol=1e-4)
    np.testing.assert_allclose(np.sort(q["scales_precision"]), np.sort(alpha), rtol=1e-2)
    assert (np.abs(q["scales"]) > 1e-3).sum() == 2
    np.testing.assert_allclose(q["offsets"], x.mean(0), atol=1e-6)
    assert inference.log_density(tree, x[:3]).shape == (3,)
