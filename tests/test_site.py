"""The documentation's sources: what the build relies on, checked without building it (``.ci/run`` builds it)."""

import ast
import importlib
import re
from pathlib import Path

import pytest
from pages.site import QUESTIONS, clicks, faults_of, read_site

import inference
import zoo
from notebooks._site.models import PICTURES
from notebooks._site.reference import MODULES, public_names

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
PAGES = sorted([*(NOTEBOOKS / "guide").glob("*.md"), NOTEBOOKS / "gallery.md"])
CELL = re.compile(r"```\{code-cell\} python\n(?:---\n.*?---\n)?(.*?)```", re.DOTALL)


def test_the_reference_has_every_module_that_users_import_from():
    faces = {f"inference.{name}" for name in inference._MODULES} | {f"zoo.{name}" for name in zoo._SUBMODULES}
    assert faces | {"zoo", "inference", "zoo.exponential_family"} == set(MODULES)
    assert all(public_names(module) for module in MODULES)


def test_every_model_has_an_example_with_a_picture():
    plots = importlib.import_module("inference.plots")
    assert set(PICTURES) == set(zoo.MODELS)
    for call, words in PICTURES.values():
        assert re.match(r"plots\.(\w+)\(", call)[1] in plots.__all__ and words


def test_every_page_of_the_guide_is_in_its_list_once():
    text = (NOTEBOOKS / "guide" / "index.md").read_text(encoding="utf-8")
    listed = re.search(r":maxdepth: 1\n\n(.*?)```", text, re.DOTALL)[1].split()
    assert sorted([*listed, "index"]) == [path.stem for path in sorted((NOTEBOOKS / "guide").glob("*.md"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_code_of_the_guide_imports_what_there_is(path):
    text = path.read_text(encoding="utf-8")
    if "{code-cell}" in text:
        assert text.startswith("---\nfile_format: mystnb\n"), "else the cells are not executed"
    for cell in CELL.findall(text):
        for node in ast.walk(ast.parse(cell)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)


def write_site(folder, change=lambda name, text: text):
    """A site of three pages that has nothing wrong."""
    answers = "".join(f"<p>{words}</p>" for words in QUESTIONS.values())
    pages = {
        "index.html": '<a href="guide/a.html">a</a><a href="https://example.org">elsewhere</a>',
        "guide/a.html": '<a href="../b.html#zoo.Mixture">b</a><img src="../b.png" alt="words">',
        "b.html": f'<p id="zoo.Mixture">x</p>{answers}',
    }
    (folder / "guide").mkdir()
    (folder / "b.png").write_bytes(b"")
    for name, text in pages.items():
        (folder / name).write_text(change(name, text), encoding="utf-8")
    return folder


def test_a_site_without_faults_has_none(tmp_path):
    site = write_site(tmp_path)
    assert faults_of(site, ["zoo.Mixture"]) == []
    assert clicks(read_site(site), QUESTIONS["How do I cite it?"]) == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("guide/a.html", "guide/other.html", "nothing at"),
        ("#zoo.Mixture", "#zoo.Other", "no such place"),
        ('alt="words"', 'alt=""', "a picture without words"),
        ('src="../b.png"', 'src="https://example.org/b.png"', "from another host"),
        ('id="zoo.Mixture"', 'id="other"', "no page describes zoo.Mixture"),
        ("The same call resumes it, bit for bit", "something else", "no answer"),
    ],
)
def test_planted_faults_of_a_site_are_found(tmp_path, old, new, said):
    site = write_site(tmp_path, lambda name, text: text.replace(old, new))
    assert any(said in fault for fault in faults_of(site, ["zoo.Mixture"]))
