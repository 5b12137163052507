"""The start of a run: a strategy by name, given variables, or a former fit."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from inference.algorithm import Ascent, AscentSettings, Direct, Method, SamplerSettings
from inference.results.groups import group_of

__all__ = ["read_init"]


def read_init(
    init: Any, method: Method, settings: AscentSettings | SamplerSettings
) -> tuple[str, dict[str, np.ndarray] | None]:
    """The start strategy, and given variables: for a sampler with a leading axis over chains.

    Raises:
        TypeError: ``init`` is nothing of the kind.
        ValueError: an unknown strategy, or a method that starts nowhere.
    """
    if isinstance(method, Direct):
        if init is not None:
            raise ValueError("a method that solves directly starts nowhere: leave init out")
        return "none", None
    if init is None:
        return method.strategies[0], None
    if isinstance(init, str):
        if init not in method.strategies:
            raise ValueError(
                f"init must be one of {', '.join(method.strategies)}, a former tree, or a dict of variables; "
                f"got {init!r}"
            )
        return init, None
    lanes = getattr(settings, "num_chains", None) or settings.num_restarts
    if isinstance(init, xr.DataTree):
        if not isinstance(method, Ascent):
            return method.strategies[0], _draws_to_start_from(init, lanes)
        values = _best_of(init)
    elif isinstance(init, Mapping):
        values = {name: np.asarray(value) for name, value in init.items()}
    else:
        raise TypeError(
            f"init must be a strategy name, a former tree or a dict of variables; got {type(init).__name__}"
        )
    return method.strategies[0], {
        name: np.broadcast_to(value, (lanes, *value.shape)) for name, value in values.items()
    }


def _best_of(tree: xr.DataTree) -> dict[str, np.ndarray]:
    """What an ascent starts from.

    The parameters of q, or the draw with the highest likelihood (the last, without it).
    """
    if "variational" in tree.children:
        return {name: value.to_numpy() for name, value in group_of(tree, "variational").data_vars.items()}
    posterior = group_of(tree, "posterior")
    chain, draw = 0, -1
    if "log_likelihood" in tree.children:
        density = tree["log_likelihood"]["log_likelihood"].to_numpy().sum(-1)
        chain, draw = np.unravel_index(density.argmax(), density.shape)
    return {name: value.to_numpy()[chain, draw] for name, value in posterior.data_vars.items()}


def _draws_to_start_from(tree: xr.DataTree, lanes: int) -> dict[str, np.ndarray]:
    """What chains start from: the last draw of each, if there are as many.

    Else draws evenly spread over all.
    """
    posterior = group_of(tree, "posterior")
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    if chains == lanes:
        return {name: value.to_numpy()[:, -1] for name, value in posterior.data_vars.items()}
    flat = np.linspace(0, chains * draws - 1, lanes).round().astype(int)
    return {
        name: value.to_numpy().reshape(chains * draws, *value.shape[2:])[flat]
        for name, value in posterior.data_vars.items()
    }
