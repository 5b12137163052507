"""Clusters without documents are dropped, and the bound stays as it is.

A cluster without mass has q at its prior: it adds nothing to the bound but through alpha / M, which stays
what it was (`inference.variational.pcp_posterior` counts those that are missing). A cluster holds some mass
in every document; below `NO_MASS` documents in all, what it adds to the bound is below the bound's rounding.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from inference.variational.pcp_posterior import PCPVBState
from zoo.pcp import PCP

__all__ = ["NO_MASS", "prune", "shrink", "with_all_clusters"]

NO_MASS = 1e-9  # expected documents
FEWEST = 16  # clusters below which nothing is gained


def prune(state: PCPVBState, sizes: Array, least: float = NO_MASS) -> PCPVBState:
    """The state without the clusters that hold less than ``least`` documents (finite weights only).

    Args:
        state: q under Dirichlet weights.
        sizes: expected documents of each cluster, shape (num_clusters,).
        least: documents.
    """
    return _chosen(state, np.flatnonzero(np.asarray(sizes) >= least))


def shrink(states: PCPVBState, model: PCP) -> PCPVBState | None:
    """The states of all restarts with as many clusters as the one that needs most, if that halves them.

    Sticks are not dropped: what they leave depends on their order.

    Args:
        states: with a leading axis over restarts.
        model: as given.
    """
    if model.weights.has_sticks:
        return None
    concentration = np.asarray(states.weights.concentration)
    share = np.asarray(states.concentration)[:, None] / model.num_clusters
    least = np.maximum(NO_MASS, 8 * np.finfo(concentration.dtype).eps * share)
    needed = max(int((concentration - share > least).sum(axis=1).max()), FEWEST)
    if 2 * needed > concentration.shape[1]:
        return None
    largest = np.argsort(-concentration, axis=1, kind="stable")[:, :needed]
    lanes = (jax.tree.map(lambda leaf, lane=lane: leaf[lane], states) for lane in range(len(largest)))
    fewer = [_chosen(lane, np.sort(held)) for lane, held in zip(lanes, largest, strict=True)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *fewer)


def with_all_clusters(state: PCPVBState, model: PCP) -> PCPVBState:
    """The state with the clusters that were dropped at the end, at their prior."""
    if model.weights.has_sticks:
        return state
    missing = model.num_clusters - state.clusters.shape[0]
    share = state.concentration / model.num_clusters
    weights = jnp.concatenate([state.weights.concentration, jnp.full(missing, share)])
    priors = jnp.broadcast_to(state.topic_prior, (missing, state.clusters.shape[1]))
    r = state.responsibilities
    return state._replace(
        weights=dist.Dirichlet(weights),
        clusters=jnp.concatenate([state.clusters, priors]),
        responsibilities=None if r is None else jnp.pad(r, ((0, 0), (0, missing))),
    )


def _chosen(state: PCPVBState, held: np.ndarray) -> PCPVBState:
    r = state.responsibilities
    return state._replace(
        weights=dist.Dirichlet(state.weights.concentration[held]),
        clusters=state.clusters[held],
        responsibilities=None if r is None else r[:, held],
    )
