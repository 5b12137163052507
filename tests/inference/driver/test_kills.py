"""Runs that are killed at random moments and resumed are bit for bit the runs that went through."""

import json

import pytest

from tests.benchmarks.kills import CASES, COMMAND, KILLS, killed_and_compared
from tests.tools.recording import REFERENCE


# Several processes that import everything; the run is really killed.
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_killed_twice_and_resumed_is_the_run_that_went_through(case, tmp_path):
    """The processes have other hashes each, and one of them ends the run and compares."""
    differ, left, _, progress = killed_and_compared(case, 2, tmp_path, seed=1)
    assert differ == [] and left == []
    assert 0 < progress[0] <= progress[1]  # it went on where it was cut


def test_the_record_is_of_all_cases():
    record = json.loads((REFERENCE / "kills.json").read_text(encoding="utf-8"))
    assert record["command"] == COMMAND and record["results"].keys() == CASES.keys()
    assert record["total"] == {
        "kills": KILLS * len(CASES),
        "identical_results": len(CASES),
        "cases": len(CASES),
        "files_left": 0,
    }
    assert record["total"]["kills"] >= 60
    for result in record["results"].values():
        assert result["numbers_that_differ"] == 0 and len(result["steps_saved_before_each_kill"]) == KILLS
    assert sum(result["kills_that_left_half_a_file"] for result in record["results"].values()) > 0
