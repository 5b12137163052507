"""Models as plain JSON and a few arrays, and back, so that a saved fit can predict.

Static fields and scalars go into the JSON; nested priors and hyperpriors as ``{"type": name, ...}``; arrays
by reference, ``{"array": name}``. Type names are looked up in fixed tables (the zoo's registry,
``zoo.conjugate``, ``zoo.kernels``, ``zoo.exponential_family`` and the listed distributions); nothing in a
file can import anything.
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpyro.distributions as dist

import zoo
import zoo.conjugate
from zoo.conjugate.component_prior import ComponentPrior
from zoo.exponential_family import FAMILIES, ByColumn
from zoo.fields import facts_of, names_of
from zoo.kernels import KERNELS
from zoo.model import Assumptions, Model

DISTRIBUTIONS = {
    "Gamma": (dist.Gamma, ("concentration", "rate")),
    "MultivariateNormal": (dist.MultivariateNormal, ("loc", "scale_tril")),
    "Normal": (dist.Normal, ("loc", "scale")),
    "Wishart": (dist.Wishart, ("concentration", "scale_matrix")),
}
MOST_LETTERS = 2**22
DEEPEST = 20
_BRACKET = re.compile(r'"(?:\\.|[^"\\])*"|[][{}]')  # strings are passed over
_TYPES = {kind.__name__: kind for kind in (*KERNELS.values(), *FAMILIES.values(), ByColumn)}


def describe(model: Model) -> tuple[str, dict[str, np.ndarray]]:
    """JSON of the model's fields, and the arrays it refers to."""
    arrays: dict[str, np.ndarray] = {}
    return json.dumps(_describe_fields(model, "", arrays)), arrays


def restore(name: str, fields: str, arrays: Mapping[str, Any]) -> Model:
    """The model that `describe` described.

    Raises:
        ValueError: the model, a field or one of the types in its fields is not in this version, the fields
            cannot be read, or an array of them is not there.
    """
    check_known(name)
    try:
        described = parsed(fields)
        names = [name for name in _arrays_in(described) if name in arrays]
        held = {name: np.asarray(arrays[name], np.float64) for name in names}
        return _made(zoo.model_class(name), _restore_fields(described, held))
    except ValueError:
        raise
    except Exception as error:  # a constructor met a value of a kind that `describe` never writes
        raise ValueError(_unreadable(f"{type(error).__name__}: {error}")) from None


def _arrays_in(described: Any) -> Iterator[str]:
    """Names of the arrays that fields refer to."""
    if isinstance(described, Mapping) and "array" in described:
        yield described["array"]
    elif isinstance(described, Mapping | list):
        for value in described.values() if isinstance(described, Mapping) else described:
            yield from _arrays_in(value)


def parsed(fields: Any) -> Mapping[str, Any]:
    """The fields of a model as a file has them; ValueError unless they are what `describe` writes."""
    if not isinstance(fields, str):
        raise ValueError(_unreadable(f"it is no text but {type(fields).__name__}"))
    if len(fields) > MOST_LETTERS:
        raise ValueError(_unreadable(f"it has {len(fields)} letters and may have {MOST_LETTERS}"))
    depth = 0
    for bracket in _BRACKET.finditer(fields):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(bracket.group(), 0)
        if depth > DEEPEST:
            raise ValueError(_unreadable(f"it is nested more than {DEEPEST} deep"))
    try:
        described = json.loads(fields)
    except ValueError as error:
        raise ValueError(_unreadable(str(error))) from None
    if not isinstance(described, Mapping):
        raise ValueError(_unreadable(f"it is a {type(described).__name__}, not fields by name"))
    return described


def _unreadable(why: str) -> str:
    return (
        f"the attribute model_fields of this fit cannot be read ({why[:200]}): it was changed after the fit; "
        "copy the file again, or fit again"
    )


def check_known(name: str) -> None:
    """Raise ValueError unless the zoo has the model of a fit, shipped or registered."""
    if name not in zoo.MODELS:
        raise ValueError(
            f"this fit is of model {name!r}, which this version does not have (it has "
            f"{', '.join(zoo.MODELS)}); if the model is yours, import the module that calls zoo.register on "
            "it, then try again (on the command line --model FILE.py:CLASS)"
        )


def field_dims(model: Model) -> dict[str, tuple[str, ...]]:
    """Dims of the arrays that `describe` returns, as the model and nested priors name them."""
    dims = dict(dims_of(model))
    for field in names_of(model).leaves:
        nested = getattr(model, field)
        if isinstance(nested, Assumptions):
            dims |= {f"{field}_{name}": value for name, value in dims_of(nested).items()}
    return dims


def dims_of(owner: Assumptions) -> Mapping[str, tuple[str, ...]]:
    """Fields of a model or of a prior in it that are arrays with named dims, to these."""
    return owner.field_dims if isinstance(owner, ComponentPrior) else facts_of(owner, "dims")


def _made(kind: type, fields: Mapping[str, Any]) -> Any:
    """An object of the zoo; ValueError for a field that it does not have in this version."""
    unknown = sorted(set(fields) - {field.name for field in dataclasses.fields(kind)})
    if unknown:
        raise ValueError(
            f"this fit gives {kind.__name__} the field {unknown[0]!r}, which this version does not have: "
            "install the version that its attributes name, or fit again"
        )
    return kind(**fields)


def _describe_fields(owner: Assumptions, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    given = {field.name for field in dataclasses.fields(owner) if field.init}
    described = {name: getattr(owner, name) for name in names_of(owner).static if name in given}
    is_stored = facts_of(owner, "is_stored")
    for name in names_of(owner).leaves:
        if is_stored.get(name, True):
            described[name] = _describe(getattr(owner, name), f"{prefix}{name}", arrays)
    return described


def _describe(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    if value is None:
        return None
    if isinstance(value, tuple):
        return [_describe(part, f"{name}_{number}", arrays) for number, part in enumerate(value)]
    if isinstance(value, Assumptions):
        return {"type": type(value).__name__} | _describe_fields(value, f"{name}_", arrays)
    if isinstance(value, dist.Distribution):
        kind = type(value).__name__
        parts = {part: np.asarray(getattr(value, part)) for part in DISTRIBUTIONS[kind][1]}
        return {"type": kind} | {p: _describe(part, f"{name}_{p}", arrays) for p, part in parts.items()}
    if value.ndim == 0:
        return float(value)
    arrays[name] = np.asarray(value)
    return {"array": name}


def _restore_fields(described: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _restore(value, arrays) for name, value in described.items() if name != "type"}


def _restore(value: Any, arrays: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return tuple(_restore(item, arrays) for item in value)
    if not isinstance(value, Mapping):
        return value
    if "array" in value:
        if value["array"] not in arrays:
            raise ValueError(
                f"this fit lacks {value['array']!r} of its group 'constant_data', a hyperparameter of its "
                "model; take the whole tree that inference.fit or inference.load gave"
            )
        return arrays[value["array"]]
    kind, fields = value.get("type"), _restore_fields(value, arrays)
    if not isinstance(kind, str):
        raise ValueError(_unreadable(f"a type is {kind!r}, not a name"))
    if kind in DISTRIBUTIONS:
        return DISTRIBUTIONS[kind][0](**fields)
    if kind in zoo.conjugate.__all__:
        return _made(getattr(zoo.conjugate, kind), fields)
    if kind in _TYPES:
        return _made(_TYPES[kind], fields)
    raise ValueError(f"this fit uses a {kind}, which this version does not have")
