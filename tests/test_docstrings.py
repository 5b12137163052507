"""What is public says what it takes, gives and raises, and the examples in docstrings run.

Ruff's rules D and ANN already fail on a missing docstring or annotation, and on an ``Args`` that leaves a
parameter out. What they do not ask for is checked here, on the source: that a function of the user's
interface has ``Args`` and ``Returns`` at all, that arrays come with a shape, that the fields of a class are
described, and that an exception raised in a body is named.
"""

import ast
import doctest
import importlib
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.repo

ROOT = Path(__file__).parents[1]
FILES = sorted(path for folder in ("zoo", "inference") for path in (ROOT / folder).rglob("*.py"))
# What README and the design call the interface: these packages, and the modules they export
INTERFACE = ("zoo", "inference")
HOOKS = {  # of a method that a subclass writes; of ``__getattr__``; the user's own Ctrl-C passed on
    "NotImplementedError",
    "AttributeError",
    "KeyboardInterrupt",
}
ARRAYS = re.compile(r"\b(Array|ndarray|DataArray)\b")
SHAPE = re.compile(
    r"\bshapes?\b|\bdims?\b|\bscalar|\(\w*,|\ba row (a|for)\b|\bper (row|iteration|draw|cell)\b",
    re.IGNORECASE,
)


def public_names(tree):
    """The strings of ``__all__``; of a module that is no face, what other modules import from it."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in node.targets):
            return {e.value for e in getattr(node.value, "elts", ()) if isinstance(e, ast.Constant)}
    return IMPORTED.get(id(tree), set())


def definitions(tree):
    """Public functions and classes of a module, the public methods of the latter: (class or None, node)."""
    names = public_names(tree)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names:
            yield None, node
            if isinstance(node, ast.ClassDef):
                for part in node.body:
                    is_open = isinstance(part, ast.FunctionDef) and not part.name.startswith("_")
                    if is_open or getattr(part, "name", "") == "__call__":
                        yield node, part


def modules():
    """Dotted name of each module to its syntax tree."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
            path.read_text(encoding="utf-8")
        )
        for path in FILES
    }


def imported(trees):
    """The identity of the tree of each module to the names that others import from it."""
    found = {}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in trees:
                names = found.setdefault(id(trees[node.module]), set())
                names |= {alias.name for alias in node.names}
    return found


TREES = modules()
IMPORTED = imported(TREES)
CLASSES = {node.name: node for tree in TREES.values() for node in tree.body if isinstance(node, ast.ClassDef)}


def exported():
    """(module, name) of what the faces of `zoo`, of `inference` and of its rooms export."""
    wanted = set()
    for package in INTERFACE:
        module = importlib.import_module(package)
        parts = getattr(module, "_MODULES", ()) or getattr(module, "_SUBMODULES", ())
        for name in (package, *(f"{package}.{part}" for part in parts)):
            source = importlib.import_module(name)
            for public in source.__all__:
                home = getattr(getattr(source, public), "__module__", None)
                if home is not None:
                    wanted.add((home, public))
    return wanted


def interface_functions():
    """(module, function): what a user imports from `zoo`, `inference` or a module that these export."""
    wanted = exported()
    for name, tree in TREES.items():
        for owner, node in definitions(tree):
            if owner is None and isinstance(node, ast.FunctionDef) and (name, node.name) in wanted:
                yield name, node


def sections(text):
    """Heading of a Google section to its lines without the indentation."""
    found = {}
    heading = None
    for line in (text or "").splitlines():
        if re.fullmatch(r"(Args|Returns|Yields|Raises|Attributes|Class attributes.*|Example):", line):
            heading = line[:-1]
            found[heading] = []
        elif line and not line.startswith(" "):
            heading = None
        elif heading:
            found[heading].append(line.removeprefix("    "))
    return found


def entries(lines):
    """The names that a section describes: ``a, b: ...`` describes two, ``**kw: ...`` one."""
    heads = [line.partition(":")[0] for line in lines if ":" in line and not line.startswith(" ")]
    names = [name for head in heads for name in re.sub(r"\([^)]*\)", "", head).split(",")]
    return {name.strip().strip("`*") for name in names}


def parameters(node):
    """Names of the parameters of a function, without the object or class it belongs to."""
    args = node.args
    listed = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    return [a.arg for a in listed if a is not None and a.arg not in ("self", "cls")]


def raised(node):
    """Names of the exceptions that a body raises with ``raise Name(...)``."""
    causes = [part.exc for part in ast.walk(node) if isinstance(part, ast.Raise) and part.exc is not None]
    return {
        cause.func.id
        for cause in causes
        if isinstance(cause, ast.Call) and isinstance(cause.func, ast.Name) and cause.func.id[0].isupper()
    } - HOOKS


