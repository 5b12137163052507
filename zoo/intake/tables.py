"""What a model declares of the tables that it takes; which data suit it follows from that."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from zoo import checks
from zoo.answers import answer_of
from zoo.fields import part_sizes, size_fields
from zoo.intake.kinds import Columns, read_columns
from zoo.sparse import as_rows, is_sparse

if TYPE_CHECKING:
    from zoo.model import Model

NUMBERS = ("real", "positive", "date")  # kinds of columns, as of `zoo.intake.KINDS`
ANY = (*NUMBERS, "count", "yes/no", "category", "ordered")


class Table(NamedTuple):
    """A part of the data, as a model declares it.

    Attributes:
        name: of its site; with a star there is one such part for each of the model's families.
        cells: kinds of columns that it takes, ``"documents"``, or ``"class_labels"`` beside numbers.
        missing: whether cells may be missing; ``"rows"``: whole rows too.
        sparse: what a sparse matrix holds: ``"reals"`` or ``"counts"``; None: the part is dense.
        dense: what to do with a sparse matrix that is not taken.
        optional: whether new rows may come without it.
        one_family: whether all columns have the same family.
        varies: whether a constant column is refused.
        needs: the least number of rows to fit.
        why: there must be so many.
        latents: of which there are more than latents, ``"rows"`` or ``"columns"``.
        most_latents: of which there are as many as latents, or more.
        stated_in: in which coordinates the numbers of the program, and of fields without a unit, are: the
            ``"data"``'s, or with ``"columns"`` those about the columns' means and in their deviations, with
            ``"common"`` in a common one. They are read off the data into fields of the model,
            ``{name}_origin`` and ``{name}_scale``, which ``standardize=False`` leaves out.
        weight: the power of its density in the program, or the field with that, one number or one for each
            part; 0: the score is no density of the rows, and their unit does not change it.
    """

    name: str
    cells: tuple[str, ...] = NUMBERS
    missing: bool | str = True
    sparse: str | None = None
    dense: str = "this model takes no sparse matrix; give {name}.toarray()"
    optional: bool = False
    one_family: bool = False
    varies: bool = False
    needs: int = 1
    why: str = "the projection of one row is the row itself"
    latents: tuple[str, ...] = ()
    most_latents: tuple[str, ...] = ()
    stated_in: Literal["data", "columns", "common"] = "data"
    weight: float | str = 1.0

    @property
    def holds_documents(self) -> bool:
        """Whether its rows are documents: counts, or strings whose words are counted."""
        return "documents" in self.cells


class PartNames:
    """Names of the parts of the data, asked of a model or of its class.

    Of a class with a starred table they are None: its data say how many there are.
    """

    def __get__(self, model: "Model | None", owner: Any = None) -> Any:
        """The names."""
        if model is None and "*" in owner.data[0].name:
            return None
        return tuple(table.name for table in (owner.data if model is None else tables_of(model)))


def without_ids(part: Any, id: str | None) -> Any:
    """A part of the data without the column that labels its rows, if it is a table that has it.

    Args:
        part: of the data.
        id: name of the column; None: there is none.
    """
    if id is None or not isinstance(part, pd.DataFrame):
        return part
    return part.loc[:, [str(name) != str(id) for name in part.columns]]


def tables_of(model: "Model") -> tuple[Table, ...]:
    """The parts of the data by their names: as declared, a starred one once for each family.

    Args:
        model: with its families.

    Returns:
        A table for each part.
    """
    (first, *others), families = model.data, model.part_families
    if "*" not in first.name:
        return model.data
    return (*(first._replace(name=first.name.replace("*", str(v))) for v in range(len(families))), *others)


def as_cells(model: "Model", place: int, part: Any) -> Any:
    """A part of the data as numbers; a table of pandas is read by what its columns hold.

    Args:
        model: with its tables and families.
        place: of the part.
        part: a table, an array or a sparse matrix.

    Returns:
        An array, a `SparseMatrix`, or sparse counts; shape (num_observations, num_features).

    Raises:
        TypeError: cells that are no numbers, or a sparse matrix that the model does not take.
        ValueError: not two-dimensional, or columns that the model does not take.
    """
    table, family = tables_of(model)[place], model.part_families[place]
    if is_sparse(part):
        if table.sparse == "reals":
            return as_rows(part, table.name)
        if not takes_sparse_counts(model):
            raise TypeError(f"{table.name} must be dense: {table.dense.format(name=table.name)}")
        return part
    if isinstance(part, pd.DataFrame) and "class_labels" not in table.cells:
        columns = read_columns(part, name=table.name)
        part = numbered(columns, family, type(model).__name__).encoded(part)
    x = checks.as_matrix(part, table.name)
    if table.missing is False:
        checks.check_finite(x, table.name)
    return x


def numbered(columns: Columns, family: Any, model: str) -> Columns:
    """The columns with levels numbered as a family takes them.

    Args:
        columns: of a table.
        family: of its cells, or of the components that have them; None: there is none.
        model: its name, in messages.

    Returns:
        The columns; two words are yes and no where cells are zeros and ones.

    Raises:
        ValueError: a column of categories where the family takes no levels.
    """
    size = len(columns.kept)
    starts = np.full(size, -1) if family is None else family.level_starts(size)[:size]
    answers = family.answer_columns(size) if hasattr(family, "answer_columns") else ()
    return columns.with_answers(answers).numbered_from(starts, model)


def columns_of(model: "Model", data: Sequence[Any]) -> tuple[Columns | None, ...]:
    """What the columns of tables of pandas hold, where a model reads them by that.

    Args:
        model: with its tables.
        data: parts of the data.

    Returns:
        For each part its columns; None of an array, of documents, and of class labels.

    Raises:
        TypeError: another number of parts than the model takes.
    """
    tables = tables_of(model)
    checks.check_num_parts(type(model).__name__, len(data), len(tables))
    return tuple(
        read_columns(part, name=table.name)
        if isinstance(part, pd.DataFrame) and not {"documents", "class_labels"} & {*table.cells}
        else None
        for table, part in zip(tables, data, strict=True)
    )


def check_rows_of(model: "Model", data: Sequence[Any]) -> None:
    """Raise ValueError or TypeError if rows, new or fitted, do not suit a model.

    Args:
        model: with its tables, sizes and families.
        data: parts of the data; None of one that is left out.
    """
    tables = tables_of(model)
    checks.check_num_parts(type(model).__name__, max(len(data), len(tables)), len(tables))
    has_gaps, fields, lengths = takes_missing(model), size_fields(model), {}
    described = zip(tables, part_sizes(model), model.part_families, data, strict=False)
    for place, (table, size, family, part) in enumerate(described):
        if part is None:
            continue
        x = as_cells(model, place, part)
        checks.check_columns(x, size, table.name, "model", fields[place % len(fields)])
        if family is not None:
            family.check(x, *(table.name,) * (len(tables) > 1))
        elif not is_sparse(x):
            (checks.check_infinite if place or has_gaps else checks.check_finite)(x, table.name)
            checks.check_kinds(x, table.cells, table.name)
        lengths[table.name] = x.shape[0]
    if len(set(lengths.values())) > 1:
        told = " and ".join(f"{name} has {size}" for name, size in lengths.items())
        raise ValueError(
            f"{' and '.join(lengths)} must have the same rows; {told}: a row that one lacks is NaN in it"
        )


def check_fit(model: "Model", data: Sequence[Any]) -> None:
    """Raise ValueError if a model cannot be fitted to rows that suit it, too few or too empty.

    Args:
        model: with its tables and sizes.
        data: parts of the data.
    """
    tables, parts = tables_of(model), [as_cells(model, place, part) for place, part in enumerate(data)]
    first, x = tables[0], parts[0]
    checks.check_rows(x, first.needs, first.why, first.name)
    if first.missing != "rows":
        _check_some_cells(tables, parts)
    for table, part in zip(tables, parts, strict=False):
        if table.varies:
            checks.check_not_constant(part, table.name)


def check_latents(model: "Model", data: Sequence[Any]) -> None:
    """Raise ValueError if a model has more latents than rows or columns allow.

    Args:
        model: with its tables and sizes.
        data: parts of the data.
    """
    (first, *others), x = tables_of(model), data[0]
    of = f" of {first.name}" if others else ""
    sizes = {"rows": ("rows", np.shape(x)[0]), "columns": (f"columns{of}", np.shape(x)[1])}
    in_space = answer_of(model, "needs_fitted_rows")
    for limits, below in ((first.latents, True), (first.most_latents, False)):
        known = (sizes[limit] for limit in limits if limit == "rows" or not in_space)
        checks.check_num_latents(getattr(model, "num_latents", 0), dict(known), below=below)


def _check_some_cells(tables: Sequence[Table], parts: Sequence[np.ndarray]) -> None:
    """Raise ValueError naming a column without any cell, or a row that has none in any part."""
    names, is_alone = [table.name for table in tables], len(parts) == 1
    dense = {name: part for name, part in zip(names, parts, strict=True) if not is_sparse(part)}
    for name, part in dense.items():
        (checks.check_some_cells if is_alone else checks.check_some_columns)(part, name)
    if is_alone or len(dense) < len(parts):
        return
    empty = np.flatnonzero(np.all([np.isnan(part).all(axis=1) for part in parts], axis=0))
    if empty.size:
        row, leave = checks.row_of(parts[0], empty[0]), checks.without_rows(parts[0], empty, names[0])
        others = " and ".join(names[1:])
        raise ValueError(
            f"{row} has no observed cell in {' or '.join(names)}; leave it out, {leave}, "
            f"and likewise of {others}"
        )


def is_of_rows(model: "Model", name: str) -> bool:
    """Whether a variable has an entry for each row of the data.

    Args:
        model: with its tables.
        name: of the variable.

    Returns:
        Whether its first dim is that of the rows.
    """
    dims = model.variable_dims
    return dims.get(name, ())[:1] == dims[model.data_names[0]][:1]


def num_needed(model: "Model") -> int:
    """How many parts of data new rows must bring.

    Args:
        model: with its tables.

    Returns:
        The number, at least 1.
    """
    return max(1, sum(not table.optional for table in tables_of(model)))


def takes_missing(model: "Model") -> bool:
    """Whether cells of the (first part of the) data may be missing; kernels are of whole rows.

    Args:
        model: with its tables and families.

    Returns:
        Whether they may.
    """
    family, table = model.part_families[0], model.data[0]
    is_taken = bool(table.missing) and not answer_of(model, "needs_fitted_rows")
    return is_taken and (family is None or family.takes_missing)


def takes_sparse_counts(model: "Model") -> bool:
    """Whether rows may be `zoo.SparseCounts`.

    Args:
        model: with its tables and families.

    Returns:
        Whether they may.
    """
    family, table = model.part_families[0], model.data[0]
    return table.sparse == "counts" and (family is None or family.takes_sparse)
