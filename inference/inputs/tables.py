"""Arrays from the data that are passed to `fit`, and the names of their rows and columns.

Accepted: NumPy arrays, masked ones too, nested lists, pandas DataFrames (index and columns become coords),
scipy sparse matrices where the model takes counts (or real numbers, `zoo.sparse`), and None for a part that
is missing. Several parts of pandas are paired by their index (`paired_rows`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from inference.inputs.text import read_documents
from zoo.checks import as_matrix, check_unique, first_of, kept_labels, listed, take_rows, warn
from zoo.documents.bags import warn_of_empty
from zoo.intake import KINDS, Columns, plain_numbers, read_columns
from zoo.intake.families import as_taken
from zoo.intake.tables import tables_of, without_ids
from zoo.model import Model
from zoo.sparse import SparseCounts, SparseMatrix


def as_arrays(model: Model, data: tuple) -> tuple[tuple[np.ndarray, ...], dict[str, Any]]:
    """Each part of the data as a float64 matrix, and coords by dim; documents as sparse counts.

    Documents without words are warned of.

    Args:
        model: which says what the parts are.
        data: the parts, as many as the model has or the first of them.

    Raises:
        TypeError: a column is not numeric, or sparse rows that the model does not take.
        ValueError: a part is not two-dimensional, or two columns of one name.
    """
    if model.data[0].holds_documents:
        (counts,), coords = read_documents(*data)
        lengths = np.bincount(counts.document, counts.count, counts.shape[0])
        warn_of_empty(lengths, data[0], coords.get("document"))
        return (counts,), coords
    arrays, coords = [], {}
    takes_sparse = any(table.sparse for table in model.data)
    for part, dim, name in zip(data, column_dims(model), model.data_names, strict=False):
        if isinstance(part, SparseMatrix | SparseCounts) and takes_sparse:
            arrays.append(part)
        elif hasattr(part, "tocoo") and takes_sparse:
            arrays.append(SparseCounts.from_matrix(part))
        else:
            arrays.append(as_matrix(part, name))
        labels = kept_labels(arrays[-1])
        if labels is not None and labels.columns is not None:
            coords[dim] = list(labels.columns)
            index = labels.index  # numbers of rows are not held one by one
            plain = isinstance(index, pd.RangeIndex)
            named = range(index.start, index.stop, index.step) if plain else list(index)
            coords.setdefault("observation", named)
    return tuple(arrays), coords


# Columns by what they hold


def read_parts(
    model: Model,
    data: tuple,
    families: Mapping[str, str] | None = None,
    levels: Mapping[str, Sequence[Any]] | None = None,
    id: str | None = None,
) -> tuple[Model, tuple[Columns | None, ...]]:
    """What the columns of the tables among the data hold, and the model that suits them.

    Args:
        model: fields that it was not given are chosen by the columns.
        data: the parts.
        families: column to family or kind, as of `zoo.intake.read_columns`.
        levels: column to its levels.
        id: column that labels the rows.

    Returns:
        The model, and for each part its columns, None of one that is no table to be read.

    Raises:
        TypeError: ``families``, ``levels`` or ``id`` and no table.
        ValueError: they name a column that no table has, or a column has categories that the model does not
            take.
    """
    families = _without_labels(model, data, families)
    given = {"families": families, "levels": levels, "id": id}
    tables = [
        place
        for place, part in enumerate(data)
        if isinstance(part, pd.DataFrame) and "class_labels" not in tables_of(model)[place].cells
    ]
    if not tables:
        for name, value in given.items():
            if value is not None:
                raise TypeError(f"{name} names columns, and there is no DataFrame among the data: pass one")
        return model, (None,) * len(data)
    own = _by_table(given, [data[place] for place in tables])
    found: list[Columns | None] = [None] * len(data)
    for place, arguments in zip(tables, own, strict=True):
        name = model.data_names[place]
        if model.data[0].holds_documents:
            found[place] = _columns_of_counts(data[place], arguments, name)
        else:
            found[place] = read_columns(data[place], name=name, **arguments)
    for name, columns in zip(model.data_names, found, strict=False):
        if columns is not None:
            _warn_of_left_out(columns, name)
    model = model.with_families(found)
    return model, tuple(as_taken(model, found))


def read_tables(
    data: tuple,
    families: Mapping[str, str] | None = None,
    levels: Mapping[str, Sequence[Any]] | None = None,
    id: str | None = None,
    *,
    holds_documents: bool = False,
) -> tuple[Columns | None, ...]:
    """What the columns of the tables among the data hold, whatever the model.

    Args:
        data: the parts.
        families: as of `read_parts`.
        levels: as of `read_parts`.
        id: as of `read_parts`.
        holds_documents: whether tables hold counts of words.

    Returns:
        For each part its columns; None of one that is no table, or of words and their counts alone.

    Raises:
        ValueError: they name a column that no table has.
    """
    places = [place for place, part in enumerate(data) if isinstance(part, pd.DataFrame)]
    given = {"families": families, "levels": levels, "id": id}
    own = _by_table(given, [data[place] for place in places])
    found: list[Columns | None] = [None] * len(data)
    for place, arguments in zip(places, own, strict=True):
        name = f"part {place}" if place else "x"
        if holds_documents:
            found[place] = columns = _columns_of_counts(data[place], arguments, name)
        else:
            found[place] = columns = read_columns(data[place], name=name, **arguments)
        if columns is not None:
            _warn_of_left_out(columns, name)
    return tuple(found)


MOST_CLASSES = 10  # whole numbers of which so many at most may be class labels


def label_parts(
    model: Model,
    data: tuple,
    families: Mapping[str, str] | None = None,
    id: str | None = None,
    *,
    asks: bool = True,
) -> tuple:
    """The data with outputs that are class labels as such; asks where whole numbers may be labels.

    Args:
        model: whose tables say which parts may be class labels.
        data: the parts.
        families: column to family; ``"categorical"`` makes a column of outputs class labels, and
            ``"gaussian"`` numbers.
        id: column that labels the rows, which is no output.
        asks: whether to warn of whole numbers that may be labels.

    Returns:
        The parts, a table of one column of class labels as a Series.
    """
    parts = list(data)
    for place, (table, part) in enumerate(zip(tables_of(model), data, strict=False)):
        if "class_labels" not in table.cells or not hasattr(part, "shape") or np.ndim(part) != 2:
            continue
        parts[place] = part = without_ids(part, id)
        if part.shape[1] != 1 or hasattr(part, "tocoo"):
            continue
        column = str(part.columns[0]) if isinstance(part, pd.DataFrame) else None
        kind = KINDS.get((families or {}).get(column, ""))
        if kind in ("category", "ordered", "yes/no") or (column and getattr(model, "classes", None)):
            cells = part.iloc[:, 0]
            whole = pd.api.types.is_numeric_dtype(cells.dtype) and not cells.isna().any()
            parts[place] = cells.astype(int) if whole else cells.astype(object)
        elif asks and kind is None and (number := _number_of_classes(part)):
            called = "y" if column is None else f"y, the column {column!r},"
            as_labels = (
                "y.ravel().astype(int)" if column is None else f"families={{{column!r}: 'categorical'}}"
            )
            as_numbers = (
                "" if column is None else f"; if they are numbers, say families={{{column!r}: 'gaussian'}}"
            )
            warn(
                f"{called} holds {number} different whole numbers, which are taken as real outputs: if they "
                f"are class labels, pass {as_labels}{as_numbers}"
            )
    return tuple(parts)


def _number_of_classes(part: Any) -> int:
    """How many classes one column of whole numbers would have; 0 if they are no labels."""
    try:
        values = as_matrix(part)[:, 0]
    except (TypeError, ValueError):  # words, or what is refused later
        return 0
    values = values[~np.isnan(values)]
    distinct = np.unique(values)
    if not 3 <= len(distinct) <= MOST_CLASSES or distinct[0] not in (0.0, 1.0):
        return 0
    in_order = (distinct == distinct[0] + np.arange(len(distinct))).all()
    return len(distinct) if in_order and len(values) >= 2 * len(distinct) else 0


def _without_labels(
    model: Model, data: tuple, families: Mapping[str, str] | None
) -> Mapping[str, str] | None:
    """The families without those of columns that are outputs, which `label_parts` reads."""
    if not isinstance(families, Mapping):
        return families
    outputs = {
        str(column)
        for table, part in zip(tables_of(model), data, strict=False)
        if "class_labels" in table.cells
        for column in getattr(part, "columns", [getattr(part, "name", None)])
    }
    return {column: family for column, family in families.items() if str(column) not in outputs} or None


def _by_table(given: Mapping[str, Any], tables: Sequence[pd.DataFrame]) -> list[dict[str, Any]]:
    """The arguments for each table: what names its columns; ValueError for what names none."""
    have = [set(map(str, table.columns)) for table in tables]
    known = ", ".join(str(column) for table in tables for column in table.columns)
    for name in ("families", "levels"):
        if given[name] is not None and not isinstance(given[name], Mapping):
            raise TypeError(f"{name} must be a mapping by column; got {given[name]!r}")
        for column in given[name] or ():
            if not any(str(column) in own for own in have):
                raise ValueError(f"{name} names no column: {column!r}; there are {known}")
    if given["id"] is not None and not any(str(given["id"]) in own for own in have):
        raise ValueError(f"id names no column: {given['id']!r}; there are {known}")
    return [
        {
            name: {column: value for column, value in (given[name] or {}).items() if str(column) in own}
            for name in ("families", "levels")
        }
        | {"id": given["id"] if str(given["id"]) in own else None}
        for own in have
    ]


def _columns_of_counts(table: pd.DataFrame, arguments: Mapping[str, Any], name: str) -> Columns | None:
    """The columns of a table of documents that has more than counts; None: words and their counts alone."""
    if any(kind == np.dtype(object) for kind in table.dtypes):
        table = table.apply(plain_numbers)
    asked = any(arguments[key] for key in ("families", "levels", "id"))
    strange = [place for place, kind in enumerate(table.dtypes) if not _is_count_type(kind)]
    if not strange and not asked and not any(str(column).lower().endswith("id") for column in table.columns):
        return None
    columns = read_columns(table, name=name, **arguments)
    if strange and table.shape[1] == 3 and columns.columns[word := strange[-1]].name != columns.label:
        document, count = table.columns.delete(word)
        if len(strange) == 2 or not table.duplicated([document, table.columns[word]]).any():
            raise ValueError(
                f"{name} has a row for each document and word, but needs one for each document: "
                f"table.pivot_table(index={document!r}, columns={table.columns[word]!r}, values={count!r}, "
                "aggfunc='sum', fill_value=0) has"
            )
    is_count = ("count", "yes/no", "real", "id")

    def as_counts(place: int, column: Any) -> Any:
        if column.is_given or column.name == columns.label or place in strange:
            kept = column.kind in is_count and _is_count_type(table.dtypes.iloc[place])
            if kept or not column.is_kept:
                return column
            return replace(
                column, kind="text", why=f"{column.kind}, and documents are counts of words", doubt=""
            )
        return replace(column, kind="count", why="counts of a word", levels=(), numbers=())

    return replace(columns, columns=tuple(map(as_counts, range(table.shape[1]), columns.columns)))


def _is_count_type(kind: object) -> bool:
    return pd.api.types.is_numeric_dtype(kind) or isinstance(kind, pd.SparseDtype)


def _warn_of_left_out(columns: Columns, name: str) -> None:
    """Warn of columns that are left out; raise ValueError if no other is there."""
    told = left_out_in_words(columns)
    if not columns.kept:
        others = "" if columns.label is None else f" beside {columns.label!r}, which labels the rows"
        raise ValueError(f"no column of {name} is left: {told}" if told else f"{name} has no columns{others}")
    if told:
        warn(told)


def left_out_in_words(columns: Columns | None) -> str:
    """Which columns are left out and why, and how to keep one; empty: none is."""
    if columns is None or not columns.left_out:
        return ""
    named = "; ".join(f"{column.name} ({column.why})" for column in columns.left_out)
    kept = next(
        (f"; to keep {c.name}: families={{{c.name!r}: {c.doubt!r}}}" for c in columns.left_out if c.doubt), ""
    )
    return f"columns left out: {named}{kept}"


def encoded_parts(data: tuple, columns: Sequence[Columns | None]) -> tuple:
    """The data with their tables as numbers.

    Args:
        data: the parts.
        columns: of each part, as `read_parts` gives them; may be fewer.

    Returns:
        The parts.
    """
    known = (*columns, *[None] * len(data))
    return tuple(
        own.encoded(part) if own is not None and isinstance(part, pd.DataFrame) else part
        for part, own in zip(data, known, strict=False)
    )


def check_common_columns(data: tuple, columns: Sequence[Columns | None], model: Model) -> None:
    """Raise ValueError if a table of new rows has no column of the fit.

    Args:
        data: the parts.
        columns: of each part, as `read_parts` gives them; may be fewer.
        model: whose views may be left out.
    """
    for part, own in zip(data, columns, strict=False):
        if own is None or not isinstance(part, pd.DataFrame):
            continue
        have, wanted = list(map(str, part.columns)), [column.name for column in own.kept]
        if not set(have) & set(wanted):
            views = columns if "*" in model.data[0].name else ()
            held = [
                v
                for v, view in enumerate(views)
                if view is not None and {c.name for c in view.kept} & set(have)
            ]
            remedy = (
                f"they are those of {model.data_names[held[0]]}: give None for each view before it, as in "
                f"predict(tree, {'None, ' * held[0]}x)"
                if held
                else "name their columns as those of the fit"
            )
            raise ValueError(
                f"new data have none of the columns {first_of(wanted, 10)} of the fit; they have "
                f"{first_of(have, 10) or 'none'}: {remedy}"
            )


def column_dims(model: Model) -> tuple[str, ...]:
    """Dims of the columns of each part of a model's data."""
    return tuple(model.variable_dims[name][-1] for name in model.data_names)


