"""Runs that stop, resume, are killed or interrupted; restarts and chains."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inference import fit
from inference.diagnostics import summary_text
from inference.driver.ascent import ascend
from inference.driver.checkpoint import Checkpoint
from inference.driver.progress import new_progress
from inference.fitting.in_memory import progress_line
from inference.fitting.verdict import five_small_gains, verdict
from tests.support.interruptions import cut_short, same
from tests.support.processes import started
from zoo.mixture import Mixture

ROOT = Path(__file__).parents[3]
SHORT = {"num_warmup": 40, "num_samples": 60, "num_chains": 2}


# Costly: bit for bit, by both drivers; later tests of the file share the programs.
@pytest.mark.cases_by_default(2)
@pytest.mark.filterwarnings("ignore:mixture by .* has not converged")
@pytest.mark.parametrize(
    ("method", "settings", "chunks"),
    [
        ("vb", {"max_iterations": 400, "tolerance": 0, "num_restarts": 3, "num_samples": 20}, 3),
        ("gibbs", {**SHORT, "thinning": 3}, 3),
        ("nuts", SHORT, 1),  # cut in warm-up
        ("hmc", SHORT, 6),
    ],
)
def test_a_resumed_run_is_the_uninterrupted_one(
    method, settings, chunks, small_model, two_clusters, tmp_path, monkeypatch
):
    call = {"method": method, "seed": 3, **settings}
    whole = fit(small_model, two_clusters, **call)
    path = tmp_path / "run"  # no ending: exactly this file is written
    with monkeypatch.context() as patch:
        cut_short(patch, chunks)
        part = fit(small_model, two_clusters, checkpoint=path, **call)
    assert (
        "interrupted" in part.attrs["stop_reason"]
        and part.attrs["num_iterations"] < whole.attrs["num_iterations"]
    )
    assert path.exists() and sorted(p.name for p in tmp_path.iterdir()) == ["run"]
    same(fit(small_model, two_clusters, checkpoint=path, **call), whole)
    same(fit(small_model, two_clusters, checkpoint=path, **call), whole)  # a finished run is read, not run
    with np.load(path, allow_pickle=False) as file:
        assert "fingerprint" in file.files


@pytest.mark.filterwarnings("ignore:mixture by .* has not converged")
def test_a_checkpoint_of_another_run_is_refused_with_what_differs(small_model, two_clusters, tmp_path):
    path = tmp_path / "run.ckpt"
    call = {"method": "gibbs", "checkpoint": path, **SHORT}
    fit(small_model, two_clusters, **call)
    other = Mixture.from_data(two_clusters, num_components=3)
    for change, name in (
        (lambda: fit(other, two_clusters, **call), "model"),
        (lambda: fit(small_model, two_clusters + 1, **call), "data"),
        (lambda: fit(small_model, two_clusters, **{**call, "seed": 5}), "seed"),
        (lambda: fit(small_model, two_clusters, **{**call, "num_samples": 61}), "num_samples"),
        (lambda: fit(small_model, two_clusters, **{**call, "dtype": "float32"}), "dtype"),
    ):
        with pytest.raises(ValueError, match=f"belongs to another run; what differs: .*{name}"):
            change()
    with np.load(path, allow_pickle=False) as file:
        kept = {name: file[name] for name in file.files if name != "format"}
    with open(path, "wb") as file:
        np.savez(file, **kept)
    with pytest.raises(ValueError, match="has format 1 and this version resumes format 6: remove the file"):
        fit(small_model, two_clusters, **call)
    path.write_bytes(b"garbage")
    with pytest.raises(ValueError, match="is not a checkpoint"):
        fit(small_model, two_clusters, **call)


KILLED = """
import sys, numpy as np, warnings
warnings.simplefilter("ignore")
from inference import fit
from zoo.mixture import Mixture
x = np.random.default_rng(0).normal(size=(400, 2))
model = Mixture.from_data(x, num_components=10)
settings = dict(num_chains=2, num_warmup=2000, num_samples=20000, seed=4)
tree = fit(model, x, method="gibbs", checkpoint=sys.argv[1] or None, **settings)
np.savez(sys.argv[2], lp=tree["trace"]["objective"].to_numpy(), locs=tree["posterior"]["locs"].to_numpy())
"""


@pytest.mark.slow
def test_killed_with_sigkill_and_resumed_gives_the_same_draws(tmp_path):
    """In a process of its own, killed once the checkpoint is there, while sampling."""
    path, environment = tmp_path / "run.ckpt", {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", KILLED]
    subprocess.run([*command, "", tmp_path / "whole.npz"], check=True, env=environment)
    with started(
        [*command, path, tmp_path / "never.npz"], env=environment, stdout=None, stderr=None
    ) as process:
        while not path.exists() or int(np.load(path)["done"]) <= 2000:
            assert process.poll() is None, "finished before it could be killed"
            time.sleep(0.02)
        process.kill()
        assert process.wait() == -signal.SIGKILL and not (tmp_path / "never.npz").exists()
    subprocess.run([*command, path, tmp_path / "resumed.npz"], check=True, env=environment)
    whole, resumed = np.load(tmp_path / "whole.npz"), np.load(tmp_path / "resumed.npz")
    for name in whole.files:
        np.testing.assert_array_equal(whole[name], resumed[name])


@pytest.fixture
def default_ctrl_c():
    """Python's own handler, which a process that a shell started in the background does not have."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def press_ctrl_c():
    """As soon as the run is under way."""
    while signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        time.sleep(0.05)
    time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("method", ["vb", "svi"])
