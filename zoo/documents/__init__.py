"""Documents as bags of words: data, densities and shares of topics."""

from zoo.documents.bags import (
    BagsOfWords,
    CellTopics,
    ClusteredBags,
    TopicCounts,
    TopicTotals,
    as_counts,
    check_word_counts,
    dense_counts,
    log_coefficients,
    warn_of_empty,
    word_log_probs,
)
from zoo.documents.topic_model import TopicModel

__all__ = [
    "BagsOfWords",
    "CellTopics",
    "ClusteredBags",
    "TopicCounts",
    "TopicModel",
    "TopicTotals",
    "as_counts",
    "check_word_counts",
    "dense_counts",
    "log_coefficients",
    "warn_of_empty",
    "word_log_probs",
]
