"""The command line: ``zoo list``, ``show``, ``fit``, ``film``, ``predict``, ``explain``, ``check``, ...

`options` says what may be written (by click), `early` checks what can be checked without importing JAX, which
takes seconds, and a module for each command runs it. Every error is one line on stderr with exit status 2.
``list`` and ``show`` need nothing but the standard library.
"""

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

from inference.cli.printing import one_line

__all__ = ["main"]

COLLECT_AFTER = 50_000, 20, 100  # objects and rounds: Python's 700, 10, 10 take 4 % of the time of a fit
INTERRUPTED = 130  # the exit status of a command ended by Ctrl-C, or of a fit by SIGTERM
_ERRORS = (ValueError, TypeError, KeyError, OSError, ImportError, ArithmeticError, RuntimeError, MemoryError)
_RUNNERS = {  # the function that runs a command, in a module that is imported when it is asked for
    "list": "listing.list_models",
    "show": "showing.show",
    "completion": "options.completion",
    "fit": "fitting.fit",
    "film": "filming.write_film",
    "predict": "predicting.predict_rows",
    "explain": "explaining.explain_row",
    "check": "explaining.check_method",
    "sweep": "sweeping.sweep",
    "report": "reporting.write_report",
    "compare": "comparing.compare",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, 2 for an error of the caller, 130 if cut short.

    Args:
        arguments: words of the command line; None: those of this process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = SimpleNamespace(traceback=False)
    try:
        options = _parsed(words)
        if isinstance(options, int):
            return options
        options.words = words
        module, _, function = _RUNNERS[options.command].rpartition(".")
        if options.command not in ("list", "show", "completion"):
            if arguments is None:  # the process is ours, and modules and traced programs are no garbage
                gc.set_threshold(*COLLECT_AFTER)
            import_module("inference.cli.early").check(options)
        return getattr(import_module(f"inference.cli.{module}"), function)(options)
    except BrokenPipeError:  # the reader of our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        kept = getattr(options, "checkpoint", None)
        is_there = kept is not None and Path(kept).is_file()
        told = f"; the same command goes on from {kept}" if is_there else " before there was anything to keep"
        print(f"zoo: interrupted{told}", file=sys.stderr)
        return INTERRUPTED
    except _ERRORS as error:
        if options.traceback:
            raise
        bare = isinstance(error, ModuleNotFoundError) and error.name == "click"
        remedy = "; without it there are zoo list and zoo show MODEL: pip install click" if bare else ""
        print(f"zoo: error: {one_line(error)}{remedy}", file=sys.stderr)
        return 2


def _parsed(words: list[str]) -> SimpleNamespace | int:
    """The options of a command, or the exit status of a line that has been answered."""
    match words:  # which a clone without any package answers, and at once
        case ["list"]:
            return SimpleNamespace(command="list", traceback=False)
        case ["show", model, *rest] if not model.startswith("-") and rest[:1] in ([], ["--out"]):
            if len(rest) in (0, 2):
                return SimpleNamespace(
                    command="show", model=model, out="".join(rest[1:]) or None, force=False, traceback=False
                )
    return import_module("inference.cli.options").parse(words)
