r"""The answers of a fit as tables: its clusters, topics, latents and views, and the cells that it fills in.

Nothing here depends on an arbitrary order of labels or on an arbitrary rotation: draws are first brought to
one labelling (`inference.symmetry.relabel`, `inference.symmetry.topics.align_topics`) or turned to the
canonical orientation (`inference.symmetry.align_rotation`).
"""

import re
import textwrap
from itertools import chain

import numpy as np
import pandas as pd
import xarray as xr

from inference.convergence.identifiable import draws_of, has_point_parameters, kind_of
from inference.convergence.starts import starts_table
from inference.diagnostics.blocks import AnswerCard, Cards, ShownTable
from inference.diagnostics.cluster_profiles import SURE, cluster_tables, seen_memberships
from inference.diagnostics.filled_cells import filled_cells, number_filled
from inference.diagnostics.profile_parts import (
    Asked,
    column_names,
    fitted_data,
    intervals,
    kind_in_words,
    place_in_words,
    row_names,
)
from inference.diagnostics.projection_profiles import projection_tables
from inference.diagnostics.text_pictures import bar, scatter
from inference.diagnostics.topic_profiles import topic_tables
from inference.fitting.verdict import WHY_NOT
from inference.results.files import model_of
from inference.results.groups import check_all_rows, sample_weight_of
from zoo.checks import check_size
from zoo.coordinates.of_models import noise_factors
from zoo.intake import date_in_words

_MOST_COLUMNS = 12  # of a printed table
_MOST_CLUSTERS = 8
_MOST_TOPICS = 20
_MOST_LOADINGS = 12
TYPICAL = 3  # rows that are named of each cluster or end
_OF_SHARES = "The share counts the fitted rows; the mixing proportion is the share of new ones."
_OF_CLUSTERS = "The other intervals are of the cluster's mean, rate or probability, not of its cells."
_INTERVAL = re.compile(r"\([^()]+ to [^()]+\)")
_WEIGHTED = "The rows have weights: the mixing proportion goes by these, while a share counts each row once."
_DATES = ("date", "others_date")  # columns that repeat means as dates, and where means and widths are
_SHARE = "share"  # the form of a probability of a value
_MEANS, _WIDTHS = ("mean", "others"), ("spread", "sd")