def check_parts(
    model: Model | type[Model],
    data: tuple,
    least: int | None = None,
    weighted: Callable[[Model | type[Model]], tuple[str, ...]] | None = None,
) -> None:
    """Raise TypeError unless the data are as many parts as the model takes.

    Args:
        model: the model, or its class where that knows its ``data_names``.
        data: the parts.
        least: number of parts that must be there; None: all.
        weighted: the model's methods that take weights of rows, asked for where a part too many may have been
            meant as weights; None: the call takes no weights.
    """
    if not data:
        raise TypeError("there is no data: call fit(model, x, ...)")
    names, given = model.data_names, len(data)
    if (least or len(names)) <= given <= len(names):
        return
    parts = f"{len(names)} part{'s' * (len(names) > 1)} of data, {' and '.join(names)}"
    if given < len(names):
        missing = " and ".join(names[given:])
        hint = f"{missing} {'is' if len(names) - given == 1 else 'are'} missing"
    else:
        hint = _hint_of(data, len(names), weighted(model) if weighted else ())
    name = model.__name__ if isinstance(model, type) else type(model).__name__
    raise TypeError(f"{name} takes {parts}; got {given}: {hint}")


def _hint_of(data: tuple, num_taken: int, weighted: tuple[str, ...]) -> str:
    """What a part beyond those that the model takes may have been meant for."""
    shape = _shape_of(data[num_taken])
    if shape is None or shape[1:] not in ((), (1,)) or shape[:1] != (_shape_of(data[0]) or ())[:1]:
        return "leave the others out"
    outputs = "; class labels and outputs go with zoo.SPPCA" if num_taken == 1 else ""
    if not weighted:
        return f"leave the others out{outputs}"
    methods = f"method{'s' * (len(weighted) > 1)} {listed(weighted)}"
    return f"the last has one value a row; did you mean sample_weight=... ({methods})?{outputs}"


