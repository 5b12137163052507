"""Whether a prior has seen the data of its fit."""

import numpy as np
import pytest

import zoo
from inference import fit
from inference.diagnostics.prior_width import is_read_off
from zoo.conjugate import GaussianWishart, NormalGamma, PoissonGamma, Product

RNG = np.random.default_rng(0)
X, COUNTS = 3 * RNG.normal(size=(20, 2)) + 1, RNG.poisson(3.0, (20, 1))
MIXED = np.column_stack([X[:, 0], COUNTS])
OTHER = RNG.normal(size=(30, 2))
STATED = {"loading_variance": 1.0, "loc_variance": 1.0, "noise_concentration": 3.0, "noise_rate": 2.0}
PPCA = {"num_latents": 1, "num_features": 2, "loading_prior": "gaussian"}
PRODUCT = {"families": (NormalGamma, PoissonGamma), "columns": ((0,), (1,))}
QUICK = {"method": "vb", "max_iterations": 2, "num_restarts": 1, "num_samples": 2, "progress": False}

READ = {
    "by default": (zoo.Mixture(num_components=2), X),
    "by from_data": (zoo.Mixture(NormalGamma.from_data(X), num_components=2), X),
    "of missing cells": (zoo.Mixture(num_components=2), np.where(X > 3, np.nan, X)),
    "in groups": (zoo.Mixture(Product.from_data(MIXED, **PRODUCT), num_components=2), MIXED),
    "a loading's variance": (zoo.PPCA(**PPCA), X),
    "one field": (zoo.PPCA(**PPCA, **STATED | {"loading_variance": None}, loc_mean=np.zeros(2)), X),
}
STATED_PRIORS = {
    "off other rows": (zoo.Mixture(GaussianWishart.from_data(OTHER), num_components=2), X),
    "all fields that count": (zoo.PPCA(**PPCA, **STATED, loc_mean=np.zeros(2)), X),
    "documents": (zoo.LDA(num_topics=2), RNG.poisson(2.0, (8, 4))),
}


@pytest.mark.filterwarnings("ignore:.* has not converged", "ignore:the learnt word_smoothing")
@pytest.mark.parametrize("name", READ | STATED_PRIORS)
def test_a_prior_that_is_read_off_the_data_is_recognised(name):
    model, data = (READ | STATED_PRIORS)[name]
    assert is_read_off(fit(model, data, **QUICK)) == (name in READ)
