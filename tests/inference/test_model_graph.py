"""The drawn graph of a program: the dependencies are the program's, and the picture shows them."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.sparse
import xarray as xr
from numpyro.handlers import scale, seed, substitute, trace
from numpyro.infer.inspect import get_model_relations
from posterior_cases import CASES

from inference.graph_layout import arrange, hidden
from inference.model_graph import _bend, draw_graph, graph_of, in_words
from inference.observed import observed_group
from inference.precision import in_precision
from inference.results import Labels
from zoo.model import in_current_precision
from zoo.sparse_matrix import SparseMatrix

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
        model, data = case.model.coded(*case.data)
        model = model.filled(*data)
    group = observed_group(model, data, Labels({}))
    return xr.DataTree.from_dict({"observed_data": group}), model, data


@pytest.fixture(scope="module", params=sorted(PARENTS))
def known(request):
    """A model's name, its graph, the places of its symbols, and itself."""
    tree, model, data = unfitted(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inference.model_graph.model_of", lambda tree: model)
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


def test_every_symbol_has_a_place_and_plates_hold_their_members_alone(known):
    _, graph, places, _ = known
    assert set(places) == set(graph.parents) and len(set(places.values())) == len(places)
    for child, sources in graph.parents.items():
        assert all(places[source][1] <= places[child][1] for source in sources)
    for members in graph.plates.values():
        columns, rows = zip(*(places[name] for name in members), strict=True)
        inside = {
            name
            for name, (column, row) in places.items()
            if min(columns) <= column <= max(columns) and min(rows) <= row <= max(rows)
        }
        assert inside == set(members)
    assert hidden(places, graph.parents) == set()


def test_the_picture_has_a_box_for_every_symbol_and_an_arrow_for_every_dependency(known):
    _, graph, places, _ = known
    axis = draw_graph(graph, places).axes[0]
    words = [text.get_text() for text in axis.texts]
    assert set(graph.parents) | set(graph.plates) <= set(words)
    kinds = [type(patch).__name__ for patch in axis.patches]
    assert kinds.count("FancyArrowPatch") == sum(map(len, graph.parents.values()))
    assert kinds.count("FancyBboxPatch") == len(graph.parents) + len(graph.plates)


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


def test_an_arrow_that_would_run_through_a_symbol_is_bent_around_it():
    chain = {"a": [], "b": ["a"], "c": ["a", "b"]}
    assert hidden({"a": (0, 0), "b": (0, 1), "c": (0, 2)}, chain) == {("a", "c")}
    assert hidden(arrange(chain, {}), chain) == set()
    assert abs(_bend(("a", "c"), {"a": (0, 0), "b": (0, -0.62), "c": (0, -1.24)})) == 0.9
    assert abs(_bend(("a", "c"), {"a": (0, 0), "c": (0, -1.24)})) == 0.25


def test_without_data_it_says_why_there_is_no_graph():
    with pytest.raises(ValueError, match="does not hold"):
        graph_of(xr.DataTree())


def test_a_graph_can_be_drawn_twice_in_one_process():
    """JAX remembered NumPyro's first trace of Paired and could not compare it with the second."""
    tree, model, _ = unfitted("paired")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inference.model_graph.model_of", lambda tree: model)
        assert graph_of(tree) == graph_of(tree)


def test_the_program_of_sparse_rows_is_that_of_dense_ones():
    tree, model, data = unfitted("sppca")
    rows = SparseMatrix.from_scipy(scipy.sparse.csr_array(np.asarray(data[0])))
    held = observed_group(model, (rows, *data[1:]), Labels({}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inference.model_graph.model_of", lambda tree: model)
        assert graph_of(tree) == graph_of(xr.DataTree.from_dict({"observed_data": held}))


def test_numpyro_still_keeps_traced_factors_as_metadata():
    """Why `_relations` forgets what JAX compiled: once this fails, that can go."""

    def program(x):
        with scale(scale=jnp.ones(2)[0]):
            numpyro.sample("x", dist.Normal(0.0, 1.0), obs=x)

    get_model_relations(program, (jnp.ones(3),))
    with pytest.raises(ValueError, match="comparable"):
        get_model_relations(program, (jnp.ones(3),))
