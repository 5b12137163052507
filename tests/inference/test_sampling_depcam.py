"""NUTS on the repulsive mixture's program: what no symmetry changes can be read off the draws."""

import numpy as np
import pytest

import zoo
from inference import fit, log_density, predict, transform
from inference.diagnostics import summary


@pytest.mark.parametrize("latents", ["component", "shared"])
def test_draws_are_summarised_by_invariants_and_used(latents):
    rng = np.random.default_rng(0)
    x = (rng.uniform(size=(30, 5)) < np.where(np.arange(30)[:, None] < 15, 0.85, 0.15)).astype(float)
    model = zoo.DEPCAM.from_data(x, num_components=2, num_latents=1, sparsity=1.0, latents=latents)
    with pytest.warns(UserWarning, match="has not converged"):
        tree = fit(model, x, method="nuts", num_warmup=150, num_samples=50, num_chains=2, seed=1)
    assert int(tree["sample_stats"]["diverging"].sum()) == 0
    table = summary(tree)
    assert {"loading_norms[0]", "sorted_weights[2]", "num_occupied"} <= set(table.index)
    assert np.isfinite(table["mean"].astype(float)).all()
    assert transform(tree, x[:3]).dims == ("observation", "component")
    assert predict(tree, x[:3]).dims == ("observation", "feature")
    assert np.isfinite(log_density(tree, x[:3])).all()
