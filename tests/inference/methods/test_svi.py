"""SVI gives the same bits in every process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = """
import hashlib, warnings
import numpy as np
from inference import fit
from zoo import PPCA
warnings.simplefilter("ignore")
x = np.random.default_rng(0).normal(size=(12, 3))
fields = {"loading_prior": "gaussian", "noise_concentration": 2.0, "noise_rate": 1.0}
model = PPCA(num_latents=1, loc_mean=np.zeros(3), loc_variance=4.0, **fields)
tree = fit(model, x, method="svi", max_iterations=8, num_samples=4, seed=3, num_particles=3)
values = [tree["trace"]["objective"], tree["posterior"]["loadings"]]
print(hashlib.sha256(b"".join(value.to_numpy().tobytes() for value in values)).hexdigest())
"""


@pytest.mark.slow
def test_the_order_of_sets_of_names_does_not_change_a_bit():
    """Each process hashes strings anew, and NumPyro's ELBO adds its sites in the order of a set of them."""
    found = set()
    for hash_seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=True
        )
        found.add(run.stdout.strip())
    assert len(found) == 1
