"""The command line: ``zoo list``, ``zoo show``, ``zoo fit``, ``zoo report`` and ``zoo compare``.

``list``, ``show`` and ``--help`` read source files and import neither JAX nor NumPy. Every error is one line
on stderr with exit status 2, and what can be checked is checked before the first import: names, settings,
whether the output can be written.
"""

import argparse
import os
import shlex
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zoo import MODELS, canonical_name, model_class
from zoo.cards import Card, read_card
from zoo.cli.arguments import COMPARE_OPTIONS, FIT_OPTIONS, parse
from zoo.datasets import catalogue

__all__ = ["main"]

_ERRORS = (ValueError, TypeError, KeyError, OSError, ImportError, ArithmeticError, RuntimeError, MemoryError)
_MOST_OF_A_VARIABLE = 4  # rows of the table of `fit`
_INTERRUPTED = 130  # the exit status of a command ended by Ctrl-C
_COMPARED = ("model", "method", "nats/row", "+-", "seconds", "converged", "max PSRF", "MiB more")
_PICTURES = (".png", ".svg", ".pdf")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, 2 for an error of the caller, 130 after Ctrl-C.

    Args:
        arguments: words of the command line; None: those of this process.

    Returns:
        The exit status.
    """
    options = parse(arguments)
    options.words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _COMMANDS[options.command](options)
    except BrokenPipeError:  # the reader of our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("zoo: interrupted before there was anything to keep", file=sys.stderr)
        return _INTERRUPTED
    except _ERRORS as error:
        if options.traceback:
            raise
        print(f"zoo: error: {_one_line(error)}", file=sys.stderr)
        return 2


def list_models(options: argparse.Namespace) -> int:
    """Print the models with their methods and papers, and the data sets."""
    cards = [read_card(name) for name in MODELS]
    print("Models")
    for card in cards:
        print(f"  {card.name:<12} {card.title}")
        print(f"  {'':<12} methods: {', '.join(card.methods)}")
        print(f"  {'':<12} paper:   {card.paper}")
        print(f"  {'':<12} aliases: {', '.join(card.aliases)}")
    print("\nData sets")
    for name, entry in catalogue().items():
        shapes = ", ".join(
            f"{key} {' x '.join(map(str, spec['shape']))}" for key, spec in entry["arrays"].items()
        )
        held = {"user": " (yours, in ZOO_DATA)", "package": f" (comes with {entry.get('package')})"}.get(
            entry["kind"], ""
        )
        print(f"  {name:<16} {shapes}{held}")
    print("\nNext: zoo show MODEL, zoo fit MODEL DATASET")
    return 0


def show(options: argparse.Namespace) -> int:
    """Print a model's card: its assumptions, methods and the claims of its paper; or write it as a page."""
    import shutil

    from zoo.cards.page import card_as_markdown, card_as_text

    card = read_card(options.model)
    if options.out is None:
        columns = shutil.get_terminal_size((100, 24)).columns
        print(card_as_text(card, min(max(columns, 60), 110)))
        return 0
    out = Path(options.out)
    if out.suffix != ".md":
        raise ValueError(f"a card is written as Markdown, to a file ending in .md; got {options.out}")
    _check_writable(out)
    out.write_text(card_as_markdown(card), encoding="utf-8")
    print(f"saved to {out}")
    return 0


