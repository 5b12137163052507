"""Settings as objects: what they check, and that a call with one is the call with its keywords."""

import copy
import dataclasses
import importlib
import inspect
import pickle
import typing

import numpy as np
import pytest
from sklearn.base import clone

import inference
import zoo
from inference import fit
from inference.algorithm import Sampler
from inference.estimators import PPCAEstimator
from inference.fitting.in_memory import aspects_of
from inference.methods import method_of, mixture, ppca
from inference.settings import COMMON, HMC, MAP, NUTS, SVI, Climb, More, Once, Sampling, Settings
from tests.support.fit_requests import request_of
from tests.support.relation_cases import CASES

X = np.random.default_rng(0).normal(size=(30, 4)) @ np.random.default_rng(1).normal(size=(4, 4))


def methods():
    """Model, name and class of settings of every method that is not registered by a user."""
    for name in zoo.MODELS:
        model = zoo.model_class(name)()
        for method in model.methods:
            yield name, method, method_of(model, method)


METHODS = [pytest.param(*own, id=f"{own[0]}-{own[1]}") for own in methods()]


@pytest.mark.parametrize(("model", "name", "method"), METHODS)
def test_every_method_has_settings_of_its_own_that_a_user_can_import(model, name, method):
    kind = method.settings
    assert kind.name == name and issubclass(kind, Sampling if isinstance(method, Sampler) else Climb | Once)
    folder = {"kernelpca": "kernel_pca"}.get(model, model)
    home = inference if kind in (NUTS, HMC, SVI, MAP) else f"inference.methods.{folder}"
    home = importlib.import_module(home) if isinstance(home, str) else home
    assert getattr(home, kind.__name__) is kind and kind.__name__ in home.__all__
    assert method.options == {n: v for n, v in dataclasses.asdict(kind()).items() if n not in COMMON}
    assert kind().given == {}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_a_call_with_settings_is_the_call_with_keywords(case):
    """The same run to a checkpoint, and the same settings in the fit, for every method of every model."""
    make, data, names = CASES[case]
    model = make(*data)
    for name in names:
        kind = method_of(model, name).settings
        own = kind.defaults()
        given = {"num_samples": 7} if "num_samples" in kind().shared else {}
        given |= {n: not v for n, v in own.items() if isinstance(v, bool) and n != "random_step"}
        plain, typed = (
            request_of(model, *data, **c) for c in ({"method": name} | given, {"method": kind(**given)})
        )
        assert aspects_of(plain) == aspects_of(typed)
        assert plain.told == typed.told and plain.options == typed.options and type(typed.settings) is kind


def test_fits_are_equal_and_share_a_checkpoint(tmp_path):
    model, path = zoo.PPCA(num_latents=1), tmp_path / "run"
    keywords = dict(method="em", acceleration="none", max_iterations=200, num_restarts=2)
    one = fit(model, X, checkpoint=path, progress=False, **keywords)
    settings = ppca.EM(acceleration="none", max_iterations=200)
    other = fit(model, X, checkpoint=path, progress=False, method=settings, num_restarts=2)
    with pytest.raises(ValueError, match="what differs: max_iterations.* go on from its fit: init=tree"):
        fit(model, X, checkpoint=path, progress=False, method=ppca.EM(acceleration="none"), num_restarts=2)
    fresh = fit(model, X, progress=False, method=settings, num_restarts=2)
    for again in (other, fresh):
        for group in ("posterior", "variational", "trace"):
            assert again[group].to_dataset().identical(one[group].to_dataset())
        times = {"created_at", "sampling_time"}
        assert {n: v for n, v in again.attrs.items() if n not in times} == {
            n: v for n, v in one.attrs.items() if n not in times
        }
    other = fit(model, X, progress=False, method=settings, num_restarts=2, acceleration="none", seed=0)
    assert other.attrs["options"] == one.attrs["options"]


def test_what_the_call_leaves_open_stays_open():
    """Gibbs of mixtures runs until its chains agree unless told how many draws to make."""
    model = zoo.Mixture(num_components=2)
    asked = request_of(model, X, method=mixture.Gibbs(num_chains=2)).settings
    assert asked == request_of(model, X, method="gibbs", num_chains=2).settings
    assert asked.until == "converged" and asked.num_samples == 500 and asked.max_sweeps
    assert request_of(model, X, method=mixture.Gibbs(num_samples=1000)).settings.until is None
    assert request_of(model, X, method="gibbs", num_samples=1000).settings.until is None


