"""The three loops on steps so simple that what they must do is counted by hand."""

import itertools
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inference.algorithm import Memoised, NaturalGradient
from inference.driver import ascent, chains, memoised
from inference.driver.ascent import _ascend_chunk, _ascend_chunk_on_host, _Restarts, ascend
from inference.driver.chains import _believed, sample
from inference.driver.checkpoint import Checkpoint
from inference.driver.progress import (
    CONVERGED,
    FELL,
    NOT_FINITE,
    RUNNING,
    advanced,
    new_progress,
    tolerated_fall,
)
from inference.driver.stochastic import ascend_stochastically
from inference.fitting.in_memory import progress_line
from inference.fitting.verdict import five_small_gains


class _Info(NamedTuple):
    objective: Any


@pytest.mark.parametrize("way", ["in turn", "side by side", "on the host"])
def test_each_step_has_the_key_of_its_iteration_and_none_follows_the_last(way, monkeypatch):
    """Two restarts that have taken none and three of five steps, in a chunk that has room for ten."""
    chunk = _ascend_chunk_on_host if way == "on the host" else _ascend_chunk
    monkeypatch.setattr(ascent, "_side_by_side", lambda: way == "side by side")  # as on an accelerator

    def step(key, state, model):
        total, number = state
        return (total + jax.random.normal(key), number + 1), _Info(number + 1.0)

    keys, taken = jax.random.split(jax.random.key(0), 2), np.array([0, 3])
    restarts = _Restarts((jnp.zeros(2), jnp.asarray(taken)), new_progress(2)._replace(iteration=taken))
    bounds = (10, 5, -np.inf, 1e-8, CONVERGED)
    found, infos = chunk((step, five_small_gains, False), restarts, keys, bounds, None, ())
    for restart, first in enumerate(taken):
        drawn = [jax.random.normal(jax.random.fold_in(keys[restart], i)) for i in range(first, 5)]
        np.testing.assert_allclose(found.state[0][restart], np.sum(drawn), rtol=1e-6)
        np.testing.assert_array_equal(infos.objective[restart][: 5 - first], np.arange(first + 1.0, 6))
    assert found.progress.iteration.tolist() == [5, 5] and found.progress.status.tolist() == [RUNNING] * 2


def _climbing(key, state, model):
    """Half the way to the top of the hill the state is on: tops at 0, 10 and 20, of heights 0, -5 and 5."""
    hill = jnp.clip(jnp.round(state / 10), 0, 2)
    top, height = 10 * hill, jnp.array([0.0, -5.0, 5.0])[hill.astype(int)]
    state = top + (state - top) / 2
    return state, _Info(height - (state - top) ** 2)


@pytest.mark.parametrize("far", [20.5, 14.0])
def test_a_settled_restart_goes_on_from_a_proposal_only_if_a_step_from_it_leads_higher(far):
    """One proposal leads to a lower hill, the other to a higher one if it is near enough to the top."""

    def propose(states, asked, model):
        for place in (11.0, far):
            is_low = np.isin(np.arange(2), asked) & (states < 5.0)
            states, taken = yield np.full(2, place), is_low
            assert not (taken & ~is_low).any()

    run = ascend(
        _climbing,
        lambda key, variables, model: variables["at"],
        None,
        (),
        keys=jax.random.split(jax.random.key(0), 2),
        variables={"at": jnp.array([1.0, -2.0])},
        num_rows=1.0,
        num_restarts=2,
        max_iterations=200,
        tolerance=1e-6,
        must_rise=True,
        rule=five_small_gains,
        checkpoint=Checkpoint(None, {}),
        open_bar=progress_line(False),
        propose=propose,
    )
    found = run.trace["objective"]
    assert np.nanmin(np.diff(found, axis=1)) >= 0 and run.converged
    moved = far > 15
    assert run.num_improvements == int(moved) and run.stop_reason == "converged"
    np.testing.assert_allclose(np.nanmax(found, axis=1), 5.0 if moved else 0.0, atol=1e-4)


