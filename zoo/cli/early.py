"""Checks of a command line before JAX is imported, which takes seconds: against the source of the models.

What is checked here is checked again by the models and by `inference.fit`; this only answers sooner. A field
or an option whose declaration is no literal is left to them.
"""

import ast
import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import zoo
from zoo.cards import Card, read_card
from zoo.cli.arguments import Call

__all__ = [
    "check_fields",
    "check_fit_file",
    "check_method",
    "check_options",
    "check_parts",
    "check_standardize",
    "did_you_mean",
]

_METHODS = Path(zoo.__file__).parents[1] / "inference" / "methods"
_KINDS = ("Settings", "Once", "Climb", "Sampling")  # of methods, which have settings in common
_NUMBERS = {"Array", "None", "dist.Distribution"}
_BY_HAND = "divide the columns by their standard deviations"
_COUNTS = "its cells are counts of words, which have no unit: leave --standardize out"
_INSTEAD = {  # of --standardize
    "mixture": "its default priors are as wide as each column: leave --standardize out",
    "lda": _COUNTS,
    "plsi": _COUNTS,
    "pcp": _COUNTS,
}
_HDF5 = b"\x89HDF\r\n\x1a\n"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A name that is near to one that is not known, as the end of a message.

    Args:
        name: as written.
        known: the names that there are.

    Returns:
        Text, empty where none is near.
    """
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def check_method(card: Card, method: str) -> None:
    """Raise ValueError unless the model has the method.

    Args:
        card: of the model.
        method: its name, or ``"auto"``.
    """
    if method != "auto" and method not in card.methods:
        near = did_you_mean(method, card.methods)
        raise ValueError(f"{card.name} has no method {method!r}; it has: {', '.join(card.methods)}{near}")


def check_fields(card: Card, settings: Mapping[str, Any]) -> None:
    """Raise ValueError or TypeError for a value that is not of the kind that a field declares.

    Args:
        card: of the model.
        settings: field to value, as `zoo.cli.arguments.parse_settings` returns them.
    """
    for name, value in settings.items():
        declared, _, default = card.fields[name].partition(" = ")
        kinds = {kind.strip() for kind in declared.split("|")}
        if value is None:
            if not kinds & {"None"} and default != "None":
                raise TypeError(f"{name} must not be None: leave it out for the default, {default}")
        elif kinds <= {"bool", "None"}:
            if not isinstance(value, bool):
                raise TypeError(f"{name} must be True or False; got {_shown(value)}")
        elif kinds <= {"int", "None"}:
            least = 1 if "None" not in kinds else 0
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}; got {_shown(value)}")
        elif kinds <= {"str", "None"}:
            if not isinstance(value, str):
                raise ValueError(f"{name} must be a string; got {_shown(value)}")
        elif kinds <= _NUMBERS and (isinstance(value, str | bool) or _is_bad_call(value, kinds)):
            also = ", or a prior such as Gamma(2, 1)" if "dist.Distribution" in kinds else ""
            raise TypeError(f"{name} must be a number{also}; got {_shown(value)}")


def _is_bad_call(value: Any, kinds: set[str]) -> bool:
    return isinstance(value, Call) and "dist.Distribution" not in kinds


def _shown(value: Any) -> str:
    if isinstance(value, Call):
        named = (f"{key}={_shown(given)}" for key, given in value.kwargs.items())
        arguments = [*map(_shown, value.args), *named]
        return f"{value.name}({', '.join(arguments)})"
    return repr(value)


def check_options(card: Card, method: str, names: Iterable[str]) -> None:
    """Raise TypeError for an option that the method does not have.

    Args:
        card: of the model.
        method: its name, or ``"auto"``.
        names: of the options.
    """
    names = list(names)
    if not names:
        return
    generic = ("nuts", "hmc", "svi", "map")  # which auto never means
    methods = [each for each in card.methods if each not in generic] if method == "auto" else [method]
    found = [_options_of(card.name, each) for each in methods]
    if not found or None in found:
        return
    known = sorted({option for options in found for option in options or ()})
    for name in names:
        if name not in known:
            whose = f"method {method!r} of {card.name}" if method != "auto" else card.name
            listed = ", ".join(known) or "none"
            near = did_you_mean(name, known)
            raise TypeError(f"{whose} has no option {name!r}; its options: {listed}{near}")


def _options_of(model: str, method: str) -> tuple[str, ...] | None:
    """Names of the options of a method: the fields of its class of settings, read from its source."""
    if not (_METHODS / "__init__.py").is_file():
        return None
    paths = {
        node.target.id if isinstance(node, ast.AnnAssign) else node.targets[0].id: node.value
        for node in _body_of(_METHODS / "__init__.py")
        if isinstance(node, ast.Assign | ast.AnnAssign)
    }
    place = ast.literal_eval(paths["BY_MODEL"]).get(model, {}).get(method)
    if place is None:
        return _fields_of(_body_of(_METHODS.parent / "settings.py"), method)
    packages = "documents", "projections", place.split(".")[1]  # the first two are shared
    return _fields_of(
        [node for name in packages for node in _body_of(_METHODS / name / "__init__.py")], method
    )


def _body_of(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text(encoding="utf-8")).body


def _fields_of(body: list[ast.stmt], method: str) -> tuple[str, ...] | None:
    """The fields of the last class of settings of a method, without those of all methods of its kind."""
    fields: dict[str, list[str]] = {}
    found = None
    for node in body:
        if not isinstance(node, ast.ClassDef) or node.name in _KINDS:
            continue
        own = [ast.unparse(part) for part in node.body if isinstance(part, ast.AnnAssign)]
        names = [text.partition(":")[0] for text in own if "ClassVar" not in text]
        fields[node.name] = [
            name for base in node.bases for name in fields.get(ast.unparse(base), ())
        ] + names
        if any(ast.unparse(part) == f"name = {method!r}" for part in node.body):
            found = tuple(dict.fromkeys(fields[node.name]))
    return found


def check_parts(card: Card, y: str | None, views: Sequence[str] | None) -> None:
    """Raise ValueError where a model lacks a part of its data, or is given one that it does not take.

    Args:
        card: of the model.
        y: value of ``--y``, or None.
        views: values of ``--views``, or None.
    """
    num_parts = len(views) if views else 1 + (y is not None)
    sites = [name for name in card.dims if name in ("x", "y", "counts")]
    takes_views = any(name.startswith("y_") for name in card.dims)
    if takes_views and num_parts < 2:
        raise ValueError(
            f"{card.name} is of two or more views of the same rows: name the columns of each, such as "
            "--views a,b c,d (or --x a,b --y c,d)"
        )
    if takes_views:
        return
    if "y" in sites and num_parts != 2:
        raise ValueError(
            f"{card.name} predicts outputs y from x, and y is missing: name their columns, such as "
            f"--y COLUMN (all other columns are x); without outputs, fit ppca"
        )
    if "y" not in sites and num_parts > 1:
        given = "--y" if views is None else f"--views with {num_parts} views"
        taker = "sppca" if views is None else "paired"
        raise ValueError(
            f"{card.name} takes one table, {sites[0] if sites else 'x'}, and no outputs or views: leave "
            f"{given} out, or fit {taker}"
        )


def check_standardize(card: Card, settings: Mapping[str, Any]) -> None:
    """Raise ValueError unless the model can measure columns in their standard deviations.

    Args:
        card: of the model.
        settings: field to value, which must not set it as well.
    """
    if "standardize" in settings:
        raise ValueError("standardize is set twice: by --standardize and by --set")
    if "standardize" not in card.fields:
        raise ValueError(f"{card.name} has no field standardize: {_INSTEAD.get(card.name, _BY_HAND)}")


def check_fit_file(path: str) -> None:
    """Check that a file is there and looks like a saved fit.

    Args:
        path: of the fit.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no netCDF file.
    """
    file = Path(path)
    if not file.is_file():
        known = sorted(p.name for p in file.parent.glob("*.nc")) if file.parent.is_dir() else []
        listed = f"; fits in this folder: {', '.join(known[:10])}" if known else "; zoo fit writes one"
        raise FileNotFoundError(
            f"{path} is a folder" if file.is_dir() else f"there is no file {path}{listed}"
        )
    with file.open("rb") as opened:
        if opened.read(8) != _HDF5:
            raise ValueError(
                f"{path} is no saved fit, for it is no netCDF file: a table is fitted by zoo fit MODEL "
                f"{path}, and a fit that was cut short must be copied again"
            )


def size_fields(card: Card) -> tuple[str, ...]:
    """The sizes of a model that a sweep may vary, the one that is varied by default first.

    Args:
        card: of the model.

    Returns:
        Names of fields.
    """
    wanted = ("num_components", "num_latents", "num_topics", "num_clusters", "num_shared")
    return tuple(name for name in wanted if name in card.fields)


def parse_sizes(card: Card, texts: Sequence[str]) -> dict[str, list[int]]:
    """Parse the sizes of a sweep.

    Args:
        card: of the model.
        texts: such as ``["1:4"]``, ``["2,4,8"]`` or ``["num_components=1:3", "num_latents=1,2"]``.

    Returns:
        Field to sizes, ascending.

    Raises:
        ValueError: no field of the model, or something that is not sizes.
    """
    fields, found = size_fields(card), {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        name = name or fields[0]
        if name not in fields:
            raise ValueError(f"{card.name} has no size {name!r} to sweep; it has: {', '.join(fields)}")
        if name in found:
            raise ValueError(f"--sizes of {name} are given twice")
        found[name] = _sizes(value, 0 if name == "num_shared" else 1)
    return found


def _sizes(text: str, least: int) -> list[int]:
    first, colon, last = text.partition(":")
    try:
        numbers = range(int(first), int(last) + 1) if colon else [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    numbers = sorted(set(numbers))
    if not numbers or numbers[0] < least or len(numbers) > 100:
        raise ValueError(f"--sizes takes FIRST:LAST or numbers with commas, at least {least}; got {text!r}")
    return numbers


def cards_of(names: Sequence[str] | None) -> list[Card]:
    """The cards of models by their names or aliases; None: of all.

    Args:
        names: of models.

    Returns:
        Their cards.
    """
    return [read_card(name) for name in names or zoo.MODELS]
