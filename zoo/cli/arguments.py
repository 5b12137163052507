"""The commands, arguments and options of the command line with their help, and the values of ``--set``.

A value of ``--set key=value`` is read without evaluating anything: it is a Python literal (``20``, ``1e-3``,
``true``), a call from a fixed table (``Gamma(2, 1)``, or ``NormalGamma(rate=Gamma(2, 1))``, whose arguments
are literals or such calls), a tuple of these (``(bernoulli, Ordinal(6))``), or else the text itself
(``stick_breaking``).
"""

import argparse
import ast
import difflib
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from zoo import __version__

__all__ = [
    "CHAIN_METHODS",
    "COMMANDS",
    "COMPARE_OPTIONS",
    "Call",
    "DTYPES",
    "FIT_OPTIONS",
    "SHELLS",
    "in_brief",
    "parse",
    "parse_families",
    "parse_levels",
    "parse_settings",
    "parser",
    "resolve",
    "whole",
]


def whole(least: int, most: int | None = None, range_in_words: str = "") -> Callable[[str], int]:
    """The type of an argument that is a whole number.

    Args:
        least: smallest allowed value.
        most: largest allowed value; None: any.
        range_in_words: the range, for the message.

    Returns:
        A function of the text that returns the number.
    """
    expected = f"must be a whole number {range_in_words or f'of at least {least}'}"

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{expected}; got {text!r}") from None
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"{expected}; got {text}")
        return value

    return read


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of at least 0 (nats per row); got {text!r}")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds; got {text!r}")
    return value


