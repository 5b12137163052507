"""The commands, arguments and options of the command line, by click, with their help and completion.

An option is a line here: `click` reads, converts and completes it, and `inference.cli.fitting` passes those
of `FIT_OPTIONS` to `inference.fit`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from inference.cli.printing import in_brief
from zoo import ALIASES, MODELS, __version__, canonical_name
from zoo.cards import read_card
from zoo.datasets import catalogue

_WIDTH = 110


class _Command(click.Command):
    """A command that gives what was asked for; ``--views A B`` is read as ``--views A --views B``."""

    def __init__(
        self, name: str, purpose: str, params: list[click.Parameter], examples: str, scope: str = ""
    ) -> None:
        lines = "".join(f"\n  {line}" for line in examples.strip().splitlines())
        super().__init__(
            name,
            params=params,
            help=f"{purpose[0].upper()}{purpose[1:]}.{scope and ' '}{scope}",
            short_help=purpose,
            epilog=f"\b\nexamples:{lines}",
            callback=partial(SimpleNamespace, command=name),
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words, each value of an option that takes several as one of its own."""
        if ctx.resilient_parsing and args and args[-1].startswith("-"):
            args = args[:-1]  # its value is being completed, by the words before it
        several = {flag for param in self.params for flag in param.opts if _takes_several(param)}
        return super().parse_args(ctx, list(_spread(args, several)))


def _takes_several(param: click.Parameter) -> bool:
    return isinstance(param, click.Option) and (param.metavar or "").endswith(" ...")


def _spread(words: Sequence[str], several: set[str]) -> Iterator[str]:
    flag, is_first = "", True
    for word in words:
        if word.startswith("-"):
            flag, is_first = word if word in several else "", True
        elif flag and not is_first:
            yield flag
        else:
            is_first = False
        yield word


def parse(arguments: Sequence[str]) -> SimpleNamespace | int:
    """Read the words of the command line.

    Raises:
        ValueError: a word is wrong.
    """
    try:
        found = _ZOO.main(list(arguments), prog_name="zoo", standalone_mode=False)
    except click.ClickException as error:
        where = error.ctx.command_path if getattr(error, "ctx", None) else "zoo"
        message = in_brief(error.format_message()).rstrip(".")
        raise ValueError(f"{_as_setting(error) or message}; see {where} --help") from None
    if isinstance(found, SimpleNamespace):
        found.given = dict(vars(found))
        found.files = list(getattr(found, "files", None) or filter(None, [getattr(found, "dataset", None)]))
    return found


def _as_setting(error: click.ClickException) -> str:
    """How a field that was written as an option is given; empty for another error."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return ""
    if error.option_name == "--sample-weight" and error.ctx.command.name in ("sweep", "compare"):
        return (
            f"{error.ctx.command.name} has no --sample-weight, for its held-out scores count all rows alike: "
            "leave the column out by --families COLUMN=leave_out, or fit each candidate by "
            "zoo fit --sample-weight COLUMN and compare the fits by zoo report"
        )
    field = error.option_name.strip("-").replace("-", "_")
    if field not in _of_model(error.ctx, "fields") or not any(
        p.name == "set" for p in error.ctx.command.params
    ):
        return ""
    return f"{error.option_name} is a field of a model, which is given by --set {field}=VALUE"


def _words_of(words: Callable[[click.Context], Sequence[str]]) -> dict[str, Any]:
    """Completion by words, or by the names of files where none begins like that."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list:
        found = [word for word in words(ctx) if word.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]

    return {"shell_complete": complete}


def _of_model(ctx: click.Context, what: str, ending: str = "") -> list[str]:
    """Methods or fields of the model on the line, or of all."""
    model = ctx.params.get("model")
    names = [canonical_name(model)] if model in (*MODELS, *ALIASES) else [*MODELS]
    return list(dict.fromkeys(f"{word}{ending}" for name in names for word in getattr(read_card(name), what)))


def _option(
    name: str, meaning: str, kind: Any = None, metavar: str | None = None, **more: Any
) -> click.Option:
    return click.Option([name], help=meaning, type=kind, metavar=metavar, **more)


def _many(name: str, meaning: str, metavar: str, **more: Any) -> click.Option:
    return _option(name, meaning, metavar=metavar, multiple=True, **more)


def _file(name: str, meaning: str) -> click.Option:
    return _option(name, meaning, click.Path(), "FILE")


def _flag(name: str, meaning: str) -> click.Option:
    return _option(name, meaning, is_flag=True)


def _argument(name: str, metavar: str, **more: Any) -> click.Argument:
    return click.Argument([name], metavar=metavar, **more)


