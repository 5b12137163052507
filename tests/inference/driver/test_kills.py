"""Runs that are killed at random moments and resumed are bit for bit the runs that went through."""

import pytest

from tests.benchmarks.kills import CASES, killed_and_compared


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("case", CASES)
def test_killed_twice_and_resumed_is_the_run_that_went_through(case, tmp_path):
    """The processes have other hashes each, and one of them ends the run and compares."""
    differ, left, _, progress = killed_and_compared(case, 2, tmp_path, seed=1)
    assert differ == [] and left == []
    assert 0 < progress[0] <= progress[1]  # it went on where it was cut