def inherited(owner, name):
    """The docstrings of the methods of that name in our own bases of a class, as one text."""
    texts = []
    for base in (CLASSES.get(getattr(b, "id", None)) for b in owner.bases):
        if base is not None and base is not owner:
            methods = [part for part in base.body if isinstance(part, ast.FunctionDef) and part.name == name]
            texts += [ast.get_docstring(part) or "" for part in methods] + [inherited(base, name)]
    return "\n".join(texts)


def lacks_raises(owner, node):
    """Exceptions that the body raises and neither its docstring nor that of a base's method names."""
    text = (ast.get_docstring(node) or "") + ("" if owner is None else inherited(owner, node.name))
    return sorted(name for name in raised(node) if not re.search(rf"\b{name}\b", text))


def lacks(node):
    """What the docstring of an interface function leaves out."""
    text = ast.get_docstring(node) or ""
    found = sections(text)
    missing = [f"Args: {name}" for name in parameters(node) if name not in entries(found.get("Args", []))]
    gives = "" if node.returns is None else ast.unparse(node.returns)
    if gives not in ("", "None") and not {"Returns", "Yields"} & set(found):
        missing.append(f"Returns: {gives}")
    elif ARRAYS.search(gives) and not SHAPE.search("\n".join(found.get("Returns", found.get("Yields", [])))):
        missing.append(f"Returns: the shape or dims of {gives}")
    return missing


def fields(node):
    """The constructor arguments of a dataclass or the fields of a NamedTuple."""
    return [
        part.target.id
        for part in node.body
        if isinstance(part, ast.AnnAssign)
        and isinstance(part.target, ast.Name)
        and not part.target.id.startswith("_")
        and not ast.unparse(part.annotation).startswith("ClassVar")
        and "init=False" not in ast.unparse(part)
    ]


def is_a_record(node):
    """Whether a class is a dataclass or a NamedTuple."""
    marks = [ast.unparse(mark) for mark in (*node.decorator_list, *node.bases)]
    return any("dataclass" in mark or mark == "NamedTuple" for mark in marks)


def lacks_fields(node):
    """Fields and arguments of the constructor that neither its docstring nor that of the class describes."""
    made = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
    described = {"validate_args"} if made else set()  # NumPyro's, in every distribution
    for text in map(ast.get_docstring, (node, *made)):
        for heading, lines in sections(text).items():
            if heading.startswith(("Attributes", "Args")):
                described |= entries(lines)
    wanted = fields(node) if is_a_record(node) else []
    return [
        name for name in (*wanted, *(p for part in made for p in parameters(part))) if name not in described
    ]


@pytest.mark.parametrize("module", TREES)
def test_exceptions_that_a_body_raises_are_named(module):
    found = {
        f"{owner.name + '.' if owner else ''}{node.name}": names
        for owner, node in definitions(TREES[module])
        if isinstance(node, ast.FunctionDef) and (names := lacks_raises(owner, node))
    }
    assert not found, f"{module}: the docstring must name what is raised: {found}"


@pytest.mark.parametrize("module", TREES)
def test_fields_of_public_classes_are_described(module):
    found = {
        node.name: names
        for _, node in definitions(TREES[module])
        if isinstance(node, ast.ClassDef) and (names := lacks_fields(node))
    }
    assert not found, f"{module}: the class docstring must describe its fields: {found}"


def test_interface_functions_say_what_they_take_and_give():
    functions = list(interface_functions())
    names = {node.name for _, node in functions}
    assert {"fit", "predict", "save", "summary", "elbo_check", "load", "plot_psrf_path", "report"} <= names
    found = {f"{module}.{node.name}": missing for module, node in functions if (missing := lacks(node))}
    assert not found, "\n".join(f"{name}: {', '.join(missing)}" for name, missing in found.items())


JAX_CALLS = {"tree_flatten", "tree_unflatten"}  # jax calls them, with what its own documentation says


def lacks_of_base(base, node):
    """What the docstring of a base's method of that name leaves out of an override's docstring."""
    text = vars(base)[node.name].__doc__ or ""
    if base.__module__.partition(".")[0] not in INTERFACE:  # of NumPyro: ``:param TYPE NAME:``, ``:return:``
        named = set(re.findall(r":param (?:[^:]* )?(\w+):", text))
        missing = [f"Args: {name}" for name in parameters(node) if name not in named]
        return missing if ":return" in text else [*missing, "Returns"]
    methods = [part for part in CLASSES[base.__name__].body if getattr(part, "name", "") == node.name]
    return lacks(methods[-1]) if methods else ["Returns"]


