"""The rooms of the house and who may import whom, read off the source with `ast`: nothing is imported.

Each rule is a function from the files (path to source) to the list of violations. It must find none in the
project, and each has planted violations that it must find.
"""

import ast
import functools
from pathlib import Path

import pytest

from tests.support.architecture_names import model_tests

pytestmark = pytest.mark.repo

ROOT = Path(__file__).parents[1]

#: A module imports from its own room or from rooms in earlier strings.
LAYERS = (
    "zoo",
    "program_cache processes settings",
    "algorithm precision",
    "coordinates numerics",
    "inputs results",
    "driver methods convergence",
    "fitting symmetry batched_answers",
    "prediction",
    "evidence extension explanation",
    "component_subspaces calibration",
    "topics",
    "diagnostics",
    "plots",
    "report estimators gibbs course",
    "cli",
)
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms.split()}

#: Rooms that the methods of a model may import, beside their own folder.
BELOW_METHODS = {"zoo", "algorithm", "precision", "numerics", "results", "settings"}
SHARED_METHODS = {"gibbs_sweep", "linear_gaussian", "epca", "documents", "nuts_hmc", "tempered"}
#: The models whose methods another model's methods start from or refine.
METHODS_OF_OTHERS = {
    "sppca": {"ppca"},
    "pcp": {"lda", "plsi"},
    "depcam": {"mixture"},
    "mcfa": {"mixture", "ppca"},
    "epca": set(),
}

#: Faces: packages that export names of the modules below them.
LAZY = {"zoo/__init__.py", "inference/__init__.py"}
#: ``python -m zoo``, which is run and never imported: the only file of `zoo` that knows the command line.
SCRIPT = "zoo/__main__.py"
#: What notebooks import, which hands them the faces; no module of the packages does.
FOR_NOTEBOOKS = "inference/course.py"

#: Words that every algorithm uses for its parts, and pairs that the contract names in two places.
SHARED_WORDS = {
    "ALGORITHM", "METHOD", "METHODS", "build", "check", "conclude", "covariance", "guide", "in_batches",
    "init", "log_density", "position", "predict", "prepare", "solve", "start", "step", "transform",
}  # fmt: skip
MOST_MODULES = 24

#: Models whose program is ``program``, run by `zoo.programs`; the others follow.
MOVED = (
    "zoo/depcam.py",
    "zoo/epca.py",
    "zoo/kernel_pca.py",
    "zoo/lda.py",
    "zoo/mcfa.py",
    "zoo/mixture.py",
    "zoo/paired.py",
    "zoo/pcp.py",
    "zoo/plsi.py",
    "zoo/ppca.py",
    "zoo/sppca.py",
)
FIRST_LINES = 80  # after the module's docstring, in which such a program stands
#: What no program names: units and coordinates, and the numbers' precision.
OF_UNITS = {
    "Unit", "InUnits", "Coordinates", "Freedom", "own_coordinates", "units", "unit", "units_of_fields",
    "standardize", "column_scale", "scale_of", "origin", "origin_of", "noise_factors",
}  # fmt: skip
OF_PRECISION = {
    "in_current_precision", "astype", "dtype", "float32", "float64", "enable_x64", "finfo", "asarray",
    "array",
}  # fmt: skip
#: Members by which a model would move its data itself, or answer in two coordinates.
MECHANISMS = {
    "__call__", "origin", "shifted", "recentred", "location_sites", "in_standard_units",
    "started_in_standard_units", "noise_factors", "cell_units", "log_likelihood", "scores",
    "scores_covariance", "predicted", "local_conditionals", "derived",
}  # fmt: skip

