"""Every method of every model against the reference posteriors of small instances.

A sampler's means must lie within 4 combined Monte Carlo standard errors of the reference's, quantity by
quantity: with about 300 quantities in all a right sampler fails somewhere in 2 % of runs; seeds are fixed.
Of an approximate method the measured bias is recorded and must not move by more than 4 of its standard
errors. The quick cases run by default, the others are slow.
"""

import json

import numpy as np
import pytest
from posterior_cases import CASES, NOT_COMPARED, POSTERIORS, bias, fitted, statistics

import zoo

QUICK = {("lda", "gibbs"), ("lda", "vb")}
SAME_MODEL = {"sppca_probit": "sppca"}


def pairs(kind):
    """(case, method), slow unless quick."""
    listed = [(name, method) for name, case in CASES.items() for method in getattr(case(), kind)]
    return [pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.slow) for pair in listed]


def known(name):
    return json.loads((POSTERIORS / f"{name}.json").read_text(encoding="utf-8"))


def furthest(found, reference):
    """The largest difference of means in combined standard errors, over the quantities of both."""
    assert set(found) >= set(reference), set(reference) - set(found)
    gaps = {}
    for quantity, own in reference.items():
        gap = abs(found[quantity]["mean"] - own["mean"])
        gaps[quantity] = gap / np.hypot(found[quantity]["mcse"], own["mcse"]) if gap else 0.0
    return max(gaps.items(), key=lambda item: item[1])


@pytest.mark.parametrize(("name", "method"), pairs("exact"))
def test_samplers_agree_with_the_reference(name, method):
    case = CASES[name]()
    tree = fitted(case, method, case.exact[method], seed=2)
    quantity, gap = furthest(statistics(tree), known(name)["posterior"])
    assert gap < 4, (quantity, gap)


@pytest.mark.parametrize(("name", "method"), pairs("approximate"))
def test_the_bias_of_approximate_methods_stays(name, method):
    record = known(name)
    found = bias(CASES[name](), method, record["posterior"])
    assert set(found) == set(record["bias"][method]) and found
    for quantity, own in record["bias"][method].items():
        moved = abs(found[quantity]["bias"] - own["bias"])
        assert moved <= 4 * own["standard_error"] + 1e-9, (quantity, moved, own)


@pytest.mark.parametrize("name", CASES)
def test_every_method_is_compared_or_said_to_be_left_out(name):
    case, record = CASES[name](), known(name)
    methods = getattr(zoo, zoo.MODELS[SAME_MODEL.get(name, name)]["class"]).methods
    assert set(methods) == set(case.exact) | set(case.approximate) | set(case.left_out)
    assert not set(case.left_out) & (set(case.exact) | set(case.approximate))
    for method, why in case.left_out.items():  # where it names another case, that one compares the method
        elsewhere = why.partition("the case ")[2]
        other = CASES[elsewhere]() if elsewhere else case
        assert why and (not elsewhere or method in set(other.exact) | set(other.approximate)), (method, why)
    assert set(record["bias"]) == set(case.approximate) and record["left_out"] == case.left_out
    assert record["largest_r_hat"] < 1.01 and record["smallest_ess"] > 400
    assert record["posterior"] and not any(q.split("[")[0] in NOT_COMPARED for q in record["posterior"])


@pytest.mark.bookkeeping
def test_every_model_has_a_reference():
    assert {SAME_MODEL.get(name, name) for name in CASES} == set(zoo.MODELS)


def test_another_prior_is_found():
    """A planted fault: LDA's blocked sampler with twice the smoothing of words."""
    case = CASES["lda"]()
    other = case.model.replaced(word_smoothing=1.4)
    tree = fitted(case._replace(model=other), "gibbs", case.exact["gibbs"], seed=2)
    assert furthest(statistics(tree), known("lda")["posterior"])[1] > 4
