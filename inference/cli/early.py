"""What a command line says that can be checked before JAX is imported, which takes seconds.

These are names of models, methods and fields, where the data are, whether the outputs can be written, and
the form of what is written of columns. Values of fields, options of methods and columns are checked by the
models, the methods and the readers of tables themselves.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

from inference.cli.naming import check_source, files_of, files_read, is_read_in_batches, name_of, own_model
from inference.cli.paths import check_checkpoint, target
from inference.cli.settings import (
    parse_families,
    parse_levels,
    parse_reading,
    parse_settings,
    parse_sizes,
    terms_of,
)
from zoo import MODELS, canonical_name
from zoo.cards import Card, methods_of, read_card
from zoo.naming import did_you_mean

_PAGES = (".html", ".md")
_PICTURES = (".png", ".svg", ".pdf")
_TABLES = (".csv", ".tsv", ".xlsx", ".parquet", ".npy")
_SIZES = ("num_components", "num_latents", "num_topics", "num_clusters", "num_shared")


def check(options: SimpleNamespace) -> None:
    """Check the options of a command, and put what they stand for in the place of their words.

    Raises:
        OSError: a file is not there, or cannot be written.
        ValueError: anything else that is wrong.
    """
    _CHECKS[options.command](options)


def _fit(options: SimpleNamespace) -> None:
    _check_model(options)
    options.in_batches = is_read_in_batches(options)
    _check_data(options)
    if options.x and options.sample_weight not in (None, *options.x):
        options.x.append(options.sample_weight)
    start = options.init if Path(options.init or "").suffix == ".nc" else None
    inputs = (*options.inputs, *filter(None, (options.checkpoint, start)))
    options.start = start
    default = f"{options.card.name}-{name_of(options.files)}.nc"
    out = options.out = target("--out", options.out, default, force=options.force, inputs=inputs)
    if options.report is not None:
        inputs = (*inputs, out.path)
        options.report = target(
            "--report", options.report, "report.html", force=options.force, inputs=inputs, endings=_PAGES
        )
    written = [out.path, *([options.report.path] if options.report else [])]
    check_checkpoint(options.checkpoint, (*options.inputs, *written))


def _film(options: SimpleNamespace) -> None:
    _check_model(options)
    _check_data(options)
    if options.features is not None:
        options.features = tuple(options.features.split(","))
        if len(options.features) != 2:
            raise ValueError(
                f"--features takes two columns with a comma between; got {options.given['features']!r}"
            )
    default = f"{options.card.name}-{name_of(options.files)}-film.html"
    _check_out(options, default, (".html",), options.inputs)


def _predict(options: SimpleNamespace) -> None:
    _check_fits(options, options.fit)
    options.in_batches = is_read_in_batches(options)
    _check_data(options)
    default = f"{Path(options.fit).stem}-{name_of(options.files)}.csv"
    _check_out(options, default, _TABLES, (options.fit, *options.inputs))


def _fit_alone(options: SimpleNamespace) -> None:
    _check_fits(options, options.fit)


def _sweep(options: SimpleNamespace) -> None:
    _check_model(options)
    card = options.card
    fields = tuple(name for name in _SIZES if name in card.fields)
    if not fields:
        raise ValueError(f"{card.name} has no size to sweep")
    options.sizes = parse_sizes(fields, options.sizes, card.name)
    for name in options.sizes:
        if name in options.settings:
            raise ValueError(f"{name} is swept by --sizes, and set by --set: leave one out")
    _check_data(options)
    if options.out is not None:
        _check_out(options, "sweep.csv", (".csv",), options.inputs)


def _report(options: SimpleNamespace) -> None:
    _check_fits(options, *options.fits)
    if len(set(map(os.path.realpath, options.fits))) < len(options.fits):
        raise ValueError("a file was named twice: a comparison needs different fits")
    if options.heldout is None:
        for option in ("x", "y", "views", "read"):
            if getattr(options, option):
                raise ValueError(
                    f"--{option} chooses of the rows of --heldout, which is not given: leave it out"
                )
    elif len(options.fits) == 1:
        raise ValueError("--heldout compares fits and one was given; name several")
    if options.plain and len(options.fits) > 1:
        raise ValueError(f"--plain is of the page of one fit; got {len(options.fits)}: leave it out")
    options.files = [options.heldout] if options.heldout else []
    _check_data(options)
    several = len(options.fits) > 1
    default = "comparison.html" if several else Path(options.fits[0]).with_suffix(".html")
    _check_out(options, default, _PAGES, (*options.fits, *options.inputs))


def _compare(options: SimpleNamespace) -> None:
    options.models_tried = [canonical_name(own_model(name)) for name in options.models or MODELS]
    methods = list(dict.fromkeys(method for name in options.models_tried for method in methods_of(name)))
    for method in options.methods:
        if method not in methods:
            whose = "none of these models" if options.models else "no model"
            raise ValueError(f"{whose} has the method {method!r}; there are: {', '.join(methods)}")
    if options.standardize and not any("standardize" in read_card(m).fields for m in options.models_tried):
        raise ValueError("none of these models has a field standardize: leave --standardize out")
    _check_data(options)
    if options.out is not None:
        _check_out(options, "methods.svg", _PICTURES, options.inputs)


_CHECKS: dict[str, Callable[[SimpleNamespace], None]] = {
    "fit": _fit,
    "film": _film,
    "predict": _predict,
    "explain": _fit_alone,
    "check": _fit_alone,
    "sweep": _sweep,
    "report": _report,
    "compare": _compare,
}


def _check_model(options: SimpleNamespace) -> None:
    """The model's card, the settings of its fields and the options of the method."""
    card: Card = read_card(own_model(options.model))
    options.card = card
    if options.method != "auto" and options.method not in card.methods:
        listed = ", ".join(card.methods) + did_you_mean(options.method, card.methods)
        raise ValueError(f"{card.name} has no method {options.method!r}; it has: {listed}")
    if options.standardize and "standardize" not in card.fields:
        is_of_text = any("document" in dims for dims in card.dims.values())
        why = (
            "counts of words have no unit" if is_of_text else "its default priors are as wide as each column"
        )
        raise ValueError(f"{card.name} has no field standardize: {why}, so that it needs none")
    texts = [*options.set, *(["standardize=True"] if options.standardize else [])]
    options.settings = parse_settings(texts, tuple(card.fields), f"the model {card.name}")
    options.method_options = parse_settings(options.option, None, "the method")


def _check_data(options: SimpleNamespace) -> None:
    """Where the data are, and how they are read: the files that the command must not write."""
    options.read = parse_reading(options.read)
    options.families = parse_families(getattr(options, "families", ()))
    options.levels = parse_levels(getattr(options, "levels", ()))
    for option in ("x", "y"):
        if getattr(options, option) is not None:
            setattr(options, option, terms_of(f"--{option}", getattr(options, option)))
    options.views = [terms_of("--views", view) for view in options.views]
    if getattr(options, "in_batches", False):
        options.inputs = files_read(options.files)
        return
    for source in options.files:
        check_source(source)
    options.inputs = tuple(file for source in options.files for file in files_of(source))


def _check_fits(options: SimpleNamespace, *paths: str) -> None:
    if options.model is not None:
        own_model(options.model)
    for path in paths:
        if not Path(path).is_file():
            raise FileNotFoundError(f"there is no file {path}; zoo fit writes one")


def _check_out(
    options: SimpleNamespace, default: str | Path, endings: tuple[str, ...], inputs: Sequence
) -> None:
    options.out = target("--out", options.out, default, force=options.force, inputs=inputs, endings=endings)