_models = _words_of(lambda ctx: [*MODELS, *ALIASES])
_methods = _words_of(lambda ctx: _of_model(ctx, "methods"))
_fields = _words_of(lambda ctx: _of_model(ctx, "fields", "="))
_datasets = _words_of(lambda ctx: list(catalogue()))
_reading = _words_of(
    lambda ctx: ["separator=", "decimal=", "header=no", "header=yes", "encoding=", "skip_rows="]
)
_answers = _words_of(lambda ctx: ["prediction", "scores", "log_density", "classes", "cells", "outputs"])

_FROM_0, _FROM_1, _FROM_2 = click.IntRange(0), click.IntRange(1), click.IntRange(2)
_SEED = click.IntRange(0, 2**32 - 1)
_PLACES = click.Choice(["vectorized", "parallel", "sequential"])

_MODEL = [_argument("model", "MODEL", **_models)]
_TABLE = [_argument("dataset", "DATASET", **_datasets)]
_TABLES = [_argument("files", "DATASET...", nargs=-1, required=True, **_datasets)]  # see `naming`
_COLUMNS = [
    _option("--x", "input columns: names with commas between, or FIRST:LAST for a range", metavar="COLUMNS"),
    _option("--y", "output columns, in the same form", metavar="COLUMNS"),
    _many("--views", "columns of each view, in the same form", "COLUMNS ..."),
    _many(
        "--read",
        "how to read a text file, where it is not recognised: separator=semicolon, decimal=comma, header=no, "
        "encoding=latin-1, skip_rows=3",
        "NAME=VALUE",
        **_reading,
    ),
]
_KINDS = [
    _many(
        "--families",
        "what columns hold: gaussian, lognormal, poisson, bernoulli, categorical, ordinal, date or leave_out",
        "COLUMN=FAMILY,...",
    ),
    _many("--levels", "levels of a column in rising order", "COLUMN=LEVEL,..."),
    _option("--id", "column that labels the rows", metavar="COLUMN"),
]
_STANDARDIZE = [
    _flag("--standardize", "divide columns by their standard deviations; results have their units")
]
_PROGRESS = [_option("--progress/--no-progress", "a progress bar (default: on a terminal)", default=None)]
_FORCE = [_flag("--force", "replace files that exist")]
_OWN_MODEL = [_option("--model", "the model of the fit, if it is your own", metavar="FILE.py:CLASS")]
_MODEL_OPTIONS = [
    _option(
        "--method", "a method of the model, see zoo show (default: the first)", default="auto", **_methods
    ),
    _many("--set", "a field of the model, such as num_components=20", "FIELD=VALUE", **_fields),
    _many("--option", "an option of the method", "NAME=VALUE"),
]
FIT_OPTIONS = {  # of `inference.fit`, None where they are not given
    option.name: option
    for option in (
        _option("--seed", "seed of all randomness, an int in [0, 2**32) (default 0)", _SEED),
        _option("--num-chains", "chains of a sampler (default 4)", _FROM_1),
        _option("--num-warmup", "warm-up sweeps of a sampler (default 1000; tempered 300)", _FROM_0),
        _option("--num-samples", "draws kept, per chain of a sampler (default 1000, or as needed)", _FROM_1),
        _option("--thinning", "sweeps per draw kept (default 1, or as the method has it)", _FROM_1),
        _option("--until", "go on until the chains of a sampler agree", click.Choice(["converged"])),
        _option("--max-sweeps", "of --until, per chain (default: warm-up and 20 looks)", _FROM_1),
        _option("--max-seconds", "of --until: no more sweeps then", click.FloatRange(0, min_open=True)),
        _option("--chain-method", "how chains run (default vectorized)", _PLACES),
        _option("--max-iterations", "at most so many steps of an ascent (default 1000)", _FROM_1),
        _option("--tolerance", "least gain, in nats per row (default 1e-6)", click.FloatRange(0)),
        _option(
            "--num-restarts", "starts of an ascent, of which the best is kept (default: as needed)", _FROM_1
        ),
        _option("--init", "how to start: a strategy, such as random, or the .nc file of a fit"),
        _option("--batch-size", "rows of a batch: the data are read and fitted batch by batch", _FROM_1),
        _option("--sample-weight", "column that weights the rows", metavar="COLUMN"),
        _option("--dtype", "of the numbers (default float64)", click.Choice(["float64", "float32"])),
        _file("--checkpoint", "file to save the run to, and to resume it from"),
    )
}


_NOT_FILMED = ("batch_size", "checkpoint")  # a film is of a run in memory, from its first step


def _fit_options(*names: str) -> list[click.Parameter]:
    return [FIT_OPTIONS[name] for name in names]


