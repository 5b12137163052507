# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # From pLSI to LDA to PCP
#
# **Goals.** After this notebook you can
#
# - say what each of three topic models assumes of a document, and which of them can score a new one;
# - compare topics of two fits although they have no order;
# - read the topics of a real text, and say what they tell and what they cannot;
# - choose a protocol of held-out scores, and say which comparisons it allows.
#
# **Duration.** An hour and a half with the exercises. The computer takes about a minute at full size on two cores,
# under a minute with `ZOO_NOTEBOOK_SIZE=small`. Numbers quoted in the text are those of the full size.
#
# Three models of word counts, each a step on from the one before (Yu 2006, section 4.2 and chapter 9).
#
# * **pLSI** (Hofmann 1999) says that a document's words come from a mixture of topics, and estimates every
#   document's topic shares as free parameters. A new document has none.
# * **LDA** (Blei, Ng and Jordan 2003) draws the shares from a Dirichlet distribution, so that new documents
#   have a probability.
# * **PCP** (Yu 2006) says besides that documents come in clusters: the documents of a cluster share their shares.
#
# The corpus is drawn from PCP's own program, so that we know the truth: 600 documents of ten clusters, five topics,
# 200 words. There are more clusters than topics, and that matters: words tell no more than the clusters' centres, and
# the centres of few clusters can be cut into topics in many ways (exercise 1). With `ZOO_NOTEBOOK_SIZE=small` each
# fit has fewer steps. The last section asserts what the text claims.

# %%
from inference.course import SIZE, load, np, pd, zoo

# %%
from numpyro import handlers
from scipy.sparse import csr_matrix

truth = zoo.PCP(
    num_topics=5, num_clusters=10, concentration=100, topic_prior=0.5, word_smoothing=0.05, num_words=200, num_tokens=80
)  # fmt: skip
drawn = {
    name: np.asarray(site["value"])
    for name, site in handlers.trace(handlers.seed(truth, 0)).get_trace(num_observations=600).items()
    if site["type"] == "sample"
}
counts, labels = csr_matrix(drawn["counts"].astype(float)), drawn["doc_clusters"]
held_out = np.arange(600) % 5 == 0
train, test = counts[~held_out], counts[held_out]
print(f"{train.shape[0]} documents to fit, {test.shape[0]} held out, {int(counts.sum())} words in all")

# %% [markdown]
# ## Fit
#
# pLSI by expectation maximisation, LDA and PCP by variational Bayes. All three have local optima: of eight starts
# the one with the best objective is kept.

# %%
from inference import fit
from inference.topics import numbered_like
from inference.topics import top_words

options = {"num_samples": 20, "seed": 0, "tolerance": 0, "num_restarts": 8}
steps = 100 if SIZE == "small" else 200
plsi = fit(zoo.PLSI(num_topics=5), train, max_iterations=steps, smoothing=0.01, **options)
lda = fit(
    zoo.LDA(num_topics=5),
    train,
    max_iterations=steps // 2,
    learn=("word_smoothing", "topic_prior"),
    **options,
)
pcp = fit(zoo.PCP(num_topics=5, num_clusters=15), train, max_iterations=steps, **options)
pcp, plsi = numbered_like(pcp, drawn["topic_word_probs"]), numbered_like(plsi, drawn["topic_word_probs"])
lda = numbered_like(lda, drawn["topic_word_probs"])
top_words(pcp, 6)

# %% [markdown]
# Words have no names in a generated corpus; their numbers must do (a text that can be read follows below). Topics have no order either: `numbered_like` gave
# those of each fit the numbers of the true topics that they match. How alike they are (1 is equality) says the next
# table, beside the share of all words that a true topic gives. Topics that give many words are found by all three
# models, nearly as they are. The rarest is found too, but blurred by all three: few words speak for it. Without knowing
# the truth one would look at the last two columns: where two models disagree, neither should be trusted.

# %%
from inference.topics import match_topics
from inference.topics import topic_words

similarity = pd.DataFrame(
    {name: match_topics(topic_words(tree), drawn["topic_word_probs"]).similarity for name, tree in (("pLSI", plsi), ("LDA", lda), ("PCP", pcp))}
)  # fmt: skip
between = pd.DataFrame(
    {f"{name} to LDA": match_topics(topic_words(tree), topic_words(lda)).similarity for name, tree in (("pLSI", plsi), ("PCP", pcp))}
)  # fmt: skip
share = drawn["cluster_topic_probs"][labels].mean(0)
pd.concat(
    {"truth": pd.DataFrame({"share": share}), "to the truth": similarity, "between models": between}, axis=1
).round(2)

# %% [markdown]
# ## Clusters
#
# What PCP has and the others have not: clusters as mixtures of topics. Fifteen were allowed; those that found no
# documents stay at their prior.