def profiles(
    tree: xr.DataTree, *, probability: float = 0.9, num_rows: int = 5, num_words: int = 10
) -> dict[str, pd.DataFrame]:
    """Tabulate what a fit says about its data, in the data's own units and names.

    The tables, by key and in this order; a fit has those of its kinds. Means are posterior means, ``lb`` and
    ``ub`` the ends of an equal-tailed interval, NaN for a point estimate, which has no uncertainty. Clusters,
    topics, latents and views are numbered from 0, as the coordinates of the tree; ``rank`` counts from 1.

    Clusters of rows (mixtures, mixtures of PCAs) or of documents:

    ``"clusters"``: index ``cluster``, the largest first; columns ``share`` of the fitted rows, ``lb``,
    ``ub``, ``rows`` (expected number), ``proportion`` (the mixing proportion: the probability that a new
    row is of the cluster), ``proportion_lb``, ``proportion_ub``, and ``name`` (in words: the columns that set
    the cluster apart, and how). Clusters that hold less than half a row, or none in most draws, are left
    out; the note counts them. Attributes ``doubtful`` (rows whose largest probability is below .9) and ``of``
    (all rows).

    ``"num_clusters"``: index ``num_clusters``; columns ``probability``, ``mcse`` (NaN of an estimate, and of
    one q whose other starts found other numbers) and, of an ascent from several starts, ``starts`` (how many
    end with so many) and ``behind`` (nats from the best of these to the best of all).

    ``"cluster_values"``: index ``cluster``, ``column`` (name), ``quantity`` (``"mean"``, ``"rate"``,
    ``"probability of 1"``, ...); columns ``mean``, ``lb``, ``ub``, ``spread`` (standard deviation of cells
    within the cluster), ``others`` (mean over the other clusters, by their shares), ``apart`` (from these, in
    standard deviations within clusters). In the units of the data, dates in days since the first; where the
    data have dates also ``date`` and ``others_date`` (as text).

    ``"cluster_differences"``: index ``cluster``, ``rank``; columns ``column``, ``quantity``, ``mean``,
    ``others``, ``difference`` (of mean and others, in standard deviations of the column within clusters),
    ``lb``, ``ub``, ``probability`` (that the sign is right), with dates also ``date`` and ``others_date``.
    What sets a cluster apart, the largest first, at most ``num_rows`` a cluster.

    ``"cluster_rows"``: index ``cluster``, ``rank``; columns ``row`` (name), ``probability`` (that the cluster
    holds it), ``distance`` (from the cluster, in nats a cell or token below the most typical one: 0 for rank
    1). The most typical rows, at most ``num_rows`` a cluster. Needs the fit's data.

    ``"cluster_directions"`` (mixtures of PCAs): index ``cluster``; effective number and sizes of directions.

    ``"cluster_topics"`` (clusters of documents): index ``cluster``, ``topic``; columns ``mean``, ``lb``,
    ``ub``.

    Topics:

    ``"topics"``: index ``topic``, the numbers of the tree; columns ``share`` of all tokens, ``lb``, ``ub``,
    ``words`` (the most probable ones in one string), ``name`` (those that it uses most beyond their
    frequency). Sorted by share.

    ``"topic_words"``: index ``topic``, ``rank``; columns ``word``, ``mean`` (probability), ``lb``, ``ub``,
    ``lift`` (times the word's frequency in the documents). ``num_words`` a topic.

    ``"topic_documents"``: index ``topic``, ``rank``; columns ``document`` (name), ``share`` of the topic in
    its tokens. ``num_rows`` a topic.

    Projections, in the canonical orientation:

    ``"latents"``: index ``latent``, numbered as everywhere: the strongest against the noise of the columns
    first, whose ``share`` need not be the largest where columns differ in noise; columns ``share`` (of the
    variance that the model explains and does not: the rest is noise; of columns in their standard deviations
    where each has a noise of its own), ``lb``, ``ub``, ``cumulative``, ``name`` (the columns with the largest
    loadings in their standard deviations, those of one sign against those of the other). Cells that are not
    Gaussian: shares of the variance of the natural parameters; beside Gaussian ones of that of the cells, the
    mean over the columns. Paired views also have ``kind`` (``"shared"`` or the name of the one view that has
    it) and ``share_0``, ``share_1``, ... of the variance of each view.

    ``"loadings"``: index ``view`` (name of the data site), ``column``, ``latent``; columns ``mean``, ``lb``,
    ``ub``, ``probability`` (that the sign is right).

    ``"columns"``: index ``view``, ``column``; columns ``explained`` (share of the column's variance that the
    latents explain), ``lb``, ``ub``.

    ``"extreme_rows"``: index ``latent``, ``end`` (``"low"``, ``"high"``), ``rank``; columns ``row`` (name),
    ``score``, ``sd`` (posterior standard deviation, NaN where the fit holds none). ``num_rows`` an end.

    ``"canonical_correlations"`` (two views): index ``rank``; columns ``mean``, ``lb``, ``ub``.

    Any fit:

    ``"filled_cells"``: index ``view``, ``row``, ``column``; columns ``mean``, ``sd``: the expectation of each
    missing cell given the observed ones; where cells are words or dates also ``value`` (the nearest one) and
    ``probability`` (of the word). Only where the fitted data have missing cells that the model fills.

    ``"starts"``: of an ascent from several starts, index ``start``; columns ``objective``, ``behind`` (nats
    below the best), ``occupied`` (clusters, where there are any), the best first.

    Args:
        tree: a fit.
        probability: content of the intervals.
        num_rows: rows, documents or columns named for each cluster, topic or end of a latent.
        num_words: words of a topic.

    Returns:
        Key to table. The attributes of each table: ``title`` (a heading), ``note`` (what the columns are, and
        what was left out with the remedy), ``provisional`` (why not to build on it; empty for a fit that has
        converged) and ``probability``. ``profile_cells(table)`` formats one for print, intervals beside their
        means, and ``profile_text(tree)`` the main ones together.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: it has no draws, rows were cut off it, or an argument is out of its range.
    """
    if not 0 < probability < 1:
        raise ValueError(f"probability must lie between 0 and 1; got {probability}")
    check_size("num_rows", num_rows)
    check_size("num_words", num_words)
    draws_of(tree)
    return _tables(tree, Asked(probability, num_rows, num_words), filled_cells(tree))


