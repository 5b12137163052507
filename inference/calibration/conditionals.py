r"""Gibbs conditionals against the log joint of the program.

If q is the conditional of a block given the rest, then for any two values a and b of the block :math:`\log
p(a, \text{rest}) - \log p(b, \text{rest}) = \log q(a) - \log q(b)`: normalising constants cancel. It is exact
up to rounding, but sees one block at a time: an algorithm that passes stale values on, or reuses a key, is
for `inference.calibration.joint_distribution` to find.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.calibration.verdicts import ConditionalVerdict
from inference.numerics.programs import (
    call_compiled,
    check_arguments,
    check_latents,
    explicit_form,
    latent_sites,
    log_densities,
)
from inference.precision import double_precision
from zoo.checks import check_seed


@double_precision
def conditional_check(
    model: Callable,
    conditional: Callable,
    values: Mapping[str, Any],
    data: tuple,
    *,
    seed: int = 0,
    num_draws: int = 8,
    max_rows: int = 50,
    threshold: float = 1e-8,
) -> ConditionalVerdict:
    """Whether a Gibbs sampler's conditional of a block of sites is the one that the program implies.

    The block is drawn ``num_draws`` times, site after site, each given the ones before it, so that a
    collapsed draw followed by a conditional one is checked as a whole. The log joint minus the log
    conditionals must be the same at every draw; it is computed with the distributions as they were when drawn
    from, and again with those seen once the whole block is drawn: a distribution that reads a site's old
    value, or one that comes later in the block, differs between the two. Of a categorical site that ends the
    block, every category of up to ``max_rows`` rows is compared as well.

    Args:
        model: a program, or a model of the zoo, whose explicit form is taken.
        conditional: ``conditional(values, model, *data)`` gives ``{site: Distribution}`` in the order of
            drawing; the densities may be unnormalised, by a factor that does not depend on the block.
        values: every latent site of the program, in constrained space.
        data: the arguments of the program.
        seed: seed of the draws and of the choice of rows.
        num_draws: draws of the block, at least 2.
        max_rows: rows of a categorical site whose every category is tried.
        threshold: largest error allowed, relative to the largest log density (or 1 nat).

    Returns:
        The verdict; deterministic but for the seed, so its false alarm rate is 0.

    Raises:
        TypeError: ``data`` is not a tuple.
        ValueError: ``values`` lacks a latent site, has others, or has other shapes; the block has a site that
            the program lacks, or draws it in another shape; ``num_draws`` below 2.
    """
    check_arguments(data)
    if num_draws < 2:
        raise ValueError(f"num_draws must be at least 2, to compare them; got {num_draws}")
    check_seed(seed)
    program = explicit_form(model)
    latents = latent_sites(program, *data)
    check_latents({name: np.shape(value) for name, value in values.items()}, latents, "values")
    values = {name: jnp.asarray(value) for name, value in values.items()}
    order: list[str] = []  # of drawing, which a result that is traced loses

    def drawn_once() -> dict[str, Any]:
        found = _draw_block(jax.random.key(0), conditional, values, model, data)[0]
        order[:] = found
        return found

    block = jax.eval_shape(drawn_once)
    strangers = [name for name in block if name not in latents]
    if strangers or not block:
        raise ValueError(
            f"a block must have sites of the program {sorted(latents)}; this one has {sorted(block)}"
        )
    shapes = {name: site.shape for name, site in (latents | block).items()}
    check_latents(shapes, latents, "a draw of the block")
    last = order[-1]
    key, row_key = jax.random.split(jax.random.key(seed))
    drawn, *terms = zip(
        *(
            call_compiled(_draw_and_evaluate, draw_key, conditional, values, model, program, data)
            for draw_key in jax.random.split(key, num_draws)
        ),
        strict=True,
    )
    log_p, log_q, log_q_after = np.asarray(terms, float)
    errors = {"block": max(_spread(np.subtract(log_p, q)) for q in (log_q, log_q_after))}
    scale = max(1.0, float(np.max(np.abs([log_p, log_q]))))
    site = latents[last]
    if site.kind == "label" and len(site.shape) <= 1:
        size = site.shape[0] if site.shape else 1
        rows = jax.random.permutation(row_key, size)[:max_rows]
        given = drawn[0] | {last: values[last]}
        arguments = (last, rows, conditional, given, model, program, data)
        errors[last] = _label_error(*map(np.asarray, call_compiled(_flip_labels, *arguments)))
    statistic = max(errors.values()) / scale if np.isfinite(scale) else np.inf
    return ConditionalVerdict(
        statistic=float(statistic),
        threshold=float(threshold),
        false_alarm_rate=0.0,
        passed=bool(statistic <= threshold),
        errors=errors,
    )


def _draw_block(key: jax.Array, conditional: Callable, values: dict, model: Callable, data: tuple) -> tuple:
    """The block drawn site after site from its conditionals, and its log density on the way."""
    names = list(conditional(values, model, *data))
    drawn, log_q = {}, jnp.zeros(())
    for name, site_key in zip(names, jax.random.split(key, len(names)), strict=True):
        distribution = conditional({**values, **drawn}, model, *data)[name]
        drawn[name] = distribution.sample(site_key)
        log_q += jnp.sum(distribution.log_prob(drawn[name]))
    return drawn, log_q


def _draw_and_evaluate(
    key: jax.Array, conditional: Callable, values: dict, model: Callable, program: Callable, data: tuple
) -> tuple:
    drawn, log_q = _draw_block(key, conditional, values, model, data)
    new = {**values, **drawn}
    after = conditional(new, model, *data)
    log_q_after = sum(jnp.sum(after[name].log_prob(new[name])) for name in drawn)
    return new, sum(log_densities(program, data, new).values()), log_q, log_q_after


def _flip_labels(
    name: str, rows: Array, conditional: Callable, held: dict, model: Callable, program: Callable, data: tuple
) -> tuple:
    """Log joint and conditional with one row set to each category: two arrays (num_rows, num_categories)."""
    distribution = conditional(held, model, *data)[name]
    categories = distribution.enumerate_support(expand=False).ravel().astype(held[name].dtype)
    labels = jnp.atleast_1d(held[name])

    def joint(row: jax.Array, category: jax.Array) -> jax.Array:
        flipped = labels.at[row].set(category).reshape(held[name].shape)
        return sum(log_densities(program, data, {**held, name: flipped}).values())

    def logits(category: jax.Array) -> jax.Array:
        return jnp.atleast_1d(distribution.log_prob(jnp.full_like(held[name], category)))[rows]

    log_joint = jax.lax.map(lambda row: jax.vmap(lambda c: joint(row, c))(categories), rows)
    return log_joint, jax.vmap(logits, out_axes=1)(categories)


def _label_error(log_joint: np.ndarray, logits: np.ndarray) -> float:
    """Worst difference of the two after each row is centred; a category impossible in both agrees."""
    both_impossible = np.isneginf(log_joint) & np.isneginf(logits)
    difference = np.ma.masked_array(log_joint - np.where(both_impossible, 0.0, logits), both_impossible)
    return max(_spread(row.compressed()) for row in difference)


def _spread(differences: np.ndarray) -> float:
    """Largest minus smallest; infinite if a difference is not finite."""
    return float(np.ptp(differences)) if np.all(np.isfinite(differences)) else np.inf
