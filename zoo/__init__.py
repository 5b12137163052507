"""Probabilistic models as NumPyro programs, and the data sets that go with them.

This file is the registry. It holds plain literals and imports nothing heavy, so that ``zoo list`` answers at
once; a public name is imported when it is first asked for.
"""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoo.versions import show_versions

if TYPE_CHECKING:  # what type checkers and editors see of the names that `__getattr__` imports
    from zoo import conjugate as conjugate
    from zoo import datasets as datasets
    from zoo import exponential_family as exponential_family
    from zoo import kernels as kernels
    from zoo import posteriors as posteriors
    from zoo.depcam import DEPCAM as DEPCAM
    from zoo.epca import EPCA as EPCA
    from zoo.kernel_pca import KernelPCA as KernelPCA
    from zoo.lda import LDA as LDA
    from zoo.mcfa import MCFA as MCFA
    from zoo.mixture import Mixture as Mixture
    from zoo.model import Model as Model
    from zoo.paired import Paired as Paired
    from zoo.pcp import PCP as PCP
    from zoo.plsi import PLSI as PLSI
    from zoo.ppca import PPCA as PPCA
    from zoo.sparse import SparseCounts as SparseCounts
    from zoo.sppca import SPPCA as SPPCA

__version__ = "0.2.0"

#: Lower-case name of each model to where its class lives, its full name and the papers it is taken from.
MODELS: dict[str, dict[str, str]] = {
    "mixture": {
        "module": "zoo.mixture",
        "class": "Mixture",
        "title": "Finite and Dirichlet-process mixtures of exponential families",
        "paper": "Yu (2006), chapters 2 and 3; Blei and Jordan (2006)",
    },
    "ppca": {
        "module": "zoo.ppca",
        "class": "PPCA",
        "title": "Probabilistic PCA and factor analysis",
        "paper": "Tipping and Bishop (1999); Bishop (1999); Yu (2006), section 5.1",
    },
    "kernelpca": {
        "module": "zoo.kernel_pca",
        "class": "KernelPCA",
        "title": "Probabilistic kernel PCA",
        "paper": "Yu (2006), chapter 5; Schoelkopf, Smola and Mueller (1998)",
    },
    "sppca": {
        "module": "zoo.sppca",
        "class": "SPPCA",
        "title": "Supervised and semi-supervised probabilistic PCA, primal and kernel",
        "paper": "Yu, Yu, Tresp, Kriegel and Wu (2006); Yu (2006), chapters 6 and 7",
    },
    "epca": {
        "module": "zoo.epca",
        "class": "EPCA",
        "title": "Exponential-family PCA, Bayesian, with the joint beta-prior",
        "paper": "Virtanen (2010), chapters 3 and 5; Mohamed, Heller and Ghahramani (2008)",
    },
    "paired": {
        "module": "zoo.paired",
        "class": "Paired",
        "title": "Exponential-family projections of paired views: supervised EPCA, EPLS, ECCA, SECCA",
        "paper": "Virtanen (2010), chapters 4 and 6; Guo (2009); Klami and Kaski (2007)",
    },
    "lda": {
        "module": "zoo.lda",
        "class": "LDA",
        "title": "Latent Dirichlet allocation",
        "paper": "Blei, Ng and Jordan (2003); Yu (2006), section 4.2.2",
    },
    "plsi": {
        "module": "zoo.plsi",
        "class": "PLSI",
        "title": "Probabilistic latent semantic indexing",
        "paper": "Hofmann (1999); Yu (2006), section 4.2.1",
    },
    "pcp": {
        "module": "zoo.pcp",
        "class": "PCP",
        "title": "Probabilistic clustering-projection of documents",
        "paper": "Yu (2006), chapter 9",
    },
    "depcam": {
        "module": "zoo.depcam",
        "class": "DEPCAM",
        "title": "Repulsive mixtures of exponential-family PCAs, and mixtures of probabilistic PCAs",
        "paper": "Qiao, Liu, Yu, Bian and Tao; Tipping and Bishop (1999)",
    },
    "mcfa": {
        "module": "zoo.mcfa",
        "class": "MCFA",
        "title": "Mixtures of factor analysers with common loadings",
        "paper": "Baek, McLachlan and Flack (2010); Yu (2006), section 8.1",
    },
}

