"""The command line: what it prints, what it writes, and one line for every mistake."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from inference.cli import main
from inference.cli.selection import select
from inference.cli.settings import parse_reading, parse_settings, resolve, terms_of
from tests.support.processes import LIMIT, started


def run(*arguments, **options):
    """A command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "zoo", *arguments], capture_output=True, text=True, **options
    )


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """The main job, once: folder, and the finished process."""
    folder = tmp_path_factory.mktemp("fit")
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    arguments = (
        "fit",
        "mixture",
        "faithful",
        "--set",
        "num_components=4",
        "--num-samples",
        "200",
        "--seed",
        "1",
    )
    return folder, run(*arguments, cwd=folder, env=environment)


# list, show, --help


def test_list_names_models_methods_papers_and_data(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert all(
        word in out
        for word in (
            "mixture",
            "vb, gibbs, collapsed_gibbs, em, nuts",
            "Yu (2006)",
            "dpmixture",
            "faithful",
            "272 x 2",
        )
    )


def test_list_imports_nothing_that_takes_seconds():
    code = "import sys; from inference.cli import main; main(['list']); print(*sys.modules, sep='\\n')"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(answer.stdout.split())
    assert "inference.cli" in imported and not imported & {
        "jax",
        "numpyro",
        "arviz",
        "xarray",
        "matplotlib",
        "pandas",
    }


@pytest.mark.parametrize("name", ["mixture", "DPMixture", "vbtdp"])
def test_show_prints_the_model(name, capsys):
    assert main(["show", name]) == 0
    out = capsys.readouterr().out
    for part in (
        "stick_fractions",
        "num_components: int",
        "Symmetries\n\n    labels",
        'method="auto" is the first of these that suits the model and its data',
        'sample("x"',
    ):
        assert part in out


def test_help_is_there_for_every_command(capsys):
    for command in ([], ["list"], ["show"], ["fit"], ["report"], ["compare"]):
        assert main([*command, "--help"]) == 0 and "Usage: zoo" in capsys.readouterr().out


def test_a_reader_that_has_had_enough_is_no_error():
    piped = subprocess.run(
        f"{sys.executable} -m zoo show mixture | head -1", shell=True, capture_output=True, text=True
    )
    assert piped.stdout.startswith("mixture: ") and piped.stderr == ""


# mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "nothing"], "no model is called 'nothing'; the zoo has: mixture"),
        (["fit", "nothing", "faithful"], "no model is called 'nothing'"),
        (
            ["fit", "mixture", "no-such-data"],
            "no data set is called 'no-such-data'.*the catalogue has: faithful, toy",
        ),
        (["fit", "mixture", "absent.csv"], "there is no file absent.csv"),
        (["fit", "mixture", "usps"], "usps is not shipped.*ZOO_DATA is not set"),
        (
            ["fit", "mixture", "faithful", "--method", "magic"],
            "mixture has no method 'magic'; it has: vb, gibbs",
        ),
        (
            ["fit", "mixture", "faithful", "--set", "colour=1"],
            "the model mixture has no setting 'colour'; it has: components, ",
        ),
        (
            ["fit", "mixture", "faithful", "--set", "num_components"],
            "a setting is written key=value; got 'num_components'",
        ),
        (
            ["fit", "mixture", "faithful", "--set", "num_components=2", "--set", "num_components=3"],
            "a setting gives 'num_components' twice",
        ),
        (
            ["fit", "mixture", "faithful", "--set", "concentration=Cauchy(1)"],
            "no prior or kernel is called 'Cauchy'; there are: Gamma",
        ),
        (
            ["fit", "mixture", "faithful", "--set", "concentration=Gamma(__import__('os'))"],
            "the arguments of Gamma must be numbers",
        ),
        (
            ["fit", "mixture", "faithful", "--set", "num_components=0"],
            "num_components must be a whole number of at least 1; got 0",
        ),
        (
            ["fit", "mixture", "faithful", "--set", "concentration=-1"],
            "concentration must be a positive number",
        ),
        (
            ["fit", "mixture", "faithful", "--set", "components=GaussianWishart(degrees_of_freedom=1)"],
            "degrees_of_freedom must exceed",
        ),
        (["fit", "mixture", "faithful", "--option", "magic=1"], "magic"),
        (
            ["fit", "mixture", "faithful", "--dtype", "float16"],
            "'--dtype': 'float16' is not one of 'float64', 'float32'",
        ),
        (
            ["fit", "mixture", "faithful", "--x", "colour"],
            "there is no column 'colour'; there are: x, eruptions, waiting",
        ),
        (
            ["fit", "ppca", "faithful", "--set", "num_latents=1", "--y", "waiting"],
            "PPCA takes 1 part of data, x; got 2: leave the others out; class labels and outputs go with",
        ),
        (
            ["fit", "sppca", "faithful", "--set", "num_latents=1"],
            "y is missing: name its columns, such as --y COLUMN",
        ),
        (
            ["fit", "mixture", "faithful", "--seed", "x"],
            "Invalid value for '--seed': 'x' is not a valid integer",
        ),
        (["fit", "mixture", "faithful", "--checkpoint", "/proc/c"], "cannot write /proc/c"),
        (
            ["fit", "mixture", "faithful", "--out", "no/folder/f.nc"],
            "cannot write no/folder/f.nc: the folder no/folder does not exist",
        ),
        (["fit", "mixture", "faithful", "--out", "."], "cannot write .: it is a folder"),
        (["fit", "mixture", "faithful", "--out", "/proc/f.nc"], "cannot write /proc/f.nc"),
        (["report", "absent.nc"], "absent.nc"),
        (
            ["compare", "faithful", "--methods", "magic"],
            "no model has the method 'magic'; there are: vb, gibbs",
        ),
        (["compare", "faithful", "--models", "resnet"], "no model is called 'resnet'"),
        (["dance"], "No such command 'dance'; see zoo --help"),
        ([], "Missing command; see zoo --help"),
        (["fit", "lda", "a.csv", "--num-topics", "3"], "given by --set num_topics=VALUE; see zoo fit --help"),
        (
            ["predict", "a.nc", "b.csv", "--num-topics", "3"],
            "No such option '--num-topics'; see zoo predict --help",
        ),
        (
            ["sweep", "mixture", "a.csv", "--sizes", "1:2", "--sample-weight", "w"],
            "sweep has no --sample-weight, .* --families COLUMN=leave_out",
        ),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_file(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ZOO_DATA", raising=False)
    status = _status(arguments)
    out, err = capsys.readouterr()
    assert status == 2 and out == "" and not os.listdir(tmp_path)
    (line,) = err.splitlines()
    assert line.startswith("zoo") and ": error: " in line
    assert re.search(message, line), line


def _status(arguments):
    try:
        return main(arguments)
    except SystemExit as stop:
        return stop.code


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3,inf\n5,6\n", "row 1, column 'b' is inf"),
        ("a\n2\n2\n2\n", "column 'a' of x is constant"),
        ("a,b\n1,2\n3,red\n5,6\n", "column 'b' holds numbers, but row 1 has 'red'"),
        ("a,b\n", "bad.csv has no rows"),
        ("a,b\n1,2\n", "at least 2 rows"),
        ("a,b\n1,2\n3,4\n", "at least 3 rows"),
        ("", "bad.csv is empty"),
        ("a\n1,2,3\n1\n", ""),
    ],
)
def test_bad_tables_get_one_clear_line(text, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.csv").write_text(text)
    assert main(["fit", "mixture", "bad.csv"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1 and message in err and os.listdir(tmp_path) == ["bad.csv"]


def test_an_empty_row_is_left_out_of_the_file(tmp_path, monkeypatch, capsys):
    """In Python by x.dropna, which is no advice for a command."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.csv").write_text("a,b,c\n1,2,3\n,,\n4,5,7\n2,1,5\n5,3,2\n2,2,8\n")
    assert main(["fit", "ppca", "bad.csv"]) == 2
    assert "row 1 of x is missing in all columns: leave it out of the file\n" in capsys.readouterr().err


def test_traceback_shows_where_an_error_came_from():
    with pytest.raises(ValueError, match="no model is called"):
        main(["--traceback", "show", "nothing"])


# choosing data and settings


def test_columns_are_chosen_by_name_run_and_array(tmp_path):
    table = pd.DataFrame(np.arange(20.0).reshape(4, 5), columns=list("abcde"))
    path = tmp_path / "t.csv"
    table.to_csv(path, index=False)
    name, (x,) = select(str(path))
    assert name == "t" and x.equals(table)
    assert list(select(str(path), x=["b:d"])[1][0].columns) == ["b", "c", "d"]
    assert list(select(str(path), x=["e", "a"])[1][0].columns) == ["e", "a"]
    x, y = select(str(path), y=["c"])[1]
    assert list(x.columns) == ["a", "b", "d", "e"] and list(y.columns) == ["c"]
    first, second = select(str(path), views=[["a", "b"], ["e"]])[1]
    assert list(first.columns) == ["a", "b"] and list(second.columns) == ["e"]
    with pytest.raises(ValueError, match="--views goes without --x and --y"):
        select(str(path), x=["a"], views=[["b"]])


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"x": ["a", "a:c"]}, "the column 'a' is chosen twice"),
        ({"x": ["c:a"]}, "the columns 'c:a' go backwards: write a:c"),
        ({"x": ["a"], "views": [["a"]]}, "--views goes without"),
        ({"x": ["incom"]}, r"there is no column 'incom'; there are: .*; did you mean income\?"),
        ({"read": {"decimal": ";"}}, "decimal must be a point or a comma"),
    ],
)
def test_wrong_choices_of_columns_are_refused(terms, message, tmp_path):
    path = tmp_path / "t.csv"
    pd.DataFrame(np.ones((3, 4)), columns=["a", "b", "c", "income"]).to_csv(path, index=False)
    with pytest.raises(ValueError, match=message):
        select(str(path), **terms)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--x has an empty name in ''"),
        ("a,,b", "--x has an empty name in 'a,,b': .* such as --x a,b$"),
        ("a,a", "--x names 'a' twice"),
        (",", "--x has an empty name"),
        ("b,", "--x has an empty name"),
        ("a\nb", "--x has an empty name"),
    ],
)
def test_wrong_names_of_columns_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        terms_of("--x", text)
    assert terms_of("--x", "e, a") == ["e", "a"]


def test_a_column_whose_name_holds_a_comma_is_quoted(tmp_path):
    path = tmp_path / "t.csv"
    pd.DataFrame(np.ones((3, 2)), columns=["rate, yearly", "b"]).to_csv(path, index=False)
    assert list(select(str(path), x=terms_of("--x", '"rate, yearly",b'))[1][0].columns) == [
        "rate, yearly",
        "b",
    ]


def test_options_of_reading_are_named_values():
    assert parse_reading(["decimal=,", "header=no"]) == {"decimal": ",", "header": False}
    for wrong in (["decimal"], ["speed=1"], ["header=perhaps"], ["header=no", "header=yes"]):
        with pytest.raises(ValueError, match="--read"):
            parse_reading(wrong)


def test_arrays_of_archives_are_tables(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(path, x=np.ones((3, 2)), y=np.zeros((3, 1)), cube=np.ones((2, 2, 2)))
    (x,) = select(str(path))[1]
    assert isinstance(x, np.ndarray) and x.shape == (3, 2)
    assert [a.shape for a in select(str(path), y=["y"])[1]] == [(3, 2), (3, 1)]
    np.savez(path, u=np.ones((3, 2)), v=np.zeros((3, 1)))
    with pytest.raises(ValueError, match="choose what to fit with --x; the file has: u, v"):
        select(str(path))


def test_netcdf_variables_are_tables(tmp_path):
    import xarray as xr

    path = tmp_path / "t.nc"
    x = xr.DataArray(np.arange(6.0).reshape(3, 2), dims=("row", "column"), coords={"column": ["u", "v"]})
    xr.Dataset({"x": x}).to_netcdf(path, engine="h5netcdf")
    (table,) = select(str(path))[1]
    assert list(table.columns) == ["u", "v"] and np.array_equal(table, x)


def test_settings_are_literals_words_or_calls_from_a_table():
    import numpyro.distributions as dist

    texts = [
        "a=20",
        "b=1e-3",
        "c=(1, 2)",
        "d=stick_breaking",
        "e=true",
        "f=None",
        "g=Gamma(2, 1)",
        "h=-x",
        "i='20'",
        "j=(bernoulli, 2, Gamma(1, 3))",
    ]
    settings = resolve(parse_settings(texts, "abcdefghij", "the model"))
    prior, (word, number, nested) = settings.pop("g"), settings.pop("j")
    assert (word, number, nested.rate) == ("bernoulli", 2, 3)
    assert settings == {
        "a": 20,
        "b": 1e-3,
        "c": (1, 2),
        "d": "stick_breaking",
        "e": True,
        "f": None,
        "h": "-x",
        "i": "20",
    }
    assert isinstance(prior, dist.Gamma) and (prior.concentration, prior.rate) == (2, 1)


def test_a_component_prior_follows_the_data(faithful):
    settings = parse_settings(
        ["components=GaussianWishart(mean_precision=0.1)"], ("components",), "the model"
    )
    components = resolve(settings)["components"].filled(faithful)
    assert components.mean_precision == 0.1
    np.testing.assert_allclose(components.loc, faithful.mean())


def test_priors_of_hyperparameters_are_calls_within_a_call(faithful):
    """Of a family, and of the families of groups of columns; what is no number is refused by name."""
    import numpyro.distributions as dist

    texts = [
        "a=NormalGamma(loc=Normal(0, 10), mean_precision=Gamma(2, 1))",
        "b=Product((NormalGamma(rate=Gamma(2, 3)), PoissonGamma()), ((0,), (1,)))",
    ]
    settings = resolve(parse_settings(texts, "ab", "the model"))
    components = settings["a"].filled(faithful)
    assert isinstance(components.loc, dist.Normal) and components.loc.scale.tolist() == [10, 10]
    assert components.mean_precision.rate.tolist() == [1, 1]
    groups = settings["b"].filled(faithful)
    assert groups.hyperprior_sites() == {"families_0_rate": "prior_rate_0"}
    for text, message in (
        ("a=NormalGamma(loc=Normal(0, -1))", "the scale of Normal must be positive; got -1"),
        ("a=NormalGamma(loc=Normal('b', 1))", "the arguments of Normal must be numbers; got 'b'"),
        ("a=NormalGamma(loc=open('b'))", "the arguments of NormalGamma must be numbers or other literals"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_settings([text], "a", "the model")


# fit, report, compare


# One of the ten slowest: it pays for the fit that the other tests of this part read.
def test_fit_prints_its_table_and_writes_its_file(fitted):
    folder, process = fitted
    assert process.returncode == 0, process.stderr
    out = process.stdout
    assert os.listdir(folder) == ["mixture-faithful.nc"]
    assert "data       faithful: 272 rows, 2 columns (eruptions, waiting)" in out
    assert "method     vb, seed 1, num_components=4" in out and "VB has converged" in out
    assert out.startswith("Two clusters; ") and "saved to mixture-faithful.nc" in out
    assert out.splitlines()[-1] == "next: zoo report mixture-faithful.nc"
    assert "num_occupied" not in out and "(converged)" not in out
    assert "Warning" not in process.stderr and "Traceback" not in process.stderr


def test_the_file_is_a_fit_that_predicts(fitted, faithful):
    import inference

    tree = inference.load(fitted[0] / "mixture-faithful.nc")
    assert tree.attrs["model"] == "mixture" and tree.attrs["seed"] == 1
    assert json.loads(tree.attrs["model_fields"])["num_components"] == 4
    assert list(tree["observed_data"]["feature"].values) == ["eruptions", "waiting"]
    assert np.isfinite(inference.log_density(tree, faithful.head())).all()


@pytest.mark.slow
def test_the_command_line_and_the_library_give_the_same_fit(fitted, faithful):
    import inference
    import zoo

    model = zoo.Mixture.from_data(faithful, num_components=4)
    tree = inference.fit(model, faithful, seed=1, num_samples=200)
    saved = inference.load(fitted[0] / "mixture-faithful.nc")
    # to rounding: the tests compile at another level than a process of its own
    xr.testing.assert_allclose(saved["posterior"].to_dataset(), tree["posterior"].to_dataset(), rtol=1e-7)


@pytest.mark.slow
def test_a_fit_that_was_stopped_is_continued_from_its_file(tmp_path, monkeypatch, capsys):
    """As its advice says: warnings are lines of the table, and remedies options of the command line."""
    import inference

    monkeypatch.chdir(tmp_path)
    command = ["fit", "mixture", "faithful", "--set", "num_components=4", "--num-samples", "50"]
    assert main([*command, "--max-iterations", "2"]) == 0
    out, err = capsys.readouterr()
    assert "Problem: VB has not converged" in out and "Next: raise --max-iterations or --tolerance" in out
    assert out.count("not converged") == 1 and "Warning" not in out + err
    assert "continue with --init FIT.nc" in " ".join(out.split())
    assert main([*command, "--init", "mixture-faithful.nc", "--out", "more.nc"]) == 0
    names = "mixture-faithful.nc", "more.nc"
    first, more = (inference.load(name)["trace"]["objective"].values.ravel() for name in names)
    assert more[0] >= first[-1]


@pytest.mark.slow
def test_a_sampler_s_table_has_ess_and_psrf(tmp_path, capsys):
    out = tmp_path / "g.nc"
    arguments = [
        "--method",
        "gibbs",
        "--num-warmup",
        "20",
        "--num-samples",
        "40",
        "--num-chains",
        "2",
        "--details",
    ]
    assert main(["fit", "dma", "faithful", "--set", "num_components=3", *arguments, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "ess_bulk" in printed and "r_hat" in printed and out.exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_what_there_is(number, tmp_path):
    """A long run is interrupted once it has written its checkpoint, that is, when it is under way."""
    command = "fit mixture faithful --method gibbs --set num_components=5 --num-chains 2 --num-warmup 10"
    command += " --num-samples 20000 --thinning 1000 --checkpoint run.ckpt --out f.nc"
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    with started([sys.executable, "-m", "zoo", *command.split()], cwd=tmp_path, env=environment) as process:
        deadline = time.monotonic() + LIMIT
        while not (tmp_path / "run.ckpt").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(2)  # the checkpoint is written at the end of warm-up; let there be draws
        process.send_signal(number)
        out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130, err
    assert "interrupted; what there is was saved to f.nc" in out and (tmp_path / "f.nc").stat().st_size > 0


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["html", "md"])
def test_report_writes_the_page(fitted, ending, tmp_path, capsys):
    out = tmp_path / f"report.{ending}"
    assert main(["report", str(fitted[0] / "mixture-faithful.nc"), "--out", str(out)]) == 0
    text = out.read_text(encoding="utf-8")
    assert "mixture" in text.lower() and "num_occupied" in text
    assert f"saved to {out}" in capsys.readouterr().out


def test_a_report_is_refused_by_the_ending_of_its_name(fitted, tmp_path, capsys):
    out = tmp_path / "report.txt"
    assert main(["report", str(fitted[0] / "mixture-faithful.nc"), "--out", str(out)]) == 2
    assert "--out takes a file ending in .html, .md" in capsys.readouterr().err and not out.exists()


@pytest.mark.slow
def test_compare_scores_held_out_rows(tmp_path, capsys):
    picture = tmp_path / "methods.svg"
    small = ["--num-samples", "50", "--num-warmup", "50", "--num-chains", "2", "--num-restarts", "2"]
    models = ["--models", "mixture", "kernelpca", "--out", str(picture)]
    assert main(["compare", "faithful", "--methods", "vb", "gibbs", *models, *small]) == 0
    out = capsys.readouterr().out
    assert "faithful: fitted to 218 rows, scored on 54; seed 0" in out
    rows = [line.split() for line in out.splitlines() if line.startswith("mixture")]
    assert [row[1] for row in rows] == ["vb", "gibbs"]
    # one Gaussian for all rows scores -4.75, the published fits about -4.2
    assert all(-4.6 < float(row[2]) < -3.4 for row in rows)
    assert all(0.01 < float(row[3]) < 0.5 for row in rows) and all(float(row[7]) >= 0 for row in rows)
    assert rows[0][6] == "-" and float(rows[1][6]) > 0.9
    assert picture.read_text(encoding="utf-8").count("<svg") == 1


def test_a_comparison_is_drawn_to_a_picture_only(tmp_path, capsys):
    assert main(["compare", "faithful", "--out", str(tmp_path / "methods.txt")]) == 2
    assert ".png, .svg, .pdf" in capsys.readouterr().err
