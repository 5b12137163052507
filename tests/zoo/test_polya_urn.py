"""Three ways to draw from a Dirichlet process are equal in law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from inference.plots import plot_dirichlet_process
from zoo.dirichlet_process import chinese_restaurant, polya_urn, stick_breaking_draw

WAYS = {"urn": polya_urn, "restaurant": chinese_restaurant, "sticks": stick_breaking_draw}
ALPHA, DRAWS, REPLICATES = 2.5, 30, 4000


def distinct_law(alpha, n):
    """Exact law of the number of distinct values among n draws."""
    law = np.array([1.0])
    for i in range(n):
        new = alpha / (alpha + i)
        law = np.append(law * (1 - new), 0) + np.append(0, law * new)
    return law


def replicates(way, alpha=ALPHA):
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), REPLICATES)
        return np.asarray(jax.jit(jax.vmap(lambda key: way(key, alpha, DRAWS)))(keys))


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


@pytest.mark.parametrize("way", WAYS)
def test_draws_have_the_law_of_the_process(way):
    """Three tests at 1e-4 each for three ways: false alarms below 1e-3. Another concentration must fail."""
    assert min(p_values(replicates(WAYS[way]))) > 1e-4
    assert min(p_values(replicates(WAYS[way], alpha=1.15 * ALPHA))) < 1e-4


def test_every_draw_of_a_tiny_concentration_is_the_same_and_of_a_huge_one_new():
    for way in (polya_urn, chinese_restaurant):
        assert len(np.unique(way(jax.random.key(1), 1e-9, 50))) == 1
        assert len(np.unique(way(jax.random.key(1), 1e9, 50))) == 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 5), "concentration must be positive; got 0.0"),
        ((1.0, 0), "num_draws must be at least 1; got 0"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    for way in WAYS.values():
        with pytest.raises(ValueError, match=message):
            way(jax.random.key(0), *arguments)
    with pytest.raises(ValueError, match="leftover must lie between 0 and 1"):
        stick_breaking_draw(jax.random.key(0), 1.0, 5, leftover=2.0)


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