@pytest.mark.parametrize("is_kept", [True, False])
def test_an_interrupted_ascent_says_how_to_go_on(
    small_model, two_clusters, monkeypatch, tmp_path, method, is_kept
):
    cut_short(monkeypatch, 1)
    checkpoint = tmp_path / "run" if is_kept else None
    with pytest.warns(UserWarning, match="the run was interrupted. Next: run it to completion"):
        tree = fit(
            small_model, two_clusters, method=method, tolerance=0, num_samples=2, checkpoint=checkpoint
        )
    resumes = f"the same call with checkpoint={os.fspath(tmp_path / 'run')!r} resumes where it stopped"
    said = verdict(tree)
    assert said.reason.startswith("the run was interrupted") and (resumes in said.advice) == is_kept
    assert "max_iterations" not in said.advice and "init=tree" in said.advice


@pytest.mark.usefixtures("default_ctrl_c")
def test_ctrl_c_returns_what_there_is(small_model, two_clusters):
    threading.Thread(target=press_ctrl_c, daemon=True).start()
    with pytest.warns(UserWarning, match="the run ended early: interrupted"):
        tree = fit(
            small_model,
            two_clusters,
            method="gibbs",
            num_warmup=0,
            num_samples=1_000_000,
            keep=("assignments",),
            num_chains=2,
            thinning=3,  # the program of the resumed run
        )
    assert tree.attrs["stop_reason"] == "interrupted" and tree.attrs["converged"] == 0
    assert 0 < tree["posterior"].sizes["draw"] < 1_000_000
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_in_warm_up_returns_the_state_reached(small_model, two_clusters, monkeypatch):
    cut_short(monkeypatch, 1)
    with pytest.warns(UserWarning, match="interrupted in warm-up"):
        settings = {**SHORT, "num_warmup": 100_000, "thinning": 3}  # the program of the resumed run
        tree = fit(small_model, two_clusters, method="gibbs", **settings)
    assert tree["posterior"].sizes["draw"] == 1 and np.isfinite(tree["posterior"]["locs"]).all()


@pytest.mark.slow
def test_zero_tolerance_runs_exactly_the_iterations_asked_for(small_model, two_clusters):
    tree = fit(small_model, two_clusters, tolerance=0, max_iterations=77, num_samples=2, num_restarts=1)
    assert tree.attrs["num_iterations"] == 77 and tree["trace"].sizes["iteration"] == 77
    assert tree.attrs["stop_reason"] == "max_iterations"