def printed_tables(tree: xr.DataTree) -> dict[str, pd.DataFrame]:
    """Those of `profiles` that are printed, which say of filled cells only how many there are."""
    draws_of(tree)
    return _tables(tree, Asked(probability=0.9, num_rows=TYPICAL, num_words=10), None)


def _tables(tree: xr.DataTree, asked: Asked, filled: pd.DataFrame | None) -> dict[str, pd.DataFrame]:
    check_all_rows(tree)
    model = model_of(tree)
    found: dict[str, pd.DataFrame] = {}
    if model.roles.cluster is not None:
        found |= cluster_tables(tree, asked)
    if model.roles.topic is not None:
        found |= topic_tables(tree, asked)
    if "rotation" in model.symmetries:
        found |= projection_tables(tree, asked)
    starts = starts_table(tree)
    found |= {} if filled is None else {"filled_cells": filled}
    found |= {} if starts is None else {"starts": starts}
    names = row_names(tree)
    numbered = names is None or np.array_equal(names, np.arange(len(names)))
    of_all = {
        "provisional": _provisional(tree),
        "probability": asked.probability,
        "rows_have_names": not numbered,
        "rows_have_weights": sample_weight_of(tree) is not None,
    }
    for table in found.values():
        table.attrs |= of_all
    return found


def _provisional(tree: xr.DataTree) -> str:
    """Why not to build on a fit; empty for one that has converged."""
    if int(tree.attrs.get("converged", 1)):
        return ""
    reason = tree.attrs.get(WHY_NOT) or tree.attrs.get("stop_reason", "no reason recorded")
    return f"this fit has not converged ({reason.partition('. Next: ')[0]})"


def profile_cells(table: pd.DataFrame) -> pd.DataFrame:
    """Format a table of `profiles` for print: intervals beside means, shares in per cent, dates as dates."""
    columns, origins = {}, table.attrs.get("origins") or {}
    leading = next((name for name in ("difference", "mean", "share", "explained") if name in table), None)
    forms: list[str | None] = [None] * len(table)
    if "column" in {*table.index.names, *table.columns}:  # filled cells are of no quantity
        of = table.reset_index().reindex(columns=["column", "quantity"]).to_numpy()
        forms = [_SHARE if str(q).startswith("probability of") else origins.get(name) for name, q in of]
    for name in table.columns:
        if str(name).endswith(("lb", "ub")) or (origins and name in _DATES):
            continue
        column = [_cell(value, name, form) for value, form in zip(table[name], forms, strict=True)]
        own = "" if name == leading else f"{name}_"
        if f"{own}lb" in table:
            cells = zip(column, table[f"{own}lb"], table[f"{own}ub"], forms, strict=True)
            column = [_with_ends(text, low, high, name, form) for text, low, high, form in cells]
        columns[str(name)] = column
    cells = pd.DataFrame(columns, index=table.index)
    cells.attrs = dict(table.attrs)
    return cells


