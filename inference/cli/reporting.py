"""``zoo report``: the report of a fit, or a comparison of several fits of the same data."""

from pathlib import Path
from types import SimpleNamespace

from inference.cli.printing import collected_warnings, one_line, print_notes
from inference.cli.selection import data_of
from inference.prediction import prepared
from inference.program_cache import compile_cache
from inference.report import report, report_comparison
from inference.results.files import load


def write_report(options: SimpleNamespace) -> int:
    """Write the report of a fit or of several; ValueError for held-out rows that go with none."""
    compile_cache()
    held_out = data_of(options)[1] if options.files else ()
    stems = [Path(path).stem for path in options.fits]
    names = stems if len(set(stems)) == len(stems) else options.fits
    with collected_warnings() as notes:
        trees = {name: load(path) for name, path in zip(names, options.fits, strict=True)}
        for name, tree in trees.items() if held_out else ():
            try:
                prepared(tree, held_out)
            except (ValueError, TypeError) as error:
                raise ValueError(f"the rows of --heldout do not go with {name}: {one_line(error)}") from None
        place = options.out.settled()
        if len(trees) > 1:
            report_comparison(trees, place, held_out)
        else:
            report(*trees.values(), place, plain=options.plain)
    print_notes((), (), notes)
    print(f"saved to {place}")
    return 0
