# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # From pLSI to LDA to PCP
#
# Three models of word counts, each a step on from the one before (Yu 2006, section 4.2 and chapter 9).
#
# * **pLSI** (Hofmann 1999) says that a document's words come from a mixture of topics, and estimates every
#   document's topic shares as free parameters. A new document has none.
# * **LDA** (Blei, Ng and Jordan 2003) draws the shares from a Dirichlet distribution, so that new documents
#   have a probability.
# * **PCP** (Yu 2006) says besides that documents come in clusters: the documents of a cluster share their shares.
#
# The corpus is generated from PCP, so that we know the truth: 300 documents of five clusters, six topics, 200
# words. With `ZOO_NOTEBOOK_SIZE=small` half of the documents serve. The last cell asserts what the text claims.

# %%
# %matplotlib inline
import os
import warnings

import numpy as np
import pandas as pd

import zoo
from inference import fit
from inference.diagnostics import heldout
from inference.plots import plot_clusters
from inference.topics import (
    cluster_topics,
    coherence,
    match_topics,
    nearest_documents,
    normalised_mutual_information,
    top_words,
    topic_words,
)
from zoo.datasets import load

small = os.environ.get("ZOO_NOTEBOOK_SIZE") == "small"
corpus = load("pcp_corpus", seed=1)
size = 150 if small else 300
counts, labels = corpus["counts"][:size], corpus["labels"][:size]
held_out = np.arange(size) % 5 == 0
train, test = counts[~held_out], counts[held_out]
print(f"{train.shape[0]} documents to fit, {test.shape[0]} held out, {int(counts.sum())} words in all")

# %% [markdown]
# ## Fit
#
# pLSI by expectation maximisation, LDA and PCP by variational Bayes. Of PCP's eight starts the one with the
# best bound is kept.

# %%
options = {"num_samples": 20, "progress": False, "seed": 0}
plsi = fit(zoo.PLSI(num_topics=6), train, max_iterations=100, tolerance=0, smoothing=0.01, **options)
lda = fit(zoo.LDA(num_topics=6), train, max_iterations=100, tolerance=0, **options)
pcp = fit(zoo.PCP(num_topics=6, num_clusters=10), train, num_restarts=8, tolerance=1e-3, **options)
top_words(pcp, 6)

# %% [markdown]
# Words have no names in a generated corpus; their numbers must do. The topics of the three models are matched
# by their word probabilities (1 is equality): most are found by all, the others are cut differently.

# %%
similarity = {
    name: match_topics(topic_words(tree), topic_words(lda)).similarity
    for name, tree in (("pLSI to LDA", plsi), ("PCP to LDA", pcp))
}
pd.DataFrame(similarity).describe().loc[["min", "mean", "max"]].round(3)

# %% [markdown]
# ## Clusters
#
# What PCP has and the others have not: clusters as mixtures of topics. Ten were allowed; those that found no
# documents stay at their prior.

# %%
plot_clusters(pcp, num_words=3, least_weight=0.02)

# %%
table = cluster_topics(pcp).sort_values("weight", ascending=False)
table.head(6).round(2)

# %%
nearest_documents(pcp, int(table.index[0]), 5).round(3)

# %%
truth = labels[~held_out]
found = pcp["variational"].responsibilities.values.argmax(1)
agreement = normalised_mutual_information(truth, found)
print(f"normalised mutual information with the true clusters (over the larger entropy): {agreement:.2f}")

# %% [markdown]
# ## The printed algorithm
#
# Algorithm 9.1 of the thesis keeps clusters and topics of words independent. Started at random it ends in one
# cluster: the topics of a document's many words average out, every document looks the same, one cluster takes
# all. The default family keeps the topics of words tied to the cluster, and does not.

# %%
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it says so itself
    collapsed = fit(
        zoo.PCP(num_topics=6, num_clusters=10), train, family="mean_field", max_iterations=150, **options
    )
left = int(collapsed["variational"].num_occupied)
print(f"clusters left: {left}; by the structured family: {int(pcp['variational'].num_occupied)}")

# %% [markdown]
# ## New documents
#
# Three protocols, which do not mean the same. A *bound* lies below the likelihood, by how much depends on the
# model: two models' bounds do not compare. The *likelihood* is exact for PCP at the expected parameters, an
# estimate for LDA; pLSI has none, since a new document has no shares, so that a mixture over the fitted
# documents' shares stands in. *Completion* gives half of a document's words and scores the other half: that
# is the fair test.

# %%
rows = {}
for name, tree in (("pLSI", plsi), ("LDA", lda), ("PCP", pcp)):
    protocols = ("likelihood", "completion") if name == "pLSI" else ("bound", "likelihood", "completion")
    rows[name] = {
        protocol: float(heldout(tree, test, protocol=protocol).perplexity) for protocol in protocols
    }
perplexity = pd.DataFrame(rows).T[["bound", "likelihood", "completion"]]
perplexity.round(1)

# %% [markdown]
# Perplexity per token, lower is better; the corpus was made by PCP, which is at home here. On real text it is
# often the other way round: a PCP document cannot have shares of its own.

# %%
pd.DataFrame(
    {name: coherence(topic_words(tree), train) for name, tree in (("LDA", lda), ("PCP", pcp))}
).round(2)

# %% [markdown]
# ## Exercise
#
# What perplexity has a model that guesses all $W$ words alike? And one that knows the corpus' word frequencies
# $p$ but no topics, on text with just these frequencies?

# %%
# Answer: W, and the exponential of the entropy of p, which is less.
frequencies = np.random.default_rng(0).dirichlet(np.full(200, 0.3))
guessing = np.exp(-(frequencies * np.log(np.full(200, 1 / 200))).sum())
unigram = np.exp(-(frequencies * np.log(frequencies)).sum())
print(f"{guessing:.1f} and {unigram:.1f}")
assert np.isclose(guessing, 200.0, rtol=1e-12) and unigram < guessing

# %% [markdown]
# ## What was claimed

# %%
assert agreement > 0.6, agreement
assert left == 1
assert all((values > 0.7).sum() >= 3 for values in similarity.values())  # half of the topics at least
for name in ("LDA", "PCP"):
    assert perplexity.loc[name, "bound"] > perplexity.loc[name, "likelihood"]
assert perplexity.loc["PCP", "completion"] < 200 / 2  # far better than guessing among 200 words
