"""Pictures of draws: they show what the draws are, in axes that are given, under names however hostile."""

import inspect

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.text import Text

import inference
import zoo
from inference import plots
from inference.diagnostics import profiles, psrf
from inference.plots import plot_ppc, plot_rank, plot_scree, plot_trace
from inference.plots.draws import worst_quantities
from tests.support.planted import (
    planted_mixture,
    planted_regression,
    planted_zoo,
    replaced,
    variational_mixture,
)
from tests.support.report_cases import BITS, fitted


@pytest.fixture(autouse=True)
def of_planted_models():
    with planted_zoo():
        yield


def test_the_worst_quantities_come_first():
    tree = planted_mixture()
    names = list(worst_quantities(tree, most=3))
    factors = psrf(tree)
    largest = max(float(np.nanmax(value)) for value in factors.data_vars.values())
    assert len(names) == 3
    assert (
        plot_trace(tree, most=1).axes[0].get_title(loc="left").split("R-hat ")[1].startswith(f"{largest:.3f}")
    )


def test_a_trace_shows_every_draw_of_every_chain():
    tree = planted_regression(num_draws=60, shift=3.0)
    axis = plot_trace(tree, "slope[a]").axes[0]
    drawn = np.stack([line.get_ydata() for line in axis.lines])
    np.testing.assert_array_equal(drawn, tree["posterior"]["slope"].values[..., 0])
    assert "R-hat" in axis.get_title(loc="left")


def test_ranks_of_a_chain_that_is_apart_gather_on_one_side():
    """Under agreement every twentieth holds as many draws; a chain far up holds the last ones."""
    even, apart = (
        plot_rank(planted_regression(num_draws=400, shift=s), "slope[a]").axes[0] for s in (0.0, 3.0)
    )
    heights = {
        name: [p.get_data().values for p in axis.patches] for name, axis in (("even", even), ("apart", apart))
    }
    assert np.allclose(np.mean(heights["even"], axis=0), 1.0)
    assert (
        np.max(heights["even"]) < 2.0
        and heights["apart"][-1][-1] > 3.0
        and heights["apart"][-1][:10].max() < 0.2
    )


@pytest.mark.slow
def test_replications_surround_data_that_the_model_fits_and_miss_data_that_it_does_not():
    tree = fitted("ppca")
    axis = plot_ppc(tree, "feature 0", num_draws=60).axes[0]
    assert axis.get_xlabel() == "feature 0" and _share_inside(axis) > 0.9
    far = tree.copy()
    held = tree["observed_data"].to_dataset().copy(deep=True)
    held["x"][:, 0] += 3.0 * float(held["x"][:, 0].std())
    far["observed_data"] = type(tree)(held)
    assert _share_inside(plot_ppc(far, "feature 0", num_draws=60).axes[0]) < 0.6
    bars = plot_ppc(fitted("epca"), num_draws=20).axes
    assert len(bars) == BITS.shape[1] and len(bars[0].patches) == 2


def _share_inside(axis):
    """Share of the values at which the line of the data is in the band of the replications."""
    path = axis.collections[0].get_paths()[0].vertices
    line = axis.lines[0]
    inside = []
    for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True):
        at = path[np.isclose(path[:, 0], x)][:, 1]
        inside.append(at.min() - 1e-9 <= y <= at.max() + 1e-9)
    return np.mean(inside)


def test_a_scree_picture_shows_the_shares_of_the_profile():
    shares = profiles(fitted("paired"))["latents"]["share"]
    axis = plot_scree(fitted("paired")).axes[0]
    np.testing.assert_allclose(sorted(bar.get_height() for bar in axis.patches), np.sort(shares))
    with pytest.raises(ValueError, match="has no latents"):
        plot_scree(fitted("mixture"))


def test_no_picture_of_draws_draws_rows():
    """Labels, latents and row densities are left out: a picture of all of them takes a minute."""
    tree = planted_mixture()
    for function in (plot_trace, plot_rank):
        figure = function(tree)
        words = [text.get_text() for text in figure.findobj(lambda part: hasattr(part, "get_text"))]
        assert len(figure.axes) <= 12 and not any("assignments" in word for word in words)


def test_what_cannot_be_drawn_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="independent draws"):
        plot_trace(variational_mixture())
    with pytest.raises(ValueError, match="no invariant 'nothing'"):
        plot_rank(planted_mixture(), "nothing")
    with pytest.raises(ValueError, match="plot_document_check"):
        plot_ppc(replaced(fitted("ppca"), observed_data=xr.Dataset({"count": ("nonzero", [1.0])})))
    with pytest.raises(ValueError, match="ax holds one quantity, and there are 2"):
        plot_trace(planted_regression(), "slope", ax=Figure().subplots())
    with pytest.raises(ValueError, match="no column 'z'"):
        plot_ppc(fitted("ppca"), "z")


def _by_cost(names, fits):
    """The names, those whose fits take seconds to compile marked slow."""
    for name in names:
        yield pytest.param(name, marks=pytest.mark.slow) if fits[name] in ("depcam", "pcp") else name


ONE_AXIS = {
    "plot_biplot": "ppca",
    "plot_clusters": "pcp",
    "plot_co_clustering": "mixture",
    "plot_hinton": "depcam",
    "plot_mixture": "mixture",
    "plot_overlap": "depcam",
    "plot_scree": "ppca",
}


