"""Bad calls, by table: arguments, options and fields refuse what is not their kind, and nothing is compiled.

Each case is a call with one bad value. It must raise TypeError or ValueError, in one line that names the
argument, and JAX must not have traced or compiled anything meanwhile.
"""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import xarray as xr
from jax import monitoring

import inference
import zoo
from inference import fit
from inference.fitting import front_door
from inference.methods import method_of
from zoo.conjugate import BernoulliBeta, GaussianWishart, MultinomialDirichlet, NormalGamma

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3))
Y = RNG.normal(size=(12, 2))
BITS = RNG.integers(0, 2, size=(12, 3))
COUNTS = RNG.poisson(2.0, size=(8, 5)) + 1

#: Data of each model, and fields that make a small one of them.
MODELS = {
    "mixture": ((X,), {"num_components": 2}),
    "ppca": ((X,), {"num_latents": 1}),
    "kernelpca": ((X,), {"num_latents": 1, "noise_variance": 0.1}),
    "sppca": ((X, Y), {"num_latents": 1}),
    "epca": ((BITS,), {"num_latents": 1}),
    "paired": ((BITS, BITS), {"num_shared": 1}),
    "lda": ((COUNTS,), {"num_topics": 2}),
    "plsi": ((COUNTS,), {"num_topics": 2}),
    "pcp": ((COUNTS,), {"num_topics": 2, "num_clusters": 2}),
    "depcam": ((BITS,), {"num_components": 2, "num_latents": 1, "sparsity": 1.0}),
}
#: Fields with which a method runs at all, where the default ones do not suit it.
SUITED = {
    ("sppca", "gibbs"): {"output_likelihood": "probit"},
    ("sppca", "ep"): {"output_likelihood": "probit"},
    ("paired", "closed_form"): {"families": ("gaussian", "gaussian")},
    ("ppca", "vb"): {"loading_prior": "ard"},
    ("sppca", "vb"): {"loading_prior": "gaussian"},
    ("kernelpca", "nuts"): {"latent_variance": 1.0},
    ("kernelpca", "hmc"): {"latent_variance": 1.0},
    ("kernelpca", "svi"): {"latent_variance": 1.0},
}
LABELS = np.array(["a", "b"] * 6)
STRANGE = {"None": None, "string": "strange", "True": True, "NaN": np.nan, "negative": -1, "tuple": ({},)}


@pytest.fixture
def nothing_compiled():
    """No program may be traced or compiled while the test runs."""
    seen = []

    def note(event, duration, **details):
        if "/jax/core/compile" in event:
            seen.append(event)

    monitoring.register_event_duration_secs_listener(note)
    try:
        yield seen
    finally:
        monitoring.unregister_event_duration_listener(note)
    assert not seen, f"{len(seen)} programs were traced or compiled before the refusal"


@pytest.fixture(scope="module", autouse=True)
def numbers_of_families():
    """The warning of weak views computes the variances of its families by JAX, once for each."""
    model, data = model_and_data("paired")
    fields = {"num_features": tuple(part.shape[1] for part in data)}
    dataclasses.replace(model, **fields).check(*data)


def refused(call, *words):
    """The message of a refusal in one line that holds the words."""
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message, message
    return message


def model_and_data(name, method=None, **fields):
    data, small = MODELS[name]
    fields = small | SUITED.get((name, method), {}) | fields
    if (name, method) in (("sppca", "gibbs"), ("sppca", "ep")):
        data = (X, LABELS)
    if (name, method) == ("paired", "closed_form"):
        data = (X, Y)
    return zoo.model_class(name)(**fields), data


def test_the_listener_hears_a_compilation():
    seen = []

    def note(event, duration, **details):
        seen.append(event)

    monitoring.register_event_duration_secs_listener(note)
    jax.jit(lambda x: x * 3.25 + 1)(np.arange(3.0))
    monitoring.unregister_event_duration_listener(note)
    assert any("/jax/core/compile" in event for event in seen)


# Fields of models and of priors of components

PRIORS = {
    "GaussianWishart": (
        GaussianWishart,
        {"loc": np.zeros(2), "mean_precision": 1.0, "scale_matrix": np.eye(2), "degrees_of_freedom": 4.0},
    ),
    "NormalGamma": (
        NormalGamma,
        {"loc": np.zeros(2), "mean_precision": np.ones(2), "shape": np.ones(2), "rate": np.ones(2)},
    ),
    "BernoulliBeta": (BernoulliBeta, {"concentration1": np.ones(2), "concentration0": np.ones(2)}),
}
CLASSES = {name: (zoo.model_class(name), {}) for name in MODELS} | PRIORS


