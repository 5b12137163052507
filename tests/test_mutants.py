"""The list of planted mistakes goes with the code; ``python -m tests.tools.mutants`` runs it."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from tests.benchmarks.first_tier import chosen, concerned, span
from tests.tools.mutants.__main__ import _likely
from tests.tools.mutants.listing import ROOT, mutants
from tests.tools.mutants.runner import BROKEN, IN_ORDER, KILLED, STOPPED, SURVIVED, _read

pytestmark = pytest.mark.repo

ROOMS = {
    "machinery",
    "mixtures",
    "topics",
    "projections",
    "exponential families",
    "diagnostics",
    "interfaces",
}


def test_every_mistake_can_be_planted():
    """Its old text stands in its file once and its tests exist; ``--check`` parses the new texts too."""
    assert [fault for mutant in mutants() if (fault := mutant.fault())] == []


def test_the_list_covers_the_rooms_and_what_lies_between_features():
    listed = mutants()
    assert len(listed) >= 250
    assert sum(len(mutant.features) > 1 for mutant in listed) >= 120
    assert {mutant.room for mutant in listed} == ROOMS
    assert max(Counter(mutant.name for mutant in listed).values()) == 1


@pytest.mark.parametrize(
    ("status", "output", "wanted"),
    [
        (0, "3 passed", (SURVIVED, "")),
        (5, "no tests ran", (SURVIVED, "")),
        (
            1,
            "..F\nFAILED tests/test_a.py::test_b[c d] - assert 1\n1 failed",
            (KILLED, "tests/test_a.py::test_b[c d]"),
        ),
        (1, "ERROR tests/test_a.py::test_b - TypeError\n1 error", (KILLED, "tests/test_a.py::test_b")),
        (2, "ImportError while loading conftest", (BROKEN, "ImportError while loading conftest")),
        (2, "!!! KeyboardInterrupt: no step !!!\n1 passed", (KILLED, "KeyboardInterrupt: no step")),
        (-24, "..", (STOPPED, "signal 24")),
    ],
)
def test_only_a_test_that_fails_kills(status, output, wanted):
    """A mistake that stops the collection, or outlasts its time, is not killed."""
    assert _read(status, output) == wanted


def test_a_fault_of_the_list_is_told():
    mutant = next(iter(mutants()))
    assert "stands there 0 times" in replace(mutant, old="no such text").fault()
    assert "there are no tests" in replace(mutant, tests=("tests/none.py::test_none",)).fault()
    assert "no Python" in replace(mutant, new=f"{mutant.old} (").fault_of_syntax()
    assert "no_such_name" in replace(mutant, new=f"no_such_name({mutant.old})").fault_of_syntax()
    assert "means what the old one does" in replace(mutant, new=f"{mutant.old}  # said").fault_of_syntax()


def test_a_test_that_is_named_before_its_folder_runs_first(tmp_path):
    """Pytest leaves out what a folder has too, unless told: then a likely test would wait for all others."""
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "test_two.py").write_text("def test_one(): ...\n\n\ndef test_two(): ...\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        *IN_ORDER,
        "--collect-only",
        "-q",
        "test_two.py::test_two",
        ".",
    ]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert found.splitlines()[:2] == ["test_two.py::test_two", "test_two.py::test_one"]


def test_a_test_that_has_moved_is_not_asked_again():
    mutant = next(iter(mutants()))
    here = "tests/test_mutants.py::test_a_test_that_has_moved_is_not_asked_again[case]"
    gone = ["tests/test_mutants.py::test_that_was_here", "tests/test_none.py::test_none"]
    noticed = {
        f"{mutant.path}:{number}": {"status": KILLED, "by": by} for number, by in enumerate([here, *gone])
    }
    assert _likely(mutant, noticed | {mutant.name: {"status": KILLED, "by": gone[0]}}) == [here]


def test_functions_that_a_test_enters_are_written_down_for_each_test(tmp_path):
    files = {
        "pytest.ini": "[pytest]\n",
        "zoo/__init__.py": "",
        "zoo/one.py": "def early(): ...\n\n\ndef late(): ...\n\n\nearly()\n",
        "test_one.py": "import functools, pytest\nfrom zoo.one import late\nkept = functools.cache(late)\n"
        "made = pytest.fixture(scope='session')(lambda: late())\n\n\ndef test_a(): kept()\n\n\n"
        "def test_b(): kept()\n\n\ndef test_c(made): ...\n\n\ndef test_d(made): ...\n\n\n"
        "def test_e(): ...\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}  # after the working folder
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.tools.mutants.entered"]
    command += ["--entered=found.jsonl", "--import-mode=importlib", "test_one.py"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    found = map(json.loads, (tmp_path / "found.jsonl").read_text().splitlines())
    early, late = ["zoo/one.py", 1], ["zoo/one.py", 4]
    assert {test[-6:]: places for test, places, _ in found} == {
        name: [early, late] if name != "test_e" else [early]
        for name in ("test_a", "test_b", "test_c", "test_d", "test_e")
    }


def test_a_mistake_is_run_on_the_tests_that_enter_its_function_and_those_that_start_processes():
    mutant = next(each for each in mutants() if span(each))
    first, last = span(mutant)
    places = {
        "far/test_a.py::test_inside": {(mutant.path, last)},
        "far/test_a.py::test_before": {(mutant.path, first - 1)},
        "far/test_a.py::test_after": {(mutant.path, last + 1)},
        "far/test_a.py::test_other_file": {("other.py", first)},
        "far/test_a.py::test_process": set(),
        f"tests/{mutant.path.rpartition('/')[0]}/test_b.py::test_near": {
            ("other.py", 1),
            (mutant.path, first),
        },
    }
    inside, *_, process, near = places
    assert concerned(mutant, places, {process}, dict.fromkeys(places, 1.0)) == [near, inside, process]


def test_the_first_tier_buys_quick_tests_that_no_mistake_names_from_files_that_it_reads():
    cost = {"a.py::dear": 10.0, "a.py::named": 1.0, "a.py::quick": 0.01, "b.py::quick": 0.01}
    wanted = {"one": "a.py::dear", "two": "a.py::named"}
    assert chosen(cost, [], wanted, 12.0) == ["a.py::quick", "a.py::named", "a.py::dear"]
    assert chosen(cost, [], wanted, 10.0) == ["a.py::quick", "a.py::named"]
