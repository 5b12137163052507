"""Chooses the tests that ``pytest`` alone runs, by what they notice for the seconds that they take.

Run ``python -m tests.benchmarks.first_tier`` on a quiet machine. It runs the tests that are neither slow
nor of the repository, without a compiled program from before, and counts the processor time of each. The tier
begins with `ALWAYS`, a short fit by every method of every model and the commands and pages once. The rest is
bought in the order of how many mistakes a test notices a second, listed ones or, of a test that no listed one
names, as many as may be expected, until `SECONDS` are spent; half of the mistakes, drawn at random, choose,
and the other half judge. Of each mistake the record of ``python -m tests.tools.mutants`` names one test that
notices it, the first that failed, so that both shares are lower bounds; of a mistake that the record lacks,
the first test that is listed for it chooses, but counts in no share. Written to tests/first_tier.txt and,
with the curve, to tests/reference/first_tier.json.

With ``--judge N`` the tier is left as it is. Another, of as many seconds, is chosen by one
half of the listed mistakes alone; N of the other half are planted, without the first ``--after`` of them, of
which somebody who has changed tests since has read which were missed; and each is run on the tests of that
tier that enter its function. The share that is noticed goes to the record as it grows. ``--kept FOLDER`` goes
on where an earlier run was cut, by the times that it holds.
"""

import argparse
import ast
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.tools.mutants.listing import mutants
from tests.tools.mutants.runner import KILLED, SURVIVED, Copy
from tests.tools.recording import REFERENCE, add_part_to_record, write_record

