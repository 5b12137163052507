"""The table of methods: the module that fits a model by a method."""

import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import import_module

import zoo
from inference.algorithm import Method, Stochastic, accept, model_name
from inference.methods.units import asked_in_data_units
from inference.settings import Settings
from zoo.answers import answer_of
from zoo.coordinates.of_models import is_stated
from zoo.model import Model
from zoo.naming import did_you_mean
from zoo.sparse import Observed

__all__ = ["advised", "auto_method", "method_of", "methods_to_compare", "methods_with_weights"]

#: Methods that fit every model with a program, by module of this package.
FOR_EVERY_MODEL = {
    "nuts": ".nuts_hmc",
    "hmc": ".nuts_hmc",
    "svi": ".svi",
    "map": ".map",
    "tempered": ".tempered.nuts",
}
#: Hand-written methods: model to method to the module with its ``METHOD`` or, of several, ``METHODS``.
BY_MODEL: dict[str, dict[str, str]] = {
    "mixture": {
        "vb": ".mixture.vb",
        "gibbs": ".mixture.gibbs",
        "collapsed_gibbs": ".mixture.collapsed_gibbs",
        "em": ".mixture.em",
        "tempered": ".mixture.tempered",
    },
    "ppca": {
        "closed_form": ".ppca.closed_form",
        "em": ".ppca.em",
        "vb": ".ppca.vb",
        "gibbs": ".ppca.gibbs",
        "tempered": ".ppca.tempered",
    },
    "kernelpca": {"closed_form": ".kernel_pca.closed_form", "em": ".kernel_pca.em"},
    "sppca": {
        "em": ".sppca.em",
        "closed_form": ".sppca.closed_form",
        "vb": ".sppca.vb",
        "morp": ".sppca.morp",
        "kernel_cca": ".sppca.morp",
        "gibbs": ".sppca.gibbs",
        "ep": ".sppca.ep",
        "tempered": ".sppca.tempered",
    },
    "epca": {"gibbs": ".epca.gibbs", "vb": ".epca.vb"},
    "paired": {"gibbs": ".paired.gibbs", "vb": ".paired.vb", "closed_form": ".paired.closed_form"},
    "lda": {
        "vb": ".lda.vb",
        "collapsed_gibbs": ".lda.collapsed_gibbs",
        "gibbs": ".lda.gibbs",
        "tempered": ".lda.tempered",
    },
    "plsi": {"em": ".plsi.em"},
    "pcp": {
        "vb": ".pcp.vb",
        "collapsed_gibbs": ".pcp.collapsed_gibbs",
        "gibbs": ".pcp.gibbs",
        "tempered": ".pcp.tempered",
    },
    "depcam": {"em": ".depcam.em", "vb": ".depcam.vb"},
    "mcfa": {"vb": ".mcfa.vb", "gibbs": ".mcfa.gibbs", "tempered": ".mcfa.tempered"},
}


def method_of(model: Model, name: str) -> Method:
    """The method of a model by its name.

    Raises:
        ValueError: the model has no such method (the message lists those it has).
    """
    key = model_name(model)
    if name not in model.methods:
        meant = did_you_mean(str(name), model.methods)
        raise ValueError(f"{key} has no method {name!r}; it has {', '.join(model.methods)}{meant}")
    if key not in zoo.MODELS:
        raise ValueError(f"{type(model).__name__} is not a model of the zoo: call zoo.register first")
    method = _suited(_method_of(key, name), name, model)
    return asked_in_data_units(method) if is_stated(model) and not isinstance(method, Stochastic) else method


def methods_with_weights(model: Model | type[Model]) -> tuple[str, ...]:
    """The names of a model's methods that take weights of rows.

    Args:
        model: the model, or its class.

    Returns:
        Names, in the model's order.
    """
    key = (model if isinstance(model, type) else type(model)).__name__.lower()
    methods = {name: _suited(_method_of(key, name), name, model) for name in model.methods}
    return tuple(name for name, method in methods.items() if "weights" in method.takes)


def methods_to_compare(model: Model) -> tuple[str, ...]:
    """The methods that a comparison of all of a model runs: those but tempered NUTS, for what it costs."""
    own = BY_MODEL.get(model_name(model), {})
    return tuple(name for name in model.methods if name != "tempered" or name in own)


def advised(model: Model, names: Iterable[str]) -> str:
    """Those of some methods that a model has and that take its fields, for a message; may be empty."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            with suppress(ValueError):
                method = method_of(model, name)
                method.check(model, method.settings())
                found.append(f"method={name!r}")
    return " or ".join(found)


def auto_method(model: Model, *data: Observed) -> str:
    """The method that ``method="auto"`` means: the model's first, or the one that is to replace it."""
    first = model.methods[0]
    otherwise = method_of(model, first).otherwise
    return (otherwise and otherwise(model, data, not advised(model, [first]))) or first


def _suited(method: Method, name: str, model: Model | type[Model]) -> Method:
    """The method as it takes this model's rows: those that run the program weigh rows if that can."""
    runs_program = FOR_EVERY_MODEL.get(name) == ".nuts_hmc"
    less = {"weights"} if runs_program and not model.answers.weighs_rows else set()
    if "moments" in method.takes and isinstance(model, Model) and not answer_of(model, "has_moments"):
        less |= {"moments", "batches"}
    return _without(method, frozenset(less)) if less else method


@cache
def _without(method: Method, less: frozenset[str]) -> Method:
    return replace(method, takes=method.takes - less)


def _method_of(key: str, name: str) -> Method:
    registered = zoo.registered_methods(key)
    if name in registered:
        return registered[name]
    own = BY_MODEL.get(key, {})
    path = own.get(name, FOR_EVERY_MODEL.get(name))
    if path is None:
        raise ValueError(f"{key} lists the method {name!r}; register it by zoo.register(methods=...)")
    module = import_module(path, __name__)
    method = module.METHODS[name] if hasattr(module, "METHODS") else module.METHOD
    return _checked(method, next(iter(own.values())).rpartition(".")[0]) if own else method


@cache
def _checked(method: Method, folder: str) -> Method:
    """A method with the check of the model's folder, which is of all its methods, after its own."""
    own = getattr(import_module(folder, __name__), "check", accept)

    def check(model: Model, settings: Settings) -> None:
        method.check(model, settings)
        own(model, settings)

    return replace(method, check=check)
