r"""Variational Bayes for latent Dirichlet allocation.

The posterior is approximated by :math:`\prod_k q(\beta_k) \prod_d q(\theta_d) \prod_{dn} q(z_{dn})`. With
:math:`q(\theta_d) = \mathrm{Dirichlet}(\gamma_d)`, :math:`q(\beta_k) = \mathrm{Dirichlet}(\mu_k)`,
:math:`E_{dk} = e^{E \log \theta_{dk}}` and :math:`B_{kw} = e^{E \log \beta_{kw}}` the updates are (Yu 2006,
4.14-4.17; Blei, Ng and Jordan 2003)

.. math::
    \phi_{dwk} = E_{dk} B_{kw} / s_{dw}, \quad s_{dw} = \textstyle\sum_k E_{dk} B_{kw}, \qquad
    \gamma_{dk} = \lambda_k + \textstyle\sum_w n_{dw} \phi_{dwk}, \qquad
    \mu_{kw} = \epsilon + \textstyle\sum_d n_{dw} \phi_{dwk}.

A step makes passes of the first two over every document, block by block (`inference.numerics.documents`),
then the third. phi is never stored. Cost O(passes x nonzeros x K).

**How many passes.** With :math:`\gamma` before and :math:`\gamma'` after the last pass of a step, the share
of tokens that still move is :math:`c = \sum_{dk} |\gamma'_{dk} - \gamma_{dk}| / \sum_d N_d`. Where c is
above ``inner_tolerance`` the next step makes a quarter more passes, at most ``inner_steps``; below a tenth
of it a tenth fewer, at least 4. The gap between the two lets their number come to rest: where c falls
geometrically, a quarter more passes take it from the tolerance to no less than a fifth. All documents make
equally many, so that neither their order nor a document without words matters. The first step makes few:
documents that settle on the nearly flat topics of the start settle on an accident. ``inner_tolerance=0``
makes ``inner_steps`` passes at every step. A fit whose documents still move at the limit warns.

**Documents are restarted** at every step, from :math:`\gamma_d = \lambda + N_d/K`, by default: posteriors
that are carried over from step to step stay where the first, poor topics put them, and the fit is worse by
some per cent of perplexity. A careless comparison with such an LDA is easily won. The price is that the bound
may fall a little when a document finds another optimum; ``documents="continue"`` carries over and never
falls.

With ``batch_size`` documents pass in batches. Documents have their optimum in the batch (:math:`\gamma_d`,
:math:`\phi_d` as above); a batch B of them, taken D/|B| times, would have the topics

.. math:: \hat\mu = \epsilon + \frac{D}{|B|} \sum_{d \in B} n_{dw} \phi_{dwk},

and :math:`\hat\mu - \mu` estimates the natural gradient of the bound without bias (Hoffman, Blei and Bach
2010, equations 5-7; Hoffman, Blei, Wang and Paisley 2013, 4.2), so

.. math:: \mu \leftarrow (1 - \rho_t)\, \mu + \rho_t\, \hat\mu, \qquad \rho_t = (\tau + t)^{-\kappa}.

``learning_offset`` is tau, ``learning_decay`` kappa; the sum of :math:`\rho_t` must be infinite and that of
its squares finite, hence 1/2 < kappa <= 1. ``word_smoothing`` may be learnt: after every batch it is set to
the maximum of the bound at the topics.

**Steps take sizes that others share** (`in_shared_shapes`): documents in a bucket, and on few cells topics
up to the next multiple of 8. A topic beyond K has next to no share in the prior of documents, so that no
token comes to it; learnt priors and the bound are of the K topics and the documents that there are.

The objective is the whole evidence lower bound, the documents' multinomial coefficients included, at the phi
of the last pass. ``learn`` fits the symmetric priors, ``"word_smoothing"`` and ``"topic_prior"``, by maximum
of the bound (`inference.methods.documents.dirichlet_factors`).
"""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import (
    Algorithm,
    Ascent,
    Init,
    NaturalGradient,
    Outcome,
    as_one_chain,
    starts_by_size,
)
from inference.methods.documents.dirichlet_factors import (
    check_learnt_prior,
    dirichlet_kl,
    log_normaliser,
    symmetric_log_density,
    symmetric_log_normaliser,
    symmetric_prior,
    total_expected_log,
    warn_of_prior,
    warn_of_smoothing,
)
from inference.methods.lda import VB
from inference.numerics.documents import DocumentBlock, DocumentBlocks, add_by_word, block_sums, cut
from inference.numerics.host_draws import dirichlet_draws, generator
from inference.numerics.weighted_rows import next_to_none, row_limit, shares_shapes
from inference.precision import to_numpy
from zoo.checks import warn
from zoo.documents.answers import INTEGRATION_SEED
from zoo.documents.bags import CellTopics, dense_counts, log_coefficients
from zoo.documents.shares import fold_in, log_integrals, log_topic_spread
from zoo.gamma_functions import digamma, exp_digamma, expected_log, gammaln
from zoo.lda import LDA
from zoo.model import in_current_precision
from zoo.shapes import Values
from zoo.sparse import SparseCounts

