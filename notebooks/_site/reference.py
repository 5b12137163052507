"""The reference: a page for each module that users import from, with every name that it exports."""

import importlib
import inspect
from pathlib import Path

__all__ = ["MODULES", "public_names", "write"]

#: The modules whose ``__all__`` is public, in the order of the menu, and what each is for.
MODULES = {
    "zoo": "Models",
    "zoo.conjugate": "Component families of mixtures",
    "zoo.exponential_family": "Families of cells",
    "zoo.kernels": "Kernels",
    "zoo.datasets": "Data sets",
    "zoo.posteriors": "Reference posteriors",
    "inference": "Fitting and predicting",
    "inference.diagnostics": "Diagnostics",
    "inference.symmetry": "Labels and rotations",
    "inference.plots": "Plots",
    "inference.report": "Reports",
    "inference.topics": "Topics",
    "inference.component_subspaces": "Subspaces of components",
    "inference.calibration": "Checks of models and algorithms",
    "inference.gibbs": "Gibbs samplers as NumPyro kernels",
    "inference.estimators": "scikit-learn estimators",
}
INDEX = """# Reference

Every public name, by the module from which it is imported.

```{toctree}
:maxdepth: 2

PAGES
```
"""


def public_names(module):
    """Names that a module exports, each with the object behind it.

    Args:
        module: its dotted name.

    Returns:
        Dict from name to object, in the order of ``__all__``.
    """
    face = importlib.import_module(module)
    return {name: getattr(face, name) for name in face.__all__}


def write(folder):
    """Write a page for each module of `MODULES`, and an index.

    Args:
        folder: where to; it is made if missing.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for module, title in MODULES.items():
        (folder / f"{module}.rst").write_text(_page(module, title), encoding="utf-8")
    (folder / "index.md").write_text(INDEX.replace("PAGES", "\n".join(MODULES)), encoding="utf-8")


def _page(module, title):
    heading = f"{title} (``{module}``)"
    lines = [heading, "=" * len(heading), "", f".. automodule:: {module}", "   :no-members:", ""]
    for name, value in public_names(module).items():
        if inspect.isclass(value):
            lines += [f".. autoclass:: {module}.{name}", "   :members:", ""]
        elif callable(value):
            lines += [f".. autofunction:: {module}.{name}", ""]
        else:
            lines += [f".. autodata:: {module}.{name}", "   :no-value:", ""]
    return "\n".join(lines)
