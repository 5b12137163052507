"""Processes that share a fit: how they join, what they exchange, the same answer as one, and their deaths."""

import json
import os
import re
import signal
import socket
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import inference
import zoo
from inference import processes
from tests.support import shared_fits
from tests.support.processes import LIMIT, sharing, started

TESTS = Path(__file__).parents[1]
SCRIPT = TESTS / "support" / "shared_fits.py"
GUIDE = TESTS.parent / "notebooks" / "guide" / "several_machines.md"
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [TESTS.parent, TESTS, *sys.path]))}


def shared(count, script, *arguments, victim=None, **options):
    """What process 0 printed, without Gloo's remarks; all end well but a victim, whom the others notice."""
    command = [sys.executable, str(script), *map(str, arguments)]
    with sharing(count, command, env=ENVIRONMENT, **options) as every:
        answers = [process.communicate(timeout=LIMIT) for process in every]
    lost = 0 if victim is None else processes.LOST_STATUS
    ended = [-signal.SIGKILL if number == victim else lost for number in range(count)]
    assert [process.returncode for process in every] == ended, answers
    return [line for line in answers[0][0].splitlines() if "[Gloo]" not in line]


def found_by(count, tmp_path, *names):
    file = tmp_path / f"found{count}.json"
    shared(count, SCRIPT, file, *names)
    return json.loads(file.read_text())


def assert_near(one, other, name):
    """Of fits whose rows are spread: the same to rounding."""
    tolerance = 2e-4 if "float32" in name else 1e-10
    assert one.keys() == other.keys()
    for key in one.keys() - {"rows"}:
        np.testing.assert_allclose(one[key], other[key], rtol=tolerance, atol=1e-8, err_msg=f"{name}: {key}")
    assert one["trace objective"]


# Joining


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"JAX_NUM_PROCESSES": "2"}, "without JAX_COORDINATOR_ADDRESS and JAX_PROCESS_ID"),
        (
            {"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "2"},
            "one from 0 to that less 1; got '2' and '2'",
        ),
        (
            {"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_NUM_PROCESSES": "x", "JAX_PROCESS_ID": "0"},
            "must be a whole number of at least 1",
        ),
        (
            {"JAX_COORDINATOR_ADDRESS": "host", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "0"},
            "must be host:port of process 0; got 'host'",
        ),
    ],
)
def test_an_environment_that_does_not_fit_is_an_error(variables, words, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=re.escape(words)):
        inference.join_processes()


@pytest.mark.parametrize("count", [None, "1"])
def test_a_process_alone_joins_nobody(count, monkeypatch):
    if count is not None:
        monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "localhost:1")
        monkeypatch.setenv("JAX_NUM_PROCESSES", count)
        monkeypatch.setenv("JAX_PROCESS_ID", "0")
    assert inference.join_processes() == (0, 1)


def test_one_of_several_that_has_not_joined_is_refused(monkeypatch):
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    with pytest.raises(ValueError, match=r"started as one of 2 .* call inference.join_processes\(\)"):
        inference.fit(zoo.Mixture(num_components=2), np.eye(9)[:, :2])


def test_errors_of_one_process_stay_what_they_are():
    """Gloo is named in an error of a single process only by chance."""
    with pytest.raises(ValueError, match="gloomy"), processes.among_processes():
        raise ValueError("gloomy: gloo")


# Exchanging, and the death of a process: without a fit, which costs seconds


@pytest.mark.parametrize(("num_rows", "exchanged"), [(200_000, 200_000), (2_000_000, 1_000_000)])
def test_rows_of_all_processes_are_exchanged_up_to_their_bytes(num_rows, exchanged, monkeypatch):
    """Two hundred thousand rows whole: priors and starts read off a sample made another bound."""
    monkeypatch.setattr(processes, "EXCHANGED_BYTES", 1_000_000 * 2 * 8)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    half = np.arange(num_rows, dtype=float).reshape(2, -1, 1) * np.ones((1, 1, 2))
    monkeypatch.setattr(processes, "gathered", lambda rows: [{"rows": rows}, {"rows": rows + num_rows / 2}])
    found = processes.exchanged(half[0])
    assert found.shape == (exchanged, 2) and (np.diff(found[:, 0]) > 0).all()
    if exchanged == num_rows:
        np.testing.assert_array_equal(found[:, 0], np.arange(num_rows))
    assert found[0, 0] == 0 and found[-1, 0] == num_rows - 1


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_shares_and_places_of_processes_are_every_row_once_and_in_order(count, monkeypatch):
    """Shares differ by one at most, the larger ones first; the rows that each brings lie end to end."""
    monkeypatch.setattr(jax, "process_count", lambda: count)
    for num_rows in range(9):
        rows, found = np.arange(num_rows), []
        for number in range(count):
            monkeypatch.setattr(jax, "process_index", lambda number=number: number)
            found.append(rows[processes.share_of(num_rows)].tolist())
        assert sum(found, []) == rows.tolist()
        assert [len(own) for own in found] == [len(own) for own in np.array_split(rows, count)]
    held = [3, 0, 2, 4][:count]
    monkeypatch.setattr(processes, "gathered", lambda count: [{"count": np.asarray(own)} for own in held])
    rows, found = np.arange(sum(held)), []
    for number, own in enumerate(held):
        monkeypatch.setattr(jax, "process_index", lambda number=number: number)
        found.append(rows[processes.place_of(own)].tolist())
    assert sum(found, []) == rows.tolist() and [len(own) for own in found] == held