def _shape_of(part: Any) -> tuple[int, ...] | None:
    """Shape of a part of the data; None of chunks, which have none."""
    if isinstance(part, list | tuple):
        return (len(part), *(_shape_of(part[0]) or ())) if part else (0,)
    return tuple(part.shape) if hasattr(part, "shape") else None


# Rows of several parts


def paired_rows(data: tuple, names: tuple[str, ...]) -> tuple:
    """The parts of the data with their rows in the order of the first part's.

    Tables and Series of pandas are paired by their index: the same labels in another order are put in the
    first part's order. An array beside them has no labels, and is paired by position.

    Args:
        data: the parts, None where one is missing.
        names: of the parts, in messages.

    Returns:
        The parts.

    Raises:
        ValueError: a part of pandas with other labels than the first, with labels that occur twice and are
            not in the same order, or with labels other than 0, 1, ... beside an array as first part.
    """
    given = [place for place, part in enumerate(data) if part is not None]
    if len(given) < 2 or not any(map(_has_index, data)):
        return data
    first, paired = given[0], list(data)
    for place in given[1:]:
        if _has_index(part := data[place]):
            paired[place] = _in_order(part, names[place], data[first], names[first])
    return tuple(paired)


def take_parts(parts: Sequence[Any], which: np.ndarray) -> tuple[Any, ...]:
    """Some rows of the parts of the data, which are paired by position from then on.

    Args:
        parts: arrays, tables or Series of pandas, or sparse matrices, paired by position.
        which: places of rows, or whether each is taken.

    Returns:
        The parts; the labels of the rows of pandas are lost beside other parts.
    """
    several = len(parts) > 1
    return tuple(
        (part.iloc[which].reset_index(drop=True) if several else part.iloc[which])
        if hasattr(part, "iloc")
        else take_rows(part, which)
        for part in parts
    )