@pytest.mark.parametrize("way", ["in turn", "side by side", "on the host"])
def test_a_restart_that_fails_holds_the_state_before(way, monkeypatch):
    """Two of three fail at their third step, one by a fall and one by NaN: their sums are of two steps."""
    chunk = _ascend_chunk_on_host if way == "on the host" else _ascend_chunk
    monkeypatch.setattr(ascent, "_side_by_side", lambda: way == "side by side")

    def step(key, state, model):
        restart, number = state
        failed = jnp.array([np.nan, 0.0, 3.0])[restart]
        return (restart, number + 1), _Info(jnp.where(number == 2, failed, number + 1.0))

    restarts = _Restarts((jnp.arange(3), jnp.zeros(3, int)), new_progress(3))
    keys, bounds = jax.random.split(jax.random.key(0), 3), (10, 4, -np.inf, 1e-8, CONVERGED)
    found, _ = chunk((step, five_small_gains, False), restarts, keys, bounds, None, ())
    np.testing.assert_array_equal(found.state[1], [2, 2, 4])
    np.testing.assert_array_equal(found.progress.objective, [2, 2, 4])
    assert found.progress.status.tolist() == [NOT_FINITE, FELL, RUNNING]


@pytest.mark.parametrize(("dtype", "status"), [(jnp.float32, RUNNING), (jnp.float64, FELL)])
def test_a_fall_within_the_rounding_of_the_precision_is_none(dtype, status):
    """By a hundred-thousandth: rounding of sums in single precision, not in double."""
    progress = new_progress(1)._replace(objective=np.array([-1000.0]))
    slack = tolerated_fall(dtype)
    found = advanced(five_small_gains, np, progress, np.array([-1000.01]), 0.5, slack)
    assert found.status.tolist() == [status]


def _ascent(step, start, *, variables=None, num_restarts=1, checkpoint=None, **settings):
    """Restarts that take all their steps: no gain is small, and no fall is allowed."""
    return ascend(
        step,
        start,
        None,
        (),
        keys=jax.random.split(jax.random.key(0), num_restarts),
        variables=variables or {},
        num_rows=1,
        num_restarts=num_restarts,
        tolerance=0,
        must_rise=True,
        rule=five_small_gains,
        checkpoint=checkpoint or Checkpoint(None, {}),
        open_bar=progress_line(False),
        **settings,
    )


@pytest.mark.parametrize("on_host", [False, True])
def test_steps_that_settle_a_start_come_once_and_not_again_when_it_is_resumed(on_host, tmp_path):
    """Three before the first that counts, then four; resumed, two more: nine in all."""

    def run(max_iterations):
        return _ascent(
            lambda key, state, model: (state + 1, _Info(state * 1.0)),
            lambda key, variables, model: jnp.zeros((), int),
            checkpoint=Checkpoint(tmp_path / "run.npz", {}),
            max_iterations=max_iterations,
            settling_steps=lambda state: np.array([3]),
            on_host=on_host,
        )

    assert [int(run(steps).state) for steps in (4, 6)] == [7, 9]
    found = run(6)
    assert found.num_iterations == 6
    np.testing.assert_array_equal(found.trace["objective"], [np.arange(3.0, 9)])


@pytest.mark.parametrize("on_host", [False, True])
def test_each_restart_begins_with_its_own_variables_and_the_best_is_returned(on_host):
    """Restarts begin at 5, 30 and 20, and rise by one, two and three a step."""
    given = {"first": jnp.array([5.0, 30, 20]), "gain": jnp.array([1.0, 2, 3])}
    found = _ascent(
        lambda key, state, model: (state + jnp.array([state[1], 0]), _Info(state[0] + state[1])),
        lambda key, variables, model: jnp.stack([variables["first"], variables["gain"]]),
        variables=given,
        num_restarts=3,
        max_iterations=4,
        on_host=on_host,
    )
    assert found.best_restart == 1
    np.testing.assert_array_equal(found.state, [38, 2])
    first, gain = (np.asarray(given[name])[:, None] for name in ("first", "gain"))
    np.testing.assert_array_equal(found.trace["objective"], first + gain * np.arange(1, 5))


