r"""How good topics and clusters of documents are: agreement with classes, and coherence of words.

Normalised mutual information divides by a normaliser, and the published values differ in which: the thesis
(9.3.4) divides by the larger entropy (``"max"``). Coherence is the normalised pointwise mutual information of
a topic's top words, :math:`\log \frac{p(v, w)}{p(v) p(w)} / -\log p(v, w)`, from how many documents hold them
(Bouma 2009; Lau, Newman and Baldwin 2014), -1 where no document holds both.
"""

from typing import Any

import numpy as np
import pandas as pd

from zoo.checks import check_choice
from zoo.documents.bags import as_counts

__all__ = ["coherence", "normalised_mutual_information"]

NORMALISERS = {
    "max": max,
    "min": min,
    "arithmetic": lambda a, b: 0.5 * (a + b),
    "geometric": lambda a, b: float(np.sqrt(a * b)),
}


def normalised_mutual_information(labels: Any, others: Any, *, normaliser: str = "max") -> float:
    """Mutual information of two labellings over a mean of their entropies: 1 if they agree, 0 if unrelated.

    Args:
        labels: of each row.
        others: of each row.
        normaliser: ``"max"`` (the thesis's), ``"min"``, ``"arithmetic"`` or ``"geometric"``.

    Returns:
        A number in [0, 1].

    Raises:
        ValueError: another number of labels, none, or an unknown normaliser.

    Example:
        >>> normalised_mutual_information([0, 0, 1, 1], ["b", "b", "a", "a"])
        1.0
    """
    check_choice("normaliser", normaliser, NORMALISERS)
    first, second = (np.unique(np.asarray(part), return_inverse=True)[1] for part in (labels, others))
    if first.shape != second.shape or not first.size:
        raise ValueError(f"labels must be of the same rows; got {first.size} and {second.size}")
    joint = np.zeros((first.max() + 1, second.max() + 1))
    np.add.at(joint, (first, second), 1.0 / first.size)

    def entropy(p: np.ndarray) -> float:
        p = p[p > 0]
        return float(-(p * np.log(p)).sum())

    ends = entropy(joint.sum(1)), entropy(joint.sum(0))
    shared = max(sum(ends) - entropy(joint), 0.0)
    scale = NORMALISERS[normaliser](*ends)
    if scale <= 0:  # a labelling with one class says nothing, unless both have but one
        return float(ends[0] == ends[1] == 0)
    return shared / scale


def coherence(topic_word_probs: Any, counts: Any, *, num_words: int = 10) -> pd.Series:
    """NPMI coherence of each topic's top words in a corpus, in [-1, 1], higher is better.

    Args:
        topic_word_probs: shape (num_topics, num_words of the vocabulary).
        counts: documents to count words in, of the same vocabulary.
        num_words: top words of a topic, at least 2.

    Returns:
        One number a topic.

    Raises:
        ValueError: another vocabulary, or too few words.
    """
    topics, documents = np.asarray(topic_word_probs), as_counts(counts)
    if topics.ndim != 2 or topics.shape[1] != documents.shape[1]:
        raise ValueError(
            f"topics must be over the corpus's {documents.shape[1]} words; got shape {topics.shape}"
        )
    if not 2 <= num_words <= topics.shape[1]:
        raise ValueError(f"num_words must lie between 2 and {topics.shape[1]}; got {num_words}")
    held = (documents.to_scipy() > 0).astype(float).tocsc()
    scores = []
    for topic in topics:
        top = held[:, np.argsort(-topic, kind="stable")[:num_words]]
        together = np.asarray((top.T @ top).todense()) / documents.shape[0]
        i, j = np.triu_indices(num_words, 1)
        alone, both = np.diag(together), together[i, j]
        seen = both > 0
        npmi = np.full(both.size, -1.0)
        ratio = np.log(both[seen] / (alone[i] * alone[j])[seen])
        certain = both[seen] >= 1  # every document holds both: nothing is left to say
        npmi[seen] = np.where(certain, 1.0, ratio / np.where(certain, 1.0, -np.log(both[seen])))
        scores.append(npmi.mean())
    return pd.Series(scores, index=pd.RangeIndex(len(scores), name="topic"), name="npmi")
