"""How many starts a call makes that does not say, which of them are given up, and what is told of them."""

import json
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import inference
import zoo
from inference.algorithm import CHEAP_ENTRIES, starts_by_size
from inference.convergence.starts import components_in_one_place, spread_of_starts
from inference.diagnostics import summary
from inference.driver.progress import CONVERGED, DROPPED, RUNNING, Progress, best_run, left_behind
from inference.fitting import front_door, in_memory
from inference.fitting import verdict as verdicts
from inference.fitting.verdict import SMALL_STEPS, convergence_judgements
from inference.methods import method_of
from inference.methods.mixture.starts import kmeans_labels
from tests.support.fit_cases import CASES
from tests.support.planted import planted_zoo, variational_mixture
from zoo.answers import answer_of
from zoo.conjugate import GaussianWishart, NormalGamma
from zoo.datasets import load


def fitted(model, *data, **settings):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*has not converged")
        return inference.fit(model, *data, num_samples=2, progress=False, **settings)


def number_of_starts(tree):
    return tree["trace"].sizes.get("restart", 1)


@pytest.fixture(scope="module")
def two_groups():
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(0, 1, (30, 2)), rng.normal(6, 1, (30, 2))])


def starts_of_a_call(monkeypatch, model, *data, **settings):
    """How many starts `fit` makes of a call, which ends before anything is compiled."""

    class Read(Exception):
        """The call has been read."""

    def stop(request):
        raise Read(request)

    monkeypatch.setattr(front_door, "inward", stop)
    with pytest.raises(Read) as read:
        inference.fit(model, *data, **settings)
    return read.value.args[0].settings.num_restarts


@pytest.mark.slow
def test_one_start_where_something_is_given_or_rows_pass_in_batches(
    monkeypatch, vb_tree, small_model, two_clusters
):
    starts = partial(starts_of_a_call, monkeypatch, small_model, two_clusters, method="vb")
    assert starts() == 10
    for given in (vb_tree, {"assignments": np.arange(60) % 3}, "kmeans"):
        assert starts(init=given) == 1
    assert starts(batch_size=20) == 1


def test_the_number_follows_from_sizes_alone():
    assert starts_by_size(10, CHEAP_ENTRIES / 10) == 10
    assert starts_by_size(10, CHEAP_ENTRIES / 10 + 1) == 1
    components = GaussianWishart(np.zeros(5), 1.0, np.eye(5), 6.0)
    model = zoo.Mixture(components, num_components=20)
    for name in ("vb", "em"):
        for num_rows, expected in ((1000, 10), (40_000, 1)):
            rows = (np.zeros((num_rows, 5)),)
            assert method_of(model, name).restarts(model, rows) == expected
    assert method_of(model, "vb").restarts(model, (np.zeros((9, 5)),), moves=("birth",)) == 1


def test_matrices_over_many_columns_ask_for_one_start():
    """Their factors take the cube of the columns, however few the rows; variances of columns do not."""
    for num_columns, expected in ((40, 10), (50, 1)):
        full = GaussianWishart(np.zeros(num_columns), 1.0, np.eye(num_columns), num_columns + 1.0)
        diagonal = NormalGamma(np.zeros(num_columns), 1.0, 2.0, np.ones(num_columns))
        rows = (np.zeros((100, num_columns)),)
        for components, number in ((full, expected), (diagonal, 10)):
            model = zoo.Mixture(components, num_components=20)
            assert method_of(model, "vb").restarts(model, rows) == number


def test_weak_priors_ask_for_five_starts(monkeypatch):
    x = 1.0 * (np.random.default_rng(0).normal(size=(12, 4)) > 0)
    for variance, expected in ((1.0, 1), (10.0, 1), (10.1, 5)):
        model = zoo.EPCA("bernoulli", num_latents=1, loading_variance=variance)
        assert starts_of_a_call(monkeypatch, model, x, method="map") == expected
    monkeypatch.undo()
    assert number_of_starts(fitted(model, x, method="map", max_iterations=2)) == 5


def test_documents_of_the_first_step_settle_by_turns():
    counts = np.random.default_rng(0).poisson(1.0, size=(12, 9))
    tree = fitted(zoo.LDA(num_topics=2), counts, method="vb", max_iterations=2)
    assert number_of_starts(tree) == 2
    first = tree["trace"]["objective_by_restart"].to_numpy()[0]
    call = {"method": "vb", "max_iterations": 1}
    one, both = (fitted(zoo.LDA(num_topics=2), counts, num_restarts=n, **call)["trace"] for n in (1, 2))
    assert first[0] == pytest.approx(float(one["objective"][0]), rel=1e-12)
    assert first[1] != pytest.approx(first[0], abs=1e-3)
    assert float(both["objective"][0]) == pytest.approx(first.max(), rel=1e-12)


def test_k_means_into_fewer_clusters():
    """The first clusters alone hold rows, and two far groups are found by two."""
    rng = np.random.default_rng(1)
    z = jnp.asarray(np.concatenate([rng.normal(-5, 1, (20, 2)), rng.normal(5, 1, (25, 2))]))
    for used in (1, 2, 4):
        labels = np.asarray(kmeans_labels(jax.random.key(used), z, 7, jnp.asarray(used)))
        assert set(labels) <= set(range(used))
    two = np.asarray(kmeans_labels(jax.random.key(0), z, 7, jnp.asarray(2)))
    assert len(set(two[:20])) == len(set(two[20:])) == 1 and two[0] != two[-1]