#: What an author declares and what a user calls (CONTRIBUTING.md), and defaults that some models override.
OF_AUTHORS = {
    "data", "dims", "methods", "symmetries", "units", "prior", "program", "roles", "answers",
}  # fmt: skip
OF_ASSUMPTIONS = {
    "__init_subclass__", "__new__", "__post_init__", "is_filled", "validate", "replaced",
}  # fmt: skip
OF_USERS = {"__call__", "explicit", "log_likelihood", "scores", "predicted", "from_data"}
OF_DEFAULTS = {
    "data_names", "variable_dims",
    "part_families", "coordinate_freedom", "own_coordinates",
    "scale_remedies", "exact_symmetries", "with_families", "encoded",
    "with_sizes_from", "check_new", "check", "draw_locals",
    "__init_subclass__", "_repr_html_",
}  # fmt: skip


def sources():
    """Path to source of every Python file of the project's two packages."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for package in ("zoo", "inference")
        for path in sorted((ROOT / package).rglob("*.py"))
        if "__pycache__" not in path.parts
    }


FILES = sources()
TREES = {path: ast.parse(source) for path, source in FILES.items()}


def module_of(path):
    """The dotted name of a file."""
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def room_of(module):
    """``"zoo"``, a room of ``inference``, or ``""`` for the face of ``inference``."""
    first, *rest = module.split(".")
    return "zoo" if first == "zoo" else rest[0] if rest else ""


def imports(trees, path, inside_functions=True):
    """Pairs of (line, module of ours) that a file imports; names of modules are resolved to these."""
    modules = {module_of(other) for other in trees}
    found = []
    for node in _imports_of(trees[path], inside_functions):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else node.module for name in full]
        found += [(node.lineno, name) for name in names if name.split(".")[0] in ("zoo", "inference")]
    return found


@functools.cache  # the planted violations stand among the same hundreds of files
def _imports_of(tree, inside_functions):
    """The import statements of a file, without relative ones."""
    return [
        node
        for node in _statements(tree, inside_functions)
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module)
    ]


@functools.cache
def _questions(path, tree):
    return model_tests(path, ast.unparse(tree))


def _statements(tree, inside_functions):
    """All nodes, without the bodies of ``if TYPE_CHECKING:`` and, if asked, without those of functions."""
    queue = [tree]
    while queue:
        node = queue.pop()
        yield node
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not inside_functions:
            continue
        queue.extend(ast.iter_child_nodes(node))


# The rules


def upward_imports(trees):
    """1. Imports run down: from a room's own modules or from rooms of earlier layers."""
    found = []
    for path in trees:
        room = room_of(module_of(path))
        if path in {*LAZY, SCRIPT, FOR_NOTEBOOKS}:
            continue
        for line, imported in imports(trees, path):
            target = room_of(imported)
            if target == room:
                continue
            if target == "":
                found.append(f"{path}:{line} imports the face of inference")
            elif target not in RANK or room not in RANK:
                found.append(f"{path}:{line} no layer is given for {target if target not in RANK else room}")
            elif RANK[target] >= RANK[room]:
                found.append(f"{path}:{line} ({room}) imports {imported} ({target})")
    return found


def imports_between_methods(trees):
    """2. The methods of a model import what lies below, what several models share, and few other models."""
    found = []
    for path in trees:
        parts = path.split("/")
        if parts[:2] != ["inference", "methods"] or len(parts) != 4:
            continue
        folder = parts[2]
        allowed = SHARED_METHODS | METHODS_OF_OTHERS.get(folder, set()) | {folder}
        for line, imported in imports(trees, path):
            room, *rest = imported.split(".")[1:] if imported.startswith("inference.") else ["zoo"]
            if room == "methods" and rest and rest[0] in allowed:
                continue
            if room == "methods" or room not in BELOW_METHODS:
                found.append(f"{path}:{line} imports {imported}")
    return found


def deferred_imports(trees):
    """3. No import inside a function but in lazy faces."""
    return [
        f"{path}:{node.lineno}"
        for path, tree in trees.items()
        if path not in LAZY
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]


