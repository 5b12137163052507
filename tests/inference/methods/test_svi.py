"""SVI gives the same bits in every process, and has converged where its objective no longer rises."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from inference.fitting.verdict import _has_levelled

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


def _noisy(length, gain):
    """An objective with noise of 30 nats that gains so much at every step."""
    return gain * np.arange(length) + 30.0 * np.random.default_rng(0).normal(size=length)


def test_a_short_run_that_rises_has_not_levelled():
    """By 9 nats a step: 36 between the tenths of forty, which the noise of four steps hides."""
    rising = _noisy(40, 9.0)
    tenths = rising[-4:].mean() - rising[-8:-4].mean()
    assert tenths < 2 * np.sqrt((rising[-4:].var(ddof=1) + rising[-8:-4].var(ddof=1)) / 4)
    good, advice = _has_levelled(rising, 40)
    assert not good and "40 iterations are too few to judge by" in advice
    good, advice = _has_levelled(_noisy(150, 1.0), 150)
    assert not good and "nats over the last 50 iterations" in advice


@pytest.mark.parametrize("length", [100, 300, 1000])
def test_a_run_that_has_levelled_is_told_from_one_that_rises(length):
    """A level run is missed once in 44; the rise is of four standard errors."""
    stretch = max(length // 10, 50)
    assert _has_levelled(_noisy(length, 0.0), length)[0]
    assert not _has_levelled(_noisy(length, 4 * 30 * np.sqrt(2 / stretch) / stretch), length)[0]
    assert not _has_levelled(_noisy(length, 0.0), length + 1)[0]  # it was interrupted