def lacks_in_methods(tree, module=None):
    """What docstrings of the public methods of a module leave out, unless a base's method says it.

    Every public class is asked; exempt are jax's two. Of an overridden method the
    first base whose docstring leaves nothing out counts, NumPyro's too: ``log_prob`` and ``sample`` of its
    distributions say there what they take and the shape that they give.
    """
    found = {}
    for owner, node in definitions(tree):
        if owner is None or node.name in JAX_CALLS:
            continue
        is_property = any("property" in ast.unparse(mark) for mark in node.decorator_list)
        missing = [part for part in lacks(node) if not (is_property and part.startswith("Returns"))]
        bases = () if module is None else getattr(module, owner.name).__mro__[1:]
        if missing and all(lacks_of_base(base, node) for base in bases if node.name in vars(base)):
            found[f"{owner.name}.{node.name}"] = missing
    return found


@pytest.mark.parametrize("module", TREES)
def test_methods_say_what_they_take_and_give(module):
    found = lacks_in_methods(TREES[module], importlib.import_module(module))
    public = {
        name for home, name in exported() if home == module
    }  # inside, one line with the shape is enough
    found = {name: missing for name, missing in found.items() if name.partition(".")[0] in public}
    assert not found, "\n".join(f"{module}.{name}: {', '.join(missing)}" for name, missing in found.items())


def test_a_method_that_does_not_say_what_it_gives_is_found():
    source = 'class Box:\n    def weigh(self, by: int) -> int:\n        """Weigh."""\n'
    tree = ast.parse(f'__all__ = ["Box"]\n{source}')
    assert lacks_in_methods(tree) == {"Box.weigh": ["Args: by", "Returns: int"]}


def test_an_override_needs_a_base_that_says_it():
    """NumPyro says what ``sample`` takes and gives, and not what ``log_abs_det_jacobian`` does."""
    source = """
def sample(self, key: Array, sample_shape: tuple = ()) -> Array:
    "Draws."
"""
    from numpyro.distributions import Distribution, transforms

    assert lacks_of_base(Distribution, function(source)) == []
    assert lacks_of_base(Distribution, function(source.replace("key", "seed"))) == ["Args: seed"]
    source = source.replace("sample(", "log_abs_det_jacobian(")
    assert "Returns" in lacks_of_base(transforms.Transform, function(source))


def function(source):
    return ast.parse(source).body[0]


COMPLETE = '''
def draw(key: Array, count: int, **more: Any) -> Array:
    """Draws.

    Args:
        key: randomness.
        count: how many.
        **more: fields.

    Returns:
        Draws, shape (count,).

    Raises:
        ValueError: too few.
    """
    if count < 1:
        raise ValueError(count)
'''


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", []),
        ("        count: how many.\n", "", ["Args: count"]),
        ("**more: fields", "less: fields", ["Args: more"]),
        ("    Returns:\n        Draws, shape (count,).\n", "", ["Returns: Array"]),
        (", shape (count,)", "", ["Returns: the shape or dims of Array"]),
    ],
)
def test_what_a_docstring_leaves_out_is_found(old, new, expected):
    assert lacks(function(COMPLETE.replace(old, new))) == expected


def test_an_exception_that_is_not_named_is_found():
    assert lacks_raises(None, function(COMPLETE)) == []
    assert lacks_raises(None, function(COMPLETE.replace("raise ValueError", "raise OSError"))) == ["OSError"]


def test_a_field_that_is_not_described_is_found():
    record = 'class Point(NamedTuple):\n    """A point.\n\n    Attributes:\n        x: across.\n    """\n'
    assert lacks_fields(function(record + "    x: float\n")) == []
    assert lacks_fields(function(record + "    x: float\n    y: float = 0.0\n")) == ["y"]
    made = record.replace("NamedTuple", "Base") + "    def __init__(self, x, y): ..."
    assert lacks_fields(function(made)) == ["y"]


EXAMPLES = [name for name, tree in TREES.items() if ">>> " in ast.unparse(tree)]


FITTED = ("inference.estimators", "inference.inputs.sources")  # they compile what no other test does


@pytest.mark.parametrize(
    "module", [pytest.param(name, marks=pytest.mark.slow if name in FITTED else ()) for name in EXAMPLES]
)
def test_examples_in_docstrings_run(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert result.attempted and not result.failed


def test_models_and_the_main_functions_have_an_example():
    from zoo import MODELS

    homes = {entry["module"] for entry in MODELS.values()}
    homes |= {f"inference.{home}" for home in ("fitting.front_door", "prediction", "results.files")}
    assert homes <= set(EXAMPLES)