def circles(trees):
    """4. No circle of files that import each other."""
    paths = {module_of(path): path for path in trees}
    graph = {m: {o for _, o in imports(trees, p) if o in paths and o != m} for m, p in paths.items()}
    settled, found = set(), []
    while ready := {m for m in graph.keys() - settled if graph[m] <= settled}:
        settled |= ready
    left = graph.keys() - settled
    while trimmed := {m for m in left if not any(m in graph[other] for other in left)}:
        left -= trimmed
    if left:
        found.append("a circle among " + ", ".join(sorted(left)))
    return found


def questions_of_model(trees):
    """5. Above the methods nobody asks which model it is: class, name or site names."""
    return [
        found
        for path, tree in trees.items()
        if path.startswith("inference/") and not path.startswith("inference/methods/")
        for found in _questions(path, tree)
    ]


def repeated_names(trees):
    """6. Two modules of one room never define a name that others import, and a face exports a name once."""
    defined, found, imported = {}, [], _imported_names(trees)
    for path, tree in trees.items():
        if path.endswith("__init__.py"):
            exported = _exported(tree)
            found += [
                f"{path} exports {n} twice" for n in sorted({n for n in exported if exported.count(n) > 1})
            ]
            continue
        parts = path.split("/")
        room = "/".join(parts[:3]) if parts[1] == "methods" and len(parts) == 4 else "/".join(parts[:-1])
        for name in _defined(tree) & imported.get(module_of(path), set()):
            defined.setdefault((room, name), []).append(path)
    return found + [
        f"{name} is defined in {' and '.join(paths)}"
        for (_, name), paths in defined.items()
        if len(paths) > 1 and name not in SHARED_WORDS
    ]


def _imported_names(trees):
    """Module to the names that others import from it."""
    found = {}
    for tree in trees.values():
        for node in _imports_of(tree, True):
            if isinstance(node, ast.ImportFrom):
                found.setdefault(node.module, set()).update(alias.name for alias in node.names)
    return found


def _exported(tree):
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
    return []


def _defined(tree):
    return {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)} | {
        target.id
        for n in tree.body
        if isinstance(n, ast.Assign)
        for target in n.targets
        if isinstance(target, ast.Name)
    }


def table_of_methods(trees):
    """7. The table of methods names a module for each of a model's own methods, and no other.

    One that every model has may be a model's own too, in the place of the generic one.
    """
    table, generic = (
        _literal(trees["inference/methods/__init__.py"], name) for name in ("BY_MODEL", "FOR_EVERY_MODEL")
    )
    registry = _literal(trees["zoo/__init__.py"], "MODELS")
    found = [f"the table has {name}, which is no model" for name in sorted(table.keys() - registry.keys())]
    for name, entry in registry.items():
        path = entry["module"].replace(".", "/") + ".py"
        (body,) = (n for n in trees[path].body if isinstance(n, ast.ClassDef) and n.name == entry["class"])
        own = set(_literal(body, "methods")) - (generic.keys() - table.get(name, {}).keys())
        if set(table.get(name, {})) != own:
            found.append(f"{name}: the table has {sorted(table.get(name, {}))}, the model {sorted(own)}")
    modules = {module_of(path) for path in trees}
    named = [generic, *table.values()]
    return found + [
        f"there is no module inference.methods{m}"
        for methods in named
        for m in methods.values()
        if f"inference.methods{m}" not in modules
    ]


def _literal(tree, name):
    """The value of the one assignment of that name in the body of a module or class."""
    (node,) = (
        n
        for n in tree.body
        if isinstance(n, ast.Assign | ast.AnnAssign)
        and getattr(n.target if isinstance(n, ast.AnnAssign) else n.targets[0], "id", "") == name
    )
    return ast.literal_eval(node.value)


def crowded_folders(trees):
    """8. A folder holds few enough modules to be taken in at a glance."""
    folders = {}
    for path in trees:
        folders.setdefault(path.rpartition("/")[0], []).append(path)
    return [
        f"{folder} holds {len(held)} modules" for folder, held in folders.items() if len(held) > MOST_MODULES
    ]


