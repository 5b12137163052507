"""NUTS on the repulsive mixture's program: what no symmetry changes can be read off the draws."""

import numpy as np
import pytest

import zoo
from inference import extend, fit, log_density, predict, transform
from inference.diagnostics import summary


def sampled(latents):
    rng = np.random.default_rng(0)
    x = (rng.uniform(size=(30, 5)) < np.where(np.arange(30)[:, None] < 15, 0.85, 0.15)).astype(float)
    model = zoo.DEPCAM.from_data(x, num_components=2, num_latents=1, sparsity=1.0, latents=latents)
    with pytest.warns(UserWarning, match="has not converged"):
        tree = fit(model, x, method="nuts", num_warmup=150, num_samples=50, num_chains=2, seed=1)
    return x, tree


@pytest.fixture(scope="module")
def tree():
    return sampled("component")[1]


@pytest.mark.slow
@pytest.mark.parametrize("latents", ["component", "shared"])
def test_draws_are_summarised_by_invariants_and_used(latents):
    x, tree = sampled(latents)
    assert int(tree["sample_stats"]["diverging"].sum()) == 0
    table = summary(tree)
    assert {"loading_norms[1]", "sorted_weights[2]", "num_occupied"} <= set(table.index)
    assert np.isfinite(table["mean"].astype(float)).all()
    assert transform(tree, x[:3]).dims == ("observation", "component")
    assert predict(tree, x[:3], what="cells").dims == ("observation", "feature")
    assert np.isfinite(log_density(tree, x[:3])).all()


@pytest.mark.slow
def test_replicated_rows_have_the_means_of_their_components(tree):
    """Every cell's mean over 100 draws times 30 rows, 4.5 standard errors each: false alarm 4e-5."""
    replicated = extend(tree, "posterior_predictive")["posterior_predictive"]["x"].to_numpy()
    assert set(np.unique(replicated)) <= {0.0, 1.0}
    posterior = tree["posterior"]
    loadings = posterior["bases"].to_numpy() * posterior["scales"].to_numpy()[:, :, :, None, :]
    theta = np.einsum("cdkfl,cdnkl->cdnkf", loadings, posterior["latents"].to_numpy())
    means = 1 / (1 + np.exp(-theta - posterior["offsets"].to_numpy()[:, :, None]))
    expected = np.einsum("cdk,cdnkf->cdnf", posterior["weights"].to_numpy(), means)
    gap = (replicated - expected).mean(axis=(0, 1, 2))
    error = np.sqrt((expected * (1 - expected)).sum(axis=(0, 1, 2))) / expected[..., 0].size
    assert (np.abs(gap) < 4.5 * error).all(), (gap, error)
