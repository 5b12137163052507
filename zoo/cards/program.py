"""The source of a model's program, read from its file without importing it."""

import ast
import sys
import textwrap
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import zoo


class ProgramLine(NamedTuple):
    """A line of a program as it is shown.

    Attributes:
        text: the line, dedented.
        file: that it stands in; None for a line between statements.
        number: in that file, from 1.
    """

    text: str
    file: Path | None = None
    number: int = 0


def program_of(path: Path, class_name: str) -> str:
    """The source of a model's program, see `program_lines`."""
    return "\n".join(line.text for line in program_lines(path, class_name))


def program_lines(path: Path, class_name: str) -> list[ProgramLine]:
    """The source of a model's ``program``, else its ``__call__``, and of all that it calls on the model.

    That is transitive: methods and properties of the model or of its base classes (`zoo.model` apart), and
    the functions, classes and constants of the same file that these use; and functions that a ``program``
    itself calls of other files. Each is copied from its file, methods dedented; those of another file follow
    under the name of that file. Where a property says that the model has objects of other classes, such as
    the inputs of `zoo.SPPCA` or the weights of a mixture, the methods that the program calls on these follow.
    """
    classes = list(_lineage(path, class_name))
    methods: dict[str, tuple[Path, ast.FunctionDef]] = {}
    for file, body in classes:
        for node in body.body:
            if isinstance(node, ast.FunctionDef):
                methods.setdefault(node.name, (file, node))
    models = {body.name for _, body in classes}
    helpers = {file: {n: node for n, node in _definitions(file) if n not in models} for file, _ in classes}
    wanted: list[tuple[Path, ast.stmt]] = []
    first = methods.get("program", methods.get("__call__"))
    queue: list[tuple[Path, ast.stmt]] = [] if first is None else [first]
    if first is not None and first[1].name == "program":  # which is short for what it calls of other files
        used = {part.id for part in ast.walk(first[1]) if isinstance(part, ast.Name)}
        queue += [(home, own) for name, home, own in _imported(first[0]) if name in used]
        helpers |= {file: {} for file, _ in queue[1:]}
    while queue:
        file, node = queue.pop(0)
        if (file, node) in wanted:
            continue
        wanted.append((file, node))
        queue += [methods[name] for name in _names_of_self(node) if name in methods]
        names = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
        queue += [(file, helpers[file][name]) for name in names if name in helpers[file]]
    held = [own for of, node in wanted for own in _held(of, node)]
    of_others = {file: [node for home, node in held if home == file] for file, _ in held}
    parts_of_program = ast.walk(wanted[0][1]) if wanted else ()
    attributes = [part for part in parts_of_program if isinstance(part, ast.Attribute)]
    asked = {part.attr for part in attributes if getattr(part.value, "id", "") != "self"}
    lines: list[ProgramLine] = []
    for file in {**helpers, **of_others}:
        nodes = [node for of, node in wanted if of == file]
        # the program first, then the methods that it calls, then the helpers
        nodes.sort(key=lambda node: (node.col_offset == 0, node is not wanted[0][1], node.lineno))
        parts = [_source(file, node) for node in nodes]
        parts += [_parts_of_class(file, node, asked) for node in of_others.get(file, ())]
        if parts and file != path:
            lines += [ProgramLine(f"# {file.parent.name}/{file.name}"), ProgramLine("")]
        for part in parts:
            lines += [*part, ProgramLine("")]
    return lines[:-1]


def _held(path: Path, node: ast.stmt) -> Iterator[tuple[Path, ast.ClassDef]]:
    """The classes of other files, models apart, that the annotation of a property names; or their union."""
    if not (isinstance(node, ast.FunctionDef) and node.returns and node.decorator_list):
        return
    for name in (part.id for part in ast.walk(node.returns) if isinstance(part, ast.Name)):
        for home in _homes(path, name):
            definitions = dict(_definitions(home))
            union = definitions.get(name)
            of_union = ast.walk(union.value) if isinstance(union, ast.Assign) else ()
            for member in [part.id for part in of_union if isinstance(part, ast.Name)] or [name]:
                own = definitions.get(member)
                if isinstance(own, ast.ClassDef) and "Model" not in map(ast.unparse, own.bases):
                    yield home, own


def _homes(path: Path, name: str) -> Iterator[Path]:
    """The module of the zoo, `zoo.model` apart, from which a file imports a name."""
    for node in parsed(path).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module != "zoo.model":
            home = module_file(node.module)
            if home is not None and name in {alias.name for alias in node.names}:
                yield home


