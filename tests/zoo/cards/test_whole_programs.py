"""Printed programs are whole: all that they call on the model is a field, printed too, or of every model."""

import ast
import dataclasses
import importlib
import re
import sys
import textwrap
import typing
from pathlib import Path

import pytest

import zoo
from zoo import MODELS
from zoo.cards import read_card
from zoo.cards.program import program_of
from zoo.model import Model

# ``self.x``, ``prior.x`` and ``in_current_precision(self).x``
OF_MODEL = re.compile(r"\b(?:self|prior)\)?\.((?!__)\w+)")


def printed_names(program):
    """Functions, classes and constants that a printed program defines."""
    for node in ast.parse(program).body:
        yield from [node.name] if hasattr(node, "name") else [target.id for target in node.targets]


def missing_names(program, fields):
    """Attributes of the model that a program uses and neither prints nor has from a field or `zoo.model`."""
    own = (node for node in ast.parse(program).body if not isinstance(node, ast.ClassDef))
    used = set(OF_MODEL.findall("\n".join(ast.get_source_segment(program, node) for node in own)))
    return used - set(printed_names(program)) - set(fields) - set(dir(Model))


def class_and_files(name):
    """The class of a model, and the sources of it and of its base classes in the zoo."""
    model = getattr(importlib.import_module(MODELS[name]["module"]), MODELS[name]["class"])
    homes = [base.__module__ for base in model.__mro__ if base.__module__.startswith("zoo.")]
    if model.program is not Model.program:  # and of what its program calls: functions, and classes of parts
        called = vars(sys.modules[homes[0]]).values()
        called = [member for own in called for member in typing.get_args(own) or (own,)]
        of_called = (getattr(own, "__module__", "") or "" for own in called)
        homes += sorted({home for home in of_called if home.startswith("zoo.")} - set(homes))
    return model, [Path(importlib.import_module(home).__file__).read_text("utf-8") for home in homes]


@pytest.mark.parametrize("name", MODELS)
def test_a_printed_program_calls_nothing_of_the_model_that_is_not_printed(name):
    model, _ = class_and_files(name)
    program = read_card(name).program
    assert program.startswith(("def __call__(", "def program("))
    assert not missing_names(program, {field.name for field in dataclasses.fields(model)})


@pytest.mark.parametrize("name", MODELS)
def test_functions_of_the_file_are_printed_where_the_program_calls_them(name):
    _, (source, *_) = class_and_files(name)
    program = read_card(name).program
    functions = {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    called = {node.id for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Name)}
    assert called & functions <= set(printed_names(program))


@pytest.mark.parametrize("name", MODELS)
def test_a_program_is_printed_as_it_stands_in_its_file(name):
    _, sources = class_and_files(name)
    program = read_card(name).program
    nodes = ast.parse(program).body
    parts = [part for node in nodes for part in (node.body if isinstance(node, ast.ClassDef) else [node])]
    for node in parts:
        first = min([node.lineno, *(mark.lineno for mark in getattr(node, "decorator_list", ()))])
        block = "\n".join(program.splitlines()[first - 1 : node.end_lineno])
        assert any(block in text or textwrap.indent(block, "    ") in text for text in sources), block


PLANTED = """
from zoo.model import Model, in_current_precision

SCALE = 2.0
UNUSED = 3.0


def scaled(x):
    return SCALE * x


class Rows:
    def missing_here(self):
        return 1


class Planted(Model):
    num_latents: int = 2

    def __call__(self, x=None):
        prior, size = in_current_precision(self), 2  # a comment stays
        self._helper(x)
        return prior._of_prior(size), self.{called}

    def _helper(self, x):
        return scaled(x) + self._second

    @property
    def _second(self):
        return   self.num_latents * self.draw_locals

    def _of_prior(self, size):
        return size

    def not_called(self):
        return UNUSED
"""


def planted(tmp_path, called):
    path = tmp_path / "planted.py"
    path.write_text(PLANTED.replace("{called}", called), encoding="utf-8")
    return program_of(path, "Planted")


def test_a_helper_that_is_not_in_the_file_is_found_out(tmp_path):
    whole = planted(tmp_path, "num_latents")
    assert list(printed_names(whole)) == ["__call__", "_helper", "_second", "_of_prior", "SCALE", "scaled"]
    assert missing_names(whole, {"num_latents"}) == set()
    assert "# a comment stays" in whole and "return   self.num_latents" in whole and "@property" in whole
    assert missing_names(planted(tmp_path, "missing_here()"), {"num_latents"}) == {"missing_here"}
    assert missing_names(planted(tmp_path, "num_latents"), set()) == {"num_latents"}


def test_a_shipped_model_whose_helper_is_elsewhere_is_found_out(tmp_path):
    source = Path(zoo.__file__).with_name("sppca.py").read_text(encoding="utf-8")
    assert source.count("def block(") == 1
    path = tmp_path / "sppca.py"
    path.write_text(source.replace("def block(", "def _elsewhere("), encoding="utf-8")
    fields = {field.name for field in dataclasses.fields(zoo.SPPCA)}
    assert missing_names(program_of(path, "SPPCA"), fields) == {"block"}


def test_a_base_class_of_another_file_of_the_zoo_is_printed_under_its_name():
    program = read_card("lda").program
    assert program.index("def program(") < program.index(
        "topic_model.py\n\n@property\ndef shares_concentration("
    )


@pytest.mark.parametrize(
    ("name", "methods"),
    [
        ("sppca", {"Primal": {"sample", "rows"}, "FeatureSpace": {"sample", "rows"}, "Probit": {"sample"}}),
        *((name, {"StickBreaking": {"sample"}}) for name in ("mixture", "mcfa", "depcam", "pcp")),
    ],
)
def test_what_a_program_calls_on_a_part_of_the_model_is_printed_with_its_class(name, methods):
    """The inputs and outputs of `zoo.SPPCA`; the sticks, without which no prior of weights is to be seen."""
    nodes = ast.parse(read_card(name).program).body
    printed = {own.name: set(printed_names_of(own)) for own in nodes if isinstance(own, ast.ClassDef)}
    for part, called in methods.items():
        assert called <= printed[part]
        assert "expected_weights" not in printed[part] and "latents_with" not in printed[part]


def printed_names_of(node):
    """Methods of a printed class."""
    return (own.name for own in node.body if isinstance(own, ast.FunctionDef))
