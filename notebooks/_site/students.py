"""Copies of the course for students: the answers taken out, what checks them left in.

``python -m notebooks._site.students FOLDER`` writes every notebook without its answers. A cell that begins
with ``# Answer`` keeps its assertions and names what later cells expect of it; all else is the student's.
"""

import argparse
import ast
import json
import sys
from pathlib import Path

__all__ = ["main", "without_answers"]

NOTEBOOKS = Path(__file__).parents[1]


def _stored(node: ast.AST) -> set[str]:
    inner = {n for c in ast.walk(node) if isinstance(c, ast.comprehension) for n in ast.walk(c.target)}
    names = {n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    functions = {n.name for n in ast.walk(node) if isinstance(n, ast.FunctionDef)}
    return {n.id for n in names - inner} | functions


def _read(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _code(cell: dict) -> str:
    lines = "".join(cell["source"]).splitlines()
    return "\n".join(line for line in lines if not line.startswith(("%", "!")))


def without_answers(notebook: dict) -> dict:
    """A notebook whose answers are left to the student.

    Args:
        notebook: as in its file.

    Returns:
        A copy: in place of each answer a comment, which names the variables that later cells read, and the
        assertions of the answer.
    """
    cells = [dict(cell) for cell in notebook["cells"]]
    for number, cell in enumerate(cells):
        if cell["cell_type"] != "code" or not "".join(cell["source"]).startswith("# Answer"):
            continue
        tree = ast.parse(_code(cell))
        later = [ast.parse(_code(own)) for own in cells[number + 1 :] if own["cell_type"] == "code"]
        asserted = [node for node in tree.body if isinstance(node, ast.Assert)]
        expected = _stored(tree) & set().union(*map(_read, [*later, *asserted]))
        lines = ["# Your answer" + (f", which gives: {', '.join(sorted(expected))}" if expected else "")]
        lines += ["", *map(ast.unparse, asserted)] if asserted else []
        cell["source"] = "\n".join(lines).splitlines(keepends=True)
    return notebook | {"cells": cells}


def main(arguments: list[str] | None = None) -> int:
    """Write the copies into a folder; the exit status is 0."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    folder.mkdir(parents=True, exist_ok=True)
    if folder.resolve() == NOTEBOOKS.resolve():
        parser.error("name another folder than that of the course, whose notebooks would be replaced")
    for path in sorted([*NOTEBOOKS.glob("*.ipynb"), *NOTEBOOKS.glob("kits/*.ipynb")]):
        notebook = without_answers(json.loads(path.read_text(encoding="utf-8")))
        text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        (folder / path.name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