EXCHANGING = """
import os, signal, sys
import inference
number, count = inference.join_processes()
import numpy as np
from inference.processes import agreed, among_processes, any_process, exchanged, gathered, over_processes
from inference.processes import place_of, share_of
x = np.arange(6.0).reshape(3, 2)[: number + 1] / 3
long = np.random.default_rng(number).bytes(3000 + 50 * number)
parts = gathered(x=x, words="word" * (number + 1), long=np.frombuffer(long, np.uint8), flag=number == 1)
assert [part["x"].shape for part in parts] == [(1, 2), (2, 2)]
assert parts[1]["x"].dtype == np.float64 and (parts[1]["x"] == np.arange(4.0).reshape(2, 2) / 3).all()
assert [str(part["words"]) for part in parts] == ["word", "wordword"]
assert parts[1]["long"].tobytes() == np.random.default_rng(1).bytes(3050)
assert exchanged(x).shape == (3, 2) and place_of(len(x)) == (slice(0, 1), slice(1, 3))[number]
assert share_of(3) == (slice(0, 2), slice(2, 3))[number]
assert agreed(number + 7) == 7 and over_processes(0.1 + number) == 0.1 + 1.1
assert any_process(number == 1) and not any_process(False)
if number == 0:
    print("exchanged")
    sys.stdout.flush()
with among_processes():
    for turn in range(100_000):
        gathered(turn=turn)
        if turn == 3 and number == int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("victim", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_processes_exchange_bytes_and_survivors_say_one_line_when_one_is_killed(victim, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(EXCHANGING)
    with sharing(2, [sys.executable, str(script), str(victim)], env=ENVIRONMENT) as both:
        answers = [process.communicate(timeout=LIMIT) for process in both]
    assert "exchanged" in answers[0][0].splitlines()
    assert both[victim].returncode == -signal.SIGKILL
    survivor = 1 - victim
    assert both[survivor].returncode == processes.LOST_STATUS
    (line,) = answers[survivor][1].splitlines()
    assert line.startswith(f"process {survivor} of 2: another process has ended; start all of them again")


# The same answer


@pytest.mark.slow
def test_two_processes_find_what_one_does(tmp_path):
    """Rows with weights, cut unevenly; the other models and batches are slow."""
    assert_near(found_by(2, tmp_path, "mixture")["mixture"], shared_fits.found_in("mixture"), "mixture")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in shared_fits.SPREAD if name != "mixture"])
def test_spread_rows_give_the_fit_of_one_process(name, tmp_path):
    assert_near(found_by(2, tmp_path, name)[name], shared_fits.found_in(name), name)


@pytest.mark.slow
def test_four_processes_find_what_one_does_and_the_same_again(tmp_path):
    names = ("mixture", "lda batches")
    found = found_by(4, tmp_path, *names)
    assert found == found_by(4, tmp_path, *names)
    for name in names:
        assert_near(found[name], shared_fits.found_in(name), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", shared_fits.OF_CHAINS)
def test_chains_are_the_same_bit_for_bit(name, tmp_path):
    """Three chains in two processes: one of them runs a single chain."""
    assert found_by(2, tmp_path, name)[name] == shared_fits.found_in(name)


@pytest.mark.slow
def test_batches_dealt_out_in_another_order_are_noticed(tmp_path, monkeypatch):
    """The planted fault: a process that passes its batches in reverse gives another trace."""
    one = shared_fits.found_in("mixture batches")
    rows = shared_fits._rows()
    monkeypatch.setattr(shared_fits, "_rows", lambda: rows[::-1].copy())
    with pytest.raises(AssertionError):
        assert_near(one, shared_fits.found_in("mixture batches"), "mixture batches")


# A process that dies in a fit, and the run resumed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "victim", "looks"),
    [
        ("mixture", 1, 3),
        ("mixture", 0, 3),
        ("mixture batches", 1, 20),
        ("lda", 1, 3),
        ("lda batches", 0, 12),
        ("gibbs", 1, 4),
    ],
)
def test_a_run_whose_process_was_killed_is_resumed_with_the_same_answer(name, victim, looks, tmp_path):
    file = tmp_path / "found.json"
    shared(2, SCRIPT, file, name, "--die", victim, looks, victim=victim)
    assert not file.exists() and Path(f"{file}.npz").stat().st_size > 0
    shared(2, SCRIPT, file, name, "--die", 0, -1)
    resumed = json.loads(file.read_text())
    Path(f"{file}.npz").unlink()
    shared(2, SCRIPT, file, name, "--die", 0, -1)
    whole = json.loads(file.read_text())
    assert resumed.pop("looks") < whole.pop("looks")  # it went on, and did not begin again
    assert resumed == whole


# Refusals

REFUSED = """
import sys
import inference
number, count = inference.join_processes()
import numpy as np
import zoo
from inference import fit
x = np.random.default_rng(0).normal(size=(40, 2))
y = np.ones((40, 1))
r = np.ones((40, 3)) / 3
mixture = zoo.Mixture(num_components=3)
for model, data, own in (
    (mixture, (x,), {"method": "em"}),
    (zoo.PPCA(num_latents=1), (x,), {}),
    (mixture, (x,), {"init": {"responsibilities": r}}),
    (mixture, (x,), {"batch_size": 25}),
    (mixture, (x,), {"method": "gibbs", "num_chains": 1}),
    (mixture, (x,), {"method": "gibbs", "chain_method": "parallel"}),
    (mixture, (x + number,), {"method": "gibbs"}),
    (mixture, (x[:, : 2 - number],), {"max_iterations": 3}),
    (mixture, (x,), {"max_iterations": 3 + number}),
):
    try:
        fit(model, *data, **own)
    except ValueError as error:
        if number == 0:
            print(error)
