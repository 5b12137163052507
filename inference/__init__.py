"""How it is computed: fitting.

Predicting and diagnosing the models of ``zoo``. Public names are imported when first asked for.
"""

import importlib
from typing import Any

_PUBLIC = {
    "fit": "front_door",
    "transform": "prediction",
    "predict": "prediction",
    "log_density": "prediction",
    "extend": "extension",
    "guide": "posterior_guide",
    "save": "results",
    "load": "results",
    "choose_components_and_latents": "num_components_and_latents",
    "choose_num_latents": "num_latents",
    "cross_validate": "cross_validation",
    "model_of": "results",
}
_MODULES = (
    "calibration",
    "component_subspaces",
    "diagnostics",
    "estimators",
    "gibbs",
    "plots",
    "report",
    "symmetry",
    "topics",
)

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    """The public function, or the submodule, of that name."""
    if name in _PUBLIC:
        return getattr(importlib.import_module(f"inference.{_PUBLIC[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"inference.{name}")
    raise AttributeError(f"module 'inference' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, *_MODULES])