SIZE = 8  # topics, or a multiple of it, that steps on few cells take
MOST_NUMBERS = 2**20  # of cells and topics
FEWEST_PASSES = 4
FIRST_PASSES = FEWEST_PASSES, 20  # of the first step, restarts in turn


class LDAVBState(NamedTuple):
    """The factors of q, and the priors as learnt so far.

    Attributes:
        word_concentration: Dirichlet parameters of the topics, shape (num_words, num_topics).
        doc_concentration: Dirichlet parameters of the topic shares, shape (num_documents, num_topics).
        topic_prior: lambda, shape (num_topics,).
        word_smoothing: eps.
        passes: over the documents that the next step makes, a whole number.
        moved: c, the share of the tokens that moved in the last pass.
    """

    word_concentration: Array
    doc_concentration: Array
    topic_prior: Array
    word_smoothing: Array
    passes: Array | int = FEWEST_PASSES
    moved: Array | float = 0.0


def conclude(
    key: Array,
    state: LDAVBState,
    model: LDA,
    data: tuple,
    num_samples: int,
    keep_rows: bool,
    **options: Any,
) -> Outcome:
    """Independent draws from q as one chain, beside q's parameters; topic shares only where small."""
    state = to_numpy(state)
    if "topic_prior" in options.get("learn", ()):
        warn_of_prior(state.topic_prior, state.doc_concentration, "topic_prior", "documents")
    if "word_smoothing" in options.get("learn", ()):
        warn_of_smoothing(state.word_smoothing, state.word_concentration.T)
    _check_settled(state, options["inner_steps"], options["inner_tolerance"])
    keep_rows = keep_rows and row_limit(num_samples * state.doc_concentration.size * 8, "doc_topic_probs")
    rng = generator(key)
    draws = {"topic_word_probs": dirichlet_draws(rng, state.word_concentration.T, num_samples)}
    if keep_rows:
        draws["doc_topic_probs"] = dirichlet_draws(rng, state.doc_concentration, num_samples)
    stored = {"topic_word_concentration": state.word_concentration.T}
    if state.doc_concentration.shape[0]:  # documents in chunks keep nothing
        stored["doc_topic_concentration"] = state.doc_concentration
    prior = state.topic_prior if np.ndim(model.topic_prior) else state.topic_prior[0]
    learnt = model.replaced(word_smoothing=np.asarray(state.word_smoothing), topic_prior=np.asarray(prior))
    learnt = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), learnt)
    densities = {"objective": ()}
    return Outcome(posterior=as_one_chain(draws), variational=stored, model=learnt, densities=densities)


def own_rows(state: LDAVBState, rows: slice) -> LDAVBState:
    """The state with the parameters of these documents."""
    return state._replace(doc_concentration=state.doc_concentration[rows])


def _check_settled(state: LDAVBState, inner_steps: int, inner_tolerance: float) -> None:
    """Warn of documents that still moved after the most passes that a step may make."""
    if 0 < inner_tolerance < float(state.moved) and int(state.passes) >= inner_steps:
        warn(
            f"documents had not settled after inner_steps={inner_steps} passes: {float(state.moved):.2g} of "
            f"their tokens moved in the last one, more than inner_tolerance={inner_tolerance:g}; raise "
            "inner_steps"
        )


