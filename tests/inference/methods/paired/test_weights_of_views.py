"""A view of weight w counts as w copies of its cells in the conditional of its noise."""

import jax.numpy as jnp
import numpy as np
import pytest

import zoo
from inference.methods.projections import gibbs
from inference.precision import in_precision
from zoo.exponential_family import Gaussian

WEIGHTS = (2.0, 0.5)
RNG = np.random.default_rng(0)
Z, VIEWS = RNG.normal(size=(9, 2)), [RNG.normal(size=(9, size)) for size in (3, 4)]
VIEWS[0][2, 1] = np.nan


def test_the_noise_of_a_view_is_drawn_with_its_weight():
    """Conjugate, by hand: InverseGamma(1 + w n / 2, 1 + w sum of squares / 2), missing cells left out."""
    model = zoo.Paired.sepca((Gaussian(None), Gaussian(None)), 2, view_weights=WEIGHTS)
    model = model.with_sizes_from(*VIEWS)
    values = {"latents": Z}
    for number, x in enumerate(VIEWS):
        values |= {
            f"loadings_{number}": RNG.normal(size=(x.shape[1], 2)),
            f"loc_{number}": np.ones(x.shape[1]),
        }
    with in_precision():
        found = gibbs.noise(values, model, *map(jnp.asarray, VIEWS))
    assert len(found) == 2
    for number, (x, weight) in enumerate(zip(VIEWS, WEIGHTS, strict=True)):
        away = x - Z @ values[f"loadings_{number}"].T - 1.0
        own = found[f"noise_variance_{number}"]
        assert float(own.concentration) == pytest.approx(1 + weight * np.isfinite(x).sum() / 2, rel=1e-12)
        assert float(own.rate) == pytest.approx(1 + weight * np.nansum(away**2) / 2, rel=1e-12)
