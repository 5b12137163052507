"""Summaries of a fit, its clusters, and its comparison with other fits.

``summaries`` makes the table of invariants, the posterior of the number of clusters and the ranking of
partitions, ``first_screen`` the text to print, ``comparison`` scores fits against each other, ``model_size``
chooses numbers of components and latents, ``model_criticism`` checks the model against its data,
``sensitivity`` says what the prior decides, ``profiles`` tabulates the answers of a fit. Which quantities a
symmetry cannot change, and whether chains agree on them, is computed in `inference.convergence`.
"""

from inference.convergence.identifiable import invariants
from inference.convergence.partitions import co_clustering, point_partition
from inference.convergence.r_hat import judge, psrf, psrf_path, rhat
from inference.diagnostics.arviz_trees import for_arviz
from inference.diagnostics.comparison import compare, heldout, leave_one_out
from inference.diagnostics.first_screen import summary_text
from inference.diagnostics.model_criticism import check_features
from inference.diagnostics.profile_tables import profile_text, profiles
from inference.diagnostics.sensitivity import prior_sensitivity
from inference.diagnostics.summaries import occupied, summary, summary_cells, top_partitions

__all__ = [
    "check_features",
    "co_clustering",
    "compare",
    "for_arviz",
    "heldout",
    "invariants",
    "judge",
    "leave_one_out",
    "occupied",
    "point_partition",
    "prior_sensitivity",
    "profile_text",
    "profiles",
    "psrf",
    "psrf_path",
    "rhat",
    "summary",
    "summary_cells",
    "summary_text",
    "top_partitions",
]