def guide(stored: Values, model: LDA, counts: SparseCounts) -> None:
    """Run q as a NumPyro program with exactly the sites of ``model.explicit``.

    Args:
        stored: the parameters, as in the group ``variational``.
        model: the model.
        counts: the documents that were fitted.

    Raises:
        ValueError: other documents, or a fit without their parameters.
    """
    stored = in_current_precision(dict(stored))
    if stored.get("doc_topic_concentration", np.zeros((0, 0))).shape[0] != counts.shape[0]:
        raise ValueError("the guide is of the documents that were fitted, with their parameters kept")
    positive = dist.constraints.positive
    words = numpyro.param("topic_word_concentration", stored["topic_word_concentration"], constraint=positive)
    shares = numpyro.param("doc_topic_concentration", stored["doc_topic_concentration"], constraint=positive)
    with numpyro.plate("topics", model.num_topics):
        numpyro.sample("topic_word_probs", dist.Dirichlet(words))
    with numpyro.plate("documents", counts.shape[0]):
        numpyro.sample("doc_topic_probs", dist.Dirichlet(shares))
        logits = expected_log(shares)[:, :, None] + expected_log(words)
        numpyro.sample("word_topics", CellTopics(dense_counts(counts), logits, model.num_tokens))


class SharesPrior(NamedTuple):
    """What new documents are told of a model in a size that others share.

    Attributes:
        shares_concentration: lambda, next to nothing of topics that are not there, shape (num_slots,).
        present: which topics there are, the first so many.
    """

    shares_concentration: Array
    present: Array


def for_new(stored: Values, model: LDA) -> tuple[dict[str, Array], SharesPrior]:
    """The topics, and what else there is to know of them, in a multiple of `SIZE`."""
    words = np.asarray(stored["topic_word_concentration"])
    more = (0, -model.num_topics % SIZE if shares_shapes() else 0)
    prior = np.asarray(model.shares_concentration, float)
    prior = np.pad(prior, more, constant_values=next_to_none(prior))
    present = np.arange(prior.size) < model.num_topics
    words = np.pad(words, (more, (0, 0)), constant_values=1.0)
    return jax.tree.map(jnp.asarray, ({"topic_word_concentration": words}, SharesPrior(prior, present)))


def transform(stored: Values, model: SharesPrior, counts: SparseCounts) -> Array:
    """Expected topic shares of new documents under q, by mean field with q(beta) as fitted."""
    by_word = jnp.exp(expected_log(stored["topic_word_concentration"])).T
    gamma = fold_in(counts, by_word, model.shares_concentration, present=model.present)
    return gamma / jnp.sum(gamma, axis=-1, keepdims=True)


def log_density(stored: Values, model: SharesPrior, counts: SparseCounts) -> Array:
    """Log of the expected density of new documents under q, in nats.

    At the topics' means the shares are integrated out by importance sampling, as
    `zoo.LDA.log_likelihood` does; `zoo.documents.shares.log_topic_spread` adds what q's spread about these
    means is worth.
    """
    words, prior = stored["topic_word_concentration"].T, model.shares_concentration
    by_word, key = words / jnp.sum(words, axis=0), jax.random.key(INTEGRATION_SEED)
    gamma = fold_in(counts, by_word, prior, present=model.present)
    found = log_integrals(key, counts, by_word, prior, gamma=gamma, present=model.present)
    return found.value + log_coefficients(counts) + log_topic_spread(counts, words, prior, gamma)


class LDAVBInfo(NamedTuple):
    """Values recorded at every step.

    Attributes:
        objective: the evidence lower bound, in nats.
        word_smoothing: eps.
        topic_prior: mean of lambda.
    """

    objective: Array
    word_smoothing: Array
    topic_prior: Array


class LocalSums(NamedTuple):
    """The sums over all documents.

    Attributes:
        doc_concentration: gamma, shape (num_documents, num_topics).
        by_word: expected tokens, shape (num_words, num_topics).
        score: the documents' part of the bound, in nats: with phi of the last pass and gamma after it
            E[log p(w, z, theta) - log q(z, theta)], in which the terms with E[log theta] under gamma cancel.
        moved: c, the share of the tokens that moved in the last pass.
    """

    doc_concentration: Array
    by_word: Array
    score: Array
    moved: Array


