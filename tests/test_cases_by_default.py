"""Which tests run where none is named, and which cases of an expensive proof are slow."""

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import first_tier, pytest_collection_modifyitems

from tests.tools.slow_tests import in_turn

pytestmark = pytest.mark.repo


def item(name, *marks):
    """What the hook reads of a collected test."""
    own = {mark.name: mark for mark in marks}
    return SimpleNamespace(
        path="test_file.py",
        nodeid=f"test_file.py::{name}",
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


def test_the_first_tier_names_tests_that_there_are():
    root, functions = Path(__file__).parents[1], {}
    for name in first_tier():
        path, _, test = name.partition("::")
        if path not in functions:
            tree = ast.parse((root / path).read_text(encoding="utf-8"))
            functions[path] = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert not test or test.partition("[")[0] in functions[path], name
    assert len(functions) > 10


def test_what_the_first_tier_names_is_marked(monkeypatch):
    monkeypatch.setattr("conftest.first_tier", lambda: {"test_file.py::one", "other.py"})
    items = [item("one"), item("one[case]"), item("two")]
    pytest_collection_modifyitems(items)
    assert ["first" in each.marks for each in items] == [True, True, False]


def test_slow_tests_that_have_waited_longest_come_first_with_their_next_case():
    cases = {name: [f"{name}[a]", f"{name}[b]"] for name in ("old", "older", "new", "bad")}
    known = {
        "old": {"case": "old[a]", "outcome": "passed", "day": "2026-11-02"},
        "older": {"case": "older[b]", "outcome": "passed", "day": "2026-11-01"},
        "bad": {"case": "bad[b]", "outcome": "failed", "day": "2026-11-03"},
    }
    assert in_turn(cases, known) == ["new[a]", "bad[b]", "older[a]", "old[b]"]
