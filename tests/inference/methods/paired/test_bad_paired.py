"""What a user can get wrong with EPCA and paired views: one clear message each, from `fit`."""

import warnings

import numpy as np
import pytest

import zoo
from inference import fit
from zoo.exponential_family import Binomial, GammaWithShape, NegativeBinomial

RNG = np.random.default_rng(0)
X = RNG.integers(0, 2, size=(8, 4)).astype(float)
Y = RNG.integers(0, 2, size=(8, 3)).astype(float)
TWO = ("bernoulli", "bernoulli")


def with_(table, row, column, value):
    """A copy with one cell (or row, or column) changed."""
    changed = table.copy()
    changed[row, column] = value
    return changed


ALL = slice(None)
DOMAINS = {
    "gaussian": ("gaussian", np.inf, "row 2, column 1 is inf"),
    "bernoulli": ("bernoulli", 2.0, "must hold 0 or 1; row 2, column 1 is 2"),
    "binomial": (Binomial(3), 4.0, "row 2, column 1 is 4"),
    "poisson": ("poisson", 1.5, "row 2, column 1 is 1.5"),
    "exponential": ("exponential", -1.0, "row 2, column 1 is -1"),
    "gamma": (GammaWithShape(2.0), -1.0, "row 2, column 1 is -1"),
    "negative binomial": (NegativeBinomial(2.0), -1.0, "row 2, column 1 is -1"),
    "categorical": ("categorical", 0.5, "row 2, column 1 is 0.5"),
    "ordinal": ("ordinal", -1.0, "row 2, column 1 is -1"),
}


@pytest.mark.parametrize("name", DOMAINS)
def test_a_cell_outside_of_its_family_is_named(name):
    """In EPCA's table, in a view, and in a column of a mixed table."""
    family, value, message = DOMAINS[name]
    good = X + 1.0 if name in ("exponential", "gamma", "ordinal") else X
    bad = with_(good, 2, 1, value)
    with pytest.raises(ValueError, match=f"^x .*{message}"):
        fit(zoo.EPCA(family=family, num_latents=1), bad, method="map")
    with pytest.raises(ValueError, match=f"^y_1 .*{message}"):
        fit(zoo.Paired.ecca(("bernoulli", family), 1, (1, 1)), Y, bad, method="map")
    families = (family, family, "bernoulli", "bernoulli")
    mixed = np.hstack([bad[:, :2], X[:, 2:]])
    with pytest.raises(ValueError, match=f"^x .*{message}"):
        fit(zoo.EPCA(family=families, num_latents=1), mixed, method="map")


