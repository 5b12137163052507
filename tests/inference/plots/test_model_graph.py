"""The drawn graph of a program: the dependencies are the program's, and the picture shows them."""

import warnings
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.sparse
import xarray as xr
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.path import Path
from matplotlib.transforms import Affine2D
from numpyro.handlers import scale, seed, substitute, trace
from numpyro.infer.inspect import get_model_relations

from inference.plots.model_graph import (
    _BOX,
    _ROW,
    _arrows,
    arrange,
    draw_graph,
    graph_of,
    in_words,
)
from inference.precision import in_precision
from inference.results.files import Labels
from inference.results.groups import observed_group
from tests.support.posterior_cases import CASES
from zoo.model import in_current_precision
from zoo.sparse import SparseMatrix

PARENTS = {
    "mixture": {"x": {"precisions", "locs", "assignments"}, "assignments": {"weights"}},
    "ppca": {"x": {"loadings", "loc", "noise_variance", "latents"}},
    "kernelpca": {"gram": {"latents"}},
    "sppca": {
        "x": {"loadings_x", "loc_x", "noise_variance_x", "latents"},
        "y": {"loadings_y", "loc_y", "noise_variance_y", "latents"},
    },
    "sppca_probit": {"y": {"utilities"}, "utilities": {"loadings_y", "loc_y", "latents"}},
    "epca": {"x": {"loadings", "loc", "latents"}, "joint_prior": {"loadings", "loc", "latents"}},
    "paired": {"y_0": {"loadings_0", "loc_0", "latents"}, "y_1": {"loadings_1", "loc_1", "latents"}},
    "lda": {"word_topics": {"topic_word_probs", "doc_topic_probs"}, "counts": {"word_topics"}},
    "plsi": {"word_topics": {"topic_word_probs", "doc_topic_probs"}},
    "pcp": {"word_topics": {"topic_word_probs", "cluster_topic_probs", "doc_clusters"}},
    "depcam": {"x": {"bases", "scales", "offsets", "assignments", "latents"}, "repulsion": {"bases"}},
}


def unfitted(name):
    """A tree of a model and its data, as far as a graph needs it, and both."""
    case = CASES[name]()
    with in_precision("float64"):
        model, data = case.model.encoded(*case.data)
        model = model.with_sizes_from(*data)
    group = observed_group(model, data, Labels({}))
    return xr.DataTree.from_dict({"observed_data": group}), model, data


