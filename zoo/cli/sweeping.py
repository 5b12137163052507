"""``zoo sweep``: a model in several sizes, and the size that held-out rows favour."""

import argparse
import shlex
from collections.abc import Mapping
from itertools import product
from typing import Any

from zoo import model_class
from zoo.cards import read_card
from zoo.cli.arguments import FIT_OPTIONS, parse_families, parse_levels, parse_settings, resolve
from zoo.cli.early import (
    check_fields,
    check_method,
    check_options,
    check_parts,
    check_standardize,
    parse_sizes,
    size_fields,
)
from zoo.cli.paths import files_of, target
from zoo.cli.printing import collected_warnings, print_columns, print_notes, print_warnings, shape
from zoo.cli.selection import reading_options, select

__all__ = ["sweep"]

_COLUMNS = (
    "bound",
    "heldout",
    "standard_error",
    "difference",
    "difference_error",
    "bic",
    "not_converged",
    "seconds",
)


def sweep(options: argparse.Namespace) -> int:
    """Fit a model in several sizes, score rows that were held out, and recommend a size.

    Args:
        options: of the command line.

    Returns:
        The exit status.

    Raises:
        ValueError: sizes that the model does not have, or that are set as well.
    """
    card = read_card(options.model)
    check_method(card, options.method)
    settings = parse_settings(options.set, tuple(card.fields), f"the model {card.name}")
    check_fields(card, settings)
    check_options(card, options.method, [text.partition("=")[0].strip() for text in options.option])
    check_parts(card, options.y, options.views)
    if options.standardize:
        check_standardize(card, settings)
        settings["standardize"] = True
    families, levels = parse_families(options.families), parse_levels(options.levels)
    if not size_fields(card):
        raise ValueError(f"{card.name} has no size to sweep")
    sizes = parse_sizes(card, options.sizes)
    for name in sizes:
        if name in settings:
            raise ValueError(f"{name} is swept by --sizes, and set by --set: leave one out")
    out = None
    if options.out is not None:
        inputs = files_of(options.dataset)
        out = target("--out", options.out, "sweep.csv", force=options.force, inputs=inputs, endings=(".csv",))
    read = reading_options(options.read)
    name, data = select(options.dataset, options.x, options.y, options.views, read)
    method_options = {}
    for text in options.option:
        key = text.partition("=")[0].strip()
        method_options |= parse_settings([text], (key,), "the method")
    keywords = {key: value for key, value in vars(options).items() if key in FIT_OPTIONS and key != "seed"}
    keywords = {key: value for key, value in keywords.items() if value is not None}
    chosen = model_class(card.name)
    if not isinstance(chosen.data_names, tuple) and "families" not in settings:  # as many as there are views
        settings["families"] = ("auto",) * len(data)
    fitted = _models(card.name, sizes, settings)

    import inference
    from inference.algorithm import Sampler
    from inference.diagnostics.model_size import FEW_DRAWS, cross_validate, recommended
    from inference.methods import method_of
    from inference.numerics.atomic_files import replacing

    inference.compile_cache()
    some = next(iter(fitted.values()))
    chosen = some.methods[0] if options.method == "auto" else options.method
    method = method_of(some, chosen)
    if not isinstance(method, Sampler):  # scores need no draws from q, or few, to be averaged over
        keywords = {"num_samples": 1 if method.log_density else FEW_DRAWS} | keywords
    with collected_warnings() as notes:
        table = cross_validate(
            fitted,
            *data,
            method=options.method,
            folds=options.folds,
            seed=options.seed or 0,
            progress=False,
            families=families,
            levels=levels,
            id=options.id,
            **keywords,
            **method_options,
        )
    best, smallest = recommended(table)
    swept = ", ".join(sizes)
    table.index.name = swept
    print(f"model      {card.name}: {card.title}")
    print(
        f"data       {name}: {'; '.join(map(shape, data))}; {options.folds} folds, seed {options.seed or 0}"
    )
    print_notes(data)
    print_columns(table.attrs["columns"])
    print_warnings(notes)
    shown = table[[name for name in _COLUMNS if name in table and not table[name].isna().all()]]
    print(f"\n{shown.to_string(float_format=lambda number: f'{number:.4g}')}\n")
    if "bound" in table:
        print("bound: on the log evidence of all rows, nats, higher is better")
    print("heldout: mean log density of rows that were not fitted, nats per row, higher is better")
    print("difference: to the best, over the same rows, and its standard error")
    doubtful = int(table["not_converged"].sum())
    if doubtful:
        print(f"warning    {doubtful} fits have not converged: raise --max-iterations or --num-restarts")
    if smallest == best:
        print(f"recommended: {swept} = {best}, the best; no smaller one is within its standard error")
    else:
        print(
            f"recommended: {swept} = {smallest}, the smallest within one standard error of the best ({best})"
        )
    print(f"\nNext: {_next(options, dict(_pairs(sizes, smallest)))}")
    if out is not None:
        place = out.settled()
        with replacing(place) as file:
            table.to_csv(file)
        print(f"saved to {place}")
    return 0


def _pairs(sizes: Mapping[str, Any], label: str) -> list[tuple[str, str]]:
    return list(zip(sizes, str(label).split(" x "), strict=True))


def _next(options: argparse.Namespace, sizes: Mapping[str, str]) -> str:
    """The command that fits the model in a size, with the options of the sweep that say what the data are."""
    words = ["zoo", "fit", options.model, options.dataset]
    for name in ("x", "y", "id", "method"):
        value = getattr(options, name)
        words += [f"--{name}", value] if value not in (None, "auto") else []
    words += ["--views", *options.views] if options.views else []
    for name in ("read", "families", "levels", "set", "option"):
        for text in getattr(options, name):
            words += [f"--{name}", text]
    words += ["--standardize"] if options.standardize else []
    for name, value in sizes.items():
        words += ["--set", f"{name}={value}"]
    return shlex.join(words)


def _models(name: str, sizes: Mapping[str, list[int]], settings: Mapping[str, Any]) -> dict:
    """A model for each size, smaller ones first, by the sizes in words."""
    model = model_class(name)
    fields = resolve(settings)
    pairs = sorted(product(*sizes.values()), key=lambda pair: (sum(pair), pair))
    return {
        " x ".join(map(str, pair)): model(**fields, **dict(zip(sizes, pair, strict=True))) for pair in pairs
    }
