r"""Variational Bayes for the probabilistic clustering-projection model.

``family="structured"`` (the default) approximates the posterior by :math:`q(\pi) \prod_m q(\theta_m) \prod_k
q(\beta_k) \prod_d q(c_d) \prod_n q(z_{dn} \mid c_d)`: the topics of words know the cluster. With
:math:`T_{mk} = e^{E \log \theta_{mk}}`, :math:`B_{kw} = e^{E \log \beta_{kw}}` the updates are

.. math::
    \psi_{dm} &\propto \exp\{E \log \pi_m + \textstyle\sum_w n_{dw} \log (T B)_{mw}\}, \qquad
    C_{mw} = \textstyle\sum_d \psi_{dm} n_{dw}, \quad R = C / (T B), \\
    \gamma_{mk} &= \lambda_k + T_{mk} (R B')_{mk}, \qquad
    \mu_{kw} = \epsilon + B_{kw} (T' R)_{kw}, \qquad \eta_m = \alpha/M + \textstyle\sum_d \psi_{dm}.

Nothing is done per nonzero and topic: a step costs O(nonzeros x M + inner_steps x M W K). It is never below
the mean-field bound at the same global factors, and equal where psi is certain.

``family="mean_field"`` is Algorithm 9.1 of Yu (2006), q(c) q(z) independent (`inference.methods.
pcp_mean_field`). From a random start it collapses to one cluster; it is here to show that, and warns.

The objective is the whole evidence lower bound, multinomial coefficients included; it never falls.
``topics``: ``"posterior"`` (a Dirichlet factor) or ``"point"`` (the thesis's: the maximum, ``word_smoothing -
1`` being its additive constant, 9.9). ``learn`` fits hyperparameters by maximum of the bound. A cluster
without documents is at its prior: such are dropped on the way (``prune``), which leaves the bound as it is,
and come last in the fit. With ``batch_size`` documents pass in batches (`inference.methods.pcp.vb_batches`).
"""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Algorithm, Ascent, Init
from inference.methods.documents.dirichlet_factors import check_learnt_prior
from inference.methods.pcp import VB
from inference.methods.pcp import mean_field as pcp_mean_field
from inference.methods.pcp.vb_batches import in_batches
from inference.methods.pcp.vb_posterior import (
    SLOT_AXES,
    PCPVBInfo,
    PCPVBState,
    centre_log_probs,
    conclude,
    expected_log_topics,
    expected_log_weights,
    globals_bound,
    guide,
    info_of,
    log_density,
    log_joint_documents,
    log_weight_terms,
    shrink,
    transform,
)
from inference.methods.pcp.vb_starts import (
    PROJECTIONS,
    init,
    numbered_init,
    restarts,
    settled_by_one,
    settling_steps,
)
from inference.methods.pcp.vb_updates import assign, log_likelihood, update_globals, word_log_centres
from inference.numerics.documents import DocumentBlocks, cut, padded_documents
from zoo.checks import warn
from zoo.pcp import PCP
from zoo.shapes import Values


def step(
    key: Array,
    state: PCPVBState,
    model: PCP,
    documents: DocumentBlocks,
    *,
    inner_steps: int = 5,
    learn: tuple[str, ...] = ("word_smoothing",),
    point: bool = False,
) -> tuple[PCPVBState, PCPVBInfo]:
    """Clusters of documents, then centres, topics and hyperparameters in turn, then the bound.

    While an annealed start settles, documents are less sure of their clusters and hyperparameters are held.
    """
    log_weights = expected_log_weights(state, model)
    state, power, holds = settled_by_one(state)
    by_word, sizes, entropy = assign(documents, word_log_centres(state, point), log_weights, power)
    state = update_globals(state, by_word, sizes, model, inner_steps, learn, point, holds)
    words = log_likelihood(state, by_word, point)
    objective = words + entropy + globals_bound(state, model, point) + documents.log_coefficient
    return state, info_of(objective, sizes, state)


def bound(state: PCPVBState, model: PCP, documents: DocumentBlocks, point: bool = False) -> Array:
    """The structured bound of given global factors, the documents' factors optimal, in nats.

    The expected log weights are those of q(weights), which need not be optimal.
    """
    log_centres = centre_log_probs(state.clusters, expected_log_topics(state.words, point))
    log_weights = expected_log_weights(state, model)
    words = jnp.sum(jax.nn.logsumexp(documents.times(log_centres.T) + log_weights, axis=-1))
    of_globals = globals_bound(state, model, point) - log_weight_terms(state, model)
    return words + of_globals + documents.log_coefficient


# The algorithm