def _one_of(name: str, *choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            listed = " or ".join(map(repr, choices))
            raise argparse.ArgumentTypeError(f"{name} must be {listed}; got {text!r}")
        return text

    return read


LONGEST_LINE = 1000  # characters of a message
SEED = whole(0, 2**32 - 1, "in [0, 2**32)")
CHAIN_METHODS = ("vectorized", "parallel", "sequential")
DTYPES = ("float64", "float32")
FIT_OPTIONS = {  # option of inference.fit -> its type and what it means
    "seed": (SEED, "seed of all randomness, an int in [0, 2**32) (default 0)"),
    "num_chains": (whole(1), "chains of a sampler (default 4)"),
    "num_warmup": (whole(0), "warm-up sweeps of a sampler (default 1000)"),
    "num_samples": (
        whole(1),
        "draws kept: per chain of a sampler, from q for VB and SVI (default 1000; Gibbs "
        "samplers of mixtures: until their chains agree)",
    ),
    "thinning": (whole(1), "sweeps per draw kept (default 1, or as the method has it)"),
    "until": (
        _one_of("until", "converged"),
        "converged: a sampler goes on, num_samples draws per chain at a time, until its chains agree",
    ),
    "max_sweeps": (whole(1), "at most so many sweeps per chain with --until (default: warm-up and 20 looks)"),
    "max_seconds": (_seconds, "with --until, no more sweeps after so many seconds"),
    "chain_method": (
        _one_of("chain_method", *CHAIN_METHODS),
        "vectorized, parallel or sequential (default vectorized)",
    ),
    "max_iterations": (whole(1), "at most so many steps of an ascent (default 1000)"),
    "tolerance": (_tolerance, "stop when the objective gains less, in nats per row (default 1e-6)"),
    "num_restarts": (
        whole(1),
        "starts of an ascent, of which the best is kept (default: as model and method need)",
    ),
    "init": (str, "how to start: a strategy of the method, such as random, or the .nc file of a fit"),
    "batch_size": (whole(1), "rows of a batch: the data are read and fitted batch by batch"),
    "sample_weight": (str, "column that weights the rows"),
    "dtype": (_one_of("dtype", *DTYPES), "float64 or float32 (default float64)"),
    "checkpoint": (str, "file to save the run to, and to resume it from"),
}
COMPARE_OPTIONS = {"num_chains": 2, "num_warmup": 200, "num_samples": 200, "num_restarts": 5}
SHELLS = ("bash", "zsh", "fish")


class _Parser(argparse.ArgumentParser):
    """Argument parser with one-line errors, whose help keeps the lines of its examples."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **settings)

    def error(self, message: str) -> NoReturn:
        """Print the message without the usage and exit with status 2."""
        self.exit(2, f"{self.prog}: error: {in_brief(message)}; see {self.prog} --help\n")


def in_brief(message: str) -> str:
    """A message on one line, its middle left out where it repeats much of what was written.

    Args:
        message: of an error.

    Returns:
        The message.
    """
    line = " ".join(message.split())
    return (
        line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE // 2]} ... {line[-LONGEST_LINE // 2 :]}"
    )


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line into the options of a command, whose name is ``command``.

    Args:
        arguments: words of the command line; None: those of this process.

    Returns:
        The options by name.

    Raises:
        SystemExit: status 2 and one line on stderr for a wrong argument, status 0 after ``--help`` and
            ``--version``.
    """
    options = parser().parse_args(arguments)
    if isinstance(getattr(options, "dataset", None), list):
        options.files, options.dataset = options.dataset, options.dataset[0]
    return options


def parser() -> argparse.ArgumentParser:
    """The parser of the command line.

    Returns:
        The parser, with one parser for each command.
    """
    examples = "examples:\n  zoo list\n  zoo fit mixture faithful\n  zoo report mixture-faithful.nc"
    whole_line = _Parser(
        prog="zoo",
        description="Probabilistic models as NumPyro programs, and how to fit them.",
        epilog=f"{examples}\n\nzoo COMMAND --help has examples of each command.",
    )
    whole_line.add_argument("--version", action="version", version=f"zoo {__version__}")
    whole_line.add_argument("--traceback", action="store_true", help="show the whole traceback of an error")
    commands = whole_line.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    for name, (purpose, options, examples) in COMMANDS.items():
        lines = "".join(f"\n  {line}" for line in examples.strip().splitlines())
        command = commands.add_parser(
            name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.", epilog=f"examples:{lines}"
        )
        command.set_defaults(command=name)
        for option, settings in options.items():
            command.add_argument(option, **settings)
    return whole_line


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _text(metavar: str, meaning: str, **settings: Any) -> dict[str, Any]:
    """Settings of an argument that takes a value."""
    return {"metavar": metavar, "help": meaning} | settings


_MODEL = {"model": _text("MODEL", "a model, or one of its aliases; see zoo list")}
_REPEATED = {"action": "append", "default": []}
_COLUMNS = {
    "--x": _text("COLUMNS", "input columns: names separated by commas, or FIRST:LAST for a range"),
    "--y": _text("COLUMNS", "output columns, in the same form"),
    "--views": _text("COLUMNS", "columns of each view, in the same form", nargs="+"),
    "--read": _text(
        "NAME=VALUE",
        "how to read a text file, where it is not recognised: separator=semicolon, decimal=comma, header=no, "
        "encoding=latin-1, skip_rows=3",
        **_REPEATED,
    ),
}
_FILES = "a .csv, .tsv, .txt, .xlsx, .parquet, .npz or .nc file"
_DATA = {"dataset": _text("DATASET", f"a name in zoo list, or {_FILES}"), **_COLUMNS}
_BATCHES = {
    "dataset": _text(
        "DATASET",
        f"a name in zoo list, or {_FILES}; with --batch-size also several files, a folder, .npy and .zarr "
        "arrays; with --id a file for each table of the same people",
        nargs="+",
    ),
    **_COLUMNS,
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
        "help": "divide each column by its standard deviation; results are in the units of the data",
    },
}
_PROGRESS = {
    "--no-progress": {"dest": "progress", "action": "store_const", "const": False, "help": "no progress bar"},
}
_FORCE = {"--force": {"action": "store_true", "help": "replace files that exist"}}
_MODEL_OPTIONS = {
    "--method": {"default": "auto", "help": "one of the model's methods, see zoo show (default: the first)"},
    "--set": _text("FIELD=VALUE", "a field of the model, such as num_components=20", **_REPEATED),
    "--option": _text("NAME=VALUE", "an option of the method", **_REPEATED),
}


def _fit_options(*names: str) -> dict[str, dict[str, Any]]:
    chosen = names or tuple(FIT_OPTIONS)
    return {
        _flag(name): {"type": FIT_OPTIONS[name][0], "help": FIT_OPTIONS[name][1], "metavar": "VALUE"}
        for name in chosen
    }


