"""The command line: ``zoo list``, ``show``, ``fit``, ``predict``, ``sweep``, ``report`` and ``compare``.

``list``, ``show``, ``completion`` and ``--help`` read source files and import neither JAX nor NumPy. Every
error is one line on stderr with exit status 2, and what can be checked is checked before the first import:
names, settings, options, whether the output can be written, how the data are read.
"""

import argparse
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from zoo import MODELS, canonical_name, model_class
from zoo.cards import read_card
from zoo.cli.arguments import COMPARE_OPTIONS, FIT_OPTIONS, parse
from zoo.cli.completing import completion
from zoo.cli.early import (
    check_fields,
    check_fit_file,
    check_method,
    check_options,
    check_parts,
    check_standardize,
)
from zoo.cli.elsewhere import files_read, is_read_in_batches, line_of, name_of, opened
from zoo.cli.paths import check_checkpoint, files_of, free_name, target
from zoo.cli.predicting import predict
from zoo.cli.printing import (
    as_options,
    collected_warnings,
    line_width,
    one_line,
    print_columns,
    print_lines,
    print_notes,
    print_warnings,
    shape,
)
from zoo.cli.selection import terms_of
from zoo.cli.sweeping import sweep
from zoo.cli.validating import class_facts, validated
from zoo.datasets import catalogue
from zoo.dependencies import naming_versions

__all__ = ["main"]

_ERRORS = (ValueError, TypeError, KeyError, OSError, ImportError, ArithmeticError, RuntimeError, MemoryError)
_INTERRUPTED = 130  # the exit status of a command ended by Ctrl-C, or of a fit by SIGTERM
_COMPARED = ("model", "method", "nats/row", "+-", "seconds", "converged", "max PSRF", "extra MiB")
_HELD = {
    "Data sets": ("shipped", "generated", "package"),
    "Data sets that you must provide, in the folder that ZOO_DATA names (zoo fit MODEL NAME says how)": (
        "user",
    ),
}
_PAGES = (".html", ".md")
_PICTURES = (".png", ".svg", ".pdf")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, 2 for an error of the caller, 130 if cut short.

    Args:
        arguments: words of the command line; None: those of this process.

    Returns:
        The exit status.
    """
    options = parse(arguments)
    options.words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with naming_versions():
            return _COMMANDS[options.command](options)
    except BrokenPipeError:  # the reader of our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        kept = getattr(options, "checkpoint", None)
        is_there = kept is not None and Path(kept).is_file()
        words = (
            f"; the same command goes on from {kept}" if is_there else " before there was anything to keep"
        )
        print(f"zoo: interrupted{words}", file=sys.stderr)
        return _INTERRUPTED
    except _ERRORS as error:
        if options.traceback:
            raise
        print(f"zoo: error: {one_line(error)}", file=sys.stderr)
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
    entries = catalogue()
    width = max(map(len, entries))
    for title, kinds in _HELD.items():
        print(f"\n{title}")
        for name, entry in entries.items():
            if entry["kind"] not in kinds:
                continue
            shapes = ", ".join(
                f"{key} {' x '.join(map(str, spec['shape']))}" for key, spec in entry["arrays"].items()
            )
            package = f" (comes with {entry['package']})" if entry["kind"] == "package" else ""
            print(f"  {name:<{width}} {shapes}{package}")
    print("\nNext: zoo show MODEL, zoo fit MODEL DATASET")
    return 0


def show(options: argparse.Namespace) -> int:
    """Print a model's card: its assumptions, methods and the claims of its paper; or write it as a page."""
    from zoo.cards.page import card_as_markdown, card_as_text

    card = read_card(options.model)
    if options.out is None:
        print(card_as_text(card, line_width()))
        return 0
    from inference.numerics.atomic_files import replacing

    out = target("--out", options.out, f"{card.name}.md", force=options.force, endings=(".md",))
    place = out.settled()
    with replacing(place) as file:
        file.write(card_as_markdown(card).encode("utf-8"))
    print(f"saved to {place}")
    return 0


