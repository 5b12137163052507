"""One short fit by every method of every model: saved, loaded, the same.

`.ci/versions` runs it at the lowest and at the newest versions of the dependencies.
"""

import warnings

import pytest
import xarray as xr

import inference
from inference.methods import BY_MODEL, FOR_EVERY_MODEL
from tests.support.relation_cases import CASES

SHORT = {"num_warmup": 4, "num_samples": 6, "num_chains": 2, "max_iterations": 4, "progress": False}
#: Methods that every program has, once each.
GENERAL = {("ppca with priors", "nuts"), ("mixture", "hmc"), ("lda", "svi"), ("epca", "map")}
GENERAL |= {("epca of numbers", "tempered")}
#: A case of each model that tempers a sampler of its own.
TEMPERED = {"ppca": "ppca with priors", "sppca": "sppca with priors"}
TEMPERED |= {model: model for model in ("mixture", "mcfa", "lda", "pcp")}
OWN = {
    (type(case.make(*case.data)).__name__.lower(), method): (name, method)
    for name, case in reversed(CASES.items())
    for method in case.methods
    if method not in FOR_EVERY_MODEL
} | {(model, "tempered"): (case, "tempered") for model, case in TEMPERED.items()}


def test_every_method_of_every_model_is_among_them():
    assert set(OWN) == {(model, method) for model, methods in BY_MODEL.items() for method in methods}
    assert {method for _, method in GENERAL} == set(FOR_EVERY_MODEL)


@pytest.mark.parametrize(("case", "method"), sorted({*OWN.values(), *GENERAL}))
def test_a_short_fit_is_saved_and_loaded_as_it_was(case, method, tmp_path):
    make, data, _ = CASES[case]
    with warnings.catch_warnings():  # that it has not converged
        warnings.simplefilter("ignore", UserWarning)
        tree = inference.fit(make(*data), *data, method=method, **SHORT)
    inference.save(tree, tmp_path / "fit.nc")
    xr.testing.assert_identical(inference.load(tmp_path / "fit.nc"), tree)
