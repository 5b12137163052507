"""Pictures of topics by their words, of clusters of documents, and of replicated documents.

The clusters are drawn as in Yu (2006), Figure 9.3 b and c.
"""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from inference.diagnostics.profile_parts import MOST_DRAWS
from inference.plots.palette import COLOURS, ShownFigure, figure_with_axes, figure_with_grid, literal
from inference.results.groups import thinned
from inference.symmetry.topics import align_topics
from inference.topics.document_checks import DocumentCheck
from inference.topics.topic_tables import (
    cluster_shares,
    cluster_topics,
    token_share_draws,
    top_words,
    topic_words,
)
from zoo.checks import check_size

_MOST_WORDS = 6  # named in a picture
_LEAST_SHARE = 0.005  # of the tokens, of a topic that is drawn
_FAR = 3.0  # standard deviations of the replications


def plot_clusters(
    tree: xr.DataTree,
    num_words: int = 4,
    least_weight: float = 0.0,
    num_topics: int | None = None,
    *,
    ax: Axes | None = None,
) -> Figure:
    """Plot the share of each topic in the words of each cluster: one row per cluster, one column per topic.

    Topics are named by their top words; clusters are in the order of their numbers, topics in the order in
    which the clusters use them most.

    Args:
        tree: a fit of PCP.
        num_words: words by which a topic is named.
        least_weight: clusters of less expected weight are left out.
        num_topics: only so many topics, those with the largest share in any of the clusters shown.
        ax: axes to draw into; None: a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: the fit has no clusters, or none of that weight.
    """
    table = _weighty(tree, least_weight)
    weights, shares = table["weight"].to_numpy(), table.drop(columns="weight").to_numpy()
    order = np.lexsort((-shares.max(0), shares.argmax(0)))
    if num_topics is not None:
        used = np.argsort(-shares.max(0), kind="stable")[:num_topics]
        order = order[np.isin(order, used)]
    words = top_words(tree, num_words)
    names = [literal(", ".join(map(str, words.iloc[topic]))) for topic in order]
    figure, axes = figure_with_axes(2.4 + 0.42 * len(order), 1.9 + 0.3 * max(len(table), 5), ax)
    image = axes.imshow(shares[:, order], cmap="Greys", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(order)), names, rotation=90, fontsize=8)
    labels = [f"cluster {name}, {w:.0%}" for name, w in zip(table.index, weights, strict=True)]
    axes.set_yticks(range(len(table)), labels, fontsize=8)
    axes.set_xlabel("topic, by its top words")
    axes.set_title("Topic shares of the clusters", loc="left", fontsize=10)
    bar = figure.colorbar(image, ax=axes)
    bar.set_label("share of its words", fontsize=8)  # few clusters make a low bar
    return figure


