"""Figure 10 of Virtanen (2010) redone: how well BECCA finds the latent that two views share."""

import warnings

import numpy as np
import pytest

import zoo
from inference import fit
from tests.benchmarks.paired_mixing import figure_10_data

REPLICATES = 14


def correlation(family, seed):
    """|corr| of the true shared latent and the leading direction of the posterior mean of Theta_S."""
    views, truth = figure_10_data(seed, family, {"bernoulli": 1.5, "poisson": 0.7}[family])
    model = zoo.Paired.ecca((family,) * 2, 1, (2, 2), beta=0.5, conjugate=(0.1, 0.2))
    method = {"bernoulli": "gibbs", "poisson": "nuts"}[family]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # short chains, as in the source's comparison
        tree = fit(model, *views, method=method, seed=seed, num_chains=1, num_warmup=300, num_samples=500)
    posterior = tree["posterior"]
    u = posterior["latents"].to_numpy()[0, :, :, :1]
    loadings = [posterior[f"loadings_{v}"].to_numpy()[0, :, :, :1] for v in (0, 1)]
    shared = np.mean(u @ np.swapaxes(np.concatenate(loadings, axis=1), 1, 2), axis=0)
    left = np.linalg.svd(shared - shared.mean(axis=0), full_matrices=False)[0][:, 0]
    return abs(np.corrcoef(left, truth)[0, 1])


@pytest.mark.slow
@pytest.mark.parametrize(("family", "bar"), [("bernoulli", 0.85), ("poisson", 0.93)])
def test_the_shared_latent_is_found(family, bar):
    found = [correlation(family, seed) for seed in range(REPLICATES)]
    print(family, np.round(found, 3).tolist(), round(float(np.mean(found)), 4))
    assert np.mean(found) >= bar