# %% mystnb={"image": {"alt": "Each cluster of documents as a mixture of topics, which are described by their commonest words."}}
from inference.plots import plot_clusters

plot_clusters(pcp, num_words=3, least_weight=0.02)

# %%
from inference.topics import cluster_topics

table = cluster_topics(pcp).sort_values("weight", ascending=False)
table.head(6).round(2)

# %%
from inference.topics import nearest_documents

nearest_documents(pcp, int(table.index[0]), 5).round(3)

# %% mystnb={"image": {"alt": "Share of the documents of each true cluster that each cluster found holds: close to one for one."}}
from inference.plots import plot_document_clusters
from inference.topics import normalised_mutual_information

found = pcp["variational"].responsibilities.values.argmax(1)
agreement = normalised_mutual_information(labels[~held_out], found)
print(f"normalised mutual information with the true clusters (over the larger entropy): {agreement:.2f}")
plot_document_clusters(pcp, labels[~held_out], least_weight=0.01)

# %% [markdown]
# ## The printed algorithm
#
# Algorithm 9.1 of the thesis keeps clusters and topics of words independent. Started at random it ends in one
# cluster: the topics of a document's many words average out, every document looks the same, one cluster takes
# all. The default family keeps the topics of words tied to the cluster, and does not.

# %%
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it says so itself
    collapsed = fit(
        zoo.PCP(num_topics=5, num_clusters=15), train, family="mean_field", max_iterations=steps,
        **options | {"num_restarts": 1},
    )  # fmt: skip
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
from inference.diagnostics import heldout

rows = {}
for name, tree in (("pLSI", plsi), ("LDA", lda), ("PCP", pcp)):
    protocols = ("likelihood", "completion") if name == "pLSI" else ("bound", "likelihood", "completion")
    rows[name] = {
        protocol: float(heldout(tree, test, protocol=protocol).perplexity) for protocol in protocols
    }
perplexity = pd.DataFrame(rows).T[["bound", "likelihood", "completion"]]
perplexity.round(1).astype(object).fillna("")

# %% [markdown]
# Perplexity per token, lower is better; the corpus was made by PCP, which is at home here. On real text it is
# often the other way round: a PCP document cannot have shares of its own.

# %%
from inference.topics import coherence

pd.DataFrame(
    {name: coherence(topic_words(tree), train) for name, tree in (("LDA", lda), ("PCP", pcp))}
).round(2)

# %% [markdown]
# ## Words that can be read: the Federalist Papers
#
# In 1787 and 1788 Alexander Hamilton, James Madison and John Jay argued in 85 essays, all signed "Publius", for the
# constitution of the United States. `load("federalist")` has the counts of the 1000 words that occur most often, function
# words such as *upon* left out. LDA with eight topics, told nothing of authors or subjects:

# %% mystnb={"image": {"alt": "The words of each topic of the Federalist Papers by their probability."}}
from inference.plots import plot_topics

papers = load("federalist")
essays = papers.frame("counts")  # one row per paper, under its number; one column per word
federalist = fit(
    zoo.LDA(num_topics=8),
    essays,
    max_iterations=steps // 2,
    learn=("word_smoothing", "topic_prior"),
    **options | {"num_restarts": 4},
)
plot_topics(federalist, num_words=8)

# %% [markdown]
# Papers 78 to 83 are on the courts. The papers in which the topic that says *jury* most has its largest shares:

# %%
from inference.topics import topic_shares

essay_shares = topic_shares(federalist)
courts = int(topic_words(federalist)["jury"].idxmax())
judicial = essay_shares[courts].sort_values(ascending=False).head(4)
judicial.round(2).to_frame(f"share of topic {courts}")

# %% [markdown]
# Who wrote what? Twelve papers were claimed for Hamilton and for Madison. Mean shares by author:

# %%
by_author = essay_shares.groupby(papers["author"]).mean().rename_axis("author")
by_author.round(2)

# %% [markdown]
# The disputed papers stand out: most of them are on the House of Representatives, and a single topic takes a large part of
# their words. That says what they are about, not who wrote them. Mosteller and Wallace (1964) therefore decided the
# question, for Madison, by the function words that are left out here: how often a writer says *upon* does not depend on the
# subject. A topic model answers the question that its words can answer.

# %% [markdown]
# ## Exercises
#
# 1. Another corpus has six topics and five clusters. Which rank has the matrix of its clusters' word probabilities, and
#    why can no method tell the six topics from the documents?
# 2. How many free parameters has each model for D documents, W words, K topics, if what is integrated out does
#    not count? Which number grows with the documents?
# 3. What is PCP with one topic and one cluster? Say what its topic's word probabilities are, exactly.
# 4. What perplexity has a model that guesses all $W$ words alike? And one that knows the corpus' word frequencies
#    $p$ but no topics, on text with just these frequencies?

