"""The shapes that public functions promise in `zoo.shapes`: jaxtyping's types of them, enforced by beartype.

Abstract arrays are traced where that is enough (nothing compiles); models are fitted and asked, so that what
the library passes to itself is checked as well.
"""

import functools
import importlib
import inspect
import types
import typing
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
import xarray as xr
from beartype import beartype
from beartype.roar import BeartypeCallHintViolation
from numpyro import handlers

import inference
import zoo
from inference import prediction
from tests.support import component_families
from zoo.answers import answer_of, completion_of, completions_of
from zoo.conjugate.component_prior import ComponentPrior
from zoo.dirichlet_process import DirichletAllocation, StickBreaking
from zoo.exponential_family import (
    Bernoulli,
    Binomial,
    Categorical,
    Exponential,
    GammaWithShape,
    Gaussian,
    Poisson,
)
from zoo.shapes import Rows, Shape

FILES = (
    *("zoo." + entry["module"].removeprefix("zoo.") for entry in zoo.MODELS.values()),
    *(f"zoo.conjugate.{name}" for name in ("component_prior", "gaussian", "cellwise", "normal_gamma")),
    *(f"zoo.conjugate.{name}" for name in ("categorical_dirichlet", "multinomial_dirichlet", "product")),
    "zoo.dirichlet_process",
    *sorted(f"zoo.{own.parent.name}.{own.stem}" for own in Path(zoo.__file__).parent.glob("*/*answers.py")),
    "zoo.linear_gaussian.clustered",
    "zoo.exponential_family.families",
    "inference.prediction",
)
ARRAYS = jax.Array | np.ndarray  # what NumPyro hands on may be either
#: A covariance that all components share has one evidence for all of them
ONE_FOR_ALL = {("SharedGaussianWishart", key) for key in ("log_evidence", "log_evidence_beside")}
CELL_FAMILIES = (Bernoulli(), Binomial(5), Exponential(), GammaWithShape(2.0), Gaussian(), Poisson())
ROWS, RNG = 7, np.random.default_rng(0)
TABLE = RNG.normal(size=(20, 3)) @ RNG.normal(size=(3, 3))
BITS, COUNTS = (RNG.random((20, 4)) < 0.5).astype(float), RNG.poisson(1.5, (20, 6)).astype(float)
MODELS = {  # model, data, method; those of the default run first
    "mixture": (zoo.Mixture.from_data(TABLE, num_components=2), (TABLE,), "em"),
    "ppca": (zoo.PPCA(num_latents=2), (TABLE,), "closed_form"),
    "lda": (zoo.LDA(num_topics=2), (COUNTS,), "vb"),
    "plsi": (zoo.PLSI(num_topics=2), (COUNTS,), "em"),
    "pcp": (zoo.PCP(num_topics=2, num_clusters=2), (COUNTS,), "vb"),
    "kernelpca": (zoo.KernelPCA(num_latents=2, kernel="rbf", noise_variance=0.01), (TABLE,), "closed_form"),
    "sppca": (zoo.SPPCA(num_latents=1), (TABLE, TABLE[:, :1] + RNG.normal(size=(20, 1))), "em"),
    "epca": (zoo.EPCA(family="bernoulli", num_latents=1), (BITS,), "map"),
    "depcam": (zoo.DEPCAM.from_data(BITS, num_components=2, num_latents=1), (BITS,), "vb"),
    "mcfa": (zoo.MCFA(num_components=2, num_latents=1), (TABLE,), "vb"),
    "paired": (zoo.Paired.from_data(TABLE, BITS, families=("gaussian", "bernoulli")), (TABLE, BITS), "map"),
}


def checked_type(annotation):
    """The annotation with jaxtyping's types in place of `Shape`; None where it has none."""
    if typing.get_origin(annotation) is typing.Annotated:
        shape, kind = annotation.__metadata__[0], annotation.__origin__
        if not isinstance(shape, Shape):
            return None
        return getattr(jaxtyping, shape.kind)[ARRAYS if kind is jax.Array else kind, shape.axes]
    parts = [checked_type(part) for part in typing.get_args(annotation)]
    if not any(parts):
        return None
    if typing.get_origin(annotation) in (tuple, list):
        args = zip(typing.get_args(annotation), parts, strict=True)
        return typing.get_origin(annotation)[
            tuple(own or (... if arg is ... else object) for arg, own in args)
        ]
    others = [part for part, own in zip(typing.get_args(annotation), parts, strict=True) if not own]
    return typing.Union[(*filter(None, parts), *others)]  # noqa: UP007 - of a list


