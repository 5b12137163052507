"""What a model says about itself, read from its source file without importing it.

``dims``, ``symmetries`` and ``methods`` are literals in the body of a model's class, and the statements of
its program are Python source; both are read with `ast`, so that ``zoo list`` and ``zoo show`` need neither
JAX nor NumPy.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from zoo import ALIASES, MODELS, canonical_name, model_class

__all__ = ["ModelCard", "read_card"]

_LITERALS = ("dims", "symmetries", "methods")


class ModelCard(NamedTuple):
    """A model's metadata.

    Attributes:
        name: key in `zoo.MODELS`.
        title: full name.
        paper: where it is from.
        aliases: what papers call it.
        module_docstring: the generative process, the table of symbols, the departures from the paper.
        class_docstring: what the fields mean.
        fields: name of each constructor argument to its declaration as written, ``"type = default"``.
        dims: variable to the names of its dims.
        symmetries: what leaves the posterior unchanged.
        methods: the ways to fit it; the first is what ``auto`` means.
        program: source of the NumPyro program, ``__call__``, and of the methods it calls on itself.
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
    program: str


def read_card(name: str) -> ModelCard:
    """The card of a model.

    Args:
        name: a name or an alias; see `zoo.canonical_name`.

    Returns:
        Its title, paper, docstrings and class attributes.

    Raises:
        ValueError: no such model.
    """
    name = canonical_name(name)
    entry = MODELS[name]
    if not entry["module"].startswith(f"{__package__}."):
        return _registered_card(name, entry)
    path = Path(__file__).parent / (entry["module"].removeprefix("zoo.").replace(".", "/") + ".py")
    source = path.read_text(encoding="utf-8")
    module = ast.parse(source)
    (body,) = (node for node in module.body if isinstance(node, ast.ClassDef) and node.name == entry["class"])
    literals = _literals(body)
    return ModelCard(
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
        program=_program(body, source),
    )


def _registered_card(name: str, entry: Mapping[str, str]) -> ModelCard:
    """The card of a model that was added by `zoo.register`, whose class is in memory."""
    model = model_class(name)
    try:
        source = textwrap.dedent(inspect.getsource(model))
    except OSError:
        raise ValueError(
            f"the source of {entry['class']} is not at hand: write it into a file to have its card"
        ) from None
    body = ast.parse(source).body[0]
    return ModelCard(
        name=name,
        title=entry["title"],
        paper=entry["paper"],
        aliases=(),
        module_docstring=sys.modules[entry["module"]].__doc__ or "",
        class_docstring=ast.get_docstring(body) or "",
        fields=_fields(body),
        dims=model.dims,
        symmetries=model.symmetries,
        methods=model.methods,
        program=_program(body, source),
    )


def _literals(body: ast.ClassDef) -> dict[str, Any]:
    """The class attributes that must be written as literals."""
    found = {}
    for node in body.body:
        target = node.target if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [None])[0]
        if isinstance(target, ast.Name) and target.id in _LITERALS and node.value is not None:
            found[target.id] = ast.literal_eval(node.value)
    return found


def _fields(body: ast.ClassDef) -> dict[str, str]:
    """The annotated attributes that are constructor arguments."""
    found = {}
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            kind = ast.unparse(node.annotation)
            if not kind.startswith("ClassVar") and not node.target.id.startswith("_"):
                found[node.target.id] = kind + (
                    f" = {ast.unparse(node.value)}" if node.value is not None else ""
                )
    return found


def _program(body: ast.ClassDef, source: str) -> str:
    """The source of ``__call__`` and of the methods that it uses of ``self``, in the order of first use."""
    methods = {node.name: node for node in body.body if isinstance(node, ast.FunctionDef)}
    wanted, queue = [], ["__call__"]
    while queue:
        name = queue.pop(0)
        if name in methods and name not in wanted:
            wanted.append(name)
            queue += [
                node.attr
                for node in ast.walk(methods[name])
                if isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
            ]
    lines = source.splitlines()
    blocks = []
    for name in wanted:
        node = methods[name]
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        blocks.append("\n".join(line.removeprefix("    ") for line in lines[first - 1 : node.end_lineno]))
    return "\n\n".join(blocks)
