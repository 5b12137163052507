"""The report of a fit: verdict and answers first, then results, convergence, prediction, run and model.

Each judgement comes with its reason and the next step. The same sections are written as one HTML file that
needs no other, or as Markdown with its pictures beside it.
"""

import os
from pathlib import Path

import xarray as xr

from inference.diagnostics.first_screen import found_in_words
from inference.diagnostics.profile_tables import profiles
from inference.fitting.verdict import convergence_judgements, gravest, is_provisional
from inference.precision import double_precision
from inference.report.answers import answers_section
from inference.report.comparison import report_comparison
from inference.report.convergence import convergence_section
from inference.report.page import Paragraph, check_page_path, write_page
from inference.report.predictive import predictive_section
from inference.report.results import results_section
from inference.report.run import front_of, model_section, run_section

__all__ = ["report", "report_comparison"]


@double_precision
def report(tree: xr.DataTree, path: str | os.PathLike, *, plain: bool = False) -> Path:
    """Write the report of a fit.

    It begins with what was found, the verdict and the answers: a picture, a card for each cluster, topic or
    latent with a name in words, the columns of each, and a time line where rows have dates.

    Args:
        tree: a fit.
        path: where to write. The ending decides the form: ``.html`` (one self-contained file) or ``.md``
            (Markdown; pictures as PNG files beside it, under its name).
        plain: fold what only a statistician reads, for a reader who decides.

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
    predictive, of_model = predictive_section(tree, provisional)
    tables = profiles(tree)
    answers, results = answers_section(tree, tables, results_section(tree, tables))
    if provisional:
        text = "Nothing can be built on this run yet (see Convergence): these results are provisional."
        answers, results = (
            section._replace(blocks=[Paragraph(text), *section.blocks]) for section in (answers, results)
        )
    rest = [results, convergence_section(tree, own), predictive, run_section(tree), model_section(tree)]
    sections = [answers, *(section._replace(folded=plain) for section in rest)]
    front = front_of(tree, gravest(own), found_in_words(tree, tables))
    front = front._replace(model=gravest(of_model) if of_model else None)
    if plain:  # the run has the other facts
        facts = {name: front.facts[name] for name in ("Data", "Date", "File")}
        front = front._replace(facts=facts, plain=True)
    return write_page(front, sections if answers.blocks else sections[1:], path)