def promises(function):
    """Name of an argument, or ``return``, to jaxtyping's type."""
    found = {name: checked_type(own) for name, own in getattr(function, "__annotations__", {}).items()}
    return {name: own for name, own in found.items() if own is not None}


def enforced(function, called):
    """The function, its calls noted and checked against what it promises."""
    types_of = promises(function)

    @functools.wraps(function)
    def noted(*arguments, **options):
        called.add(function.__qualname__)
        return function(*arguments, **options)

    signature = inspect.signature(function)
    parameters = [
        own.replace(annotation=types_of.get(name, inspect.Parameter.empty))
        for name, own in signature.parameters.items()
    ]
    empty = inspect.Signature.empty
    del noted.__wrapped__
    noted.__annotations__ = types_of
    noted.__signature__ = signature.replace(
        parameters=parameters, return_annotation=types_of.get("return", empty)
    )
    return jaxtyping.jaxtyped(noted, typechecker=beartype)


def promising():
    """Every function and method of `FILES` with a promise: its owner, a module or a class, and its name."""
    for name in dict.fromkeys(FILES):
        module = importlib.import_module(name)
        own = [value for value in vars(module).values() if getattr(value, "__module__", "") == name]
        for owner in (module, *filter(inspect.isclass, own)):
            for key, value in list(vars(owner).items()):
                mine = isinstance(value, types.FunctionType) and value.__module__ == name
                if mine and (owner is not module or value in own) and promises(value):
                    yield owner, key


PROMISING = [(owner, key, vars(owner)[key]) for owner, key in promising()]


@pytest.fixture(scope="module")
def enforcing():
    """Every promise enforced; the qualified names of the functions that were called."""
    names = set()
    with pytest.MonkeyPatch.context() as patch:
        for owner, key, function in PROMISING:
            patch.setattr(owner, key, enforced(function, names))
        yield names
    jax.clear_caches()  # programs that were traced through the checks


@pytest.fixture
def called(enforcing):
    enforcing.clear()
    return enforcing


def test_the_shapes_of_an_override_are_those_of_its_base():
    of_base = {key: function for owner, key, function in PROMISING if owner is ComponentPrior}
    families = [owner for owner in _subclasses(ComponentPrior) if owner.__module__ in FILES]
    overrides = {(owner, key) for owner in families for key in of_base.keys() & vars(owner).keys()}
    promised = {(owner, key): function for owner, key, function in PROMISING}
    assert overrides <= promised.keys() and len(overrides) > 40
    for owner, key in overrides:
        ours, theirs = promised[owner, key].__annotations__, of_base[key].__annotations__
        for name in promises(of_base[key]):
            same = ours[name] == theirs[name] or theirs[name] in typing.get_args(ours[name])
            assert same or (name == "return" and (owner.__name__, key) in ONE_FOR_ALL), (owner, key, name)


def _subclasses(base):
    return [own for child in base.__subclasses__() for own in (child, *_subclasses(child))]


@pytest.mark.parametrize("family", component_families.FAMILIES)
def test_a_family_of_components_keeps_its_shapes(family, called):
    prior = component_families.priors()[family]
    x = jnp.asarray(component_families.rows(family, ROWS))

    def walk(x, assignments, floor):
        statistics = prior.statistics(x, assignments, 3)
        posterior = prior.posterior(statistics)
        prior.expected_coefficients(posterior)
        prior.log_evidence(statistics)
        prior.log_evidence_beside(posterior, statistics)
        prior.maximum_likelihood(statistics, floor)
        return posterior.log_predictive(x)

    shape = jax.eval_shape(walk, x, jnp.arange(ROWS) % 3, jnp.asarray(1e-6)).shape
    assert shape == (ROWS, 3)
    names = {name.partition(".")[2] for name in called}
    assert {"features", "statistics", "posterior", "log_evidence", "log_predictive"} <= names


