"""Pictures of a fit: one function each, returning a ``matplotlib.figure.Figure``.

No global state of pyplot is touched and nothing is shown: save the figure (``figure.savefig(path)``) or let a
notebook display it. Colours are those of Okabe and Ito (2008), which remain distinct for colour-blind
readers; markers and line styles repeat the distinction. ``plt.style.use("inference.plots.course")`` gives
figures made with pyplot the same look.
"""

from inference.plots.co_clustering import plot_co_clustering
from inference.plots.components import (
    plot_component_similarity,
    plot_hinton,
    plot_loading_products,
    plot_overlap,
)
from inference.plots.draws import plot_ppc, plot_rank, plot_scree, plot_trace
from inference.plots.films import film
from inference.plots.fits import plot_mixture, plot_objective, plot_psrf_path
from inference.plots.mixtures import plot_dirichlet_process, plot_em
from inference.plots.model_graph import plot_model_graph
from inference.plots.palette import COLOURS, LINES, MARKERS
from inference.plots.projections import plot_biplot, plot_loadings
from inference.plots.topics import plot_clusters, plot_document_check, plot_document_clusters, plot_topics

__all__ = [
    "COLOURS",
    "LINES",
    "MARKERS",
    "film",
    "plot_biplot",
    "plot_clusters",
    "plot_co_clustering",
    "plot_component_similarity",
    "plot_dirichlet_process",
    "plot_document_check",
    "plot_document_clusters",
    "plot_em",
    "plot_hinton",
    "plot_loading_products",
    "plot_loadings",
    "plot_mixture",
    "plot_model_graph",
    "plot_objective",
    "plot_overlap",
    "plot_ppc",
    "plot_psrf_path",
    "plot_rank",
    "plot_scree",
    "plot_topics",
    "plot_trace",
]