@pytest.mark.parametrize("steps", [8, 300])
def test_zero_tolerance_is_judged_by_the_gains_of_the_last_steps(steps):
    x = np.random.default_rng(0).normal(size=(60, 1)) + 5 * (np.arange(60)[:, None] < 25)
    call = {"method": "em", "init": "random", "num_restarts": 1, "max_iterations": steps}
    tree = fit(Mixture.from_data(x, num_components=2), x, tolerance=0, **call)
    levelled = (np.diff(tree["trace"]["objective"])[-5:] < 1e-6 * len(x)).all()
    assert tree.attrs["num_iterations"] == steps and levelled == (steps > 8)
    assert tree.attrs["converged"] == levelled and ("has not converged" in tree.attrs["verdict"]) != levelled
    assert ("still rising" in summary_text(tree)) != levelled


def test_not_converging_warns_with_advice(small_model, two_clusters):
    with pytest.warns(UserWarning, match="raise max_iterations"):
        call = {"tolerance": 1e-12, "max_iterations": 7, "num_samples": 2, "num_restarts": 1}
        tree = fit(small_model, two_clusters, **call)
    assert tree.attrs["converged"] == 0


def test_convergence_means_five_small_gains_per_row(small_model, two_clusters):
    tree = fit(small_model, two_clusters, tolerance=1e-6, num_samples=2, num_restarts=1)
    gains = np.diff(tree["trace"]["objective"]) / len(two_clusters)
    assert tree.attrs["converged"] == 1
    assert (gains[-5:] < 1e-6).all() and gains[-6] >= 1e-6


def test_restarts_keep_the_best_bound_and_report_all(small_model, two_clusters):
    call = {"init": "random", "moves": (), "num_samples": 2, "seed": 11}  # which takes more steps
    many = fit(small_model, two_clusters, num_restarts=3, **call)
    trace, best = many["trace"], many.attrs["best_restart"]
    assert trace["objective"].dims == ("iteration",) and np.isfinite(trace["objective"]).all()
    assert trace["objective_by_restart"].dims == ("restart_iteration", "restart")
    of_best = trace["objective_by_restart"].sel(restart=best).dropna("restart_iteration")
    np.testing.assert_array_equal(of_best, trace["objective"])
    last = [line[np.isfinite(line)][-1] for line in trace["objective_by_restart"].to_numpy().T]
    np.testing.assert_array_equal(last, trace["objective_at_end"])  # every start to its own end
    ends = trace["objective_at_end"].to_numpy()
    assert ends.argmax() == best and ends.shape == (3,)
    single = fit(small_model, two_clusters, num_restarts=1, **call)["trace"]
    assert set(single) == {name for name in trace if "_by_" not in name and "_at_" not in name}
    length = min(single.sizes["iteration"], trace.sizes["iteration"])  # restart 0 is the run without restarts
    one = trace["objective_by_restart"].sel(restart=0)[:length].to_numpy()
    known = np.isfinite(one)  # until it ended
    assert known.sum() > 10
    np.testing.assert_allclose(single["objective"][:length][known], one[known], rtol=1e-12)


@pytest.mark.slow
def test_chain_methods_agree_and_thinning_keeps_every_third_draw(small_model, two_clusters):
    call = {"method": "gibbs", "num_chains": 2, "num_warmup": 20, "seed": 9}
    with pytest.warns(UserWarning, match="has not converged"):
        trees = [
            fit(small_model, two_clusters, num_samples=30, chain_method=m, **call)
            for m in ("vectorized", "sequential", "parallel")
        ]
        thinned = fit(small_model, two_clusters, num_samples=10, thinning=3, **call)
    for tree in trees[1:]:
        np.testing.assert_allclose(tree["posterior"]["locs"], trees[0]["posterior"]["locs"], rtol=1e-8)
    np.testing.assert_array_equal(thinned["posterior"]["locs"], trees[0]["posterior"]["locs"][:, 2::3])
    np.testing.assert_array_equal(thinned["trace"]["objective"], trees[0]["trace"]["objective"])
    np.testing.assert_allclose(
        trees[0]["trace"]["objective"][:, 20:], trees[0]["sample_stats"]["lp"], rtol=1e-10
    )


