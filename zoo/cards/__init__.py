"""A model's card, read from its source file and from the TOML file with notes on methods and papers.

``dims``, ``symmetries`` and ``methods`` are literals in the body of a model's class, and the
statements of its program are Python source; both are read with `ast`, and the notes
(``zoo/cards/<model>.toml``) with `tomllib`, so that ``zoo list`` and ``zoo show`` need neither JAX nor NumPy.
`zoo.cards.page` prints a card.
"""

import ast
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from zoo import ALIASES, MODELS, canonical_name, model_class, registered_methods
from zoo.cards.program import module_file, parsed, program_of, registered_file

__all__ = [
    "Card",
    "Claim",
    "Correction",
    "Equation",
    "MethodNote",
    "Notes",
    "Usage",
    "methods_of",
    "read_card",
    "read_notes",
]

_LITERALS = ("dims", "symmetries", "methods")
_FOLDER = Path(__file__).parent


class Card(NamedTuple):
    """A model's metadata.

    Attributes:
        name: key in `zoo.MODELS`.
        title: full name.
        paper: where it is from.
        aliases: what papers call it.
        module_docstring: the generative process, the table of symbols, the departures from the paper.
        class_docstring: the meaning of the fields.
        fields: name of each constructor argument to its declaration as written, ``"type = default"``.
        dims: variable to the names of its dims.
        symmetries: transformations that leave the posterior unchanged.
        methods: the ways to fit it; ``auto`` means the first that suits the model and its data.
        path: of the file that defines the model.
        class_name: of the model.
    """

    name: str
    title: str
    paper: str
    aliases: tuple[str, ...]
    module_docstring: str
    class_docstring: str
    fields: Mapping[str, str]
    dims: Mapping[str, tuple[str, ...]]
    symmetries: tuple[str, ...]
    methods: tuple[str, ...]
    path: Path
    class_name: str

    @property
    def program(self) -> str:
        """The source of the NumPyro program, see `program_of`."""
        return program_of(self.path, self.class_name)


class Usage(NamedTuple):
    """How to fit the model to a data set of the catalogue.

    Attributes:
        python: statements, after ``import inference, zoo``.
        command: a line for the shell.
    """

    python: str
    command: str


class MethodNote(NamedTuple):
    """When to use a method.

    Attributes:
        when: the purpose or the data that it suits.
        cost: operations per step, sweep or pass, in the symbols of `Notes`.
    """

    when: str
    cost: str


class Claim(NamedTuple):
    """A claim of a paper beside the result of this implementation.

    Attributes:
        paper: the claim, with its place.
        here: the result; figures are in ``README.md`` or ``changes_in_detail.md`` of ``tests/reference``.
        record: file in ``tests/reference`` with the figures; empty where a test or these pages have them.
    """

    paper: str
    here: str
    record: str = ""


class Correction(NamedTuple):
    """A correction of a misprint or gap in a paper, found by deriving the formula again; or a remark on it.

    A computation shows a correction: the printed form fails it, this one passes. What none shows is a remark.

    The models and algorithms here use the corrected formula. Assumptions that differ from a paper are in the
    paragraph "Departures" of the model's docstring.

    Attributes:
        place: paper, and equation, section or algorithm.
        right: the correction, or the remark.
        shown: the section of ``notebooks/guide/printed.md`` that runs the printed form beside the right one;
            empty where there is none.
        check: the check in ``tests/test_corrections.py`` that the printed form fails and this one passes;
            empty where there is none.
    """

    place: str
    right: str
    shown: str = ""
    check: str = ""


class Equation(NamedTuple):
    """A line of the generative process.

    Attributes:
        site: that it is of; ``loadings_*`` is of every view.
        tex: in the letters of the model's docstring.
        when: under which fields it holds, or what is done with it; empty: always.
    """

    site: str
    tex: str
    when: str = ""


class Notes(NamedTuple):
    """Generative process, usage, methods, claims, corrections and remarks of a model.

    Attributes:
        process: the equations, in the order of the program.
        usage: how to fit it.
        symbols: the letters in the costs.
        methods: name of each method to its note.
        claims: claims of the papers, with the results here.
        corrections: misprints and gaps of the papers, each with a ``check`` or ``shown``.
        remarks: on what the papers say, that no computation shows.
    """

    process: tuple[Equation, ...]
    usage: Usage
    symbols: str
    methods: Mapping[str, MethodNote]
    claims: tuple[Claim, ...]
    corrections: tuple[Correction, ...]
    remarks: tuple[Correction, ...]


