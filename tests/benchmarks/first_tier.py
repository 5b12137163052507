"""Chooses the tests that ``pytest`` alone runs, by what they notice for the seconds that they take.

Run ``python -m tests.benchmarks.first_tier`` on a quiet machine. It runs the tests that are not slow, without
a compiled program from before, and counts the processor time of each. The tier begins with `ALWAYS`, a short
fit by every method of every model and the commands and pages once. The rest is bought in the order of how
many listed mistakes a test notices a second, until `SECONDS` are spent; half of the mistakes, drawn at
random, choose, and the other half judge. Of each mistake the record of ``python -m tests.tools.mutants``
names one test that notices it, the first that failed, so that both shares are lower bounds. Written to
tests/first_tier.txt and, with the curve, to tests/reference/first_tier.json.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.tools.recording import REFERENCE, write_record

ROOT = Path(__file__).parents[2]
TIER = ROOT / "tests" / "first_tier.txt"
SECONDS = 260.0  # of the processor; by themselves these tests take 160 by the clock on two cores
TIMES = "ZOO_TEST_TIMES"  # names the file of processor times to pytest's workers
EVERY_METHOD = "tests/inference/fitting/test_every_method.py"
ALWAYS = (
    f"{EVERY_METHOD}::test_every_method_of_every_model_is_among_them",
    f"{EVERY_METHOD}::test_a_short_fit_is_printed_saved_and_loaded_as_it_was",
    "tests/zoo/test_registry.py",
    "tests/test_readme.py",
)
CURVE = (60.0, 90.0, 120.0, 150.0, 180.0, 210.0, 250.0, 300.0, 400.0, 600.0)


def _spent():
    """Processor seconds of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """Write down the processor time of a test, with the fixtures that it is the first to need."""
    begin = _spent()
    yield
    with Path(os.environ[TIMES]).open("a", encoding="utf-8") as file:
        print(json.dumps([item.nodeid, round(_spent() - begin, 3)]), file=file)


def measured(times):
    """Run every test that is not slow, cold; the exit status of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
        environment = kept | {TIMES: str(times), "JAX_COMPILATION_CACHE_DIR": folder}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.benchmarks.first_tier", "tests"]
        return subprocess.run(command, cwd=ROOT, env=environment).returncode


def by_function(seconds):
    """Processor seconds of each test with all its cases."""
    found = defaultdict(float)
    for name, own in seconds.items():
        found[name.partition("[")[0]] += own
    return dict(found)


def noticed(tests):
    """Mistake to the test that notices it, by the record; one whose file has moved is known by name."""
    now = {test.partition("::")[2]: test for test in tests}
    record = json.loads((REFERENCE / "mutants.json").read_text(encoding="utf-8"))["mutants"]
    return {
        mistake: now.get(outcome["by"].partition("[")[0].partition("::")[2], outcome["by"])
        for mistake, outcome in record.items()
        if outcome["status"] == "killed" and "::" in outcome["by"]
    }


def chosen(cost, always, wanted, seconds):
    """Tests in the order in which they are bought, until the seconds are spent.

    Args:
        cost: test to processor seconds.
        always: tests that are in the tier anyhow.
        wanted: mistake to the test that notices it.
        seconds: all that may be spent.

    Returns:
        The tests.
    """
    gains = Counter(test for test in wanted.values() if test in cost and test not in always)
    left, found = seconds - sum(cost[test] for test in always), list(always)
    for test in sorted(gains, key=lambda name: (-gains[name] / max(cost[name], 0.01), name)):
        if cost[test] <= left:
            left -= cost[test]
            found.append(test)
    return found


def share(tests, wanted):
    """Share of the mistakes whose test is among these."""
    return round(sum(test in tests for test in wanted.values()) / len(wanted), 3)


def main(arguments=None):
    """Measure, choose and write the tier and its record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=Path, help="processor times that were measured before")
    given = parser.parse_args(arguments).times
    times = given or Path(tempfile.mkdtemp()) / "times.jsonl"
    if given is None and (status := measured(times)):
        return status
    lines = times.read_text(encoding="utf-8").splitlines()
    cost = by_function(dict(json.loads(line) for line in lines))
    always = [test for test in cost if {test, test.partition("::")[0]} & {*ALWAYS}]
    known = noticed(cost)
    mistakes = random.Random(0).sample(sorted(known), len(known))
    half = len(mistakes) // 2
    choosing, judging = ({m: known[m] for m in own} for own in (mistakes[:half], mistakes[half:]))
    curve = {}
    for seconds in CURVE:
        tests = set(chosen(cost, always, choosing, seconds))
        curve[f"{seconds:.0f}"] = {"chosen by": share(tests, choosing), "judged by": share(tests, judging)}
    tier = chosen(cost, always, known, SECONDS)
    TIER.write_text("".join(f"{test}\n" for test in sorted(tier)), encoding="utf-8")
    write_record(
        "first_tier",
        "python -m tests.benchmarks.first_tier",
        times="measured in this run" if given is None else "measured before, and given",
        tests=len(tier),
        cpu_seconds_of_tests=round(sum(cost[test] for test in tier), 1),
        cpu_seconds_of_all=round(sum(cost.values()), 1),
        share_noticed_at_least=share(set(tier), known),
        curve=curve,
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