def test_seeds_of_k_means_lie_in_all_clusters():
    """Six clusters much farther apart than they are wide, on one side of the origin: a seed falls in each.

    A row of a cluster that has a seed is drawn with a probability of 1e-6 at most: 2e-3 false alarms.
    """
    rng = np.random.default_rng(0)
    centres = 0.02 * np.array([[1, 1], [1, 6], [6, 1], [6, 6], [3, 10], [10, 3]])
    z = jnp.asarray(np.repeat(centres, 10, axis=0) + 1e-6 * rng.normal(size=(60, 2)))
    for key in range(20):
        labels = np.asarray(kmeans_labels(jax.random.key(key), z, 6)).reshape(6, 10)
        assert (labels == labels[:, :1]).all() and len(set(labels[:, 0])) == 6


def progress_of(objective, iteration, status):
    count = len(objective)
    return Progress(
        jnp.asarray(objective, float),
        jnp.zeros(count, int),
        jnp.full(count, iteration),
        jnp.asarray(status),
        jnp.zeros(count, int),
    )


@pytest.mark.parametrize(
    ("gain", "lag", "iteration", "dropped"),
    [
        (0.01, 9.8, 20, False),  # not before thirty steps
        (0.01, 9.8, 50, True),  # 50 steps of .01 are not enough
        (0.2, 9.8, 50, False),  # 50 of .2 are
        (0.0, 1.9, 50, False),  # close to the best
        (0.0, 2.1, 50, True),
        (-1.0, 2.1, 50, True),
    ],
)
def test_a_start_is_given_up_where_its_pace_is_too_slow(gain, lag, iteration, dropped):
    before = progress_of([0.0, -lag - gain, -1000.0], iteration - 1, [RUNNING, RUNNING, CONVERGED])
    after = progress_of([0.0, -lag, -1000.0], iteration, [CONVERGED, RUNNING, CONVERGED])
    status = np.asarray(left_behind(before, after, 100).status)
    np.testing.assert_array_equal(status, [CONVERGED, DROPPED if dropped else RUNNING, CONVERGED])


def test_the_best_is_never_one_that_was_given_up():
    progress = progress_of([-1.0, -2.0], 40, [DROPPED, CONVERGED])
    run = best_run({"a": np.arange(2)}, progress, {"objective": np.zeros((2, 40))}, interrupted=False)
    assert run.best_restart == 1 and run.converged


@pytest.mark.parametrize(("lag", "best"), [(0.9e-7, 0), (1.1e-7, 2)])
def test_of_starts_that_tie_the_first_is_best(lag, best):
    """Within 1e-9 nats a row, of 100 rows; one that was given up does not count."""
    ends = [-5.0 - lag, -6.0, -5.0, -5.0, -4.0]
    progress = progress_of(ends, 40, [CONVERGED] * 4 + [DROPPED])._replace(objective=np.array(ends))
    run = best_run({"a": np.arange(5)}, progress, {"objective": np.zeros((5, 40))}, False, num_rows=100)
    assert run.best_restart == best and run.state["a"] == best


@pytest.fixture(scope="module")
def by_need():
    """The mixture of Old Faithful by as many starts as it is given unasked, which are ten."""
    x = load("faithful").frame()
    return fitted(zoo.Mixture.from_data(x), x, method="em")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:em. a guard holds")
def test_starts_that_are_asked_for_run_to_their_ends(by_need):
    x = load("faithful").frame()
    asked = fitted(zoo.Mixture.from_data(x), x, method="em", num_restarts=10)
    told = [json.loads(tree.attrs["options"])["drops_starts"] for tree in (by_need, asked)]
    assert told == [True, False]
    ends = [tree["trace"]["objective_at_end"].to_numpy() for tree in (by_need, asked)]
    assert (ends[1] >= ends[0] - 1e-6).all() and (ends[1] > ends[0] + 0.1).any()
    assert ends[0].max() == pytest.approx(ends[1].max(), rel=1e-9)


def ended(objective, occupied):
    tree = variational_mixture()
    trace = tree["trace"].to_dataset().drop_dims("restart")
    trace["objective_at_end"] = ("restart", np.asarray(objective, float))
    trace["num_occupied_at_end"] = ("restart", np.asarray(occupied, float))
    tree["trace"] = trace
    return tree


@pytest.mark.parametrize(
    ("objective", "occupied", "unsure"),
    [
        ([-10.0, -11.9, -20.0], [3, 4, 5], True),
        ([-11.9, -10.0, -20.0], [3, 4, 5], True),
        ([-10.0, -12.1, -20.0], [3, 4, 5], False),
        ([-10.0, -11.9, -20.0], [3, 3, 5], False),
        ([-10.0, np.nan, -20.0], [3, np.nan, 5], False),
    ],
)
def test_not_sure_exactly_where_starts_within_two_nats_disagree(objective, occupied, unsure):
    with planted_zoo():
        text = spread_of_starts(ended(objective, occupied))
    assert ("Not sure" in text) == unsure
    assert text.startswith(f"{len(objective)} starts: best -10.0, next -1") or np.isnan(objective[1])
    assert not unsure or "occupy 3, 4" in text.replace("3 and 4", "3, 4")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:em. a guard holds")