#: Purpose, arguments and examples of each command.
COMMANDS: dict[str, tuple[str, dict[str, dict[str, Any]], str]] = {
    "list": ("the models, their methods and papers, and the data sets", {}, "zoo list"),
    "show": (
        "a model's card: what is assumed, methods and their cost, the paper's claims",
        _MODEL | {"--out": _text("FILE", "write it as a page, a .md file")} | _FORCE,
        "zoo show mixture\nzoo show ppca --out ppca.md",
    ),
    "fit": (
        "fit a model to a data set and save the fit",
        _MODEL
        | _BATCHES
        | _PROGRESS
        | _MODEL_OPTIONS
        | {"--keep": _text("NAME", "store this variable, however large it is", **_REPEATED)}
        | _fit_options()
        | _KINDS
        | {
            "--out": _text("FILE", "where to write the fit (default: MODEL-DATASET.nc, or an unused name)"),
            "--report": _text("FILE", "also write its report, an .html or .md file"),
            "--details": {
                "action": "store_true",
                "help": "also print the quantities by which convergence is judged, and what they are",
            },
        }
        | _FORCE,
        """
zoo fit mixture faithful --set num_components=20
zoo fit ppca table.csv --x age,income:score --set num_latents=2 --report ppca.html
zoo fit sppca olive --y area --set num_latents=3
zoo fit paired bfi --views A1:A5 N1:N5 --set "families=(Ordinal(6), Ordinal(6))"
zoo fit mixture faithful --method gibbs --num-samples 2000 --checkpoint run.ckpt --out gibbs.nc
zoo fit mixture measured.csv --read separator=semicolon --read decimal=comma
zoo fit mixture rows/*.parquet --batch-size 100000 --sample-weight copies
""",
    ),
    "predict": (
        "predict new rows with a saved fit: clusters, missing cells, outputs, or scores",
        {
            "fit": _text("FIT", "a file written by zoo fit"),
            **_BATCHES,
            "--batch-size": _text("VALUE", "rows scored and written at a time", type=whole(1)),
            "--what": _text(
                "NAME",
                "prediction (default), scores, log_density, or what the model predicts: classes, cells, y_1",
            ),
            "--deviations": {"action": "store_true", "help": "also write standard deviations of predictions"},
            "--out": _text(
                "FILE",
                "a .csv, .tsv, .xlsx or .parquet file, with --batch-size also .npy (default: "
                "FIT-DATASET.csv, or an unused name)",
            ),
        }
        | _FORCE,
        """
zoo predict mixture-faithful.nc faithful
zoo predict ppca-table.nc new.csv --out completed.csv
zoo predict sppca-olive.nc olive --what classes
zoo predict mixture-faithful.nc faithful --what log_density
zoo predict mixture-rows.nc rows/*.parquet --out clusters.parquet
""",
    ),
    "sweep": (
        "fit a model in several sizes, score held-out rows, and recommend a size",
        _MODEL
        | _DATA
        | {
            "--sizes": _text(
                "SIZES",
                "FIRST:LAST or numbers separated by commas, for the model's first size or as FIELD=SIZES; "
                "several fields: every combination",
                action="append",
                required=True,
            ),
            "--folds": _text(
                "N", "number of folds for cross-validation (default 5)", type=whole(2), default=5
            ),
        }
        | _MODEL_OPTIONS
        | _fit_options(
            *("seed", "num_chains", "num_warmup", "num_samples", "max_iterations", "tolerance"),
            *("num_restarts", "init", "dtype"),
        )
        | _KINDS
        | {"--out": _text("FILE", "also write the table, a .csv file")}
        | _FORCE,
        """
zoo sweep mixture faithful --sizes 1:6
zoo sweep ppca wine --x x --sizes 1,2,4,8 --standardize
zoo sweep depcam olive --sizes num_components=1:3 --sizes num_latents=1,2 --set family=gaussian
""",
    ),
    "report": (
        "write a report of a saved fit, or compare several",
        {
            "fits": _text(
                "FIT", "a file written by zoo fit; several fits of the same data are compared", nargs="+"
            ),
            "--out": _text(
                "FILE",
                "an .html or .md file (default: the fit's name with .html, or comparison.html)",
            ),
            "--heldout": _text(
                "DATASET", "with several fits: also score these rows, a name in zoo list or a file"
            ),
            **_COLUMNS,
        }
        | _FORCE,
        """
zoo report mixture-faithful.nc
zoo report vb.nc gibbs.nc --heldout new.csv --out comparison.html
""",
    ),
    "compare": (
        "fit every model by every method that accepts the data, and score held-out rows",
        _DATA
        | _PROGRESS
        | {
            "--models": _text("MODEL", "only these models", nargs="+"),
            "--methods": _text("METHOD", "only these methods", nargs="+"),
            **{option: settings for option, settings in _KINDS.items() if option != "--standardize"},
            "--seed": _text("VALUE", "seed of the split and of the fits (default 0)", type=SEED, default=0),
        }
        | {
            _flag(name): {
                "type": FIT_OPTIONS[name][0],
                "default": default,
                "metavar": "VALUE",
                "help": f"as in zoo fit (default {default})",
            }
            for name, default in COMPARE_OPTIONS.items()
        }
        | {"--out": _text("FILE", "also draw the table: a .png, .svg or .pdf file")}
        | _FORCE,
        """
zoo compare faithful
zoo compare table.csv --models mixture ppca --methods vb em --out methods.svg
""",
    ),
    "completion": (
        "print the script that completes commands, options and names in a shell",
        {"shell": {"metavar": "SHELL", "choices": SHELLS, "help": "bash, zsh or fish"}},
        """
zoo completion bash > ~/.local/share/bash-completion/completions/zoo
source <(zoo completion zsh)    # in ~/.zshrc, after compinit
zoo completion fish > ~/.config/fish/completions/zoo.fish
""",
    ),
}


