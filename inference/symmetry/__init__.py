"""Align the draws of a model with a symmetry: one labelling or one orientation for all of them.

``relabel`` gives the components of all draws one numbering (``inference.symmetry.labels``);
``align_rotation`` and ``identify`` turn latent axes to a common or a canonical orientation
(``inference.symmetry.rotation``). All return a new tree and leave R-hat before and after in its attributes.
``components`` and ``component_intervals`` decompose natural parameters (``inference.symmetry.identified``).
Invariants (``inference.diagnostics.invariants``) need neither.
"""

from inference.symmetry.identified import component_intervals, components
from inference.symmetry.labels import relabel
from inference.symmetry.rotation import align_rotation, identify

__all__ = ["align_rotation", "component_intervals", "components", "identify", "relabel"]
