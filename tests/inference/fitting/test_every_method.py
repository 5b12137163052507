"""One short fit by every method of every model: numbers and answers of its record; printed, saved, the same.

`.ci/versions` runs it at the lowest and at the newest versions of the dependencies.
"""

import warnings
from functools import cache

import numpy as np
import pytest
import xarray as xr

import inference
from inference.diagnostics import summary_text
from inference.methods import BY_MODEL, FOR_EVERY_MODEL
from tests.support.fit_cases import ANSWERED, OWN, differences_to_rounding, fitted, of_relations
from tests.support.fit_cases import CASES as FITS
from tests.support.relation_cases import CASES

SHORT = {"num_warmup": 4, "num_samples": 6, "num_chains": 2, "max_iterations": 4, "progress": False}
#: Methods that every program has, once each.
GENERAL = {("ppca with priors", "nuts"), ("mixture", "hmc"), ("lda", "svi"), ("epca", "map")}
GENERAL |= {("epca of numbers", "tempered")}


def test_every_method_of_every_model_is_among_them():
    assert set(OWN) == {(model, method) for model, methods in BY_MODEL.items() for method in methods}
    assert {method for _, method in GENERAL} == set(FOR_EVERY_MODEL)


@cache
def short_fit(case, method):
    """The fit of which there is a record, but by gradients."""
    if (name := of_relations(case, method)) in FITS:
        return fitted(name)
    make, data, _ = CASES[case]
    with warnings.catch_warnings():  # that it has not converged
        warnings.simplefilter("ignore", UserWarning)
        return inference.fit(make(*data), *data, method=method, **SHORT)


#: Rounding, and so the machine, may decide the signs or the order of their axes: these groups have none.
TURNED = {("depcam", "em"), ("depcam", "vb"), ("epca", "map"), ("epca", "vb"), ("paired", "vb")}
TURNED |= {("ppca of student rows with priors", "vb"), ("sppca of probit classes", "ep")}
TURNED |= {("sppca with priors", "vb")}
UNTURNED = ("trace", "observed_data", "constant_data")
#: The others have a file, and so a worker, of their own.
PAIRS = sorted({*OWN.values(), *(pair for pair in GENERAL if pair[1] == "tempered")})
#: Compile two to five times as long as the sampler that they temper; `pytest` alone has one of them.
LATER = [pair for pair in PAIRS if pair[1] == "tempered" and pair[0] != "mixture"]


def check(case, method, path):
    tree, name = short_fit(case, method), of_relations(case, method)
    inference.save(tree, path)
    back = inference.load(path)
    xr.testing.assert_identical(back, tree)
    screen = summary_text(tree, details=True)
    assert tree.attrs["verdict"].split()[0] in screen and summary_text(back, details=True) == screen
    for difference in differences_to_rounding(name, tree) if name in FITS else ():
        assert (case, method) in TURNED and not difference.startswith(UNTURNED), difference


@pytest.mark.parametrize(("case", "method"), [pair for pair in PAIRS if pair not in LATER])
def test_a_short_fit_is_printed_saved_and_loaded_as_it_was(case, method, tmp_path):
    check(case, method, tmp_path / "fit.nc")


@pytest.mark.parametrize(("case", "method"), LATER)
def test_a_short_tempered_fit_is_printed_saved_and_loaded_as_it_was(case, method, tmp_path):
    check(case, method, tmp_path / "fit.nc")


ASKED = [own for own in PAIRS if of_relations(*own) in ANSWERED and own not in (*LATER, *TURNED)]


@pytest.mark.parametrize(("case", "method"), ASKED)
def test_answers_about_new_rows_are_those_of_the_record(case, method):
    told = differences_to_rounding(of_relations(case, method), short_fit(case, method), has_answers=True)
    assert not [line for line in told if line.startswith("answers")]


#: Follow another one: with the topics of words or the utilities of classes, or up to a constant.
OTHERS = {"lda", "pcp", "sppca of probit classes"}
OF_PROGRAMS = sorted(pair for pair in OWN.values() if pair[1] == "gibbs" and pair[0] not in OTHERS)


@pytest.mark.parametrize(("case", "method"), OF_PROGRAMS)
def test_a_sampler_follows_the_log_joint_and_the_clusters_of_its_draws(case, method):
    tree = short_fit(case, method)
    num_draws = tree["sample_stats"].sizes["draw"]
    kept = tree["trace"].to_dataset().isel(iteration=slice(-num_draws, None))
    np.testing.assert_allclose(kept["objective"], tree["sample_stats"]["lp"], rtol=1e-9)
    if "num_occupied" in kept:
        np.testing.assert_array_equal(kept["num_occupied"], tree["posterior"]["num_occupied"])
