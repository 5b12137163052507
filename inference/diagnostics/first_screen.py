"""The first screen of a fit: what was found in a sentence, the verdict, the answers, on request invariants.

``zoo fit`` prints the same, with its files around it.
"""

import textwrap
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from inference.convergence.identifiable import kind_of
from inference.convergence.starts import spread_of_starts
from inference.diagnostics.cluster_profiles import SURE
from inference.diagnostics.profile_tables import answers_text, in_blocks, printed_tables
from inference.diagnostics.summaries import summary, summary_cells
from inference.fitting.verdict import sentences, verdict
from inference.results.files import model_of
from zoo.checks import first_of

_WORDS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
_MOST_OF_A_VARIABLE = 4  # rows of the table of invariants
#: What the invariants are, by the beginnings of their names.
_MEANINGS = {
    "num_occupied": "clusters that hold rows",
    "lp": "log density of parameters and data together (nats): of use for comparing chains only",
    "mean_log_likelihood": "log density of a fitted row, their mean (nats)",
    "sorted_weights": "mixing proportions of each draw, the largest first, whichever cluster has them",
    "same_cluster": "probability that two rows drawn at random share a cluster",
    "pair_together": "whether two given rows, ROW~ROW, share a cluster",
    "word_probs": "probability of a word in a document",
    "singular_values": "sizes of the directions, the largest first",
    "theta_singular_values": "sizes of the directions of the natural parameters, the largest first",
    "natural_params": "natural parameters of cells [row, column]",
    "marginal_covariance": "covariance of two columns under the model",
    "explained_covariance": "covariance of two columns by their latents",
    "cross_covariance": "covariance of columns of two tables under the model",
    "loading_norms": "sizes of the loadings of each cluster, the largest first",
    "objective": "the objective at its end (nats)",
}
#: Of these a few fixed cells stand for all: chains are compared by them, and nobody reads one.
_SPECIMENS = ("word_probs", "natural_params", "pair_together")


_OF_THE_RUN = "  This judges the run; a report judges the model too, by data drawn from the fit."


class FirstScreen(NamedTuple):
    """What a reader of a fit sees first.

    Attributes:
        opening: what was found and the verdict, each a paragraph.
        answers: tables and a picture in text; empty where the model has none.
        details: the table of invariants with what they are; empty unless asked for.
    """

    opening: str
    answers: str
    details: str

    def __str__(self) -> str:
        """The parts, empty lines between."""
        return "\n\n".join(filter(None, self))


def summary_text(
    tree: xr.DataTree,
    *,
    details: bool = False,
    width: int = 110,
    most: int = _MOST_OF_A_VARIABLE,
    **options: object,
) -> str:
    """Put the answers of a fit in text to print: what was found, the verdict on it, its tables.

    Args:
        tree: a fit.
        details: add the table of ``summary``, with what its quantities are.
        width: of a line.
        most: rows of one variable in that table, as for ``summary_cells``.
        options: passed to ``summary``; any asks for its table, alone.

    Returns:
        Lines.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: it has no draws, or as for ``summary``.

    Example:
        >>> import numpy as np, inference, zoo
        >>> x = np.random.default_rng(0).normal(size=(20, 3))
        >>> tree = inference.fit(zoo.PPCA(num_latents=1), x, method="closed_form")
        >>> print(inference.diagnostics.summary_text(tree).split(",")[0])
        One latent
    """
    if options:
        return _details(tree, width, most, options)
    more = (
        'More: summary_text(tree, details=True), profiles(tree), inference.report.report(tree, "fit.html").'
    )
    return f"{first_screen(tree, details=details, width=width, most=most)}\n\n{textwrap.fill(more, width)}"


def first_screen(
    tree: xr.DataTree,
    *,
    details: bool = False,
    width: int = 110,
    most: int = _MOST_OF_A_VARIABLE,
    worded: Callable[[str], str] = str,
) -> FirstScreen:
    """Build the parts of the first screen, its opening ``worded`` for a reader who writes no Python."""
    tables = printed_tables(tree)
    told, reasons = sentences(judged := verdict(tree))
    told = [f"{judged.word}: {told}", *(f"  {reason}" for reason in reasons)]
    told += [] if judged.good is False or not tree.attrs.get("generative", 1) else [_OF_THE_RUN]
    found = found_in_words(tree, tables)
    paragraphs = [f"{found}." if found else "", *told]
    whole = {"break_long_words": False, "break_on_hyphens": False}  # a command is copied as it stands
    opening = "\n".join(
        textwrap.fill(worded(text), width, subsequent_indent="    " if text[0] == " " else "  ", **whole)
        for text in paragraphs
        if text
    )
    table = _details(tree, width, most, {}) if details else ""
    return FirstScreen(opening, answers_text(tree, tables, width), table)