def start(key: Array, variables: Values, model: PCP, documents: DocumentBlocks, **options: Any) -> PCPVBState:
    """The state with the factors of a former fit, or after updates from given ``responsibilities``.

    Raises:
        ValueError: neither is given, or of other shapes.
    """
    point, family = options["topics"] == "point", options["family"]
    state = init(key, model, documents, strategy="random", family=family, point=point)
    names = ("cluster_topic_concentration", "topic_word_probs" if point else "topic_word_concentration")
    if all(name in variables for name in names):
        clusters, words = (jnp.asarray(variables[name]) for name in names)
        if clusters.shape != state.clusters.shape or words.shape != state.words.shape:
            raise ValueError(
                f"init: clusters and topics must have shapes {state.clusters.shape} and {state.words.shape}; "
                f"got {clusters.shape} and {words.shape}"
            )
        state = state._replace(clusters=clusters, words=words)
        if "cluster_weights_concentration" in variables and not model.weights.has_sticks:
            state = state._replace(weights=dist.Dirichlet(variables["cluster_weights_concentration"]))
        if family == "mean_field" and "responsibilities" in variables:
            state = state._replace(responsibilities=jnp.asarray(variables["responsibilities"]))
        return state
    if "responsibilities" not in variables:
        raise ValueError(
            f"init must hold 'responsibilities', or {' and '.join(names)}; got "
            f"{', '.join(variables) or 'nothing'}"
        )
    r = jnp.asarray(variables["responsibilities"])
    shape = (documents.shape[0], model.num_clusters)
    if r.shape != shape:
        raise ValueError(f"init: responsibilities must have shape {shape}; got {r.shape}")
    by_word = documents.transposed_times(r)
    state = update_globals(state, by_word, jnp.sum(r, axis=0), model, options["inner_steps"], (), point)
    return state._replace(responsibilities=r) if family == "mean_field" else state


@cache
def build(
    strategy: str,
    family: str,
    topics: str,
    inner_steps: int,
    learn: tuple[str, ...],
    prune: bool,
    **of_batches: object,
) -> Algorithm:
    """The algorithm with its options; those of batches are ignored."""
    point = topics == "point"
    steps: dict[str, Any] = {} if family == "mean_field" else {"inner_steps": inner_steps}
    begin = partial(init, strategy=strategy, family=family, point=point)
    update = pcp_mean_field.step if family == "mean_field" else step
    once = partial(update, learn=learn, point=point, **steps)
    several = strategy == "auto" and family == "structured"  # all starts of the other are alike
    return Algorithm(
        begin,
        once,
        shrink=shrink if prune else None,
        slot_axes=SLOT_AXES if prune else (),
        settling_steps=settling_steps,
        numbered_init=partial(numbered_init, point=point) if several else None,
    )


def prepare(model: PCP, data: tuple, init: Init, *, family: str, **options: object) -> tuple[DocumentBlocks]:
    """The documents in blocks for passes over clusters, over topics, or over both."""
    columns = model.num_topics if family == "mean_field" else model.num_clusters
    if init in PROJECTIONS:
        columns = max(columns, model.num_topics)
    return (cut(data[0], columns),)


def check(model: PCP, settings: VB) -> None:
    """Raise ValueError if the settings do not suit the model; warn of the mean-field family."""
    is_mean_field = settings.family == "mean_field"
    if is_mean_field and (settings.num_devices or 1) > 1:
        raise ValueError(
            f"family='mean_field' runs on one device, the structured one on several; got "
            f"num_devices={settings.num_devices}"
        )
    if settings.topics == "point" and model.word_smoothing < 1:
        raise ValueError(
            "topics='point' maximises over topics under Dirichlet(word_smoothing), which has no maximum "
            f"below 1: give the additive constant plus one; got {model.word_smoothing}"
        )
    check_learnt_prior(model, settings)
    if is_mean_field:
        warn(
            "family='mean_field' is the thesis's Algorithm 9.1, which from a random start collapses to one "
            "cluster; the default family='structured' does not, and is cheaper"
        )


METHOD = Ascent(
    settings=VB,
    strategies=("auto", "annealed", "random", *PROJECTIONS),
    restarts=restarts,
    drops_starts=True,
    takes=frozenset({"batches", "devices", "documents"}),
    build=build,
    start=start,
    conclude=conclude,
    guide=guide,
    transform=transform,
    log_density=log_density,
    log_joint=log_joint_documents,
    prepare=prepare,
    check=check,
    for_steps=padded_documents,
    of_rows=(".responsibilities",),
    starts_alike=True,
    in_batches=in_batches,
)