"""


@pytest.mark.slow
def test_what_cannot_be_spread_is_refused_with_the_reason(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(REFUSED)
    output = shared(2, script)
    expected = (
        "method 'em' of mixture runs in one process; this one is one of 2",
        "method 'closed_form' of ppca runs in one process where rows are held whole; this one is one of 2: "
        "give batch_size, and the rows of all are summed up",
        "init with variables per row goes with one process, and this is one of 2",
        "batch_size is of all 2 processes together, which give equal shares: it must be a multiple "
        "of 2; got 25",
        "num_chains must be at least 2, one for each process; got 1",
        "chain_method='parallel' goes with one process",
        "the processes call fit with different data",
        "the processes call fit with different number of columns",
        "the processes call fit with different max_iterations: 3 in process 0, 4 in process 1",
    )
    assert len(output) == len(expected)
    for line, words in zip(output, expected, strict=True):
        assert line.startswith(words)


# The guide


def _blocks(kind):
    text = GUIDE.read_text(encoding="utf-8")
    return dict(re.findall(rf"<!-- {kind}: ([^\n]+) -->\n```\w+\n(.*?)```", text, re.DOTALL))


def test_every_block_of_the_guide_is_one_that_a_test_runs():
    text = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+)\n", text, re.MULTILINE)
    assert blocks.count("python") == len(_blocks("script")) == 2
    assert blocks.count("bash") == len(_blocks("command")) + len(_blocks("shell")) == 4
    for source in _blocks("script").values():
        compile(source, str(GUIDE), "exec")
    said = processes.ProcessLost
    assert said.__doc__ and "process 0 of 2: another process has ended; start all of them again" in text


@pytest.mark.slow
def test_the_guide_runs_as_it_stands(tmp_path):
    for name, source in _blocks("script").items():
        (tmp_path / name).write_text(source)
    command = _blocks("command")
    output = _of_shell(command["local"], tmp_path)
    alone = shared(1, "clusters.py", cwd=_fresh(tmp_path, "alone", "clusters.py"))
    assert [line.split(", ")[0] for line in output + alone] == ["2 processes", "1 processes"]
    assert output[0].split()[-1] == alone[0].split()[-1]
    output = shared(2, "chains.py", cwd=tmp_path)
    assert output[-1] == "2 processes, 4 chains" and (tmp_path / "chains.nc").stat().st_size > 0
    by_hand = [command[f"{which} host"].split() for which in ("first", "second")]
    for number, words in enumerate(by_hand):
        address, count, own, *rest = words
        assert address.startswith("JAX_COORDINATOR_ADDRESS=") and count == "JAX_NUM_PROCESSES=2"
        assert own == f"JAX_PROCESS_ID={number}" and rest == ["python", "clusters.py"]
    shell = tmp_path / "job.sh"
    shell.write_text(_blocks("shell")["slurm"])
    with started(["bash", "-n", str(shell)]) as process:
        assert process.communicate(timeout=LIMIT) == ("", "")


def _of_shell(text, folder):
    """What process 0 prints under the lines of the shell that the guide shows."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        text = text.replace(":7077", f":{free.getsockname()[1]}")
    python = f"python() {{ '{sys.executable}' \"$@\"; }}\n"
    with started(["bash", "-c", python + text], cwd=folder, env=ENVIRONMENT) as shell:
        output, errors = shell.communicate(timeout=LIMIT)
    assert shell.returncode == 0, errors
    return [line for line in output.splitlines() if "[Gloo]" not in line]


def _fresh(folder, name, script):
    other = folder / name
    other.mkdir()
    (other / script).write_text((folder / script).read_text())
    return other
