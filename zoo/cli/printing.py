"""What commands print: warnings as lines, shapes of tables, errors in one line."""

import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["collected_warnings", "one_line", "print_columns", "print_notes", "print_warnings", "shape"]

_WIDTH = 110


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings for the user, each once, instead of printing them as Python does.

    Returns:
        A context whose value is the list of messages, filled when it ends.
    """
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        for category in (UserWarning, RuntimeWarning):
            warnings.simplefilter("always", category)
        yield messages
    messages += dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught)


def one_line(error: BaseException) -> str:
    """The message of an error without line breaks.

    Args:
        error: any.

    Returns:
        Its message, or the name of its class.
    """
    message = (
        error.args[0] if isinstance(error, KeyError) and error.args else str(error) or type(error).__name__
    )
    return " ".join(str(message).split())


def shape(table: Any) -> str:
    """Rows and columns of a table in words, with the names of few columns.

    Args:
        table: a DataFrame, an array or a sparse matrix.

    Returns:
        Text.
    """
    rows, columns = table.shape
    names = list(map(str, getattr(table, "columns", ())))
    listed = f" ({', '.join(names)})" if 0 < len(names) <= 8 else ""
    return f"{rows} rows, {columns} columns{listed}"


def print_warnings(notes: Sequence[str]) -> None:
    """Print warnings as lines of a table.

    Args:
        notes: the warnings.
    """
    _print("warning", notes)


def print_notes(data: Sequence[Any]) -> None:
    """Print how the file of the data was read, where that was told from it.

    Args:
        data: parts of the data.
    """
    for table in data:
        notes = getattr(table, "attrs", {}).get("read_as")
        if notes:
            _print("read as", ["; ".join(notes)])
            return


def print_columns(tree: Any) -> None:
    """Print what was made of the columns of the tables of a fit, a few words each.

    Args:
        tree: the fit, a DataTree.
    """
    if "columns" in tree.children:
        from inference import model_of
        from inference.results.groups import stored_columns

        found = stored_columns(tree, model_of(tree))
        _print("columns", ["; ".join(str(columns) for columns in found if columns is not None)])


def _print(title: str, notes: Sequence[str]) -> None:
    for note in notes:
        print(textwrap.fill(note, _WIDTH, initial_indent=f"{title:<11}", subsequent_indent=" " * 11))
