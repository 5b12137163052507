"""Tests start processes in one way: none with little time, none that outlives its test."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from processes import LIMIT, started

TESTS = Path(__file__).parent


def faults(tree):
    """Lines that start a process by hand, or give one a limit of their own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "Popen":
                yield node.lineno, "Popen"
            for keyword in node.keywords:
                if keyword.arg == "timeout" and isinstance(keyword.value, ast.Constant):
                    yield node.lineno, "timeout"


def test_processes_are_started_by_the_helper_and_have_its_limit():
    found = {
        (path.relative_to(TESTS).as_posix(), *fault)
        for path in TESTS.rglob("*.py")
        if path.name not in ("processes.py", "test_processes.py") and path.parent.name != "benchmarks"
        for fault in faults(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert not found and LIMIT >= 30 * 60
    planted = "subprocess.Popen([])\nprocess.communicate(timeout=120)"
    assert list(faults(ast.parse(planted))) == [(1, "Popen"), (2, "timeout")]


def test_a_process_that_takes_too_long_is_ended_and_its_pipes_are_closed():
    """Planted: a limit that strikes while the process sleeps."""
    command = [sys.executable, "-S", "-c", "import time; time.sleep(1000)"]
    with pytest.raises(subprocess.TimeoutExpired), started(command) as process:
        process.communicate(timeout=LIMIT / 1e5)
    assert process.returncode == -9 and process.stdout.closed and process.stderr.closed
