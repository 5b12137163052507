r"""Tempered Gibbs sampling of topic models: their blocked samplers, with the words to a power.

What is raised to the power b is the likelihood of words given topics of tokens, :math:`\prod_n \beta_{z_n
w_n}^b`. Topics of tokens are then drawn with probabilities :math:`\theta_k \beta_{kw}^b`, clusters of
documents with these summed, and topics from :math:`\mathrm{Dirichlet}(\epsilon + b T_k)`; shares and weights
as ever. At power 1 the topics of tokens sum out to the program's density of counts, but for its coefficients.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import gammaln

from inference.methods.documents.tokens import Tokens, TopicSweep
from inference.methods.tempered.sampler import TemperedKernel
from zoo.documents.topic_model import TopicModel


def of_topics(home: Any) -> TemperedKernel:
    """The kernel made of a model's blocked sampler.

    Args:
        home: its module, which has ``METHOD``; ``no_tokens(state)``, what is drawn of no tokens;
            ``assigned(keys, values, model, documents, power)``, the draws of clusters and topics of tokens;
            ``parameters_given(keys, drawn, model, power)``, the draw of the parameters given these;
            ``state_of(swept, model)``, the state after a sweep; ``recorded(swept, model, documents)``, the
            values to record.
    """

    def step(
        key: Array, power: Array, swept: TopicSweep, model: TopicModel, documents: Tokens, **options: object
    ) -> Any:
        keys = jax.random.split(key, 4)
        drawn = home.assigned(keys[:2], swept.values, model, documents, power)
        return TopicSweep(home.parameters_given(keys[2:], drawn, model, power), drawn), jnp.zeros((), bool)

    def prior(key: Array, swept: TopicSweep, model: TopicModel, documents: Tokens, **options: object) -> Any:
        keys = jax.random.split(key, 4)
        values = home.parameters_given(keys[2:], jax.tree.map(jnp.zeros_like, swept.drawn), model, 0.0)
        return TopicSweep(values, home.assigned(keys[:2], values, model, documents, 0.0)), jnp.zeros((), bool)

    def log_likelihood(swept: TopicSweep, model: TopicModel, documents: Tokens) -> Array:
        return jnp.sum(swept.drawn.by_word.T * jnp.log(swept.values["topic_word_probs"]))

    def begun(state: Any) -> TopicSweep:
        return TopicSweep(state.values, home.no_tokens(state))

    return TemperedKernel(
        home.METHOD,
        (step,),
        prior,
        log_likelihood,
        home.recorded,
        begun=begun,
        plain=home.state_of,
        constant=log_coefficients,
    )


def log_coefficients(model: TopicModel, data: tuple) -> float:
    """Sum of the log multinomial coefficients of the documents, in nats."""
    (documents,) = data
    tokens: Tokens = getattr(documents, "tokens", documents)
    document, word = np.asarray(tokens.document), np.asarray(tokens.word)
    cells = np.unique(document.astype(np.int64) * tokens.shape[1] + word, return_counts=True)[1]
    return float(gammaln(np.bincount(document) + 1.0).sum() - gammaln(cells + 1.0).sum())
