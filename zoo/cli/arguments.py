"""The commands, arguments and options of the command line with their help, and the values of ``--set``.

A value of ``--set key=value`` is read without evaluating anything: it is a Python literal (``20``, ``1e-3``,
``true``), a call from a fixed table (``Gamma(2, 1)``), a tuple of these (``(bernoulli, Ordinal(6))``), or
else the text itself (``stick_breaking``).
"""

import argparse
import ast
import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

__all__ = [
    "COMPARE_OPTIONS",
    "Call",
    "FIT_OPTIONS",
    "parse",
    "parse_families",
    "parse_levels",
    "parse_settings",
    "resolve",
]


FIT_OPTIONS = {  # option of inference.fit -> its type and what it means
    "seed": (int, "seed of all randomness, an int in [0, 2**32) (default 0)"),
    "num_chains": (int, "chains of a sampler (default 4)"),
    "num_warmup": (int, "warm-up sweeps of a sampler (default 1000)"),
    "num_samples": (int, "draws kept: per chain of a sampler, from q for VB and SVI (default 1000)"),
    "thinning": (int, "sweeps per draw kept (default 1)"),
    "chain_method": (str, "vectorized, parallel or sequential (default vectorized)"),
    "max_iterations": (int, "at most so many steps of an ascent (default 1000)"),
    "tolerance": (float, "stop when the objective gains less, in nats per row (default 1e-6)"),
    "num_restarts": (
        int,
        "starts of an ascent, of which the best is kept (default: as model and method need)",
    ),
    "init": (str, "how to start: a strategy of the method, such as random or kmeans"),
    "batch_size": (int, "rows per step of a stochastic method"),
    "dtype": (str, "float64 or float32 (default float64)"),
    "checkpoint": (str, "file to save the run to, and to resume it from"),
}
COMPARE_OPTIONS = {"num_chains": 2, "num_warmup": 200, "num_samples": 200, "num_restarts": 5}


class _Parser(argparse.ArgumentParser):
    """Argument parser with one-line errors."""

    def error(self, message: str) -> NoReturn:
        """Print the message without the usage and exit with status 2."""
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())}; see {self.prog} --help\n")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line into the options of a command, whose name is ``command``.

    Args:
        arguments: words of the command line; None: those of this process.

    Returns:
        The options by name.

    Raises:
        SystemExit: status 2 and one line on stderr for a wrong argument, status 0 after ``--help``.
    """
    parser = _Parser(prog="zoo", description="Probabilistic models as NumPyro programs, and how to fit them.")
    parser.add_argument("--traceback", action="store_true", help="show the whole traceback of an error")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    for name, (purpose, options) in _COMMANDS.items():
        command = commands.add_parser(name, help=purpose)
        command.set_defaults(command=name)
        for option, settings in options.items():
            command.add_argument(option, **settings)
    return parser.parse_args(arguments)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _text(metavar: str, meaning: str, **settings: Any) -> dict[str, Any]:
    """Settings of an argument that takes a value."""
    return {"metavar": metavar, "help": meaning} | settings


_MODEL = {"model": {"metavar": "MODEL"}}
_COLUMNS = {
    "--x": _text("COLUMNS", "input columns: names with commas between, FIRST:LAST for a run"),
    "--y": _text("COLUMNS", "output columns, in the same form"),
    "--views": _text("COLUMNS", "columns of each view, in the same form", nargs="+"),
}
_KINDS = {
    "--families": _text(
        "COLUMN=FAMILY,...",
        "what columns hold: gaussian, lognormal, poisson, bernoulli, categorical, ordinal, date or leave_out",
        **{"action": "append", "default": []},
    ),
    "--levels": _text("COLUMN=LEVEL,...", "levels of a column in rising order", action="append", default=[]),
    "--id": _text("COLUMN", "column that labels the rows"),
    "--standardize": {
        "action": "store_true",
        "help": "measure each column in its standard deviation; results are in the units of the data",
    },
}
_DATA = {
    "dataset": _text("DATASET", "a name in zoo list, or a .csv, .npz, .nc or .parquet file"),
    **_COLUMNS,
    "--no-progress": {"dest": "progress", "action": "store_const", "const": False, "help": "no progress bar"},
}
_REPEATED = {"action": "append", "default": []}
_COMMANDS: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {  # purpose and arguments of each command
    "list": ("the models, their methods and papers, and the data sets", {}),
    "show": (
        "a model's card: what is assumed, methods and their cost, the paper's claims",
        _MODEL | {"--out": _text("FILE", "write it as a page, a .md file")},
    ),
    "fit": (
        "fit a model to a data set and save the fit",
        _MODEL
        | _DATA
        | _KINDS
        | {
            "--method": {"default": "auto", "help": "one of the model's methods (default: its first)"},
            "--set": _text("FIELD=VALUE", "a field of the model, such as num_components=20", **_REPEATED),
            "--option": _text("NAME=VALUE", "an option of the method", **_REPEATED),
            "--keep": _text("NAME", "keep this variable however large it is", **_REPEATED),
        }
        | {_flag(name): {"type": kind, "help": meaning} for name, (kind, meaning) in FIT_OPTIONS.items()}
        | {"--out": _text("FILE", "where to write the fit (default: MODEL-DATASET.nc)")},
    ),
    "report": (
        "write a report of a saved fit, or compare several",
        {
            "fits": _text("FIT", "a file that zoo fit wrote; several of the same data: compare", nargs="+"),
            "--out": _text(
                "FILE",
                "an .html or .md file (default: the fit's name with .html, or comparison.html)",
            ),
            "--heldout": _text("DATASET", "several fits: score these rows too, a name in zoo list or a file"),
            **_COLUMNS,
        },
    ),
    "compare": (
        "fit every model by every method that accepts the data, and score held-out rows",
        _DATA
        | {
            "--models": _text("MODEL", "only these models", nargs="+"),
            "--methods": _text("METHOD", "only these methods", nargs="+"),
            "--seed": {"type": int, "default": 0, "help": "seed of the split and of the fits (default 0)"},
        }
        | {
            _flag(name): {"type": int, "default": default, "help": f"as in zoo fit (default {default})"}
            for name, default in COMPARE_OPTIONS.items()
        }
        | {"--out": _text("FILE", "also draw the table: a .png, .svg or .pdf file")},
    ),
}


_WORDS = {"true": True, "false": False, "none": None}
_MODULES = {  # what may be called, by its module
    "numpyro.distributions": "Gamma",
    "zoo.conjugate": "BernoulliBeta BinomialBeta CategoricalDirichlet ExponentialGamma GammaKnownShape "
    "GaussianKnownCovariance GaussianKnownMean GaussianWishart LogNormalGamma MultinomialDirichlet "
    "NormalGamma PoissonGamma SharedGaussianWishart SphericalNormalGamma",
    "zoo.exponential_family": "Bernoulli Binomial Categorical Exponential GammaWithShape Gaussian "
    "NegativeBinomial Ordinal Poisson",
    "zoo.kernels": "Linear Polynomial Precomputed RBF",
}
_CALLS = {name: module for module, names in _MODULES.items() for name in names.split()}


class Call(NamedTuple):
    """A call as it was written, made when its module is imported.

    Attributes:
        name: key in the table of calls.
        args: positional arguments, literals.
        kwargs: keyword arguments, literals.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def parse_settings(texts: Iterable[str], known: Sequence[str], what: str) -> dict[str, Any]:
    """Parse settings such as ``["a=1", "b=Gamma(2, 1)"]`` into a dictionary.

    Args:
        texts: settings as written.
        known: allowed keys.
        what: owner of the keys, for the message.

    Returns:
        Key to value, calls as `Call`.

    Raises:
        ValueError: an unknown key, a key given twice, a setting without ``=``, an unknown call.
    """
    settings: dict[str, Any] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            raise ValueError(f"a setting is written key=value; got {text!r}")
        if key not in known:
            raise ValueError(f"{what} has no setting {key!r}; it has: {', '.join(known)}")
        if key in settings:
            raise ValueError(f"{key} is set twice")
        settings[key] = _parse_value(value)
    return settings


