"""Which variable of a program plays which part, for summaries, plots and reports."""

from collections.abc import Mapping
from typing import NamedTuple


class Roles(NamedTuple):
    """Names of the variables that play a part in a model; None or empty: it has no such part.

    Attributes:
        cluster: label of each row's cluster.
        weight: weights of the clusters.
        responsibilities: probability of each cluster for each row, in the group ``variational``.
        occupied: number of clusters that hold rows.
        gaussian: weights, means and covariances of clusters, of a fit that has them.
        subspaces: orthonormal bases and scales of clusters that are low-dimensional subspaces.
        latent: latents of the rows.
        loadings: loadings of each view to the suffix of the view's other variables, as in
            ``{"loadings_x": "_x"}`` beside ``loc_x`` and ``noise_variance_x``.
        topic: word probabilities of the topics.
        document_topic: topic shares of the documents.
        cluster_topic: topic shares of clusters of documents.
        scores: dims of the result of `inference.transform`.
        unit_free: variables without labels or axes that have no unit of the data.
    """

    cluster: str | None = None
    weight: str | None = None
    responsibilities: str = "responsibilities"
    occupied: str = "num_occupied"
    gaussian: tuple[str, ...] = ()
    subspaces: tuple[str, ...] = ()
    latent: str | None = None
    loadings: Mapping[str, str] = {}
    topic: str | None = None
    document_topic: str | None = None
    cluster_topic: str | None = None
    scores: tuple[str, ...] = ("observation", "latent")
    unit_free: tuple[str, ...] = ()