@pytest.mark.parametrize("family", CELL_FAMILIES, ids=lambda family: type(family).__name__)
def test_a_family_of_cells_keeps_the_shape_of_the_cells(family, called):
    theta = -jnp.ones((4, 3))

    def walk(theta):
        family.log_base_measure(jnp.ones((4, 3)))
        family.variance(theta)
        family.log_partition(theta)
        return family.natural(family.mean(theta))

    assert jax.eval_shape(walk, theta).shape == (4, 3)
    assert {"log_partition", "natural", "log_base_measure"} <= {name.partition(".")[2] for name in called}


@pytest.mark.parametrize("prior", [DirichletAllocation(4), StickBreaking(4)], ids=["dirichlet", "sticks"])
def test_a_prior_of_weights_keeps_its_shapes(prior, called):
    def walk(counts, concentration):
        q = prior.posterior(counts, concentration)
        return prior.expected_weights(q), prior.expected_log_weights(q), prior.log_normaliser(q)

    weights, logs, normaliser = jax.eval_shape(walk, jnp.arange(4.0), jnp.asarray(1.0))
    assert weights.shape == logs.shape == (4,) and normaliser.shape == ()
    assert len(called) >= 4


SCORES = inference.transform.__annotations__["return"]
PROPER = {"loading_prior": "gaussian"}
LEVELS = RNG.integers(0, 3, (20, 2)).astype(float)
NOISY = {"specific": "full_covariance", "num_shared": 1}
CCA = ((TABLE, TABLE[:, :2]), {"families": (Gaussian(None), Gaussian(None))})
PROJECTIONS = {  # the model, its tables, and what else its rows are asked for
    "ppca": (zoo.PPCA.from_data(TABLE, num_latents=2, **PROPER), (TABLE,), ({},)),
    "ppca, student": (
        zoo.PPCA.from_data(TABLE, num_latents=2, degrees_of_freedom=4.0, **PROPER),
        (TABLE,),
        ({},),
    ),
    "sppca": (
        zoo.SPPCA.from_data(TABLE, TABLE[:, :2], num_latents=2, **PROPER),
        (TABLE, TABLE[:, :2]),
        ({"what": "outputs"}, {"what": "cells"}),
    ),
    "epca, classes": (zoo.EPCA.from_data(LEVELS, family=Categorical(3)), (LEVELS,), ({},)),
    "paired": (*MODELS["paired"][:2], ({"what": "y_0"}, {"what": "y_1"})),
    "sppca, probit": (
        zoo.SPPCA.from_data(TABLE, BITS[:, :2], num_latents=2, output_likelihood="probit", **PROPER),
        (TABLE, BITS[:, :2]),
        ({"what": "outputs"}, {"what": "cells"}),
    ),
    "epca": (zoo.EPCA.from_data(BITS, family="bernoulli", num_latents=2), (BITS,), ({},)),
    "paired, dense": (zoo.Paired.from_data(*CCA[0], **CCA[1], **NOISY), CCA[0], ({"what": "y_1"},)),
    "paired, noisy": (
        zoo.Paired.from_data(BITS, COUNTS, families=("bernoulli", "poisson"), **NOISY),
        (BITS, COUNTS),
        ({"what": "y_0"},),
    ),
}


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("name", PROJECTIONS)
def test_a_projection_keeps_its_shapes_at_given_values(name, called):
    model, data, asked = PROJECTIONS[name]

    def walk(*data):
        trace = handlers.trace(handlers.seed(model, 0)).get_trace(*data)
        drawn = {
            site: own["value"] for site, own in trace.items() if own["type"] in ("sample", "deterministic")
        }
        values = {site: value for site, value in drawn.items() if site not in model.data_names}
        views = range(len(data)) if name.startswith("paired") else ()
        for v in views:
            if model.specific == "full_covariance":
                model.specific_covariance(v, values)
        if "ppca" in name:
            answer_of(model, "conditionals", values, *data)
        dims = model.variable_dims
        rows = {site: value for site, value in values.items() if "observation" not in dims[site]}
        scores = [model.scores(rows, *data), model.scores(rows, *data, kind="orthonormal")]
        own = [model.predicted(rows, *data, **options) for options in asked]
        return (
            scores,
            answer_of(model, "scores_covariance", rows, *data),
            own,
            model.log_likelihood(rows, *data),
        )

    scores, covariance, own, density = jax.eval_shape(walk, *map(jnp.asarray, data))
    k = model.num_latents
    assert [part.shape for part in scores] == 2 * [(20, k)] and covariance.shape == (20, k, k)
    names = model.data_names
    of = [data[names.index(completion_of(model, options.get("what")).part or names[0])] for options in asked]
    if name.startswith("paired"):
        of = [data[names.index(options["what"])] for options in asked]
    assert [tuple(part.shape for part in pair) for pair in own] == [2 * (part.shape,) for part in of]
    assert density.shape == (20,)
    kept = {"scores", "scores_covariance", "predicted", "log_likelihood", "__call__"}
    if model.answers is not None:
        kept = {"scores", "scores_covariance", "cells", "log_rows", "program"}
    assert kept <= {key.partition(".")[2] for key in called}


