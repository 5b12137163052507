"""Small corpora and independent formulas that several test files use."""

import numpy as np
from scipy import special

import zoo
from zoo.sparse import SparseCounts

__all__ = ["COUNTS", "WORDS", "expected_log", "kl", "lda_bound", "pcp_bound", "random_corpus", "sparse"]

WORDS = ["ball", "goal", "team", "engine", "wheel", "road"]


def random_corpus(num_documents=20, num_words=6, seed=0):
    """Documents of two kinds of words, some of both, dense."""
    rng = np.random.default_rng(seed)
    half = num_words // 2
    topics = np.stack([np.r_[np.ones(half), 0.1 * np.ones(num_words - half)] for _ in range(2)])
    topics[1] = topics[1][::-1]
    topics /= topics.sum(1, keepdims=True)
    shares = rng.dirichlet([0.4, 0.4], num_documents)
    return rng.multinomial(rng.integers(4, 12, num_documents), shares @ topics).astype(float)


COUNTS = random_corpus()


def sparse(counts=COUNTS):
    """The corpus as sparse counts."""
    return SparseCounts.from_matrix(counts)


def expected_log(parameters):
    """E[log p] under Dirichlets in rows."""
    return special.digamma(parameters) - special.digamma(parameters.sum(-1, keepdims=True))


def kl(parameters, prior):
    """KL(Dirichlet(parameters) || Dirichlet(prior)), row by row, summed, in the textbook's form."""
    prior = np.broadcast_to(prior, parameters.shape)
    constant = special.gammaln(parameters.sum(-1)) - special.gammaln(parameters).sum(-1)
    constant -= special.gammaln(prior.sum(-1)) - special.gammaln(prior).sum(-1)
    return float((constant + ((parameters - prior) * expected_log(parameters)).sum(-1)).sum())


def tokens_of(row):
    """The words of a document, one entry a token."""
    return np.repeat(np.arange(row.size), row.astype(int))


def coefficient(counts):
    """Sum of the log multinomial coefficients of the documents."""
    return float((special.gammaln(counts.sum(1) + 1) - special.gammaln(counts + 1).sum(1)).sum())


def lda_bound(counts, topics, shares, prior, smoothing):
    """LDA's bound token by token, q(z) optimal: rows of Dirichlet parameters of topics and documents."""
    log_topics, log_shares = expected_log(topics), expected_log(shares)
    total = coefficient(counts) - kl(topics, smoothing) - kl(shares, prior)
    for d, row in enumerate(counts):
        for word in tokens_of(row):
            logits = log_shares[d] + log_topics[:, word]
            phi = special.softmax(logits)
            total += float((phi * (logits - np.log(np.maximum(phi, np.finfo(float).tiny)))).sum())
    return total


def pcp_bound(counts, weights, clusters, topics, responsibilities, alpha, prior, smoothing, structured=True):
    """PCP's bound token by token, q(z) optimal for the given q(c).

    With ``structured`` each token's topic has a distribution for each cluster, else one for all.
    """
    log_pi, log_theta, log_beta = (expected_log(part) for part in (weights, clusters, topics))
    total = coefficient(counts) - kl(topics, smoothing) - kl(clusters, prior)
    total -= kl(weights[None], alpha / weights.size)
    for d, row in enumerate(counts):
        psi = responsibilities[d]
        total += float((psi * log_pi).sum() + special.entr(psi).sum())
        for word in tokens_of(row):
            if structured:
                for m, share in enumerate(psi):
                    logits = log_theta[m] + log_beta[:, word]
                    phi = special.softmax(logits)
                    total += share * float((phi * (logits - np.log(phi))).sum())
            else:
                logits = psi @ log_theta + log_beta[:, word]
                phi = special.softmax(logits)
                total += float((phi * (logits - np.log(phi))).sum())
    return total


def small_models():
    """LDA and PCP with three topics, filled from the small corpus."""
    return zoo.LDA.from_data(COUNTS, num_topics=3), zoo.PCP.from_data(COUNTS, num_topics=3, num_clusters=4)