_WORDS = {"true": True, "false": False, "none": None}
_MODULES = {  # what may be called, by its module
    "numpyro.distributions": "Gamma Normal",
    "zoo.conjugate": "BernoulliBeta BinomialBeta CategoricalDirichlet ExponentialGamma GammaKnownShape "
    "GaussianKnownCovariance GaussianKnownMean GaussianWishart LogNormalGamma MultinomialDirichlet "
    "NormalGamma PoissonGamma Product SharedGaussianWishart SphericalNormalGamma",
    "zoo.exponential_family": "Bernoulli Binomial Categorical Exponential GammaWithShape Gaussian "
    "NegativeBinomial Ordinal Poisson",
    "zoo.kernels": "Linear Polynomial Precomputed RBF",
}
_CALLS = {name: module for module, names in _MODULES.items() for name in names.split()}


class Call(NamedTuple):
    """A call as it was written, made when its module is imported.

    Attributes:
        name: key in the table of calls.
        args: positional arguments, literals, calls or tuples of these.
        kwargs: keyword arguments, likewise.
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
            near = difflib.get_close_matches(key, known, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"{what} has no setting {key!r}; it has: {', '.join(known)}{meant}")
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
        args = tuple(_parse_argument(argument) for argument in call.args)
        kwargs = {str(keyword.arg): _parse_argument(keyword.value) for keyword in call.keywords}
    except _NoLiteral:
        raise ValueError(
            f"the arguments of {name} must be numbers or other literals; got {ast.unparse(call)}"
        ) from None
    if _CALLS[name] == "numpyro.distributions":  # which refuse words by an error of NumPy
        for value in (*args, *kwargs.values()):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(
                    f"the arguments of {name} must be numbers; got {value!r} in {ast.unparse(call)}"
                )
        location = args[:1] if name == "Normal" else ()
        for value in (*args[len(location) :], *(v for key, v in kwargs.items() if key != "loc")):
            if value <= 0:
                what = "scale" if name == "Normal" else "arguments"
                raise ValueError(f"the {what} of {name} must be positive; got {value} in {ast.unparse(call)}")
    return Call(name, args, kwargs)


class _NoLiteral(ValueError):
    """An argument is neither a literal nor a call."""


def _parse_argument(node: ast.expr) -> Any:
    """An argument of a call: a literal, a call such as ``Gamma(2, 1)``, or a tuple of these."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        return _parse_call(node.func.id, node)
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(map(_parse_argument, node.elts))
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise _NoLiteral from None


def _build(call: Call) -> Any:
    args, kwargs = map(_resolved, call.args), {key: _resolved(value) for key, value in call.kwargs.items()}
    return getattr(importlib.import_module(_CALLS[call.name]), call.name)(*args, **kwargs)
