"""SVI gives the same bits in every process, and has converged where its objective no longer rises."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inference.fitting.verdict import _has_levelled
from inference.methods import svi

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


def test_steps_shrink_after_the_thousandth():
    """A tenth of the size at the 10 000th; before, Adam corrects its second moment by 1 - .999^t."""
    optim = svi._svi("normal", 0.01, 1).optim
    _, begun = optim.init({"loc": jnp.zeros(1)})
    first, middle, late = (
        float(optim.get_params(optim.update({"loc": jnp.ones(1)}, (jnp.array(step), begun)))["loc"][0])
        for step in (0, 999, 9999)
    )
    assert first == pytest.approx(-0.01, rel=1e-4)
    assert middle / late == pytest.approx(10 * np.sqrt(1 - 0.999**1000), rel=1e-3)


def test_the_bound_at_the_end_is_a_mean_of_256_particles_with_its_standard_error(monkeypatch):
    """The particles are set to 0, 1, ..., 255: mean 127.5, variance (256^2 - 1) / 12, over 256 of a mean."""
    asked = []

    def drawn(key, params, model, *data, sample_shape):
        return {"loc": jnp.ones((*sample_shape, 2)), "y": jnp.zeros(sample_shape)}

    def mapped(function, keys, size):
        asked.append((np.unique(jax.random.key_data(keys), axis=0).shape[0], float(function(keys[0]))))
        return jnp.arange(256.0)

    guide = SimpleNamespace(sample_posterior=drawn)
    fake = SimpleNamespace(init=lambda *data: None, get_params=lambda state: {"loc_auto": state}, guide=guide)
    bound = SimpleNamespace(loss=lambda key, params, *rest: params["loc_auto"] + 2.0)
    monkeypatch.setattr(svi, "_svi", lambda *options: fake)
    monkeypatch.setattr(svi, "_OrderedELBO", lambda: bound)
    monkeypatch.setattr(svi, "latent_names", lambda model, *data: ["loc"])
    monkeypatch.setattr(svi, "draw_locals", lambda key, draws, *rest: {"labels": draws["loc"][..., 0]})
    monkeypatch.setattr(svi, "map_in_blocks", mapped)
    monkeypatch.setattr(svi, "_conclude", svi._conclude.__wrapped__)
    options = {"guide": "normal", "step_size": 0.01, "num_particles": 1}
    model = SimpleNamespace(units={})
    found = svi.conclude(jax.random.key(0), jnp.asarray(5.0), model, (), 3, True, **options)
    assert asked == [(256, -7.0)]  # the bound is minus the loss
    assert found.attrs["elbo"] == pytest.approx(127.5)
    assert found.attrs["elbo_standard_error"] == pytest.approx(np.sqrt((256**2 - 1) / 12 / 256), rel=1e-6)
    shapes = {name: value.shape for name, value in found.posterior.items()}
    assert shapes == {"loc": (1, 3, 2), "labels": (1, 3)}
    assert found.variational == {"loc_auto": 5.0} and found.attrs["guide"] == "normal"
