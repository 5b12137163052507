"""Parts that the samplers of topic models share: tokens, draws of their topics, given topics."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Algorithm, Init, Sampler
from inference.settings import Sampling
from zoo.documents.topic_model import TopicModel
from zoo.gamma_functions import gammaln
from zoo.model import in_current_precision
from zoo.sparse import SparseCounts


class TopicSweep(NamedTuple):
    """The draws of a blocked sweep.

    Attributes:
        values: of the parameters, drawn given the tokens.
        drawn: of the tokens, and of clusters of documents, drawn given the parameters before; ``by_word``,
            the tokens of each topic by word, has shape (num_words, num_topics).
    """

    values: dict[str, Array]
    drawn: Any


BLOCK_TOKENS = 4096
SMALL_DRAW = 8_000  # numbers per row that a draw may keep: 4000 draws then take 256 MB


@jax.tree_util.register_pytree_node_class
class Tokens:
    """Every token of a corpus, those of a document beside each other.

    Args:
        document: shape (num_tokens,).
        word: shape (num_tokens,).
        shape: documents and words.
    """

    def __init__(self, document: Any, word: Any, shape: tuple[int, int]) -> None:
        self.document, self.word, self.shape = document, word, shape

    def tree_flatten(self) -> tuple[tuple, tuple[int, int]]:
        """The tokens; the shape is static."""
        return (self.document, self.word), self.shape

    @classmethod
    def tree_unflatten(cls, shape: tuple[int, int], parts: tuple) -> Self:
        """Rebuild from the parts of `tree_flatten`."""
        document, word = parts
        return cls(document, word, shape)


def prepare(model: TopicModel, data: tuple, init: Init, **options: object) -> tuple[Tokens]:
    """The tokens of the documents, on the host."""
    (counts,) = data
    copies = counts.count.astype(int)
    return (Tokens(np.repeat(counts.document, copies), np.repeat(counts.word, copies), counts.shape),)


def tokens_of(counts: Any, model: TopicModel) -> Tokens:
    """The tokens of (possibly traced) counts; the model must know how many there are.

    Raises:
        ValueError: ``num_tokens`` is not set.
    """
    if isinstance(counts, Tokens):
        return counts
    if model.num_tokens is None:
        raise ValueError("num_tokens is not set: make the model with from_data(counts)")
    num_documents, num_words = counts.shape
    total = int(np.sum(np.broadcast_to(model.num_tokens, (num_documents,))))
    if isinstance(counts, SparseCounts):
        cells = (jnp.asarray(counts.document), jnp.asarray(counts.word), jnp.asarray(counts.count))
    else:
        index = jnp.arange(num_documents * num_words)
        cells = index // num_words, index % num_words, counts.ravel()
    place = jnp.repeat(jnp.arange(cells[0].shape[0]), cells[2].astype(int), total_repeat_length=total)
    return Tokens(cells[0][place], cells[1][place], (num_documents, num_words))


def draw_topics(
    key: Array, tokens: Tokens, shares: Array, row_of: Array, by_word: Array
) -> tuple[Array, Array]:
    """Topics of all tokens given shares and topics, as counts by row and by word.

    Tokens pass in blocks, one uniform number each, inverted through the cumulated probabilities.

    Args:
        key: a JAX key.
        tokens: of the corpus.
        shares: topic shares, shape (num_rows, num_topics).
        row_of: the row of shares that each document has, shape (num_documents,).
        by_word: probability of each word, shape (num_words, num_topics).

    Returns:
        Tokens of each topic by row of shares and by word.
    """
    number, num_topics = tokens.word.shape[0], by_word.shape[1]
    size = min(BLOCK_TOKENS, max(number, 1))
    padding = -number % size
    uniform = jax.random.uniform(key, (number,), by_word.dtype)

    def blocks(values: Array) -> Array:
        return jnp.pad(values, (0, padding)).reshape(-1, size)

    upto = jnp.triu(jnp.ones((num_topics, num_topics), by_word.dtype))
    held = jnp.arange(number + padding).reshape(-1, size) < number

    def visit(counts: tuple, block: tuple) -> tuple[tuple, None]:
        document, word, level, inside = block
        row = row_of[document]
        cumulated = (shares[row] * by_word[word]) @ upto
        topic = jnp.sum(cumulated[:, :-1] <= level[:, None] * cumulated[:, -1:], axis=-1)
        one = inside.astype(by_word.dtype)
        by_row, by_each_word = counts
        return (by_row.at[row, topic].add(one), by_each_word.at[word, topic].add(one)), None

    start = (jnp.zeros_like(shares), jnp.zeros_like(by_word))
    data = (blocks(tokens.document), blocks(tokens.word), blocks(uniform), held)
    return jax.lax.scan(visit, start, data)[0]


def topic_sampler(
    settings: type[Sampling],
    algorithm: Algorithm,
    start: Callable,
    conclude: Callable,
    position: Callable,
    prepare: Callable = prepare,
) -> Sampler:
    """A sampler of a topic model: one start, no options, no adaptation; the fields are those of `Sampler`."""
    return Sampler(
        settings=settings,
        strategies=("random",),
        build=lambda strategy, num_warmup: algorithm,
        start=start,
        conclude=conclude,
        position=position,
        prepare=prepare,
    )


def given_topics(variables: Mapping[str, Any], num_topics: int, num_words: int) -> Array:
    """The given ``topic_word_probs``, shape (num_topics, num_words).

    Raises:
        ValueError: there are none, or of another shape.
    """
    shape = (num_topics, num_words)
    if "topic_word_probs" not in variables or jnp.shape(variables["topic_word_probs"]) != shape:
        raise ValueError(f"init must hold 'topic_word_probs' of shape {shape} for this method")
    return jnp.asarray(variables["topic_word_probs"])


def topic_posterior(by_word: Array, model: TopicModel) -> dist.Dirichlet:
    """The topics' distribution given the tokens of each word in each, shape (num_words, num_topics)."""
    return dist.Dirichlet(in_current_precision(model).word_smoothing + by_word.T)


def log_dirichlet_multinomial(counts: Array, prior: Array) -> Array:
    """Log probability of the rows' tokens in their order, probabilities integrated out, summed, in nats.

    Args:
        counts: shape (num_rows, size).
        prior: Dirichlet parameters, shape (size,) or a number.
    """
    prior = jnp.broadcast_to(prior, counts.shape[-1:])
    rows = jnp.sum(gammaln(prior + counts) - gammaln(prior), axis=-1)
    total = jnp.sum(prior)
    return jnp.sum(rows + gammaln(total) - gammaln(total + jnp.sum(counts, axis=-1)))