@pytest.mark.cases_by_default(2)
@pytest.mark.parametrize("name", MODELS)
def test_what_a_fit_passes_has_the_promised_shapes(name, called):
    model, data, method = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = inference.fit(
            model, *data, method=method, max_iterations=2, num_restarts=1, num_samples=3, progress=False
        )
        scores = prediction.transform(tree, *data)
        answered = {"transform"}
        if name != "kernelpca":
            assert prediction.log_density(tree, *data).shape == (20,)
            answered |= {"log_density"}
        if completions_of(model):
            what = {"what": "y_0"} if name == "paired" else {}
            assert prediction.predict(tree, *data, **what).shape[0] == 20
            answered |= {"predict"}
    assert scores.shape[0] == 20 and scores.ndim == 2
    names = {key.partition(".")[2] for key in called}
    assert {"log_likelihood", "log_rows", "features", "scores"} & names, names
    assert answered <= {*called}, called


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda prior: prior.statistics(jnp.ones((5, 2)), jnp.zeros(4, int), 3), "assignments"),
        (lambda prior: prior.statistics(jnp.ones((5, 2)), jnp.zeros(5), 3), "assignments"),
        (lambda prior: prior.features(jnp.asarray(1.0)), "x"),
        (lambda prior: prior.maximum_likelihood(jnp.ones((1, 3, 6)), 1e-6), "statistics"),
    ],
    ids=["another number of rows", "labels that are no integers", "a number for a row", "an axis too many"],
)
def test_an_array_of_another_shape_is_refused(call, told, called):
    prior = component_families.priors()["GaussianWishart"]
    with pytest.raises((jaxtyping.TypeCheckError, BeartypeCallHintViolation), match=told):
        call(prior)


def test_outputs_of_other_rows_than_the_inputs_are_refused(called):
    model = PROJECTIONS["sppca"][0]
    with pytest.raises((jaxtyping.TypeCheckError, BeartypeCallHintViolation), match="y"):
        model.scores({}, jnp.ones((5, 3)), jnp.ones((4, 2)))


def test_views_of_different_numbers_of_rows_are_refused(called):
    model = PROJECTIONS["paired"][0]
    with pytest.raises((jaxtyping.TypeCheckError, BeartypeCallHintViolation), match="views"):
        model.predicted({}, jnp.ones((5, 3)), jnp.ones((4, 4)))


def test_a_labelled_answer_of_another_shape_is_refused():
    def one_score(tree):
        return xr.DataArray(np.zeros(5), dims="observation")

    one_score.__annotations__ = {"return": SCORES}
    with pytest.raises(jaxtyping.TypeCheckError, match="return"):
        enforced(one_score, set())(None)


def test_a_result_of_another_shape_is_refused():
    def centred(x: Rows) -> Rows:
        return x.sum(axis=0)

    with pytest.raises(jaxtyping.TypeCheckError, match="return"):
        enforced(centred, set())(jnp.ones((5, 2)))