ROOT = Path(__file__).parents[2]
TIER = ROOT / "tests" / "first_tier.txt"
SECONDS = 215.0  # of the processor of a busy machine; by the clock some 170 on two cores that are quiet
TIMES = "ZOO_TEST_TIMES"  # names the file of processor times to pytest's workers
EVERY_METHOD = "tests/inference/fitting/test_every_method.py"
ALWAYS = (
    f"{EVERY_METHOD}::test_every_method_of_every_model_is_among_them",
    f"{EVERY_METHOD}::test_a_short_fit_is_printed_saved_and_loaded_as_it_was",
    "tests/inference/fitting/test_general_methods.py",
    "tests/zoo/test_registry.py",
    "tests/test_same_numbers.py::test_a_program_has_the_log_density_of_its_record",
    "tests/test_readme.py",
)
MEASURED = "not slow and not needs_data and not needs_peer and not repo"
JUDGED = "judged by running"
JUDGED_SECONDS = 180  # of the processor, for one mistake
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
    """Run every test that is not slow, cold, less those of the repository; the exit status of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
        environment = kept | {TIMES: str(times), "JAX_COMPILATION_CACHE_DIR": folder}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.benchmarks.first_tier", "-m", MEASURED]
        return subprocess.run([*command, "tests"], cwd=ROOT, env=environment).returncode


def by_function(seconds):
    """Processor seconds of each test with all its cases."""
    found = defaultdict(float)
    for name, own in seconds.items():
        found[name.partition("[")[0]] += own
    return dict(found)


def recorded():
    """Mistake to what came of it, by the record."""
    return json.loads((REFERENCE / "mutants.json").read_text(encoding="utf-8"))["mutants"]


def noticed(tests):
    """Mistake to the test that notices it, by the record; one whose file has moved is known by name."""
    now = {test.partition("::")[2]: test for test in tests}
    return {
        mistake: now.get(outcome["by"].partition("[")[0].partition("::")[2], outcome["by"])
        for mistake, outcome in recorded().items()
        if outcome["status"] == "killed" and "::" in outcome["by"]
    }


def presumed(listed):
    """Mistake that the record lacks to the first test that the list names for it."""
    named = {m: [test for test in listed[m].tests if "::" in test] for m in listed.keys() - recorded().keys()}
    return {mistake: tests[0].partition("[")[0] for mistake, tests in named.items() if tests}


def chosen(cost, always, wanted, seconds):
    """Tests in the order in which they are bought, until the seconds are spent.

    A test that no mistake names is worth what Good (1953) expects of what was not seen: as many mistakes as
    one mistake alone names, shared among all such tests. It is bought where the file is read anyhow.

    Args:
        cost: test to processor seconds.
        always: tests that are in the tier anyhow.
        wanted: mistake to the test that notices it.
        seconds: all that may be spent.

    Returns:
        The tests.
    """
    gains = Counter(test for test in wanted.values() if test in cost and test not in always)
    files = {test.partition("::")[0] for test in gains}
    others = [test for test in cost if test not in gains and test not in always]
    expected = sum(number == 1 for number in gains.values()) / max(len(others), 1)
    unseen = {test: expected for test in others if test.partition("::")[0] in files}
    worth = {**gains, **unseen}
    left, found = seconds - sum(cost[test] for test in always), list(always)
    for test in sorted(worth, key=lambda name: (-worth[name] / max(cost[name], 0.01), name)):
        if cost[test] <= left:
            left -= cost[test]
            found.append(test)
    return found


def share(tests, wanted):
    """Share of the mistakes whose test is among these."""
    return round(sum(test in tests for test in wanted.values()) / len(wanted), 3)


def lines(path):
    """What the lines of JSON of a file say; nothing where there is no file."""
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    )


def entered(tier, copy, file):
    """What each case of the tier enters where there is no mistake, and which cases start processes."""
    left = set(tier) - {case.partition("[")[0] for case, _, _ in lines(file)}
    plugin = ["-p", "tests.tools.mutants.entered", f"--entered={file}"]
    for path in sorted({test.partition("::")[0] for test in left}):  # each file by itself
        own = [test for test in left if test.partition("::")[0] == path]
        outcome = copy.first_failure("own", [*plugin, *own], 10 * JUDGED_SECONDS)
        print(f"{outcome.status} without a mistake, {outcome.seconds:5.1f} s  {path}", flush=True)
        if outcome.status != SURVIVED:
            raise RuntimeError(f"the tier fails without a mistake: {outcome.by}")
    found = {case: told for case, *told in lines(file) if case.partition("[")[0] in tier}
    starts = {case for case, (_, has_started) in found.items() if has_started}
    return {case: {tuple(place) for place in places} for case, (places, _) in found.items()}, starts


def span(mutant):
    """First and last line of the outermost function that a mistake lies in; None outside of functions."""
    text = (ROOT / mutant.path).read_text(encoding="utf-8")
    same = os.path.commonprefix([mutant.old, mutant.new])
    line = text.count("\n", 0, text.index(mutant.old) + len(same)) + 1
    nodes = ast.walk(ast.parse(text)) if mutant.path.endswith(".py") else ()
    for node in nodes:  # breadth first
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min(own.lineno for own in (node, *node.decorator_list))
            if first <= line <= node.end_lineno:
                return first, node.end_lineno
    return None


def concerned(mutant, places, starts, cost):
    """Cases that may notice a mistake, in the order in which they are run.

    Those that enter its function (outside of functions: its file, or else its folder), file by file, the
    nearest to its path and the quickest first; then those that start processes, which may enter any.
    """
    within, folder = span(mutant), mutant.path.rpartition("/")[0] + "/"
    rules = (
        lambda path, line: path == mutant.path and (within is None or within[0] <= line <= within[1]),
        lambda path, line: within is None and path.startswith(folder),
    )
    groups = ([case for case in places if any(rule(*place) for place in places[case])] for rule in rules)
    found, seconds = next(filter(None, groups), []), Counter()
    for case in found:
        seconds[case.partition("::")[0]] += cost[case]

    def order(case):
        path = case.partition("::")[0]
        near = len(os.path.commonprefix([path.split("/")[1:-1], mutant.path.split("/")[:-1]]))
        mirrors = path.rpartition("/")[2] == f"test_{mutant.path.rpartition('/')[2]}"
        return -near - mirrors, seconds[path], path, cost[case]

    return sorted(found, key=order) + sorted(starts - {*found}, key=order)


def judge(command, tier, judging, seconds, kept):
    """Plant the mistakes, one at a time, and write down the share that the tier notices."""
    from scipy.stats import binomtest

    with Copy() as copy:
        places, starts = entered(tier, copy, kept / "entered.jsonl")
        outcomes = {name: told for name, *told in lines(kept / "outcomes.jsonl")}
        for count, mutant in enumerate(judging, 1):
            if mutant.name not in outcomes:
                cases = concerned(mutant, places, starts, seconds)
                with copy.planted(mutant):
                    found = copy.first_failure("own", cases, JUDGED_SECONDS) if cases else None
                told = [found.status, found.by, found.seconds] if found else ["no test enters it", "", 0.0]
                outcomes[mutant.name] = told
                with (kept / "outcomes.jsonl").open("a", encoding="utf-8") as file:
                    print(json.dumps([mutant.name, *told]), file=file)
            run = {each.name: outcomes[each.name][0] for each in judging[:count]}
            missed = {name: status for name, status in run.items() if status != KILLED}
            interval = binomtest(count - len(missed), count).proportion_ci()
            print(
                f"{count - len(missed)} of {count}: {outcomes[mutant.name]}  {mutant.one_line()}", flush=True
            )
            add_part_to_record(
                "first_tier",
                JUDGED,
                command,
                tests=len(tier),
                cpu_seconds_of_tests=round(sum(by_function(seconds)[test] for test in tier), 1),
                mistakes=count,
                noticed=count - len(missed),
                share=round(1 - len(missed) / count, 3),
                interval_of_95_percent=[round(interval.low, 3), round(interval.high, 3)],
                not_noticed=missed,
            )


def main(arguments=None):
    """Measure, choose and write the tier and its record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--judge", type=int, metavar="N", help="only run N mistakes that have not chosen")
    parser.add_argument("--after", type=int, default=0, metavar="K", help="of these leave out the first K")
    parser.add_argument("--kept", type=Path, help="folder of what was measured before")
    given = parser.parse_args(arguments)
    kept = given.kept or Path(tempfile.mkdtemp())
    times = kept / "times.jsonl"
    is_measured_before = times.is_file()
    if not is_measured_before and (status := measured(times)):
        return status
    seconds = dict(lines(times))
    cost = by_function(seconds)
    always = [test for test in cost if {test, test.partition("::")[0]} & {*ALWAYS}]
    known = noticed(cost)
    listed = {mutant.name: mutant for mutant in mutants()}
    drawn = random.Random(0).sample(sorted(listed), len(listed))
    half = len(drawn) // 2
    choosing, judging = ({m: known[m] for m in own if m in known} for own in (drawn[:half], drawn[half:]))
    wanted = presumed(listed) | known
    of_half = {m: wanted[m] for m in drawn[:half] if m in wanted}
    if given.judge:
        tier = chosen(cost, always, of_half, SECONDS)
        command = f"python -m tests.benchmarks.first_tier --judge {given.judge} --after {given.after}"
        own = drawn[half + given.after :][: given.judge]
        judge(command, tier, [listed[name] for name in own], seconds, kept)
        return 0
    curve = {}
    for budget in CURVE:
        tests = set(chosen(cost, always, of_half, budget))
        curve[f"{budget:.0f}"] = {"chosen by": share(tests, choosing), "judged by": share(tests, judging)}
    tier = chosen(cost, always, wanted, SECONDS)
    TIER.write_text("".join(f"{test}\n" for test in sorted(tier)), encoding="utf-8")
    record = json.loads((REFERENCE / "first_tier.json").read_text(encoding="utf-8"))
    write_record(
        "first_tier",
        "python -m tests.benchmarks.first_tier",
        times="measured before, and given" if is_measured_before else "measured in this run",
        tests=len(tier),
        cpu_seconds_of_tests=round(sum(cost[test] for test in tier), 1),
        share_noticed_at_least=share(set(tier), known),
        curve=curve,
        **{name: part for name, part in record.items() if name == JUDGED},
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
