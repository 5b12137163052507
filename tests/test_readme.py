"""The Python of the README runs as it stands there, and its commands are ones that the command line knows.

``.ci/run`` runs the commands themselves.
"""

import ast
import importlib
import re
import shlex
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def python_blocks():
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_python_blocks_import_what_there_is():
    trees = [ast.parse(block) for block in python_blocks()]
    named = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert len(trees) == 3 and named
    for node in named:
        module = importlib.import_module(node.module)
        assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)
    packages = {name: importlib.import_module(name) for name in ("inference", "zoo")}
    for node in (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)):
        if isinstance(node.value, ast.Name) and node.value.id in packages:
            assert hasattr(packages[node.value.id], node.attr), ast.unparse(node)


@pytest.mark.slow  # `.ci/run` runs the commands of the same fits
@pytest.mark.filterwarnings("default")  # ten draws of NUTS have no reason to converge
def test_python_blocks_run_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks()
    names = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    assert (tmp_path / "faithful.nc").stat().st_size > 0
    assert len(blocks) == 3 and names["prior"].shape == (3, 50, 2)
    assert (
        names["from_file"].attrs["num_observations"] == names["from_chunks"].attrs["num_observations"] == 5000
    )
    assert "num_occupied" in capsys.readouterr().out


def test_commands_are_words_of_the_command_line():
    from zoo.cli.arguments import parse

    text = README.read_text(encoding="utf-8")
    (block,) = re.findall(r"<!-- commands: session -->\n```bash\n(.*?)```", text, re.DOTALL)
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert {parse(words[1:]).command for words in lines} == {
        "list",
        "show",
        "fit",
        "predict",
        "report",
        "compare",
        "sweep",
    }
    assert all(words[0] == "zoo" for words in lines)


def test_every_shell_block_is_run_by_the_check():
    """A block without a marker would be one that ``.ci/run`` passes over."""
    text = README.read_text(encoding="utf-8")
    marked = set(re.findall(r"<!-- commands: (\w+) -->\n```bash\n", text))
    assert len(marked) + text.count("<!-- command: ") == text.count("```bash\n")
    check = (README.parent / ".ci" / "run").read_text(encoding="utf-8")
    assert set(re.findall(r'readme_block "commands: (\w+)"', check)) == marked