def _with_ends(text: str, low: float, high: float, name: object, form: str | None) -> str:
    """A mean with its interval, unless that is shorter than the digits shown."""
    ends = _cell(low, name, form), _cell(high, name, form)
    shown = f"{ends[0].removesuffix(' %')} to {ends[1]}" if ends[1].endswith(" %") else " to ".join(ends)
    return text if pd.isna(low) or ends[0] == ends[1] else f"{text} ({shown})"


def _cell(value: object, name: object, form: str | None = None) -> str:
    """One cell in words: shares in per cent, numbers with three digits, text as it is.

    ``form`` is the first date of a column of dates, from which its values are days, or `_SHARE`.
    """
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "-"
    if not isinstance(value, float | np.floating):
        return str(value)
    if form == _SHARE:
        name = "share" if name in _MEANS else name
    elif form is not None and name in _MEANS:
        return date_in_words(form, value)
    elif form is not None and name in _WIDTHS:
        return f"{_cell(value, name)} days"
    if str(name).partition("_")[0] in ("share", "explained", "cumulative", "proportion"):
        if 0 < value < 0.0001:
            return "<0.01 %"
        return f"{100 * value:.{0 if value >= 0.1 or value == 0 else 1 if value >= 0.001 else 2}f} %"
    if str(name) == "probability":
        return f"{value:.2f}"
    return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:#.3g}".rstrip(".")


def profile_text(tree: xr.DataTree, *, width: int = 110) -> str:
    """Print the main answers of a fit: its clusters, topics or latents.

    Args:
        tree: a fit.
        width: of a line.

    Returns:
        Lines; empty for a fit without any of them.
    """
    tables = printed_tables(tree)
    answers = answers_text(tree, tables, width)
    provisional = {table.attrs["provisional"] for table in tables.values()} - {""}
    return "\n".join([*(f"Provisional: {reason}." for reason in provisional if answers), answers])


def answers_text(tree: xr.DataTree, tables: dict[str, pd.DataFrame], width: int) -> str:
    """The blocks of `answer_blocks` in text, with a picture where rows lie on a plane."""
    lines: list[str] = []
    for text in chain.from_iterable(_in_text(block, width) for block in answer_blocks(tree, tables)):
        lines += [text] if "\n" in text else _wrapped(text, width)
    return "\n".join([*lines, *_picture_text(tree, tables, width)]) if lines else ""


def _wrapped(text: str, width: int) -> list[str]:
    deeper = " " * (6 if text.startswith(" ") else 2)
    return textwrap.wrap(text, width, subsequent_indent=deeper) or [""]


def _in_text(block: str | Cards | ShownTable, width: int) -> list[str]:
    """A block of answers as lines and tables of text."""
    if isinstance(block, str):
        return [block]
    if isinstance(block, ShownTable):
        shown = f"{block.caption}{f' ({block.note})' if block.note else ''}:"
        return [shown, in_blocks(block.frame, width)]
    cards = block.cards
    sides = [
        max(map(len, part)) for part in zip(*((card.heading, card.shown) for card in cards), strict=True)
    ]
    bars = [bar(np.nan_to_num(card.share)) for card in cards]
    longest = max(map(len, bars))
    found = [f"{block.title}{f' ({block.note})' if block.note else ''}, with their shares of {block.of}:"]
    for card, drawn in zip(cards, bars, strict=True):
        line = f"  {card.heading:<{sides[0]}}  {card.shown:<{sides[1]}}  {drawn:<{longest}}  {card.name}"
        told = "; ".join(f"{label}: {text}" for label, text in card.told.items())
        found += [line.rstrip(), *([f"    {told}"] if told else [])]
    return [*found, *([in_blocks(block.cells, width)] if cards[0].facts else [])]


