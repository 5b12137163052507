"""Every method of every model against the reference posteriors.

Every sampler must pass `posterior_check` at a false-alarm rate of 1e-4: with about 130 pairs of sampler and
posterior a right one fails somewhere in 1.3 % of runs; seeds are fixed. Of an approximate method the measured
bias is recorded and must not move by more than 4 of its standard errors. The quick cases run by default, the
others are slow.
"""

import dataclasses
import json
import threading
import time

import numpy as np
import pytest

import zoo
from inference.calibration import posterior_check
from tests.support import posterior_table
from tests.support.posterior_cases import ALL, METHODS_ON_POSTERIORS, described, fitted
from tests.support.posterior_table import FALSE_ALARMS, TABLE, bias_of, limited, record_of, table
from zoo import posteriors
from zoo.datasets import shipped_folder

QUICK = {
    ("lda", "gibbs"),
    ("lda", "vb"),
    ("mixture_poisson", "gibbs"),
}
RECORDED = sorted(path.stem for path in METHODS_ON_POSTERIORS.glob("*.json"))


def marked(listed):
    """(posterior, method), slow unless quick."""
    return [pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.slow) for pair in listed]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method"), marked([(name, method) for name, case in ALL.items() for method in case().exact])
)
def test_samplers_agree_with_the_reference(name, method):
    case = ALL[name]()
    tree = fitted(case, method, case.exact[method], seed=2)
    verdict = posterior_check(tree, name, false_alarm_rate=FALSE_ALARMS)
    assert verdict, str(verdict)
    assert len(verdict.z) >= len(posteriors.load(name).reference) / 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method"),
    marked(
        [
            (name, method)
            for name in RECORDED
            for method, own in record_of(name)["methods"].items()
            if not own["exact"] and "bias" in own
        ]
    ),
)
def test_the_bias_of_approximate_methods_stays(name, method):
    case = ALL[name]()
    found = bias_of(fitted(case, method, case.approximate[method], seed=1), posteriors.load(name))
    recorded = record_of(name)["methods"][method]["bias"]
    assert recorded and set(found) >= set(recorded)
    for quantity, own in recorded.items():
        moved = abs(found[quantity]["bias"] - own["bias"])
        assert moved <= 4 * own["standard_error"] + 1e-3 * abs(own["bias"]) + 1e-6, (quantity, moved, own)


@pytest.mark.parametrize("name", ALL)
def test_every_method_is_compared_or_said_to_be_left_out(name):
    case = ALL[name]()
    methods = type(case.model).methods
    assert set(methods) == set(case.exact) | set(case.approximate) | set(case.left_out)
    assert not set(case.left_out) & (set(case.exact) | set(case.approximate))
    for method, why in case.left_out.items():  # where it names another case, that one compares the method
        elsewhere = why.partition("the case ")[2]
        other = ALL[elsewhere]() if elsewhere else case
        assert why and (not elsewhere or method in set(other.exact) | set(other.approximate)), (method, why)
    assert set(record_of(name).get("methods", ())) <= set(case.exact) | set(case.approximate)


def without_new(wanted, held):
    """What is described, without parts that are None or empty and younger than the file."""
    if isinstance(wanted, dict) and isinstance(held, dict):
        kept = {key: value for key, value in wanted.items() if value not in (None, []) or key in held}
        return {key: without_new(value, held.get(key)) for key, value in kept.items()}
    if isinstance(wanted, list) and isinstance(held, list) and len(wanted) == len(held):
        return [without_new(*pair) for pair in zip(wanted, held, strict=True)]
    return wanted


@pytest.mark.repo
def test_the_files_are_of_these_cases():
    assert posteriors.names() == tuple(sorted(ALL)) and len(ALL) >= 30
    assert {posteriors.load(name).model_name for name in ALL} == set(zoo.MODELS)
    for name, case in ALL.items():
        held = json.loads((shipped_folder() / "posteriors" / f"{name}.json").read_text(encoding="utf-8"))
        wanted = described(case())
        assert {key: held[key] for key in ("title", "model", "data")} == {
            key: wanted[key] for key in ("title", "model", "data")
        }, name
        wanted = wanted["fields"]
        defaults = {field.name: field.default for field in dataclasses.fields(zoo.model_class(held["model"]))}
        for field in wanted.keys() - held["fields"].keys():  # younger than the file: at its default
            assert wanted.pop(field) == defaults[field], (name, field)
        wanted = without_new(wanted, held["fields"])
        assert held["fields"] == wanted, name
        origin = held["origin"]
        if origin["method"] != "enumeration":
            assert origin["largest_r_hat"] < 1.01 and origin["smallest_ess"] > 5000


@pytest.mark.repo
def test_every_model_has_a_recorded_method():
    assert {posteriors.load(name).model_name for name in RECORDED} == set(zoo.MODELS)


@pytest.mark.repo
def test_the_table_has_a_row_for_every_method_of_every_posterior():
    page = TABLE.read_text(encoding="utf-8")
    assert page == table(), "python -m tests.support.posterior_table --draw"
    for name, case in ALL.items():
        for method in (*case().exact, *case().approximate):
            assert f"| {name} | {method} |" in page
        for why in case().left_out.values():
            assert f"{why} |" in page


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("limit", [0.2, 60.0])
def test_a_method_that_takes_too_long_is_stopped_and_said_to_be(limit):
    seen, ended = [], threading.Event()

    def end(status):
        seen.append(status)
        ended.set()

    with limited(limit, lambda: seen.append("stopped"), end):
        begin = time.process_time()
        while time.process_time() - begin < 1 and not ended.is_set():
            pass
    assert seen == (["stopped", 3] if limit < 1 else [])


def test_a_record_is_of_this_code_once_all_its_methods_are(tmp_path, monkeypatch):
    """One method run again once gave its record the digest of this code, the others being of an older one."""
    monkeypatch.setattr(posterior_table, "METHODS_ON_POSTERIORS", tmp_path)
    monkeypatch.setattr(posterior_table, "code_of", lambda name: "this")
    old = {"code": "older", "methods": {"vb": {}, "svi": {}}}
    (tmp_path / "lda.json").write_text(json.dumps(old))
    posterior_table.write("lda", old["methods"], {"vb"})
    assert record_of("lda")["code"] == "older"
    posterior_table.write("lda", old["methods"], {"vb", "svi"})
    assert record_of("lda")["code"] == "this"


def test_an_interrupted_fit_is_none(monkeypatch):
    """Recorded once: SVI of a mixture whose fit was ended by SIGTERM, its bias 3 instead of 0.9."""
    monkeypatch.setattr("inference.driver.host.Interrupt.requested", True)
    case = ALL["lda"]()
    with pytest.raises(KeyboardInterrupt, match="gibbs was interrupted"):
        fitted(case, "gibbs", case.exact["gibbs"], seed=1)


def test_another_prior_is_found():
    """A planted fault: LDA's blocked sampler with twice the smoothing of words."""
    case = ALL["lda"]()
    other = case.model.replaced(word_smoothing=1.4)
    tree = fitted(case._replace(model=other), "gibbs", case.exact["gibbs"], seed=2)
    verdict = posterior_check(tree, "lda", false_alarm_rate=FALSE_ALARMS)
    assert not verdict and np.isfinite(verdict.statistic)