def local_step(
    documents: DocumentBlocks,
    by_word: Array,
    topic_prior: Array,
    passes: Array | int,
    doc_concentration: Array | None = None,
    present: Array | bool = True,
) -> LocalSums:
    """Make passes over every document with the topics fixed.

    Args:
        documents: in blocks.
        by_word: B, shape (num_words, num_topics).
        topic_prior: lambda, shape (num_topics,).
        passes: how many, at least 1.
        doc_concentration: gamma to start from; None: restarted at lambda + N_d / K.
        present: which topics there are, shape (num_topics,); True: all.
    """
    equal = jnp.where(present, jnp.ones_like(topic_prior), 0.0)
    equal = equal / jnp.sum(equal)

    def add(total: LocalSums, block: DocumentBlock) -> LocalSums:
        own = by_word[block.word]
        if doc_concentration is None:
            tokens = jnp.zeros(block.owner.shape, own.dtype).at[block.place].add(jnp.sum(block.count, -1))
            gamma = topic_prior + tokens[:, None] * equal
        else:
            gamma = block.rows_of(doc_concentration, missing=1.0)

        def once(_: Any, gamma: Array) -> Array:
            shares = exp_digamma(gamma)  # phi is the same without the factor that makes them normalised
            return topic_prior + shares * block_sums(block, shares, own)[1]

        before = jax.lax.fori_loop(1, passes, once, gamma)
        log_shares = digamma(before)
        shares = jnp.exp(log_shares)
        ratio, sums, log_sums = block_sums(block, shares, own)
        tokens = shares * sums
        gamma = topic_prior + tokens
        held = block.owner < documents.shape[0]
        moved = jnp.where(held, jnp.sum(jnp.abs(gamma - before), axis=-1), 0.0)
        normaliser = jnp.sum(gammaln(gamma) - of_prior, axis=-1) - gammaln(jnp.sum(gamma, axis=-1))
        gap = normaliser + of_total - jnp.sum(tokens * log_shares, axis=-1)
        return LocalSums(
            total.doc_concentration.at[block.owner].set(gamma, mode="drop"),
            add_by_word(total.by_word, block, ratio, shares),
            total.score + log_sums + jnp.sum(jnp.where(held, gap, 0.0)),
            total.moved + jnp.sum(moved),
        )

    of_prior, of_total = gammaln(topic_prior), gammaln(jnp.sum(topic_prior))
    shapes = (documents.shape[0], by_word.shape[1]), by_word.shape, (), ()
    sums = documents.fold(add, LocalSums(*(jnp.zeros(shape, by_word.dtype) for shape in shapes)))
    tokens = jnp.maximum(jnp.sum(documents.blocks.count), 1.0)
    return sums._replace(by_word=sums.by_word * by_word, moved=sums.moved / tokens)