#: Options that say of which data and model a command is.
SAYING_WHAT = [*_COLUMNS, *_KINDS, *_STANDARDIZE, *_MODEL_OPTIONS]
COMMANDS = {
    command.name: command
    for command in (
        _Command("list", "the models, their methods and papers, and the data sets", [], "zoo list"),
        _Command(
            "show",
            "a model's card: what is assumed, methods and their cost, the paper's claims",
            [*_MODEL, _file("--out", "write it as a page, a .md file"), *_FORCE],
            """
zoo show mixture
zoo show ppca --out ppca.md
""",
        ),
        _Command(
            "fit",
            "fit a model to a data set and save the fit",
            [
                *(*_MODEL, *_TABLES, *_COLUMNS, *_PROGRESS, *_MODEL_OPTIONS),
                _many("--keep", "store this variable, however large it is", "NAME"),
                *(*FIT_OPTIONS.values(), *_KINDS, *_STANDARDIZE),
                _file("--out", "where to write the fit (default: MODEL-DATASET.nc, or an unused name)"),
                _file("--report", "also write its report, an .html or .md file"),
                _flag("--details", "also print the quantities by which convergence is judged"),
                *_FORCE,
            ],
            """
zoo fit mixture faithful --set num_components=20
zoo fit ppca table.csv --x age,income:score --set num_latents=2 --report ppca.html
zoo fit sppca olive --y area --set num_latents=3
zoo fit paired bfi --views A1:A5 N1:N5 --set "families=(Ordinal(6), Ordinal(6))"
zoo fit mixture faithful --method gibbs --num-samples 2000 --checkpoint run.ckpt --out gibbs.nc
zoo fit mixture measured.csv --read separator=semicolon --read decimal=comma
zoo fit mixture rows/*.parquet --batch-size 100000 --sample-weight copies
zoo fit my_models.py:RobustLocation table.csv    # a model of your own, in a file or a module of Python
""",
        ),
        _Command(
            "film",
            "fit a model and write the film of the fit: a page that plays its iterations or sweeps",
            [
                *(*_MODEL, *_TABLE, *_COLUMNS, *_PROGRESS, *_MODEL_OPTIONS),
                _option(
                    "--features",
                    "two columns whose plane is shown (default: both of two, else two principal ones)",
                    None,
                    "ONE,OTHER",
                ),
                *(option for name, option in FIT_OPTIONS.items() if name not in _NOT_FILMED),
                *(*_KINDS, *_STANDARDIZE),
                _file("--out", "an .html file (default: MODEL-DATASET-film.html, or an unused name)"),
                *_FORCE,
            ],
            """
zoo film mixture faithful --out film.html
zoo film mixture faithful --method gibbs --set num_components=6 --num-warmup 200 --num-samples 300
zoo film ppca wine --x x --method em --init random --standardize
""",
            "Models with films: depcam, epca, mcfa, mixture, ppca and sppca; methods: all but closed_form, "
            "morp and kernel_cca, which compute their answers at once.",
        ),
        _Command(
            "predict",
            "predict new rows with a saved fit: clusters, outputs, scores, or missing cells of a projection",
            [
                *(_argument("fit", "FIT", type=click.Path()), *_TABLES, *_COLUMNS, *_OWN_MODEL),
                _option("--batch-size", "rows scored and written at a time", _FROM_1),
                _option(
                    "--what",
                    "prediction (default), probabilities, cells, scores, log_density, classes, y_1",
                    **_answers,
                ),
                _flag("--deviations", "also write standard deviations of predictions"),
                _option("--id", "column that joins tables of the same rows", metavar="COLUMN"),
                _file("--out", "a .csv, .tsv, .xlsx, .parquet or .npy file (default: FIT-DATASET.csv)"),
                *_FORCE,
            ],
            """
zoo predict mixture-faithful.nc faithful
zoo predict ppca-table.nc new.csv --out completed.csv
zoo predict sppca-olive.nc olive --what classes
zoo predict mcfa-table.nc new.csv --what cells
zoo predict mixture-faithful.nc faithful --what log_density
zoo predict mixture-rows.nc rows/*.parquet --out clusters.parquet
""",
        ),
        _Command(
            "explain",
            "why a fitted row is in its cluster or has its scores: what each cell contributes",
            [
                _argument("fit", "FIT", type=click.Path()),
                _option("--row", "its label, or its number from 0", metavar="ROW", required=True),
                *_OWN_MODEL,
            ],
            """
zoo explain mixture-faithful.nc --row 17
zoo explain ppca-customers.nc --row K00001
""",
        ),
        _Command(
            "check",
            "draw tables from a fit and fit them again: would the method find it if it were true?",
            [
                _argument("fit", "FIT", type=click.Path()),
                _option("--tables", "how many are drawn (default 20)", _FROM_1, default=20),
                _option("--seed", "of the tables and of their fits (default 0)", _SEED, default=0),
                *_OWN_MODEL,
            ],
            """
zoo check mixture-faithful.nc
zoo check mixture-faithful.nc --tables 5
""",
        ),
        _Command(
            "sweep",
            "fit a model in several sizes, score held-out rows, and recommend a size",
            [
                *(*_MODEL, *_TABLE, *_COLUMNS),
                _many(
                    "--sizes",
                    "FIRST:LAST or numbers with commas between, for the model's first size or as "
                    "FIELD=SIZES; several fields: every combination",
                    "SIZES",
                    required=True,
                ),
                _option("--folds", "folds of the cross-validation (default 5)", _FROM_2, default=5),
                *_MODEL_OPTIONS,
                *_fit_options("seed", "num_chains", "num_warmup", "num_samples", "max_iterations"),
                *_fit_options("tolerance", "num_restarts", "init", "dtype"),
                *(*_KINDS, *_STANDARDIZE, _file("--out", "also write the table, a .csv file"), *_FORCE),
            ],
            """
zoo sweep mixture faithful --sizes 1:6
zoo sweep ppca wine --x x --sizes 1,2,4,8 --standardize
zoo sweep depcam olive --sizes num_components=1:3 --sizes num_latents=1,2 --set family=gaussian
""",
        ),
        _Command(
            "report",
            "write a report of a saved fit, or compare several",
            [
                _argument("fits", "FIT...", nargs=-1, required=True, type=click.Path()),
                _file("--out", "an .html or .md file (default: the fit's name, or comparison.html)"),
                _flag("--plain", "fold what only a statistician reads: a page to decide by"),
                _option(
                    "--heldout", "with several fits: also score these rows", None, "DATASET", **_datasets
                ),
                *(*_OWN_MODEL, *_COLUMNS, *_FORCE),
            ],
            """
zoo report mixture-faithful.nc
zoo report mixture-faithful.nc --plain
zoo report vb.nc gibbs.nc --heldout new.csv --out comparison.html
""",
        ),
        _Command(
            "compare",
            "fit every model by every method that accepts the data, and score held-out rows",
            [
                *(*_TABLE, *_COLUMNS, *_PROGRESS),
                _many("--models", "only these models", "MODEL ...", **_models),
                _many("--methods", "only these methods", "METHOD ...", **_methods),
                *(*_KINDS, *_STANDARDIZE),
                _option("--seed", "of the split and of the fits (default 0)", _SEED, default=0),
                _option("--num-chains", "as in zoo fit (default 2)", _FROM_1, default=2),
                _option("--num-warmup", "as in zoo fit (default 200)", _FROM_0, default=200),
                _option("--num-samples", "as in zoo fit (default 200)", _FROM_1, default=200),
                _option("--num-restarts", "as in zoo fit (default 5)", _FROM_1, default=5),
                _file("--out", "also draw the table: a .png, .svg or .pdf file"),
                *_FORCE,
            ],
            """
zoo compare faithful
zoo compare table.csv --models mixture ppca --methods vb em --out methods.svg
""",
        ),
        _Command(
            "completion",
            "print the script that completes commands, options and names in a shell",
            [_argument("shell", "SHELL", type=click.Choice(["bash", "zsh", "fish"]))],
            """
zoo completion bash > ~/.local/share/bash-completion/completions/zoo
source <(zoo completion zsh)    # in ~/.zshrc, after compinit
zoo completion fish > ~/.config/fish/completions/zoo.fish
""",
        ),
    )
}

_ZOO = click.Group(
    "zoo",
    COMMANDS,
    help="Probabilistic models as NumPyro programs, and how to fit them.",
    epilog="\b\nexamples:\n  zoo list\n  zoo fit mixture faithful\n  zoo report mixture-faithful.nc\n\n"
    "zoo COMMAND --help has examples of each command.",
    params=[_flag("--traceback", "show the whole traceback of an error")],
    result_callback=lambda options, traceback: SimpleNamespace(**vars(options), traceback=traceback),
    no_args_is_help=False,
    context_settings={"max_content_width": _WIDTH, "help_option_names": ["-h", "--help"]},
)
_ZOO = click.version_option(__version__, message="%(prog)s %(version)s")(_ZOO)


def completion(options: SimpleNamespace) -> int:
    """Print the script by which a shell asks ``zoo`` for the words that may come next."""
    shell = get_completion_class(options.shell)
    print(shell(_ZOO, {}, "zoo", "_ZOO_COMPLETE").source())
    return 0
