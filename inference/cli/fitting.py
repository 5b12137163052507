"""``zoo fit``: fit a model, print a summary, and write the fit."""

import shlex
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import xarray as xr

from inference.cli import INTERRUPTED
from inference.cli.options import FIT_OPTIONS
from inference.cli.paths import free_name
from inference.cli.printing import (
    as_options,
    collected_warnings,
    line_width,
    one_line,
    print_line,
    print_notes,
)
from inference.cli.selection import data_of, in_words, settle_parts
from inference.cli.settings import resolve
from inference.cli.validating import class_facts, size_by_bound, validated
from inference.diagnostics.first_screen import first_screen
from inference.fitting import front_door
from inference.program_cache import compile_cache
from inference.results import files
from zoo import model_class


def fit(options: SimpleNamespace) -> int:
    """Fit a model to a data set, print a summary, and write the fit."""
    compile_cache()
    files.check_place_of_fit(options.out.path)  # what --force replaces is a fit
    card, settings = options.card, options.settings
    keywords = {key: getattr(options, key) for key in FIT_OPTIONS if getattr(options, key) is not None}
    if options.start is not None:
        keywords["init"] = files.load(options.start)
    chosen = model_class(card.name)
    name, data = data_of(options, texts=chosen.data[0].holds_documents)
    settle_parts(chosen, settings, data)
    reading = {"families": options.families, "levels": options.levels, "id": options.id}
    with collected_warnings() as notes:
        by_class = None if options.in_batches else validated(chosen, settings, data, options, **reading)
        facts = class_facts(by_class) or size_by_bound(chosen, settings, data, options, **reading)
        tree = front_door.fit(
            chosen(**resolve(settings)),
            *data,
            **reading,
            method=options.method,
            keep=options.keep,
            progress=options.progress,
            **keywords,
            **options.method_options,
        )
        tree.attrs |= {"data_name": name, "command": shlex.join(["zoo", *options.words])} | facts
        place, trouble = _saved(tree, options.out.settled())
        tree.encoding["source"] = str(place)  # the page names its file
        screen = first_screen(tree, details=options.details, width=line_width(), worded=as_options)
    attributes = tree.attrs
    print(screen.opening, end="\n\n")
    print(f"data       {name}: {in_words(data, options.batch_size)}")
    print_notes(data, tree.fit.columns)
    print(f"model      {card.name}: {card.title}")
    told = ", ".join(filter(None, (f"seed {attributes['seed']}", " ".join(map(str.strip, options.set)))))
    print(f"method     {attributes['method']}, {told}")
    number = attributes["num_iterations"]
    ending = "" if number == 1 else "s"
    print(f"run        {number} iteration{ending} in {attributes['sampling_time']:.1f} s")
    for title, text in facts.items():
        print_line(title, text)
    for note in notes:
        print_line("warning", "" if "has not converged" in note else note)  # the verdict says it
    for part in filter(None, screen[1:]):
        print(f"\n{part}")
    is_interrupted = attributes["stop_reason"].startswith("interrupted")
    saved = "interrupted; what there is was saved" if is_interrupted else "saved"
    print(f"\n{saved} to {place} ({place.stat().st_size / 1e6:.1f} MB)")
    own = ["--model", options.model] if ":" in options.model else []
    following = ["report", str(place), *own]
    if options.report is not None:
        with collected_warnings() as notes:
            write = import_module("inference.report").report  # with matplotlib, which takes a second
            page = write(tree, options.report.settled())
        for note in notes:
            print_line("warning", note)
        print(f"report in {page}")
        following = ["predict", str(place), "NEW_ROWS", *own]
    print(f"next: {shlex.join(['zoo', *following])}")
    if trouble:
        print(f"zoo: error: {trouble}", file=sys.stderr)
        return 2
    return INTERRUPTED if is_interrupted else 0


def _saved(tree: xr.DataTree, place: Path) -> tuple[Path, str]:
    """Save a fit, elsewhere if its place cannot be written any more, for it may have taken days.

    Returns:
        Where it was saved, and what went wrong at its place; empty if nothing did.

    Raises:
        OSError: it could not be saved anywhere.
    """
    try:
        files.save(tree, place)
        return place, ""
    except (OSError, ValueError) as error:  # the disk is full, the folder was removed or is read-only now
        reason = one_line(error)
    for folder in (Path.cwd(), Path(tempfile.gettempdir()), Path.home()):
        elsewhere = free_name(folder / place.name)
        with suppress(OSError, ValueError):
            files.save(tree, elsewhere)
            return elsewhere, f"{reason}: the fit was saved to {elsewhere} instead"
    raise OSError(f"{reason}: nor could the fit be saved in the folders for temporary files and of the user")
