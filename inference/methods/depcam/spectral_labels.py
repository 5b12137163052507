r"""Normalised spectral clustering of rows by landmarks, in time linear in the number of rows.

Rows are joined to L landmarks (all rows, or as many drawn at random) by self-tuning weights
:math:`Z_{nl} = \exp\{-|x_n - x_l|^2 / (\sigma_n \sigma_l)\}`, :math:`\sigma` the distance to the seventh
nearest landmark (Zelnik-Manor and Perona 2004). With the degrees of rows and landmarks in R and C, the
leading left singular vectors of :math:`R^{-1/2} Z C^{-1/2}` are those of the normalised affinity
:math:`R^{-1/2} Z C^{-1} Z' R^{-1/2}` (Dhillon 2001; Chen and Cai 2011), found from an L x L matrix. Their
rows, brought to length one, are clustered by k-means (Ng, Jordan and Weiss 2002): groups of any shape that
hang together, where k-means asks for round ones. Cost O(N L D + N L^2 + L^3).
"""

import jax
import jax.numpy as jnp
from jax import Array

from inference.methods.mixture.starts import kmeans_labels

__all__ = ["spectral_labels"]

LANDMARKS = 500
NEIGHBOUR = 7


def spectral_labels(key: Array, z: Array, num_clusters: int) -> Array:
    """The cluster of each row, shape (num_observations,).

    Args:
        key: random key: of the landmarks, where there are more rows than those, and of k-means.
        z: rows without missing cells.
        num_clusters: how many clusters.
    """
    landmark_key, cluster_key = jax.random.split(key)
    if z.shape[0] > LANDMARKS:
        chosen = jax.random.choice(landmark_key, z.shape[0], (LANDMARKS,), replace=False)
    else:
        chosen = jnp.arange(z.shape[0])
    landmarks = z[chosen]
    squares = jnp.sum(z**2, axis=-1)[:, None] - 2.0 * z @ landmarks.T + jnp.sum(landmarks**2, axis=-1)
    distance = jnp.sqrt(jnp.maximum(squares, 0.0))
    neighbour = min(NEIGHBOUR, landmarks.shape[0] - 1)
    width = jnp.sort(distance, axis=1)[:, neighbour]  # the nearest of a landmark is itself
    width = jnp.where(width > 0, width, 1.0)
    weights = jnp.exp(-(distance**2) / (width[:, None] * width[chosen]))
    tiny = jnp.finfo(z.dtype).tiny
    rows, columns = jnp.sum(weights, axis=1), jnp.sum(weights, axis=0)
    scaled = weights / jnp.sqrt(jnp.maximum(rows, tiny))[:, None] / jnp.sqrt(jnp.maximum(columns, tiny))
    values, vectors = jnp.linalg.eigh(scaled.T @ scaled)
    leading = scaled @ vectors[:, -num_clusters:] / jnp.sqrt(jnp.maximum(values[-num_clusters:], tiny))
    length = jnp.linalg.norm(leading, axis=1, keepdims=True)
    return kmeans_labels(cluster_key, leading / jnp.where(length > 0, length, 1.0), num_clusters)