def accepts(field, value):
    """Whether a value of the table suits a field after all."""
    kind = str(field.type)
    if value is None:
        return field.default is None or "None" in kind
    if value is True:
        return "bool" in kind
    if isinstance(value, int | float) and value == -1:
        return field.name in ("loc", "center", "loc_mean", "offset_mean")
    return False


FIELD_CASES = [
    pytest.param(name, field, id=f"{name}-{field.name}")
    for name, (cls, _) in CLASSES.items()
    for field in dataclasses.fields(cls)
    if field.init
]


@pytest.mark.parametrize(("name", "field"), FIELD_CASES)
def test_a_field_refuses_what_is_not_its_kind(name, field, nothing_compiled):
    cls, given = CLASSES[name]
    values = [value for value in STRANGE.values() if not accepts(field, value)]
    assert len(values) >= 3
    for value in values:
        refused(lambda value=value: cls(**given | {field.name: value}), field.name)


# Options of methods


def methods_with_options():
    """Model, method and defaults of its options."""
    for name in MODELS:
        cls = zoo.model_class(name)
        for method in cls.methods:
            if options := method_of(cls(), method).options:
                yield pytest.param(name, method, options, id=f"{name}-{method}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "method", "options"), list(methods_with_options()))
def test_every_option_refuses_what_is_not_its_kind(name, method, options, nothing_compiled):
    model, data = model_and_data(name, method)
    for option, default in options.items():
        for value in STRANGE.values():
            if value is not default and not (value is True and isinstance(default, bool)):
                call = {"method": method, option: value}
                refused(lambda call=call: fit(model, *data, **call), option)


OUT_OF_RANGE = {
    "nuts-target_accept_prob-0": ("mixture", "nuts", {"target_accept_prob": 0.0}),
    "nuts-target_accept_prob-1": ("mixture", "nuts", {"target_accept_prob": 1.0}),
    "nuts-target_accept_prob-2": ("ppca", "nuts", {"target_accept_prob": 2.0}),
    "nuts-max_tree_depth-0": ("ppca", "nuts", {"max_tree_depth": 0}),
    "nuts-max_tree_depth-1.5": ("epca", "nuts", {"max_tree_depth": 1.5}),
    "nuts-max_tree_depth-three": ("epca", "nuts", {"max_tree_depth": (1, 2, 3)}),
    "nuts-dense_mass-sites": ("mixture", "nuts", {"dense_mass": [("locs",)]}),
    "hmc-num_steps-0": ("mixture", "hmc", {"num_steps": 0}),
    "hmc-trajectory_length-0": ("mixture", "hmc", {"trajectory_length": 0.0}),
    "svi-step_size-0": ("mixture", "svi", {"step_size": 0.0}),
    "svi-num_particles-1.5": ("epca", "svi", {"num_particles": 1.5}),
    "map-memory_size-0": ("epca", "map", {"memory_size": 0}),
    "vb-learn-string": ("mixture", "vb", {"learn": "concentration"}),
    "vb-moves-string": ("mixture", "vb", {"moves": "merge"}),
    "em-variance_floor-1": ("mixture", "em", {"variance_floor": 1.0}),
    "em-noise_floor-1": ("ppca", "em", {"noise_floor": 1.0}),
    "plsi-inverse_temperature-0": ("plsi", "em", {"inverse_temperature": 0.0}),
    "plsi-smoothing-inf": ("plsi", "em", {"smoothing": np.inf}),
    "lda-learning_decay": ("lda", "vb", {"learning_decay": 0.5}),
    "lda-inner_steps-0": ("lda", "vb", {"inner_steps": 0}),
    "morp-weight-2": ("sppca", "morp", {"weight": 2.0}),
    "morp-output_sets-twice": ("sppca", "morp", {"output_sets": ((0,), (0,))}),
    "morp-output_sets-strings": ("sppca", "morp", {"output_sets": ("ab",)}),
    "kernel_cca-ridge-0": ("sppca", "kernel_cca", {"ridge": 0.0}),
}


@pytest.mark.parametrize("case", OUT_OF_RANGE)
def test_an_option_refuses_what_is_out_of_its_range(case, nothing_compiled):
    name, method, options = OUT_OF_RANGE[case]
    model, data = model_and_data(name, method)
    refused(lambda: fit(model, *data, method=method, **options), *options)


def test_numbers_of_numpy_are_numbers_and_leave_the_fit_serialisable(monkeypatch):
    """A size as np.int64 ended a finished fit in an error of JSON."""
    requests = []
    monkeypatch.setattr(front_door, "plan", lambda request: requests.append(request) or 1 / 0)
    settings = {"max_iterations": np.int64(3), "tolerance": np.float32(0.0), "num_samples": np.int32(2)}
    with pytest.raises(ZeroDivisionError):
        fit(zoo.PPCA(num_latents=np.int64(1)), X, method="em", noise_floor=np.float32(1e-5), **settings)
    (request,) = requests
    stored = json.loads(json.dumps(dataclasses.asdict(request.settings) | dict(request.options)))
    assert stored["max_iterations"] == 3 and stored["noise_floor"] == np.float32(1e-5).item()
    assert type(request.model.num_latents) is int


# Arguments of fit

ARGUMENTS = {
    "method": (None, 3, ["vb"], "magic", np.nan),
    "seed": (-1, 1.5, "x", True, None, 2**32, np.arange(3), jnp.zeros(3, jnp.uint32), np.nan),
    "num_chains": (0, -1, 1.5, "4", True, None, np.nan),
    "num_warmup": (-1, 1.5, "4", True, None),
    "num_samples": (0, -1, 1.5, "4", True, None),
    "thinning": (0, 1.5, True, None),
    "chain_method": ("threads", None, 3, True),
    "max_iterations": (0, 1.5, "9", True, None),
    "tolerance": (-1.0, np.nan, np.inf, True, "small", None, [1e-3]),
    "num_restarts": (0, 1.5, True, "2"),
    "init": (3, "magic", True, ["random"]),
    "sample_weight": (
        True,
        "heavy",
        3.0,
        [1.0],
        np.ones((12, 1)),
        [None] * 12,
        -np.ones(12),
        np.full(12, np.nan),
    ),
    "batch_size": (0, -1, 1.5, True, "4"),
    "dtype": ("float16", None, np.float64, 32, ["float64"]),
    "keep": ("assignments", ("nonsense",), 3, (3,), None, {"a": 1}),
    "progress": ("yes", 1, np.nan),
    "checkpoint": (3, True, ["a"], ""),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_an_argument_of_fit_refuses_what_is_not_its_kind(name, argument, nothing_compiled):
    model, data = model_and_data(name)
    method = {} if argument == "method" else {"method": model.methods[0]}
    taken = {"sample_weight": {"mixture", "ppca"}, "batch_size": {"mixture", "lda"}}
    starts = {"ppca", "kernelpca"}  # whose first method solves directly
    for value in ARGUMENTS[argument]:
        if name not in taken.get(argument, MODELS):
            continue
        if argument == "sample_weight" and name == "ppca":
            method = {"method": "em"}
        if argument == "init" and name in starts:
            method = {"method": "em"}
        refused(lambda call=method | {argument: value}: fit(model, *data, **call), argument)


@pytest.mark.parametrize("name", MODELS)
def test_data_that_are_none_are_refused(name, nothing_compiled):
    model, data = model_and_data(name)
    site = model.data_names[0]
    rest = data[1:]
    refused(lambda: fit(model), "no data")
    refused(lambda: fit(model, *data, data[0]), "takes", "got", str(len(data) + 1))
    if rest:
        refused(lambda: fit(model, data[0]), "takes", model.data_names[1], "missing")
    for bad in (np.array([["a", "b"]] * 12), np.ones(12), np.ones((2, 3, 4)), np.ones((12, 3)) * 1j, 3.0):
        refused(lambda bad=bad: fit(model, bad, *rest), site)


@pytest.mark.parametrize("name", ["kernelpca", "epca", "paired", "depcam"])
def test_sparse_rows_are_refused_where_the_model_takes_none(name, nothing_compiled):
    model, data = model_and_data(name)
    refused(lambda: fit(model, scipy.sparse.csr_array(data[0]), *data[1:]), "dense")
    refused(lambda: fit(model, zoo.SparseCounts.from_matrix(np.abs(np.round(data[0]))), *data[1:]), "dense")


@pytest.mark.parametrize("name", ["lda", "plsi", "pcp"])
def test_documents_without_a_single_word_are_refused(name, nothing_compiled):
    model, _ = model_and_data(name)
    with pytest.warns(UserWarning, match="have no words"):
        refused(lambda: fit(model, np.zeros((4, 5))), "every document is empty")


@pytest.mark.parametrize("name", ["lda", "plsi", "pcp", "mixture", "epca", "depcam"])
def test_counts_beyond_the_digits_are_refused(name, nothing_compiled):
    """Sums of counts of 1e300 have no unit left, and those of 1e307 overflow."""
    cls, fields = zoo.model_class(name), dict(MODELS[name][1])
    if name == "mixture":
        fields["components"] = MultinomialDirichlet(np.ones(5))
    elif name in ("epca", "depcam"):
        fields["family"] = "poisson"
    for size in (1e16, 1e300, 1e307):
        message = refused(lambda size=size: fit(cls(**fields), COUNTS * size), "column")
        assert any(word in message for word in ("2**53", "3.1e+12", "whose squares overflow")), message


# Starts


def test_a_start_of_the_wrong_kind_or_shape_is_refused(nothing_compiled):
    mixture, ppca, lda = (model_and_data(name)[0] for name in ("mixture", "ppca", "lda"))
    refused(
        lambda: fit(mixture, X, init={"responsibilities": np.ones((12, 3))}), "init", "(12, 2)", "(12, 3)"
    )
    refused(lambda: fit(mixture, X, init={"responsibilities": "x"}), "init", "responsibilities")
    refused(lambda: fit(mixture, X, init={"assignments": np.ma.masked_equal(np.arange(12), 3)}), "masked")
    refused(lambda: fit(mixture, X, init={3: np.ones(12)}), "init", "names")
    start = {"loadings": np.ones((4, 1)), "loc": np.zeros(3), "noise_variance": 1.0}
    refused(lambda: fit(ppca, X, method="em", init=start), "init", "loadings", "(3, 1)", "(4, 1)")
    refused(lambda: fit(lda, COUNTS, init={"topic_word_probs": np.ones((3, 5))}), "init", "(2, 5)", "(3, 5)")
    refused(lambda: fit(mixture, X, init=xr.DataTree()), "not a fit")


@pytest.fixture(scope="module")
def trees():
    """Closed forms, which cost nothing: of rows, and of a supervised projection's."""
    return {
        "ppca": fit(zoo.PPCA(num_latents=1), X, method="closed_form"),
        "wider": fit(zoo.PPCA(num_latents=1), np.hstack([X, Y]), method="closed_form"),
        "morp": fit(zoo.SPPCA(num_latents=1), X, Y, method="morp"),
    }


def test_a_former_fit_of_another_model_or_size_is_no_start(trees, nothing_compiled):
    refused(lambda: fit(zoo.Mixture(num_components=2), X, init=trees["ppca"]), "init", "ppca", "mixture")
    refused(lambda: fit(zoo.PPCA(num_latents=2), X, method="em", init=trees["ppca"]), "init", "num_latents=1")
    refused(
        lambda: fit(zoo.PPCA(num_latents=1), X, method="em", init=trees["wider"]), "init", "columns", "5", "3"
    )


# Calls on a finished fit

NO_TREES = (None, X, "fit.nc", 3, {"posterior": X})


@pytest.mark.parametrize("place", range(len(NO_TREES)))
def test_what_is_no_tree_is_refused_by_name(place, nothing_compiled, tmp_path):
    bad = NO_TREES[place]
    calls = [
        lambda: inference.transform(bad, X),
        lambda: inference.predict(bad, X),
        lambda: inference.log_density(bad, X),
        lambda: inference.extend(bad, "prior"),
        lambda: inference.guide(bad),
        lambda: inference.model_of(bad),
        lambda: inference.save(bad, tmp_path / "fit.nc"),
        lambda: inference.diagnostics.heldout(bad, X),
        lambda: inference.diagnostics.summary(bad),
    ]
    for call in calls:
        refused(call, "tree", type(bad).__name__)


EXTENDED = {
    "seed": (-1, True, 2**40, "x", 1.5, None, np.arange(3)),
    "num_samples": (0, -1, 1.5, True, "9", None),
}


@pytest.mark.parametrize("argument", EXTENDED)
def test_arguments_of_extend_are_checked_as_those_of_fit(trees, argument, nothing_compiled):
    for value in EXTENDED[argument]:
        refused(
            lambda value=value: inference.extend(trees["ppca"], "log_prior", **{argument: value}), argument
        )
    refused(lambda: inference.extend(trees["ppca"]), "group")
    refused(lambda: inference.extend(trees["ppca"], "posteriors"), "posteriors")
    refused(lambda: inference.extend(trees["ppca"], 3), "3")


def test_new_rows_are_counted_and_of_the_right_kind(trees, nothing_compiled):
    for function in (inference.transform, inference.predict, inference.log_density):
        refused(lambda function=function: function(trees["ppca"], X[:0]), "x has no rows")
        refused(lambda function=function: function(trees["ppca"], X, X), "takes 1 part", "got 2")
        refused(lambda function=function: function(trees["ppca"]), "data")
        refused(lambda function=function: function(trees["ppca"], X[:, :2]), "3 columns", "2")
        refused(lambda function=function: function(trees["ppca"], X[0]), "x must have shape")
        refused(lambda function=function: function(trees["ppca"], scipy.sparse.csr_array(X[:, :2])), "3", "2")
    refused(lambda: inference.transform(trees["ppca"], X, scores="none"), "scores")
    refused(lambda: inference.transform(trees["ppca"], X, covariance="yes"), "covariance")
    refused(lambda: inference.predict(trees["morp"], X, what="none"), "none")
    message = refused(lambda: inference.transform(trees["morp"], X, Y, np.ones(12)), "takes 2 parts")
    assert "sample_weight" not in message  # which transform does not take
