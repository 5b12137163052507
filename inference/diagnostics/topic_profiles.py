"""Profiles of topics: shares of the words, most probable words, and the documents nearest to them."""

import numpy as np
import pandas as pd
import xarray as xr

from inference.convergence.identifiable import draws_of, kind_of
from inference.diagnostics.profile_parts import MOST_DRAWS, Asked, intervals, kind_in_words, ranked
from inference.diagnostics.suggested_names import name_of_topic, with_namesakes
from inference.results.files import model_of
from inference.results.groups import flat_draws, thinned
from inference.symmetry.topics import align_topics
from inference.topics.topic_tables import documents_of, token_share_draws, token_shares

_SHORT = 0.5  # documents of less than this share of the median length are not named


def topic_tables(tree: xr.DataTree, asked: Asked) -> dict[str, pd.DataFrame]:
    """Build the tables on topics."""
    model, kind = model_of(tree), kind_of(tree)
    few = align_topics(thinned(tree, MOST_DRAWS))
    holds_data = "observed_data" in tree.children
    site = model.roles.topic
    probs = flat_draws(draws_of(few)[site], "topic", "word")
    numbers, words = range(probs.shape[1]), [str(word) for word in draws_of(few)["word"].to_numpy()]
    mean = probs.mean(0)
    top = np.argsort(-mean, axis=1, kind="stable")[:, : asked.num_words]
    frequency = None
    if holds_data:
        counts = np.asarray(documents_of(tree).sum(axis=0)).ravel()
        frequency = counts / counts.sum()
        share = intervals(token_share_draws(few), kind, asked.probability)
    else:
        share = {name: np.full(len(numbers), np.nan) for name in ("mean", "lb", "ub")}
    table = pd.DataFrame(
        {
            "share": share["mean"],
            "lb": share["lb"],
            "ub": share["ub"],
            "words": [", ".join(words[w] for w in row) for row in top],
        },
        index=pd.Index(numbers, name="topic"),
    )
    note = f"share of all words in the documents, by which topics are numbered; {kind_in_words(tree)}"
    note += "" if holds_data else "; no shares: the fit does not hold its documents (keep=('observed_data',))"
    table.attrs |= {"title": "Topics by size", "note": note}
    rows = []
    for topic in numbers:
        found = intervals(probs[:, topic, top[topic]], kind, asked.probability)
        for rank, word in enumerate(top[topic], start=1):
            cells = {name: part[rank - 1] for name, part in found.items()}
            lift = np.nan if frequency is None or not frequency[word] else mean[topic, word] / frequency[word]
            rows.append({"topic": int(topic), "rank": rank, "word": words[word], "lift": lift} | cells)
    of_words = ranked(rows, ("topic", "rank"), ("word", "mean", "lb", "ub", "lift"))
    note = "probability of the word in the topic; lift: times its frequency in the documents"
    note += f"; {kind_in_words(tree)}"
    of_words.attrs |= {"title": "Words of each topic", "note": note}
    named = {int(topic): name_of_topic(of_words.loc[topic]) for topic in numbers}
    table["name"] = list(with_namesakes(named, "topic").values())
    found = {"topics": table, "topic_words": of_words}
    return found | ({"topic_documents": _documents(few, asked)} if holds_data else {})


def _documents(tree: xr.DataTree, asked: Asked) -> pd.DataFrame:
    """The documents of which each topic has the largest shares."""
    shares, lengths = token_shares(tree), np.asarray(documents_of(tree).sum(axis=1)).ravel()
    long = lengths >= _SHORT * np.median(lengths[lengths > 0])
    rows = []
    for topic in range(shares.shape[1]):
        column = shares.iloc[:, topic].to_numpy()
        best = np.argsort(np.where(long, -column, np.inf), kind="stable")[: min(asked.num_rows, long.sum())]
        for rank, n in enumerate(best, start=1):
            cells = {"document": shares.index[n], "share": column[n]}
            rows.append({"topic": int(topic), "rank": rank} | cells)
    table = ranked(rows, ("topic", "rank"), ("document", "share"))
    note = "share of the topic in a document's words; documents shorter than half the median are not named"
    table.attrs |= {"title": "Documents nearest to each topic", "note": note}
    return table