def _counted(number: int, noun: str) -> str:
    """A number and its noun, such as "Two clusters"."""
    return f"{_WORDS[number] if number < len(_WORDS) else number} {noun}{'' if number == 1 else 's'}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def found_in_words(tree: xr.DataTree, tables: dict[str, pd.DataFrame]) -> str:
    """What a fit found, in one sentence without its full stop; empty where the model has no such answers."""
    found = [sentence(tree, tables) for key, sentence in _SENTENCES.items() if tables.get(key) is not None]
    if not tree.attrs.get("generative", 1):
        found.insert(0, _found_directions(tree))
    if "clusters" not in tables and "num_clusters" in tables:
        found.insert(0, f"Clusters: {tables['num_clusters'].attrs['said']}")
    return "; ".join([*found[:1], *(text[:1].lower() + text[1:] for text in found[1:])])


def _found_clusters(tree: xr.DataTree, tables: dict[str, pd.DataFrame]) -> str:
    clusters, noun = tables["clusters"], "document" if model_of(tree).data[0].holds_documents else "row"
    text = _counted(len(clusters), "cluster")
    numbers = tables["num_clusters"]["probability"]
    if kind_of(tree) == "sampling" and len(numbers) > 1:
        most, held = numbers.idxmax(), numbers[numbers > 0].index
        text += f" (in the draws {held.min()} to {held.max()}, most often {most}: {_percent(numbers.max())})"
    doubtful, of = clusters.attrs["doubtful"], clusters.attrs["of"]
    if not doubtful:
        return (
            f"{text}; none of the {of} {noun}s is doubtful (every largest probability is at least {SURE:g})"
        )
    verb = f"{noun if of == 1 else f'{noun}s'} {'is' if doubtful == 1 else 'are'}"
    return f"{text}; {doubtful} of {of} {verb} doubtful (largest probability below {SURE:g})"


def _found_directions(tree: xr.DataTree) -> str:
    """Those of a projection, with what each is worth to the objective."""
    worth = tree["posterior"]["eigenvalues"].to_numpy().ravel()
    noun = "regularised canonical correlation" if tree.attrs["method"] == "kernel_cca" else "eigenvalue"
    numbers = first_of([f"{value:.3g}" for value in worth], 10)
    return f"{_counted(len(worth), 'direction')}, with the {noun}{'s' * (len(worth) > 1)} {numbers}"


def _found_topics(tree: xr.DataTree, tables: dict[str, pd.DataFrame]) -> str:
    shares = tables["topics"]["share"]
    largest = (
        f", the largest with {_percent(shares.iloc[0])} of all words" if np.isfinite(shares.iloc[0]) else ""
    )
    return f"{_counted(len(shares), 'topic')}{largest}"


def _found_latents(tree: xr.DataTree, tables: dict[str, pd.DataFrame]) -> str:
    latents = tables["latents"]
    text = _counted(len(latents), "latent")
    if "kind" in latents:
        shared = int((latents["kind"] == "shared").sum())
        own = len(latents) - shared
        text = _counted(shared, "shared latent") + (f" and {own} of one table alone" if own else "")
    if "of" not in latents.attrs or not len(latents):
        return text
    explained, of = float(latents["share"].sum()), latents.attrs["of"]
    if explained < 1 - 1e-9:
        verb = "explains" if len(latents) == 1 else "explain"
        return f"{text}, which {verb} {_percent(explained)} of {of}{latents.attrs['bias']}"
    if len(latents) > 1:  # natural parameters have no other part
        text += f", the first with {_percent(float(latents['share'].iloc[0]))} of {of}"
    return text


#: Sentences on the tables of `profiles`, by key.
_SENTENCES = {"clusters": _found_clusters, "topics": _found_topics, "latents": _found_latents}


def _details(tree: xr.DataTree, width: int, most: int, options: dict[str, object]) -> str:
    """The table of `summary`, what its quantities are, and its note without what the verdict has said."""
    table = summary(tree, **options)  # type: ignore[arg-type]
    names = pd.Series([str(name).partition("[")[0] for name in table.index], table.index)
    known = names.map(_family_of)
    specimen = known.isin(_SPECIMENS) & ("r_hat" not in table) & (not options)
    note = table.attrs["note"].replace(spread_of_starts(tree), "") if not options else table.attrs["note"]
    cells = summary_cells(table[~specimen.to_numpy()], most)
    counts = ", ".join(
        f"{count} of {name}" for name, count in names[specimen].value_counts(sort=False).items()
    )
    notes = [cells.attrs["not_shown"], note]
    if counts:
        notes.insert(1, f"Not listed: {counts}, cells by which chains are compared.")
    listed = dict(zip(names[~specimen], known[~specimen], strict=True))
    meanings = {name: _MEANINGS[key] for name, key in listed.items() if key}
    longest = max(map(len, meanings), default=0)
    legend = [
        textwrap.fill(f"{name:<{longest}}  {meaning}", width, subsequent_indent=" " * (longest + 2))
        for name, meaning in meanings.items()
    ]
    blocks = [
        in_blocks(cells, width),
        "\n".join(legend),
        textwrap.fill(" ".join(" ".join(notes).split()), width),
    ]
    return "\n\n".join(filter(None, blocks))


def _family_of(name: str) -> str:
    """The key of `_MEANINGS` for an invariant, such as ``natural_params`` for that of a view; or nothing."""
    while name and not _MEANINGS.get(name):
        name = name.rpartition("_")[0]
    return name
