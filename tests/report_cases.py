"""A fit of every model, quick and not run to its end, to make reports of."""

import functools
import warnings

import numpy as np
from text_cases import COUNTS

import inference
import zoo

__all__ = ["BITS", "FITS", "ROWS", "fitted"]

_RNG = np.random.default_rng(0)
ROWS = _RNG.normal(size=(24, 2)) @ _RNG.normal(size=(2, 4)) + 0.3 * _RNG.normal(size=(24, 4))
BITS = (ROWS > 0).astype(float)
FITS = {
    "mixture": (zoo.Mixture, {"num_components": 2}, (ROWS,), "em"),
    "ppca": (zoo.PPCA, {"num_latents": 2}, (ROWS,), "closed_form"),
    "kernelpca": (zoo.KernelPCA, {"num_latents": 2}, (ROWS,), "closed_form"),
    "sppca": (zoo.SPPCA, {"num_latents": 2, "center": "plugin"}, (ROWS, ROWS[:, :1]), "closed_form"),
    "epca": (zoo.EPCA, {"family": "bernoulli", "num_latents": 2}, (BITS,), "map"),
    "paired": (zoo.Paired.ecca, {}, (ROWS[:, :2], ROWS[:, 2:]), "closed_form"),
    "depcam": (zoo.DEPCAM, {"num_components": 2, "num_latents": 1}, (BITS,), "em"),
    "lda": (zoo.LDA, {"num_topics": 2}, (COUNTS,), "vb"),
    "plsi": (zoo.PLSI, {"num_topics": 2}, (COUNTS,), "em"),
    "pcp": (zoo.PCP, {"num_topics": 2, "num_clusters": 2}, (COUNTS,), "vb"),
}


@functools.cache
def fitted(name):
    """A fit of a model, not run to its end."""
    make, fields, data, method = FITS[name]
    options = {} if method == "closed_form" else {"max_iterations": 5}
    options |= {"num_samples": 30} if method == "vb" else {}
    if name == "paired":
        model = make(("gaussian", "gaussian"), 1, (0, 0))
    else:
        model = make.from_data(*data, **fields)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return inference.fit(model, *data, method=method, progress=False, **options)