def read_card(name: str) -> Card:
    """The card of a model, read from its source file without importing it.

    Raises:
        ValueError: no such model.
    """
    name = canonical_name(name)
    entry = MODELS[name]
    shipped = module_file(entry["module"])
    path = shipped or registered_file(entry["module"])
    module = parsed(path)
    nodes = module.body if shipped else ast.walk(module)  # a registered class may be defined in a function
    body = next(node for node in nodes if isinstance(node, ast.ClassDef) and node.name == entry["class"])
    literals = _literals(body)
    if shipped is None:  # in memory, where its literals may come from a base class
        literals = {literal: getattr(model_class(name), literal) for literal in _LITERALS}
    return Card(
        name=name,
        title=entry["title"],
        paper=entry["paper"],
        aliases=tuple(alias for alias, target in ALIASES.items() if target == name),
        module_docstring=ast.get_docstring(module) or "",
        class_docstring=ast.get_docstring(body) or "",
        fields=_fields(body),
        dims=literals["dims"],
        symmetries=tuple(literals["symmetries"]),
        methods=tuple(literals["methods"]),
        path=path,
        class_name=entry["class"],
    )


def methods_of(name: str) -> tuple[str, ...]:
    """The methods of a model, at a fraction of the time that its card takes."""
    entry = MODELS[name]
    path = module_file(entry["module"])
    if path is None:
        return tuple(model_class(name).methods)
    classes = [node for node in parsed(path).body if isinstance(node, ast.ClassDef)]
    (body,) = (node for node in classes if node.name == entry["class"])
    return tuple(_literals(body)["methods"])


def read_notes(card: Card) -> Notes:
    """The notes on a model, from its TOML file and from ``generic.toml``."""
    generic = _read_toml(_FOLDER / "generic.toml")
    path = _FOLDER / f"{card.name}.toml"
    own = _read_toml(path) if path.is_file() else _no_notes(card)
    methods = generic["methods"] | own["methods"]
    corrections, remarks = (
        _corrections(kind, own, generic, card.name) for kind in ("corrections", "remarks")
    )
    return Notes(
        process=tuple(Equation(*line) for line in own.get("process", ())),
        usage=Usage(own["usage"]["python"].strip(), _joined(own["usage"]["command"])),
        symbols=_joined(generic["symbols"]),
        methods={
            name: MethodNote(_joined(methods[name]["when"]), _joined(methods[name]["cost"]))
            for name in card.methods
        },
        claims=tuple(Claim(**{key: _joined(text) for key, text in entry.items()}) for entry in own["claims"]),
        corrections=corrections,
        remarks=remarks,
    )


def _corrections(
    kind: str, own: Mapping[str, Any], generic: Mapping[str, Any], name: str
) -> tuple[Correction, ...]:
    """Those of a model's file, then those that it shares with others."""
    shared = [entry for entry in generic[kind] if name in entry["models"]]
    texts = ("place", "right", "shown", "check")
    return tuple(
        Correction(*(_joined(entry.get(text, "")) for text in texts))
        for entry in [*own.get(kind, []), *shared]
    )


def _no_notes(card: Card) -> dict[str, Any]:
    """Notes on a registered model, which say only how to fit it."""
    python = f"tree = inference.fit({card.class_name}.from_data(x), x)"
    unknown = {name: {"when": "of this model alone", "cost": "not noted"} for name in card.methods}
    own = {name: unknown[name] for name in registered_methods(card.name)}
    usage = {"python": python, "command": "none: the command line knows the models of the zoo alone"}
    return {"usage": usage, "methods": own, "claims": []}


def _read_toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _joined(text: str) -> str:
    """Join a text of several lines into one line."""
    return " ".join(text.split())


def _literals(body: ast.ClassDef) -> dict[str, Any]:
    """Read the class attributes that must be literals."""
    found = {}
    for node in body.body:
        if not isinstance(node, ast.AnnAssign | ast.Assign):
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        if isinstance(target, ast.Name) and target.id in _LITERALS and node.value is not None:
            found[target.id] = ast.literal_eval(node.value)
    return found


def _fields(body: ast.ClassDef) -> dict[str, str]:
    """Read the annotated attributes that are constructor arguments."""
    found = {}
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            kind = ast.unparse(_as_given(node.annotation))
            if not kind.startswith("ClassVar") and not node.target.id.startswith("_"):
                default = _default(node.value)
                found[node.target.id] = kind + (f" = {ast.unparse(default)}" if default is not None else "")
    return found


def _as_given(annotation: ast.expr) -> ast.expr:
    """What a constructor takes for a field, see `zoo.fields.Given`."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Given":
        return annotation.slice.elts[0] if isinstance(annotation.slice, ast.Tuple) else annotation
    return annotation


def _default(value: ast.expr | None) -> ast.expr | None:
    """The default of a field, which is the first argument where it is declared by `zoo.fields`."""
    if not isinstance(value, ast.Call):
        return value
    kind = ast.unparse(value.func)
    if kind in ("size_of", "scale_of"):
        return ast.Constant(None)
    if kind in ("static", "size", "whole", "choice", "flag", "numbers", "positive", "pseudo_counts", "part"):
        named = [keyword.value for keyword in value.keywords if keyword.arg == "default"]
        other = None if kind == "static" else ast.Constant(False if kind == "flag" else None)
        return next(iter([*value.args[:1], *named]), other)
    return value
