"""Summaries of a fit, its clusters, and its comparison with other fits.

``tables`` makes the table of invariants, the posterior of the number of clusters and the ranking of
partitions, ``first_screen`` the text to print, ``comparison`` scores fits against each other, ``model_size``
chooses numbers of components and latents, ``model_criticism`` checks the model against its data and its
prior, ``profiles`` tabulates the answers of a fit. Which quantities a symmetry cannot change, and whether
chains agree on them, is computed in `inference.convergence`.
"""

from inference.convergence.identifiable import invariants
from inference.convergence.partitions import co_clustering, point_partition
from inference.convergence.r_hat import judge, psrf, psrf_path
from inference.diagnostics.arviz_trees import for_arviz
from inference.diagnostics.cards import card, html_of_tree
from inference.diagnostics.comparison import compare, heldout, judge_leave_one_out, leave_one_out
from inference.diagnostics.first_screen import summary_text
from inference.diagnostics.model_criticism import (
    check_features,
    check_predictions,
    judge_features,
    judge_prior,
    prior_sensitivity,
)
from inference.diagnostics.profile_tables import profile_cells, profile_text, profiles
from inference.diagnostics.tables import occupied, summary, summary_cells, top_partitions

__all__ = [
    "card",
    "check_features",
    "check_predictions",
    "co_clustering",
    "compare",
    "for_arviz",
    "heldout",
    "html_of_tree",
    "invariants",
    "judge",
    "judge_features",
    "judge_leave_one_out",
    "judge_prior",
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
