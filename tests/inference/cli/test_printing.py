"""Remedies of messages as the command line has them."""

import pytest

from inference.cli.printing import as_options


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("or for all of them by keep=('precisions',)", "or for all of them by --keep precisions"),
        ("take method='em' or 'vb' or 'gibbs'", "take --method em or vb or gibbs"),
        ("give the model loading_prior='ard'", "give the model --set loading_prior=ard"),
        ("say which view: what= one of y_0, y_1", "say which view: --what one of y_0, y_1"),
        ("act on them (what='probabilities' of predict)", "act on them (--what probabilities of predict)"),
        ("raise max_iterations=500", "raise --max-iterations 500"),
    ],
)
def test_calls_of_python_are_options(said, shown):
    assert as_options(said) == shown
