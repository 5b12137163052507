"""Local latents that a program sums out, drawn afterwards from their exact conditionals.

For every draw of everything else.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpyro
from jax import Array

from inference.numerics.draws import map_draws

__all__ = ["draw_locals", "sample_locals"]


def sample_locals(model: Any, values: Mapping[str, Array], *data: Any) -> dict[str, Array]:
    """The local latents given everything else, as NumPyro statements."""
    rows = data[0].shape[0]
    with numpyro.plate("observations", rows):
        return {
            site: numpyro.sample(
                site, conditional, infer={"enumerate": "parallel"} if conditional.is_discrete else None
            )
            for site, conditional in model.local_conditionals(values, *data).items()
        }


@partial(jax.jit, static_argnames="keep_rows")
def draw_locals(
    key: Array, draws: dict[str, Array], model: Any, data: tuple, keep_rows: bool
) -> dict[str, Array]:
    """One draw of the local latents, and what follows from them, for every draw of the other sites.

    Args:
        key: random key.
        draws: site name to draws, leading dims (chain, draw).
        model: the model.
        data: the data.
        keep_rows: whether values per row are returned, or only what `Model.derived` makes of them.
    """

    def one(args: tuple) -> dict[str, Array]:
        key, values = args
        conditionals = model.local_conditionals(values, *data).items()
        local = {site: d.sample(jax.random.fold_in(key, i)) for i, (site, d) in enumerate(conditionals)}
        derived = model.derived(values | local)
        return derived if keep_rows else {name: value for name, value in derived.items() if name not in local}

    return map_draws(one, key, draws)