#: The names of models in papers to their names here. Models of later versions may be listed too, so that the
#: error for one names it.
ALIASES: dict[str, str] = {
    "dpmixture": "mixture",
    "dpgmm": "mixture",
    "gmm": "mixture",
    "dma": "mixture",  # Dirichlet-multinomial allocation, Yu (2006) 3.2
    "tdp": "mixture",  # truncated Dirichlet process, Yu (2006) 3.3
    "vbdma": "mixture",
    "vbtdp": "mixture",
    "bppca": "ppca",
    "factor_analysis": "ppca",
    "kernel_pca": "kernelpca",
    "pkpca": "kernelpca",
    "s2ppca": "sppca",
    "morp": "sppca",
    "bepca": "epca",
    "exponential_family_pca": "epca",
    "sepca": "paired",  # supervised EPCA; the DEPCAM paper's SePCA (simple EPCA) is simple_epca here
    "epls": "paired",
    "ecca": "paired",
    "secca": "paired",
    "gibecca": "paired",
    "becca": "paired",
    "bepls": "paired",
    "cca": "paired",
    "pls": "paired",
    "simple_epca": "depcam",
    "sepca_mm": "depcam",
    "mppca": "depcam",
    "mixture_of_ppca": "depcam",
    "common_factor_analysers": "mcfa",
    "mixture_of_common_factor_analysers": "mcfa",
    "plsa": "plsi",
    "latent_dirichlet_allocation": "lda",
    "clustering_projection": "pcp",
}

_SHIPPED = frozenset(MODELS)
_REGISTERED: dict[str, tuple[type[Any], Mapping[str, Any]]] = {}  # models of the user, and their methods
_GENERIC_METHODS = ("nuts", "hmc", "svi", "map", "tempered")  # every program has these

_PUBLIC = {entry["class"]: entry["module"] for entry in MODELS.values()} | {
    "Model": "zoo.model",
    "SparseCounts": "zoo.sparse",
}
_SUBMODULES = ("conjugate", "datasets", "exponential_family", "kernels", "posteriors")

__all__ = ["MODELS", "register", "show_versions", "unregister", *sorted(_PUBLIC)]


def canonical_name(name: str) -> str:
    """The key of `MODELS` for a model name or an alias, regardless of case and hyphens.

    Args:
        name: a key of `MODELS` or `ALIASES`.

    Returns:
        A key of `MODELS`.

    Raises:
        ValueError: no such model, or one that this version does not have.

    Example:
        >>> canonical_name("S2PPCA")
        'sppca'
    """
    plain = name.strip().lower().replace("-", "_")
    if plain in MODELS:
        return plain
    here = ", ".join(MODELS)
    target = ALIASES.get(plain)
    if target is None and plain in ALIASES.values():
        raise ValueError(f"{name} is not in this version; the zoo has: {here}")
    if target is None:
        raise ValueError(f"no model is called {name!r}; the zoo has: {here}")
    if target not in MODELS:
        raise ValueError(f"{name} is an alias of {target}, which is not in this version; the zoo has: {here}")
    return target


