"""Rows that pass in batches: the same bound, whatever they come from; interrupted, resumed, refused."""

import os
import re
import signal

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import inference.driver.checkpoint
import inference.fitting.arguments
import inference.fitting.in_batches
import inference.numerics.weighted_rows
import zoo
from inference import fit, load, log_density, predict, save, transform

NUM_ROWS, BATCH = 203, 50


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(3)
    centres = np.array([[0.0, 0.0], [6.0, 1.0], [-2.0, 7.0]])
    return centres[rng.integers(3, size=NUM_ROWS)] + rng.normal(size=(NUM_ROWS, 2))


@pytest.fixture(scope="module")
def model(x):
    return zoo.Mixture.from_data(x, num_components=8, weight_prior="stick_breaking")


def in_chunks(x, pieces=(17, 60, 61, 120)):
    return np.split(x, pieces)


@pytest.mark.parametrize("batch_size", [512, pytest.param(NUM_ROWS, marks=pytest.mark.slow)])
def test_one_batch_is_full_batch(x, model, batch_size):
    """A batch of all rows, and one filled up with padding: the same iterations, and as many, as without.

    Passes over batches make no moves.
    """
    call = {"max_iterations": 200, "tolerance": 1e-3, "num_samples": 5, "moves": ()}
    r = {"responsibilities": np.random.default_rng(0).dirichlet(np.ones(8), NUM_ROWS)}
    whole = fit(model, x, init=r, **call)
    one = fit(model, x, init=r, batch_size=batch_size, **call)
    np.testing.assert_allclose(one["trace"]["objective"], whole["trace"]["objective"], rtol=1e-12)
    np.testing.assert_allclose(
        one["variational"]["responsibilities"], whole["variational"]["responsibilities"], atol=1e-9
    )
    assert one["variational"]["num_occupied"] == whole["variational"]["num_occupied"]


def test_first_pass_is_one_step_of_full_batch(x, model):
    """The state is held until the sums are complete: rows may come sorted."""
    call = {"tolerance": 0, "num_samples": 5}
    r = {"responsibilities": np.random.default_rng(0).dirichlet(np.ones(8), NUM_ROWS)}
    whole = fit(model, x, init=r, max_iterations=10, **call)
    batches = fit(model, x, init=r, batch_size=BATCH, max_iterations=6, **call)
    first, second = (tree["trace"]["objective"].to_numpy() for tree in (batches, whole))
    np.testing.assert_allclose(first[0], second[0], rtol=1e-12)
    assert abs(first[1] - second[1]) > 1e-6 * abs(second[1])  # from then on batches move the state


def test_bound_rises_to_a_fixed_point_of_full_batch(x, model):
    tree = fit(model, x, batch_size=BATCH, tolerance=1e-9, num_restarts=3, num_samples=5)
    bounds = tree["trace"]["objective_by_restart"].to_numpy()
    steps = np.diff(bounds, axis=0)
    assert np.nanmin(steps) > -1e-8 * np.nanmax(np.abs(bounds))
    reached = float(tree["trace"]["objective"][-1])
    assert reached > np.nanmax(bounds) - 1e-8 * abs(reached)
    again = fit(model, x, init=tree, max_iterations=1, tolerance=0, num_samples=5)
    assert abs(float(again["trace"]["objective"][-1]) - reached) < 1e-6 * NUM_ROWS  # 1e-9 nats a row and pass


def test_all_sources_of_the_same_rows_give_the_same_fit(x, model, tmp_path):
    call = {"batch_size": BATCH, "max_iterations": 6, "tolerance": 0, "num_samples": 5}

    class Chunks:
        def __iter__(self):
            return iter(in_chunks(x))

    trees = [
        fit(model, source, **call) for source in (Chunks(), lambda: iter(in_chunks(x)), in_chunks(x, (99,)))
    ]
    for tree in trees[1:]:
        np.testing.assert_array_equal(tree["trace"]["objective"], trees[0]["trace"]["objective"])
    np.testing.assert_array_equal(trees[0]["observed_data"]["x"], x)
    np.save(tmp_path / "rows.npy", x)
    held, mapped = (fit(model, rows, **call) for rows in (x, np.load(tmp_path / "rows.npy", mmap_mode="r")))
    np.testing.assert_array_equal(held["trace"]["objective"], mapped["trace"]["objective"])
    assert held.attrs["batch_size"] == BATCH
    table = fit(model, pd.DataFrame(x, columns=["length", "width"]), **call)
    np.testing.assert_array_equal(held["trace"]["objective"], table["trace"]["objective"])
    assert list(table["posterior"]["feature"].to_numpy()) == ["length", "width"]