@pytest.fixture(scope="module", params=sorted(PARENTS))
def known(request):
    """A model's name, its graph, the layout of that, and itself."""
    tree, model, data = unfitted(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inference.plots.model_graph.model_of", lambda tree: model)
        graph = graph_of(tree)
    return request.param, graph, arrange(graph.parents, graph.plates), model


def test_the_graph_is_the_programs(known):
    name, graph, _, model = known
    for child, sources in PARENTS[name].items():
        assert set(graph.parents[child]) == sources, child
    plates = {frozenset(members) for members in graph.plates.values()}
    assert plates and not any(a & b for a in plates for b in plates if a != b)
    assert set(graph.observed) <= set(model.data_names) and (graph.observed or name == "kernelpca")
    assert all(source in in_words(graph) for source in graph.parents)


def overlap(a, b):
    """Whether two boxes (left, right, low, high) have an inner point in common."""
    return a[0] < b[1] - 1e-6 and b[0] < a[1] - 1e-6 and a[2] < b[3] - 1e-6 and b[2] < a[3] - 1e-6


def boxes(layout):
    """The box of every symbol, and of every plate that of its rows from its left to its right."""
    half, tall = _BOX[0] / 2, _BOX[1] / 2
    symbols = {
        name: (x - half, x + half, -_ROW * row - tall, -_ROW * row + tall)
        for name, (x, row) in layout.places.items()
    }
    plates = {
        plate: (left, right, -_ROW * bottom - tall, -_ROW * top + tall)
        for plate, (left, right, top, bottom) in layout.frames.items()
    }
    return symbols, plates


def check_layout(parents, plates):
    """Assert what every layout promises; gives it."""
    layout = arrange(parents, plates)
    assert layout == arrange(parents, plates)
    assert set(layout.places) == set(parents) and set(layout.frames) == set(plates)
    symbols, frames = boxes(layout)
    for one, other in combinations(symbols, 2):
        assert not overlap(symbols[one], symbols[other]), (one, other)
    for plate, members in plates.items():
        left, right, low, high = frames[plate]
        for name, box in symbols.items():
            held = left <= box[0] and box[1] <= right and low <= box[2] and box[3] <= high
            assert held if name in members else not overlap(box, frames[plate]), (plate, name)
    for one, other in combinations(plates, 2):
        shared = set(plates[one]) & set(plates[other])
        assert shared or not overlap(frames[one], frames[other]), (one, other)
    for child, sources in parents.items():
        assert all(layout.places[source][1] < layout.places[child][1] for source in sources)
    for (source, child), path in zip(layout.routes, _arrows(layout), strict=True):
        ((x, y),) = path.vertices[-1:]
        assert symbols[child][0] < x < symbols[child][1] and np.isclose(y, symbols[child][3])
        (corners,) = path.to_polygons(Affine2D().scale(500), closed_only=False)
        points = Path(corners / 500).interpolated(50).vertices
        for name in set(symbols) - {source, child}:
            left, right, low, high = symbols[name]
            through = (
                (points[:, 0] > left) & (points[:, 0] < right) & (points[:, 1] > low) & (points[:, 1] < high)
            )
            assert not through.any(), (source, child, name)
    return layout


def test_boxes_do_not_overlap_arrows_point_down_and_plates_hold_their_members_alone(known):
    _, graph, layout, _ = known
    assert check_layout(graph.parents, graph.plates) == layout


def test_plates_without_a_member_in_some_row_and_nested_ones_are_drawn_as_boxes():
    parents = {"a": [], "b": ["a"], "c": ["b"], "d": ["a", "c"], "e": ["a"], "f": ["e", "c"]}
    check_layout(parents, {"skips a row": ["b", "d"], "other": ["e"]})
    check_layout(parents, {"outer": ["b", "c", "d"], "inner": ["c", "d"], "other": ["e", "f"]})
    check_layout({"alone": []}, {})


def test_a_row_of_many_symbols_becomes_two():
    parents = {f"p{i}": [] for i in range(7)} | {"x": [f"p{i}" for i in range(7)]}
    layout = check_layout(parents, {"rows": ["p6", "x"]})
    assert max(row for _, row in layout.places.values()) == 2


def test_a_plate_of_many_symbols_is_no_pile():
    """A mixture of six families: the least squares have no solution from where they begin."""
    parents = {"weights": [], "precisions": [], **{f"probs_{i}": [] for i in range(5)}}
    members = [name for name in parents if name != "weights"] + ["locs"]
    parents |= {"z": ["weights"], "locs": ["precisions"], "x": [*members, "z"]}
    layout = check_layout(parents, {"components": members, "rows": ["z", "x"]})
    assert layout.frames["components"][1] - layout.frames["components"][0] < 6 * _BOX[0]


def test_an_arrow_that_skips_a_row_passes_beside_its_symbols():
    chain = {"a": [], "b": ["a"], "c": ["a", "b"]}
    layout = check_layout(chain, {})
    ((x, row),) = layout.routes["a", "c"]
    assert row == 1 and abs(x - layout.places["b"][0]) > _BOX[0] / 2
    assert layout.routes["a", "b"] == [] and layout.routes["b", "c"] == []


def test_the_picture_has_a_box_for_every_symbol_and_an_arrow_for_every_dependency(known):
    _, graph, _, _ = known
    axis = draw_graph(graph).axes[0]
    words = [text.get_text() for text in axis.texts]
    assert set(graph.parents) | set(graph.plates) <= set(words)
    kinds = [type(patch).__name__ for patch in axis.patches]
    assert kinds.count("FancyArrowPatch") == sum(map(len, graph.parents.values()))
    assert kinds.count("FancyBboxPatch") == len(graph.parents) + len(graph.plates)


def test_no_text_lies_on_another_or_leaves_its_box(known):
    _, graph, layout, _ = known
    figure = draw_graph(graph)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (axis,) = figure.axes
    extents = [text.get_window_extent(canvas.get_renderer()) for text in axis.texts]
    for (one, a), (other, b) in combinations(zip(axis.texts, extents, strict=True), 2):
        assert not overlap((a.x0, a.x1, a.y0, a.y1), (b.x0, b.x1, b.y0, b.y1)), (one, other)
    width = _BOX[0] * axis.bbox.width / np.ptp(axis.get_xlim())
    assert all(extent.width < width for extent in extents)


@pytest.mark.slow
def test_views_depend_on_their_own_parameters_alone():
    """By derivatives: what the names of parameters are taken to mean where the program stacks its views."""
    _, model, data = unfitted("sppca")
    with in_precision("float64"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = in_current_precision(data)
        sites = trace(seed(model.explicit, 0)).get_trace(*given)
        values = {
            name: site["value"]
            for name, site in sites.items()
            if site["type"] == "sample" and not site["is_observed"]
        }

        def scores(values):
            run = trace(substitute(seed(model.explicit, 0), values)).get_trace(*given)
            return [run[name]["fn"].log_prob(run[name]["value"]).sum() for name in ("x", "y")]

        slopes = jax.jit(jax.jacrev(scores))(values)
    for view, slope in zip("xy", slopes, strict=True):
        moving = {name for name, value in slope.items() if np.abs(value).max() > 0}
        assert moving == PARENTS["sppca"][view]


def test_without_data_it_says_why_there_is_no_graph():
    with pytest.raises(ValueError, match="does not hold"):
        graph_of(xr.DataTree())


@pytest.mark.slow
def test_a_graph_can_be_drawn_twice_in_one_process():
    """JAX remembered NumPyro's first trace of Paired and could not compare it with the second."""
    tree, model, _ = unfitted("paired")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inference.plots.model_graph.model_of", lambda tree: model)
        assert graph_of(tree) == graph_of(tree)


def test_the_program_of_sparse_rows_is_that_of_dense_ones():
    tree, model, data = unfitted("sppca")
    rows = SparseMatrix.from_scipy(scipy.sparse.csr_array(np.asarray(data[0])))
    held = observed_group(model, (rows, *data[1:]), Labels({}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inference.plots.model_graph.model_of", lambda tree: model)
        assert graph_of(tree) == graph_of(xr.DataTree.from_dict({"observed_data": held}))


def test_numpyro_still_keeps_traced_factors_as_metadata():
    """Why `_relations` forgets what JAX compiled: once this fails, that can go."""

    def program(x):
        with scale(scale=jnp.ones(2)[0]):
            numpyro.sample("x", dist.Normal(0.0, 1.0), obs=x)

    get_model_relations(program, (jnp.ones(3),))
    with pytest.raises(ValueError, match="comparable"):
        get_model_relations(program, (jnp.ones(3),))
