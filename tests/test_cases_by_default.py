"""The first cases of an expensive proof run by default, the others with the slow tests."""

from types import SimpleNamespace

import pytest
from conftest import pytest_collection_modifyitems


def item(name, *marks):
    """What the hook reads of a collected test."""
    own = {mark.name: mark for mark in marks}
    return SimpleNamespace(
        path="test_file.py",
        originalname=name,
        marks=own,
        get_closest_marker=own.get,
        add_marker=lambda mark: own.update({mark.name: mark.mark}),
    )


def test_cases_beyond_the_first_are_slow_and_slow_ones_do_not_count():
    two, slow = pytest.mark.cases_by_default(2).mark, pytest.mark.slow.mark
    items = [
        item("proof", two),
        item("proof", two, slow),
        item("other"),
        item("proof", two),
        item("proof", two),
        item("second proof", two),
    ]
    pytest_collection_modifyitems(items)
    assert ["slow" in each.marks for each in items] == [False, True, False, False, True, False]
