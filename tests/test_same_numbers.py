"""No number of a small fit changes but by intent: every model by every method, against the record.

What the numbers should be, the proofs of each method say; this says that they are still the same, and so
notices a mistake anywhere on the way from the data to the result. The record is written by
``python -m tests.same_numbers --record``, which compares bit for bit on the machine that wrote it; here the
comparison is to rounding, so that it holds on every machine.
"""

import json

import pytest

from tests.fit_cases import CASES, fitted, outline
from tests.recording import REFERENCE

RECORD = json.loads((REFERENCE / "same_numbers.json").read_text(encoding="utf-8"))["fits"]
ELSEWHERE = ("devices", "parallel", "resumed")  # two devices, and Ctrl-C: the command has them, and other tests
HERE = [name for name in CASES if not name.endswith(ELSEWHERE)]


SLOW = (" nuts", " hmc", " svi")  # gradients compile longest, and what they call the other methods call too
LIKE_ANOTHER = {  # by the same code as a case that is left
    "mixture em restarts",
    "mixture gibbs sequential",
    "mixture gibbs thinning",
    "mixture nuts from vb",
    "mixture vb chunks",
    "mixture vb converged",
    "mixture vb dict",
    "mixture vb float32",
    "mixture vb kmeans",
    "mixture vb restarts",
    "mixture vb weights",
    "lda vb restarts",
    "lda vb texts",
    "pcp vb lda",
    "sppca em half",
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name.endswith(SLOW) or name in LIKE_ANOTHER else ())
        for name in HERE
    ],
)
def test_a_fit_has_the_numbers_of_its_record(name):
    found = outline(fitted(name))
    told = RECORD[name]["outline"]
    assert found.keys() == told.keys()
    for group, variables in told.items():
        assert found[group].keys() == variables.keys()
        for variable, written in variables.items():
            count, *numbers = map(float, written.split())
            assert found[group][variable][0] == count, (group, variable)
            scale = max(numbers[1], 1e-6)  # the root mean square
            tolerance = (1e-3 if "float32" in name else 1e-5) * scale
            assert found[group][variable][1:] == pytest.approx(numbers, rel=0, abs=tolerance), (group, variable)


def test_a_changed_order_or_value_is_noticed():
    """The comparison itself: values that change places, or one that moves by a thousandth."""
    import numpy as np
    import xarray as xr

    values = np.random.default_rng(1).normal(size=40)
    moved = np.where(np.arange(40) == 7, values + 0.04, values)
    first, turned, other = (
        outline(xr.DataTree.from_dict({"posterior": xr.Dataset({"x": ("row", v)})}))["posterior"]["x"]
        for v in (values, values[::-1], moved)
    )
    assert turned[:3] == pytest.approx(first[:3]) and abs(turned[3] - first[3]) > 1e-3
    assert abs(other[1] - first[1]) == pytest.approx(1e-3)
