r"""The answers of a fit as tables: its clusters, topics, latents and views, and the cells that it fills in.

Nothing here depends on an arbitrary order of labels or on an arbitrary rotation: draws are first brought to
one labelling (`inference.symmetry.relabel`, `inference.symmetry.topics.align_topics`) or turned to the
canonical orientation (`inference.symmetry.align_rotation`).
"""

import textwrap

import numpy as np
import pandas as pd
import xarray as xr

from inference.convergence.identifiable import draws_of, kind_of
from inference.convergence.partitions import memberships
from inference.diagnostics.cluster_profiles import (
    SURE,
    aligned_clusters,
    cluster_tables,
    starts_table,
)
from inference.diagnostics.filled_cells import filled_cells
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
from zoo.checks import check_size
from zoo.intake import date_in_words

__all__ = ["TYPICAL", "answers_text", "in_blocks", "profile_cells", "profile_text", "profiles"]

_MOST_COLUMNS = 12  # of a printed table
_MOST_CLUSTERS = 8
_MOST_TOPICS = 20
_MOST_LOADINGS = 12
TYPICAL = 3  # rows that are named of each cluster or end
_OF_CLUSTERS = (
    "The share counts the fitted rows; the mixing proportion is the share of new ones. The other intervals "
    "are of the cluster's mean, rate or probability, not of its cells."
)
_DATES = ("date", "others_date")  # columns that repeat means as dates, and where means and widths are
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
    ``ub``, ``rows`` (expected number), and ``proportion`` (the mixing proportion: the probability that a new
    row is of the cluster), ``proportion_lb``, ``proportion_ub``. Clusters that hold less than half a row are
    left out; the note counts them. Attributes ``doubtful`` (rows whose largest probability is below .9) and
    ``of`` (all rows).

    ``"num_clusters"``: index ``num_clusters``; columns ``probability``, ``mcse`` (NaN of an estimate, and of
    one q whose other starts found other numbers) and, of an ascent from several starts, ``starts`` (how many
    end with so many) and ``behind`` (nats from the best of these to the best of all).

    ``"cluster_values"``: index ``cluster``, ``column`` (name), ``quantity`` (``"mean"``, ``"rate"``,
    ``"probability of 1"``, ...); columns ``mean``, ``lb``, ``ub``, ``spread`` (standard deviation of cells
    within the cluster), ``others`` (mean over the other clusters, by their shares). In the units of the data,
    dates in days since the first; where the data have dates also ``date`` and ``others_date`` (as text).

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
    ``words`` (the most probable ones in one string). Sorted by share.

    ``"topic_words"``: index ``topic``, ``rank``; columns ``word``, ``mean`` (probability), ``lb``, ``ub``,
    ``lift`` (times the word's frequency in the documents). ``num_words`` a topic.

    ``"topic_documents"``: index ``topic``, ``rank``; columns ``document`` (name), ``share`` of the topic in
    its tokens. ``num_rows`` a topic.

    Projections, in the canonical orientation:

    ``"latents"``: index ``latent``, the strongest first; columns ``share`` (of the variance that the model
    explains and does not: the rest is noise), ``lb``, ``ub``, ``cumulative``. Cells that are not Gaussian:
    shares of the variance of the natural parameters. Paired views also have ``kind`` (``"shared"`` or the
    name of the one view that has it) and ``share_0``, ``share_1``, ... of the variance of each view.

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
        ValueError: it has no draws, or an argument is out of its range.
    """
    if not 0 < probability < 1:
        raise ValueError(f"probability must lie between 0 and 1; got {probability}")
    check_size("num_rows", num_rows)
    check_size("num_words", num_words)
    draws_of(tree)
    model, asked = model_of(tree), Asked(probability, num_rows, num_words)
    found: dict[str, pd.DataFrame] = {}
    if model.roles.cluster is not None:
        found |= cluster_tables(tree, asked)
    if model.roles.topic is not None:
        found |= topic_tables(tree, asked)
    if "rotation" in model.symmetries:
        found |= projection_tables(tree, asked)
    filled, starts = filled_cells(tree), starts_table(tree)
    found |= {} if filled is None else {"filled_cells": filled}
    found |= {} if starts is None else {"starts": starts}
    names = row_names(tree)
    numbered = names is None or np.array_equal(names, np.arange(len(names)))
    of_all = {"provisional": _provisional(tree), "probability": probability, "rows_have_names": not numbered}
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
    firsts = [origins.get(name) for name in table.reset_index()["column"]] if origins else [None] * len(table)
    for name in table.columns:
        if str(name).endswith(("lb", "ub")) or (origins and name in _DATES):
            continue
        column = [_cell(value, name, first) for value, first in zip(table[name], firsts, strict=True)]
        own = "" if name == leading else f"{name}_"
        if f"{own}lb" in table:
            cells = zip(column, table[f"{own}lb"], table[f"{own}ub"], firsts, strict=True)
            column = [_with_ends(text, low, high, name, first) for text, low, high, first in cells]
        columns[str(name)] = column
    cells = pd.DataFrame(columns, index=table.index)
    cells.attrs = dict(table.attrs)
    return cells


def _with_ends(text: str, low: float, high: float, name: object, first: str | None) -> str:
    """A mean with its interval, unless that is shorter than the digits shown."""
    ends = _cell(low, name, first), _cell(high, name, first)
    shown = f"{ends[0].removesuffix(' %')} to {ends[1]}" if ends[1].endswith(" %") else " to ".join(ends)
    return text if pd.isna(low) or set(ends) == {text} else f"{text} ({shown})"


def _cell(value: object, name: object, first: str | None = None) -> str:
    """One cell in words: shares in per cent, numbers with three digits, text as it is.

    ``first`` is the first date of a column of dates, from which its values are days.
    """
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "-"
    if not isinstance(value, float | np.floating):
        return str(value)
    if first is not None and name in _MEANS:
        return date_in_words(first, value)
    if first is not None and name in _WIDTHS:
        return f"{_cell(value, name)} days"
    if str(name).partition("_")[0] in ("share", "explained", "cumulative", "proportion"):
        return f"{100 * value:.0f} %" if value >= 0.1 or value == 0 else f"{100 * value:.1f} %"
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
    tables = profiles(tree, num_rows=TYPICAL)
    answers = answers_text(tree, tables, width)
    provisional = {table.attrs["provisional"] for table in tables.values()} - {""}
    return "\n".join([*(f"Provisional: {reason}." for reason in provisional if answers), answers])


def answers_text(tree: xr.DataTree, tables: dict[str, pd.DataFrame], width: int) -> str:
    """The tables of `profiles` that are printed, a picture in text, and what the intervals are of."""
    found = []
    for key, table in tables.items():
        if writer := _WRITERS.get(key):
            found += writer(table, tables, width)
    if not found:
        return ""
    found += _estimated_text(tree)
    if kind_of(tree) != "point":
        of = kind_in_words(tree).removeprefix("intervals are ")
        note = f"In brackets: 90 % intervals {of}; none where it is shorter than the digits shown."
        found += [f"{note} {_OF_CLUSTERS}" if "clusters" in tables else note]
    lines = []
    for text in found + _picture_text(tree, tables, width):
        if "\n" in text:
            lines.append(text)
        else:
            deeper = " " * (6 if text.startswith(" ") else 2)
            lines += textwrap.wrap(text, width, subsequent_indent=deeper) or [""]
    return "\n".join(lines)


def _number_text(table: pd.DataFrame, tables: dict[str, pd.DataFrame], width: int) -> list[str]:
    """The number of clusters in a sentence, where no table of them has it."""
    return [] if "clusters" in tables else [f"Number of clusters: {table.attrs['said']}."]


def _clusters_text(clusters: pd.DataFrame, tables: dict[str, pd.DataFrame], width: int) -> list[str]:
    """A column a cluster: its shares, typical cells and typical rows."""
    values, kept, notes = tables.get("cluster_values"), clusters.index[:_MOST_CLUSTERS], []
    noun = "documents" if "cluster_topics" in tables else "rows"
    cells = profile_cells(clusters.loc[kept])
    named = {"share": f"share of these {noun}"}
    if "proportion_lb" in clusters and clusters["proportion_lb"].notna().any():
        named["proportion"] = "mixing proportion"
    parts = [cells[list(named)].rename(columns=named).T]
    if values is not None:
        wide = _wide(values, kept)
        if len(wide) > _MOST_COLUMNS:
            apart = tables.get("cluster_differences")
            wide = wide.loc[_most_apart(apart, list(wide.index))] if apart is not None else wide
            notes.append(
                f"{min(len(wide), _MOST_COLUMNS)} of {len(values.loc[kept[0]])} quantities: those "
                "that set clusters most apart"
            )
        parts.append(wide.head(_MOST_COLUMNS))
    if "cluster_topics" in tables:
        topics = tables["cluster_topics"]["mean"].unstack("topic").loc[kept].T
        parts.append(
            topics.map(lambda share: f"{100 * share:.0f} %")
            .rename(index="topic {}".format)
            .head(_MOST_COLUMNS)
        )
    if "cluster_rows" in tables and len(tables["cluster_rows"]):
        rows = tables["cluster_rows"]
        listed = rows["row"].map(str).groupby(level="cluster").apply(", ".join)
        parts.append(listed.reindex(kept).fillna("-").rename(_named("most typical", noun, rows)).to_frame().T)
    shown = pd.concat(parts).rename(columns="cluster {}".format)
    if len(clusters) > _MOST_CLUSTERS:
        notes.append(f"the largest {_MOST_CLUSTERS} of {len(clusters)} clusters")
    return [*([f"Shown: {'; '.join(notes)}."] if notes else []), in_blocks(shown, width)]


def _most_apart(apart: pd.DataFrame, places: list[str]) -> list[str]:
    """The quantities of `_wide` in the order in which they set clusters apart."""
    sizes = apart["difference"].abs()
    names = [place_in_words(*pair) for pair in zip(apart["column"], apart["quantity"], strict=True)]
    ranked = (
        pd.Series(sizes.to_numpy(), names).groupby(level=0).max().sort_values(ascending=False, kind="stable")
    )
    first = [name for name in ranked.index if name in places]
    return [*first, *(name for name in places if name not in ranked.index)]


def _named(what: str, noun: str, table: pd.DataFrame) -> str:
    """Words for labels of rows: that they are numbers of rows where they have no names."""
    return f"{what} {noun}" if table.attrs["rows_have_names"] else f"{what} {noun[:-1]} numbers"


def in_blocks(cells: pd.DataFrame, width: int) -> str:
    """A table of text; columns that do not fit into the width follow in a block of their own."""
    first = max(map(len, map(str, cells.index)), default=0)
    blocks, block, used = [], [], first
    for name in cells.columns:
        wide = 2 + max(len(str(name)), *map(len, cells[name]))
        if block and used + wide > width:
            blocks, block, used = [*blocks, block], [], first
        block, used = [*block, name], used + wide
    cells = cells.rename_axis(index=None, columns=None)
    return "\n\n".join(cells[names].to_string() for names in [*blocks, block])


def _picture_text(tree: xr.DataTree, tables: dict[str, pd.DataFrame], width: int) -> list[str]:
    """The rows on the plane of two real columns by their clusters; of other columns bars of the shares."""
    if "clusters" not in tables:
        return []
    kept, data = list(tables["clusters"].index[:_MOST_CLUSTERS]), fitted_data(tree)
    table = data[0] if data is not None else None
    values = tables.get("cluster_values")
    is_plane = values is not None and values["spread"].notna().all() and np.shape(table)[1:] == (2,)
    if not is_plane or not isinstance(table, np.ndarray):
        width_of = max(len(f"cluster {k}") for k in kept)
        shares = tables["clusters"]["share"]
        return ["", "\n".join([f"{f'cluster {k}':<{width_of}}  {bar(shares[k])}" for k in kept])]
    probs = memberships(aligned_clusters(tree))
    largest = probs.argmax(1)
    marks = [
        "?" if probs[n, k] < SURE else str(k) if k in kept and k < 10 else "+" for n, k in enumerate(largest)
    ]
    names = column_names(tree, model_of(tree).data_names[0], 2)
    said = "Each digit is a row of that cluster" + ("; ?: a doubtful row" if "?" in marks else "")
    return ["", scatter(table, marks, names, width), f"{said}."]


def _estimated_text(tree: xr.DataTree) -> list[str]:
    """Parameters of the model that are one number each."""
    kind, site = kind_of(tree), model_of(tree).roles.occupied
    found = []
    for name, variable in draws_of(tree).data_vars.items():
        if set(variable.dims) == {"chain", "draw"} and name != site and variable.dtype.kind == "f":
            one = pd.DataFrame(
                {end: [float(v)] for end, v in intervals(variable.to_numpy().ravel(), kind, 0.9).items()}
            )
            found.append(f"{name} {profile_cells(one)['mean'][0]}")
    return [f"Also estimated: {', '.join(found)}."] if found else []


def _wide(values: pd.DataFrame, clusters: pd.Index) -> pd.DataFrame:
    """One row per quantity of a column of the data, one column per cluster."""
    cells = profile_cells(values)["mean"]
    places = list(dict.fromkeys(values.index.droplevel("cluster")))
    rows = {place_in_words(*place): [cells.get((k, *place), "-") for k in clusters] for place in places}
    return pd.DataFrame.from_dict(rows, orient="index", columns=clusters)


def _topics_text(topics: pd.DataFrame, tables: dict[str, pd.DataFrame], width: int) -> list[str]:
    """A line a topic: its share, as a number and as a bar, and its words."""
    kept = topics.head(_MOST_TOPICS)
    cells = profile_cells(kept)
    sides = [max(map(len, column)) for column in (map(str, cells.index), cells["share"])]
    bars = [bar(share) for share in np.nan_to_num(kept["share"])]
    longest = max(map(len, bars), default=0)
    more = f" (the largest {_MOST_TOPICS} of {len(topics)})" if len(topics) > _MOST_TOPICS else ""
    lines = [
        f"  topic {topic:<{sides[0]}}  {share:<{sides[1]}}  {drawn:<{longest}}  {words}".rstrip()
        for topic, share, drawn, words in zip(cells.index, cells["share"], bars, cells["words"], strict=True)
    ]
    return [f"Topics with their share of all words and their most probable words{more}:", *lines]


def _latents_text(table: pd.DataFrame, tables: dict[str, pd.DataFrame], width: int) -> list[str]:
    """A line a latent: its share of the variance, as a number and as a bar."""
    latents = profile_cells(table)
    kinds = [f" ({kind})" for kind in latents["kind"]] if "kind" in latents else [""] * len(latents)
    names = [f"latent {k}{kind}" for k, kind in zip(latents.index, kinds, strict=True)]
    sides = max(map(len, names)), max(map(len, latents["share"]))
    title = "Latents, with their shares of "
    title += table.attrs.get("of", "the variance of all latents")
    lines = [
        f"  {name:<{sides[0]}}  {share:<{sides[1]}}  {bar(size)}".rstrip()
        for name, share, size in zip(names, latents["share"], table["share"], strict=True)
    ]
    return [f"{title}:", *lines]


def _correlations_text(table: pd.DataFrame, tables: dict[str, pd.DataFrame], width: int) -> list[str]:
    """Canonical correlations in a line."""
    return [f"Canonical correlations: {', '.join(profile_cells(table)['mean'])}"]


def _filled_text(table: pd.DataFrame, tables: dict[str, pd.DataFrame], width: int) -> list[str]:
    """How many cells were filled in, and where to see them."""
    return [f"Missing cells filled in: {len(table)} (inference.diagnostics.profiles(tree)['filled_cells'])"]


def _loadings_text(loadings: pd.DataFrame, tables: dict[str, pd.DataFrame], width: int) -> list[str]:
    """The largest loadings, one row per column of the data, one column per latent."""
    cells = profile_cells(loadings)["mean"].unstack("latent").fillna("")
    sizes = loadings["mean"].abs().groupby(level=["view", "column"]).max()
    largest = set(sizes.nlargest(_MOST_LOADINGS).index)
    kept = [key for key in dict.fromkeys(loadings.index.droplevel("latent")) if key in largest]
    several = loadings.index.get_level_values("view").nunique() > 1
    shown = cells.loc[kept].rename(columns="latent {}".format)
    shown.index = [f"{view}: {column}" if several else column for view, column in kept]
    more = f" (the largest, {len(kept)} of {len(sizes)} columns)" if len(sizes) > len(kept) else ""
    return [f"Loadings{more}:", in_blocks(shown, width)]


def _ends_text(rows: pd.DataFrame, tables: dict[str, pd.DataFrame], width: int) -> list[str]:
    """The rows at both ends of each latent, one line per latent."""
    found = [f"{_named('Extreme', 'rows', rows)}, of the low end | of the high end:"]
    for latent, part in rows["row"].groupby(level="latent"):
        ends = [", ".join(map(str, own)) for _, own in part.groupby(level="end", sort=False)]
        found.append(f"  latent {latent}: {' | '.join(ends)}")
    return found


_WRITERS = {  # of the tables that are printed
    "num_clusters": _number_text,
    "clusters": _clusters_text,
    "topics": _topics_text,
    "latents": _latents_text,
    "loadings": _loadings_text,
    "extreme_rows": _ends_text,
    "canonical_correlations": _correlations_text,
    "filled_cells": _filled_text,
}
