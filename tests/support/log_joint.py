"""The log joint density of a program, which most proofs of a model or a method compare with."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.infer.util import log_density

from inference.precision import in_precision

__all__ = ["log_joint"]


def log_joint(program: Any, values: dict, *data: Any) -> Array:
    """Log density in double precision of all sites of a program, those observed among them.

    Args:
        program: a model of the zoo, its explicit form, or any function.
        values: site name to value.
        data: the program's arguments.
    """
    with in_precision():  # not compiled as one: hundreds of models here differ in their constants alone
        values, data = jax.tree.map(jnp.asarray, (dict(values), data))
        return log_density(program, data, {}, values)[0]