def fit(options: argparse.Namespace) -> int:
    """Fit a model to a data set, print a summary, and write the fit."""
    from zoo.cli.arguments import parse_families, parse_levels, parse_settings, resolve
    from zoo.cli.selection import reading_options, select

    card = read_card(options.model)
    check_method(card, options.method)
    settings = parse_settings(options.set, tuple(card.fields), f"the model {card.name}")
    check_fields(card, settings)
    check_options(card, options.method, [text.partition("=")[0].strip() for text in options.option])
    check_parts(card, options.y, options.files if options.id and options.files[1:] else options.views)
    if options.standardize:
        check_standardize(card, settings)
        settings["standardize"] = True
    families, levels = parse_families(options.families), parse_levels(options.levels)
    method_options = dict(_split(text) for text in options.option)
    if not all(options.keep):
        raise ValueError("--keep needs the name of a variable, such as --keep assignments")
    in_batches = is_read_in_batches(options)
    files = files_read(options.files) if in_batches else sum(map(files_of, options.files), ())
    start = options.init if Path(options.init or "").suffix == ".nc" else None
    inputs = (*files, *filter(None, (options.checkpoint, start)))
    default = f"{card.name}-{name_of(options.files) if in_batches else Path(options.dataset).stem}.nc"
    out = target("--out", options.out, default, force=options.force, inputs=inputs)
    page = None
    if options.report is not None:
        held = (*inputs, out.path)
        page = target(
            "--report", options.report, "report.html", force=options.force, inputs=held, endings=_PAGES
        )
    written = (out.path, *([page.path] if page else []))
    check_checkpoint(options.checkpoint, (*files, *written))
    read = reading_options(options.read)
    if in_batches:
        name, of_texts = name_of(options.files), model_class(card.name).takes_documents
        data = (opened(options, options.sample_weight, texts=of_texts),)
    else:
        name, data = select(options.dataset, _with_weight(options), options.y, options.views, read)
        for other in options.files[1:]:  # of the same people: joined by --id
            data += select(other, read=read)[1]
    keywords = {key: getattr(options, key) for key in FIT_OPTIONS if getattr(options, key) is not None}

    import inference
    from inference.diagnostics.first_screen import first_screen
    from inference.inputs.tables import check_parts as check_data
    from inference.results.files import check_place_of_fit
    from inference.results.groups import stored_columns

    inference.compile_cache()
    check_place_of_fit(out.path)  # what --force replaces is a fit
    if start is not None:
        keywords["init"] = inference.load(start)
    chosen = model_class(card.name)
    if isinstance(chosen.data_names, tuple):  # else the data say how many parts there are
        check_data(chosen, data)
    elif "families" not in settings:
        settings["families"] = ("auto",) * len(data)
    reading = {"families": families, "levels": levels, "id": options.id}
    with collected_warnings() as notes:
        by_class = None if in_batches else validated(chosen, settings, data, options, **reading)
        tree = inference.fit(
            chosen(**resolve(settings)),
            *data,
            **reading,
            method=options.method,
            keep=tuple(options.keep),
            progress=options.progress,
            **keywords,
            **method_options,
        )
        facts = class_facts(by_class)
        tree.attrs |= {"data_name": name, "command": shlex.join(["zoo", *options.words])} | facts
        place, trouble = _saved(tree, out.settled())
        tree.encoding["source"] = str(place)  # the page names its file
        screen = first_screen(tree, details=options.details, width=line_width())
    attributes = tree.attrs
    print(as_options(screen.opening), end="\n\n")
    told = line_of(data[0], options.batch_size) if in_batches else "; ".join(map(shape, data))
    print(f"data       {name}: {told}")
    print_notes(data)
    print_columns("; ".join(map(str, filter(None, stored_columns(tree, inference.model_of(tree))))))
    print(f"model      {card.name}: {card.title}")
    chosen = " ".join(map(str.strip, options.set))
    print(f"method     {attributes['method']}, seed {attributes['seed']}" + (f", {chosen}" if chosen else ""))
    print(f"run        {attributes['num_iterations']} iterations in {attributes['sampling_time']:.1f} s")
    print_lines(list(facts.items()))
    print_warnings([note for note in notes if "has not converged" not in note])  # the verdict says it
    for part in filter(None, screen[1:]):
        print(f"\n{part}")
    interrupted = _was_interrupted(tree)
    saved = "interrupted; what there is was saved" if interrupted else "saved"
    print(f"\n{saved} to {place} ({place.stat().st_size / 1e6:.1f} MB)")
    if page is not None:
        from inference.report import report as write_report

        with collected_warnings() as notes:
            written_page = write_report(tree, page.settled())
        print_warnings(notes)
        print(f"report in {written_page}")
    print(f"next: {shlex.join(['zoo', *_next(tree, place, page is not None)])}")
    if trouble:
        print(f"zoo: error: {trouble}", file=sys.stderr)
        return 2
    return _INTERRUPTED if interrupted else 0


