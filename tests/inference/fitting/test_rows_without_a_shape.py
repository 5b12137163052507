"""Fits have the same numbers, but for rounding, with rows and components beside them that are none."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import monitoring

import zoo
from inference import fit
from inference.driver import ascent
from inference.methods import method_of
from inference.methods.lda import vb as lda_vb
from inference.methods.mixture import sizes
from inference.methods.ppca import vb as ppca_vb
from inference.numerics.documents import DocumentBlocks, cut
from inference.numerics.weighted_rows import (
    FEWEST_ROWS,
    MOST_ROWS,
    PaddedRows,
    Rows,
    bucket,
    in_own_shapes,
    padded,
    swept_size,
)
from zoo.conjugate import GaussianWishart, NormalGamma, SharedGaussianWishart
from zoo.exponential_family import Gaussian
from zoo.sparse import SparseCounts

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*documents have no words",
    "ignore:documents had not",
    "ignore:the learnt",
    "ignore:family='mean_field'",
    "ignore:.*has not converged",
    "ignore:the truncation is too short",
)

SETTINGS = {"num_restarts": 2, "max_iterations": 12, "tolerance": 0.0, "num_samples": 3, "progress": False}


def rows(num_rows=40, *, columns=2, holes=False, bits=False):
    rng = np.random.default_rng(num_rows)
    halves = ((num_rows // 2, columns),) * 2
    x = np.concatenate([rng.normal(size=halves[0]), rng.normal(5.0, 1.0, halves[1])])
    x = np.where(x > 2.5, 1.0, 0.0) if bits else x
    x[3, 0] = np.nan if holes else 0.3
    return x


def topics(num_documents=40, *, seed=0):
    """Documents of which some are empty, and one is longer than a block of the others."""
    counts = np.random.default_rng(seed).poisson(0.6, size=(num_documents, 9))
    counts[3], counts[7] = 0, 30
    return counts


GROUPS = {"trace", "variational", "posterior", "sample_stats", "log_likelihood"}
COUNTS = "lda", "pcp", "plsi", "epca counts"
CASES = {
    "lda": (lambda x: zoo.LDA(num_topics=3), "vb", {}),
    "lda of one topic": (lambda x: zoo.LDA(num_topics=1), "vb", {}),
    "lda of many topics": (lambda x: zoo.LDA(num_topics=9, topic_prior=np.arange(1.0, 10.0)), "vb", {}),
    "lda learns": (
        lambda x: zoo.LDA(num_topics=2),
        "vb",
        {"learn": ("word_smoothing", "topic_prior"), "documents": "continue"},
    ),
    "vb": (lambda x: zoo.Mixture.from_data(x, num_components=3), "vb", {}),
    "vb holes": (
        lambda x: zoo.Mixture.from_data(x, num_components=2, components=NormalGamma()),
        "vb",
        {"holes": True},
    ),
    "vb sticks": (
        lambda x: zoo.Mixture.from_data(x, num_components=8, weight_prior="stick_breaking"),
        "vb",
        {},
    ),
    "vb five sticks": (
        lambda x: zoo.Mixture.from_data(
            x, num_components=5, weight_prior="stick_breaking", concentration=0.2
        ),
        "vb",
        {},
    ),
    "vb concentration": (
        lambda x: zoo.Mixture.from_data(x, num_components=3, concentration=dist.Gamma(2.0, 1.0)),
        "vb",
        {},
    ),
    "vb concentration of sticks": (
        lambda x: zoo.Mixture.from_data(
            x, num_components=4, concentration=dist.Gamma(2.0, 20.0), weight_prior="stick_breaking"
        ),
        "vb",
        {},
    ),
    "vb one": (lambda x: zoo.Mixture.from_data(x, num_components=1), "vb", {}),
    "vb many": (lambda x: zoo.Mixture.from_data(x, num_components=9), "vb", {}),
    "ppca": (lambda x: zoo.PPCA(num_latents=1, loading_prior="gaussian"), "vb", {}),
    "ppca ard": (
        lambda x: zoo.PPCA(num_latents=2, loading_prior="ard", noise="diagonal"),
        "vb",
        {"columns": 4},
    ),
    "ppca holes": (
        lambda x: zoo.PPCA(num_latents=2, loading_prior="gaussian"),
        "vb",
        {"columns": 4, "holes": True},
    ),
    "pcp": (lambda x: zoo.PCP(num_topics=3, num_clusters=3), "vb", {}),
    "pcp of few topics": (
        lambda x: zoo.PCP(num_topics=2, num_clusters=4, weight_prior="stick_breaking"),
        "vb",
        {"learn": ("topic_prior", "concentration")},
    ),
    "pcp mean field": (lambda x: zoo.PCP(num_topics=3, num_clusters=3), "vb", {"family": "mean_field"}),
    "plsi": (lambda x: zoo.PLSI(num_topics=3), "em", {}),
    "plsi annealed": (lambda x: zoo.PLSI(num_topics=3), "em", {"heldout_share": 0.2}),
    "epca": (
        lambda x: zoo.EPCA(family=Gaussian(noise_variance=None), num_latents=2, ard=True),
        "vb",
        {"columns": 4, "holes": True},
    ),
    "epca bits": (
        lambda x: zoo.EPCA(family="bernoulli", num_latents=1, beta=0.3),
        "vb",
        {"columns": 3, "holes": True, "bits": True},
    ),
    "epca counts": (lambda x: zoo.EPCA(family="poisson", num_latents=2), "vb", {}),
    "paired": (
        lambda x, y: zoo.Paired(families=(Gaussian(noise_variance=None), "gaussian")),
        "vb",
        {"columns": 4, "holes": True},
    ),
    "em": (lambda x: zoo.Mixture.from_data(x, num_components=2), "em", {}),
    "em holes": (lambda x: zoo.Mixture.from_data(x, num_components=2), "em", {"holes": True}),
}


def numbers(case, num_rows=40, **settings):
    model, method, which = CASES[case]
    is_of_counts = case.startswith(COUNTS)
    data = (topics(num_rows),) if is_of_counts else (rows(num_rows, **which),)
    if case == "paired":
        data = (data[0], data[0][::-1, :3])
    settings |= which if is_of_counts else {}
    return fit(model(*data), *data, method=method, seed=1, **SETTINGS, **settings)


@pytest.mark.parametrize("case", CASES)
def test_padding_changes_nothing_but_rounding(case):
    tree = numbers(case)
    with in_own_shapes():
        alone = numbers(case)
    for group in GROUPS & set(alone.children):
        for name, value in alone[group].data_vars.items():
            np.testing.assert_allclose(tree[group][name], value, rtol=1e-7, atol=1e-9, err_msg=name)


@pytest.mark.filterwarnings("ignore:em. a guard holds")  # a component of copies
@pytest.mark.parametrize("case", ["vb", "em"])
def test_a_padding_that_counts_is_seen(case, monkeypatch):
    tree = numbers(case)

    def heavy(model, data):  # planted: the padding has weight
        return model, (Rows(padded(data)[0].x, np.ones(bucket(len(data[0])))),)

    monkeypatch.setitem(vars(method_of(zoo.Mixture(), case)), "for_steps", heavy)
    other = numbers(case)
    assert abs(float(tree["trace"]["objective"][-1] - other["trace"]["objective"][-1])) > 1.0


@pytest.mark.parametrize("case", ["vb", "vb five sticks"])
def test_a_component_too_many_is_seen(case, monkeypatch):
    tree = numbers(case)

    def all_there(model, data):  # planted: what is beyond K has a share in the prior
        given, rows = sizes.in_shared_shapes(model, data)
        present = np.ones_like(given.weights.present)
        return given._replace(weights=type(given.weights)(present)), rows

    monkeypatch.setitem(vars(method_of(zoo.Mixture(), "vb")), "for_steps", all_there)
    other = numbers(case)
    assert abs(float(tree["trace"]["objective"][-1] - other["trace"]["objective"][-1])) > 1e-2


def test_a_topic_too_many_is_seen(monkeypatch):
    tree = numbers("lda")

    def all_there(model, data):  # planted: topics that fill up count in learnt priors and in the bound
        given, documents = lda_vb.in_shared_shapes(model, data)
        return type(given)(np.ones_like(given.present)), documents

    monkeypatch.setitem(vars(method_of(zoo.LDA(), "vb")), "for_steps", all_there)
    other = numbers("lda")
    assert abs(float(tree["trace"]["objective"][-1] - other["trace"]["objective"][-1])) > 1e-2


@pytest.mark.parametrize(
    "case", ["lda learns", "pcp", "pcp mean field", "plsi annealed", "epca", "epca counts", "paired"]
)
def test_a_row_too_many_is_seen(case, monkeypatch):
    tree, (make, name, _) = numbers(case), CASES[case]
    method = method_of(make(*[rows()] * (1 + (case == "paired"))), name)
    right = method.for_steps

    def one_more(model, data):  # planted: the first row beside the rows is one too, a copy of a row
        if not isinstance(data[0], DocumentBlocks):
            model, data = right(model, data)
            return model, tuple(part._replace(num_rows=part.num_rows + 1) for part in data)
        counts = topics()
        return right(model, (cut(SparseCounts.from_matrix(np.vstack([counts, counts[:1]])), 3),) * len(data))

    monkeypatch.setitem(vars(method), "for_steps", one_more)
    other = numbers(case)
    assert abs(float(tree["trace"]["objective"][-1] - other["trace"]["objective"][-1])) > 0.1


@pytest.mark.parametrize("case", ["lda", "pcp mean field", "plsi annealed", "epca"])
def test_a_checkpoint_holds_the_rows_alone(case, tmp_path):
    """So that it is resumed with other numbers of rows beside them, or none."""
    path = tmp_path / "run.ckpt"
    numbers(case, checkpoint=path)
    with np.load(path) as file:
        shapes = [file[name].shape for name in file.files if file[name].ndim > 1]
    assert any(40 in shape for shape in shapes)
    assert not any({64, FEWEST_ROWS} & set(shape) for shape in shapes)


def test_a_latent_with_loadings_too_many_is_seen(monkeypatch):
    tree = numbers("ppca")

    def all_there(model, data):  # planted: the latents beyond have loadings
        given, compressed = ppca_vb.in_shared_shapes(model, data)
        return given._replace(present=np.ones_like(given.present)), compressed

    monkeypatch.setitem(vars(method_of(zoo.PPCA(num_latents=1), "vb")), "for_steps", all_there)
    other = numbers("ppca")
    assert abs(float(tree["trace"]["objective"][-1] - other["trace"]["objective"][-1])) > 0.1


def test_relevance_that_is_not_learnt_is_seen(monkeypatch):
    tree = numbers("ppca ard")

    def fixed(model, data):  # planted: the program takes the prior for a Gaussian one
        given, compressed = ppca_vb.in_shared_shapes(model, data)
        return given._replace(is_ard=np.asarray(False)), compressed

    monkeypatch.setitem(vars(method_of(zoo.PPCA(num_latents=1), "vb")), "for_steps", fixed)
    other = numbers("ppca ard")
    assert abs(float(tree["trace"]["objective"][-1] - other["trace"]["objective"][-1])) > 0.1


def test_weights_stay_those_of_their_rows():
    weight = np.arange(40) % 3.0
    tree = numbers("vb", sample_weight=weight)
    with in_own_shapes():
        alone = numbers("vb", sample_weight=weight)
    np.testing.assert_allclose(tree["trace"]["objective"], alone["trace"]["objective"], rtol=1e-10)


def test_tables_and_models_of_about_the_same_size_share_a_program(monkeypatch):
    seen = set()
    real = ascent._ascend_chunk

    def chunk(functions, restarts, keys, bounds, model, data):
        seen.add(
            (functions, jax.tree.structure((model, data)), *map(np.shape, jax.tree.leaves((restarts, data))))
        )
        return real(functions, restarts, keys, bounds, model, data)

    monkeypatch.setattr(ascent, "_ascend_chunk", chunk)
    for num_rows, size in ((40, 3), (52, 2)):
        x = rows(num_rows)
        fit(zoo.Mixture(num_components=size), x, method="vb", seed=0, **SETTINGS)
    assert len(seen) == 1
    seen.clear()
    for num_rows, size, prior in ((40, 1, "ard"), (52, 2, "gaussian")):
        model = zoo.PPCA(num_latents=size, loading_prior=prior)
        fit(model, rows(num_rows, columns=4), method="vb", **SETTINGS)
    assert len(seen) == 1
    seen.clear()
    for num_rows, size in ((40, 3), (52, 2)):
        fit(zoo.LDA(num_topics=size), topics(num_rows), method="vb", **SETTINGS)
    assert len(seen) == 1
    for case in ("pcp", "pcp mean field", "plsi annealed", "epca", "paired"):
        seen.clear()
        for num_rows in (40, 52):
            numbers(case, num_rows)
        assert len(seen) == 1, case


# Samplers, whose draws are those of the rows alone

CHAINS = {"num_chains": 2, "num_warmup": 6, "num_samples": 6, "progress": False, "seed": 1}


def mixture(**fields):
    return lambda x: zoo.Mixture.from_data(x, **fields)


def learnt_prior(x):
    family = GaussianWishart.from_data(x, mean_precision=dist.Gamma(2.0, 2.0))
    return zoo.Mixture.from_data(x, num_components=3, components=family)


def recorded_in_steps(x):
    family = NormalGamma.from_data(x, rounding=np.array([0.1, 0.0]))
    return zoo.Mixture.from_data(x, num_components=3, components=family)


def projection(**fields):
    return lambda x: zoo.PPCA(num_latents=2, **fields)


STICKS = {"weight_prior": "stick_breaking", "concentration": dist.Gamma(2.0, 2.0)}
QUICK = {
    "gibbs": (mixture(num_components=3, concentration=dist.Gamma(2.0, 1.0)), "gibbs", {"weighted": True}),
    "collapsed_gibbs": (mixture(num_components=3), "collapsed_gibbs", {}),
    "ppca": (projection(loading_prior="ard"), "gibbs", {"columns": 4, "holes": True}),
}
COSTLY = {
    "gibbs sticks": (mixture(num_components=6, **STICKS), "gibbs", {}),
    "gibbs holes": (mixture(num_components=3, components=NormalGamma()), "gibbs", {"holes": True}),
    "collapsed_gibbs sticks": (mixture(num_components=2, **STICKS), "collapsed_gibbs", {}),
    "gibbs steps": (recorded_in_steps, "gibbs", {}),
    "gibbs of more rows": (mixture(num_components=3), "gibbs", {"num_rows": 600}),
    "collapsed_gibbs learns": (learnt_prior, "collapsed_gibbs", {}),
    "collapsed_gibbs of one covariance": (
        mixture(num_components=3, components=SharedGaussianWishart()),
        "collapsed_gibbs",
        {},
    ),
    "collapsed_gibbs singletons": (
        mixture(num_components=3, **STICKS),
        "collapsed_gibbs",
        {"init": "singletons"},
    ),
    "ppca diagonal": (
        projection(loading_prior="gaussian", noise="diagonal"),
        "gibbs",
        {"columns": 4, "moves": False},
    ),
}
SAMPLED = QUICK | COSTLY


def draws(case, num_rows=40):
    model, method, given = SAMPLED[case]
    given = {"num_rows": num_rows} | given
    x = rows(**{name: given.pop(name) for name in ("num_rows", "columns", "holes") if name in given})
    if given.pop("weighted", False):
        given["sample_weight"] = np.arange(len(x)) % 3.0
    return fit(model(x), x, method=method, **CHAINS, **given)


def every_case(cases):
    return [pytest.param(case, marks=() if case in QUICK else pytest.mark.slow) for case in cases]


@pytest.mark.parametrize("case", every_case(SAMPLED))
def test_padding_changes_no_draw_but_by_rounding(case):
    tree = draws(case)
    with in_own_shapes():
        alone = draws(case)
    for group in ("trace", "posterior", "log_likelihood"):
        for name, value in alone[group].data_vars.items():
            np.testing.assert_allclose(tree[group][name], value, rtol=1e-8, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("case", QUICK)
def test_a_row_too_many_is_seen_in_draws(case, monkeypatch):
    tree, (make, name, _) = draws(case), SAMPLED[case]
    method = method_of(make(rows()), name)
    right = method.for_steps

    def all_there(model, data):  # planted: what is beside the rows is rows too
        model, (beside,) = right(model, data)
        return model, (PaddedRows(beside.x, np.asarray(len(beside.x))),)

    monkeypatch.setitem(vars(method), "for_steps", all_there)
    other = draws(case)
    assert abs(float(tree["trace"]["objective"][0, -1] - other["trace"]["objective"][0, -1])) > 1.0


@pytest.mark.parametrize(
    ("run", "case", "programs"),
    [
        *((draws, case, {"_chunk"}) for case in QUICK),
        (numbers, "pcp of few topics", {"start_together", "_ascend_chunk"}),
    ],
)
def test_another_number_of_rows_compiles_no_sweep(run, case, programs):
    run(case, 40)
    seen = []

    def note(event, duration, **details):
        if "jaxpr_trace" in event:  # which no cache of compiled programs hides
            seen.append(details["fun_name"])

    monitoring.register_event_duration_secs_listener(note)
    try:
        run(case, 52)
        assert not programs & set(seen)
        with in_own_shapes():
            run(case, 52)
    finally:
        monitoring.unregister_event_duration_listener(note)
    assert programs <= set(seen)


@pytest.mark.parametrize("draw", [jax.random.uniform, jax.random.normal])
@pytest.mark.parametrize("columns", [(), (3,)])
def test_numbers_of_rows_do_not_depend_on_how_many_are_drawn(draw, columns):
    """What samplers rely on: those of fewer rows are the first of those of more."""
    few, many = (np.asarray(draw(jax.random.key(7), (size, *columns))) for size in (13, 64))
    np.testing.assert_array_equal(few, many[:13])


@pytest.mark.parametrize("num_rows", [1, 63, 64, 65, 97, 145, 217, 272, 321, 512, 513, 9999])
def test_a_sampler_wastes_less_than_an_ascent(num_rows):
    size = swept_size(num_rows)
    assert num_rows <= size <= min(bucket(num_rows), max(64, 1.6 * num_rows))
    assert swept_size(size) == size


@pytest.mark.parametrize("num_rows", [1, 511, 512, 513, 1025, 2047, 2049, 9999, MOST_ROWS])
def test_a_bucket_wastes_an_eighth_at_most(num_rows):
    size = bucket(num_rows)
    assert num_rows <= size <= max(FEWEST_ROWS, num_rows * 9 / 8)
    assert bucket(size) == size
    assert (size <= 2048) == (num_rows <= 2048)  # one block of a sum over rows stays one
    assert bucket(MOST_ROWS + num_rows) == MOST_ROWS + num_rows
