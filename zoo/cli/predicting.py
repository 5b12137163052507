"""``zoo predict``: what a saved fit says of new rows, as a table."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zoo.cli.early import check_fit_file
from zoo.cli.elsewhere import files_read, is_read_in_batches, line_of, name_of, opened, reserved
from zoo.cli.paths import files_of, target
from zoo.cli.printing import collected_warnings, print_notes, print_warnings, shape
from zoo.cli.selection import reading_options, select

__all__ = ["predict"]

_ENDINGS = (".csv", ".tsv", ".xlsx", ".parquet")
_IN_BATCHES = (".csv", ".tsv", ".parquet", ".npy")
_PREVIEW = 5  # rows that are printed


def predict(options: argparse.Namespace) -> int:
    """Write what a fit says of new rows: clusters, completed cells, outputs, scores or log densities.

    Args:
        options: of the command line.

    Returns:
        The exit status.
    """
    check_fit_file(options.fit)
    if is_read_in_batches(options) or options.batch_size is not None:
        return _predict_in_batches(options)
    default = f"{Path(options.fit).stem}-{Path(options.dataset).stem}.csv"
    inputs = (options.fit, *files_of(options.dataset))
    out = target("--out", options.out, default, force=options.force, inputs=inputs, endings=_ENDINGS)
    read = reading_options(options.read)
    _, data = select(options.dataset, options.x, options.y, options.views, read)
    write = _writer(out.path)

    import inference

    inference.compile_cache()
    tree = inference.load(options.fit)
    with collected_warnings() as notes:
        model = inference.model_of(tree)
        parts = data if len(data) > 1 else _parts(tree, model, data[0], options.what)
        what, table = _answer(tree, model, parts, options)
    place = out.settled()
    write(table, place)
    print(f"fit        {options.fit}: {tree.attrs['model']} by {tree.attrs['method']}")
    print(f"data       {options.dataset}: {'; '.join(shape(part) for part in data)}")
    print_notes(data)
    print(f"predicted  {what}")
    print_warnings(notes)
    _print_first(table, len(table))
    print(f"\nsaved to {place}")
    return 0


def _predict_in_batches(options: argparse.Namespace) -> int:
    """Write what a fit says of rows that are read, scored and written batch by batch."""
    in_batches = is_read_in_batches(options)
    name = name_of(options.files) if in_batches else Path(options.dataset).stem
    files = files_read(options.files) if in_batches else files_of(options.dataset)
    default, inputs = f"{Path(options.fit).stem}-{name}.csv", (options.fit, *files)
    out = target("--out", options.out, default, force=options.force, inputs=inputs, endings=_IN_BATCHES)
    read = reading_options(options.read)
    if not in_batches:
        _, data = select(options.dataset, options.x, options.y, options.views, read)

    import inference
    from inference.batched_answers import answers
    from inference.results.tables import check_table_file, table_file

    inference.compile_cache()
    check_table_file(out.path)
    tree = inference.load(options.fit)
    model = inference.model_of(tree)
    if in_batches:
        data = (opened(options, texts=model.takes_documents),)
    elif len(data) > 1:
        raise ValueError("--batch-size goes with rows of one part: leave it out")
    what, count, first = "", 0, None

    def ask(rows: Any) -> tuple[str, Any]:
        what, table = _answer(tree, model, _parts(tree, model, rows, options.what), options)
        if not hasattr(rows, "iloc"):  # without labels: numbered
            table.index = table.index + count
        return what, table

    with collected_warnings() as notes, reserved(out) as place, table_file(place) as write:
        for what, table in answers(ask, tree, model, data, options.batch_size):  # noqa: B007 - told below
            write(table)
            count, first = count + len(table), table if first is None else first
    print(f"fit        {options.fit}: {tree.attrs['model']} by {tree.attrs['method']}")
    in_words = line_of(data[0], options.batch_size) if in_batches else shape(data[0])
    print(f"data       {name}: {in_words}")
    print(f"predicted  {what}")
    print_warnings(notes)
    _print_first(first, count)
    print(f"\nsaved to {place}")
    return 0


def _print_first(table: Any, count: int) -> None:
    """The first rows of an answer, or of its first batch, and how many of ``count`` are not shown."""
    shown = table.head(_PREVIEW)
    print(f"\n{shown.to_string()}")
    if more := count - len(shown):
        print(f"... and {more} more row{'s' if more > 1 else ''}")


def _parts(tree: Any, model: Any, table: Any, what: str | None) -> tuple[Any, ...]:
    """The parts of a model's data that are among the columns of one table."""
    dims = [model.variable_dims[name][-1] for name in model.data_names]
    if not hasattr(table, "columns"):
        return (table,)
    names = [[str(name) for name in _labels(tree, dim)] for dim in dims]
    held = set(map(str, table.columns))
    if len(names) == 1:
        unnamed = names[0] == [str(place) for place in range(len(names[0]))]
        if unnamed and not held >= set(names[0]) and table.shape[1] == len(names[0]):
            return (table.set_axis(range(len(names[0])), axis=1),)  # the fit knows no names: by position
        return (table,)
    found = [table if held >= set(wanted) else None for wanted in names]
    if found[0] is None and all(part is None for part in found):
        return (table,)  # which says what is missing
    if isinstance(type(model).data_names, tuple) and what != "log_density":
        found[model.num_needed or len(found) :] = []  # outputs are to be predicted
    if what in model.data_names and found[model.data_names.index(what)] is not None:
        place = model.data_names.index(what)
        if not table[names[place]].isna().any(axis=None):
            found[place] = None  # a whole view is predicted from the others
    while found and found[-1] is None:
        found.pop()
    return tuple(found)