@pytest.mark.slow
def test_parallel_chains_on_two_devices():
    """In a process of its own: the number of devices is fixed when JAX starts."""
    program = (
        "import jax, numpy as np, warnings; warnings.simplefilter('ignore')\n"
        "from inference import fit\nfrom zoo.mixture import Mixture\n"
        "x = np.random.default_rng(0).normal(size=(30, 2)); model = Mixture.from_data(x, num_components=3)\n"
        "call = dict(method='gibbs', num_chains=2, num_warmup=5, num_samples=5)\n"
        "a, b = (fit(model, x, chain_method=m, **call)['posterior']['locs'] for m in ('parallel', "
        "'vectorized'))\n"
        "assert len(jax.devices()) == 2 and np.allclose(a, b, rtol=1e-8)\n"
        "try: fit(model, x, **{**call, 'num_chains': 3}, chain_method='parallel')\n"
        "except ValueError as error: print(error)"
    )
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "PYTHONPATH": str(ROOT),
    }
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert "num_chains must be a multiple of 2; got 3" in run.stdout, run.stderr[-800:]


class _Info(NamedTuple):
    objective: jax.Array


def test_a_falling_or_infinite_objective_stops_with_the_iteration_and_the_last_good_state(two_clusters):
    """Planted: a step whose bound falls at iteration 6 or stops being a number."""

    def run(bad_value):
        def step(key, state, model):
            state = state + 1
            return state, _Info(jnp.where(state == 6, bad_value, state.astype(float)))

        return ascend(
            step,
            lambda key, variables, model: jnp.zeros((), int),
            None,
            (),
            keys=jax.random.split(jax.random.key(0), 1),
            variables={},
            num_rows=1,
            num_restarts=1,
            max_iterations=20,
            tolerance=0,
            must_rise=True,
            rule=five_small_gains,
            checkpoint=Checkpoint(None, {}),
            open_bar=progress_line(False),
        )

    for bad_value, words in ((-3.0, "fell at iteration 6"), (jnp.nan, "not finite at iteration 6")):
        result = run(bad_value)
        assert words in result.stop_reason and not result.converged and int(result.state) == 5


def test_progress_is_silent_when_told_and_shown_when_told(small_model, two_clusters, capsys):
    fit(small_model, two_clusters, num_samples=2, num_restarts=1, progress=False)
    assert capsys.readouterr().err == ""
    fit(small_model, two_clusters, num_samples=2, num_restarts=1, progress=True)
    assert "it" in capsys.readouterr().err


def test_the_fit_says_how_to_repeat_it(vb_tree):
    options = json.loads(vb_tree.attrs["options"])
    assert options["num_restarts"] == 3 and options["tolerance"] == 1e-6


def test_the_second_chunk_is_compiled_as_the_first():
    """Progress starts with the types that a chunk leaves it: a weak one cost every fit a compilation."""
    weak = jax.tree.map(lambda leaf: jax.typeof(leaf).weak_type, new_progress(2))
    assert not any(jax.tree.leaves(weak))


@pytest.mark.parametrize("before", [jnp.nan, 1e9])
def test_steps_before_the_first_that_counts_are_neither_judged_nor_recorded(before):
    """Each start asks for its own number; no objective on the way ends one, be it NaN or above all later."""

    shown = []

    @contextlib.contextmanager
    def open_bar(total, done):
        shown.append((total, done))
        yield SimpleNamespace(update=lambda steps: shown.append(steps), set_postfix_str=lambda *_, **__: None)

    def step(key, state, model):
        done, wanted = state
        objective = jnp.where(done < wanted, before, done.astype(float))
        return (done + 1, wanted), _Info(objective)

    found = ascend(
        step,
        lambda key, variables, model: (jnp.zeros((), int), variables["wanted"]),
        None,
        (),
        keys=jax.random.split(jax.random.key(0), 2),
        variables={"wanted": jnp.array([0, 3])},
        num_rows=1,
        num_restarts=2,
        max_iterations=4,
        tolerance=0,
        must_rise=True,
        rule=five_small_gains,
        checkpoint=Checkpoint(None, {}),
        open_bar=open_bar,
        settling_steps=lambda states: states[1],
    )
    np.testing.assert_array_equal(found.trace["objective"], [[0.0, 1, 2, 3], [3.0, 4, 5, 6]])
    assert shown[0] == (4, 0) and sum(shown[1:]) == 4  # the bar begins at the first step that counts
    assert found.best_restart == 1 and found.num_iterations == 4 and int(found.state[0]) == 7
