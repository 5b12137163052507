"""Runs slow tests for so many minutes, those that have waited longest first, and writes down which passed.

Run ``python -m tests.tools.slow_tests MINUTES [PATH ...]``. All of them take a day and more, so that nobody
runs them all; of each function one case is run, another one each time, in a process of its own that `LIMIT`
seconds of the clock end. Written to tests/reference/slow_tests.json after each.
"""

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict

from tests.support.processes import started
from tests.tools.recording import REFERENCE, write_record

ROOT = REFERENCE.parents[1]
RECORD = "slow_tests"
HERE = "not needs_data and not needs_peer"  # a case alone is the first of its test, which may not be slow
GROUP = f"slow and {HERE}"
LIMIT = 120.0
CUT = f"not ended in {LIMIT:.0f} s"
OUTCOMES = {0: "passed", 1: "failed"}  # by pytest's exit status; with another one the run has not begun


def collected(paths):
    """The slow tests of these files and folders: function to its cases."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-m", GROUP, "--collect-only", *paths]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    cases = defaultdict(list)
    for line in found.splitlines():
        if "::" in line:
            cases[line.partition("[")[0]].append(line)
    return dict(cases)


def in_turn(cases, known):
    """A case of each function: what failed, again, and what was never run; then by age the next."""
    turn = {}
    for function, own in cases.items():
        last = known.get(function, {"case": "", "outcome": "never run", "day": ""})
        has_ended = last["outcome"] in ("passed", CUT)
        place = own.index(last["case"]) + has_ended if last["case"] in own else 0
        turn[own[place % len(own)]] = last["day"] if has_ended else ""
    return sorted(turn, key=turn.get)


def run(case):
    """What came of a case, and the last lines of what it printed."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-m", HERE, case]
    with started(command, cwd=ROOT, stderr=subprocess.STDOUT, start_new_session=True) as process:
        try:
            printed, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with what the test has started
            return CUT, ""
    return OUTCOMES.get(process.returncode, f"pytest ended with {process.returncode}"), printed[-2000:]


def recorded():
    """What is known of each function, also from others that run at the same time."""
    path = REFERENCE / f"{RECORD}.json"
    return json.loads(path.read_text(encoding="utf-8"))["tests"] if path.is_file() else {}


def main(arguments=None):
    """Run what has waited longest; the exit status is 1 where a test failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("minutes", type=float)
    parser.add_argument("paths", nargs="*", default=["tests"])
    asked = parser.parse_args(arguments)
    end, bad = time.monotonic() + 60 * asked.minutes, 0
    for case in in_turn(collected(asked.paths), recorded()):
        begin = time.monotonic()
        if begin > end:
            break
        outcome, printed = run(case)
        seconds, day = round(time.monotonic() - begin, 1), datetime.datetime.now(datetime.UTC).date()
        print(f"{outcome}, {seconds} s: {case}", flush=True)
        if outcome not in ("passed", CUT):
            bad += 1
            print(printed, flush=True)
        found = {"case": case, "outcome": outcome, "seconds": seconds, "day": day.isoformat()}
        known = sorted((recorded() | {case.partition("[")[0]: found}).items())
        write_record(RECORD, "python -m tests.tools.slow_tests", tests=dict(known))
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main())
