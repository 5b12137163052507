"""What commands print: warnings as lines, shapes of tables, errors in one line."""

import ast
import re
import shlex
import shutil
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_WIDEST, _NARROWEST = 110, 60
_LONGEST = 1000  # characters of a message
_AS_OPTIONS = (
    (
        re.compile(r"families=\{'([^']+)': '([^']+)'\}( of inference\.fit)?"),
        lambda found: _families(f"{found[1]}={found[2]}"),
    ),
    (re.compile(r", \w+\.dropna\((how='all')?\)"), " of the file"),
    (re.compile(r"\w+\.drop\(columns=('[^']*'|\d+|\[[^\]]*\])\)"), lambda found: _left_out(found[1])),
    (re.compile(r"\bstandardize=True\b"), "--standardize"),
    (re.compile(r"\binit=tree\b"), "--init FIT.nc"),
    (re.compile(r"\bcheckpoint='([^']*)'"), lambda found: f"--checkpoint {shlex.quote(found[1])}"),
    (re.compile(r"\bkeep=\('(\w+)',\)"), r"--keep \1"),
    (re.compile(r"\by is missing$"), "y is missing: name its columns, such as --y COLUMN"),
    (re.compile(r"\bor tolerance\b"), "or --tolerance"),
    (re.compile(r"\bwhat=(?:'(\w+)')?"), lambda found: f"--what{' ' if found[1] else ''}{found[1] or ''}"),
    (re.compile(r"\bdtype='(float\d\d)'"), r"--dtype \1"),
    (re.compile(r"\bmethod=('\w+'(?: or '\w+')*)"), lambda found: f"--method {found[1].replace("'", '')}"),
    (re.compile(r"\b(loading_prior|weight_prior)='(\w+)'"), r"--set \1=\2"),
    (
        re.compile(r"(?<![-\w])(max_iterations|num_restarts|num_samples|num_warmup|batch_size)(?:=(\d+))?\b"),
        lambda found: f"--{found[1].replace('_', '-')}" + (f" {found[2]}" if found[2] else ""),
    ),
)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """The warnings for the user, each once, in a list that is filled when the context ends."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        for category in (UserWarning, RuntimeWarning):
            warnings.simplefilter("always", category)
        yield messages
    messages += dict.fromkeys(as_options(" ".join(str(warning.message).split())) for warning in caught)


def one_line(error: BaseException) -> str:
    """The message of an error without line breaks, or the name of its class."""
    message = error.args[0] if isinstance(error, KeyError) and error.args else str(error)
    return in_brief(as_options(" ".join(str(message).split()))) or type(error).__name__


def in_brief(message: str) -> str:
    """A message on one line, its middle left out where it repeats much of what was written."""
    line, half = " ".join(message.split()), _LONGEST // 2
    return line if len(line) <= _LONGEST else f"{line[:half]} ... {line[-half:]}"


def as_options(message: str) -> str:
    """A message whose remedies are calls of Python, with the options of the command line in their place."""
    for pattern, replacement in _AS_OPTIONS:
        message = pattern.sub(replacement, message)
    return message


def _families(text: str) -> str:
    return f"--families {shlex.quote(text)}"


def _left_out(text: str) -> str:
    names = ast.literal_eval(text)
    return _families(
        ",".join(f"{name}=leave_out" for name in (names if isinstance(names, list) else [names]))
    )


def line_width() -> int:
    """The width of a line: that of the terminal, from 60 to 110 characters."""
    return min(max(shutil.get_terminal_size((_WIDEST, 24)).columns, _NARROWEST), _WIDEST)


def shape(table: Any) -> str:
    """Rows and columns of a table in words, with the names of few columns."""
    rows, columns = table.shape
    return f"{rows} rows{size(columns, getattr(table, 'columns', ()))}"


def size(columns: int, names: Iterable[Any]) -> str:
    """A number of columns in words, with the names of few."""
    names = list(map(str, names))
    listed = f" ({', '.join(names)})" if 0 < len(names) <= 8 else ""
    return f", {columns} column{'' if columns == 1 else 's'}{listed}"


def print_line(title: str, text: str) -> None:
    """Print a line of a table, or none where there is no text."""
    if text:
        print(textwrap.fill(text, line_width(), initial_indent=f"{title:<11}", subsequent_indent=" " * 11))


def print_notes(data: Sequence[Any], columns: Iterable[Any], warned: Iterable[str] = ()) -> None:
    """Print how the file was read, if told from it, what was made of its columns, and warnings."""
    read_as = dict.fromkeys(note for table in data for note in getattr(table, "attrs", {}).get("read_as", ()))
    print_line("read as", "; ".join(read_as))
    print_line("columns", "; ".join(map(str, filter(None, columns))))
    for note in warned:
        print_line("warning", note)
