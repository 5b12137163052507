"""Tables, alignment and scores of topic models.

Parameters are posterior means, under q or over draws whose topics were brought to one numbering
(`align_topics`). Clusters are PCP's. `check_documents` draws documents again and compares their statistics
with the data.
"""

from inference.inputs.text import WordCounts
from inference.symmetry.topics import align_topics, match_topics
from inference.topics.document_checks import check_documents
from inference.topics.text_heldout import split_tokens
from inference.topics.topic_tables import (
    cluster_shares,
    cluster_topics,
    coherence,
    nearest_documents,
    normalised_mutual_information,
    numbered_like,
    token_shares,
    top_words,
    topic_shares,
    topic_words,
)

__all__ = [
    "WordCounts",
    "align_topics",
    "check_documents",
    "cluster_shares",
    "cluster_topics",
    "coherence",
    "match_topics",
    "nearest_documents",
    "normalised_mutual_information",
    "numbered_like",
    "split_tokens",
    "token_shares",
    "top_words",
    "topic_shares",
    "topic_words",
]