def answer_blocks(tree: xr.DataTree, tables: dict[str, pd.DataFrame]) -> list[str | Cards | ShownTable]:
    """What a reader is told first, on a terminal and on a page: cards, tables, and how to read intervals.

    Args:
        tree: a fit.
        tables: the result of `profiles`.

    Returns:
        Paragraphs, cards and tables; nothing for a fit without such answers.
    """
    found: list[str | Cards | ShownTable] = []
    for key, table in tables.items():
        if writer := _WRITERS.get(key):
            found += writer(table, tables)
    if number := number_filled(tree):
        found.append(
            f"Missing cells filled in: {number} (inference.diagnostics.profiles(tree)['filled_cells'])"
        )
    if not found:
        return []
    found += _estimated(tree)
    if kind_of(tree) != "point" and (note := _bracket_note(tree, found, "clusters" in tables)):
        found.append(note)
    if "clusters" in tables and tables["clusters"].attrs["rows_have_weights"]:
        found.append(_WEIGHTED)
    return found


def _bracket_note(tree: xr.DataTree, shown: list[str | Cards | ShownTable], of_clusters: bool) -> str:
    """How to read the intervals in brackets; of parameters that are points, that they have none."""
    are_points = has_point_parameters(tree)
    points = "The parameters are points, without uncertainty." if are_points else ""
    if not any(_INTERVAL.search(line) for block in shown for line in _in_text(block, 110)):
        return points
    of = kind_in_words(tree).removeprefix("intervals are ")
    note = f"In brackets: 90 % intervals {of}; none where it is shorter than the digits shown."
    parts = [note, points, _OF_SHARES * of_clusters, _OF_CLUSTERS * (of_clusters and not are_points)]
    return " ".join(filter(None, parts))


def _number_words(table: pd.DataFrame, tables: dict[str, pd.DataFrame]) -> list[str]:
    """The number of clusters in a sentence, where no table of them has it."""
    return [] if "clusters" in tables else [f"Number of clusters: {table.attrs['said']}."]


def _cluster_cards(clusters: pd.DataFrame, tables: dict[str, pd.DataFrame]) -> list[Cards]:
    """A card a cluster: its shares, typical cells and typical rows."""
    values, kept, notes = tables.get("cluster_values"), clusters.index[:_MOST_CLUSTERS], []
    noun = "documents" if "cluster_topics" in tables else "rows"
    cells = profile_cells(clusters.loc[kept])
    named = {"share": f"share of these {noun}"}
    is_known = "proportion_lb" in clusters and clusters["proportion_lb"].notna().any()
    if is_known or clusters.attrs["rows_have_weights"]:  # without either it is the share
        named["proportion"] = "mixing proportion"
    parts, apart = [cells[list(named)].rename(columns=named).T], pd.DataFrame(columns=kept)
    if values is not None:
        wide, apart = (_wide(cells, kept) for cells in (profile_cells(values)["mean"], values["apart"]))
        if len(wide) > _MOST_COLUMNS:
            order = apart.astype(float).abs().max(axis=1).sort_values(ascending=False, kind="stable").index
            wide = wide.loc[order[:_MOST_COLUMNS]]
            notes.append(f"{_MOST_COLUMNS} of {len(apart)} quantities: those that set clusters most apart")
        apart = apart.loc[wide.index]
        parts.append(wide)
    if "cluster_topics" in tables:
        topics = tables["cluster_topics"]["mean"].unstack("topic").loc[kept].T
        parts.append(
            topics.map(lambda share: f"{100 * share:.0f} %")
            .rename(index="topic {}".format)
            .head(_MOST_COLUMNS)
        )
    if "cluster_rows" in tables and len(tables["cluster_rows"]):
        rows = tables["cluster_rows"]
        listed = _first(rows)["row"].map(str).groupby(level="cluster").apply(", ".join)
        parts.append(listed.reindex(kept).fillna("-").rename(_named("most typical", noun, rows)).to_frame().T)
    shown = pd.concat(parts)
    if len(clusters) > _MOST_CLUSTERS:
        notes.append(f"the largest {_MOST_CLUSTERS} of {len(clusters)} clusters")
    cards = [
        AnswerCard(
            f"cluster {k}",
            clusters["name"][k],
            float(clusters["share"][k]),
            profile_cells(clusters.drop(columns=["lb", "ub"]))["share"][k],
            shown[k].to_dict(),
            apart[k].to_dict() if len(clusters) > 1 else {},
        )
        for k in kept
    ]
    return [Cards("Clusters", cards, f"these {noun}", "; ".join(notes))]


