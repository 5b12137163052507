"""NUTS, HMC and SVI on the programs of the topic models, against the Gibbs samplers and the evidence.

What is compared no numbering of topics or clusters can change: the mean log likelihood, the spread of
topics, the word probabilities of a document. The posterior of pLSI, flat on its simplexes, is LDA's under
Dirichlet(1, ..., 1) priors. Two-sided comparisons stand at 4 Monte Carlo errors, five each: 3e-4 false
alarms.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.special import gammaln

import zoo
from inference import fit
from tests.support.text_cases import COUNTS

TINY = COUNTS[:8]
FEW = COUNTS[:3, [0, 1, 3]]  # three documents over three words: the evidence is an average over the prior
MODELS = {
    "lda": zoo.LDA.from_data(TINY, num_topics=2, topic_prior=0.8, word_smoothing=0.9),
    "plsi": zoo.PLSI.from_data(TINY, num_topics=2),
    "pcp": zoo.PCP.from_data(
        TINY, num_topics=2, num_clusters=2, topic_prior=0.8, word_smoothing=0.9, concentration=2.0
    ),
}
FLAT = zoo.LDA.from_data(TINY, num_topics=2, topic_prior=1.0, word_smoothing=1.0)  # pLSI's posterior
SAMPLING = {"num_chains": 2, "num_warmup": 500, "num_samples": 1000, "progress": False, "seed": 3}


def label_free(tree):
    """Draws, (chain, draw), of five quantities that no numbering can change."""
    posterior = tree["posterior"]
    topics = posterior["topic_word_probs"]
    if "doc_topic_probs" in posterior:
        words = (posterior["doc_topic_probs"] * topics).sum("topic")
        words = words.isel(document=[0, 5]).rename(document="row")
    else:
        words = (posterior["cluster_topic_probs"] * topics).sum("topic")
        words = (posterior["cluster_weights"] * words).sum("cluster").expand_dims("row", -1)
    found = {
        "log likelihood": tree["log_likelihood"].log_likelihood.sum("document"),
        "squares of topics": (topics**2).sum(("topic", "word")),
        "likeness of topics": np.sqrt(topics).prod("topic").sum("word"),
        "first word": words.isel(row=0, word=0),
        "entropy": -(words * np.log(words)).sum(("row", "word")),
    }
    return {name: values.transpose("chain", "draw").values for name, values in found.items()}


def differences(one, other):
    """Difference of means in combined Monte Carlo errors, by quantity."""

    def error(draws):
        ess = float(array_stats.ess(draws, chain_axis=0, draw_axis=1, method="mean"))
        return draws.std() / np.sqrt(ess)

    first, second = label_free(one), label_free(other)
    return {
        name: float(
            (first[name].mean() - second[name].mean()) / np.hypot(error(first[name]), error(second[name]))
        )
        for name in first
    }


@pytest.fixture(scope="module")
def gibbs():
    """The tiny corpus by blocked Gibbs; pLSI as the LDA that its posterior is."""
    models = MODELS | {"plsi": FLAT}
    options = SAMPLING | {"num_samples": 6000}
    return {name: fit(model, TINY, method="gibbs", **options) for name, model in models.items()}


@pytest.mark.filterwarnings("ignore:.*has not converged")
@pytest.mark.slow
@pytest.mark.parametrize("method", ["nuts", "hmc"])
@pytest.mark.parametrize("name", list(MODELS))
def test_hamiltonian_draws_agree_with_gibbs(name, method, gibbs):
    tree = fit(MODELS[name], TINY, method=method, **SAMPLING)
    z = differences(tree, gibbs[name])
    assert max(map(abs, z.values())) < 4, z
    assert float(tree["sample_stats"]["diverging"].mean()) < 0.01


@pytest.mark.filterwarnings("ignore:.*has not converged")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["lda", "pcp"])
def test_the_comparison_can_fail(name, gibbs):
    """A planted bug: a prior pseudo-count too many on every word of every topic."""
    other = MODELS[name].replaced(word_smoothing=MODELS[name].word_smoothing + 1)
    tree = fit(other, TINY, method="gibbs", **SAMPLING)
    assert max(map(abs, differences(tree, gibbs[name]).values())) > 4


def log_evidence(model):
    """Log probability of the three documents and its standard error, by 2^17 draws from the prior."""

    def one(key):
        keys = jax.random.split(key, 3)
        values = {"topic_word_probs": jax.random.dirichlet(keys[0], jnp.full(3, model.word_smoothing), (2,))}
        shares = jax.random.dirichlet(keys[1], jnp.full(2, model.topic_prior), (3 if is_lda else 2,))
        if is_lda:
            values["doc_topic_probs"] = shares
        else:
            values["cluster_topic_probs"] = shares
            values["cluster_weights"] = jax.random.dirichlet(keys[2], jnp.full(2, model.concentration / 2))
        return jnp.sum(model.log_likelihood(values, jnp.asarray(FEW)))

    is_lda = isinstance(model, zoo.LDA)
    with jax.enable_x64(True):
        logs = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 2**17)))
    weights = np.exp(logs - logs.max())
    return logs.max() + np.log(weights.mean()), weights.std() / weights.mean() / np.sqrt(logs.size)


@pytest.mark.filterwarnings("ignore:.*has not converged")
@pytest.mark.slow
@pytest.mark.parametrize("name", list(MODELS))
def test_the_bound_of_svi_lies_below_the_evidence(name):
    """By at most 2 nats on three documents; at 4 standard errors of both: 3e-5 false alarms.

    The flat density of pLSI is LDA's prior without its normalisers, Gamma(3) a topic and Gamma(2) a document.
    Planted: the evidence of other documents lies elsewhere.
    """
    sizes = {"num_words": 3, "num_tokens": tuple(int(n) for n in FEW.sum(1))}
    evidence, error = log_evidence((FLAT if name == "plsi" else MODELS[name]).replaced(**sizes))
    if name == "plsi":
        evidence -= 2 * gammaln(3) + 3 * gammaln(2)
    tree = fit(
        MODELS[name].replaced(**sizes),
        FEW,
        method="svi",
        max_iterations=6000,
        step_size=0.01,
        num_samples=500,
    )
    spread = 4 * np.hypot(error, tree.attrs["elbo_standard_error"])
    assert evidence - 2 - spread < tree.attrs["elbo"] < evidence + spread, (tree.attrs["elbo"], evidence)


@pytest.mark.slow
def test_nuts_runs_on_pcp():
    """A few draws, so that the default run compiles the program with clusters summed out once."""
    with pytest.warns(UserWarning, match="has not converged"):
        tree = fit(
            MODELS["pcp"], TINY, method="nuts", num_chains=1, num_warmup=5, num_samples=5, progress=False
        )
    assert np.isfinite(tree["sample_stats"]["lp"]).all()
    np.testing.assert_allclose(tree["posterior"].cluster_topic_probs.sum("topic"), 1, rtol=1e-9)
    assert tree["posterior"].doc_clusters.shape == (1, 5, 8)
