"""Former names of modules, which can be imported for one more release with a DeprecationWarning."""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["MOVED", "install"]

#: Former name of a module that the README or the notebooks imported to where its public names are now.
MOVED = {
    "zoo.joint_prior": "zoo.exponential_family.joint_prior",
    "zoo.sparse_counts": "zoo.sparse",
    "zoo.sparse_matrix": "zoo.sparse",
    "inference.comparison": "inference.diagnostics.comparison",
    "inference.document_checks": "inference.topics.document_checks",
    "inference.identifiable": "inference.convergence.identifiable",
    "inference.palette": "inference.plots.palette",
    "inference.predictive_checks": "inference.diagnostics.model_criticism",
}


class _Redirect:
    """Import hook that resolves the former name of a module to the present module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a former name; None for other names."""
        return ModuleSpec(fullname, self) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> None:
        """An empty module, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        """Import the module at its present place under its former name."""
        now = MOVED[module.__name__]
        warnings.warn(f"{module.__name__} is now {now}", DeprecationWarning, stacklevel=2)
        sys.modules[module.__name__] = importlib.import_module(now)


def install() -> None:
    """Install the import hook for former names, once."""
    if not any(isinstance(finder, _Redirect) for finder in sys.meta_path):
        sys.meta_path.append(_Redirect())
