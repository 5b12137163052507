r"""Held-out scores of topic models, by three protocols that differ in meaning.

* ``"bound"``: the documents' terms of the evidence lower bound with the global factors held at q (the
  thesis's 9.3.2). A bound, not a likelihood: how far it lies below differs between models, so it does not
  compare them.
* ``"likelihood"``: PCP: the exact mixture at the expected parameters (plug-in). LDA: topics at their mean,
  without their spread, which `inference.log_density` adds, so that the two compare; topic shares are
  integrated out by importance sampling, on average too low; ``sampling_error`` is the standard
  error that this adds. pLSI: the mixture over the fitted
  documents' shares (Blei, Ng and Jordan 2003, section 7.1). Draws: the mean density over draws.
* ``"completion"``: half of each document's tokens are given, the other half scored one by one under the word
  probabilities expected from them. Fair to models that infer a document's own shares and to those that
  cannot.

Scores are of the tokens in their order: the multinomial coefficients are left out.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array

from inference.batched_answers import answers, is_asked_in_batches
from inference.precision import double_precision
from inference.prediction import (
    draws_without_rows,
    log_density,
    prepared,
    stored_variables,
    warn_of_impossible,
)
from inference.results.files import model_of
from inference.results.groups import group_of
from zoo.answers import answer_of
from zoo.checks import check_choice, check_seed
from zoo.documents.bags import ClusteredBags, log_coefficients
from zoo.documents.topic_model import dirichlet_of
from zoo.in_blocks import map_in_blocks
from zoo.model import Model, in_current_precision
from zoo.shapes import Values
from zoo.sparse import SparseCounts

PROTOCOLS = ("bound", "likelihood", "completion")
MOST_DRAWS = 50  # of a sampler, over which word probabilities are averaged
CELLS = 8192  # whose word probabilities are computed at once


def split_tokens(counts: SparseCounts, seed: int = 0) -> tuple[SparseCounts, SparseCounts]:
    """Split each document's tokens at random into two halves; of an odd number the first has one more.

    Args:
        counts: the documents.
        seed: of the deal.

    Returns:
        The two halves, each with all documents in their order.
    """
    document = np.repeat(counts.document, counts.count.astype(int))
    cell = np.repeat(np.arange(counts.num_nonzeros), counts.count.astype(int))
    order = np.lexsort((np.random.default_rng(seed).random(cell.size), document))
    length = np.bincount(document, minlength=counts.shape[0])
    place = np.arange(cell.size) - np.repeat(np.cumsum(length) - length, length)
    first = np.bincount(cell[order[place % 2 == 0]], minlength=counts.num_nonzeros).astype(float)
    return tuple(
        SparseCounts(counts.document[half > 0], counts.word[half > 0], half[half > 0], counts.shape)
        for half in (first, counts.count - first)
    )


@double_precision
def heldout_text(
    tree: xr.DataTree, counts: Any, protocol: str, seed: int = 0, batch_size: int | None = None
) -> xr.Dataset:
    """Score documents under a fit of a topic model.

    Returns:
        Dataset of scalars ``mean`` (nats per token scored), ``standard_error`` (over documents),
        ``perplexity`` (exp of minus the mean), ``num_tokens`` scored and ``num_rows``; of ``"likelihood"``
        also ``sampling_error`` (nats per token, of the integrals over topic shares: 0 where there are none).
        A word that no topic gives has density zero: the mean is minus infinity, and a warning names such
        words and documents. Attributes
        ``protocol`` and ``is_bound``.

    Raises:
        ValueError: an unknown protocol, or a bound of a fit that has none.
    """
    check_choice("protocol", protocol, PROTOCOLS)
    check_seed(seed)
    if is_asked_in_batches(model := model_of(tree), (counts,), None, batch_size):
        begun = 0

        def ask(documents: Any) -> _Scored:
            nonlocal begun
            own, begun = begun, begun + 1
            return _scored(tree, documents, protocol, [seed, own] if own else seed)

        parts = list(answers(ask, tree, model, (counts,), batch_size))
        found = _Scored(*map(np.concatenate, zip(*parts, strict=True)))
    else:
        found = _scored(tree, counts, protocol, seed)
    scores, tokens = found.scores, found.tokens
    if not tokens.sum():
        raise ValueError("there are no tokens to score")
    mean = scores.sum() / tokens.sum()
    error = np.nan
    if scores.size > 1 and np.isfinite(mean):
        error = np.sqrt((scores - mean * tokens).var(ddof=1) * scores.size) / tokens.sum()
    summary = {"mean": float(mean), "standard_error": float(error), "perplexity": float(np.exp(-mean))}
    if protocol == "likelihood":
        summary["sampling_error"] = float(np.sqrt(found.sampling_variance.sum())) / float(tokens.sum())
    summary |= {"num_tokens": int(tokens.sum()), "num_rows": int(tokens.size)}
    attrs = {"units": "nats per token", "protocol": protocol, "is_bound": int(protocol == "bound")}
    return xr.Dataset(summary, attrs=attrs)


class _Scored(NamedTuple):
    """Scores of documents.

    Attributes:
        scores: log densities or bounds in nats, shape (num_documents,).
        tokens: that were scored, shape (num_documents,).
        sampling_variance: squared standard errors of the scores from integrating shares out, shape
            (num_documents,) under ``"likelihood"``, else empty.
    """

    scores: np.ndarray
    tokens: np.ndarray
    sampling_variance: np.ndarray


def _scored(tree: xr.DataTree, counts: Any, protocol: str, seed: Any) -> _Scored:
    """The scores of documents in memory."""
    model, (documents,), coords = prepared(tree, (counts,))
    documents = jax.tree.map(np.asarray, documents)
    scored, errors = documents, np.zeros(0)
    if protocol == "bound":
        scores = _bounds(tree, model, documents)
    elif protocol == "likelihood":
        scores = _likelihoods(tree, model, documents)
        errors = np.asarray(_sampling_errors(_values(tree, model), model, documents))
    else:
        given, scored = split_tokens(documents, seed)
        scores = _completions(tree, model, given, scored)
    scores = np.asarray(scores)
    if protocol == "completion" or model.scored_over_fitted:
        (dim, _) = model.variable_dims[model.data_names[0]]
        warn_of_impossible(tree, model, scores, scored, coords.get(dim))
    return _Scored(scores, np.bincount(scored.document, scored.count, scored.shape[0]), errors**2)


def _bounds(tree: xr.DataTree, model: Model, documents: SparseCounts) -> Array:
    stored = stored_variables(tree, model) if "variational" in tree.children else {}
    if dirichlet_of(model.roles.topic) not in stored:
        raise ValueError(
            f"a fit by {tree.attrs['method']!r} has no bound: score it by 'likelihood' or 'completion'"
        )
    return _document_bounds(stored, model, documents)


@jax.jit
def _document_bounds(stored: Values, model: Model, documents: SparseCounts) -> Array:
    return answer_of(model, "document_bounds", stored, documents)


@jax.jit
def _sampling_errors(draws: Values, model: Model, documents: SparseCounts) -> Array:
    current = in_current_precision(model)
    errors = jax.lax.map(lambda values: answer_of(current, "sampling_errors", values, documents), draws)
    return jnp.mean(errors, axis=0)


def _likelihoods(tree: xr.DataTree, model: Model, documents: SparseCounts) -> Array:
    if not model.scored_over_fitted:
        is_q = model.answers.estimates_density and "variational" in tree.children
        means = model.expected(stored_variables(tree, model)) if is_q else {}
        if model.roles.topic in means:  # of LDA: log_density adds the spread of topics, which PCP's has not
            return _at_means(means, model, documents)
        return log_density(tree, documents).to_numpy() - np.asarray(log_coefficients(documents))
    draws = group_of(tree, "posterior")
    if model.roles.document_topic not in draws:
        raise ValueError(
            f"this fit does not hold its documents' topic shares, by which {type(model).__name__} scores new "
            "ones: fit with keep=('doc_topic_probs',)"
        )
    sites = (model.roles.document_topic, model.roles.topic)
    shares, topics = (draws[site].to_numpy()[-1, -1] for site in sites)
    return _over_fitted_documents(shares, topics, documents)


@jax.jit
def _at_means(means: Values, model: Model, documents: SparseCounts) -> Array:
    return model.log_likelihood(means, documents) - log_coefficients(documents)


@jax.jit
def _over_fitted_documents(shares: Array, topics: Array, documents: SparseCounts) -> Array:
    equal = jnp.full(shares.shape[0], -jnp.log(shares.shape[0]))
    mixture = ClusteredBags(equal, shares, topics, documents.shape[0])
    scores = mixture.log_prob(documents) - log_coefficients(documents)
    never = (shares @ topics <= 0).astype(scores.dtype)  # by fitted document
    impossible = jnp.all(documents.times(never.T) > 0, axis=-1)
    return jnp.where(impossible, -jnp.inf, scores)


def _completions(tree: xr.DataTree, model: Model, given: SparseCounts, scored: SparseCounts) -> Array:
    return _completed(_values(tree, model), model, given, scored)


def _values(tree: xr.DataTree, model: Model) -> dict[str, Array]:
    """Sites at their mean under q or at the estimate as one draw; of a sampler some of the draws."""
    if "variational" in tree.children and tree["posterior"].sizes["chain"] == 1:
        return {name: value[None] for name, value in model.expected(stored_variables(tree, model)).items()}
    return draws_without_rows(tree, MOST_DRAWS)


@jax.jit
def _completed(draws: Values, model: Model, given: SparseCounts, scored: SparseCounts) -> Array:
    """Log of the word probabilities of the scored tokens, averaged over draws, summed by document."""

    def add(total: Array, values: dict[str, Array]) -> tuple[Array, None]:
        shares, by_word = model.scores(values, given), values[model.roles.topic].T

        def prob(cell: tuple) -> Array:
            return jnp.sum(shares[cell[0]] * by_word[cell[1]])

        return total + map_in_blocks(prob, (scored.document, scored.word), CELLS), None

    count = jax.tree.leaves(draws)[0].shape[0]
    total = jax.lax.scan(add, jnp.zeros(scored.num_nonzeros), draws)[0] / count
    logs = scored.count * jnp.log(total)  # minus infinity of a word that no topic gives
    return jnp.zeros(scored.shape[0], logs.dtype).at[scored.document].add(logs)