def next_passes(passes: Array, moved: Array, inner_steps: int, inner_tolerance: float) -> Array:
    """The passes of the next step: more where documents still move, fewer where they have long settled.

    Args:
        passes: of the last step.
        moved: share of the tokens that moved in the last of them.
        inner_steps: the most.
        inner_tolerance: of ``moved``.
    """
    more, fewer = passes + jnp.maximum(passes // 4, 1), passes - jnp.maximum(passes // 10, 1)
    wanted = jnp.where(moved > inner_tolerance, more, jnp.where(moved < inner_tolerance / 10, fewer, passes))
    return jnp.clip(wanted, min(FEWEST_PASSES, inner_steps), inner_steps)


def passes_of(state: LDAVBState, inner_steps: int, inner_tolerance: float) -> Array:
    """The passes of a step from a state."""
    return jnp.minimum(state.passes if inner_tolerance else inner_steps, inner_steps)


def bound(state: LDAVBState, documents: DocumentBlocks) -> Array:
    """The evidence lower bound of any q(theta), q(beta), the words' topics optimal, in nats."""
    by_word = jnp.exp(expected_log(state.word_concentration, axis=0))
    shares = jnp.exp(expected_log(state.doc_concentration))

    def add(total: Array, block: DocumentBlock) -> Array:
        return total + block_sums(block, block.rows_of(shares), by_word[block.word])[2]

    words = documents.fold(add, jnp.zeros((), by_word.dtype))
    divergence = dirichlet_kl(state.doc_concentration, state.topic_prior)
    divergence += dirichlet_kl(state.word_concentration, state.word_smoothing, axis=0)
    return words - divergence + documents.log_coefficient


# The algorithm


def init(key: Array, model: LDA, documents: DocumentBlocks) -> LDAVBState:
    """The state with nearly flat topics: Gamma draws of mean 1 and variance 1/100 (Hoffman et al. 2010).

    Starts nearer to the data (word frequencies with noise, a few documents a topic) end lower: on 3581
    newsgroup posts, 20 topics, the bound after 100 steps by 1.5 and 2.5 per cent, the perplexity of completed
    documents by 6 and 11 per cent.
    """
    shape, dtype = (documents.shape[1], model.num_topics), documents.blocks.count.dtype
    return _with_topics(jax.random.gamma(key, 100.0, shape, dtype) / 100.0, model, documents)


def numbered_init(number: Array, key: Array, model: LDA, documents: DocumentBlocks) -> LDAVBState:
    """`init`; restarts differ in the passes of their first step too, `FIRST_PASSES` in turn."""
    return init(key, model, documents)._replace(passes=jnp.asarray(FIRST_PASSES)[number % len(FIRST_PASSES)])


def restarts(model: LDA, data: tuple, **options: object) -> int:
    """A start of each kind, where that is cheap: neither kind is the better on every corpus."""
    return starts_by_size(len(FIRST_PASSES), data[0].count.size * model.num_topics)


def _with_topics(word_concentration: Array, model: LDA, documents: DocumentBlocks) -> LDAVBState:
    dtype = word_concentration.dtype
    prior = jnp.asarray(model.shares_concentration, dtype)
    equal = jnp.broadcast_to(prior, (documents.shape[0], model.num_topics))
    smoothing, passes = jnp.asarray(model.word_smoothing, dtype), jnp.asarray(FIRST_PASSES[0])
    return LDAVBState(word_concentration, equal, prior, smoothing, passes, jnp.zeros((), dtype))


def start(key: Array, variables: Values, model: LDA, corpus: DocumentBlocks, **options: object) -> LDAVBState:
    """The state with given ``topic_word_concentration``, or topics near given ``topic_word_probs``.

    Raises:
        ValueError: neither is given, or of another shape.
    """
    shape = (model.num_topics, corpus.shape[1])
    if "topic_word_concentration" in variables:
        words = jnp.asarray(variables["topic_word_concentration"])
    elif "topic_word_probs" in variables:
        tokens = jnp.sum(corpus.blocks.count) / model.num_topics
        words = model.word_smoothing + tokens * jnp.asarray(variables["topic_word_probs"])
    else:
        raise ValueError(
            "init must hold 'topic_word_concentration' or 'topic_word_probs'; got "
            f"{', '.join(variables) or 'nothing'}"
        )
    if words.shape != shape:
        raise ValueError(f"init: topics must have shape {shape}; got {words.shape}")
    state = _with_topics(words.T, model, corpus)
    given = variables.get("doc_topic_concentration")
    return state if given is None else state._replace(doc_concentration=jnp.asarray(given))


def step(
    key: Array,
    state: LDAVBState,
    model: "LDA | SizedLDA",
    documents: DocumentBlocks,
    *,
    inner_steps: int = VB.inner_steps,
    inner_tolerance: float = VB.inner_tolerance,
    restarted: bool = True,
    learn: tuple[str, ...] = ("word_smoothing",),
) -> tuple[LDAVBState, LDAVBInfo]:
    """Update documents, hyperparameters and topics, and evaluate the bound; the key is ignored."""
    before = expected_log(state.word_concentration, axis=0)
    given = None if restarted else state.doc_concentration
    passes = passes_of(state, inner_steps, inner_tolerance)
    present = model.present if isinstance(model, SizedLDA) else jnp.ones(before.shape[1], bool)
    num_topics, num_words = jnp.sum(present), before.shape[0]
    local = local_step(documents, jnp.exp(before), state.topic_prior, passes, given, present)
    prior, smoothing, score = state.topic_prior, state.word_smoothing, local.score
    if "topic_prior" in learn:
        held = documents.held
        number = jnp.sum(held)
        logs = total_expected_log(local.doc_concentration, where=held[:, None] & present)
        density = partial(symmetric_log_density, logs, number, num_topics)
        learnt = symmetric_prior(logs, number, num_topics, prior[0])
        score += density(learnt) - density(prior[0])
        prior = jnp.where(present, learnt, prior)
    words = smoothing + local.by_word
    if "word_smoothing" in learn:
        logs = total_expected_log(words, axis=0, where=present)
        smoothing = symmetric_prior(logs, num_topics, num_words, smoothing)
        words = smoothing + local.by_word
    gap = log_normaliser(words, axis=0, where=present)
    gap -= num_topics * symmetric_log_normaliser(smoothing, num_words)
    gap -= jnp.sum(local.by_word * before)  # E[log beta] under the new factors cancels
    objective = score + gap + documents.log_coefficient
    passes = next_passes(passes, local.moved, inner_steps, inner_tolerance)
    new = LDAVBState(words, local.doc_concentration, prior, smoothing, passes, local.moved)
    return new, LDAVBInfo(objective, smoothing, jnp.sum(jnp.where(present, prior, 0.0)) / num_topics)


# Sizes that many share


class SizedLDA(NamedTuple):
    """What steps take of a model: which topics there are, the first so many, shape (num_slots,)."""

    present: Array


def in_shared_shapes(model: LDA, data: tuple) -> tuple[SizedLDA, tuple]:
    """The documents in a bucket, and on few cells topics up to the next multiple of `SIZE`."""
    documents = data[0].padded()
    size = -(-model.num_topics // SIZE) * SIZE
    size = size if documents.blocks.count.size * size <= MOST_NUMBERS else model.num_topics
    return SizedLDA(np.arange(size) < model.num_topics), (documents,)


def resized(state: LDAVBState, model: LDA | SizedLDA) -> LDAVBState:
    """The state with as many topics as steps take, or with those that there are."""
    size = model.present.shape[0] if isinstance(model, SizedLDA) else model.num_topics

    def of_topics(values: Array, other: Array | float) -> Array:
        values = values[..., :size]
        more = [(0, 0)] * (values.ndim - 1) + [(0, size - values.shape[-1])]
        return jnp.pad(values, more, constant_values=other)

    none = next_to_none(state.topic_prior)
    return state._replace(
        word_concentration=of_topics(state.word_concentration, 1.0),
        doc_concentration=of_topics(state.doc_concentration, none),
        topic_prior=of_topics(state.topic_prior, none),
    )


@cache
def build(
    strategy: str,
    documents: str,
    inner_steps: int,
    inner_tolerance: float,
    learn: tuple[str, ...],
    **of_batches: Any,
) -> Algorithm:
    """The algorithm with its options; those of batches are ignored."""
    options: dict[str, Any] = {"inner_steps": inner_steps, "inner_tolerance": inner_tolerance, "learn": learn}
    options["restarted"] = documents == "restart"
    return Algorithm(init, partial(step, **options), numbered_init=numbered_init)


def prepare(model: LDA, data: tuple, init: Init, **options: Any) -> tuple[DocumentBlocks]:
    """The documents in blocks."""
    return (cut(data[0], model.num_topics),)


def check(model: LDA, settings: VB) -> None:
    """Raise ValueError for a prior that cannot be learnt."""
    check_learnt_prior(model, settings)


# Documents in batches


class BatchGradient(NamedTuple):
    """The estimate that a batch makes.

    Attributes:
        gradient: noisy natural gradient with respect to the topics' parameters, (num_words, num_topics).
        score: the documents' part of the bound, in nats.
        moved: c, the share of the batch's tokens that moved in the last pass.
    """

    gradient: Array
    score: Array
    moved: Array


def natural_gradient(
    state: LDAVBState, documents: DocumentBlocks, share: Array, passes: Array | int
) -> BatchGradient:
    """Estimate the natural gradient with respect to the topics from a batch.

    Args:
        state: q.
        documents: the batch.
        share: |B| / D, of all documents.
        passes: over the documents.
    """
    by_word = jnp.exp(expected_log(state.word_concentration, axis=0))
    local = local_step(documents, by_word, state.topic_prior, passes)
    best = state.word_smoothing + local.by_word / share
    return BatchGradient(best - state.word_concentration, local.score, local.moved)


def step_of_batch(
    state: LDAVBState,
    model: LDA,
    documents: DocumentBlocks,
    share: Array,
    time: Array,
    *,
    inner_steps: int,
    inner_tolerance: float,
    learn: tuple[str, ...],
    learning_offset: float,
    learning_decay: float,
) -> tuple[LDAVBState, Array]:
    """The state after a batch, and the documents' part of the bound before it.

    Args:
        state: q.
        model: the model as given.
        documents: the batch.
        share: |B| / D.
        time: t, from 1.
        inner_steps: the most passes over the documents.
        inner_tolerance: share of the tokens that may still move in the last of them.
        learn: hyperparameters to learn.
        learning_offset: tau.
        learning_decay: kappa.
    """
    passes = passes_of(state, inner_steps, inner_tolerance)
    found = natural_gradient(state, documents, share, passes)
    size = jnp.minimum((learning_offset + time) ** -learning_decay, 1.0)
    words = state.word_concentration + size * found.gradient
    smoothing = state.word_smoothing
    if "word_smoothing" in learn:
        num_words, num_topics = words.shape
        smoothing = symmetric_prior(total_expected_log(words, axis=0), num_topics, num_words, smoothing)
    passes = next_passes(passes, found.moved, inner_steps, inner_tolerance)
    new = state._replace(word_concentration=words, word_smoothing=smoothing)
    return new._replace(passes=passes, moved=found.moved), found.score


def evaluate(
    state: LDAVBState, model: LDA, documents: DocumentBlocks, *, inner_steps: int, inner_tolerance: float
) -> tuple[Array, Array]:
    """Dirichlet parameters of documents and their part of the bound, with the topics fixed."""
    by_word = jnp.exp(expected_log(state.word_concentration, axis=0))
    passes = passes_of(state, inner_steps, inner_tolerance)
    local = local_step(documents, by_word, state.topic_prior, passes)
    return local.doc_concentration, local.score


def total(state: LDAVBState, model: LDA) -> LDAVBInfo:
    """The bound without the documents' terms."""
    divergence = dirichlet_kl(state.word_concentration, state.word_smoothing, axis=0)
    return LDAVBInfo(-divergence, state.word_smoothing, jnp.mean(state.topic_prior))


def with_rows(state: LDAVBState, doc_concentration: Array | None) -> LDAVBState:
    """The state with the documents' parameters where they are kept."""
    if doc_concentration is None:
        return state
    return state._replace(doc_concentration=jnp.asarray(doc_concentration))


def without_rows(state: LDAVBState) -> LDAVBState:
    """The state without the documents' parameters, as batches pass it on."""
    return state._replace(doc_concentration=state.doc_concentration[:0])


@cache
def in_batches(
    documents: str,
    inner_steps: int,
    inner_tolerance: float,
    learn: tuple[str, ...],
    learning_offset: float,
    learning_decay: float,
) -> NaturalGradient:
    """The step by noisy natural gradients, with its options.

    Raises:
        ValueError: an option that needs all documents at once.
    """
    if not set(learn) <= {"word_smoothing"}:
        raise ValueError(
            "learn does not go with batch_size but for word_smoothing: give the hyperparameters, or learn "
            "them on fewer rows"
        )
    if documents == "continue":
        raise ValueError(
            "documents='continue' needs all documents at once: with batch_size they are restarted"
        )
    options: dict[str, Any] = {
        "learn": learn,
        "learning_offset": learning_offset,
        "learning_decay": learning_decay,
    }
    passes: dict[str, Any] = {"inner_steps": inner_steps, "inner_tolerance": inner_tolerance}
    once = partial(step_of_batch, **passes, **options)
    return NaturalGradient(
        once,
        partial(evaluate, **passes),
        total,
        with_rows,
        without_rows,
        num_columns=_num_topics,
        of_rows="doc_topic_concentration",
        drawn_of_rows="doc_topic_probs",
        draw_width=_num_topics,
    )


def _num_topics(model: LDA) -> int:
    return model.num_topics


METHOD = Ascent(
    settings=VB,
    strategies=("random",),
    restarts=restarts,
    drops_starts=True,
    takes=frozenset({"batches", "devices", "documents"}),
    build=build,
    start=start,
    conclude=conclude,
    guide=guide,
    transform=transform,
    log_density=log_density,
    prepare=prepare,
    check=check,
    may_fall=True,
    own_rows=own_rows,
    for_steps=in_shared_shapes,
    of_rows=(".doc_concentration",),
    resized=resized,
    for_new=for_new,
    in_batches=in_batches,
)