@pytest.mark.parametrize("name", [*_by_cost(ONE_AXIS, ONE_AXIS)])
def test_a_picture_of_one_axis_is_drawn_into_the_axes_that_are_given(name):
    tree = fitted(ONE_AXIS[name])
    figure = Figure(layout="constrained")
    first, second = figure.subplots(1, 2)
    assert getattr(plots, name)(tree, ax=second) is figure
    assert second.has_data() or second.patches or second.images
    assert not first.has_data() and not figure.legends


def test_every_picture_that_makes_one_axis_takes_axes():
    """The others make several panels, or draw no axes at all."""
    several = {
        "plot_component_similarity", "plot_dirichlet_process", "plot_document_check",
        "plot_loading_products", "plot_loadings", "plot_model_graph", "plot_objective",
        "plot_topics",
    }  # fmt: skip
    functions = {name: getattr(plots, name) for name in plots.__all__ if name.startswith("plot_")}
    without = {
        name for name, function in functions.items() if "ax" not in inspect.signature(function).parameters
    }
    assert without == several


SHOWN = {  # the fits and arguments of pictures that show columns of the data, or words
    "plot_biplot": ("ppca", "feature", {}),
    "plot_clusters": ("pcp", "word", {"num_words": 6}),
    "plot_loading_products": ("depcam", "feature", {}),
    "plot_loadings": ("ppca", "feature", {}),
    "plot_mixture": ("mixture", "feature", {"features": ("name 0", "name 3")}),
    "plot_ppc": ("ppca", "feature", {}),
    "plot_topics": ("pcp", "word", {"num_words": 6}),
}
OTHERS = {  # of components, latents, draws and fits, or given what they name
    "plot_co_clustering", "plot_component_similarity",
    "plot_dirichlet_process", "plot_document_check", "plot_document_clusters", "plot_em",
    "plot_hinton", "plot_model_graph", "plot_objective", "plot_overlap",
    "plot_psrf_path", "plot_rank", "plot_scree", "plot_trace",
}  # fmt: skip


def _named(tree, dim):
    """The fit of the same table with names on its columns."""
    groups = {"/": xr.Dataset(attrs=tree.attrs)}
    for name, group in tree.children.items():
        held, size = group.to_dataset(), group.sizes.get(dim, 0)
        for own in (dim, f"{dim}_2"):
            if own in held.dims:
                held = held.assign_coords({own: [f"name {place}" for place in range(size)]})
        groups[name] = held
    return xr.DataTree.from_dict(groups)


@pytest.mark.parametrize("name", [*_by_cost(SHOWN, {name: fit for name, (fit, *_) in SHOWN.items()})])
def test_pictures_that_show_columns_or_words_name_them(name):
    fit, dim, options = SHOWN[name]
    tree = _named(fitted(fit), dim)
    figure = getattr(plots, name)(tree, **options)
    texts = " ".join(text.get_text() for text in figure.findobj(Text))
    wanted = options.get("features") or [f"name {place}" for place in range(4 if dim == "feature" else 3)]
    assert all(word in texts for word in wanted), texts


def test_every_picture_is_among_those_that_were_looked_through_for_names():
    assert {name for name in plots.__all__ if name.startswith("plot_")} == {*SHOWN} | OTHERS


def test_rows_are_coloured_by_a_column_or_by_given_values():
    tree = fitted("ppca")
    words = ["b", "a"] * 11 + [None, "a"]
    figure = plots.plot_biplot(tree, colour_by=pd.Series(words, name="kind"))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["kind: a", "kind: b"]
    hollow, first, second = (len(dots.get_offsets()) for dots in figure.axes[0].collections[:3])
    assert (hollow, first, second) == (1, 12, 11)
    numbers = plots.plot_biplot(tree, colour_by="2").axes
    held = tree["observed_data"]["x"].values[:, 2]
    np.testing.assert_allclose(numbers[0].collections[1].get_array(), held)
    assert numbers[1].get_ylabel() == "2"
    with pytest.raises(ValueError, match="colour_by names 'weight', which is no column .* there are 0, 1"):
        plots.plot_biplot(tree, colour_by="weight")
    with pytest.raises(ValueError, match="a value for each of 24 fitted rows"):
        plots.plot_biplot(tree, colour_by=[1, 2])
    with pytest.raises(ValueError, match="24 different values"):
        plots.plot_biplot(tree, colour_by=[f"row {n}" for n in range(24)])
    nine = plots.plot_biplot(tree, colour_by=[f"area {n % 9}" for n in range(24)]).legends[0].legend_handles
    looks = {(tuple(dots.get_facecolor()[0]), dots.get_paths()[0].vertices.tobytes()) for dots in nine}
    assert len(looks) == len(nine) == 9


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_names_that_look_like_formulas_are_drawn_as_they_are():
    table = pd.DataFrame(BITS, columns=["$x_{1$", "$\\alpha$", "a_b^c", "100%"])
    tree = inference.fit(zoo.EPCA(num_latents=2), table, method="map", max_iterations=3, progress=False)
    for function in (plot_ppc, plots.plot_biplot, plots.plot_loadings, plot_scree):
        figure = function(tree)
        figure.savefig("/dev/null", format="png")
        if function is plot_ppc:
            assert [axis.get_xlabel().replace("\\$", "$") for axis in figure.axes] == list(table.columns)
