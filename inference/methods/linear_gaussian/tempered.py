r"""Tempered Gibbs sampling of models whose cells are normal about a mean that latents and columns give.

A cell's density to a power is, but for a constant, that of another noise variance :math:`\varphi = \psi /
\beta` times a power of it,

.. math::
    N(x \mid m, \psi)^\beta \propto \varphi^{(1 - \beta) / 2} N(x \mid m, \varphi),

and the prior :math:`\psi \sim \mathrm{InverseGamma}(a, b)` is :math:`\varphi \sim \mathrm{InverseGamma}(a,
b / \beta)`. Both powers of :math:`\varphi` belong together: of n cells with one noise variance, sampling at
power :math:`\beta` is sampling at power 1 with

.. math::
    \mathrm{InverseGamma}\{a - \tfrac{1 - \beta}{2} n,\; b / \beta\}

for the prior of the noise, whose posterior is proper although its first parameter may be negative. So the
model's own sampler runs, with all its blocks and moves, at other numbers; the noise is multiplied by
:math:`\beta` afterwards. The precisions of Student-t rows have no such numbers.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array

from inference.methods.tempered.sampler import TemperedKernel, drawn_from_prior
from inference.numerics.programs import log_densities
from zoo.model import Model
from zoo.ppca import PPCA
from zoo.sppca import SPPCA

NOISE = "noise_variance"  # its sites are called so, of several parts with the part's name behind it


def at_power(
    power: Array, values: dict[str, Array], model: PPCA | SPPCA, *data: Array
) -> tuple[dict[str, Array], Any]:
    """The noise variances, and the model, with which sampling at power 1 is sampling at a power."""
    values, lost, suffixes = dict(values), [], model.roles.loadings.values()
    for suffix, part in zip(suffixes, data, strict=True):
        noise = values.get(NOISE + suffix)
        of_columns = noise is not None and jnp.ndim(noise) > 0
        count = jnp.sum(~jnp.isnan(part), axis=0 if of_columns else None)
        lost.append(jnp.atleast_1d((1 - power) / 2 * count) if len(data) > 1 else (1 - power) / 2 * count)
        if noise is not None:
            values[NOISE + suffix] = noise / power
    lost = jnp.concatenate(lost) if len(data) > 1 else lost[0]
    fields = {
        "noise_concentration": model.noise_concentration - lost,
        "noise_rate": model.noise_rate / power,
    }
    if (given := getattr(model, "noise_variance_x", None)) is not None:
        fields["noise_variance_x"] = given / power
    return values, model.replaced(**fields)


def of_normal_cells(home: Any) -> TemperedKernel:
    """The kernel made of a model's Gibbs sampler.

    Args:
        home: its module, which has ``METHOD``, whose state has ``values`` of all sites, and
            ``recorded(state, model, *data)``, the values to record of a state.
    """
    sampler = home.METHOD

    def step(
        key: Array, power: Array, state: Any, model: PPCA | SPPCA, *data: Array, **options: object
    ) -> Any:
        values, other = at_power(power, state.values, model, *data)
        sweep = sampler.build(sampler.strategies[0], **options).step
        drawn = sweep(key, state._replace(values=values), other, *data)[0].values
        drawn = {name: v * power if name.startswith(NOISE) else v for name, v in drawn.items()}
        return state._replace(values=drawn), jnp.zeros((), bool)

    def prior(key: Array, state: Any, model: Model, *data: Array, **options: object) -> Any:
        values = drawn_from_prior(key, model.explicit, state.values, *data)
        return state._replace(values=values), jnp.zeros((), bool)

    def log_likelihood(state: Any, model: Model, *data: Array) -> Array:
        by_site = log_densities(model.explicit, data, state.values)
        return sum(by_site[name] for name in model.data_names)

    return TemperedKernel(sampler, (step,), prior, log_likelihood, home.recorded)
