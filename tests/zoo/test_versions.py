"""Which versions are installed, which are allowed, and which a developer gets."""

import importlib.metadata
import importlib.util
import platform
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import zoo
from zoo.datasets import read_tables

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def test_versions_are_those_of_what_is_installed(capsys, monkeypatch):
    declared = [Requirement(entry).name for entry in PROJECT["dependencies"]]
    versions = {package: importlib.metadata.version(package) for package in declared} | {"tqdm": None}

    def version(package):
        if versions.get(package, "0.0") is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return versions.get(package, "0.0")

    required = [*PROJECT["dependencies"], "openpyxl>=3.1; extra == 'excel'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda package: required)
    monkeypatch.setattr(importlib.metadata, "version", version)
    zoo.show_versions()
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith(f"Python {platform.python_version()}, probabilistic-model-zoo 0.0, ")
    assert "tqdm (not installed)" in printed and "openpyxl" not in printed
    assert all(f"{package} {found}" in printed for package, found in versions.items() if found)


def test_a_clone_that_is_not_installed_says_so(capsys, monkeypatch):
    def missing(package):
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "requires", missing)
    monkeypatch.setattr(importlib.metadata, "version", missing)
    zoo.show_versions()
    assert capsys.readouterr().out.endswith("probabilistic-model-zoo (not installed)\n")


def test_the_constraints_fit_what_is_declared():
    """Every requirement is pinned once for each environment, to a version within its bounds."""
    lines = (ROOT / ".ci/constraints.txt").read_text(encoding="utf-8").split("\n")
    pinned = {}
    for line in filter(None, lines):
        name, version = re.match(r"([a-z0-9-]+)==([\w.]+)( ; .+)?$", line).groups()[:2]
        pinned.setdefault(name, []).append(version)
    for entry in (*PROJECT["dependencies"], *EXTRAS["test"], *EXTRAS["notebooks"], *EXTRAS["docs"]):
        required = Requirement(entry)
        assert all(version in required.specifier for version in pinned[required.name]), entry


@pytest.mark.parametrize(("ending", "package"), [(".parquet", "pyarrow"), (".xlsx", "openpyxl")])
def test_packages_of_extras_are_named_by_what_needs_them(ending, package, tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    path = tmp_path / f"table{ending}"
    path.write_bytes(b"PK\x03\x04PAR1")
    with pytest.raises(ModuleNotFoundError, match=f"{ending} files need {package}, .*pip install"):
        read_tables(path)
