"""Tables of other libraries, and of Python, as tables of pandas.

Frames of polars, pyarrow, Modin, DuckDB and others are read by narwhals, and categories keep their levels; a
dict of columns, records of NumPy and a dataset of xarray need no library.
"""

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

FRAMES = ("polars", "pyarrow", "modin", "cudf", "duckdb", "ibis", "pyspark", "sqlframe")


def as_frame(data: Any) -> Any:
    """A table of another library as one of pandas, anything else as it is.

    Args:
        data: a frame, lazy or not, or a series of a library that narwhals knows, a dict of columns, an array
            of NumPy with named fields, or a dataset of xarray with one dim.

    Returns:
        A DataFrame, or a Series; or the data.

    Raises:
        ValueError: columns of a dict that differ in length.
    """
    library = type(data).__module__.partition(".")[0]
    if library in FRAMES:
        return _from_native(data)
    if getattr(getattr(data, "dtype", None), "names", None) and np.ndim(data) == 1:
        return pd.DataFrame.from_records(data)
    if library == "xarray" and hasattr(data, "data_vars") and len(data.sizes) == 1:
        return data.to_dataframe()
    is_dict = isinstance(data, Mapping) and not hasattr(data, "shape")  # which sparse matrices of keys have
    if is_dict and data and all(map(_is_column, data.values())):
        lengths = {str(name): len(column) for name, column in data.items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} has {length}" for name, length in list(lengths.items())[:3])
            raise ValueError(f"the columns of a dict must have one number of rows; {told}")
        return pd.DataFrame({name: np.asarray(column) for name, column in data.items()})
    return data


def _is_column(value: Any) -> bool:
    return not isinstance(value, str | bytes | Mapping) and hasattr(value, "__len__") and np.ndim(value) == 1


def _from_native(data: Any) -> Any:
    nw = importlib.import_module("narwhals.stable.v2")
    native = nw.from_native(data, pass_through=True, allow_series=True)
    if isinstance(native, nw.LazyFrame):
        native = native.collect()
    if isinstance(native, nw.Series):
        return pd.Series(_cells(native), name=native.name or None)
    if not isinstance(native, nw.DataFrame):
        return data
    columns = [_cells(native[name]) for name in native.columns]
    frame = pd.DataFrame(dict(enumerate(columns)))
    frame.columns = pd.Index(native.columns)
    return frame


def _cells(series: Any) -> Any:
    """The cells of a column, missing ones as pandas has them."""
    nw = importlib.import_module("narwhals.stable.v2")
    if series.dtype in (nw.Categorical, nw.Enum):
        levels = series.cat.get_categories().to_list()
        return pd.Categorical(series.cast(nw.String).to_list(), categories=levels)
    if series.dtype.is_numeric() and not series.dtype.is_decimal():
        return series.to_numpy()
    if series.dtype in (nw.Date, nw.Datetime):
        return pd.to_datetime(pd.Series(series.to_list()))
    is_full = series.dtype == nw.Boolean and not series.null_count()
    return np.array(series.to_list(), dtype=bool if is_full else object)
