"""The Python of the README runs as it stands there, and its commands are ones that the command line knows.

``.ci/run`` runs the commands themselves.
"""

import ast
import importlib
import re
import shlex
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
GUIDE = README.parent / "notebooks" / "guide" / "command_line.md"


def python_blocks():
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_python_blocks_import_what_there_is():
    trees = [ast.parse(block) for block in python_blocks()]
    named = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert len(trees) == 1 and named
    for node in named:
        module = importlib.import_module(node.module)
        assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)
    packages = {name: importlib.import_module(name) for name in ("inference", "zoo")}
    for node in (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)):
        if isinstance(node.value, ast.Name) and node.value.id in packages:
            assert hasattr(packages[node.value.id], node.attr), ast.unparse(node)


def test_python_block_prints_what_stands_below_it(tmp_path, monkeypatch, capsys):
    """To the digits that the page prints the fit is the same on every machine."""
    monkeypatch.chdir(tmp_path)
    text = README.read_text(encoding="utf-8")
    (block,) = python_blocks()
    exec(compile(block, str(README), "exec"), {"__name__": "readme"})
    assert (tmp_path / "faithful.nc").stat().st_size > 0
    (shown,) = re.findall(r"<!-- output: python -->\n```text\n(.*?)```", text, re.DOTALL)
    printed = capsys.readouterr().out
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()


def test_it_is_read_in_a_minute():
    assert README.read_text(encoding="utf-8").count("\n") <= 130


def test_links_lead_to_files():
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8"))
    assert links and [link for link in links if not (README.parent / link).exists()] == []


def test_commands_are_words_of_the_command_line():
    from inference.cli.options import parse

    text = GUIDE.read_text(encoding="utf-8")
    (block,) = re.findall(r"<!-- commands: session -->\n```bash\n(.*?)```", text, re.DOTALL)
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert {parse(words[1:]).command for words in lines} == {
        "list",
        "show",
        "fit",
        "predict",
        "explain",
        "check",
        "report",
        "film",
        "compare",
        "sweep",
    }
    assert all(words[0] == "zoo" for words in lines)


def test_every_shell_block_is_run_by_the_check():
    """A block without a marker would be one that ``.ci/run`` passes over."""
    check = (README.parent / ".ci" / "run").read_text(encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    assert text.count("<!-- command: ") == text.count("```bash\n") == 2
    text = GUIDE.read_text(encoding="utf-8")
    marked = set(re.findall(r"<!-- commands: (\w+) -->\n```bash\n", text))
    assert len(marked) == text.count("```bash\n")
    assert set(re.findall(r'block \$guide "commands: (\w+)"', check)) == marked