def _first(rows: pd.DataFrame) -> pd.DataFrame:
    """Of the rows that are named of each cluster or end, those that are told first."""
    return rows[rows.index.get_level_values("rank") <= TYPICAL]


def _named(what: str, noun: str, table: pd.DataFrame) -> str:
    """Words for labels of rows: that they are numbers of rows where they have no names."""
    return f"{what} {noun}" if table.attrs["rows_have_names"] else f"{what} {noun[:-1]} numbers"


def in_blocks(cells: pd.DataFrame, width: int) -> str:
    """A table of text, empty without rows; columns that do not fit follow in a block of their own."""
    if cells.empty:
        return ""
    first = max(map(len, map(str, cells.index)))
    blocks, block, used = [], [], first
    for name in cells.columns:
        wide = 2 + max(map(len, [str(name), *cells[name]]))
        if block and used + wide > width:
            blocks, block, used = [*blocks, block], [], first
        block, used = [*block, name], used + wide
    cells = cells.rename_axis(index=None, columns=None)
    return "\n\n".join(cells[names].to_string() for names in [*blocks, block])


def _picture_text(tree: xr.DataTree, tables: dict[str, pd.DataFrame], width: int) -> list[str]:
    """The rows on the plane of two real columns by their clusters; nothing of other columns."""
    data, values = fitted_data(tree), tables.get("cluster_values")
    is_plane = data is not None and values is not None and values["spread"].notna().all()
    if not is_plane or not isinstance(table := data[0], np.ndarray) or table.shape[1:] != (2,):
        return []
    kept = list(tables["clusters"].index[:_MOST_CLUSTERS])
    probs = seen_memberships(tree)
    marks = [
        "?" if probs[n, k] < SURE else str(k) if k in kept and k < 10 else "+"
        for n, k in enumerate(probs.argmax(1))
    ]
    names = column_names(tree, model_of(tree).data_names[0], 2)
    said = "Each digit is a row of that cluster" + ("; ?: a doubtful row" if "?" in marks else "")
    return ["", scatter(table, marks, names, width), f"{said}."]


def _estimated(tree: xr.DataTree) -> list[str]:
    """Parameters of the model that are one number each."""
    kind, site = kind_of(tree), model_of(tree).roles.occupied
    found = []
    for name, variable in draws_of(tree).data_vars.items():
        if set(variable.dims) == {"chain", "draw"} and name != site and variable.dtype.kind == "f":
            one = pd.DataFrame(
                {end: [float(v)] for end, v in intervals(variable.to_numpy().ravel(), kind, 0.9).items()}
            )
            found.append(f"{name} {profile_cells(one)['mean'][0]}")
    factors = noise_factors(model_of(tree)).items()  # of labels all are one
    scaled = {f"noise_variance{suffix}" for suffix, factor in factors if np.any(np.asarray(factor) != 1)}
    named = [told.partition(" ")[0] for told in found]
    of = "" if scaled.issuperset(named) else f" {' and '.join(sorted(scaled.intersection(named)))} of"
    unit = f",{of} columns in their standard deviations" if scaled.intersection(named) else ""
    return [f"Also estimated{unit}: {', '.join(found)}."] if found else []


def _wide(cells: pd.Series, clusters: pd.Index) -> pd.DataFrame:
    """One row per quantity of a column of the data, one column per cluster."""
    places = list(dict.fromkeys(cells.index.droplevel("cluster")))
    rows = {place_in_words(*place): [cells.get((k, *place), "-") for k in clusters] for place in places}
    return pd.DataFrame.from_dict(rows, orient="index", columns=clusters)