def test_restarts_in_turn_take_no_step_once_stopped_and_one_branch_of_a_condition():
    """Three restarts, of which one has stopped, count their own steps and the dear branch's.

    Under `jax.vmap` every lane would take both branches in every step, eight and eight.
    """
    counts = {"step": [], "dear": []}

    def step(key, state, model):
        jax.debug.callback(lambda own: counts["step"].append(int(own)), state[0])

        def dear(number):
            jax.debug.callback(lambda own: counts["dear"].append(int(own)), state[0])
            return number + 1.0

        number = jax.lax.cond(state[1] == 2.0 * state[0], dear, lambda number: number + 1.0, state[1])
        return (state[0], number), _Info(number)

    progress = new_progress(3)._replace(status=np.array([RUNNING, CONVERGED, RUNNING]))
    restarts = _Restarts((jnp.arange(3), jnp.zeros(3)), progress)
    functions, keys = (step, five_small_gains, False), jax.random.split(jax.random.key(0), 3)
    found, _ = _ascend_chunk(functions, restarts, keys, (10, 6, -np.inf, 1e-8, CONVERGED), None, ())
    jax.effects_barrier()
    assert found.state[1].tolist() == [6, 0, 6]
    assert sorted(counts["step"]) == [0] * 6 + [2] * 6
    assert sorted(counts["dear"]) == [0, 2]  # at their first and at their fifth step


@pytest.mark.parametrize("loops", [True, False])
def test_chains_whose_steps_are_loops_take_them_in_turn(loops):
    """The dear branch is for the first chain's first sweep; vectorised chains both take it in all eight."""
    taken = []

    def step(key, state, model):
        def dear(state):
            jax.debug.callback(lambda own: taken.append(own.tolist()), state)
            return state + jnp.array([0, 1])

        is_first = (state[0] == 0) & (state[1] == 0)
        state = jax.lax.cond(is_first, dear, lambda state: state + jnp.array([0, 1]), state)
        return state, _Info(state[1].astype(float))

    found = _chains(
        step,
        lambda key, variables, model: jnp.stack([variables["chain"], 0]),
        num_warmup=0,
        num_samples=8,
        thinning=1,
        loops=loops,
    )
    jax.effects_barrier()
    np.testing.assert_array_equal(found.draws["state"][:, :, 1], [np.arange(1, 9)] * 2)
    assert (taken == [[0, 0]]) if loops else len(taken) == 16


@pytest.mark.parametrize("numbers", [np, jnp])
def test_five_small_gains_end_an_ascent_only_in_a_row(numbers):
    """Gains of 1 are large, of 0.1 small: four small ones, a large one, and five small ones."""
    gains, progress, found = [1.0, *[0.1] * 4, 1.0, *[0.1] * 5], new_progress(1), []
    progress, objective = progress._replace(objective=np.zeros(1)), 0.0
    for gain in gains:
        objective += gain
        progress = advanced(five_small_gains, numbers, progress, numbers.full(1, objective), 0.5, 1e-8)
        found.append((int(progress.small_steps[0]), int(progress.status[0])))
    small = [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5]
    assert found == [(number, CONVERGED if number == 5 else RUNNING) for number in small]


def _chains(step, start, checkpoint=None, **settings):
    """Two chains whose draws are their states."""
    return sample(
        step,
        start,
        lambda state, model: {"state": state},
        None,
        (),
        keys=jax.random.split(jax.random.key(0), 2),
        variables={"chain": jnp.arange(2)},
        num_chains=2,
        chain_method="vectorized",
        checkpoint=checkpoint or Checkpoint(None, {}),
        open_bar=progress_line(False),
        **settings,
    )


