"""The variational posterior of a fit as a NumPyro program."""

import json
from collections.abc import Callable
from functools import partial

import xarray as xr

from inference.methods import method_of
from inference.results.files import model_of
from inference.results.groups import group_of

__all__ = ["guide"]


def guide(tree: xr.DataTree) -> Callable:
    """The variational posterior as a program with exactly the sites of ``model.explicit``.

    Called with the same data.

    ``numpyro.infer.Predictive(guide(tree), num_samples=S)(key, x)`` draws from it,
    `inference.calibration.elbo_check` measures its bound, and
    ``numpyro.infer.SVI(model.explicit, guide(tree), ...)`` goes on from it: q's parameters are
    ``numpyro.param`` sites.

    Args:
        tree: a fit by a variational method.

    Returns:
        A program that takes the fitted data.

    Raises:
        ValueError: the fit has no variational posterior.
    """
    model = model_of(tree)
    program = method_of(model, tree.attrs["method"]).guide
    if program is None:
        raise ValueError(
            f"a fit by {tree.attrs['method']!r} has no variational posterior; fit with vb or svi"
        )
    stored = {name: value.to_numpy() for name, value in group_of(tree, "variational").data_vars.items()}
    options = json.loads(tree.attrs["options"])
    own = {"family": options["guide"]} if "guide" in options else {}
    return partial(program, stored, model, **own)