def joined_rows(data: tuple, names: tuple[str, ...], id: str | None) -> tuple:
    """Tables of the same people: the rows whose id every table with that column has, in the first's order.

    Args:
        data: the parts.
        names: of the parts, in messages.
        id: column of ids; None: tables are paired by their index.

    Returns:
        The parts; those with the column have it as index, too. What is lost is warned of.

    Raises:
        ValueError: an id that a table has twice, or none in common.
    """
    places = [place for place, part in enumerate(data) if isinstance(part, pd.DataFrame)]
    keys = {p: {str(name): name for name in data[p].columns}.get(str(id)) for p in places}
    if id is None or len(places) < 2 or None in keys.values():
        return data
    found = {place: pd.Index(data[place][key].astype(str).str.strip()) for place, key in keys.items()}
    for place, labels in found.items():
        if labels.has_duplicates:
            raise ValueError(
                f"{names[place]} has the {id} {labels[labels.duplicated()][0]!r} twice, so that rows cannot "
                "be joined: leave one of them out, or give each row an id of its own"
            )
    common = found[places[0]]
    for labels in found.values():
        common = common[common.isin(labels)]
    if not len(common):
        told = " and ".join(f"{names[p]} has {labels[0]!r}" for p, labels in found.items() if len(labels))
        raise ValueError(f"no {id} is in all tables, so that no rows can be joined: {told}")
    for place, labels in found.items():
        lost = labels[~labels.isin(common)]
        if len(lost):
            rows = f"{len(lost)} of {len(labels)} rows of {names[place]}"
            warn(f"{rows} have no partner by {id} and are left out: {first_of(lost, 3)}")
    paired = list(data)
    for place, labels in found.items():
        paired[place] = data[place].set_axis(labels.rename(None), axis=0).loc[common]
    return tuple(paired)