# %%
# Answer 1: five. The centres are a product of a 5 x 6 and a 6 x W matrix, and documents depend on the centres alone:
# any six topics whose mixtures give the same five centres give the same probabilities.
from inference import model_of

other = zoo.PCP(
    num_topics=6, num_clusters=5, topic_prior=0.5, word_smoothing=0.05, num_words=200, num_tokens=80
)
sites = handlers.trace(handlers.seed(other, 0)).get_trace(num_observations=5)
topics_of_six = np.asarray(sites["topic_word_probs"]["value"], dtype=float)
rank = np.linalg.matrix_rank(
    np.asarray(sites["cluster_topic_probs"]["value"], dtype=float) @ topics_of_six, tol=1e-5
)

# Answer 2: pLSI has D(K - 1) + K(W - 1), which grows with D; LDA K + K(W - 1); PCP 1 + K + K(W - 1).
D, W, K = train.shape[0], 200, 5
parameters = {"pLSI": D * (K - 1) + K * (W - 1), "LDA": K + K * (W - 1), "PCP": 1 + K + K * (W - 1)}

# Answer 3: the unigram model, every word's count plus the smoothing, normalised.
unigram = fit(zoo.PCP(num_topics=1, num_clusters=1), train, max_iterations=5, **options | {"num_restarts": 1})
smoothed = np.asarray(train.sum(0)).ravel() + float(model_of(unigram).word_smoothing)
unigram_gap = float(np.abs(topic_words(unigram).to_numpy()[0] - smoothed / smoothed.sum()).max())

# Answer 4: W, and the exponential of the entropy of p, which is less.
frequencies = np.random.default_rng(0).dirichlet(np.full(200, 0.3))
guessing = np.exp(-(frequencies * np.log(np.full(200, 1 / 200))).sum())
known = np.exp(-(frequencies * np.log(frequencies)).sum())
print(f"1: rank {rank}")
print("2:", ", ".join(f"{name} {number}" for name, number in parameters.items()))
print(f"3: largest difference {unigram_gap:.1e}")
print(f"4: {guessing:.1f} and {known:.1f}")
assert rank == 5
assert parameters["pLSI"] - parameters["LDA"] == D * (K - 1) - K
assert unigram_gap < 1e-9, unigram_gap
assert np.isclose(guessing, 200.0, rtol=1e-12) and known < guessing

# %% [markdown]
# ## What was claimed

# %%
assert agreement > 0.8, agreement
assert left == 1
assert (similarity[share > 0.15] > 0.85).all(axis=None), similarity  # topics of many words by every model
assert (similarity > 0.6).all(axis=None), similarity  # every topic, if blurred
assert (between > 0.6).all(axis=None), between
assert similarity.to_numpy().argmin(0).tolist() == [share.argmin()] * 3  # the rarest is the worst
for name in ("LDA", "PCP"):
    assert perplexity.loc[name, "bound"] > perplexity.loc[name, "likelihood"]
assert perplexity.loc["PCP", "completion"] < 200 / 2  # far better than guessing among 200 words
assert perplexity.loc["PCP", "completion"] < perplexity.loc["pLSI", "completion"]  # PCP is at home
assert set(judicial.index.astype(int)) <= set(range(78, 84)), judicial  # papers on the courts
assert by_author.loc["Hamilton Or Madison"].max() > 0.3, by_author

# %% [markdown]
# ## References
#
# - Blei, D. M., Ng, A. Y. and Jordan, M. I. (2003). Latent Dirichlet allocation. *Journal of Machine Learning
#   Research* 3, 993-1022.
# - Hamilton, A., Madison, J. and Jay, J. (1788). *The Federalist*. New York.
# - Hofmann, T. (1999). Probabilistic latent semantic indexing. *Proceedings of the 22nd ACM SIGIR Conference on
#   Research and Development in Information Retrieval*, 50-57.
# - Mimno, D., Wallach, H. M., Talley, E., Leenders, M. and McCallum, A. (2011). Optimizing semantic coherence in
#   topic models. *Proceedings of the Conference on Empirical Methods in Natural Language Processing*, 262-272.
# - Mosteller, F. and Wallace, D. L. (1964). *Inference and Disputed Authorship: The Federalist*. Addison-Wesley.
# - Strehl, A. and Ghosh, J. (2002). Cluster ensembles: a knowledge reuse framework for combining multiple partitions.
#   *Journal of Machine Learning Research* 3, 583-617.
# - Wallach, H. M., Murray, I., Salakhutdinov, R. and Mimno, D. (2009). Evaluation methods for topic models.
#   *Proceedings of the 26th International Conference on Machine Learning*, 1105-1112.
# - Yu, S. (2006). *Advanced Probabilistic Models for Clustering and Projection*. Dissertation,
#   Ludwig-Maximilians-Universität München.

# %%
zoo.show_versions()