def _saved(tree: Any, place: Path) -> tuple[Path, str]:
    """Save a fit, elsewhere if its place cannot be written any more, for it may have taken days.

    Returns:
        Where it was saved, and what went wrong at its place; empty if nothing did.

    Raises:
        OSError: it could not be saved anywhere.
    """
    from inference import save

    try:
        save(tree, place)
        return place, ""
    except (OSError, ValueError) as error:  # the disk is full, the folder was removed or is read-only now
        reason = one_line(error)
    for folder in (Path.cwd(), Path(tempfile.gettempdir()), Path.home()):
        elsewhere = free_name(folder / place.name)
        with suppress(OSError, ValueError):
            save(tree, elsewhere)
            return elsewhere, f"{reason}: the fit was saved to {elsewhere} instead"
    raise OSError(f"{reason}: nor could the fit be saved in the folders for temporary files and of the user")


def _with_weight(options: argparse.Namespace) -> str | None:
    """The columns of ``--x`` and the one that weights the rows."""
    if options.x is None or options.sample_weight is None:
        return options.x
    weight = options.sample_weight
    return options.x if weight in terms_of("--x", options.x) else f'{options.x},"{weight}"'


def report(options: argparse.Namespace) -> int:
    """Write the report of a fit, or a comparison of several fits of the same data."""
    several = len(options.fits) > 1
    for path in options.fits:
        check_fit_file(path)
    names = _short_names(options.fits)
    default = "comparison.html" if several else Path(options.fits[0]).with_suffix(".html")
    inputs = (*options.fits, *(files_of(options.heldout) if options.heldout else ()))
    out = target("--out", options.out, default, force=options.force, inputs=inputs, endings=_PAGES)
    if options.heldout is not None and not several:
        raise ValueError("--heldout compares fits and one was given; name several")
    if options.heldout is None:
        for option in ("x", "y", "views", "read"):
            if getattr(options, option):
                raise ValueError(
                    f"--{option} chooses of the rows of --heldout, which is not given: leave it out"
                )

    from zoo.cli.selection import reading_options, select

    held_out = ()
    if options.heldout is not None:
        read = reading_options(options.read)
        held_out = select(options.heldout, options.x, options.y, options.views, read)[1]

    from inference import compile_cache, load
    from inference.prediction import prepared
    from inference.report import report as write_report
    from inference.report import report_comparison

    compile_cache()
    place = out.settled()
    with collected_warnings() as notes:
        if several:
            trees = {name: load(path) for name, path in zip(names, options.fits, strict=True)}
            for name, tree in trees.items() if held_out else ():
                try:
                    prepared(tree, held_out)
                except (ValueError, TypeError) as error:
                    raise ValueError(
                        f"the rows of --heldout do not go with {name}: {one_line(error)}"
                    ) from None
            report_comparison(trees, place, held_out)
        else:
            write_report(load(options.fits[0]), place)
    print_warnings(notes)
    print(f"saved to {place}")
    return 0


def _short_names(paths: Sequence[str]) -> list[str]:
    """The names of the files without their endings, or their paths where two names are equal."""
    if len(set(map(os.path.realpath, paths))) < len(paths):
        raise ValueError("a file was named twice: a comparison needs different fits")
    stems = [Path(path).stem for path in paths]
    return stems if len(set(stems)) == len(stems) else list(paths)