def _topic_cards(topics: pd.DataFrame, tables: dict[str, pd.DataFrame]) -> list[Cards]:
    """A card a topic: its share, its words, and the documents nearest to it."""
    kept = topics.head(_MOST_TOPICS)
    shares = profile_cells(kept)["share"]
    near = tables.get("topic_documents")
    told = [{"most probable words": words} for words in kept["words"]]
    if near is not None and len(near):
        listed = _first(near)["document"].map(str).groupby(level="topic").apply(", ".join).reindex(kept.index)
        label = _named("nearest", "documents", near)
        told = [held | {label: own} for held, own in zip(told, listed.fillna("-"), strict=True)]
    cards = [
        AnswerCard(f"topic {k}", kept["name"][k], float(kept["share"][k]), shares[k], told=held)
        for k, held in zip(kept.index, told, strict=True)
    ]
    more = f"the largest {_MOST_TOPICS} of {len(topics)}" if len(topics) > _MOST_TOPICS else ""
    return [Cards("Topics", cards, "all words", more)]


def _latent_cards(table: pd.DataFrame, tables: dict[str, pd.DataFrame]) -> list[Cards]:
    """A card a latent: its share of the variance, its largest loadings, the rows at its ends."""
    if not len(table):
        return []
    shown, kinds = profile_cells(table)["share"], table.get("kind", pd.Series("", table.index))
    rows, told = tables.get("extreme_rows"), {k: {} for k in table.index}
    if rows is not None:
        for (latent, end), names in _first(rows)["row"].groupby(level=["latent", "end"], sort=False):
            told[latent][_named(f"{end} end,", "rows", rows)] = ", ".join(map(str, names))
    cards = [
        AnswerCard(
            f"latent {k}{f' ({kinds[k]})' if kinds[k] else ''}",
            table["name"][k] if "name" in table else "",
            float(table["share"][k]),
            shown[k],
            told=told[k],
        )
        for k in table.index
    ]
    return [Cards("Latents", cards, table.attrs.get("of", "the variance of all latents"))]


def _correlations_words(table: pd.DataFrame, tables: dict[str, pd.DataFrame]) -> list[str]:
    """Canonical correlations in a line."""
    return [f"Canonical correlations: {', '.join(profile_cells(table)['mean'])}{table.attrs['bias']}"]


def _loadings_table(loadings: pd.DataFrame, tables: dict[str, pd.DataFrame]) -> list[ShownTable]:
    """The largest loadings, one row per column of the data, one column per latent."""
    cells = profile_cells(loadings)["mean"].unstack("latent").fillna("")
    units = pd.Series([loadings.attrs["units"][key[:2]] for key in loadings.index], loadings.index)
    in_deviations = loadings["mean"] / units
    sizes = in_deviations.abs().groupby(level=["view", "column"]).max()
    largest = set(sizes.nlargest(_MOST_LOADINGS).index)
    kept = [key for key in dict.fromkeys(loadings.index.droplevel("latent")) if key in largest]
    several = loadings.index.get_level_values("view").nunique() > 1
    shown = cells.loc[kept].rename(columns="latent {}".format)
    shown.index = [f"{view}: {column}" if several else column for view, column in kept]
    more = [f"the largest, {len(kept)} of {len(sizes)} columns"] if len(sizes) > len(kept) else []
    if (units != 1.0).any():
        more.append("sizes, as of the names, are compared in units of the columns' standard deviations")
    means = in_deviations.unstack("latent").loc[kept].fillna(0.0)
    shades = (
        (means / means.abs().max().replace(0.0, 1.0)).set_axis(shown.index).set_axis(shown.columns, axis=1)
    )
    return [ShownTable("Loadings", shown.rename_axis("column"), note="; ".join(more), shades=shades)]


_WRITERS = {  # of the tables that are shown first
    "num_clusters": _number_words,
    "clusters": _cluster_cards,
    "topics": _topic_cards,
    "latents": _latent_cards,
    "loadings": _loadings_table,
    "canonical_correlations": _correlations_words,
}
