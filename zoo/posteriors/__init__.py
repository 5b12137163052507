"""Reference posteriors: small data sets with a model and the true posterior means.

Each is a file ``posteriors/<name>.json`` of the shipped data and holds names and numbers only: the fields of
the model, the data, and the posterior mean and standard deviation of quantities that no symmetry of the model
can change (`inference.diagnostics.invariants`). Some means are exact, by enumeration of all labels or topics;
of the others the Monte Carlo standard error of a long run is given. Most of the models have discrete latent
variables, whose references posteriordb and Inference Gym do not hold. `inference.calibration.posterior_check`
compares draws with them. Listing and reading need no JAX; the model is made when it is first asked for.
"""

import dataclasses
import functools
import importlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo import model_class
from zoo.datasets import shipped_folder

__all__ = ["load", "names"]

_ROOMS = ("zoo.conjugate", "zoo.exponential_family", "zoo.kernels")


@dataclasses.dataclass(frozen=True)
class Quantity:
    """What is known of one scalar under a posterior, in the units of that scalar.

    Attributes:
        mean: posterior mean.
        sd: posterior standard deviation.
        mcse: Monte Carlo standard error of the mean; 0 where it is exact.
        exact: whether mean and sd were enumerated.
    """

    mean: float
    sd: float
    mcse: float
    exact: bool


@dataclasses.dataclass(frozen=True)
class Posterior:
    """A reference posterior.

    Attributes:
        name: of the posterior.
        title: model, prior and data in words.
        model_name: key in `zoo.MODELS`.
        fields: fields of the model; nested objects are ``{"type": name, ...}``, arrays ``{"array": lists}``.
        data: names of the parts of the data to arrays, rows first, NaN where a cell is missing, in the order
            in which the model takes them.
        reference: name of each quantity to what is known of it. Names are those of
            `inference.diagnostics.invariants` with coords in brackets; ``same_cluster[i~j]`` is the
            probability that rows i and j share a component.
        origin: how it was made: ``method``, ``command``, ``versions``, and of a long run its options, largest
            R-hat and smallest effective sample size.
    """

    name: str
    title: str
    model_name: str
    fields: Mapping[str, Any] = dataclasses.field(repr=False)
    data: Mapping[str, np.ndarray] = dataclasses.field(repr=False)
    reference: Mapping[str, Quantity] = dataclasses.field(repr=False)
    origin: Mapping[str, Any] = dataclasses.field(repr=False)

    @functools.cached_property
    def model(self) -> Any:
        """The model, a `zoo.Model`, with all its hyperparameters; imports JAX when it is first read."""
        return model_class(self.model_name)(**{name: _made(value) for name, value in self.fields.items()})

    @property
    def exact(self) -> bool:
        """Whether every mean of the reference is exact."""
        return all(quantity.exact for quantity in self.reference.values())


def names() -> tuple[str, ...]:
    """The names of all reference posteriors, in alphabetical order.

    Returns:
        Names that `load` takes.

    Example:
        >>> "mixture" in names()
        True
    """
    return tuple(sorted(path.stem for path in (shipped_folder() / "posteriors").glob("*.json")))


def load(name: str) -> Posterior:
    """Read a reference posterior.

    Args:
        name: see `names`.

    Returns:
        Model, data and reference.

    Raises:
        ValueError: no such posterior.

    Example:
        >>> load("mixture").data["x"].shape
        (6, 1)
    """
    known = names()
    if name not in known:
        raise ValueError(f"no reference posterior is called {name!r}; there are: {', '.join(known)}")
    path = shipped_folder() / "posteriors" / f"{name}.json"
    held = json.loads(path.read_text(encoding="utf-8"))
    return Posterior(
        name=name,
        title=held["title"],
        model_name=held["model"],
        fields=held["fields"],
        data={key: np.array(value, np.float64) for key, value in held["data"].items()},
        reference={
            quantity: Quantity(own["mean"], own["sd"], own.get("mcse", 0.0), "mcse" not in own)
            for quantity, own in held["reference"].items()
        },
        origin=held["origin"],
    )


def _made(value: Any) -> Any:
    """A field of a model: a nested object, an array, a tuple or a scalar."""
    if isinstance(value, list):
        return tuple(_made(part) for part in value)
    if not isinstance(value, Mapping):
        return value
    if "array" in value:
        return np.array(value["array"], np.float64)
    kind = next(
        getattr(module, value["type"])
        for module in map(importlib.import_module, _ROOMS)
        if value["type"] in module.__all__
    )
    return kind(**{name: _made(part) for name, part in value.items() if name != "type"})