def compare(options: argparse.Namespace) -> int:
    """Fit every model by every method that accepts the data, and score rows that were held out."""
    from zoo.cli.arguments import parse_families, parse_levels
    from zoo.cli.selection import reading_options, select

    wanted = [canonical_name(name) for name in options.models] if options.models else list(MODELS)
    cards = [read_card(name) for name in wanted]
    methods = list(dict.fromkeys(method for card in cards for method in card.methods))
    for method in options.methods or ():
        if method not in methods:
            whose = "no model" if options.models is None else "none of these models"
            raise ValueError(f"{whose} has the method {method!r}; there are: {', '.join(methods)}")
    out = None
    if options.out is not None:
        inputs = files_of(options.dataset)
        out = target(
            "--out", options.out, "methods.svg", force=options.force, inputs=inputs, endings=_PICTURES
        )
    families, levels = parse_families(options.families), parse_levels(options.levels)
    read = reading_options(options.read)
    name, data = select(options.dataset, options.x, options.y, options.views, read)
    if data[0].shape[0] < 5:
        raise ValueError(f"{options.dataset} has {data[0].shape[0]} rows; a comparison needs 5 or more")

    import numpy as np

    from inference import compile_cache
    from inference.diagnostics.comparison import Refusal, score_methods
    from inference.inputs.tables import read_tables
    from zoo.intake.suitable_fields import suitable_tables

    compile_cache()
    with collected_warnings() as notes:
        columns = read_tables(data, families, levels, options.id)
    order = np.random.default_rng(options.seed).permutation(data[0].shape[0])
    num_held_out = max(1, len(order) // 5)
    train, test = np.sort(order[num_held_out:]), np.sort(order[:num_held_out])
    print(f"{name}: fitted to {len(train)} rows, scored on {num_held_out}; seed {options.seed}")
    print_notes(data)
    print_columns("; ".join(map(str, filter(None, columns))))
    print_warnings(notes)
    print()
    prepared, refused, scores = [], [], []
    for card in cards:
        try:
            model = model_class(card.name)
            fields, parts = suitable_tables(model, data, columns)
            rows = _rows(parts, train), _rows(parts, test)
            prepared.append((card.name, model.from_data(*rows[0], **fields), *rows))
        except (ValueError, TypeError) as error:
            refused.append(Refusal(card.name, "", one_line(error)))
    keywords = {key: getattr(options, key) for key in (*COMPARE_OPTIONS, "seed", "progress")}
    found = (
        score
        for model_name, model, *rows in prepared
        for score in score_methods({model_name: model}, *rows, methods=options.methods, **keywords)
    )
    layout = "{:<12} {:<16} {:>10} {:>8} {:>8} {:>9} {:>8} {:>8}"
    print(layout.format(*_COMPARED))
    for score in found:
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
    print("seconds: of the fit, with compilation; extra MiB: memory added to this process")
    for model, method, reason in refused:
        print(f"not fitted: {model}{' by ' + method if method else ''}: {reason}")
    if not scores:
        raise ValueError("no model could be fitted: the lines above say why of each")
    if out is not None:
        from inference.numerics.atomic_files import replacing
        from inference.plots.comparison import plot_methods

        place = out.settled()
        with replacing(place) as file:
            plot_methods(scores).savefig(file, format=place.suffix.lower()[1:], dpi=150)
        print(f"saved to {place}")
    return 0


def _split(text: str) -> tuple[str, Any]:
    """The name and the value of an option of a method, which `inference.fit` checks."""
    from zoo.cli.arguments import parse_settings

    key = text.partition("=")[0].strip()
    return key, parse_settings([text], (key,), "the method")[key]


def _next(tree: Any, place: Path, has_page: bool) -> list[str]:
    """Words of the command that comes after a fit: its page, or predictions where it has one."""
    if has_page:
        return ["predict", str(place), "NEW_ROWS"]
    return ["report", str(place)]


def _was_interrupted(tree: Any) -> bool:
    return tree.attrs["stop_reason"].startswith("interrupted")


def _rows(data: Sequence[Any], index: Any) -> tuple[Any, ...]:
    return tuple(table.iloc[index] if hasattr(table, "iloc") else table[index] for table in data)


_COMMANDS = {
    "list": list_models,
    "show": show,
    "fit": fit,
    "predict": predict,
    "sweep": sweep,
    "report": report,
    "compare": compare,
    "completion": completion,
}
