"""Tests start processes in one way: none with little time, none that outlives its test."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import LIMIT, started

TESTS = Path(__file__).parent
TOLD = re.compile(r"Popen|timeout|\bwait\(|monotonic|time\.time")  # other files need not be parsed


def faults(tree):
    """Lines that start a process by hand, or give it or what waits for it a limit of their own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called == "Popen":
                yield node.lineno, "Popen"
            for keyword in node.keywords:
                if keyword.arg == "timeout" and isinstance(keyword.value, ast.Constant):
                    yield node.lineno, "timeout"
            if called == "wait" and any(map(seconds_of_its_own, node.args)):
                yield node.lineno, "wait"
        if isinstance(node, ast.BinOp | ast.Compare):
            parts = [node.left, *([node.right] if isinstance(node, ast.BinOp) else node.comparators)]
            if any(map(reads_the_clock, parts)) and any(map(seconds_of_its_own, parts)):
                yield node.lineno, "clock"


def seconds_of_its_own(node):
    """Whether it is a number of seconds long enough to be meant as a limit."""
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value > 1


def reads_the_clock(node):
    """Whether ``time.monotonic()`` or ``time.time()`` stands in it."""
    called = (own.func for own in ast.walk(node) if isinstance(own, ast.Call))
    return any(isinstance(f, ast.Attribute) and f.attr in ("monotonic", "time") for f in called)


def test_processes_are_started_by_the_helper_and_have_its_limit():
    found = {
        (path.relative_to(TESTS).as_posix(), *fault)
        for path in TESTS.rglob("*.py")
        if path.name not in ("processes.py", "test_processes.py")
        if TOLD.search(text := path.read_text(encoding="utf-8"))
        for fault in faults(ast.parse(text))
    }
    assert not found and LIMIT >= 30 * 60
    planted = (
        "subprocess.Popen([])\nprocess.communicate(timeout=120)\nbegun.wait(60)\n"
        "until = time.monotonic() + 60\nassert time.monotonic() - begun < 300"
    )
    assert sorted(faults(ast.parse(planted))) == [
        (1, "Popen"),
        (2, "timeout"),
        (3, "wait"),
        (4, "clock"),
        (5, "clock"),
    ]


def test_a_process_that_takes_too_long_is_ended_and_its_pipes_are_closed():
    """Planted: a limit that strikes while the process sleeps."""
    command = [sys.executable, "-S", "-c", "import time; time.sleep(1000)"]
    with pytest.raises(subprocess.TimeoutExpired), started(command) as process:
        process.communicate(timeout=LIMIT / 1e5)
    assert process.returncode == -9 and process.stdout.closed and process.stderr.closed