def silent_outcomes(trees):
    """9. A method says which densities its outcome reports, and of which parameters."""
    return [
        f"{path}:{node.lineno} names no densities"
        for path, tree in trees.items()
        if path.startswith("inference/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Outcome"
        if "densities" not in {keyword.arg for keyword in node.keywords}
    ]


def _programs(trees):
    """Path and function of every program of a model that has moved."""
    for path in MOVED:
        found = [n for n in ast.walk(trees[path]) if isinstance(n, ast.FunctionDef) and n.name == "program"]
        yield path, trees[path], found


def programs_that_come_late(trees):
    """10. A program stands on the first screens after the docstring of its module."""
    found = []
    for path, tree, programs in _programs(trees):
        first = tree.body[0]
        is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        last = first.end_lineno if is_text else 0
        found += [] if programs else [f"{path} has no program"]
        found += [
            f"{path}:{program.lineno} stands {program.lineno - last} lines after the docstring"
            for program in programs
            if program.lineno - last > FIRST_LINES
        ]
    return found


def programs_with_branches_on_data(trees):
    """11. A program neither asks whether there are data nor of what kind they are."""
    return [
        f"{path}:{node.lineno} {ast.unparse(node)}"
        for path, _, programs in _programs(trees)
        for program in programs
        for node in ast.walk(program)
        if (isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "hasattr", "type"))
        or (
            isinstance(node, ast.Compare)
            and any(isinstance(part, ast.Constant) and part.value is None for part in node.comparators)
        )
    ]


def programs_with_units_or_precision(trees):
    """12. A program knows no unit, no coordinates and no precision."""
    return [
        f"{path}:{node.lineno} names {name}"
        for path, _, programs in _programs(trees)
        for program in programs
        for node in ast.walk(program)
        if (name := getattr(node, "id", getattr(node, "attr", ""))) in OF_UNITS | OF_PRECISION
    ]


def second_mechanisms(trees):
    """13. A model that declares units has no other way to move its data; its answers stand beside it."""
    found = []
    for path, tree, _ in _programs(trees):
        for node in (part for body in tree.body if isinstance(body, ast.ClassDef) for part in body.body):
            names = [getattr(node, "name", "")]
            if isinstance(node, ast.Assign):
                names = [getattr(target, "id", "") for target in node.targets]
            found += [f"{path}:{node.lineno} defines {name}" for name in names if name in MECHANISMS]
    return found


def tables_and_precision_in_models(trees):
    """14. The file of such a model reads no tables of pandas, and no numbers of a precision."""
    found = []
    for path, tree, _ in _programs(trees):
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                named = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                wrong = [n for n in named if n.split(".")[0] == "pandas" or n.endswith("in_units")]
                wrong += [name for name in named if name == "in_current_precision"]
                found += [f"{path}:{node.lineno} imports {name}" for name in wrong]
    return found


def questions_of_data_in_models(trees):
    """15. The file of such a model asks of no data what they are: its tables say what it takes."""
    data = {"x", "y", "data", "part", "parts", "view", "views", "counts", "columns"}
    return [
        f"{path}:{node.lineno} {ast.unparse(node)}"
        for path, tree, _ in _programs(trees)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "hasattr", "type")
        if data & {getattr(part, "id", "") for part in ast.walk(node.args[0])}
    ]


def further_members_of_the_base(trees):
    """16. The base classes of models have no member beside those that authors, users and rooms know."""
    known = {"Assumptions": OF_ASSUMPTIONS, "Model": OF_AUTHORS | OF_USERS | OF_DEFAULTS}
    names = (
        (base.name, name)
        for base in trees["zoo/model.py"].body
        if getattr(base, "name", "") in known
        for node in base.body
        for name in (
            getattr(node, "name", getattr(getattr(node, "target", None), "id", "")),
            *(target.id for target in getattr(node, "targets", ())),
        )
    )
    return [f"zoo/model.py: {base} has {name}" for base, name in names if name and name not in known[base]]


