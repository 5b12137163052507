"""What an error of an answer advises, the model can do; what is no fit or model is refused by name."""

import inspect
import re

import numpy as np
import pytest

import inference
import zoo
from inference import calibration, diagnostics, gibbs, plots, report, symmetry, topics
from inference.diagnostics import for_arviz, top_partitions
from inference.fitting import verdict
from inference.methods import advised
from inference.plots import plot_rank
from tests.support.fit_cases import COUNTS, LABELS, PROPER, X, Y
from tests.support.fit_requests import check_method, request_of
from tests.support.relation_cases import CASES

#: Cases of flat priors, kernels and text without a sampler of their own or of the program.
WITHOUT_SAMPLER = {"kernelpca", "kernelpca of rbf", "sppca of rbf"}
STEPS = {"max_iterations": 2, "tolerance": 0, "progress": False}
FITS = {
    "no density": (zoo.KernelPCA(num_latents=1, kernel="rbf", noise_variance=0.1), (X,), "closed_form"),
    "a kernel": (zoo.SPPCA(num_latents=1, kernel="rbf", noise_variance_x=0.3), (X, Y), "em"),
    "probit outputs": (zoo.SPPCA(num_latents=1, output_likelihood="probit", **PROPER), (X, LABELS), "ep"),
    "topics": (zoo.PLSI(num_topics=2), (COUNTS,), "em"),
    "negative parameters": (zoo.EPCA(family="exponential", num_latents=1), (np.abs(X),), "map"),
    "clusters": (zoo.Mixture(num_components=2), (X,), "em"),
}
ASKED = {
    "arviz": for_arviz,
    "guide": inference.guide,
    "evidence": inference.log_evidence,
    "partitions": top_partitions,
    "assignments": lambda tree: inference.extend(tree, "assignments"),
    "ranks": plot_rank,
}


@pytest.fixture(scope="module", params=FITS)
def point(request):
    model, data, method = FITS[request.param]
    return inference.fit(model, *data, method=method, **({} if method == "closed_form" else STEPS))


@pytest.mark.parametrize("asked", ASKED)
def test_methods_that_an_error_advises_are_those_that_take_the_model(point, asked):
    """Answers that a point estimate has not: of clusters, of q, of draws, of chains."""
    if asked in ("assignments", "partitions") and point.fit.model.roles.cluster:
        assert len(ASKED[asked](point))
        return
    with pytest.raises(ValueError) as refused:
        ASKED[asked](point)
    for method in re.findall(r"method='(\w+)'", str(refused.value)):
        assert method in point.fit.model.methods and method != point.attrs["method"]
        check_method(point.fit.model, method)
    assert point.fit.model.answers.has_density or "density of held-out" not in str(refused.value)
    assert "num_chains" not in str(refused.value)  # more chains of a point estimate are none
    if asked in ("partitions", "assignments"):
        assert "assigns no rows to components" in str(refused.value)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of the model, whatever the method
@pytest.mark.parametrize("name", CASES)
def test_a_fit_is_to_be_compared_with_a_method_that_takes_it(name):
    """Of every model in every form: the default PPCA was sent to Gibbs, which asks for proper priors."""
    make, data, methods = CASES[name]
    model = make(*data)
    fitted = request_of(model, *data, method=methods[0]).model
    for method in re.findall(r"method='(\w+)'", verdict._comparison(fitted, False)):
        assert request_of(model, *data, method=method).model.methods == fitted.methods
    if name in ("mixture", "ppca with priors", "epca", "paired", "mcfa", "lda"):
        assert "method='gibbs'" in verdict._comparison(fitted, True)
    assert ("method=" in verdict._comparison(fitted, True)) is (name not in WITHOUT_SAMPLER)
    assert ("held-out" in verdict._otherwise(fitted)) is fitted.answers.has_density
    assert ("held-out" in verdict._otherwise(fitted)) is not name.startswith("kernelpca")


def test_a_method_that_does_not_take_the_fields_is_not_advised():
    assert advised(zoo.PPCA(num_latents=1), ("tempered", "nuts", "svd")) == "method='nuts'"
    assert advised(FITS["a kernel"][0], ("nuts", "vb", "gibbs")) == ""


FACES = (inference, calibration, diagnostics, gibbs, plots, report, symmetry, topics)
PUBLIC = {f"{face.__name__}.{name}": getattr(face, name) for face in FACES for name in face.__all__}
FIRST = {
    name: next(iter(inspect.signature(function).parameters), None)
    for name, function in PUBLIC.items()
    if inspect.isfunction(function)
}
OF_FITS = [name for name, first in FIRST.items() if first == "tree"]
OF_MODELS = [  # the checks of calibration take any program
    name for name, first in FIRST.items() if first == "model" and not name.startswith(calibration.__name__)
]
REST = {"row": 0, "path": "page.html", "cluster": 0, "group": "prior", "counts": COUNTS, "data": (X,)}


@pytest.mark.parametrize("given", ["fit.nc", None, X])
@pytest.mark.parametrize("name", [*OF_FITS, *OF_MODELS])
def test_what_is_no_fit_or_model_is_refused_by_name(name, given):
    """A path, a forgotten return, a table: no answer begins with any of these."""
    rest = {
        key: REST.get(key, 1)
        for key, parameter in list(inspect.signature(PUBLIC[name]).parameters.items())[1:]
        if parameter.default is parameter.empty and not parameter.kind.name.startswith("VAR_")
    }
    with pytest.raises(TypeError, match=f"^{FIRST[name]} must be a "):
        PUBLIC[name](given, **rest)