MISTAKES = {
    "misspelt": (lambda: NUTS(target_acept_prob=0.9), TypeError, "NUTS has no setting 'target_acept_prob'"),
    "near miss": (lambda: NUTS(num_chain=2), TypeError, "did you mean num_chains?"),
    "of another method": (lambda: NUTS(num_steps=4), TypeError, "'num_steps'; it has num_chains, num_warmup"),
    "no choice": (lambda: SVI(guide="flow"), ValueError, "guide must be one of normal, multivariate_normal"),
    "no flag": (lambda: NUTS(dense_mass=1), TypeError, "dense_mass must be True or False; got 1"),
    "no number": (lambda: NUTS(num_chains=0), ValueError, "num_chains must be a whole number of at least 1"),
    "no tolerance": (lambda: MAP(tolerance=-1.0), ValueError, "tolerance must be a number of at least 0"),
    "shares": (lambda: HMC(target_accept_prob=1.0), ValueError, "target_accept_prob must be a probability"),
    "together": (lambda: HMC(num_steps=None), ValueError, "num_steps or trajectory_length must be given"),
    "limits": (
        lambda: NUTS(until="converged", max_sweeps=1999),
        ValueError,
        "num_warmup + num_samples * thinning = 2000 sweeps; got 1999",
    ),
    "limits with thinning": (
        lambda: NUTS(until="converged", num_warmup=0, num_samples=10, thinning=3, max_sweeps=29),
        ValueError,
        "= 30 sweeps; got 29",
    ),
    "limits alone": (lambda: NUTS(max_seconds=3.0), ValueError, "max_seconds goes with until='converged'"),
    "no moves": (lambda: mixture.VB(moves=("jump",)), ValueError, "moves must be a tuple of some of merge"),
    "twice": (
        lambda: fit(zoo.PPCA(), X, method=NUTS(num_chains=2), num_chains=4),
        TypeError,
        "num_chains is given twice: method=NUTS(num_chains=2) and num_chains=4; leave one of them out",
    ),
    "an option twice": (
        lambda: fit(zoo.PPCA(), X, method=NUTS(dense_mass=True), dense_mass=False),
        TypeError,
        "method=NUTS(dense_mass=True) and dense_mass=False",
    ),
    "of another model": (
        lambda: fit(zoo.Mixture(), X, method=ppca.VB()),
        ValueError,
        "must be inference.methods.mixture.VB(...); got inference.methods.ppca.VB(...)",
    ),
    "a method it has not": (
        lambda: fit(zoo.Mixture(), X, method=ppca.ClosedForm()),
        ValueError,
        "closed_form",
    ),
    "an option of another method": (
        lambda: fit(zoo.PPCA(), X, method="em", dense_mass=True),
        TypeError,
        "method 'em' has no option 'dense_mass'; it has acceleration, noise_floor\n",
    ),
    "a class": (lambda: fit(zoo.PPCA(), X, method=NUTS), ValueError, "make one, NUTS()"),
    "no method at all": (lambda: fit(zoo.PPCA(), X, method=Sampling()), ValueError, "ppca has no method ''"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_told_in_one_line(case):
    call, kind, words = MISTAKES[case]
    with pytest.raises(kind) as caught:
        call()
    assert words in f"{caught.value}\n" and "\n" not in str(caught.value)


def test_the_same_value_twice_is_no_mistake():
    asked = request_of(
        zoo.PPCA(), X, method=ppca.EM(tolerance=1e-3), tolerance=np.float64(1e-3), num_restarts=3
    )
    assert asked.settings.tolerance == 1e-3 and asked.settings.num_restarts == 3


def test_an_estimator_takes_settings_as_its_method():
    """What it does not say itself, such as its default of ``max_iter``, is not given twice."""
    made = PPCAEstimator(num_latents=1, method=ppca.EM(max_iterations=3))
    with pytest.warns(UserWarning, match="has not converged"):
        assert clone(made).fit(X).n_iter_ == 3
    with pytest.raises(TypeError, match="max_iterations is given twice"):
        made.set_params(max_iter=4).fit(X)


def test_settings_are_values():
    """Frozen, compared by value, and copied with what they were given; numbers of NumPy become plain."""
    made = mixture.VB(moves=["merge"], max_iterations=np.int64(5))
    assert made == mixture.VB(moves=("merge",), max_iterations=5) and type(made.max_iterations) is int
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert other == made and other.given == made.given == {"moves": ("merge",), "max_iterations": 5}
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.moves = ()


def test_fit_names_what_there_is():
    """The parameters of `fit` have the defaults of the settings, and the rest is in one dict of types."""
    parameters = inspect.signature(fit).parameters
    named = {name: p.default for name, p in parameters.items() if name in COMMON}
    assert named == {name: COMMON[name] for name in named}
    options = {option for *_, method in methods() for option in method.options}
    assert typing.get_type_hints(More).keys() == options | COMMON.keys() - named.keys() | {
        "families",
        "levels",
        "id",
    }
    assert len(parameters) == 17 + len(("model", "data", "more"))
    assert issubclass(NUTS, Settings)