def test_sweeps_have_keys_of_their_own_and_draws_are_every_third_after_warm_up():
    """The state is the number of sweeps and the last variate: of draw d after 2 + 3 (d + 1) sweeps."""

    def step(key, state, model):
        number = state[0] + 1
        return jnp.stack([number, jax.random.normal(key)]), _Info(number)

    found = _chains(step, lambda key, variables, model: jnp.zeros(2), num_warmup=2, num_samples=7, thinning=3)
    sweeps = 2 + 3 * (np.arange(7) + 1)
    assert found.num_iterations == 23 and found.stop_reason == "completed"
    np.testing.assert_array_equal(found.trace["objective"], [np.arange(1.0, 24)] * 2)
    for chain, key in enumerate(jax.random.split(jax.random.key(0), 2)):
        drawn = [jax.random.normal(jax.random.fold_in(key, sweep - 1)) for sweep in sweeps]
        np.testing.assert_allclose(found.draws["state"][chain], np.stack([sweeps, drawn], 1), rtol=1e-6)


@pytest.mark.parametrize(
    ("value", "words"), [(jnp.nan, "not a number"), (jnp.inf, "infinite"), (-jnp.inf, "minus infinity")]
)
def test_one_chain_without_a_log_joint_ends_them_all_before_its_chunk(value, words):
    """The other chain, and the sweeps before, are as they should be: one fault of many numbers is enough."""

    def step(key, state, model):
        chain, number = state
        fails = (chain == 1) & (number == 3)
        return (chain, number + 1), _Info(jnp.where(fails, value, -1.0))

    found = _chains(
        step,
        lambda key, variables, model: (variables["chain"], jnp.zeros((), int)),
        num_warmup=2,
        num_samples=20,
        thinning=1,
    )
    assert found.stop_reason.startswith(f"the log joint of chain 1 was {words} at sweep 3;")
    assert found.num_iterations == 2  # the chunk of warm-up