RULES = (
    upward_imports,
    imports_between_methods,
    deferred_imports,
    circles,
    questions_of_model,
    repeated_names,
    table_of_methods,
    crowded_folders,
    silent_outcomes,
    programs_that_come_late,
    programs_with_branches_on_data,
    programs_with_units_or_precision,
    second_mechanisms,
    tables_and_precision_in_models,
    questions_of_data_in_models,
    further_members_of_the_base,
)


@functools.cache
def found_in_the_house(rule):
    """What a rule finds as the house stands."""
    return tuple(rule(TREES))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps_the_rule(rule):
    assert found_in_the_house(rule) == ()


def _program(line):
    """A model that has moved, with a line in its program."""
    return {"zoo/ppca.py": f"class PPCA:\n    def program(self, x, rows):\n        {line}\n"}


PLANTED = [
    (
        further_members_of_the_base,
        {"zoo/model.py": "class Model:\n    data = ()\n    def clusters(self): ..."},
        "Model has clusters",
    ),
    (
        further_members_of_the_base,
        {"zoo/model.py": "class Assumptions:\n    def _set(self): ...\nclass Model: ..."},
        "Assumptions has _set",
    ),
    (upward_imports, {"zoo/extra.py": "import inference.driver.chains"}, "zoo/extra.py:1 (zoo) imports"),
    (
        upward_imports,
        {"zoo/cli/extra.py": "def f():\n    from inference.cli import main"},
        "zoo/cli/extra.py:2 (zoo) imports",
    ),
    (upward_imports, {"inference/report/extra.py": "from inference.cli import main"}, "(cli)"),
    (upward_imports, {"inference/driver/extra.py": "from inference.plots import fits"}, "(plots)"),
    (upward_imports, {"inference/driver/extra.py": "from inference.methods import svi"}, "(methods)"),
    (upward_imports, {"inference/plots/extra.py": "from inference import fit"}, "the face of inference"),
    (
        imports_between_methods,
        {"inference/methods/lda/extra.py": "from inference.methods.mixture import vb"},
        "imports inference.methods.mixture.vb",
    ),
    (
        imports_between_methods,
        {"inference/methods/ppca/extra.py": "from inference.driver.chains import sample"},
        "imports inference.driver.chains",
    ),
    (
        deferred_imports,
        {"inference/plots/extra.py": "def f():\n    import numpy"},
        "inference/plots/extra.py:2",
    ),
    (deferred_imports, {"inference/cli/extra.py": "def f():\n    import jax"}, "inference/cli/extra.py:2"),
    (
        circles,
        {"zoo/one.py": "from zoo.two import a", "zoo/two.py": "def f():\n    from zoo.one import b"},
        "a circle among zoo.one, zoo.two",
    ),
    (
        questions_of_model,
        {"inference/plots/extra.py": "def f(tree):\n    return tree.attrs['model'] == 'pcp'"},
        "inference/plots/extra.py",
    ),
    (
        questions_of_model,
        {"inference/plots/extra.py": "import zoo\ndef f(model):\n    return isinstance(model, zoo.Mixture)"},
        "inference/plots/extra.py",
    ),
    (
        repeated_names,
        {
            "zoo/kernels/one.py": "def f(): ...",
            "zoo/kernels/two.py": "f = 1",
            "inference/plots/extra.py": "from zoo.kernels.one import f\nfrom zoo.kernels.two import f as g",
        },
        "f is defined in",
    ),
    (repeated_names, {"zoo/kernels/__init__.py": "__all__ = ['f', 'g', 'f']"}, "exports f twice"),
    (
        table_of_methods,
        {"inference/methods/__init__.py": "FOR_EVERY_MODEL = {}\nBY_MODEL = {'mixture': {'vb': '.nowhere'}}"},
        "there is no module inference.methods.nowhere",
    ),
    (crowded_folders, {f"zoo/kernels/m{i}.py": "" for i in range(25)}, "zoo/kernels holds"),
    (silent_outcomes, {"inference/methods/extra.py": "found = Outcome(posterior=draws)"}, "extra.py:1 names"),
    (
        programs_that_come_late,
        {"zoo/ppca.py": '"""D."""\n' + 90 * "\n" + "def program(x, rows): ..."},
        "91 lines",
    ),
    (programs_that_come_late, {"zoo/ppca.py": '"""D."""'}, "has no program"),
    (programs_with_branches_on_data, _program("if x is None: return 1"), "x is None"),
    (programs_with_branches_on_data, _program("y = 1 if x is not None else 2"), "x is not None"),
    (programs_with_branches_on_data, _program("return isinstance(x, SparseMatrix)"), "isinstance(x,"),
    (programs_with_units_or_precision, _program("return x / self.column_scale"), "names column_scale"),
    (programs_with_units_or_precision, _program("return InUnits(x, 2.0)"), "names InUnits"),
    (programs_with_units_or_precision, _program("self = in_current_precision(self)"), "in_current_precision"),
    (programs_with_units_or_precision, _program("return x.astype(jnp.float32)"), "names astype"),
    (second_mechanisms, {"zoo/ppca.py": "class PPCA:\n    def origin(self, x): ..."}, "defines origin"),
    (second_mechanisms, {"zoo/ppca.py": "class PPCA:\n    noise_factors = {}"}, "defines noise_factors"),
    (second_mechanisms, {"zoo/ppca.py": "class PPCA:\n    def predicted(self, x): ..."}, "defines predicted"),
    (tables_and_precision_in_models, {"zoo/ppca.py": "import pandas as pd"}, "imports pandas"),
    (
        tables_and_precision_in_models,
        {"zoo/ppca.py": "from zoo.model import in_current_precision"},
        "imports in_current_precision",
    ),
    (
        tables_and_precision_in_models,
        {"zoo/ppca.py": "from zoo.supports.in_units import InUnits"},
        "imports zoo.supports.in_units",
    ),
    (
        questions_of_data_in_models,
        {"zoo/ppca.py": "def check(self, *views):\n    return isinstance(views[0], pd.DataFrame)"},
        "zoo/ppca.py:2 isinstance(views[0]",
    ),
    (
        questions_of_data_in_models,
        {"zoo/ppca.py": "def read(x):\n    return hasattr(x, 'columns')"},
        "hasattr(x",
    ),
]


