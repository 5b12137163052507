"""``zoo explain`` and ``zoo check``: why a row is where it is, and whether the method finds the fit again."""

from types import SimpleNamespace

import pandas as pd

from inference.calibration import recovery
from inference.cli.printing import collected_warnings, print_line, print_notes
from inference.explanation import explain
from inference.program_cache import compile_cache
from inference.results.files import load


def explain_row(options: SimpleNamespace) -> int:
    """Print what each cell of a fitted row contributes."""
    compile_cache()
    with collected_warnings() as notes:
        tree = load(options.fit)
        table = explain(tree, options.row)
    print(f"fit        {options.fit}: {tree.attrs['model']} by {tree.attrs['method']}")
    _print_told(table, notes)
    return 0


def check_method(options: SimpleNamespace) -> int:
    """Print how often the method finds a fit again in tables that are drawn from it."""
    compile_cache()
    with collected_warnings() as notes:
        tree = load(options.fit)
        print(f"fit        {options.fit}: {tree.attrs['model']} by {tree.attrs['method']}", flush=True)
        table = recovery(tree, num_tables=options.tables, seed=options.seed)
    _print_told(table, notes)
    return 0


def _print_told(table: pd.DataFrame, notes: list[str]) -> None:
    """What was found in words, the table, and what its numbers are."""
    print_line("found", table.attrs["said"])
    print_notes((), (), notes)
    plain = table.map(lambda cell: "" if cell is None else cell).rename_axis(None)
    print(f"\n{plain.to_string(float_format='{:.4g}'.format)}\n")
    print_line("note", table.attrs["note"])