def plot_document_check(check: DocumentCheck) -> Figure:
    """Plot how many different words each document has, and how many documents hold each word.

    On the left, documents below the band use fewer different words than documents drawn from the fit. On the
    right, words below the line are in fewer documents than drawn ones: they come in bursts. Those more than
    three standard deviations of the replications below are named, the furthest six.

    Args:
        check: the result of `inference.topics.document_checks.check_documents`.

    Returns:
        The figure, two panels.
    """
    figure = ShownFigure(figsize=(8.4, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    found = check.documents
    inside = found["distinct"].between(found["replicated_lb"], found["replicated_ub"])
    band = found[["replicated", "replicated_lb", "replicated_ub"]].sort_values("replicated").to_numpy().T
    left.fill_between(*band, color="0.85", linewidth=0, label="replicated")
    for which, style, name in ((inside, "o", "inside its interval"), (~inside, "x", "outside")):
        dots, colour = found[which], COLOURS[0] if style == "o" else COLOURS[1]
        label = f"{name}: {len(dots)}"
        left.plot(dots["replicated"], dots["distinct"], style, ms=3.5, color=colour, label=label)
    left.set(xlabel="different words of a document, replicated (mean)", ylabel="observed")
    left.legend(frameon=False, fontsize=7, loc="upper left")
    words = check.words[check.words[["documents", "replicated"]].max(axis=1) > 0]
    right.plot(words["replicated"], words["documents"], ".", ms=4, color=COLOURS[0], alpha=0.6)
    top = float(words[["documents", "replicated"]].to_numpy().max())
    right.plot([0, top], [0, top], color="0.5", linewidth=0.8)
    away = (words["replicated"] - words["documents"]) / words["sd"].clip(lower=0.5)
    for word in away[away > _FAR].nlargest(_MOST_WORDS).index:
        place = (words.loc[word, "replicated"], words.loc[word, "documents"])
        right.annotate(literal(word), place, (4, -7), textcoords="offset points", fontsize=7)
    right.set_xscale("symlog", linthresh=1)
    right.set_yscale("symlog", linthresh=1)
    right.set(xlabel="documents with the word, replicated (mean)", ylabel="observed")
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    return figure


def plot_document_clusters(
    tree: xr.DataTree, classes: Any, least_weight: float = 0.0, *, ax: Axes | None = None
) -> Figure:
    """Plot the probability of each cluster (columns) for each document (rows, ordered by known classes).

    Args:
        tree: a fit of PCP that holds its documents' clusters.
        classes: the class of each fitted document.
        least_weight: clusters of less expected weight are left out.
        ax: axes to draw into; None: a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: the fit has no clusters, or none of that weight; classes of other documents.
    """
    kept = _weighty(tree, least_weight).index
    shares, classes = cluster_shares(tree), np.asarray(classes)
    if classes.shape != (len(shares),):
        raise ValueError(
            f"classes must have one entry for each of {len(shares)} documents; got {classes.shape}"
        )
    order = np.argsort(classes, kind="stable")
    names, first = np.unique(classes[order], return_index=True)
    ends = np.append(first[1:], classes.size)
    figure, axes = figure_with_axes(2.4 + 0.3 * len(kept), 4.0, ax)
    style = {"cmap": "Greys", "vmin": 0, "vmax": 1, "aspect": "auto", "interpolation": "nearest"}
    image = axes.imshow(shares[kept].to_numpy()[order], **style)
    for border in first[1:]:
        axes.axhline(border - 0.5, color="tab:blue", linewidth=0.8)
    axes.set_yticks((first + ends) / 2 - 0.5, [literal(name) for name in names], fontsize=8)
    axes.set_xticks(range(len(kept)), [str(name) for name in kept], fontsize=8)
    axes.set_xlabel("cluster")
    axes.set_title("Documents by class", loc="left", fontsize=10)
    figure.colorbar(image, ax=axes, label="probability of the cluster", shrink=0.8)
    return figure


def plot_topics(tree: xr.DataTree, num_words: int = 8, num_columns: int = 4, most: int = 20) -> Figure:
    """Plot one panel per topic, its most probable words as bars, the largest share of tokens first.

    Args:
        tree: a fit of LDA, pLSI or PCP; draws are brought to one numbering of topics first.
        num_words: words a topic.
        num_columns: panels in a line.
        most: topics drawn.

    Returns:
        The figure; the share of the fitted documents' tokens is above each panel. Topics that hold next to no
            tokens, less than 0.5 %, have the words of their prior and are not drawn.

    Raises:
        ValueError: a fit of no topic model or without its documents, or a number below one.
    """
    for name, value in (("num_words", num_words), ("num_columns", num_columns), ("most", most)):
        check_size(name, value)
    words = topic_words(tree)
    share = token_share_draws(align_topics(thinned(tree, MOST_DRAWS))).mean(0)  # as in profiles
    order = np.arange(len(share))  # numbered by size
    used = order[share >= _LEAST_SHARE]
    order, unused = (used[:most], len(order) - len(used)) if len(used) else (order[:most], 0)
    num_words = min(num_words, words.shape[1])
    size = (2.3, 0.6 + 0.19 * num_words)
    figure, grid = figure_with_grid(len(order), num_columns, (0.0, 0.0), size, sharex=True)
    names = top_words(tree, num_words)
    for axis, topic in zip(grid, order, strict=True):
        probs = np.sort(words.to_numpy()[topic])[::-1][:num_words]
        level = np.arange(num_words)[::-1]
        axis.barh(level, probs, color=COLOURS[0])
        axis.set_yticks(level, [literal(word) for word in names.iloc[topic]], fontsize=7)
        axis.tick_params(axis="x", labelsize=7, labelbottom=True)
        axis.set_title(f"topic {words.index[topic]}: {share[topic]:.0%} of tokens", fontsize=8, loc="left")
        axis.set_xlabel("probability", fontsize=7)
    notes = [f"not drawn: {unused} topics with less than {_LEAST_SHARE:.1%} of the tokens"] if unused else []
    if len(order) + unused < len(share):
        notes.insert(0, f"the {len(order)} of {len(share)} topics with the largest shares")
    if notes:
        figure.suptitle("; ".join(notes), fontsize=8)
    return figure


def _weighty(tree: xr.DataTree, least_weight: float) -> pd.DataFrame:
    """Select clusters of at least that weight."""
    table = cluster_topics(tree)
    table = table[table["weight"] >= least_weight]
    if table.empty:
        raise ValueError(f"no cluster has an expected weight of at least {least_weight}")
    return table
