"""Summaries of a fit, its clusters, and its comparison with other fits.

``tables`` makes the table of invariants, the posterior of the number of clusters and the ranking of
partitions, ``comparison`` scores fits against each other, ``model_size`` chooses numbers of components and
latents, ``model_criticism`` checks the model against its data and its prior, ``profiles`` tabulates the
answers of a fit. Which quantities a symmetry cannot change, and whether chains agree on them, is computed in
`inference.convergence`.
"""

from inference.convergence.identifiable import invariants
from inference.convergence.partitions import co_clustering, point_partition
from inference.convergence.r_hat import judge, psrf, psrf_path
from inference.diagnostics.comparison import compare, heldout, leave_one_out
from inference.diagnostics.model_criticism import check_features, prior_sensitivity
from inference.diagnostics.profiles import profile_cells, profile_text, profiles
from inference.diagnostics.tables import occupied, summary, summary_cells, summary_text, top_partitions

__all__ = [
    "check_features",
    "co_clustering",
    "compare",
    "heldout",
    "invariants",
    "judge",
    "leave_one_out",
    "occupied",
    "point_partition",
    "prior_sensitivity",
    "profile_cells",
    "profile_text",
    "profiles",
    "psrf",
    "psrf_path",
    "summary",
    "summary_cells",
    "summary_text",
    "top_partitions",
]