def test_the_table_tells_how_the_starts_ended(by_need):
    told = spread_of_starts(by_need)
    assert told in summary(by_need).attrs["note"] and "10 starts: best" in told


@pytest.mark.slow
def test_the_table_tells_nothing_of_a_single_start(two_groups):
    model = zoo.Mixture.from_data(two_groups, num_components=4)
    assert spread_of_starts(fitted(model, two_groups, method="vb", num_restarts=1)) == ""


@pytest.mark.slow
def test_old_faithful_has_the_same_number_of_components_from_nine_seeds_of_ten():
    """No chance is left in it: from single starts the counts were 3 to 7."""
    x = load("faithful").frame()
    counts = [
        int(fitted(zoo.Mixture.from_data(x), x, method="vb", seed=seed)["trace"]["num_occupied"][-1])
        for seed in range(10)
    ]
    assert np.bincount(counts).max() >= 9


@pytest.mark.parametrize("share", [0.5, 0.9, None])
def test_components_in_one_place_are_named_however_they_share_its_rows(share):
    tree = variational_mixture()
    r = tree["variational"]["responsibilities"]
    named = [str(name) for name in r["component"].to_numpy()]
    if share is not None:
        rows = r.to_numpy().sum(0)
        empty, full = int(rows.argmin()), int(rows.argmax())
        shared = r.to_numpy().copy()
        shared[:, empty], shared[:, full] = share * shared[:, full], (1 - share) * shared[:, full]
        r = r.copy(data=shared)
        tree["variational"] = tree["variational"].to_dataset().assign(responsibilities=r)
    with planted_zoo():
        found = components_in_one_place(tree)
        text = [judged.text for judged in convergence_judgements(tree)]
    assert found == ([] if share is None else [(named[min(empty, full)], named[max(empty, full)])])
    assert any("in one place" in own for own in text) == (share is not None)


@pytest.mark.parametrize(
    ("number", "concentration", "expected"), [(20, 1.0, True), (3, 1.0, False), (20, 40.0, False)]
)
def test_a_prior_leaves_some_empty_where_all_filled_would_surprise(number, concentration, expected):
    """Against the share of 400 draws of labels that fill all; none of them is near one in twenty."""
    model = zoo.Mixture(GaussianWishart(np.zeros(1), 1.0, np.eye(1), 3.0), number, concentration)
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(number, concentration / number), size=400)
    filled = np.mean([(rng.multinomial(200, own) > 0).all() for own in weights])
    assert answer_of(model, "leaves_some_empty", 200) == (filled < 0.05) == expected


@pytest.mark.parametrize(
    ("occupied", "number", "method", "said"),
    [
        (20, 20, "vb", True),
        (19, 20, "vb", False),
        (3, 3, "vb", False),  # as many as were asked for
        (20, 20, "em", False),  # which has no prior
    ],
)
def test_a_number_of_components_that_is_used_up_is_said(occupied, number, method, said, monkeypatch):
    model = zoo.Mixture(GaussianWishart(np.zeros(1), 1.0, np.eye(1), 3.0), number)
    monkeypatch.setattr(verdicts, "model_of", lambda tree: model)
    weights = ("chain", "draw", "component"), np.full((1, 10, number), 1.0 / number)
    counts = ("chain", "draw"), np.full((1, 10), occupied)
    posterior = xr.Dataset({"num_occupied": counts, "weights": weights})
    rows = xr.Dataset({"x": (("observation", "feature"), np.zeros((200, 1)))})
    tree = xr.DataTree.from_dict({"posterior": posterior, "observed_data": rows})
    tree.attrs["method"] = method
    found = verdicts._of_truncation(tree)
    text = None if found is None else found.text
    assert text == ("The components are used up: all 20 hold rows" if said else None)


@pytest.mark.parametrize("name", ["lda vb", "mixture em", "mixture vb", "pcp vb", "plsi em"])
def test_no_start_of_a_given_number_is_stopped_while_it_rises(name, monkeypatch):
    """Each takes all steps, or ends with five small ones: the docstring of `fit` has no other end.

    By the run itself: in the tree the starts are cut where the best one ended.
    """
    make, data, method, _ = CASES[name]
    steps, runs = 40, []
    ascend = in_memory.ascend
    monkeypatch.setattr(
        in_memory, "ascend", lambda *own, **call: runs.append(ascend(*own, **call)) or runs[0]
    )
    fitted(make(), *data, method=method, num_restarts=4, max_iterations=steps)
    ends = runs[0].trace["objective"]
    assert len(ends) == 4
    for own in ends:
        gains = np.diff(own[np.isfinite(own)])
        assert len(gains) == steps - 1 or gains[-SMALL_STEPS + 1 :].max() < 1e-6 * len(data[0])
