"""Where a module asks for a model by its name, its class or its site names, found in the source with `ast`.

Above the algorithms the model answers for itself (`zoo.model.Model`): ``model.roles.cluster`` in the place of
``"assignments" in tree["posterior"]``, ``model.data[0].holds_documents`` in that of a comparison with
``"lda"``.
"""

import ast
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import zoo
from zoo.cards import read_card

__all__ = ["model_tests"]

_SHORTEST_STEM = 4  # letters of a prefix of site names, as in name.startswith("loadings")


class _Names(NamedTuple):
    """Names that belong to the shipped models.

    Attributes:
        classes: classes of the modules that models live in.
        keys: keys of `zoo.MODELS`, and class names as strings.
        sites: variables by `Model.dims`.
        stems: beginnings of the variables that repeat by view or stage.
    """

    classes: frozenset[str]
    keys: frozenset[str]
    sites: frozenset[str]
    stems: tuple[str, ...]


def model_tests(path: str, source: str) -> list[str]:
    """Tests of a model's name, class or literal site names in one file.

    Found are ``isinstance`` and ``issubclass`` with a model class, ``type(x) is Mixture``, comparisons with a
    key of `zoo.MODELS` or a class name, and comparisons, ``get`` and ``startswith`` with a variable that
    `Model.dims` names. Collections of such names count too, written in place or named at the module's top.

    Args:
        path: of the file, for the messages.
        source: its text.

    Returns:
        A message a test, ``PATH:LINE: SOURCE``, in the order of lines.
    """
    tree = ast.parse(source)
    constants = _collections(tree)
    found = set()
    for node in ast.walk(tree):
        if _asks_for_class(node) or _asks_for_name(node, constants):
            found.add((node.lineno, ast.unparse(node).partition("\n")[0]))
    return [f"{path}:{line}: {text}" for line, text in sorted(found)]


@cache
def _names() -> _Names:
    classes, sites = set(), set()
    for key, entry in zoo.MODELS.items():
        module = ast.parse(Path(find_spec(entry["module"]).origin).read_text(encoding="utf-8"))
        body = next(n for n in module.body if isinstance(n, ast.ClassDef) and n.name == entry["class"])
        bases = {base.id for base in body.bases if isinstance(base, ast.Name)} - {"Model"}
        classes |= {entry["class"], *bases}
        sites |= set(read_card(key).dims)
    keys = {*zoo.MODELS, *(entry["class"] for entry in zoo.MODELS.values())}
    stems = tuple(site.partition("*")[0] for site in sites if "*" in site)
    return _Names(frozenset(classes), frozenset(keys), frozenset(s for s in sites if "*" not in s), stems)


def _is_site(text: str) -> bool:
    names = _names()
    return text in names.sites or any(text.startswith(s) and len(text) > len(s) > 2 for s in names.stems)


def _is_stem(text: str) -> bool:
    """Whether variables of models begin with it."""
    names = _names()
    return len(text) >= _SHORTEST_STEM and any(site.startswith(text) for site in (*names.sites, *names.stems))


def _collections(tree: ast.Module) -> dict[str, list[str]]:
    """Names at the module's top that stand for collections of strings."""
    return {
        target.id: list(_strings(node.value, {}))
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Tuple | ast.List | ast.Set | ast.Dict)
    }


def _strings(node: ast.AST | None, constants: dict[str, list[str]]) -> Iterator[str]:
    """Strings that an operand of a comparison is or holds."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for element in node.elts:
            yield from _strings(element, constants)
    elif isinstance(node, ast.Dict):
        for key in node.keys:
            yield from _strings(key, constants)
    elif isinstance(node, ast.Name):
        yield from constants.get(node.id, ())


def _asks_for_class(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
        return node.func.id in ("isinstance", "issubclass") and _names_class(node.args[1])
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
        calls = [o for o in operands if isinstance(o, ast.Call) and isinstance(o.func, ast.Name)]
        return any(call.func.id == "type" for call in calls) and any(map(_names_class, operands))
    return False


def _names_class(node: ast.AST) -> bool:
    parts = [getattr(part, "id", getattr(part, "attr", None)) for part in ast.walk(node)]
    return bool(_names().classes & {part for part in parts if part})


def _asks_for_name(node: ast.AST, constants: dict[str, list[str]]) -> bool:
    if isinstance(node, ast.Compare):
        texts = [text for operand in (node.left, *node.comparators) for text in _strings(operand, constants)]
        return any(text in _names().keys or _is_site(text) for text in texts)
    if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
        return any(
            part.ifs and any(map(_is_site, _strings(part.iter, constants))) for part in node.generators
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        texts = list(_strings(node.args[0], constants))
        if node.func.attr == "get" and not (
            isinstance(node.func.value, ast.Attribute) and node.func.value.attr == "attrs"
        ):
            return any(map(_is_site, texts))
        return node.func.attr == "startswith" and any(map(_is_stem, texts))
    return False