def _parts_of_class(path: Path, node: ast.ClassDef, asked: Collection[str]) -> list[ProgramLine]:
    """The head of a class, the methods that are asked for, and those that these call; or nothing."""
    methods = {own.name: own for own in node.body if isinstance(own, ast.FunctionDef)}
    queue, names = [name for name in methods if name in asked], set[str]()
    while queue:
        names.add(name := queue.pop(0))
        queue += [own for own in _names_of_self(methods[name]) if own in methods and own not in names]
    if not names:
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    last = node.body[0].end_lineno or node.lineno  # of the docstring
    shown = [ProgramLine(lines[number - 1], path, number) for number in range(node.lineno, last + 1)]
    for own in methods.values():
        if own.name in names:
            of_method = (
                line._replace(text=textwrap.indent(line.text, "    ")) for line in _source(path, own)
            )
            shown += [ProgramLine(""), *of_method]
    return shown


def _lineage(path: Path | None, class_name: str) -> Iterator[tuple[Path, ast.ClassDef]]:
    """A class and its bases, each with its file, except `zoo.model` and files outside of the zoo."""
    if path is None or path == module_file("zoo.model"):
        return
    module = parsed(path)
    homes = {
        name.asname or name.name: node.module
        for node in module.body
        if isinstance(node, ast.ImportFrom) and node.module
        for name in node.names
    }
    if class_name in homes:  # a package that exports the class of one of its modules
        yield from _lineage(module_file(homes[class_name]), class_name)
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            yield path, node
            for base in (part.id for part in node.bases if isinstance(part, ast.Name)):
                yield from _lineage(module_file(homes[base]) if base in homes else path, base)


def module_file(module: str) -> Path | None:
    """The file of a module of the zoo, found without importing it; None for modules outside it.

    Returns:
        The file, or None.
    """
    place = Path(zoo.__file__).parents[1].joinpath(*module.split("."))
    found = (place.with_suffix(".py"), place / "__init__.py")
    return next((file for file in found if module.startswith("zoo.") and file.is_file()), None)


def registered_file(module: str) -> Path:
    """The file of a module outside the zoo that is imported already.

    Raises:
        ValueError: the module is no file, but an interactive session.
    """
    file = getattr(sys.modules[module], "__file__", None)
    if file is None:
        raise ValueError(f"the module {module} has no file: write the model into one to have its card")
    return Path(file)


def _imported(path: Path) -> Iterator[tuple[str, Path, ast.FunctionDef]]:
    """The functions that a file imports from modules of the zoo; how programs run is told elsewhere."""
    for node in parsed(path).body:
        if not isinstance(node, ast.ImportFrom) or node.module in (None, "zoo.model", "zoo.programs"):
            continue
        home, names = module_file(node.module), {alias.name for alias in node.names}
        if home is None:
            continue
        for own in parsed(home).body:
            if isinstance(own, ast.FunctionDef) and own.name in names:
                yield own.name, home, own


def _definitions(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """The functions, classes and constants of a file by name."""
    for node in parsed(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign):
            yield from ((target.id, node) for target in node.targets if isinstance(target, ast.Name))


def _names_of_self(function: ast.stmt) -> list[str]:
    """Names of the attributes of the model, or of its copy in current precision, that a function uses."""
    models = {"self"}

    def is_model(node: ast.expr) -> bool:
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "in_current_precision":
            node = node.args[0]
        return isinstance(node, ast.Name) and node.id in models

    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            pairs = zip(getattr(target, "elts", [target]), getattr(value, "elts", [value]), strict=False)
            models |= {name.id for name, of in pairs if isinstance(name, ast.Name) and is_model(of)}
    return [
        node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute) and is_model(node.value)
    ]


def _source(path: Path, node: ast.stmt) -> list[ProgramLine]:
    """The lines of a statement with its decorators, dedented if it is in a class."""
    lines = path.read_text(encoding="utf-8").splitlines()
    first = min([node.lineno, *(part.lineno for part in getattr(node, "decorator_list", ()))])
    indent = " " * node.col_offset
    kept = enumerate(lines[first - 1 : node.end_lineno], start=first)
    return [ProgramLine(line.removeprefix(indent), path, number) for number, line in kept]


def parsed(path: Path) -> ast.Module:
    """Parse a file, once for each version of its text."""
    return _tree(path.read_text(encoding="utf-8"))


_tree = cache(ast.parse)