@pytest.mark.slow
def test_default_priors_of_an_array_are_those_of_all_its_rows(x):
    call = {"max_iterations": 2, "tolerance": 0, "num_samples": 5}
    batches, whole = (fit(zoo.Mixture(num_components=3), x, **call, **own) for own in ({"batch_size": 7}, {}))
    np.testing.assert_array_equal(
        batches["constant_data"]["components_scale_matrix"], whole["constant_data"]["components_scale_matrix"]
    )


def test_weights_count_rows_in_batches_too(x, model):
    weight = np.random.default_rng(0).integers(0, 3, NUM_ROWS)
    r = np.random.default_rng(1).dirichlet(np.ones(8), NUM_ROWS)
    call = {"batch_size": 512, "max_iterations": 5, "tolerance": 0, "num_samples": 5}
    weighted = fit(model, x, sample_weight=weight, init={"responsibilities": r}, **call)
    copies = fit(
        model, np.repeat(x, weight, axis=0), init={"responsibilities": np.repeat(r, weight, axis=0)}, **call
    )
    np.testing.assert_allclose(weighted["trace"]["objective"], copies["trace"]["objective"], rtol=1e-10)
    np.testing.assert_array_equal(weighted["constant_data"]["sample_weight"], weight)


def test_every_batch_has_the_weights_of_its_own_rows(x, model):
    """The first pass over batches, held until the sums are complete, is one step of all rows."""
    weight = np.random.default_rng(4).gamma(1.0, size=NUM_ROWS)
    r = {"responsibilities": np.random.default_rng(0).dirichlet(np.ones(8), NUM_ROWS)}
    call = {"init": r, "sample_weight": weight, "tolerance": 0, "num_samples": 5}
    batches = fit(model, x, batch_size=BATCH, max_iterations=6, **call)
    whole = fit(model, x, max_iterations=10, **call)
    first, second = (tree["trace"]["objective"].to_numpy()[0] for tree in (batches, whole))
    np.testing.assert_allclose(first, second, rtol=1e-12)


def test_the_rows_of_a_start_have_their_weights(x, model, monkeypatch):
    seen = []
    monkeypatch.setattr(
        inference.fitting.in_batches,
        "warmed_up",
        lambda algorithm, model, rows, keys, states: seen.append(rows) or states,
    )
    weight = np.arange(NUM_ROWS) % 3
    call = {"batch_size": BATCH, "max_iterations": 6, "tolerance": 0, "num_samples": 5}
    fit(model, x, sample_weight=weight, **call)
    away = x - x.mean(axis=0)
    chosen = [int(np.flatnonzero(np.isclose(away, row).all(axis=1))[0]) for row in np.asarray(seen[0].x)]
    assert len(set(chosen)) == BATCH
    np.testing.assert_array_equal(seen[0].weight, weight[chosen])


@pytest.mark.slow
def test_nothing_per_row_is_kept_of_many_rows(x, model, monkeypatch, tmp_path):
    call = {"batch_size": BATCH, "max_iterations": 6, "tolerance": 0, "num_samples": 5}
    small = fit(model, x, **call)
    monkeypatch.setattr(inference.numerics.weighted_rows, "ROW_BYTES", 1000)
    large = fit(model, x, **call)
    left_out = set(large.attrs["left_out"].split(", "))
    assert left_out == {"assignments", "log_likelihood", "responsibilities", "observed_data"}
    assert not any("observation" in group.dims for group in large.subtree)
    assert large.attrs["num_observations"] == NUM_ROWS
    assert large["variational"]["num_occupied"] == small["variational"]["num_occupied"]
    save(large, tmp_path / "large.nc")
    back = load(tmp_path / "large.nc")
    for function in (transform, predict, log_density):
        np.testing.assert_array_equal(function(back, x[:9]), function(small, x[:9]))


class Stops(Exception):
    """What a source raises in the middle of a pass."""


class Source:
    """Chunks, with something happening before the last one of a given pass over all of them.

    The passes of a fit come after one that reads the scales.
    """

    def __init__(self, x, at=None, event=None):
        self.x, self.at, self.event, self.complete = x, at, event, -1

    def __iter__(self):
        *chunks, last = in_chunks(self.x)
        yield from chunks
        if self.complete == self.at:
            self.at = None
            self.event()
        yield last
        self.complete += 1


def test_a_run_cut_in_a_pass_and_resumed_is_the_run_that_was_not(x, model, monkeypatch, tmp_path):
    monkeypatch.setattr(inference.driver.checkpoint, "SECONDS_BETWEEN_SAVES", 0.0)
    call = {"batch_size": BATCH, "max_iterations": 8, "tolerance": 0, "num_samples": 5, "num_restarts": 2}
    call["checkpoint"] = tmp_path / "run.npz"

    def fail():
        raise Stops

    for at in (0, 3):  # in the first pass, and later on from the file: in its fourth
        with pytest.raises(Stops):
            fit(model, Source(x, at, fail), **call)
    resumed = fit(model, Source(x), **call)
    whole = fit(model, Source(x), **{**call, "checkpoint": None})
    np.testing.assert_array_equal(resumed["trace"]["objective"], whole["trace"]["objective"])
    np.testing.assert_array_equal(resumed["posterior"]["locs"], whole["posterior"]["locs"])
    with pytest.raises(ValueError, match="belongs to another run; what differs: data"):
        fit(model, Source(x + 1.0), **call)


