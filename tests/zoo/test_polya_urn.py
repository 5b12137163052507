"""Draws from a Dirichlet process."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from inference.plots import plot_dirichlet_process
from zoo.dirichlet_process import polya_urn

ALPHA, DRAWS, REPLICATES = 2.5, 30, 4000


def distinct_law(alpha, n):
    """Exact law of the number of distinct values among n draws."""
    law = np.array([1.0])
    for i in range(n):
        new = alpha / (alpha + i)
        law = np.append(law * (1 - new), 0) + np.append(0, law * new)
    return law


def replicates(alpha=ALPHA):
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), REPLICATES)
        return np.asarray(jax.jit(jax.vmap(lambda key: polya_urn(key, alpha, DRAWS)))(keys))


def p_values(values):
    """Number of distinct values (chi-square), coincidence of the first and last draw, law of one draw."""
    distinct = np.array([len(np.unique(row)) for row in values])
    expected = distinct_law(ALPHA, DRAWS) * len(values)
    common = expected > 5
    observed = np.bincount(distinct, minlength=len(expected))
    table = [np.append(c[common], c[~common].sum()) for c in (observed, expected)]
    same = (values[:, 0] == values[:, -1]).sum()
    return (
        scipy.stats.chisquare(*table).pvalue,
        scipy.stats.binomtest(int(same), len(values), 1 / (1 + ALPHA)).pvalue,
        scipy.stats.kstest(values[:, -1], "norm").pvalue,
    )


def test_draws_have_the_law_of_the_process():
    """Three tests at 1e-4 each: false alarms below 3e-4. Another concentration must fail."""
    assert min(p_values(replicates())) > 1e-4
    assert min(p_values(replicates(alpha=1.15 * ALPHA))) < 1e-4


def test_every_draw_of_a_tiny_concentration_is_the_same_and_of_a_huge_one_new():
    assert len(np.unique(polya_urn(jax.random.key(1), 1e-9, 50))) == 1
    assert len(np.unique(polya_urn(jax.random.key(1), 1e9, 50))) == 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 5), "concentration must be positive; got 0.0"),
        ((1.0, 0), "num_draws must be at least 1; got 0"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        polya_urn(jax.random.key(0), *arguments)


def test_picture_shows_few_and_many_distinct_values():
    figure = plot_dirichlet_process((2.0, 1000.0), num_draws=500)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    few, many = (int(title.split(": ")[1].split(" ")[0].replace(",", "")) for title in titles)
    assert few < 40 < 250 < many
    with pytest.raises(ValueError, match="concentrations is empty"):
        plot_dirichlet_process(())


def test_drawing_is_the_same_for_the_same_key():
    same = [polya_urn(jax.random.key(3), 1.0, 20) for _ in range(2)]
    assert jnp.array_equal(*same)
