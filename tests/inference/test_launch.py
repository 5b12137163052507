"""The local launcher: arguments, environment, output, signals, exit status; scripts that import nothing."""

import os
import signal
import sys
import time

import pytest
from processes import LIMIT, started

from inference import launch
from inference.processes import LOST_STATUS

TELLING = """
import os, sys
names = ("JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_BIND_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
print(*[os.environ[name] for name in names], *sys.argv[1:])
"""
ONE_FAILS = f"""
import os, pathlib, sys, time
if os.environ["JAX_PROCESS_ID"] == "1":
    print("the reason", file=sys.stderr)
    sys.exit(3)
time.sleep({LIMIT})
pathlib.Path(sys.argv[1]).touch()
"""
ONE_IS_KILLED = f"""
import os, signal, time
if os.environ["JAX_PROCESS_ID"] == "0":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep({LIMIT})
"""
LOST_FIRST = f"""
import os, sys, time
if os.environ["JAX_PROCESS_ID"] == "0":
    sys.exit({LOST_STATUS})
sys.exit(4)
"""
WAITING = f"""
import os, pathlib, signal, sys, time
def stop(number, frame):
    pathlib.Path(sys.argv[1] + os.environ["JAX_PROCESS_ID"] + ".stopped").touch()
    raise SystemExit(0)
signal.signal(signal.SIGINT, stop)
pathlib.Path(sys.argv[1] + os.environ["JAX_PROCESS_ID"]).touch()
time.sleep({LIMIT})
"""


def script(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["two", "script.py"], "the number of processes must be a whole number of at least 1; got 'two'"),
        (["0", "script.py"], "the number of processes must be a whole number of at least 1; got '0'"),
        (["2", "nowhere.py"], "there is no script 'nowhere.py'"),
        (["2"], "required: script, arguments"),
        ([], "required: processes, script, arguments"),
        (["--some", "2", "script.py"], "unrecognized arguments: --some"),
    ],
)
def test_bad_arguments_are_one_line(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("")
    with pytest.raises(SystemExit) as ended:
        launch.main(arguments)
    errors = capsys.readouterr().err
    assert ended.value.code == 2
    assert errors.startswith("inference.launch: ") and errors.count("\n") == 1
    assert words.partition(", arguments")[0] in errors


def test_each_process_is_told_of_the_others(tmp_path, capfd):
    status = launch.main(["--all", "3", script(tmp_path, TELLING), "--all", "own"])
    output = capfd.readouterr().out
    lines = {line.split()[-3]: line for line in output.splitlines()}
    assert status == 0 and sorted(lines) == ["0", "1", "2"]
    assert lines["1"].startswith("[1] 127.0.0.1:") and lines["0"].startswith("127.0.0.1:")
    for line in lines.values():
        *_, address, bound, count, _, first, second = line.split()
        assert address == bound == lines["0"].split()[0] and (count, first, second) == ("3", "--all", "own")


IN_PIECES = """
import os, time
for own in range(20):
    for piece in ("a", "b", "c", "\\n"):
        os.write(1, (os.environ["JAX_PROCESS_ID"] + piece).encode())
        time.sleep(0.002)
"""


def test_lines_of_several_processes_stay_whole(tmp_path, capfd):
    """Also where each writes its lines in pieces, as print does without a buffer."""
    assert launch.main(["--all", "3", script(tmp_path, IN_PIECES)]) == 0
    lines = capfd.readouterr().out.splitlines()
    whole = {"0": "0a0b0c0", "1": "[1] 1a1b1c1", "2": "[2] 2a2b2c2"}
    assert sorted(lines) == sorted(line for line in whole.values() for _ in range(20))


def test_only_the_first_process_prints(tmp_path, capfd):
    assert launch.main(["2", script(tmp_path, TELLING)]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 1


@pytest.mark.slow
def test_a_process_that_fails_ends_the_others_and_its_words_are_shown(tmp_path, capfd):
    assert launch.main(["2", script(tmp_path, ONE_FAILS), f"{tmp_path}/waited"]) == 3
    assert not (tmp_path / "waited").exists()
    reason, line = capfd.readouterr().err.splitlines()
    assert reason == "[1] the reason"
    assert line.startswith("inference.launch: process 1 of 2 ended with status 3, and the others were ended")


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_others_with_one_line(tmp_path, capfd):
    assert launch.main(["2", script(tmp_path, ONE_IS_KILLED)]) == 128 + signal.SIGKILL
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(
        "inference.launch: process 0 of 2 was killed by SIGKILL, and the others were ended"
    )


def test_who_failed_first_is_named_not_who_noticed(tmp_path, capfd):
    assert launch.main(["2", script(tmp_path, LOST_FIRST)]) == 4
    assert "process 1 of 2 ended with status 4" in capfd.readouterr().err


def test_signals_are_passed_on(tmp_path):
    command = [sys.executable, "-m", "inference.launch", "2", script(tmp_path, WAITING), f"{tmp_path}/at"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with started(command, env=environment) as process:
        until = time.monotonic() + LIMIT
        while not all((tmp_path / f"at{number}").exists() for number in (0, 1)):
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=LIMIT)
    assert (process.returncode, output, errors) == (0, "", "")
    assert all((tmp_path / f"at{number}.stopped").exists() for number in (0, 1))
