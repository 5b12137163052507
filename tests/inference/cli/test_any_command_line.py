"""Command lines made at random of right and strange parts: one line, status 2, no file."""

import contextlib
import io
import json
import os
import random
import signal

import numpy as np
import pytest

import inference
from inference.cli import main
from inference.cli.options import COMMANDS
from inference.fitting import front_door
from tests.support.report_cases import fitted

STRANGE = [
    *(
        "",
        " ",
        "-",
        "--",
        "-1",
        "0",
        "1e999",
        "nan",
        "inf",
        "None",
        "True",
        "1" * 400,
        "é",
        "\u202e",
        "\ud800",
    ),
    *("a=b", "=", "a=", "=b", "a=b=c", "num_components=(1", "num_components=[1,2]", "concentration=Gamma()"),
    *("concentration=Gamma(1,2,3,4)", "components=GaussianWishart(loc='a')", "components=os.system('true')"),
    *("family=__import__('os')", "num_components=1e400", "num_components=9**9**9", "(" * 300, "[" * 3000),
    *("num_components=" + "(" * 3000, "a" * 5000, "a,b", "a,,b", '"', "'", "a:z", ":", "b:a", "'a'=", "%s"),
    *(
        "{}",
        "\n",
        "a\nb",
        "../..",
        "/",
        "/dev/null",
        "nowhere/x.nc",
        "data.csv",
        "fit.nc",
        "cut.nc",
        "bad.csv",
    ),
    *(
        "empty.csv",
        "words.csv",
        "book.xlsx",
        "zip.npz",
        "pipe",
        "link.csv",
        "folder",
        "mixture",
        "ppca",
        "vb",
    ),
    *("gibbs", "faithful", "usps", "*", "~", "$HOME", "`id`", ";id", "1:3", "3:1", "1,2", "1:1000000000"),
    *("num_components=1:2", "separator=semicolon", "decimal=,", "encoding=rot13", "encoding=x", "a\0b"),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "fit.nc"
    inference.save(fitted("ppca"), path)
    return path.read_bytes()


@pytest.fixture
def folder(saved, tmp_path, monkeypatch):
    """A table, a fit, and files that are neither."""
    rng = np.random.default_rng(0)
    np.savetxt(tmp_path / "data.csv", rng.normal(size=(12, 4)), delimiter=",", header="a,b,c,d", comments="")
    (tmp_path / "fit.nc").write_bytes(saved)
    (tmp_path / "cut.nc").write_bytes(saved[:5000])
    (tmp_path / "bad.csv").write_bytes(b"a,b\n1,2,3\n\x00")
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "words.csv").write_text("a,b\nx,y\n\nz,1\n")
    (tmp_path / "book.xlsx").write_bytes(b"PK\x03\x04 no book")
    (tmp_path / "zip.npz").write_bytes(b"PK\x03\x04 no archive")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link.csv").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ZOO_DATA", raising=False)
    return tmp_path


def command_line(rng):
    """Words of a command: right ones at its places, of which one or two are exchanged or left out."""
    name = rng.choice([name for name in COMMANDS if name not in ("list",)])
    params = COMMANDS[name].params
    right = {
        "model": "mixture",
        "dataset": "data.csv",
        "files": "data.csv",
        "fit": "fit.nc",
        "fits": "fit.nc",
    }
    right["shell"] = "bash"
    words = [name, *(right[param.name] for param in params if param.param_type_name == "argument")]
    flags = [param for param in params if param.param_type_name == "option"]
    for param in rng.sample(flags, k=min(len(flags), rng.randint(0, 3))):
        words.append(param.opts[0])
        if not param.is_flag:
            words.append(rng.choice(STRANGE))
    for _ in range(rng.randint(1, 2)):
        place = rng.randrange(len(words))
        what = rng.random()
        if what < 0.6:
            words[place] = rng.choice(STRANGE)
        elif what < 0.8:
            words.insert(place, rng.choice(STRANGE))
        elif len(words) > 1:
            del words[place]
    return words


class _Begun(Exception):
    """Raised where a fit would begin: the line is right after all."""


def answer(words):
    """Status, output and errors of a command; status None where a fit would begin."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(words)
        except SystemExit as stop:
            status = stop.code
        except _Begun:
            status = None
    return status, out.getvalue(), err.getvalue()


def _begin(request):
    raise _Begun


def state(folder):
    return {path.name: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}


def _check(number, seed, folder, monkeypatch):
    monkeypatch.setattr(front_door, "plan", _begin)
    rng, before, refused = random.Random(seed), state(folder), 0
    for _ in range(number):
        words = command_line(rng)
        with contextlib.suppress(RecursionError):
            json.dumps(words)
        status, out, err = answer(words)
        shown = [word[:60] for word in words]
        if status == 2:
            refused += 1
            assert out == "" and err.count("\n") == 1 and err.startswith("zoo"), (shown, out, err)
            assert len(err) < 1500, (shown, err)
            assert state(folder) == before, shown
        else:
            assert status in (0, None) and "Traceback" not in err, (shown, status, err)
            for path in folder.iterdir():
                if path.name not in before:
                    path.unlink()
            assert {name: content for name, content in state(folder).items()} == before, shown
    return refused


def test_a_hundred_random_command_lines(folder, monkeypatch):
    assert _check(100, 0, folder, monkeypatch) > 70


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_many_random_command_lines(seed, folder, monkeypatch):
    handler = signal.getsignal(signal.SIGINT)
    assert _check(500, seed, folder, monkeypatch) > 350
    assert signal.getsignal(signal.SIGINT) is handler
