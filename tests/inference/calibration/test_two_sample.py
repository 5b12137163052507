"""The comparison of two samples that all checks in distribution share."""

import numpy as np
import pytest

from inference.calibration.verdicts import two_sample


@pytest.mark.parametrize("unit", [1e-300, 1e-3, 1.0, -7.0, 1e200])
def test_values_apart_by_rounding_are_ties(unit):
    """A third of either sample is 1, on one side rounded down: no difference; 1e-4 lower is one."""
    rng = np.random.default_rng(0)
    before, after = (np.where(rng.uniform(size=2000) < 1 / 3, 1.0, rng.uniform(size=2000)) for _ in range(2))
    lower = np.where(after == 1, after - 1.2e-16, after)
    assert (lower < 1).all()
    expected = two_sample(unit * before, unit * after)
    assert min(expected.values()) > 1e-3
    assert two_sample(unit * before, unit * lower) == expected
    planted = np.where(after == 1, after - 1e-4, after)
    assert two_sample(unit * before, unit * planted)["distribution"] < 1e-9


def test_what_is_not_finite_keeps_its_place():
    sample = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0, 2.0])
    assert min(two_sample(sample, sample[::-1]).values()) > 0.99
    assert two_sample(np.full(9, np.nan), np.full(9, np.nan)) == {}
