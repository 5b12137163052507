"""A Gibbs sweep: blocks of sites, drawn in turn.

Two kinds of block. A *conditional* is a function ``block(values, model, *data)`` that returns
``{site: Distribution}`` in the order of drawing, the very objects that
`inference.calibration.conditional_check` compares with the program. A `Move` changes values by another Markov
kernel (Metropolis-Hastings, say) that leaves their joint distribution given the data invariant;
`inference.calibration.geweke` is its proof.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
from jax import Array

from inference.numerics.gamma_draws import draw
from inference.numerics.host_keys import folded
from zoo.model import Model
from zoo.shapes import Values

SITES = 4  # of a block whose keys are made at once


class Move(NamedTuple):
    """A block that changes values by a Markov kernel instead of a draw from a conditional.

    Attributes:
        apply: ``apply(key, values, model, *data) -> values``, all sites, of the same shapes and types.
    """

    apply: Callable


def sweep(
    key: Array, values: Values, blocks: tuple[Callable | Move, ...], model: Model, *data: Array
) -> dict[str, Array]:
    """Draw every block in turn; within a block, site after site, so that later sites see earlier ones.

    Args:
        key: a JAX key.
        values: site name to value.
        blocks: what to do, in order.
        model: passed to the blocks.
        *data: passed to the blocks.

    Returns:
        Values after the sweep.
    """
    values = dict(values)
    block_keys = folded(key, len(blocks))
    site_keys = jax.vmap(partial(folded, count=SITES))(block_keys)
    for number, block in enumerate(blocks):
        block_key = block_keys[number]
        if isinstance(block, Move):
            values = dict(block.apply(block_key, values, model, *data))
            continue
        place = 0  # a block may offer its later sites once earlier ones are drawn
        while place < len(conditionals := block(values, model, *data)):
            site, conditional = list(conditionals.items())[place]
            own = site_keys[number, place] if place < SITES else jax.random.fold_in(block_key, place)
            values = values | {site: draw(own, conditional)}
            place += 1
    return values
