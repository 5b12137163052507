"""What commands print: warnings as lines, shapes of tables, errors in one line."""

import ast
import re
import shlex
import shutil
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from zoo.cli.arguments import in_brief

__all__ = [
    "as_options",
    "collected_warnings",
    "line_width",
    "one_line",
    "print_columns",
    "print_lines",
    "print_notes",
    "print_warnings",
    "shape",
]

_WIDEST, _NARROWEST = 110, 60
_AS_OPTIONS = (
    (re.compile(r"families=\{'([^']+)': '([^']+)'\}"), lambda found: _families(found)),
    (re.compile(r"\w+\.drop\(columns=('[^']*'|\d+|\[[^\]]*\])\)"), lambda found: _left_out(found)),
    (re.compile(r"\bstandardize=True\b"), "--standardize"),
    (re.compile(r"\binit=tree\b"), "--init FIT.nc"),
    (re.compile(r"\bor tolerance\b"), "or --tolerance"),
    (re.compile(r"\bdtype='(float\d\d)'"), r"--dtype \1"),
    (re.compile(r"\bmethod='(\w+)'"), r"--method \1"),
    (
        re.compile(r"(?<![-\w])(max_iterations|num_restarts|num_samples|num_warmup|batch_size)(?:=(\d+))?\b"),
        lambda found: f"--{found[1].replace('_', '-')}" + (f" {found[2]}" if found[2] else ""),
    ),
)


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
    messages += dict.fromkeys(as_options(" ".join(str(warning.message).split())) for warning in caught)


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
    return in_brief(as_options(" ".join(str(message).split())))


def as_options(message: str) -> str:
    """A message whose remedies are calls of Python, with the options of the command line in their place.

    Args:
        message: in one line.

    Returns:
        The message.
    """
    for pattern, replacement in _AS_OPTIONS:
        message = pattern.sub(replacement, message)
    return message


def _families(found: re.Match) -> str:
    return f"--families {shlex.quote(f'{found[1]}={found[2]}')}"


def _left_out(found: re.Match) -> str:
    names = ast.literal_eval(found[1])
    listed = [names] if not isinstance(names, list) else names
    return f"--families {shlex.quote(','.join(f'{name}=leave_out' for name in listed))}"


def line_width() -> int:
    """The width of a line on this terminal.

    Returns:
        From 60 to 110 characters; 110 where there is no terminal.
    """
    return min(max(shutil.get_terminal_size((_WIDEST, 24)).columns, _NARROWEST), _WIDEST)


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


def print_columns(found: str) -> None:
    """Print what was made of the columns of tables, a few words each.

    Args:
        found: the decisions in words; empty where there is no table.
    """
    if found:
        _print("columns", [found])


def print_lines(lines: Sequence[tuple[str, str]]) -> None:
    """Print lines of a table.

    Args:
        lines: a title and its text, each.
    """
    for title, text in lines:
        _print(title, [text])


def _print(title: str, notes: Sequence[str]) -> None:
    for note in notes:
        print(textwrap.fill(note, line_width(), initial_indent=f"{title:<11}", subsequent_indent=" " * 11))
