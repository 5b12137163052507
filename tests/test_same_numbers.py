"""No number of a small fit changes but by intent: every model by every method, against the record.

What the numbers should be, the proofs of each method say; this says that they are still the same, and so
notices a mistake anywhere on the way from the data to the result. The record is written by ``python -m
tests.tools.same_numbers --record``, which compares bit for bit on the machine that wrote it; here the
comparison is to rounding, which other optimisations of the compiler do not pass (those of the default tests
are not those of the record). The fits of ``test_relations.py`` are compared there, where their programs are
compiled.
"""

import json

import numpy as np
import pytest
import xarray as xr

from tests.support.fit_cases import CASES, GRADIENTS, differences_to_rounding, log_densities, outline
from tests.tools.recording import REFERENCE

ELSEWHERE = ("devices", "parallel", "resumed")  # two devices and Ctrl-C, which the command has
HERE = [name for name in CASES if not name.endswith(ELSEWHERE) and not name.startswith("relations, ")]
DEFAULT = {  # what the fits of the relations do not go through, where the programs are soon compiled
    "depcam vb",
    "epca gibbs",
    "epca poisson map",
    "lda collapsed_gibbs",
    "lda vb batches",
    "mixture collapsed_gibbs",
    "mixture gibbs",
    "mixture tempered",
    "mixture vb learn",
    "paired map",
    "pcp collapsed_gibbs",
    "ppca em holes",
    "ppca vb ard",
    "sppca em kernel",
    "sppca em sparse",
    "sppca ep",
    "sppca vb",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in DEFAULT else pytest.mark.slow) for name in HERE]
)
def test_a_fit_has_the_numbers_of_its_record(name):
    assert not differences_to_rounding(name)


PROGRAMS = json.loads((REFERENCE / "answers.json").read_text(encoding="utf-8"))["programs"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_the_log_density_of_its_record(name):
    """Priors, likelihoods, units and missing cells of every form of every model, without a fit."""
    np.testing.assert_allclose(log_densities(name), [*map(float, PROGRAMS[name].split())], rtol=1e-9)


def test_every_method_without_gradients_is_compared_by_default():
    """Here or with the relations."""
    from tests.inference.calibration.test_relations import PINNED

    compared = {CASES[name][2] for name in DEFAULT} | {method for _, method in PINNED}
    assert compared == {case[2] for case in CASES.values()} - set(GRADIENTS)


def test_a_changed_order_or_value_is_noticed():
    """The comparison itself: values that change places, or one that moves by a thousandth."""
    values = np.random.default_rng(1).normal(size=40)
    moved = np.where(np.arange(40) == 7, values + 0.04, values)
    first, turned, other = (
        outline(xr.DataTree.from_dict({"posterior": xr.Dataset({"x": ("row", v)})}))["posterior"]["x"]
        for v in (values, values[::-1], moved)
    )
    assert turned[:3] == pytest.approx(first[:3]) and abs(turned[3] - first[3]) > 1e-3
    assert abs(other[1] - first[1]) == pytest.approx(1e-3)
