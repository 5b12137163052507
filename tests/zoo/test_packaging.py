"""What is declared is what is used, and the house keeps its rules about who may import whom."""

import ast
import functools
import importlib
import pkgutil
import re
import sys
import tomllib
from pathlib import Path

import pytest

import zoo
from zoo.datasets import catalogue

pytestmark = pytest.mark.repo

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
DISTRIBUTIONS = {
    "IPython": "ipython",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "arviz_base": "arviz",
    "arviz_stats": "arviz",
    "arviz_plots": "arviz",
    "cca_zoo": "cca-zoo",
    "markdown_it": "markdown-it-py",
}
OURS = {"zoo", "inference"}


def declared(requirements):
    """Names of distributions in a list of requirements."""
    return {re.split(r"[\[<>=!~; ]", requirement)[0] for requirement in requirements}


def sources(*folders):
    """Path and syntax tree of every Python file of the folders."""
    return [found for folder in folders for found in _parsed(folder)]


@functools.cache
def _parsed(folder):
    return [(path, ast.parse(path.read_text())) for path in sorted((ROOT / folder).rglob("*.py"))]


def imports(tree):
    """Top-level names of the modules that a file imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.split(".")[0]


def third_party(*folders):
    """Distributions that the files import."""
    found = (
        {name for _, tree in sources(*folders) for name in imports(tree)}
        - OURS
        - set(sys.stdlib_module_names)
    )
    return {DISTRIBUTIONS.get(name, name) for name in found}


# An extra, and the files that may import what it installs.
OPTIONAL = {
    "sklearn": {"inference/estimators.py"},
    "notebooks": {"inference/course.py", "inference/estimators.py"},
}


def test_every_import_is_declared():
    extras = {name: declared(PROJECT["optional-dependencies"][name]) for name in OPTIONAL}
    assert third_party("zoo", "inference") <= declared(PROJECT["dependencies"]).union(*extras.values())


@pytest.mark.slow
@pytest.mark.parametrize("extra", OPTIONAL)
def test_what_an_extra_installs_is_imported_by_its_files_alone(extra):
    wanted = declared(PROJECT["optional-dependencies"][extra]) - declared(PROJECT["dependencies"])
    users = {
        path.relative_to(ROOT).as_posix()
        for path, tree in sources("zoo", "inference")
        if wanted & {DISTRIBUTIONS.get(name, name) for name in imports(tree)}
    }
    assert wanted and users <= OPTIONAL[extra]
    importers = {
        path.relative_to(ROOT).as_posix()
        for path, tree in sources("zoo", "inference")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and f"{node.module}".replace(".", "/") + ".py" in OPTIONAL[extra]
    }
    assert importers <= OPTIONAL[extra]  # nothing else needs them


def named(*folders):
    """Packages that a string names: engine="h5netcdf", importlib.import_module("sklearn.datasets")."""
    found = {
        node.value.split(".")[0]
        for _, tree in sources(*folders)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {DISTRIBUTIONS.get(name, name) for name in found}


def test_nothing_is_declared_that_is_not_used():
    folders = ("zoo", "inference")
    assert declared(PROJECT["dependencies"]) <= third_party(*folders) | named(*folders)


@pytest.mark.slow
def test_extras_install_what_tests_and_notebooks_import_and_no_more():
    extras = set().union(*map(declared, PROJECT["optional-dependencies"].values()))
    folders = ("zoo", "inference", "tests", "notebooks")
    local = {part for path, _ in sources("tests") for part in (path.stem, path.parent.name)} | {"notebooks"}
    assert third_party("tests", "notebooks") - local <= extras | declared(PROJECT["dependencies"])
    tools = {
        "ruff",
        "graphviz",
        "ipykernel",
        "jupytext",
        "mypy",
        "myst-nb",
        "nbclient",
        "pydata-sphinx-theme",
        "pytest-xdist",
        "sphinx",
        "sphinx-design",
        "sphinx-revealjs",
    }  # commands, what pytest and Sphinx load by themselves, and what NumPyro and Jupyter import
    assert extras <= third_party(*folders) | named(*folders) | tools


def test_the_wheel_and_the_source_archive_hold_the_shipped_data():
    """The whole folder goes in, so what the catalogue ships must lie in it; .ci/run loads it."""
    build = SETTINGS["tool"]["hatch"]["build"]["targets"]
    assert build["wheel"]["force-include"]["data"] == "zoo/data" and "data" in build["sdist"]["only-include"]
    shipped = [entry["file"] for entry in catalogue().values() if entry["kind"] == "shipped"]
    assert len(shipped) >= 5 and all((ROOT / "data" / name).is_file() for name in shipped)
    files = (path for path in (ROOT / "data").rglob("*") if path.is_file())
    assert sum(path.stat().st_size for path in files) < 700_000  # it stays small


def test_the_wheel_holds_the_notes_of_the_cards():
    """Hatch packs every file below a package but ignored ones; .ci/run calls `zoo show` from a wheel."""
    wheel = SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert "zoo" in wheel["packages"] and not {"include", "exclude", "only-include"} & set(wheel)
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8")
    assert "toml" not in ignored and list((ROOT / "zoo").rglob("*.toml"))


def test_the_distribution_is_called_neither_zoo_nor_inference():
    assert PROJECT["name"] not in OURS
    assert PROJECT["requires-python"] == ">=3.12" and PROJECT["scripts"] == {"zoo": "inference.cli:main"}


def test_one_version():
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    newest = next(heading for heading in headings if heading != "Unreleased")
    (cited,) = re.findall(
        r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert "version" not in PROJECT and SETTINGS["tool"]["hatch"]["version"] == {"path": "zoo/__init__.py"}
    assert cited == zoo.__version__ == newest


FACES = ("calibration", "convergence", "diagnostics", "plots", "report", "symmetry", "topics")


@pytest.mark.parametrize("package", ["zoo", "inference", *(f"inference.{face}" for face in FACES)])
def test_no_module_bears_the_name_of_a_public_function(package):
    """A lazily exported function would be replaced by its module at the first import of that."""
    module = importlib.import_module(package)
    modules = {info.name for info in pkgutil.iter_modules(module.__path__)}
    public = {name for name in module.__all__ if not isinstance(getattr(module, name), type(sys))}
    assert public and not public & modules


#: Modules from which users or authors of models import, beside the packages.
IMPORTED_FROM = {
    "inference/component_subspaces.py", "inference/course.py", "inference/estimators.py",
    "inference/gibbs.py", "zoo/model.py",
}  # fmt: skip


@pytest.mark.parametrize("folder", ["zoo", "inference"])
def test_modules_that_users_import_from_say_what_is_public_and_no_others(folder):
    for path, tree in sources(folder):
        names = {
            t.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            for t in node.targets
            if isinstance(t, ast.Name)
        }
        own = path.relative_to(ROOT).as_posix()
        is_face = own in IMPORTED_FROM or (path.name == "__init__.py" and len(tree.body) > 1)
        assert ("__all__" in names) == is_face, own
        assert ast.get_docstring(tree), own


@pytest.mark.parametrize("name", ["fit", "test"])
def test_readme_commands_are_one_line_that_makes_its_own_environment(name):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(rf"<!-- command: {name} -->\n```bash\n(.*?)```", text, re.DOTALL)
    assert block.count("\n") == 1 and block.startswith("python3.12 -m venv --clear ")
    assert block.strip().endswith({"fit": "zoo fit mixture faithful", "test": "-m pytest"}[name])


@pytest.mark.parametrize("package", sorted(OURS))
def test_type_checkers_see_every_lazy_name(package):
    """What `__getattr__` imports is imported under ``if TYPE_CHECKING:`` too, from the same module."""
    folder, face = ROOT / package, importlib.import_module(package)
    assert (folder / "py.typed").is_file()
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    (block,) = (
        n for n in tree.body if isinstance(n, ast.If) and getattr(n.test, "id", "") == "TYPE_CHECKING"
    )
    seen = {(own.asname, n.module) for n in block.body for own in n.names if own.asname == own.name}
    prefix = "" if package == "zoo" else "inference."
    wanted = {(name, prefix + module) for name, module in face._PUBLIC.items()}
    modules = face._SUBMODULES if package == "zoo" else face._MODULES
    assert seen == wanted | {(name, package) for name in modules}
    assert not {"Any", "Mapping", "importlib", "TYPE_CHECKING"} & set(dir(face))
