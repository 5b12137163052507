"""The files of reference posteriors: read without JAX, models as they were described, small."""

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.processes import LIMIT, started
from zoo import posteriors
from zoo.datasets import shipped_folder


def test_listing_and_reading_import_no_jax():
    code = (
        "import sys\nfrom zoo import posteriors\n"
        "held = [posteriors.load(name) for name in posteriors.names()]\n"
        "assert len(held) >= 30 and sum(own.exact for own in held) >= 20\n"
        "assert not {'jax', 'numpyro'} & set(sys.modules)"
    )
    with started([sys.executable, "-c", code]) as process:
        _, said = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, said


def test_the_folder_is_small_and_holds_no_code():
    files = list((shipped_folder() / "posteriors").iterdir())
    assert {path.suffix for path in files} == {".json"}
    assert sum(path.stat().st_size for path in files) < 300_000


@pytest.mark.parametrize("name", ["mixture_mixed", "paired", "kernelpca", "mixture_bernoulli_missing"])
def test_a_model_is_made_with_its_fields(name):
    held = posteriors.load(name)
    assert type(held.model).__name__.lower() == held.model_name
    assert list(held.data) == list(held.model.data_names)
    assert "model" in vars(held) and held.model is held.model  # made once, when it is asked for
    if name == "mixture_mixed":
        assert held.model.components.columns == ((0,), (1,), (2,))
        np.testing.assert_array_equal(held.model.components.families[1].shape, [1.5])
    if name == "mixture_bernoulli_missing":
        assert np.isnan(held.data["x"]).sum() == 3
    if name == "paired":
        assert held.model.num_specific == (1, 1)


def test_an_unknown_name_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match="no reference posterior is called 'other'; there are: depcam, epca"):
        posteriors.load("other")


def test_the_script_that_made_a_file_is_named_in_it():
    for name in posteriors.names():
        assert posteriors.load(name).origin["command"] == f"python -m tests.support.posterior_cases {name}"
    assert Path(__file__).parents[1].joinpath("support", "posterior_cases.py").is_file()
