"""One short fit by every method, with every model among them: saved, loaded, the same.

`.ci/versions` runs it at the lowest and at the newest versions of the dependencies.
"""

import warnings

import numpy as np
import pytest
import xarray as xr

import inference
import zoo
from inference.methods import BY_MODEL, FOR_EVERY_MODEL

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3))
Y = RNG.normal(size=(12, 2))
BITS = RNG.integers(0, 2, size=(12, 3))
COUNTS = RNG.poisson(2.0, size=(8, 5)) + 1
LABELS = np.array(["a", "b"] * 6)
SHORT = {"num_warmup": 4, "num_samples": 6, "num_chains": 2, "max_iterations": 4, "progress": False}
FITS = [
    ("vb", zoo.DEPCAM(num_components=2, num_latents=1, sparsity=1.0), (BITS,)),
    ("vb", zoo.LDA(num_topics=2), (COUNTS,)),
    ("gibbs", zoo.PCP(num_topics=2, num_clusters=2), (COUNTS,)),
    ("gibbs", zoo.Paired(num_shared=1), (BITS, BITS)),
    ("collapsed_gibbs", zoo.Mixture(num_components=2), (X,)),
    ("em", zoo.PLSI(num_topics=2), (COUNTS,)),
    ("closed_form", zoo.KernelPCA(num_latents=1), (X,)),
    ("morp", zoo.SPPCA(num_latents=1), (X, Y)),
    ("kernel_cca", zoo.SPPCA(num_latents=1, kernel="linear"), (X, Y)),
    ("ep", zoo.SPPCA(num_latents=1, output_likelihood="probit", loading_prior="gaussian"), (X, LABELS)),
    ("nuts", zoo.PPCA(num_latents=1, loading_prior="gaussian"), (X,)),
    ("hmc", zoo.Mixture(num_components=2), (X,)),
    ("svi", zoo.PPCA(num_latents=1, loading_prior="gaussian"), (X,)),
    ("map", zoo.EPCA(num_latents=1), (BITS,)),
]


def test_every_method_and_every_model_is_among_them():
    methods = {name for names in BY_MODEL.values() for name in names} | set(FOR_EVERY_MODEL)
    assert {method for method, *_ in FITS} == methods
    models = {entry["class"] for name, entry in zoo.MODELS.items() if name in BY_MODEL}
    assert {type(model).__name__ for _, model, _ in FITS} == models


@pytest.mark.parametrize(
    ("method", "model", "data"), FITS, ids=[f"{type(m).__name__}-{method}" for method, m, _ in FITS]
)
def test_a_short_fit_is_saved_and_loaded_as_it_was(method, model, data, tmp_path):
    with warnings.catch_warnings():  # that it has not converged
        warnings.simplefilter("ignore", UserWarning)
        tree = inference.fit(model, *data, method=method, **SHORT)
    inference.save(tree, tmp_path / "fit.nc")
    xr.testing.assert_identical(inference.load(tmp_path / "fit.nc"), tree)