def fit(options: argparse.Namespace) -> int:
    """Fit a model to a data set, print a summary, and write the fit."""
    from zoo.cli.arguments import parse_settings, resolve
    from zoo.cli.selection import select

    card = read_card(options.model)
    _check_method(card, options.method)
    settings = parse_settings(options.set, tuple(card.fields), f"the model {card.name}")
    out = Path(options.out or f"{card.name}-{Path(options.dataset).stem}.nc")
    for path in (out, options.checkpoint):
        if path is not None:
            _check_writable(Path(path))
    name, data = select(options.dataset, options.x, options.y, options.views)
    method_options = dict(_split(text) for text in options.option)
    keywords = {key: getattr(options, key) for key in FIT_OPTIONS if getattr(options, key) is not None}

    import inference
    from inference.diagnostics import profile_text, summary_text
    from inference.inputs.tables import check_parts

    inference.compile_cache()
    chosen = model_class(card.name)
    if isinstance(chosen.data_names, tuple):  # else the data say how many parts there are
        check_parts(chosen, data)
    with _collected_warnings() as notes:
        model = chosen.from_data(*data, **resolve(settings, data))
        tree = inference.fit(
            model,
            *data,
            method=options.method,
            keep=tuple(options.keep),
            progress=options.progress,
            **keywords,
            **method_options,
        )
        tree.attrs |= {"data_name": name, "command": shlex.join(["zoo", *options.words])}
        inference.save(tree, out)
        answers, table = profile_text(tree), summary_text(tree, most=_MOST_OF_A_VARIABLE)
    attributes = tree.attrs
    print(f"model      {card.name}: {card.title}")
    print(f"data       {name}: {'; '.join(map(_shape, data))}")
    chosen = " ".join(map(str.strip, options.set))
    print(f"method     {attributes['method']}, seed {attributes['seed']}" + (f", {chosen}" if chosen else ""))
    verdict = f"{'yes' if attributes['converged'] else 'NO'} ({attributes['stop_reason']})"
    spent = f"{attributes['num_iterations']} iterations in {attributes['sampling_time']:.1f} s"
    print(f"converged  {verdict}, {spent}{_reached(tree)}")
    _print_warnings(notes)
    print(f"\n{answers}\n\n{table}\n" if answers else f"\n{table}\n")
    interrupted = _was_interrupted(tree)
    saved = "interrupted; what there is was saved" if interrupted else "saved"
    print(f"{saved} to {out} ({out.stat().st_size / 1e6:.1f} MB)")
    return _INTERRUPTED if interrupted else 0


def report(options: argparse.Namespace) -> int:
    """Write the report of a fit, or a comparison of several fits of the same data."""
    several = len(options.fits) > 1
    out = Path(options.out or ("comparison.html" if several else Path(options.fits[0]).with_suffix(".html")))
    _check_writable(out)
    if options.heldout is not None and not several:
        raise ValueError("--heldout compares fits and one was given; name several")
    names = _short_names(options.fits)

    from inference import compile_cache, load
    from inference.report import report as write_report
    from inference.report import report_comparison
    from zoo.cli.selection import select

    compile_cache()
    with _collected_warnings() as notes:
        if several:
            columns = options.heldout, options.x, options.y, options.views
            held_out = () if options.heldout is None else select(*columns)[1]
            trees = {name: load(path) for name, path in zip(names, options.fits, strict=True)}
            report_comparison(trees, out, held_out)
        else:
            write_report(load(options.fits[0]), out)
    _print_warnings(notes)
    print(f"saved to {out}")
    return 0


def _short_names(paths: Sequence[str]) -> list[str]:
    """The names of the files without their endings, or their paths where two names are equal."""
    if len(set(map(os.path.realpath, paths))) < len(paths):
        raise ValueError("a file was named twice: a comparison needs different fits")
    stems = [Path(path).stem for path in paths]
    return stems if len(set(stems)) == len(stems) else list(paths)


