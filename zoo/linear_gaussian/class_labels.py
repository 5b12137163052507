"""Class labels as outputs: one 0/1 column per class.

A model whose outputs are real takes class labels as *one-of-C* columns: output c of a row is 1 if the row is
of class c and 0 if not. Centred, such columns have rank C - 1, so a likelihood with separate noise for them
has no maximum once there are C - 1 latents; ``"reduced"`` leaves the last class's column out, and its
likelihood is bounded. The 0/1 coding itself changes nothing: any other two numbers shift and scale means,
loadings and noise.

Labels are: a pandas categorical, string, object or boolean column (Series or one-column DataFrame), a pandas
or NumPy *vector* of whole numbers, or a vector or list of strings. A missing label is None, NaN, pandas.NA or
a masked entry (``numpy.ma``).
A matrix of numbers, even with one column of whole numbers, is real outputs.
"""

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from zoo.checks import shown

Label = str | int | bool


def are_labels(y: Any) -> bool:
    """Whether outputs are class labels rather than numbers.

    Args:
        y: outputs, as the caller gave them.

    Returns:
        True for strings, categories, booleans and one-dimensional whole numbers.
    """
    if getattr(y, "ndim", None) == 2 and hasattr(y, "columns"):
        return y.shape[1] == 1 and _kind(y.iloc[:, 0]) in "OUbC"
    if isinstance(y, pd.Series | pd.Categorical | pd.Index):
        return _kind(pd.Series(y)) in "OUbCiu"
    if isinstance(y, Sequence) and not isinstance(y, str):
        strings = any(isinstance(label, str) for label in y)
        kinds = str | int | np.integer | np.bool_
        return bool(len(y)) and all(
            label is None
            or label is pd.NA
            or label is np.ma.masked
            or isinstance(label, kinds)
            or (strings and isinstance(label, float) and np.isnan(label))
            for label in y
        )
    if not isinstance(y, np.ndarray) or y.ndim != 1:
        return False
    return y.dtype.kind in "UTbiu" or (y.dtype.kind == "O" and not _are_real(np.asarray(y)))


def _are_real(objects: np.ndarray) -> bool:
    """Whether objects are numbers of which some are no whole ones, missing ones aside."""
    given = [value for value in objects if value is not np.ma.masked and not pd.isna(value)]
    return all(isinstance(value, Real) for value in given) and not all(
        isinstance(value, int | np.integer | np.bool_) for value in given
    )


def class_names(y: Any) -> tuple[Label, ...]:
    """The classes that occur, in the order of the categories, or sorted.

    Args:
        y: labels, shape (num_observations,), None or NaN where one is missing.

    Returns:
        The classes, each once.

    Raises:
        ValueError: no label at all, only one class, or a class with a single row.
    """
    labels = _series(y)
    if isinstance(labels.dtype, pd.CategoricalDtype):
        present = [c for c in labels.cat.categories if (labels == c).any()]
    else:
        present = sorted(labels.dropna().unique(), key=lambda label: (type(label).__name__, label))
    if not present:
        raise ValueError("every label of y is missing: without outputs the model is zoo.PPCA")
    if len(present) == 1:
        raise ValueError(
            f"y must hold at least two classes; every label is {shown(present[0])}: give rows of "
            "another class, or fit zoo.PPCA to x alone"
        )
    for name in present:
        if (labels == name).sum() == 1:
            row = labels.index[(labels == name).to_numpy(bool, na_value=False)][0]
            raise ValueError(
                f"class {shown(name)} of y has one example, row {row}: its output has no variance to "
                f"estimate; give it a second one, or leave its label out"
                + (f", y.where(y != {_plain(name)!r})" if hasattr(y, "iloc") else " (None)")
            )
    return tuple(_plain(name) for name in present)


def code_labels(y: Any, classes: Sequence[Label], coding: str = "one_of_c") -> pd.DataFrame:
    """Labels as 0/1 columns, NaN rows where the label is missing.

    Args:
        y: labels, see `are_labels`.
        classes: of the columns, in their order.
        coding: ``"one_of_c"``, or ``"reduced"`` without the last class's column.

    Returns:
        One row a label, with the index that they came with; columns named after the classes.

    Raises:
        ValueError: a label that is none of the classes.
    """
    labels = _series(y)
    plain = [None if missing else _plain(label) for label, missing in zip(labels, labels.isna(), strict=True)]
    for row, label in zip(labels.index, plain, strict=True):
        if label is not None and label not in classes:
            raise ValueError(
                f"label {label!r} in row {row} of y is none of the classes {', '.join(map(str, classes))}"
            )
    columns = list(classes[: len(classes) - (coding == "reduced")])
    coded = np.array(
        [[np.nan if label is None else float(label == name) for name in columns] for label in plain]
    )
    return pd.DataFrame(coded.reshape(len(plain), len(columns)), index=labels.index, columns=columns)


def _series(y: Any) -> pd.Series:
    if hasattr(y, "columns"):
        return y.iloc[:, 0]
    if isinstance(y, pd.Series):
        return y
    if isinstance(y, np.ma.MaskedArray):  # whose whole numbers pandas would turn into real ones
        y = np.where(np.ma.getmaskarray(y), None, np.asarray(y).astype(object))
    if isinstance(y, Sequence):
        y = [None if label is np.ma.masked else label for label in y]
    return pd.Series(y, dtype=object if isinstance(y, Sequence) else None)  # [0, 1, None] stays whole numbers


def _kind(column: pd.Series) -> str:
    """NumPy's letter for the type of a column; C for a categorical, O for strings."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "C"
    if column.dtype == object and _are_real(column.to_numpy()):
        return "f"
    return "O" if isinstance(column.dtype, pd.StringDtype) else getattr(column.dtype, "kind", "O")


def _plain(label: Any) -> Label:
    """A label as a Python value that JSON and netCDF can hold."""
    if isinstance(label, bool | np.bool_):
        return bool(label)
    return int(label) if isinstance(label, int | np.integer) else str(label)
