"""Fitting, prediction and diagnosis of the models of ``zoo``.

Public names are imported when first asked for.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers and editors see of the names that `__getattr__` imports
    from inference import calibration as calibration
    from inference import component_subspaces as component_subspaces
    from inference import diagnostics as diagnostics
    from inference import estimators as estimators
    from inference import gibbs as gibbs
    from inference import plots as plots
    from inference import report as report
    from inference import symmetry as symmetry
    from inference import topics as topics
    from inference.diagnostics.model_size import (
        choose_components_and_latents as choose_components_and_latents,
    )
    from inference.diagnostics.model_size import choose_num_latents as choose_num_latents
    from inference.diagnostics.model_size import (
        choose_num_latents_for_classes as choose_num_latents_for_classes,
    )
    from inference.diagnostics.model_size import choose_shared_and_specific as choose_shared_and_specific
    from inference.diagnostics.model_size import cross_validate as cross_validate
    from inference.evidence import log_evidence as log_evidence
    from inference.explanation import explain as explain
    from inference.extension import extend as extend
    from inference.fitting.front_door import fit as fit
    from inference.inputs.sources import open_rows as open_rows
    from inference.prediction import guide as guide
    from inference.prediction import log_density as log_density
    from inference.prediction import predict as predict
    from inference.prediction import transform as transform
    from inference.processes import join_processes as join_processes
    from inference.program_cache import compile_cache as compile_cache
    from inference.results.files import load as load
    from inference.results.files import model_of as model_of
    from inference.results.files import save as save
    from inference.results.groups import columns_of as columns_of
    from inference.settings import HMC as HMC
    from inference.settings import MAP as MAP
    from inference.settings import NUTS as NUTS
    from inference.settings import SVI as SVI

_PUBLIC = {
    "fit": "fitting.front_door",
    "transform": "prediction",
    "predict": "prediction",
    "log_density": "prediction",
    "open_rows": "inputs.sources",
    "explain": "explanation",
    "log_evidence": "evidence",
    "extend": "extension",
    "guide": "prediction",
    "join_processes": "processes",
    "save": "results.files",
    "load": "results.files",
    "choose_components_and_latents": "diagnostics.model_size",
    "choose_num_latents": "diagnostics.model_size",
    "choose_num_latents_for_classes": "diagnostics.model_size",
    "choose_shared_and_specific": "diagnostics.model_size",
    "cross_validate": "diagnostics.model_size",
    "model_of": "results.files",
    "columns_of": "results.groups",
    "compile_cache": "program_cache",
    "HMC": "settings",
    "MAP": "settings",
    "NUTS": "settings",
    "SVI": "settings",
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


if not TYPE_CHECKING:  # to type checkers a name that is not among the imports above is a mistake

    def __getattr__(name: str) -> Any:
        """Import the public function or the submodule of that name."""
        if name in _PUBLIC:
            return getattr(importlib.import_module(f"inference.{_PUBLIC[name]}"), name)
        if name in _MODULES:
            return importlib.import_module(f"inference.{name}")
        raise AttributeError(f"module 'inference' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, *_MODULES])


def _html_of_tree(tree: Any) -> str:
    """The card of a fit, imported when the first tree is shown."""
    return importlib.import_module("inference.diagnostics.notebook_cards").html_of_tree(tree)


def _show_cards_in_notebooks() -> None:
    """Let a running IPython show fits as cards; nothing is imported for it."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None and getattr(shell, "display_formatter", None) is not None:
        formatter = shell.display_formatter.formatters["text/html"]
        formatter.for_type_by_name("xarray.core.datatree", "DataTree", _html_of_tree)


_show_cards_in_notebooks()