def test_the_seconds_of_a_run_that_is_resumed_again_and_again_add_up(tmp_path, monkeypatch):
    """By a clock that says one more whenever it is asked; no look passes: each run makes a block more."""
    clock = itertools.count()
    monkeypatch.setattr(chains, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    path, seconds, asked = tmp_path / "run.npz", [], []
    for number in range(1, 4):
        begun = next(clock)
        _chains(
            lambda key, state, model: (state, _Info(state)),
            lambda key, variables, model: jnp.zeros(()),
            Checkpoint(path, {}),
            num_warmup=0,
            num_samples=2,
            thinning=1,
            look=lambda draws, trace, sweeps: (False, 2.0),
            max_looks=number,
        )
        asked.append(next(clock) - begun)
        with np.load(path) as stored:
            seconds.append(next(float(stored[name]) for name in stored.files if name.endswith("seconds")))
    assert all(0 < gain < of_run for gain, of_run in zip(np.diff([0, *seconds]), asked, strict=True))


@pytest.mark.parametrize(
    ("passed", "wanted"),
    [([], False), ([1], False), ([1, 1], True), ([0, 1, 1], True), ([1, 0, 1], False), ([1, 1, 0], False)],
)
def test_two_looks_in_a_row_are_enough_and_no_less(passed, wanted):
    looks = [(100 * (number + 1), float(one), 1.0) for number, one in enumerate(passed)]
    assert _believed(looks) is wanted


@pytest.mark.parametrize("is_chunked", [True, False])
def test_batches_are_numbered_from_one_and_their_scores_added(is_chunked):
    """Seven documents in batches of three, three and one, passed over twice.

    The state keeps each batch's number and share of the documents; a document's score is its number of words.
    Each pass over an array has an order of its own, drawn by the run's key and the number of the pass.
    """
    orders = []
    words, log_coefficient = np.array([2.0, 3, 5, 7, 11, 13, 17]), 100.0
    cuts = [(0, 3), (3, 6), (6, 7)]

    def batches(order=None):
        orders.append(None if order is None else order.tolist())
        rows = words if order is None else words[order]
        return ((begin, rows[begin:end]) for begin, end in cuts)

    def step(state, model, rows, share, time):
        numbers, shares, taken = state
        state = numbers.at[taken].set(time), shares.at[taken].set(share), taken + 1
        return state, jnp.sum(rows)

    stochastic = NaturalGradient(
        step=step,
        evaluate=lambda state, model, rows: (rows, jnp.sum(rows)),
        total=lambda state, model: _Info(1000.0 * state[2]),
        with_rows=lambda state, rows: state,
        without_rows=lambda state: state,
        num_columns=lambda model: 1,
        of_rows="",
        drawn_of_rows="",
        draw_width=lambda model: 1,
    )
    stream = SimpleNamespace(
        batches=batches,
        blocks=jnp.asarray,
        places=lambda counts: slice(None),
        is_chunked=is_chunked,
        num_rows=words.size,
        num_batches=len(cuts),
        log_coefficient=log_coefficient,
    )
    found, rows = ascend_stochastically(
        stochastic,
        lambda key, variables, model, documents: (jnp.zeros(6), jnp.zeros(6), jnp.zeros((), int)),
        None,
        stream,
        key=jax.random.key(0),
        variables={},
        max_iterations=2,
        tolerance=0,
        rule=five_small_gains,
        checkpoint=Checkpoint(None, {}),
        open_bar=progress_line(False),
        keep_rows=True,
    )
    numbers, shares, taken = found.state
    np.testing.assert_array_equal(numbers, np.arange(1, 7))
    np.testing.assert_allclose(shares, [3 / 7, 3 / 7, 1 / 7] * 2, rtol=1e-6)
    of_rows = words.sum() + log_coefficient
    np.testing.assert_allclose(found.trace["objective"], [[3000 + of_rows, 6000 + of_rows]])
    np.testing.assert_array_equal(rows, words)
    assert taken == 6 and found.num_iterations == 2
    in_order = None if is_chunked else list(range(7))
    first, *passes, last = orders
    assert first == in_order and last is None
    assert passes == [None, None] if is_chunked else sorted(passes[0]) == sorted(passes[1]) == in_order
    assert is_chunked or in_order not in passes and passes[0] != passes[1]


def test_batches_are_remembered_and_a_restart_that_fails_holds_the_end_of_its_last_good_pass(monkeypatch):
    """Two batches, of 1 and 100, whose contributions to the sums grow with the number of updates so far.

    An update writes down the sums it sees. The first pass has one, at its end, later ones three. In the third
    pass one restart becomes NaN and another falls: both go back to the end of the second, after four updates.
    """

    def update(state, sums, model):
        restart, updates, seen = state
        failed = jnp.array([jnp.nan, 0.0, 7.0])[restart]
        objective = jnp.where(updates == 6, failed, updates + 1.0)
        return (restart, updates + 1, seen.at[updates].set(sums)), _Info(objective)

    steps = Memoised(
        sums=lambda state, model, rows: rows * (1.0 + state[1]),
        update=update,
        best_order=lambda state, sums, model: None,
        reorder=None,
    )

    class Stream(list):
        num_batches = 2

    stream = Stream(
        SimpleNamespace(weight=np.ones(1), begin=begin, count=1, rows=jnp.asarray(rows))
        for begin, rows in enumerate((1.0, 100.0))
    )
    monkeypatch.setattr(memoised, "best_run", lambda states, progress, *_: (states, progress))
    checked = []
    (_, updates, seen), progress = memoised.ascend_in_batches(
        steps,
        lambda key, variables, model, rows: (variables, jnp.zeros((), int), jnp.zeros(10)),
        None,
        stream,
        put=lambda batch: batch.rows,
        check=lambda batch: checked.append(batch.begin),
        start_rows=stream[0].rows,
        warm_up=lambda keys, states: states,
        keys=jax.random.split(jax.random.key(0), 3),
        variables=jnp.arange(3),
        num_restarts=3,
        max_iterations=4,
        tolerance=0,
        rule=five_small_gains,
        checkpoint=Checkpoint(None, {}),
        open_bar=progress_line(False),
    )
    assert checked == [0, 1]
    assert progress.status.tolist() == [NOT_FINITE, FELL, RUNNING]
    np.testing.assert_array_equal(progress.objective, [4, 4, 10])
    np.testing.assert_array_equal(updates, [4, 4, 10])
    by_hand = [101, 102, 302, 302, 305, 605, 605, 608, 908, 908]
    np.testing.assert_array_equal(seen, [by_hand[:4] + 6 * [0]] * 2 + [by_hand])
