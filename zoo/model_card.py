"""The source of a model's program, read from its file without importing it."""

import ast

__all__ = []


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
