"""The list of planted mistakes goes with the code; ``python -m tests.mutants`` runs it."""

from collections import Counter

import pytest

from tests.mutants.listing import mutants

pytestmark = pytest.mark.bookkeeping

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
