"""Draws of a model with a symmetry, brought to one labelling or one orientation.

``relabel`` numbers components alike in all draws (``inference.label_switching``); ``align_rotation`` and
``identify`` turn latent axes to a common or a canonical orientation (``inference.rotation``). All return a
new tree and leave R-hat before and after in its attributes. ``components`` and ``component_intervals``
decompose natural parameters (``inference.identified_components``). Invariants
(``inference.diagnostics.invariants``) need neither.
"""

from inference.identified_components import component_intervals, components
from inference.label_switching import relabel
from inference.rotation import align_rotation, identify

__all__ = ["align_rotation", "component_intervals", "components", "identify", "relabel"]
