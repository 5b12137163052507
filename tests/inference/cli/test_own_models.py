"""A model of another author, in a file or a module, by the command line."""

import sys

import numpy as np
import pandas as pd
import pytest

import inference
import zoo
from inference.cli import main

SOURCE = """
from dataclasses import dataclass

import helper_of_mine
import numpyro.distributions as dist
from numpyro import sample

from zoo.fields import positive, size_of
from zoo.model import Model


@dataclass(frozen=True, eq=False)
class HeavyRows(Model):
    \"\"\"Student-t rows about a common centre.\"\"\"

    degrees: float = positive(helper_of_mine.DEGREES)
    num_features: int | None = size_of("x")

    dims = {"loc": ("feature",), "x": ("observation", "feature")}
    methods = ("map", "nuts")

    def program(self, x, rows):
        loc = sample("loc", dist.Normal(0.0, 10.0).expand([self.num_features]).to_event(1))
        with rows:
            return sample("x", dist.StudentT(self.degrees, loc, 1.0).to_event(1), obs=x)


something = 3
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The files of the model, and nothing of it left behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "helper_of_mine.py").write_text("DEGREES = 4.0\n")
    (tmp_path / "models_of_mine.py").write_text(SOURCE)
    x = 3.0 + np.random.default_rng(0).standard_t(4, size=(30, 2))
    pd.DataFrame(x, columns=["a", "b"]).to_csv("table.csv", index=False)
    yield tmp_path
    forget()


def forget():
    if "heavyrows" in zoo.MODELS:
        zoo.unregister(zoo.model_class("heavyrows"))
    for name in ("models_of_mine", "helper_of_mine"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["models_of_mine.py:HeavyRows", "models_of_mine:HeavyRows"])
def test_it_is_fitted_and_its_fits_are_read(name, place, capsys):
    fitting = ["fit", name, "table.csv", "--set", "degrees=5.0", "--out", "f.nc"]
    assert main(fitting) == 0
    assert f"next: zoo report f.nc --model {name}" in capsys.readouterr().out
    wanted = inference.load("f.nc")["posterior"]["loc"].to_numpy()
    forget()
    asked = ["predict", "f.nc", "table.csv", "--what", "log_density", "--out", "d.csv"]
    assert main(asked) == 2  # what a file names is never imported
    assert "--model FILE.py:CLASS" in capsys.readouterr().err and "models_of_mine" not in sys.modules
    assert main([*asked, "--model", name]) == 0
    tree = inference.load("f.nc")
    np.testing.assert_array_equal(tree["posterior"]["loc"], wanted)
    found = pd.read_csv("d.csv")["log_density"]
    np.testing.assert_allclose(found, inference.log_density(tree, pd.read_csv("table.csv")), rtol=1e-9)
    assert main(["show", name]) == 0
    card = capsys.readouterr().out
    assert "Student-t rows about a common centre" in card and "degrees: float" in card


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("absent.py:HeavyRows", "absent.py cannot be imported: FileNotFoundError"),
        ("absent_package.models:HeavyRows", "cannot be imported: ModuleNotFoundError: No module named"),
        ("models_of_mine.py:HeavyRow", "models_of_mine.py has no 'HeavyRow'; did you mean HeavyRows?"),
        ("models_of_mine.py:something", "zoo.register takes a subclass of zoo.model.Model; got 3"),
        ("wrong.py:Any", "wrong.py cannot be imported: ZeroDivisionError: division by zero"),
        ("numpy.py:Any", "numpy is the name of another module: rename the file"),
    ],
)
def test_what_is_no_model_is_refused(name, said, place, capsys):
    (place / "wrong.py").write_text("1 / 0\n")
    (place / "numpy.py").write_text("1 / 0\n")
    assert main(["fit", name, "table.csv"]) == 2
    assert said in capsys.readouterr().err
    assert not list(place.glob("*.nc"))