def _labels(tree: Any, dim: str) -> Any:
    return next(group[dim].to_numpy() for group in tree.children.values() if dim in group.coords)


def _answer(tree: Any, model: Any, parts: tuple, options: argparse.Namespace) -> tuple[str, Any]:
    """The answer in words, and as a table."""
    import inference
    from inference.results.groups import stored_columns

    asked = options.what
    if asked == "log_density":
        return "log density of each row, in nats", _frame(inference.log_density(tree, *parts))
    is_cluster = len(model.roles.predicted) == 1
    if asked == "scores" or (asked is None and not is_cluster and not model.predicts_cells):
        scores = inference.transform(tree, *parts)
        return f"scores, by {scores.dims[-1]}", _frame(scores, f"{scores.dims[-1]}_")
    given = {} if asked in (None, "prediction") else {"what": asked}
    predicted = inference.predict(tree, *parts, **given)
    if is_cluster:
        shares = inference.transform(tree, *parts)
        table = _frame(predicted)
        table["probability"] = shares.max(shares.dims[-1]).to_numpy()
        return "cluster of each row, and its probability", table
    if predicted.dims[-1] == "class":
        table = _frame(predicted, "probability_")
        names = predicted["class"].to_numpy()[predicted.argmax("class").to_numpy()]
        table.insert(0, "class", names)
        table.insert(1, "probability", predicted.max("class").to_numpy())
        return "class of each row, and the probability of each class", table
    table = _as_read(_frame(predicted), stored_columns(tree, model))
    if options.deviations and "standard_deviation" in predicted.coords:
        deviations = predicted.standard_deviation.to_pandas().add_suffix("_sd")
        table = table.join(deviations)
    missing = (
        " missing cells filled in" if predicted.dims == model.roles.predicted and model.takes_missing else ""
    )
    return f"{asked or predicted.dims[-1] + 's'} of each row" + ("," + missing if missing else ""), table


def _as_read(table: Any, columns: tuple) -> Any:
    """Predicted cells in the words of the table that was fitted: levels and dates."""
    for read in columns:
        for column in () if read is None else read.kept:
            if column.name in table and (column.levels or column.origin is not None):
                table[column.name] = [column.cell_in_words(number) for number in table[column.name]]
    return table


def _frame(values: Any, prefix: str = "") -> Any:
    """A DataArray of one or two dims as a DataFrame."""
    from inference.batched_answers import frame_of

    return frame_of(values, prefix, deviations=False)


def _writer(path: Path) -> Callable:
    """How a table is written to a file of this ending, its extra asked for before the run."""
    from inference.numerics.atomic_files import replacing
    from zoo.intake.files import require

    ending = path.suffix.lower()
    if ending in (".parquet", ".xlsx"):
        require(ending)

    def write(table: Any, place: Path) -> None:
        with replacing(place) as file:
            if ending == ".parquet":
                table.to_parquet(file, write_page_checksum=True)
            elif ending == ".xlsx":
                table.to_excel(file, engine="openpyxl")
            else:
                table.to_csv(file, sep="\t" if ending == ".tsv" else ",")

    return write
