"""NumPyro, loaded whole, whoever imported what before.

ArviZ 1.x leaves ``numpyro`` in ``sys.modules`` as a lazy stub. ``import numpyro.distributions`` on the stub
loads that package twice, and the second copy lacks its submodules as attributes, on which NumPyro's own
samplers rely. Attaching them again is harmless when nothing is missing.
"""

import sys

import numpyro

__all__ = ["attach_submodules"]


def attach_submodules() -> None:
    """Make every loaded submodule of NumPyro an attribute of its package, as the import system does."""
    numpyro.distributions  # noqa: B018  (touching an attribute is what loads a stub)
    for name, module in list(sys.modules.items()):
        parent, _, child = name.rpartition(".")
        if parent.split(".")[0] == "numpyro" and not hasattr(sys.modules[parent], child):
            setattr(sys.modules[parent], child, module)