@pytest.mark.parametrize("passes", [0, 2])
def test_ctrl_c_in_a_pass_returns_what_there_is(x, model, passes):
    source = Source(x, passes, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.warns(UserWarning, match="interrupted"):
        tree = fit(model, source, batch_size=BATCH, num_samples=5)
    assert tree.attrs["stop_reason"] == "interrupted"
    assert tree.attrs["num_iterations"] == passes
    assert np.isfinite(tree["posterior"]["locs"]).all()


def uneven():
    return iter([np.zeros((3, 2)), np.zeros((3, 4))])


@pytest.mark.parametrize(
    ("data", "options", "error", "message"),
    [
        (np.eye(9), {"batch_size": 0}, ValueError, "batch_size must be at least 1; got 0"),
        (np.eye(9), {"batch_size": 2.5}, TypeError, "batch_size must be a whole number; got 2.5"),
        (
            np.eye(9),
            {"batch_size": 3, "method": "gibbs"},
            ValueError,
            "'gibbs' of mixture does not take batch_size",
        ),
        (np.eye(9), {"batch_size": 3, "learn": ("m0",)}, ValueError, "learn does not go with batch_size"),
        (scipy.sparse.eye(9), {"batch_size": 3}, TypeError, "sparse counts are fitted whole"),
        (lambda: iter([]), {"batch_size": 3}, ValueError, "the source of chunks gave no rows"),
        (np.empty((0, 2)), {"batch_size": 3}, ValueError, r"x has no rows: its shape is \(0, 2\)"),
        (iter([np.eye(9)]), {"batch_size": 3}, TypeError, "an iterator can be read only once"),
        ([np.eye(9)], {}, ValueError, "data that come in chunks are fitted in batches: give batch_size"),
        (uneven, {"batch_size": 9}, ValueError, "chunk 1 has 4 columns; those before it have 2"),
        (
            [np.eye(9)],
            {"batch_size": 3, "sample_weight": np.ones(9)},
            ValueError,
            "sample_weight goes with an array",
        ),
        (
            [np.eye(9)[:, :2]],
            {"batch_size": 3, "init": {"a": 1}},
            ValueError,
            "variables per row go with an array",
        ),
    ],
)
def test_bad_input_gets_a_clear_error(data, options, error, message):
    with pytest.raises(error, match=message):
        fit(zoo.Mixture(num_components=2), data, **options)


def test_a_bad_row_far_into_the_data_is_named(x, model, monkeypatch):
    monkeypatch.setattr(
        inference.fitting.arguments, "SCALE_ROWS", 60
    )  # rows that are looked at before the run
    bad = x.copy()
    bad[120, 1] = np.nan
    with pytest.raises(
        ValueError,
        match=r"in rows 100 to 149 .* cells are missing .row 20, column 1 of a batch.*leave batch_size out",
    ):
        fit(model, lambda: iter(in_chunks(bad)), batch_size=BATCH)


def test_batches_of_a_mixed_table_have_the_families_of_all_rows_or_are_refused():
    """Guards the covariance of memory: a table that missed a cell had independent columns in batches."""
    rng = np.random.default_rng(0)
    words = rng.choice(["yes", "no"], 60)
    table = pd.DataFrame({"a": rng.normal(size=60), "word": words, "b": rng.normal(size=60)})
    model, call = zoo.Mixture(num_components=2), {"max_iterations": 2, "tolerance": 0, "progress": False}
    table.loc[30, "word"] = None  # a group whose columns are independent takes it
    of_batches, of_all = (fit(model, table, **each, **call) for each in ({"batch_size": 20}, {}))
    assert of_batches.attrs["model_fields"] == of_all.attrs["model_fields"]
    assert "GaussianWishart" in of_all.attrs["model_fields"]
    table.loc[40, "b"] = np.nan
    with pytest.raises(ValueError, match=r"row \d+, column 'b' of a batch.* leave batch_size out") as refused:
        fit(model, table, batch_size=20, **call)
    remedy = re.search(r"components=(Product.*), whose", str(refused.value))[1]
    made = model.replaced(components=eval(remedy, vars(zoo.conjugate)))
    assert "NormalGamma" in fit(made, table, batch_size=20, **call).attrs["model_fields"]


def test_rows_may_not_come_and_go(x, model):
    lengths = iter([203, 203, 203, 150])
    with pytest.raises(ValueError, match="gave 203 rows at first and 150 later"):
        fit(model, lambda: iter([x[: next(lengths)]]), batch_size=BATCH)
