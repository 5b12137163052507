"""``zoo predict``: what a saved fit says of new rows, as a table."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from inference.batched_answers import answers, frame_of
from inference.cli.paths import reserved
from inference.cli.printing import collected_warnings, print_notes
from inference.cli.selection import data_of, in_words
from inference.inputs.tables import joined_rows
from inference.prediction import log_density, most_probable, predict, transform
from inference.program_cache import compile_cache
from inference.results.files import load, model_of
from inference.results.groups import labels_along
from inference.results.written_tables import check_table_file, table_file
from zoo.answers import completions_of
from zoo.intake.tables import num_needed, takes_missing
from zoo.model import Model
from zoo.naming import did_you_mean

_PREVIEW = 5  # rows that are printed


def predict_rows(options: SimpleNamespace) -> int:
    """Write what a fit says of new rows; ValueError for several parts in batches."""
    compile_cache()
    check_table_file(options.out.path)
    tree = load(options.fit)
    model = model_of(tree)
    name, data = data_of(options, texts=model.data[0].holds_documents)
    by_batch = options.in_batches or options.batch_size is not None
    if by_batch and len(data) > 1:
        raise ValueError("--batch-size goes with rows of one part: leave it out")
    what, count, first = "", 0, None

    def ask(rows: Any) -> tuple[str, pd.DataFrame]:
        what, table = _answer(tree, model, _parts(tree, model, rows, options.what), options)
        if not hasattr(rows, "iloc"):  # without labels: numbered
            table.index = table.index + count
        return what, table

    with collected_warnings() as notes:
        if options.id is not None and not options.in_batches:
            data = _joined(data, model.data_names, options.id)
        if by_batch:
            found = answers(ask, tree, model, data, options.batch_size)
        else:
            found = [ask(data[0]) if len(data) == 1 else _answer(tree, model, data, options)]
        with reserved(options.out) as place, table_file(place) as write:
            for what, table in found:  # noqa: B007 - told below
                write(table)
                count, first = count + len(table), table if first is None else first
    print(f"fit        {options.fit}: {tree.attrs['model']} by {tree.attrs['method']}")
    print(f"data       {name}: {in_words(data, options.batch_size)}")
    print_notes(data, ())
    print(f"predicted  {what}")
    print_notes((), (), notes)
    _print_first(first, count)
    print(f"\nsaved to {place}")
    return 0


def _joined(data: tuple[Any, ...], names: tuple[str, ...], label: str) -> tuple[Any, ...]:
    """Tables whose rows go by the names in a column; ValueError if one has none of that name."""
    for table in data:
        held = list(map(str, getattr(table, "columns", ())))
        if label not in held:
            near = did_you_mean(label, held)
            raise ValueError(
                f"--id: there is no column {label!r}; there are: {', '.join(held) or 'none'}{near}"
            )
    if len(data) > 1:
        return joined_rows(data, names, label)
    return tuple(table.set_index(next(name for name in table if str(name) == label)) for table in data)


def _print_first(table: pd.DataFrame, count: int) -> None:
    """The first rows of an answer, or of its first batch, and how many of ``count`` are not shown."""
    shown = table.head(_PREVIEW)
    print(f"\n{shown.to_string()}")
    if more := count - len(shown):
        print(f"... and {more} more row{'s' if more > 1 else ''}")


def _parts(tree: xr.DataTree, model: Model, table: Any, what: str | None) -> tuple[Any, ...]:
    """The parts of a model's data that are among the columns of one table."""
    dims = [model.variable_dims[name][-1] for name in model.data_names]
    if not hasattr(table, "columns"):
        return (table,)
    names = [[str(name) for name in labels_along(tree, dim)] for dim in dims]
    held = set(map(str, table.columns))
    if len(names) == 1:
        unnamed = names[0] == [str(place) for place in range(len(names[0]))]
        if unnamed and not held >= set(names[0]) and table.shape[1] == len(names[0]):
            return (table.set_axis(range(len(names[0])), axis=1),)  # the fit knows no names: by position
        return (table,)
    found = [table if held >= set(wanted) else None for wanted in names]
    if all(part is None for part in found):
        return (table,)  # which says what is missing
    if isinstance(type(model).data_names, tuple) and what != "log_density":
        found[num_needed(model) :] = []  # outputs are to be predicted
    if what in model.data_names and found[model.data_names.index(what)] is not None:
        place = model.data_names.index(what)
        if not table[names[place]].isna().any(axis=None):
            found[place] = None  # a whole view is predicted from the others
    while found and found[-1] is None:
        found.pop()
    return tuple(found)