@pytest.mark.parametrize(
    ("rule", "planted", "words"), PLANTED, ids=[f"{r.__name__} {i}" for i, (r, *_) in enumerate(PLANTED)]
)
def test_a_planted_violation_is_found(rule, planted, words):
    trees = TREES | {path: ast.parse(source) for path, source in planted.items()}
    new = [found for found in rule(trees) if found not in found_in_the_house(rule)]
    assert any(words in found for found in new), new


def test_every_rule_has_a_planted_violation():
    assert {rule for rule, *_ in PLANTED} == set(RULES)


@pytest.mark.parametrize(
    "planted",
    [
        "isinstance(model, Paired)",
        "isinstance(model, (int, zoo.PPCA))",
        "issubclass(kind, zoo.documents.topic_model.TopicModel)",
        "type(model) is Mixture",
        "tree.attrs['model'] == 'pcp'",
        "tree.attrs.get('model') in ('lda', 'plsi')",
        "type(model).__name__ == 'SPPCA'",
        "tree.attrs['model'] in NAMED",
        "'assignments' in tree['posterior']",
        "'num_occupied' not in trace",
        "name in ('assignments', 'doc_clusters')",
        "{'bases', 'scales'} <= set(posterior.data_vars)",
        "name == 'latents'",
        "'loadings_1' in posterior",
        "posterior.get('latents')",
        "str(name).startswith('loadings')",
        "[name for name in ('weights', 'locs') if name not in posterior]",
    ],
)
def test_planted_questions_of_a_model_are_found(planted):
    source = f"NAMED = ('lda', 'pcp')\n\n\ndef f(tree):\n    return {planted}\n"
    assert model_tests("planted.py", source)[0].startswith("planted.py:5: ")
