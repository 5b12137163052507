"""What the topic models share: their data, sizes, and the checks of these."""

from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jax import Array

from zoo.argument_checks import check_size
from zoo.documents import as_counts, check_word_counts
from zoo.model import Model
from zoo.sparse_counts import SparseCounts

__all__ = ["TopicModel"]


class TopicModel(Model):
    """A model of a document-term matrix; subclasses have ``num_topics``, ``num_words`` and ``num_tokens``."""

    data_names: ClassVar[tuple[str, ...]] = ("counts",)
    score_dims: ClassVar[tuple[str, ...]] = ("document", "topic")
    takes_documents: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Equal topic shares by default; then as every model."""
        prior = getattr(self, "topic_prior", 0.0)  # which pLSI has not
        if prior is None and isinstance(self.num_topics, int) and self.num_topics > 0:
            object.__setattr__(self, "topic_prior", 1.0 / self.num_topics)
        super().__post_init__()

    @classmethod
    def from_data(cls, counts: Any, **overrides: Any) -> Self:
        """The model with the vocabulary's size and the documents' lengths read off; ``overrides``: fields."""
        counts = as_counts(counts)
        lengths = np.bincount(counts.document, counts.count, counts.shape[0])
        read = {"num_words": counts.shape[1], "num_tokens": tuple(int(length) for length in lengths)}
        return cls(**(read | {name: value for name, value in overrides.items() if value is not None}))

    def check(self, counts: SparseCounts) -> None:
        """Raise ValueError if the documents do not suit the model."""
        self.check_new(counts)

    def check_new(self, counts: SparseCounts) -> None:
        """Raise ValueError if new documents do not suit the (fitted) model."""
        check_word_counts(as_counts(counts), self.num_words)

    def _sizes(self, counts: Any, num_observations: int | None) -> tuple[int, int]:
        """Documents and words of a run of the program.

        Raises:
            ValueError: without data: a size that is not set.
        """
        if counts is not None:
            return counts.shape
        return self.rows_to_draw(num_observations, "num_words"), self.num_words

    def _check_kind(self, kind: str) -> None:
        """Raise ValueError unless the scores that are asked for are the topic shares."""
        if kind != "latent":
            raise ValueError(f"a topic model has one kind of scores, the topic shares; got {kind!r}")

    def _topic_prior(self) -> Array:
        """Dirichlet parameters over topics, shape (num_topics,)."""
        return jnp.broadcast_to(self.topic_prior, (self.num_topics,))

    def _check_sizes(self) -> None:
        """Raise TypeError or ValueError if a size is none."""
        check_size("num_topics", self.num_topics)
        if self.num_words is not None:
            check_size("num_words", self.num_words, 2)
        for length in () if self.num_tokens is None else np.atleast_1d(self.num_tokens):
            if int(length) != length or length < 0:
                raise ValueError(f"num_tokens must be whole numbers of at least 0; got {length}")

    def _check_topic_prior(self) -> None:
        """Raise ValueError unless the Dirichlet parameters are positive, one or one for each topic."""
        prior, shapes = self.topic_prior, ((), (self.num_topics,))
        if np.shape(prior) not in shapes:
            raise ValueError(f"topic_prior must have shape {shapes[0]} or {shapes[1]}; got {np.shape(prior)}")
        if not (np.isfinite(prior) & (np.asarray(prior) > 0)).all():
            raise ValueError(f"topic_prior must be positive; got {prior}")
