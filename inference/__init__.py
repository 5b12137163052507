"""Fitting, prediction and diagnosis of the models of ``zoo``.

Public names are imported when first asked for.
"""

import importlib
from typing import Any

import zoo  # noqa: F401 - which lets former names of modules be imported

_PUBLIC = {
    "fit": "fitting.front_door",
    "transform": "prediction",
    "predict": "prediction",
    "log_density": "prediction",
    "extend": "extension",
    "guide": "prediction",
    "save": "results.files",
    "load": "results.files",
    "choose_components_and_latents": "diagnostics.model_size",
    "choose_num_latents": "diagnostics.model_size",
    "cross_validate": "diagnostics.model_size",
    "model_of": "results.files",
    "columns_of": "results.groups",
    "compile_cache": "program_cache",
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
    """Import the public function or the submodule of that name."""
    if name in _PUBLIC:
        return getattr(importlib.import_module(f"inference.{_PUBLIC[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"inference.{name}")
    raise AttributeError(f"module 'inference' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, *_MODULES])
