"""CONTRIBUTING.md answers a newcomer's questions with places that exist."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.repo

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_each_of_ten_questions_is_answered_with_a_place_that_exists():
    rows = re.findall(r"^\| (.+\?) \| `([\w/.]+)` \|$", PAGE, flags=re.M)
    assert len(rows) == 10
    assert [place for _, place in rows if not (ROOT / place).exists()] == []


def test_every_room_is_on_the_page():
    rooms = {
        path.name
        for package in ("zoo", "inference")
        for path in (ROOT / package).iterdir()
        if path.is_dir() and (path / "__init__.py").exists()
    }
    assert {room for room in rooms if f"{room}/" not in PAGE} == set()