def compare(options: argparse.Namespace) -> int:
    """Fit every model by every method that accepts the data, and score rows that were held out."""
    from zoo.cli.selection import select
    from zoo.suitable_fields import suitable_fields

    wanted = [canonical_name(name) for name in options.models] if options.models else list(MODELS)
    cards = [read_card(name) for name in wanted]
    methods = list(dict.fromkeys(method for card in cards for method in card.methods))
    for method in options.methods or ():
        if method not in methods:
            raise ValueError(f"no model has the method {method!r}; there are: {', '.join(methods)}")
    if options.out is not None:
        if (path := Path(options.out)).suffix not in _PICTURES:
            raise ValueError(
                f"a picture is written as {', '.join(_PICTURES)}, by its name; got {path.name!r}"
            )
        _check_writable(path)
    name, data = select(options.dataset, options.x, options.y, options.views)

    import numpy as np

    from inference import compile_cache
    from inference.diagnostics.comparison import Refusal, score_methods

    compile_cache()
    order = np.random.default_rng(options.seed).permutation(data[0].shape[0])
    num_held_out = max(1, len(order) // 5)
    train, test = _rows(data, np.sort(order[num_held_out:])), _rows(data, np.sort(order[:num_held_out]))
    print(
        f"{name}: fitted to {len(order) - num_held_out} rows, scored on {num_held_out}; seed {options.seed}\n"
    )
    models, refused, scores = {}, [], []
    for card in cards:
        try:
            model = model_class(card.name)
            models[card.name] = model.from_data(*train, **suitable_fields(model, train))
        except (ValueError, TypeError) as error:
            refused.append(Refusal(card.name, "", _one_line(error)))
    keywords = {key: getattr(options, key) for key in (*COMPARE_OPTIONS, "seed", "progress")}
    layout = "{:<12} {:<16} {:>10} {:>8} {:>8} {:>9} {:>8} {:>8}"
    print(layout.format(*_COMPARED))
    for score in score_methods(models, train, test, methods=options.methods, **keywords):
        if isinstance(score, Refusal):
            refused.append(score)
            continue
        scores.append(score)
        psrf = "-" if np.isnan(score.max_psrf) else f"{score.max_psrf:.3f}"
        numbers = f"{score.nats_per_row:.4f}", f"{score.standard_error:.4f}", f"{score.seconds:.1f}"
        converged = "yes" if score.converged else "NO"
        line = (score.model, score.method, *numbers, converged, psrf, f"{score.mebibytes:.0f}")
        print(layout.format(*line), flush=True)
        if score.interrupted:
            print("interrupted: the last fit above stopped early, and no other was made")
            return _INTERRUPTED
    print("\nnats/row: mean log density of the rows held out, higher is better; +-: its standard error")
    print("seconds: of the fit, with compilation; MiB more: what it added to this process's memory")
    for model, method, reason in refused:
        print(f"not fitted: {model}{' by ' + method if method else ''}: {reason}")
    if options.out is not None:
        from inference.plots.comparison import plot_methods

        plot_methods(scores).savefig(options.out, dpi=150)
        print(f"saved to {options.out}")
    return 0


def _check_method(card: Card, method: str) -> None:
    if method != "auto" and method not in card.methods:
        raise ValueError(f"{card.name} has no method {method!r}; it has: {', '.join(card.methods)}")


def _check_writable(path: Path) -> None:
    """Raise OSError unless the file of the result can be written, before the run."""
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {path.parent}")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror}") from None


def _split(text: str) -> tuple[str, Any]:
    """The name and the value of an option of a method, which `inference.fit` checks."""
    from zoo.cli.arguments import parse_settings

    key = text.partition("=")[0].strip()
    return key, parse_settings([text], (key,), "the method")[key]


@contextmanager
def _collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings for the user, each once, instead of printing them as Python does."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        for category in (UserWarning, RuntimeWarning):
            warnings.simplefilter("always", category)
        yield messages
    messages += dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught)


def _one_line(error: BaseException) -> str:
    message = (
        error.args[0] if isinstance(error, KeyError) and error.args else str(error) or type(error).__name__
    )
    return " ".join(str(message).split())


def _shape(table: Any) -> str:
    rows, columns = table.shape
    names = list(map(str, getattr(table, "columns", ())))
    listed = f" ({', '.join(names)})" if 0 < len(names) <= 8 else ""
    return f"{rows} rows, {columns} columns{listed}"


def _reached(tree: Any) -> str:
    """Text with the final objective of an ascent; empty for a sampler."""
    objective = tree["trace"]["objective"]
    if "chain" in objective.dims:
        return ""
    return f", objective {float(objective.dropna('iteration')[-1]):.3f} nats"


def _was_interrupted(tree: Any) -> bool:
    return tree.attrs["stop_reason"].startswith("interrupted")


def _print_warnings(notes: Sequence[str]) -> None:
    for note in notes:
        print(textwrap.fill(note, 110, initial_indent="warning    ", subsequent_indent=" " * 11))


def _rows(data: Sequence[Any], index: Any) -> tuple[Any, ...]:
    return tuple(table.iloc[index] if hasattr(table, "iloc") else table[index] for table in data)


_COMMANDS = {"list": list_models, "show": show, "fit": fit, "report": report, "compare": compare}