def _answer(
    tree: xr.DataTree, model: Model, parts: Sequence[Any], options: SimpleNamespace
) -> tuple[str, pd.DataFrame]:
    """The answer in words, and as a table."""
    what = options.what
    if what == "log_density":
        return "log density of each row, in nats", _frame(log_density(tree, *parts))
    known = completions_of(model)
    if what == "scores" or (what is None and not known):
        scores = transform(tree, *parts)
        return f"scores, by {scores.dims[-1]}", _frame(scores, f"{scores.dims[-1]}_")
    what = None if what == "prediction" else what
    if what in ("clusters", None) and "clusters" in known:
        shares = predict(tree, *parts, what="probabilities")
        table = _frame(most_probable(shares).rename("assignments"))
        table.insert(1, "probability", shares.max(shares.dims[-1]).to_numpy())
        return f"cluster of each {shares.dims[0].replace('observation', 'row')}, and its probability", table
    predicted = predict(tree, *parts, what=what)
    if what == "probabilities":
        return f"probability of each {predicted.dims[-1]}", _frame(predicted, f"{predicted.dims[-1]}_")
    if predicted.dims[-1] == "class":
        table = _frame(predicted, "probability_")
        names = predicted["class"].to_numpy()[predicted.argmax("class").to_numpy()]
        table.insert(0, "class", names)
        table.insert(1, "probability", predicted.max("class").to_numpy())
        return "class of each row, and the probability of each class", table
    table = _frame(predicted)
    shares = _probabilities_of_answers(table, model, tree.fit.columns)
    table = _as_read(table, tree.fit.columns).join(shares)
    if options.deviations and "standard_deviation" in predicted.coords:
        deviations = predicted.standard_deviation.to_pandas().add_suffix("_sd")
        table = table.join(deviations)
    is_filled = predicted.dims == model.variable_dims[model.data_names[0]] and takes_missing(model)
    missing = ", missing cells filled in" if is_filled else ""
    if what is None and not isinstance(type(model).data_names, tuple):  # a view goes by its name
        what = next(name for name in model.data_names if model.variable_dims[name] == predicted.dims)
    return f"{what or predicted.dims[-1] + 's'} of each row{missing}", table


def _probabilities_of_answers(table: pd.DataFrame, model: Model, columns: Sequence[Any]) -> pd.DataFrame:
    """Of each yes or no of a projection the probability of the word that is written, the likelier one."""
    found = {}
    for read, family in zip(columns, model.part_families, strict=False):
        kept = () if read is None else read.kept
        places = family.answer_columns(len(kept)) if hasattr(family, "answer_columns") else ()
        for column in (column for place, column in enumerate(kept) if place in places):
            if column.name in table and column.kind == "yes/no":
                found[f"{column.name}_probability"] = np.maximum(table[column.name], 1 - table[column.name])
    return pd.DataFrame(found, index=table.index)


def _as_read(table: pd.DataFrame, columns: Sequence[Any]) -> pd.DataFrame:
    """Predicted cells in the words of the table that was fitted: levels and dates."""
    for read in columns:
        for column in () if read is None else read.kept:
            if column.name in table and (column.levels or column.origin is not None):
                table[column.name] = [column.cell_in_words(number) for number in table[column.name]]
    return table


def _frame(values: xr.DataArray, prefix: str = "") -> pd.DataFrame:
    return frame_of(values, prefix, deviations=False)