CASES = {
    "no such family": (lambda: (zoo.EPCA(family="cauchy"), (X,)), "no family is called 'cauchy'; there are"),
    "no such family of a view": (
        lambda: (zoo.Paired(("bernoulli", "cauchy")), (X, Y)),
        "no family is called 'cauchy'; there are .*bernoulli.*poisson",
    ),
    "families and columns": (lambda: (zoo.EPCA(family=TWO), (X,)), "4 columns and 2 families"),
    "beta below": (lambda: (zoo.EPCA(beta=-0.1), (X,)), r"beta must lie in \[0, 1\]; got -0.1"),
    "beta above": (lambda: (zoo.Paired(TWO, beta=1.5), (X, Y)), r"beta must lie in \[0, 1\]; got 1.5"),
    "kernel without maximum": (
        lambda: (zoo.EPCA(beta=0.4, conjugate=(2.0, 1.0)), (X,)),
        r"kernel of Bernoulli has no maximum at conjugate=\(2, 1\)",
    ),
    "kernel of a view": (
        lambda: (zoo.Paired(("poisson", "poisson"), beta=0.4, conjugate=(-1.0, 1.0)), (X, Y)),
        r"kernel of Poisson has no maximum at conjugate=\(-1, 1\)",
    ),
    "kernel of exponential cells": (
        lambda: (zoo.EPCA(family="exponential", beta=0.4, conjugate=(0.0, 1.0)), (X + 1,)),
        "kernel of Exponential has no maximum",
    ),
    "no kernel": (
        lambda: (zoo.EPCA(family="ordinal", beta=0.4), (X + 1,)),
        "Ordinal has no conjugate kernel",
    ),
    "K above columns": (lambda: (zoo.EPCA(num_latents=5), (X,)), "at most the number of columns, 4; got 5"),
    "K above rows": (lambda: (zoo.EPCA(num_latents=4), (X[:3],)), "at most the number of rows, 3; got 4"),
    "K above a view": (
        lambda: (zoo.Paired.ecca(TWO, 1, (1, 4)), (X, Y)),
        "num_specific of view 1 must be at most its number of columns, 3; got 4",
    ),
    "K above all columns": (
        lambda: (zoo.Paired.sepca(TWO, 8), (X, Y)),
        "as the columns of all views, 7; got 8",
    ),
    "num_specific": (lambda: (zoo.Paired(TWO, 1, (1, 1, 1)), (X, Y)), "one number for each of the 2 views"),
    "rows": (lambda: (zoo.Paired(TWO), (X, Y[:5])), "y_0 and y_1 must have the same rows; y_0 has 8"),
    "no view": (lambda: (zoo.Paired(TWO), (X, np.full((8, 3), np.nan))), "y_1 is missing as a whole"),
    "one view too few": (lambda: (zoo.Paired(TWO), (X,)), "takes 2 parts of data, .*; got 1: y_1 is missing"),
    "no cell": (lambda: (zoo.EPCA(), (X * np.nan,)), "missing|no observed"),
    "empty row": (
        lambda: (zoo.Paired(TWO), (with_(X, 6, ALL, np.nan), with_(Y, 6, ALL, np.nan))),
        "row 6 has no observed cell in y_0 or y_1",
    ),
    "empty column": (
        lambda: (zoo.Paired(TWO), (X, with_(Y, ALL, 2, np.nan))),
        "column 2 of y_1 is missing in all rows: leave it out",
    ),
    "relevance": (lambda: (zoo.EPCA(ard=True, beta=0.2), (X,)), "ard=True goes with beta=0"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_gets_one_clear_message(case):
    make, message = CASES[case]
    with pytest.raises((TypeError, ValueError), match=message):
        model, data = make()
        fit(model, *data, method="map")


@pytest.mark.parametrize("method", ["gibbs", "vb", "nuts", "hmc", "svi"])
def test_beta_of_one_is_for_point_estimates(method):
    for model, data in ((zoo.EPCA(beta=1.0), (X,)), (zoo.Paired(TWO, beta=1.0), (X, Y))):
        with pytest.raises(ValueError, match=f"beta=1 makes .* improper, and method '{method}'"):
            fit(model, *data, method=method)


# Divergence

COUNTS = RNG.poisson(2.0, size=(12, 4)).astype(float)
FAR = {"loadings": np.full((4, 1), 60.0), "latents": np.full((12, 1), 60.0), "loc": np.zeros(4)}


@pytest.mark.slow
@pytest.mark.parametrize("method", [pytest.param("map", marks=pytest.mark.slow), "vb"])
def test_a_start_without_a_finite_objective_is_an_error(method):
    with pytest.raises(FloatingPointError, match="not finite after the first step, at every restart: check"):
        fit(zoo.EPCA(family="poisson", num_latents=1), COUNTS, method=method, init=FAR, max_iterations=5)


@pytest.mark.slow
def test_an_optimiser_that_diverges_stops_at_its_last_good_state():
    """SVI with steps far too long: one warning that says so, and nothing but finite numbers."""
    model = zoo.EPCA(family="poisson", num_latents=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tree = fit(model, COUNTS, method="svi", step_size=80.0, max_iterations=60, num_samples=5)
    reason = "the objective was not finite at iteration 2; this is the state before it"
    assert tree.attrs["stop_reason"] == reason and not tree.attrs["converged"]
    assert [str(warning.message) for warning in caught] == [
        f"epca by svi has not converged: {reason}. Next: lower step_size"
    ]
    for group in ("posterior", "variational"):
        assert all(np.isfinite(value).all() for value in tree[group].data_vars.values())
