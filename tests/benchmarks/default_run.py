"""What the default tests cost: processor time of ``python -m pytest`` without a compiled program from before.

Run ``python -m tests.benchmarks.default_run [FOLDER]`` on a quiet machine with FOLDER a checkout of another
commit, such as ``git worktree add FOLDER d4579d2``: the share of the tests that stood there, by the names of
their functions, is counted apart. Bars: 16 CPU minutes in all, 11 of them for what stood at d4579d2 (26
then). The time of each test is that of the clock; CPU time is shared out in proportion, so that imports and
collection are in. Written to tests/reference/benchmark_default_run.json, also where tests fail, which the
record then says.
"""

import argparse
import ast
import os
import resource
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tests.tools.recording import write_record

ROOT = Path(__file__).parents[2]
WORKERS = 2


def names_of_tests(folder):
    """Names of all test functions of a checkout."""
    return {
        node.name
        for path in sorted((folder / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def seconds_of_tests(report):
    """Seconds by the clock of each test of a JUnit report, and how many did not pass."""
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    bad = sum(any(child.tag in ("failure", "error") for child in case) for case in cases)
    seconds = {}
    for case in cases:
        name = f"{case.get('classname').replace('.', '/')}.py::{case.get('name')}"
        seconds[name] = seconds.get(name, 0.0) + float(case.get("time"))
    return seconds, bad


def main(arguments=None):
    """Run the default tests once and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?")
    former = parser.parse_args(arguments).folder
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        environment = kept | {"JAX_COMPILATION_CACHE_DIR": str(Path(folder) / "programs")}
        command = [sys.executable, "-m", "pytest", "-q", "-n", str(WORKERS), f"--junitxml={report}"]
        load, begin = os.getloadavg()[0], time.perf_counter()
        status = subprocess.run(command, cwd=ROOT, env=environment).returncode
        clock = time.perf_counter() - begin
        seconds, bad = seconds_of_tests(report)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = used.ru_utime + used.ru_stime
    per_second = spent / sum(seconds.values())
    slowest = sorted(seconds, key=seconds.get, reverse=True)[:10]
    found = {
        "cpu_minutes": round(spent / 60, 2),
        "bar": 16,
        "clock_minutes": round(clock / 60, 2),
        "workers": WORKERS,
        "load_before": round(load, 1),
        "tests": len(seconds),
        "did_not_pass": bad,
        "slowest": {name: round(per_second * seconds[name], 1) for name in slowest},
    }
    if former is not None:
        stood = names_of_tests(former.resolve())
        own = [s for name, s in seconds.items() if name.partition("::")[2].partition("[")[0] in stood]
        found["stood_before"] = {
            "tests": len(own),
            "cpu_minutes": round(per_second * sum(own) / 60, 2),
            "bar": 11,
        }
    print(found)
    write_record("benchmark_default_run", "python -m tests.benchmarks.default_run FOLDER", **found)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
