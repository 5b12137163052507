r"""Where the EM of a linear-Gaussian model starts: from principal components, from draws, from given values.

The principal components are those of the columns divided by the standard deviation of their noise group,
missing cells at the column's mean. With isotropic noise and nothing missing they are the answer already
(Tipping and Bishop 1999, (7)). ``primary`` restricts them to some groups (the inputs of a supervised
projection); the other columns are then regressed on the latents that these give, and their noise starts at
half their variance. A random start draws the loadings with the columns' own spread: drawn with unit variance
whatever the scale of the data, plain EM needs hundreds of sweeps to forget it.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array

from inference.methods.linear_gaussian.em import Parameters, m_step, moments_of
from inference.methods.linear_gaussian.rows import CompressedRows, SparseRows

__all__ = ["check_given", "given_start", "pca_start", "random_start", "start_of"]


def check_given(variables: Mapping[str, Array], names: tuple[str, ...]) -> None:
    """Raise ValueError if variables to start at lack some of these."""
    missing = [name for name in names if name not in variables]
    if missing:
        told = f"{', '.join(names[:-1])} and {names[-1]}"
        raise ValueError(f"init must hold {told}; missing: {', '.join(missing)}")


def start_of(
    strategy: str, key: Array, rows: CompressedRows, num_latents: int, primary: tuple[int, ...] | None = None
) -> Parameters:
    """The start of that name, ``"pca"`` (of the primary groups; the key is ignored) or ``"random"``."""
    if strategy == "pca":
        return pca_start(rows, num_latents, primary)
    return random_start(key, rows, num_latents)


def random_start(key: Array, rows: CompressedRows | SparseRows, num_latents: int) -> Parameters:
    """Normal loadings with half the variance of each group, the other half noise; the mean of the cells."""
    variance, num_columns = rows.group_variance, rows.group.shape[0]
    scale = jnp.sqrt(variance[rows.group] / (2 * num_latents))
    draws = jax.random.normal(key, (num_columns, num_latents))
    return Parameters(scale[:, None] * draws, jnp.zeros(num_columns), variance / 2)


def pca_start(rows: CompressedRows, num_latents: int, primary: tuple[int, ...] | None = None) -> Parameters:
    """Principal components of the columns of the primary groups, the other columns regressed on them.

    Args:
        rows: the data.
        num_latents: K.
        primary: numbers of the groups whose columns make the components; None: all.
    """
    scale = jnp.sqrt(rows.group_variance)[rows.group]
    chosen = jnp.ones_like(scale)
    if primary is not None:
        chosen = jnp.any(rows.group[:, None] == jnp.asarray(primary), axis=1).astype(scale.dtype)
    parts = [rows.single * jnp.sqrt(rows.single_weight)[:, None]]
    parts += [pattern.rows for pattern in rows.patterns]
    parts += [jnp.sqrt(pattern.count) * pattern.mean[None] for pattern in rows.patterns]
    factor = jnp.concatenate(parts) * (chosen / scale)
    variances, directions = _leading(factor, num_latents)
    variances = variances / rows.total_weight
    cells = jax.ops.segment_sum(rows.cells, rows.group, rows.num_groups) + rows.silent_cells
    wanted = jax.ops.segment_max(chosen, rows.group, rows.num_groups)
    total = wanted @ cells / rows.total_weight  # columns of variance one each
    noise = (total - jnp.sum(variances)) / jnp.maximum(total - num_latents, 1.0)
    noise = jnp.maximum(noise, 1e-3)
    lengths = jnp.sqrt(jnp.maximum(variances - noise, 0.01 * variances + 1e-6))
    loadings = scale[:, None] * directions * lengths
    by_group = noise * rows.group_variance
    first_noise = jnp.where(wanted > 0, by_group, rows.group_variance)
    start = Parameters(loadings, jnp.zeros_like(rows.sums), first_noise)
    if primary is None:
        return start
    regressed, _ = m_step(
        start, moments_of(start, rows), rows, None, center="joint", lowest=jnp.zeros(rows.num_groups)
    )
    own = chosen > 0
    return Parameters(
        jnp.where(own[:, None], start.loadings, regressed.loadings),
        jnp.where(own, start.loc, regressed.loc),
        jnp.where(wanted > 0, start.noise_variance, rows.group_variance / 2),
    )


def given_start(loadings: Array, loc: Array, noise_variance: Array, rows: CompressedRows) -> Parameters:
    """Given parameters in the columns of the data, as parameters of compressed rows.

    Args:
        loadings: shape (num_features, num_latents).
        loc: shape (num_features,).
        noise_variance: by group, shape (num_groups,).
        rows: the data.
    """
    about = loc - rows.original_centre
    if all(basis is None for basis in rows.bases):
        return Parameters(loadings, about, noise_variance)
    turned, shift = [], []
    for basis, own in zip(rows.bases, rows.columns, strict=True):
        turned.append(loadings[own] if basis is None else basis.T @ loadings[own])
        shift.append(about[own] if basis is None else basis.T @ about[own])
    return Parameters(jnp.concatenate(turned), jnp.concatenate(shift), noise_variance)


def _leading(factor: Array, count: int) -> tuple[Array, Array]:
    """The largest ``count`` eigenvalues of factor' factor and their vectors, by its smaller side."""
    if factor.shape[0] >= factor.shape[1]:
        values, vectors = jnp.linalg.eigh(factor.T @ factor)
        return values[::-1][:count], vectors[:, ::-1][:, :count]
    values, vectors = jnp.linalg.eigh(factor @ factor.T)
    values, vectors = values[::-1][:count], vectors[:, ::-1][:, :count]
    return values, factor.T @ vectors / jnp.sqrt(jnp.maximum(values, 1e-300))
