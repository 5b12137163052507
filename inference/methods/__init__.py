"""The table of methods: the module that fits a model by a method."""

from importlib import import_module

import zoo
from inference.algorithm import Method, model_name
from zoo.model import Model

__all__ = ["method_of"]

#: Methods that fit every model with a program: a module, or a module and the key in its ``METHODS``.
FOR_EVERY_MODEL = {
    "nuts": "inference.hamiltonian",
    "hmc": "inference.hamiltonian",
    "svi": "inference.autoguides",
    "map": "inference.maximum_a_posteriori",
}
#: Hand-written methods: model to method to the module that holds its ``METHOD``.
BY_MODEL: dict[str, dict[str, str]] = {
    "mixture": {
        "vb": "inference.methods.mixture.vb",
        "gibbs": "inference.gibbs.mixture",
        "collapsed_gibbs": "inference.gibbs.collapsed_mixture",
        "em": "inference.em.mixture",
    },
    "ppca": {
        "closed_form": "inference.closed_form.ppca",
        "em": "inference.em.ppca",
        "vb": "inference.variational.ppca",
    },
    "kernelpca": {
        "closed_form": "inference.closed_form.kernel_pca",
        "em": "inference.em.kernel_pca",
    },
    "sppca": {
        "em": "inference.em.sppca",
        "closed_form": "inference.closed_form.sppca",
        "vb": "inference.variational.sppca",
        "morp": "inference.closed_form.morp",
        "kernel_cca": "inference.closed_form.kernel_cca",
        "gibbs": "inference.gibbs.sppca",
        "ep": "inference.em.ep_sppca",
    },
    "epca": {
        "gibbs": "inference.gibbs.epca",
        "vb": "inference.variational.epca",
    },
    "paired": {
        "gibbs": "inference.gibbs.paired",
        "vb": "inference.variational.paired",
        "closed_form": "inference.closed_form.paired",
    },
    "lda": {
        "vb": "inference.variational.lda",
        "collapsed_gibbs": "inference.gibbs.collapsed_lda",
        "gibbs": "inference.gibbs.lda",
    },
    "plsi": {
        "em": "inference.em.plsi",
    },
    "pcp": {
        "vb": "inference.variational.pcp",
        "collapsed_gibbs": "inference.gibbs.collapsed_pcp",
        "gibbs": "inference.gibbs.pcp",
    },
    "depcam": {
        "em": "inference.em.depcam",
        "vb": "inference.variational.depcam",
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
