"""Warnings of columns in different units and of unit noise come before compilation, once, with names."""

import warnings

import numpy as np
import pandas as pd
import pytest

import zoo
from tests.support.fit_requests import request_of
from zoo.conjugate import NormalGamma, SphericalNormalGamma
from zoo.exponential_family import Gaussian

UNKNOWN = Gaussian(noise_variance=None)


@pytest.fixture(scope="module")
def frame():
    x = np.random.default_rng(0).normal(size=(50, 4)) * [1e-3, 1.0, 50.0, 1e3]
    return pd.DataFrame(x, columns=["length", "width", "depth", "mass"])


def messages(model, *data, method="auto"):
    """The warnings of reading a call: nothing is compiled."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        request_of(model, *data, method=method)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("model", "remedy"),
    [
        (zoo.PPCA(num_latents=1), "give standardize=True"),
        (zoo.KernelPCA(num_latents=1), "give standardize=True"),
        (zoo.EPCA(family=UNKNOWN, num_latents=1), "give standardize=True"),
        (zoo.EPCA(family=UNKNOWN, num_latents=1, beta=0.5), "divide the columns by their standard dev"),
        (zoo.DEPCAM(family=UNKNOWN, num_latents=1, num_components=2), "give standardize=True"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_columns_in_different_units_are_named_once(frame, model, remedy):
    (message,) = messages(model, frame)
    assert "length (sd 0.000" in message and "mass (sd 1.0" in message and remedy in message


def test_views_outputs_and_mixtures(frame):
    x, y = frame.to_numpy(), frame[["length", "mass"]]
    (message,) = messages(zoo.Paired(families=(UNKNOWN, UNKNOWN)), x / x.std(0), y)
    assert "columns of y_1" in message and "length" in message and "give standardize=True" in message
    (message, *_) = messages(zoo.Paired(families=("gaussian", UNKNOWN)), frame, y)
    assert "give families with Gaussian(noise_variance=None), and standardize=True" in message
    (message,) = messages(zoo.SPPCA(num_latents=1, kernel="linear"), frame, frame[["length"]])
    assert "divide the columns by their standard deviations" in message
    (message,) = messages(zoo.SPPCA(num_latents=1), frame, y)
    assert "columns of x" in message and "columns of y" in message and "standardize=True" in message
    (message,) = messages(zoo.Mixture(components=SphericalNormalGamma.from_data(x), num_components=2), frame)
    assert "columns of x" in message


def test_gaussian_columns_of_a_mixed_table_are_compared(frame):
    """The noise of all was that of the largest ones, and nothing said so."""
    table = frame.assign(member=np.arange(50) % 2)
    given = (*[UNKNOWN] * 4, "bernoulli")
    (message,) = messages(zoo.EPCA(family=given, num_latents=1), table)
    assert "length (sd 0.000" in message and "mass (sd 1.0" in message and "standardize=True" in message
    assert messages(zoo.EPCA(family=given[3:], num_latents=1), table[["mass", "member"]]) == []
    assert messages(zoo.EPCA(num_latents=1), table) == []  # families as read bring the deviations with them


def test_no_warning_where_columns_have_their_own_variances(frame):
    x = frame.to_numpy()
    full = zoo.Paired(families=(UNKNOWN, UNKNOWN), specific="full_covariance")
    for model, data in (
        (zoo.PPCA(num_latents=1, noise="diagonal"), (frame,)),
        (zoo.PPCA(num_latents=1, standardize=True), (frame,)),
        (zoo.SPPCA(num_latents=1, standardize=True), (frame, frame[["length", "mass"]])),
        (zoo.EPCA(family=UNKNOWN, num_latents=1, standardize=True), (frame,)),
        (zoo.Paired(families=(UNKNOWN, UNKNOWN), standardize=True), (frame, frame)),
        (zoo.DEPCAM(family=UNKNOWN, num_latents=1, num_components=2, standardize=True), (frame,)),
        (zoo.Mixture(components=NormalGamma.from_data(x), num_components=2), (frame,)),
        (full, (frame, frame)),
        (zoo.PPCA(num_latents=1), (frame / x.std(0) * [1, 9, 1, 1],)),  # within a factor of ten
        (zoo.EPCA(num_latents=1), (np.eye(20, 4),)),
    ):
        assert messages(model, *data) == []


@pytest.mark.parametrize(
    "model",
    [
        zoo.EPCA(family="gaussian", num_latents=1),
        zoo.DEPCAM(family="gaussian", num_latents=1, num_components=1),
        zoo.Paired(families=("gaussian", "gaussian")),
    ],
    ids=lambda model: type(model).__name__,
)
def test_unit_noise_is_warned_of_both_ways(model):
    x = np.random.default_rng(0).normal(size=(50, 6))
    parts = len(model.data_names)
    for scale in (0.3, 10.0):
        found = messages(model, *[x * scale] * parts)
        assert len(found) == parts and all("Gaussian(noise_variance=None)" in text for text in found)
    assert messages(model, *[x] * parts) == []
    strong = x + 100.0 * x[:, :1]  # one strong direction beside unit noise is no misfit
    assert messages(model, *[strong] * parts) == []
