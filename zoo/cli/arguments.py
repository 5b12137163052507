"""The words of the command line: commands, arguments, options, and what ``--help`` says of them.

``--set key=value`` as Python values, without evaluating anything.

A value is a Python literal (``20``, ``1e-3``, ``true``), a call from a fixed table (``Gamma(2, 1)``), a tuple
of these (``(bernoulli, Ordinal(6))``), or else the text itself (``stick_breaking``).
"""

import argparse
import ast
import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

__all__ = ["COMPARE_OPTIONS", "Call", "FIT_OPTIONS", "parse", "parse_settings", "resolve"]


FIT_OPTIONS = {  # option of inference.fit -> its type and what it means
    "seed": (int, "seed of all randomness, an int in [0, 2**32) (default 0)"),
    "num_chains": (int, "chains of a sampler (default 4)"),
    "num_warmup": (int, "warm-up sweeps of a sampler (default 1000)"),
    "num_samples": (int, "draws kept: per chain of a sampler, from q for VB and SVI (default 1000)"),
    "thinning": (int, "sweeps per draw kept (default 1)"),
    "chain_method": (str, "vectorized, parallel or sequential (default vectorized)"),
    "max_iterations": (int, "at most so many steps of an ascent (default 1000)"),
    "tolerance": (float, "stop when the objective gains less, in nats per row (default 1e-6)"),
    "num_restarts": (int, "starts of an ascent, of which the best is kept (default 1)"),
    "init": (str, "how to start: a strategy of the method, such as random or kmeans"),
    "batch_size": (int, "rows per step of a stochastic method"),
    "dtype": (str, "float64 or float32 (default float64)"),
    "checkpoint": (str, "file to save the run to, and to resume it from"),
}
COMPARE_OPTIONS = {"num_chains": 2, "num_warmup": 200, "num_samples": 200, "num_restarts": 5}


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message without the usage and exit with status 2."""
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())}; see {self.prog} --help\n")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of a command; ``command`` is its name.

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

    command = commands.add_parser("list", help="the models, their methods and papers, and the data sets")
    command.set_defaults(command="list")

    command = commands.add_parser(
        "show", help="a model's card: what is assumed, methods and their cost, the paper's claims"
    )
    command.add_argument("model", metavar="MODEL")
    command.add_argument("--out", metavar="FILE", help="write it as a page, a .md file")
    command.set_defaults(command="show")

    command = commands.add_parser("fit", help="fit a model to a data set and save the fit")
    command.add_argument("model", metavar="MODEL")
    _add_data(command)
    command.add_argument("--method", default="auto", help="one of the model's methods (default: its first)")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="a field of the model, such as num_components=20",
    )
    command.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the method"
    )
    command.add_argument(
        "--keep", action="append", default=[], metavar="NAME", help="keep this variable however large it is"
    )
    for option, (kind, meaning) in FIT_OPTIONS.items():
        command.add_argument(f"--{option.replace('_', '-')}", type=kind, help=meaning)
    command.add_argument("--out", metavar="FILE", help="where to write the fit (default: MODEL-DATASET.nc)")
    command.set_defaults(command="fit")

    command = commands.add_parser("report", help="write a report of a saved fit, or compare several")
    command.add_argument(
        "fits", nargs="+", metavar="FIT", help="a file that zoo fit wrote; several of the same data: compare"
    )
    command.add_argument(
        "--out",
        metavar="FILE",
        help="an .html or .md file (default: the fit's name with .html; of several comparison.html)",
    )
    command.add_argument(
        "--heldout",
        metavar="DATASET",
        help="several fits: score these rows too, a name in zoo list or a file",
    )
    _add_columns(command)
    command.set_defaults(command="report")

    command = commands.add_parser(
        "compare", help="fit every model by every method that accepts the data, and score held-out rows"
    )
    _add_data(command)
    command.add_argument("--models", nargs="+", metavar="MODEL", help="only these models")
    command.add_argument("--methods", nargs="+", metavar="METHOD", help="only these methods")
    command.add_argument("--seed", type=int, default=0, help="seed of the split and of the fits (default 0)")
    for option, default in COMPARE_OPTIONS.items():
        command.add_argument(
            f"--{option.replace('_', '-')}",
            type=int,
            default=default,
            help=f"as in zoo fit (default {default})",
        )
    command.add_argument("--out", metavar="FILE", help="also draw the table: a .png, .svg or .pdf file")
    command.set_defaults(command="compare")
    return parser.parse_args(arguments)


def _add_data(command: argparse.ArgumentParser) -> None:
    """The arguments that say what to fit."""
    command.add_argument(
        "dataset", metavar="DATASET", help="a name in zoo list, or a .csv, .npz, .nc or .parquet file"
    )
    _add_columns(command)
    command.add_argument(
        "--no-progress",
        dest="progress",
        action="store_const",
        const=False,
        default=None,
        help="no progress bar",
    )


def _add_columns(command: argparse.ArgumentParser) -> None:
    """The arguments that choose columns of a table."""
    command.add_argument(
        "--x", metavar="COLUMNS", help="input columns: names with commas between, FIRST:LAST for a run"
    )
    command.add_argument("--y", metavar="COLUMNS", help="output columns, written alike")
    command.add_argument("--views", nargs="+", metavar="COLUMNS", help="columns of each view, written alike")


_WORDS = {"true": True, "false": False, "none": None}
_CALLS: dict[str, tuple[str, str, bool]] = {  # name -> module, attribute, whether it is built from the data
    "Gamma": ("numpyro.distributions", "Gamma", False),
} | {
    family: ("zoo.conjugate", f"{family}.from_data", True)
    for family in (
        "BernoulliBeta",
        "BinomialBeta",
        "ExponentialGamma",
        "GammaKnownShape",
        "GaussianKnownCovariance",
        "GaussianKnownMean",
        "GaussianWishart",
        "MultinomialDirichlet",
        "NormalGamma",
        "PoissonGamma",
        "SharedGaussianWishart",
        "SphericalNormalGamma",
    )
}
_CALLS |= {
    family: ("zoo.exponential_family", family, False)
    for family in (
        "Bernoulli",
        "Binomial",
        "Categorical",
        "Exponential",
        "GammaWithShape",
        "Gaussian",
        "NegativeBinomial",
        "Ordinal",
        "Poisson",
    )
}
_CALLS |= {
    kernel: ("zoo.kernels", kernel, False) for kernel in ("Linear", "Polynomial", "Precomputed", "RBF")
}


class Call(NamedTuple):
    """A prior as it was written, to be built when its module is wanted.

    Attributes:
        name: key in the table of calls.
        args: positional arguments, literals.
        kwargs: keyword arguments, literals.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def parse_settings(texts: Iterable[str], known: Sequence[str], what: str) -> dict[str, Any]:
    """``["a=1", "b=Gamma(2, 1)"]`` as a dictionary.

    Args:
        texts: settings as written.
        known: the keys there are.
        what: what they are keys of, for the message.

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


def resolve(settings: Mapping[str, Any], data: Sequence[Any]) -> dict[str, Any]:
    """The settings with each `Call` made; priors that follow the data are built from them.

    Args:
        settings: what `parse_settings` gave.
        data: from which priors read their defaults.

    Returns:
        Key to value.
    """
    return {key: _resolved(value, data) for key, value in settings.items()}


def _resolved(value: Any, data: Sequence[Any]) -> Any:
    if isinstance(value, tuple) and not isinstance(value, Call):
        return tuple(_resolved(member, data) for member in value)
    return _build(value, data) if isinstance(value, Call) else value


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


def _build(call: Call, data: Sequence[Any]) -> Any:
    module, attribute, from_data = _CALLS[call.name]
    target = importlib.import_module(module)
    for part in attribute.split("."):
        target = getattr(target, part)
    return target(*(data if from_data else ()), *call.args, **call.kwargs)
