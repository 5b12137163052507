r"""The answers of a fit as tables: its clusters, topics, latents and views, and the cells that it fills in.

Nothing here depends on an arbitrary order of labels or on an arbitrary rotation: draws are first brought to
one labelling (`inference.symmetry.relabel`, `inference.symmetry.topics.align_topics`) or turned to the
canonical orientation (`inference.symmetry.align_rotation`).
"""

import pandas as pd
import xarray as xr

__all__ = ["profiles"]


def profiles(
    tree: xr.DataTree, *, probability: float = 0.9, num_rows: int = 5, num_words: int = 10
) -> dict[str, pd.DataFrame]:
    """Tabulate what a fit says about its data, in the data's own units and names.

    The tables, by key and in this order; a fit has those of its kinds. Means are posterior means, ``lb`` and
    ``ub`` the ends of an equal-tailed interval, NaN for a point estimate, which has no uncertainty. Clusters,
    topics, latents and views are numbered from 0, as the coordinates of the tree; ``rank`` counts from 1.

    Clusters of rows (mixtures, mixtures of PCAs) or of documents:

    ``"clusters"``: index ``cluster``, the largest first; columns ``share`` of the rows, ``lb``, ``ub``, and
    ``rows`` (expected number). Clusters that hold less than half a row are left out; the note counts them.

    ``"num_clusters"``: index ``num_clusters``; columns ``probability``, ``mcse`` (under this fit) and, of an
    ascent from several starts, ``starts`` (how many starts within 2 nats of the best end with so many).

    ``"cluster_values"``: index ``cluster``, ``column`` (name), ``quantity`` (``"mean"``, ``"rate"``,
    ``"probability of 1"``, ...); columns ``mean``, ``lb``, ``ub``, ``spread`` (standard deviation of the cells
    within the cluster), ``others`` (mean over the other clusters, by their shares). In the units of the data.

    ``"cluster_differences"``: index ``cluster``, ``rank``; columns ``column``, ``quantity``, ``mean``,
    ``others``, ``difference`` (of mean and others, in standard deviations of the column within clusters),
    ``lb``, ``ub``, ``probability`` (that the sign is right). What sets a cluster apart, the largest first, at
    most ``num_rows`` a cluster.

    ``"cluster_rows"``: index ``cluster``, ``rank``; columns ``row`` (name), ``probability`` (that the cluster
    holds it), ``distance`` (from the cluster, in nats a cell or token below the most typical one: 0 for rank
    1). The most typical rows, at most ``num_rows`` a cluster. Needs the fit's data.

    ``"cluster_directions"`` (mixtures of PCAs): index ``cluster``; effective number and sizes of directions.

    Topics:

    ``"topics"``: index ``topic``, the numbers of the tree; columns ``share`` of all tokens, ``lb``, ``ub``,
    ``words`` (the most probable ones in one string). Sorted by share.

    ``"topic_words"``: index ``topic``, ``rank``; columns ``word``, ``mean`` (probability), ``lb``, ``ub``,
    ``lift`` (times the word's frequency in the documents). ``num_words`` a topic.

    ``"topic_documents"``: index ``topic``, ``rank``; columns ``document`` (name), ``share`` of the topic in its
    tokens. ``num_rows`` a topic.

    ``"cluster_topics"`` (clusters of documents): index ``cluster``, ``topic``; columns ``mean``, ``lb``,
    ``ub``.

    Projections, in the canonical orientation:

    ``"latents"``: index ``latent``, the strongest first; columns ``share`` (of the variance that the model
    explains and does not: the rest is noise), ``lb``, ``ub``, ``cumulative``. Cells that are not Gaussian:
    shares of the variance of the natural parameters. Paired views also have ``kind`` (``"shared"`` or the
    name of the one view that has it) and ``share_0``, ``share_1``, ... of the variance of each view.

    ``"loadings"``: index ``view`` (name of the data site), ``column``, ``latent``; columns ``mean``, ``lb``,
    ``ub``, ``probability`` (that the sign is right).

    ``"columns"``: index ``view``, ``column``; columns ``explained`` (share of the column's variance that the
    latents explain), ``lb``, ``ub``.

    ``"extreme_rows"``: index ``latent``, ``end`` (``"low"``, ``"high"``), ``rank``; columns ``row`` (name),
    ``score``, ``sd`` (posterior standard deviation, NaN where the fit holds none). ``num_rows`` an end.

    ``"canonical_correlations"`` (two views): index ``rank``; columns ``mean``, ``lb``, ``ub``.

    Any fit:

    ``"filled_cells"``: index ``view``, ``row``, ``column``; columns ``mean``, ``sd``: the expectation of each
    missing cell given the observed ones. Only where the fitted data have missing cells that the model fills.

    ``"starts"``: of an ascent from several starts, index ``start``; columns ``objective``, ``behind`` (nats
    below the best), ``occupied`` (clusters, where there are any), the best first.

    Args:
        tree: a fit.
        probability: content of the intervals.
        num_rows: rows, documents or columns named for each cluster, topic or end of a latent.
        num_words: words of a topic.

    Returns:
        Key to table. The attributes of each table: ``title`` (a heading), ``note`` (what the columns are, and
        what was left out with the remedy), ``provisional`` (why not to build on it; empty for a fit that has
        converged) and ``probability``. ``profile_cells(table)`` formats one for print, intervals beside their
        means, and ``profile_text(tree)`` the main ones together.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: it has no draws, or an argument is out of its range.
    """
    raise NotImplementedError
