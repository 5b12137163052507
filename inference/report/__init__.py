"""The report of a fit: assumptions, run, convergence, findings and predictive fit, in this order.

Each judgement comes with its reason and the next step. The same sections are written as one HTML file that
needs no other, or as Markdown with its pictures beside it.
"""

import os
from pathlib import Path

import xarray as xr

from inference.convergence.identifiable import draws_of
from inference.report.comparison import report_comparison
from inference.report.page import check_page_path, write_page
from inference.report.results import believed, fits, found
from inference.report.run import assumed, done, title_of

__all__ = ["report", "report_comparison"]


def report(tree: xr.DataTree, path: str | os.PathLike) -> Path:
    """Write the report of a fit.

    Args:
        tree: a fit.
        path: where to write. The ending decides the form: ``.html`` (one self-contained file) or ``.md``
            (Markdown; pictures as PNG files beside it, under its name).

    Returns:
        The path written.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: another ending, or a tree that is not a fit.
        OSError: the folder does not exist or cannot be written to; checked before any work.
    """
    path = Path(path)
    check_page_path(path)
    draws_of(tree)
    title = f"{title_of(tree)}, fitted by {tree.attrs.get('method', 'an unnamed method')}"
    return write_page(title, [assumed(tree), done(tree), believed(tree), found(tree), fits(tree)], path)
