"""The report of a fit: verdict and facts first, then results, convergence, prediction, run and model.

Each judgement comes with its reason and the next step. The same sections are written as one HTML file that
needs no other, or as Markdown with its pictures beside it.
"""

import os
from pathlib import Path

import xarray as xr

from inference.fitting.verdict import convergence_judgements, gravest, is_provisional
from inference.precision import double_precision
from inference.report.comparison import report_comparison
from inference.report.convergence import convergence_section
from inference.report.page import Paragraph, check_page_path, write_page
from inference.report.predictive import predictive_section
from inference.report.results import results_section
from inference.report.run import front_of, model_section, run_section

__all__ = ["report", "report_comparison"]


@double_precision
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
    own = convergence_judgements(tree)
    provisional = is_provisional(own)
    predictive, further = predictive_section(tree, provisional)
    results = results_section(tree)
    if provisional:
        text = "Nothing can be built on this run yet (see Convergence): these results are provisional."
        results = results._replace(blocks=[Paragraph(text), *results.blocks])
    sections = [results, convergence_section(tree, own), predictive, run_section(tree), model_section(tree)]
    return write_page(front_of(tree, gravest(own, further)), sections, path)