def parse_families(texts: Iterable[str]) -> dict[str, str] | None:
    """Parse ``["income=gaussian,age=real"]`` into column to family; None without any.

    Args:
        texts: as written.

    Returns:
        Column to family or kind.

    Raises:
        ValueError: a part without ``=``, or a column named twice.
    """
    found: dict[str, str] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        column, equals, family = (word.strip() for word in part.rpartition("="))
        if not (equals and column and family):
            raise ValueError(f"--families is written COLUMN=FAMILY,COLUMN=FAMILY; got {part!r}")
        if column in found:
            raise ValueError(f"--families names the column {column!r} twice")
        found[column] = family
    return found or None


def parse_levels(texts: Iterable[str]) -> dict[str, tuple[str, ...]] | None:
    """Parse ``["opinion=never,rarely,often"]`` into column to levels; None without any.

    Args:
        texts: as written, one for each column.

    Returns:
        Column to its levels in rising order.

    Raises:
        ValueError: a text without ``=`` or with fewer than two levels, or a column named twice.
    """
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        column, _, levels = (word.strip() for word in text.partition("="))
        names = tuple(level.strip() for level in levels.split(",") if level.strip())
        if not column or len(names) < 2:
            raise ValueError(f"--levels is written COLUMN=LOWEST,...,HIGHEST; got {text!r}")
        if column in found:
            raise ValueError(f"--levels names the column {column!r} twice")
        found[column] = names
    return found or None


def resolve(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Replace each `Call` of the settings by its result; priors of components are filled by the fit.

    Args:
        settings: result of `parse_settings`.

    Returns:
        Key to value.
    """
    return {key: _resolved(value) for key, value in settings.items()}


def _resolved(value: Any) -> Any:
    if isinstance(value, tuple) and not isinstance(value, Call):
        return tuple(map(_resolved, value))
    return _build(value) if isinstance(value, Call) else value


def _parse_value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return text
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        return _parse_call(tree.func.id, tree)
    if isinstance(tree, ast.Tuple | ast.List):
        return tuple(_parse_value(ast.unparse(member)) for member in tree.elts)
    try:
        return ast.literal_eval(tree)
    except ValueError:  # a name or an expression
        return text


def _parse_call(name: str, call: ast.Call) -> Call:
    if name not in _CALLS:
        raise ValueError(f"no prior or kernel is called {name!r}; there are: {', '.join(_CALLS)}")
    try:
        args = tuple(ast.literal_eval(argument) for argument in call.args)
        kwargs = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except ValueError:
        raise ValueError(
            f"the arguments of {name} must be numbers or other literals; got {ast.unparse(call)}"
        ) from None
    return Call(name, args, kwargs)


def _build(call: Call) -> Any:
    return getattr(importlib.import_module(_CALLS[call.name]), call.name)(*call.args, **call.kwargs)