def register[M: "Model"](model: type[M], *, methods: Mapping[str, Any]) -> type[M]:
    """Register a model for this process, so that `inference.fit`, summaries, reports and files know it.

    The class follows the contract of `zoo.model.Model`: a NumPyro program with ``dims``, ``symmetries`` and
    ``methods`` as literals. It enters `MODELS` under its name in lower case. Whoever loads a file of its fits
    registers it first. Registering the same class again replaces it.

    Args:
        model: the class.
        methods: name to method (`inference.algorithm`) for the names in ``model.methods``; ``nuts``, ``hmc``,
            ``svi`` and ``map`` need no entry.

    Returns:
        The class.

    Raises:
        TypeError: not a subclass of `zoo.model.Model`.
        ValueError: a name that is taken, no ``methods`` or ``dims``, roles of variables that ``dims`` leaves
            out, or methods other than ``model.methods``.
    """
    base = importlib.import_module("zoo.model").Model
    if not (isinstance(model, type) and issubclass(model, base) and model is not base):
        raise TypeError(f"zoo.register takes a subclass of zoo.model.Model; got {model!r}")
    name, key = model.__name__, model.__name__.lower()
    if key in _SHIPPED or key in ALIASES:
        raise ValueError(
            f"{name} has the name of a model of the zoo ({ALIASES.get(key, key)}): choose another"
        )
    if key in _REGISTERED and _home(_REGISTERED[key][0]) != _home(model):
        raise ValueError(
            f"{name} is registered already, by {_home(_REGISTERED[key][0])}: choose another name"
        )
    if not model.methods:
        raise ValueError(f"{name}.methods is empty: name the ways to fit it, such as ('em', 'nuts')")
    data_names = model.data_names if isinstance(model.data_names, tuple) else ()
    if not model.dims or not set(data_names) <= set(model.dims):
        raise ValueError(
            f"{name}.dims must give the dims of every variable, the data {', '.join(data_names)} among them; "
            f"got {dict(model.dims)}"
        )
    stated = [table.name for table in model.data if table.stated_in != "data"]
    if isinstance(model.units, Mapping) and (without := [own for own in stated if own not in model.units]):
        raise ValueError(
            f"{name} states {without[0]} in coordinates of its own, and {name}.units does not say which "
            f"sites follow these: name {without[0]} and all such sites there"
        )
    if isinstance(model.roles, tuple):  # else each instance has its own
        known = {*model.dims, *(dim for dims in model.dims.values() for dim in dims)}
        roles = model.roles
        parts = roles.cluster, roles.weight, roles.latent, roles.topic, roles.document_topic, roles.scores[0]
        if strangers := [part for part in parts if part and part not in known]:
            raise ValueError(
                f"{name}.roles names {', '.join(strangers)}, neither variables nor dims in {name}.dims; a "
                f"model of documents takes TopicModel.roles and replaces what is its own"
            )
    unknown = sorted(set(methods) - set(model.methods))
    missing = sorted(set(model.methods) - set(methods) - set(_GENERIC_METHODS))
    if unknown or missing:
        raise ValueError(
            f"methods must be those of {name}.methods, {', '.join(model.methods)}; not among them: "
            f"{', '.join(unknown) or 'none'}; missing: {', '.join(missing) or 'none'}"
        )
    _REGISTERED[key] = (model, dict(methods))
    title = (model.__doc__ or name).strip().splitlines()[0].rstrip(".")
    MODELS[key] = {
        "module": model.__module__,
        "class": name,
        "title": title,
        "paper": f"registered by {model.__module__}",
    }
    return model


def unregister(model: type) -> None:
    """Remove a registered model from the zoo.

    Args:
        model: the class.

    Raises:
        KeyError: it is not registered.
    """
    del _REGISTERED[model.__name__.lower()], MODELS[model.__name__.lower()]


def _home(model: type) -> str:
    return f"{model.__module__}.{model.__qualname__}"


def registered_methods(key: str) -> Mapping[str, Any]:
    """The inference methods with which a model was registered.

    Args:
        key: a key of `MODELS`.

    Returns:
        Name to method; empty for a model of the zoo itself.
    """
    return dict(_REGISTERED[key][1]) if key in _REGISTERED else {}


def model_class(key: str) -> "type[Model]":
    """The class of a model.

    Args:
        key: a key of `MODELS`.

    Returns:
        A subclass of `zoo.model.Model`.

    Raises:
        KeyError: no such model.
    """
    if key in _REGISTERED:
        return _REGISTERED[key][0]
    return getattr(importlib.import_module(MODELS[key]["module"]), MODELS[key]["class"])


if not TYPE_CHECKING:  # to type checkers a name that is not among the imports above is a mistake

    def __getattr__(name: str) -> Any:
        if name in _PUBLIC:
            return getattr(importlib.import_module(_PUBLIC[name]), name)
        if name in _SUBMODULES:
            return importlib.import_module(f"zoo.{name}")
        raise AttributeError(f"module 'zoo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBMODULES, "__version__"])
