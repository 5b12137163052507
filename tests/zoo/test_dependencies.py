"""A name that another package lacks is one ImportError with its version and those that were tested."""

import importlib.util
import inspect
import os
import platform
import re
import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest

import inference
import zoo
from inference import (
    calibration,
    component_subspaces,
    diagnostics,
    plots,
    report,
    symmetry,
    topics,
)
from inference.fitting import front_door
from zoo.datasets import read_tables
from zoo.dependencies import naming_versions

ROOT = Path(__file__).parents[2]
TESTED = tomllib.loads((ROOT / "zoo/dependencies/tested.toml").read_text(encoding="utf-8"))
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]


def _from_import():
    from numpyro import no_such_name  # noqa: F401


def _submodule():
    import jax.no_such_module  # noqa: F401


def test_versions_are_those_of_what_is_installed(capsys, monkeypatch):
    versions = {package: importlib.metadata.version(package) for package in TESTED}
    monkeypatch.setitem(versions, "tqdm", None)

    def version(package):
        if versions.get(package, "0.0") is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return versions.get(package, "0.0")

    monkeypatch.setattr(importlib.metadata, "version", version)
    zoo.show_versions()
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith(f"Python {platform.python_version()}, probabilistic-model-zoo 0.0, ")
    assert "tqdm (not installed)" in printed
    assert all(f"{package} {found}" in printed for package, found in versions.items() if found)


@pytest.mark.parametrize(
    ("use", "package", "name"),
    [
        (lambda: jax.numpy.no_such_name, "jax", "jax.numpy.no_such_name"),
        (lambda: np.no_such_name, "numpy", "numpy.no_such_name"),
        (_from_import, "numpyro", "numpyro.no_such_name"),
        (_submodule, "jax", "jax.no_such_module"),
    ],
)
def test_a_name_that_a_dependency_lacks(use, package, name):
    low, high = TESTED[package]
    version = re.escape(importlib.metadata.version(package))
    with (
        pytest.raises(
            ImportError, match=f"^{package} {version} has no {name}, .* {low} to {high}: pip install"
        ),
        naming_versions(),
    ):
        use()


def test_fit_and_the_faces_name_versions(monkeypatch):
    monkeypatch.setattr(front_door, "plan", lambda request: jax.no_such_name)
    x = np.random.default_rng(0).normal(size=(12, 3))
    with pytest.raises(ImportError, match="^jax .* has no jax.no_such_name"):
        inference.fit(zoo.PPCA(num_latents=1), x)
    monkeypatch.setitem(zoo._PUBLIC, "Gone", "zoo.gone")
    found = {"importlib.metadata": importlib.metadata}
    monkeypatch.setattr(importlib, "import_module", lambda name: found.get(name) or jax.no_such_name)
    with pytest.raises(ImportError, match="^jax .* has no jax.no_such_name"):
        zoo.__getattr__("Gone")
    monkeypatch.setitem(inference._PUBLIC, "gone", "gone")
    with pytest.raises(ImportError, match="^jax .* has no jax.no_such_name"):
        inference.__getattr__("gone")


FACES = (inference, report, calibration, component_subspaces, diagnostics, plots, symmetry, topics)
NAMED = [
    function
    for function in (getattr(face, name) for face in FACES for name in face.__all__)
    if inspect.isfunction(function) and function.__module__.startswith("inference")
]


@pytest.mark.parametrize("function", NAMED, ids=lambda function: function.__name__)
def test_public_functions_name_versions_whenever_they_are_called(function, monkeypatch):
    """The body of each is replaced by one that uses a name that is missing."""
    inner = inspect.unwrap(function)
    assert inner is not function
    monkeypatch.setattr(inner, "__code__", (lambda *args, **settings: np.no_such_name).__code__)
    monkeypatch.setitem(inner.__globals__, "np", np)  # not all of these modules use it
    with pytest.raises(ImportError, match="^numpy .* has no numpy.no_such_name, .* was tested with numpy"):
        function(*[None] * 3)


def test_other_errors_pass_unchanged():
    for use, kind in (
        (lambda: os.no_such_name, AttributeError),
        (lambda: object().no_such_name, AttributeError),
        (lambda: __import__("no_such_package"), ModuleNotFoundError),
        (lambda: __import__("json.no_such_module"), ModuleNotFoundError),
        (lambda: {}["a"], KeyError),
    ):
        with pytest.raises(kind) as caught, naming_versions():
            use()
        assert caught.type is kind and "tested" not in str(caught.value)


def test_a_newer_version_says_nothing(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "99.0")
    with naming_versions():
        assert zoo.__getattr__("PPCA") is zoo.PPCA


def test_the_lowest_tested_versions_are_those_that_are_declared():
    declared = dict(re.fullmatch(r"([a-z0-9]+)>=([\d.]+)", entry).groups() for entry in DECLARED)
    assert TESTED.keys() == declared.keys()
    for name, low in declared.items():
        assert f"{TESTED[name][0]}.0".startswith(f"{low}."), name


@pytest.mark.parametrize(("ending", "package"), [(".parquet", "pyarrow"), (".xlsx", "openpyxl")])
def test_packages_of_extras_are_named_by_what_needs_them(ending, package, tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    path = tmp_path / f"table{ending}"
    path.write_bytes(b"PK\x03\x04PAR1")
    with pytest.raises(ModuleNotFoundError, match=f"{ending} files need {package}, .*pip install"):
        read_tables(path)
