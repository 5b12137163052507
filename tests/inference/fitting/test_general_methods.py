"""One short fit by each method that every program has, as `test_every_method` has those of each model."""

import pytest

from tests.inference.fitting.test_every_method import GENERAL, PAIRS, check


@pytest.mark.parametrize(("case", "method"), sorted(GENERAL - {*PAIRS}))
def test_a_short_fit_by_a_general_method_is_printed_saved_and_loaded_as_it_was(case, method, tmp_path):
    check(case, method, tmp_path / "fit.nc")
