"""``zoo sweep``: a model in several sizes, and the size that held-out rows favour."""

import shlex
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np

from inference.algorithm import Sampler
from inference.cli.options import FIT_OPTIONS, SAYING_WHAT
from inference.cli.printing import as_options, collected_warnings, print_line, print_notes
from inference.cli.selection import data_of, in_words, settle_parts
from inference.cli.settings import resolve
from inference.diagnostics.comparison import EVIDENCE, evidence_in_words, read_off_in_words
from inference.diagnostics.model_size import FEW_DRAWS, cross_validate, read_rows, recommended
from inference.methods import method_of
from inference.numerics.atomic_files import replacing
from inference.program_cache import compile_cache
from zoo import model_class
from zoo.model import Model

_COLUMNS = (
    "bound",
    "heldout",
    "standard_error",
    "difference",
    "difference_error",
    "bic",
    *EVIDENCE,
    "not_converged",
    "seconds",
)


def sweep(options: SimpleNamespace) -> int:
    """Fit a model in several sizes, score rows that were held out, and recommend a size."""
    compile_cache()
    card, settings, sizes, seed = options.card, options.settings, options.sizes, options.seed or 0
    name, data = data_of(options)
    keywords = {key: value for key, value in vars(options).items() if key in FIT_OPTIONS and key != "seed"}
    keywords = {key: value for key, value in keywords.items() if value is not None}
    settle_parts(model_class(card.name), settings, data)
    fitted = _models(card.name, sizes, settings)
    some = next(iter(fitted.values()))
    method = method_of(some, some.methods[0] if options.method == "auto" else options.method)
    sampled = isinstance(method, Sampler)
    if not sampled:  # scores need no draws from q, or few, to be averaged over
        keywords = {"num_samples": 1 if method.log_density else FEW_DRAWS} | keywords
    with collected_warnings() as notes:
        table = cross_validate(
            fitted,
            *data,
            method=options.method,
            folds=options.folds,
            seed=seed,
            progress=False,
            families=options.families,
            levels=options.levels,
            id=options.id,
            **keywords,
            **options.method_options,
        )
    best, smallest = recommended(table)
    swept = ", ".join(sizes)
    table.index.name = swept
    print(f"model      {card.name}: {card.title}")
    print(f"data       {name}: {in_words(data)}; {options.folds} folds, seed {seed}")
    print_notes(data, [table.attrs["columns"]], notes)
    shown = table[[name for name in _COLUMNS if name in table and not table[name].isna().all()]]
    print(f"\n{shown.to_string(float_format=lambda number: f'{number:.4g}')}\n")
    if "bound" in table:
        print("bound: on the log evidence of all rows, nats, higher is better")
    print("heldout: mean log density of rows that were not fitted, nats per row, higher is better")
    print("difference: to the best, over the same rows, and its standard error")
    if EVIDENCE[0] in table:
        print("log_evidence: of all rows under each prior, in nats, and its standard error; nan: not told")
        if words := evidence_in_words(table):
            print(f"evidence   {'. '.join([words, *read_off_in_words(table.attrs['read_off'])])}")
        for name, why in table.attrs["why_no_evidence"].items():
            print_line("warning", f"the log evidence of {swept} = {name} is not told: {as_options(why)}")
    doubtful = int(table["not_converged"].sum())
    if doubtful:
        raised = ("num-warmup", "num-samples") if sampled else ("max-iterations", "num-restarts")
        print(f"warning    {doubtful} fits have not converged: raise --{raised[0]} or --{raised[1]}")
    why = (
        "the best; no smaller one is within its standard error"
        if smallest == best
        else f"the smallest within one standard error of the best ({best})"
    )
    print(f"recommended: {swept} = {smallest}, {why}")
    chosen = dict(_pairs(sizes, smallest))
    if larger := _larger(options, some, data, str(smallest)):
        tried = " and ".join(f"{field} above {max(sizes[field])}" for field in larger)
        print(f"warning    {tried} was not tried, and may be better; go on with")
        on = {field: ",".join(map(str, tried)) for field, tried in sizes.items()} | larger
        print(f"           {_command(options, 'sweep', '--sizes', on)}")
    print(f"\nNext: {_command(options, 'fit', '--set', chosen)}")
    if options.out is not None:
        place = options.out.settled()
        with replacing(place) as file:
            table.to_csv(file)
        print(f"saved to {place}")
    return 0


def _pairs(sizes: Mapping[str, Any], label: str) -> list[tuple[str, str]]:
    return list(zip(sizes, str(label).split(" x "), strict=True))


def _larger(options: SimpleNamespace, model: Model, data: Sequence[Any], chosen: str) -> dict[str, str]:
    """Larger sizes to try, by field: twice the largest one tried, if that is chosen and the data allow it."""
    found, of_field = {}, dict(_pairs(options.sizes, chosen))
    edges = [field for field, tried in options.sizes.items() if str(max(tried)) == of_field[field]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sized, rows = read_rows(model, tuple(data), options.families, options.levels, options.id)
        sized, every = sized.encoded(*rows.take(np.full(rows.parts[0].shape[0], True)))
        for field in edges:
            largest = max(options.sizes[field])
            for size in range(2 * largest, largest, -1):
                with suppress(ValueError):
                    sized.replaced(**{field: size}).with_sizes_from(*every).check(*every)
                    found[field] = f"{largest}:{size}"
                    break
    return found


def _command(options: SimpleNamespace, command: str, option: str, sizes: Mapping[str, str]) -> str:
    """A command for some sizes, with the options of the sweep that say what the data are."""
    words, given = ["zoo", command, options.model, options.dataset], options.given
    for param in SAYING_WHAT:
        value = given.get(param.name)
        if value in (None, (), False, "auto"):
            continue
        for text in value if isinstance(value, tuple) else [value]:
            words += [param.opts[0], *([text] if text is not True else [])]
    for name, value in sizes.items():
        words += [option, f"{name}={value}"]
    return shlex.join(words)


def _models(name: str, sizes: Mapping[str, list[int]], settings: Mapping[str, Any]) -> dict:
    """A model for each size, smaller ones first, by the sizes in words."""
    model = model_class(name)
    fields = resolve(settings)
    pairs = sorted(product(*sizes.values()), key=lambda pair: (sum(pair), pair))
    return {
        " x ".join(map(str, pair)): model(**fields, **dict(zip(sizes, pair, strict=True))) for pair in pairs
    }