def _has_index(part: Any) -> bool:
    return hasattr(part, "iloc") and hasattr(part, "index")


def _in_order(part: Any, name: str, first: Any, first_name: str) -> Any:
    """A part of pandas in the order of the first part's rows."""
    by_position = f"to pair rows by position, pass {name}.to_numpy()"
    if not _has_index(first):
        strange = [(row, label) for row, label in enumerate(map(str, part.index)) if label != str(row)]
        if not strange:
            return part
        row, label = strange[0]
        raise ValueError(
            f"{name} has an index and {first_name} has none, so that its order is not known (row {row} of "
            f"{name} is labelled {label!r}): {by_position}"
        )
    labels, wanted = part.index, first.index
    if labels.equals(wanted):
        return part
    for index, of in ((labels, name), (wanted, first_name)):
        if index.has_duplicates:
            raise ValueError(
                f"the index of {of} has the label {index[index.duplicated()][0]!r} twice, so that the rows "
                f"of {first_name} and {name} cannot be paired by their labels: {by_position}"
            )
    lacking, strange = wanted[~wanted.isin(labels)], labels[~labels.isin(wanted)]
    if len(lacking):
        raise ValueError(
            f"the rows of {name} are labelled otherwise than those of {first_name}: {first_name} has a row "
            f"{lacking[0]!r}, which {name} lacks ({len(lacking)} such rows in all); {by_position}"
        )
    if len(strange):
        raise ValueError(
            f"{name} has a row {strange[0]!r}, which {first_name} lacks ({len(strange)} such rows in all); "
            f"pass {name}.loc[{first_name}.index]"
        )
    return part.loc[wanted]


def matching_columns(x: Any, features: np.ndarray, has_gaps: bool = False) -> Any:
    """New rows with their columns in the order of the fit; a DataFrame is matched by name.

    Args:
        x: new rows.
        features: names of the fitted columns.
        has_gaps: whether the model takes missing cells.

    Raises:
        ValueError: another number of columns, a fitted column is missing, or there are two of its name.
    """
    if not hasattr(x, "columns"):
        return x
    named = {str(column): column for column in x.columns}
    missing = [str(name) for name in features if str(name) not in named]
    if missing:
        those = "it" if len(missing) == 1 else "them"
        remedy = f"give a column of empty cells for {'it' if len(missing) == 1 else 'each'}"
        remedy = remedy if has_gaps else f"add {those}, or fit without {those}"
        raise ValueError(
            f"new data lack the columns {', '.join(missing)} of the fit; they have {', '.join(named)}: "
            f"{remedy}"
        )
    wanted = set(map(str, features))
    check_unique([column for column in x.columns if str(column) in wanted], "new data")
    return x[[named[str(name)] for name in features]]
