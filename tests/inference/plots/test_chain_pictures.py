"""Traces and ranks of invariants: the worst first, nothing per row, level lines for chains that agree."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from planted import planted_mixture, planted_regression, planted_zoo, variational_mixture

from inference.convergence.r_hat import mixing
from inference.plots import plot_rank, plot_trace
from inference.plots.chains import _ranks


@pytest.fixture(scope="module", autouse=True)
def of_planted_models():
    with planted_zoo():
        yield


def _names(figure):
    return [axis.get_title(loc="left").partition("\n")[0] for axis in figure.axes]


def test_the_invariants_that_agree_least_are_drawn():
    tree = planted_mixture(num_draws=60)
    worst = mixing(tree).worst
    assert _names(plot_trace(tree)) == worst[:3] == _names(plot_rank(tree))
    factors = [mixing(tree).factors[name] for name in worst]
    assert factors == sorted(factors, reverse=True)
    assert _names(plot_trace(tree, ["sorted_weights"])) == [f"sorted_weights[{i}]" for i in (1, 2, 3)]


def test_a_trace_holds_the_draws_of_each_chain():
    tree = planted_regression(num_draws=50)
    (axis,) = plot_trace(tree, "slope[b]").axes
    drawn = np.array([line.get_ydata() for line in axis.lines])
    np.testing.assert_array_equal(drawn, tree["posterior"]["slope"].values[..., 1])


def test_ranks_of_chains_that_agree_lie_in_the_band_and_of_a_shifted_one_do_not():
    """Of 4 x 20 counts 1 in 100 leaves the band by chance: more than 8 with probability 1e-6; a chain one
    standard deviation off must leave more outside than chance can."""
    for shift, most, least in ((0.0, 8, 0), (1.0, 80, 9)):
        (axis,) = plot_rank(planted_regression(num_draws=400, shift=shift), "slope[a]").axes
        counts = np.concatenate(
            [patch.get_data().values for patch in axis.patches if hasattr(patch, "get_data")]
        )
        band = 2.576 * np.sqrt(20 * (1 - 1 / 20))
        assert counts.size == 80 and counts.sum() == 1600
        assert least <= (np.abs(counts - 20) > band).sum() <= most


def test_ties_are_ranked_in_random_order():
    draws = np.random.default_rng(1).integers(0, 2, (2, 300)).astype(float)
    ranks = _ranks(draws)
    assert sorted(ranks.ravel()) == list(range(1, 601))
    assert ranks[draws == 0].max() < ranks[draws == 1].min()


def test_what_cannot_be_drawn_is_refused():
    tree = planted_regression(num_draws=50)
    axis = Figure().subplots()
    assert plot_trace(tree, "slope[a]", ax=axis) is axis.get_figure() and axis.lines
    with pytest.raises(ValueError, match="ax takes the rank of one scalar; 2 were asked for"):
        plot_rank(tree, "slope", ax=axis)
    with pytest.raises(ValueError, match="no invariant 'assignments'"):
        plot_trace(planted_mixture(), ["assignments"])
    with pytest.raises(ValueError, match="independent draws"):
        plot_trace(variational_mixture())
