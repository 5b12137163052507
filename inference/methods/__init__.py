"""The table of methods: the module that fits a model by a method."""

from importlib import import_module

import zoo
from inference.algorithm import Method, model_name
from zoo.model import Model

__all__ = ["method_of"]

#: Methods that fit every model with a program: a module, or a module and the key in its ``METHODS``.
FOR_EVERY_MODEL = {
    "nuts": "inference.methods.nuts_hmc",
    "hmc": "inference.methods.nuts_hmc",
    "svi": "inference.methods.svi",
    "map": "inference.methods.map",
}
#: Hand-written methods: model to method to the module that holds its ``METHOD``.
BY_MODEL: dict[str, dict[str, str]] = {
    "mixture": {
        "vb": "inference.methods.mixture.vb",
        "gibbs": "inference.methods.mixture.gibbs",
        "collapsed_gibbs": "inference.methods.mixture.collapsed_gibbs",
        "em": "inference.methods.mixture.em",
    },
    "ppca": {
        "closed_form": "inference.methods.ppca.closed_form",
        "em": "inference.methods.ppca.em",
        "vb": "inference.methods.ppca.vb",
    },
    "kernelpca": {
        "closed_form": "inference.methods.kernel_pca.closed_form",
        "em": "inference.methods.kernel_pca.em",
    },
    "sppca": {
        "em": "inference.methods.sppca.em",
        "closed_form": "inference.methods.sppca.closed_form",
        "vb": "inference.methods.sppca.vb",
        "morp": "inference.methods.sppca.morp",
        "kernel_cca": "inference.methods.sppca.morp",
        "gibbs": "inference.methods.sppca.gibbs",
        "ep": "inference.methods.sppca.ep",
    },
    "epca": {
        "gibbs": "inference.methods.projections.gibbs",
        "vb": "inference.methods.projections.vb",
    },
    "paired": {
        "gibbs": "inference.methods.paired.gibbs",
        "vb": "inference.methods.paired.vb",
        "closed_form": "inference.methods.paired.closed_form",
    },
    "lda": {
        "vb": "inference.methods.lda.vb",
        "collapsed_gibbs": "inference.methods.lda.collapsed_gibbs",
        "gibbs": "inference.methods.lda.gibbs",
    },
    "plsi": {
        "em": "inference.methods.plsi.em",
    },
    "pcp": {
        "vb": "inference.methods.pcp.vb",
        "collapsed_gibbs": "inference.methods.pcp.collapsed_gibbs",
        "gibbs": "inference.methods.pcp.gibbs",
    },
    "depcam": {
        "em": "inference.methods.depcam.em",
        "vb": "inference.methods.depcam.vb",
    },
}


def method_of(model: Model, name: str) -> Method:
    """The method of that name.

    Raises:
        ValueError: the model has no such method (the message lists those it has).
    """
    key = model_name(model)
    if name not in model.methods:
        raise ValueError(f"{key} has no method {name!r}; it has {', '.join(model.methods)}")
    if key not in zoo.MODELS:
        raise ValueError(f"{type(model).__name__} is not a model of the zoo: call zoo.register first")
    registered = zoo.registered_methods(key)
    if name in registered:
        return registered[name]
    path = BY_MODEL.get(key, {}).get(name, FOR_EVERY_MODEL.get(name))
    if path is None:
        raise ValueError(f"{key} lists the method {name!r}; register it by zoo.register(methods=...)")
    module = import_module(path)
    return module.METHODS[name] if hasattr(module, "METHODS") else module.METHOD
