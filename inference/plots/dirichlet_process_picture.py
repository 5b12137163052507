"""Draws from a Dirichlet process beside its base measure, as in Yu (2006), Figure 3.2."""

import jax
import numpy as np
import numpyro.distributions as dist
from matplotlib.figure import Figure

from inference.plots.palette import COLOURS
from inference.precision import double_precision
from zoo.polya_urn import polya_urn

__all__ = ["plot_dirichlet_process"]


@double_precision
def plot_dirichlet_process(
    concentrations: tuple[float, ...] = (10.0, 10_000.0),
    num_draws: int = 10_000,
    base: dist.Distribution | None = None,
    seed: int = 0,
) -> Figure:
    """Values drawn from DP(alpha, base), one panel for each alpha, over the density of the base measure.

    A small concentration repeats a few values many times; a large one comes close to the base measure.

    Args:
        concentrations: one panel each.
        num_draws: values per panel.
        base: the base measure; by default a standard normal, as in the figure.
        seed: of the draws.

    Returns:
        The figure.

    Raises:
        ValueError: no concentration, or one that is not positive, or fewer than one draw.
    """
    if not concentrations:
        raise ValueError("concentrations is empty: give at least one")
    base = dist.Normal(0.0, 1.0) if base is None else base
    figure = Figure(figsize=(8.0, 2.3 * len(concentrations) + 0.6), layout="constrained")
    panels = figure.subplots(len(concentrations), 1, sharex=True, squeeze=False)[:, 0]
    for number, (axes, alpha) in enumerate(zip(panels, concentrations, strict=True)):
        key = jax.random.fold_in(jax.random.key(seed), number)
        values = np.asarray(polya_urn(key, alpha, num_draws, base))
        atoms, counts = np.unique(values, return_counts=True)
        spread = 4.2 * float(np.sqrt(base.variance))
        grid = np.linspace(float(base.mean) - spread, float(base.mean) + spread, 400)
        edges = np.linspace(grid[0], grid[-1], 151)
        axes.hist(
            values, edges, density=True, color=COLOURS[0], alpha=0.75, label=f"{num_draws:,} draws, binned"
        )
        axes.plot(grid, np.exp(base.log_prob(grid)), color=COLOURS[1], lw=2, label="base measure")
        axes.set_title(
            f"concentration {alpha:g}: {len(atoms):,} distinct values, one drawn {counts.max():,} times",
            loc="left",
            fontsize=10,
        )
        axes.set_ylabel("density")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
    panels[-1].set_xlabel("value")
    return figure
