"""Mistakes are answered before JAX, NumPy or pandas is imported, and nothing of the user's is replaced."""

import json
import os
import re
import shlex
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import zoo
from inference import methods
from inference.algorithm import Direct
from inference.cli import main, sweeping
from inference.cli.options import COMMANDS, parse
from inference.cli.paths import target
from inference.cli.selection import data_of
from inference.cli.settings import parse_sizes
from zoo import Paired, canonical_name
from zoo.exponential_family import Gaussian

HEAVY = ("jax", "numpyro", "arviz", "xarray", "matplotlib", "scipy", "pandas", "numpy")
MISTAKES = {  # the command line: part of the message
    "fit mixtur faithful": "no model is called 'mixtur'",
    "fit mixture absent.csv": "there is no file absent.csv",
    "fit mixture faithfull": "no data set is called 'faithfull'",
    "fit mixture faithful --method gibs": "did you mean gibbs?",
    "fit mixture faithful --seed -1": "Invalid value for '--seed': -1 is not in the range 0<=x<=4294967295",
    "fit mixture faithful --num-chains 0": "Invalid value for '--num-chains': 0 is not in the range x>=1",
    "fit mixture faithful --num-warmup -1": "'--num-warmup': -1 is not in the range x>=0",
    "fit mixture faithful --dtype float16": "'--dtype': 'float16' is not one of 'float64', 'float32'",
    "fit mixture faithful --chain-method threads": "'threads' is not one of 'vectorized', 'par",
    "fit mixture faithful --set num_component=3": "did you mean num_components?",
    "fit mixture faithful --set concentration=Gamma('x',1)": "arguments of Gamma must be numbers; got 'x'",
    "fit mixture faithful --set concentration=Gamma(0,1)": "the arguments of Gamma must be positive; got 0",
    "fit ppca faithful --set beta=Gamma(1,1)": "the model ppca has no setting 'beta'",
    "fit mixture faithful --out=": "--out needs the name of a file",
    "fit mixture faithful --checkpoint=": "--checkpoint needs the name of a file",
    "fit mixture faithful --out held.csv": "held.csv exists: add --force to replace it",
    "fit mixture held.csv --out held.csv --force": "this command reads it; choose another name",
    "fit mixture held.csv --out linked.csv --force": "this command reads it",
    "fit mixture faithful --out other-link --force": "it is a link",
    "fit mixture faithful --out pipe --force": "it is no regular file",
    "fit mixture faithful --out /dev/null --force": "it is no regular file",
    "fit mixture faithful --out . --force": "it is a folder; name a file in it",
    "fit mixture faithful --out a.nc --checkpoint a.nc": "this command reads it",
    "fit mixture faithful --checkpoint held.csv": "held.csv is no checkpoint: it would be replaced",
    "fit mixture faithful --out a.nc --report a.nc": "--report takes a file ending in .html, .md",
    "fit mixture faithful --report a.txt": "--report takes a file ending in .html, .md; got 'a.txt'",
    "fit mixture faithful --report a.html --out a.html": "this command reads it; choose another name",
    "fit mixture held.csv --x=": "--x has an empty name",
    "fit mixture held.csv --read decimal=x": "--read decimal takes , or .",
    "report absent.nc": "there is no file absent.nc; zoo fit writes one",
    "report fit.nc --out fit.nc --force": "--out takes a file ending in .html, .md",
    "report fit.nc --heldout faithful": "--heldout compares fits and one was given",
    "report fit.nc --x a": "--x chooses of the rows of --heldout",
    "report fit.nc fit.nc": "a file was named twice",
    "predict fit.nc faithful --out held.csv": "held.csv exists: add --force",
    "predict fit.nc held.csv --out held.csv --force": "this command reads it",
    "predict fit.nc faithful --out a.html": "--out takes a file ending in .csv, .tsv, .xlsx, .parquet, .npy",
    "sweep mixture faithful --sizes 4:1": "--sizes takes FIRST:LAST",
    "sweep mixture faithful --sizes num_topics=1:2": "no size 'num_topics' to sweep; it has: num_comp",
    "sweep mixture faithful --sizes 1:2 --set num_components=2": "is swept by --sizes, and set by --set",
    "sweep mixture faithful --sizes 1:2 --folds 1": "Invalid value for '--folds': 1 is not in the range x>=2",
    "compare faithful --seed -1": "Invalid value for '--seed': -1 is not in the range 0<=x<=4294967295",
    "compare faithful --methods gibs": "no model has the method 'gibs'",
    "compare faithful --out a.txt": "--out takes a file ending in .png, .svg, .pdf",
    "show mixture --out held.csv": "--out takes a file ending in .md",
    "completion powershell": "'powershell' is not one of 'bash', 'zsh', 'fish'",
}  # fmt: skip
LATE = {  # answered by the models, the methods and the readers of tables, before a fit is begun
    "fit mixture faithful --tolerance nan": "tolerance must be a number of at least 0",
    "fit mixture faithful --set num_components=0": "num_components must be a whole number of at least",
    "fit mixture faithful --set num_components=True": "must be a whole number of at least 1; got True",
    "fit mixture faithful --set free_last_stick=1": "free_last_stick must be True or False; got 1",
    "fit mixture faithful --set concentration='1'": "concentration must be a number, an array or a",
    "fit mixture faithful --set concentration=None": "concentration must not be None: leave it out",
    "fit mixture faithful --option sort_stick=1": "did you mean sort_sticks?",
    "fit mixture faithful --method gibbs --option magic=1": "no option 'magic'; it has label_moves",
    "fit mixture faithful --keep=": "keep must hold names of variables; '' is none of this model's",
    "fit ppca faithful --y waiting": "PPCA takes 1 part of data, x; got 2: leave the others out",
    "fit sppca faithful": "y is missing: name its columns, such as --y COLUMN",
    "fit paired faithful": "name the columns of each, such as --views a,b c,d",
    "fit mixture faithful --views x x": "Mixture takes 1 part of data, x; got 2",
    "report held.csv": "held.csv cannot be read as netCDF",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a table, a link to it, a link to nothing, a pipe, and what looks like a fit."""
    (tmp_path / "held.csv").write_text("a,b\n1,2\n3,4\n5,7\n")
    os.link(tmp_path / "held.csv", tmp_path / "linked.csv")
    (tmp_path / "other-link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "fit.nc").write_bytes(b"\x89HDF\r\n\x1a\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_mistakes_are_answered_before_anything_is_imported(folder):
    """One process answers all of them: one line each, nothing imported, nothing written."""
    code = """
import contextlib, io, json, sys
from inference.cli import main
found = {}
for line in json.load(sys.stdin):
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            status = main(line.split())
        except SystemExit as stop:
            status = stop.code
    found[line] = status, out.getvalue(), err.getvalue()
print(json.dumps([found, sorted(sys.modules)]))
"""
    before = sorted(os.listdir(folder))
    answer = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(list(MISTAKES)),
        capture_output=True,
        text=True,
        check=True,
    )
    found, imported = json.loads(answer.stdout)
    for line, (status, out, err) in found.items():
        assert status == 2 and out == "" and err.count("\n") == 1, (line, status, out, err)
        assert MISTAKES[line] in err and err.startswith("zoo"), (line, err)
    assert not set(HEAVY) & set(imported)
    assert sorted(os.listdir(folder)) == before
    assert (folder / "held.csv").read_text().startswith("a,b")


def test_a_free_name_is_taken_where_none_is_given(folder, capsys):
    (folder / "mixture.md").write_text("mine")
    assert main(["show", "mixture", "--out", "mixture.md"]) == 2
    assert "such as mixture-2.md" in capsys.readouterr().err
    assert main(["show", "mixture", "--out", "mixture.md", "--force"]) == 0
    assert (folder / "mixture.md").read_text() != "mine"


def test_a_file_that_came_during_the_run_is_not_replaced(folder):
    given = target("--out", "a.nc", "b.nc")
    assert str(given.settled()) == "a.nc"
    (folder / "a.nc").write_text("of somebody else")
    assert str(given.settled()) == "a-2.nc"
    assert str(target("--out", "a.nc", "b.nc", force=True).settled()) == "a.nc"
    assert str(target("--out", None, "a.nc").settled()) == "a-2.nc"


@pytest.mark.parametrize("line", LATE)
def test_mistakes_of_values_are_answered_before_a_fit_is_begun(line, folder, monkeypatch, capsys):
    monkeypatch.setattr("inference.fitting.front_door.plan", lambda request: pytest.fail("a fit was begun"))
    before = sorted(os.listdir(folder))
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and LATE[line] in err, err
    assert sorted(os.listdir(folder)) == before


# Help, version, completion


def test_every_command_shows_examples_that_parse(capsys):
    for name, command in COMMANDS.items():
        assert main([name, "--help"]) == 0
        out = capsys.readouterr().out
        lines = command.epilog.splitlines()[2:]
        assert lines
        for line in lines:
            assert line in out
            if line.startswith("  zoo "):
                words = shlex.split(line.partition(" > ")[0], comments=True)[1:]
                options = parse(words)
                assert options.command == name
                if ":" not in (getattr(options, "model", None) or ":"):
                    canonical_name(options.model)


def test_an_option_takes_several_words_until_the_next_option():
    options = parse(["compare", "faithful", "--methods", "em", "vb", "--seed", "3", "--models", "ppca"])
    assert options.methods == ("em", "vb") and options.models == ("ppca",) and options.seed == 3
    options = parse("fit paired t.csv --views a,b c,d --views e --method vb".split())
    assert options.views == ("a,b", "c,d", "e") and options.files == ["t.csv"]
    with pytest.raises(ValueError, match="'--views' requires an argument; see zoo"):
        parse("fit paired t.csv --views".split())


def test_the_version_is_the_package_s(capsys):
    import zoo

    assert main(["--version"]) == 0 and capsys.readouterr().out == f"zoo {zoo.__version__}\n"


COMPLETED = {
    ("",): {
        "fit",
        "predict",
        "sweep",
        "report",
        "compare",
        "completion",
        "list",
        "show",
        "explain",
        "check",
        "film",
    },
    ("fi",): {"fit", "film"},
    ("fit", "mixt"): {"mixture", "mixture_of_common_factor_analysers", "mixture_of_ppca"},
    ("fit", "mixture", "fai"): {"faithful"},
    ("fit", "mixture", "faithful", "--me"): {"--method"},
    ("fit", "mixture", "faithful", "--method", "gi"): {"gibbs"},
    ("fit", "lda", "faithful", "--method", "e"): set(),
    ("fit", "mixture", "faithful", "--no-progress", "--se"): {"--seed", "--set"},
    ("fit", "mixture", "faithful", "--set", "num_"): {"num_components="},
    ("fit", "lda", "faithful", "--set", "num_to"): {"num_topics=", "num_tokens="},
    ("fit", "mixture", "faithful", "--dtype", "float3"): {"float32"},
    ("compare", "faithful", "--models", "kernel"): {"kernelpca", "kernel_pca"},
    ("predict", "fit.nc", "faith"): {"faithful"},
    ("completion", "f"): {"fish"},
}


@pytest.mark.parametrize("words", COMPLETED)
def test_words_that_may_come_next_are_completed(words, monkeypatch, capsys):
    """As the script of the shell asks for them."""
    monkeypatch.setenv("_ZOO_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(("zoo", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    with pytest.raises(SystemExit):
        main([])
    found = {line.partition(",")[::2] for line in capsys.readouterr().out.splitlines()}
    assert {word for kind, word in found if kind == "plain"} == COMPLETED[words]


def test_names_of_files_are_left_to_the_shell(monkeypatch, capsys):
    monkeypatch.setenv("_ZOO_COMPLETE", "bash_complete")
    for words in ("fit mixture tab", "predict tab", "fit mixture faithful --out tab"):
        monkeypatch.setenv("COMP_WORDS", f"zoo {words}")
        monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
        with pytest.raises(SystemExit):
            main([])
        assert capsys.readouterr().out == "file,tab\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_ZOO_COMPLETE={shell}_complete" in script and "zoo" in script


# Predicting and sweeping


@pytest.fixture(scope="module")
def projection(tmp_path_factory):
    """A folder with a table, a fit of its three numeric columns, and one of its outputs on the others."""
    folder = tmp_path_factory.mktemp("predict")
    rng = np.random.default_rng(0)
    z = rng.normal(size=40)
    table = pd.DataFrame({"a": z + 0.1 * rng.normal(size=40), "b": -z, "c": z + 0.1 * rng.normal(size=40)})
    table["b"] += 0.1 * rng.normal(size=40)
    table.index = [f"row{i}" for i in range(40)]
    table.to_csv(folder / "table.csv")
    here = os.getcwd()
    os.chdir(folder)
    try:
        assert main(["fit", "ppca", "table.csv", "--set", "num_latents=1", "--report", "p.md"]) == 0
    finally:
        os.chdir(here)
    return folder, table


def test_a_fit_reports_and_never_replaces(projection, monkeypatch, capsys):
    folder, _ = projection
    monkeypatch.chdir(folder)
    page = (folder / "p.md").read_text()
    assert "PCA" in page and "ppca-table.nc" in page
    first = (folder / "ppca-table.nc").read_bytes()
    assert main(["fit", "ppca", "table.csv", "--set", "num_latents=1"]) == 0
    assert "saved to ppca-table-2.nc" in capsys.readouterr().out
    assert (folder / "ppca-table.nc").read_bytes() == first


def test_predict_completes_rows_by_name_and_label(projection, monkeypatch, capsys):
    import inference

    folder, table = projection
    monkeypatch.chdir(folder)
    new = table.iloc[:4].copy()
    new.loc["row1", "b"] = np.nan
    new.insert(0, "note", "x")
    new[["c", "note", "a", "b"]].to_csv("new.csv")
    assert main(["predict", "ppca-table.nc", "new.csv", "--deviations"]) == 0
    assert "saved to ppca-table-new.csv" in capsys.readouterr().out
    found = pd.read_csv("ppca-table-new.csv", index_col=0)
    wanted = inference.predict(inference.load("ppca-table.nc"), new[["a", "b", "c"]])
    assert list(found.index) == list(new.index) and list(found.columns) == [
        "a",
        "b",
        "c",
        "a_sd",
        "b_sd",
        "c_sd",
    ]
    np.testing.assert_allclose(found[["a", "b", "c"]], wanted)
    np.testing.assert_allclose(found["b_sd"], wanted.standard_deviation[:, 1])
    for what, columns in (("scores", ["latent_0"]), ("log_density", ["log_density"])):
        assert main(["predict", "ppca-table.nc", "new.csv", "--what", what, "--out", f"{what}.tsv"]) == 0
        assert list(pd.read_csv(f"{what}.tsv", sep="\t", index_col=0).columns) == columns


def test_predict_refuses_rows_without_a_column(projection, monkeypatch, capsys):
    folder, table = projection
    monkeypatch.chdir(folder)
    table[["a", "c"]].to_csv("lacking.csv")
    assert main(["predict", "ppca-table.nc", "lacking.csv"]) == 2
    assert "lack the columns b of the fit" in capsys.readouterr().err


def test_sweep_recommends_the_size_that_made_the_rows(projection, monkeypatch, capsys):
    """The rows have one latent; a rule that took the largest size, or the worst, fails here."""
    folder, _ = projection
    monkeypatch.chdir(folder)
    arguments = ["--sizes", "1:2", "--folds", "2", "--out", "sweep.csv"]
    assert main(["sweep", "ppca", "table.csv", *arguments]) == 0
    out = capsys.readouterr().out
    assert "recommended: num_latents = 1" in out and "zoo fit ppca table.csv --set num_latents=1" in out
    assert list(pd.read_csv("sweep.csv", index_col=0).index) == [1, 2]


def test_a_sweep_says_what_the_errors_of_the_evidence_tell_apart(tmp_path, monkeypatch, capsys):
    def compared(models, *data, **settings):
        table = pd.DataFrame({"heldout": [-3.0, -2.0, -2.1], "difference": [-1.0, 0.0, -0.1]}, list(models))
        table = table.assign(difference_error=0.15, not_converged=0, log_evidence=[-50.0, -40.0, -40.3])
        table["log_evidence_se"] = [0.1, 0.2, 0.2]
        table.attrs |= {"columns": "", "read_off": ["2", "3"], "why_no_evidence": {}}
        return table

    monkeypatch.setattr(sweeping, "cross_validate", compared)
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(np.random.default_rng(0).normal(size=(12, 3)), columns=list("abc")).to_csv("t.csv")
    assert main("sweep mixture t.csv --sizes 1:3 --method tempered".split()) == 0
    out = capsys.readouterr().out
    assert "log_evidence  log_evidence_se" in out
    assert (
        "evidence   2 has more evidence than 1 (10.00 nats lower, standard error 0.22). "
        "2 cannot be told apart from 3 (0.30 nats lower, standard error 0.28). "
        "Prior read off these data: 2, 3" in out
    )


def test_the_command_that_follows_a_sweep_has_the_recommended_size(tmp_path, monkeypatch, capsys):
    """Which is smaller than the best: 2 components of one latent score as 3 of two, within the error."""

    def compared(models, *data, folds, **settings):
        assert list(models) == ["1 x 1", "1 x 2", "2 x 1", "2 x 2", "3 x 1", "3 x 2"] and folds == 4
        heldout = np.array([-3.0, -2.2, -2.1, -2.15, -2.3, -2.0])
        table = pd.DataFrame({"heldout": heldout, "difference": heldout + 2.0}, index=list(models))
        table = table.assign(difference_error=0.15, not_converged=[0, 1, 0, 0, 2, 0])
        table.attrs["columns"] = ""
        return table

    monkeypatch.setattr(sweeping, "cross_validate", compared)
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(np.random.default_rng(0).normal(size=(12, 3)), columns=list("abc")).to_csv("t.csv")
    words = "sweep depcam t.csv --sizes num_components=1:3 --sizes num_latents=1,2 --folds 4 --method map"
    assert main(words.split()) == 0
    out = capsys.readouterr().out
    assert "= 2 x 1, the smallest within one standard error of the best (3 x 2)" in out
    assert out.endswith(
        "Next: zoo fit depcam t.csv --method map --set num_components=2 --set num_latents=1\n"
    )
    assert "3 fits have not converged" in out


DEPCAM_SIZES = ("num_components", "num_latents")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["2:4"], {"num_components": [2, 3, 4]}),
        (["3:3"], {"num_components": [3]}),
        (["8,2,4,2"], {"num_components": [2, 4, 8]}),
        (["num_latents=1,5", "1:2"], {"num_latents": [1, 5], "num_components": [1, 2]}),
        (["1:100"], {"num_components": list(range(1, 101))}),
    ],
)
def test_sizes_of_a_sweep_are_ranges_with_both_ends_or_numbers(texts, expected):
    assert parse_sizes(DEPCAM_SIZES, texts, "depcam") == expected


@pytest.mark.parametrize("text", ["4:1", "0:2", "1:101", "", ":", "1:2:3", "1,x", "1.5"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="--sizes takes FIRST:LAST or numbers with commas, at least 1"):
        parse_sizes(DEPCAM_SIZES, [text], "depcam")
    assert parse_sizes(("num_shared",), ["0:2"], "paired") == {"num_shared": [0, 1, 2]}


def test_the_smallest_size_within_one_standard_error_is_recommended():
    from inference.diagnostics.model_size import recommended

    table = pd.DataFrame(
        {
            "heldout": [-3.0, -2.1, -2.0, -2.05],
            "difference": [-1.0, -0.1, 0.0, -0.05],
            "difference_error": 0.2,
        },
        index=[1, 2, 3, 4],
    )
    assert recommended(table) == (3, 2)
    assert recommended(table.assign(difference_error=0.01)) == (3, 3)
    assert recommended(table.assign(heldout=[np.nan, -2.1, -2.0, -2.05])) == (3, 2)
    with pytest.raises(ValueError, match="finite"):
        recommended(table.assign(heldout=np.nan))


def test_sizes_are_fitted_from_the_smallest_in_all_to_the_largest():
    """Of sizes within one standard error the first is recommended: so one of fewer parts comes before."""
    models = sweeping._models("depcam", {"num_components": [1, 2], "num_latents": [1, 2, 5]}, {})
    assert list(models) == ["1 x 1", "1 x 2", "2 x 1", "2 x 2", "1 x 5", "2 x 5"]
    for label, model in models.items():
        assert label == f"{model.num_components} x {model.num_latents}"


@pytest.mark.parametrize("standardize", [True, False])
def test_the_next_command_of_a_sweep_says_all_that_the_sweep_said_of_the_data(standardize):
    """Parsed again, it has the options of the sweep, and the sizes that were chosen."""
    words = "sweep depcam 'a table.csv' --sizes 1:3 --x a,b --id c --method em --families a=real --read"
    words += " decimal=comma --levels 'd=low,high' --set repulsion=2 --option step_size=3 --read header=yes"
    swept = parse(shlex.split(words) + ["--standardize"] * standardize)
    command = shlex.split(
        sweeping._command(swept, "fit", "--set", {"num_components": "2", "num_latents": "1"})
    )
    assert command[0] == "zoo"
    found = parse(command[1:])
    for name in ("model", "x", "y", "views", "id", "method", "families", "read", "levels", "option"):
        assert getattr(found, name) == getattr(swept, name), name
    assert found.files == ["a table.csv"] and found.standardize is standardize
    assert found.set == ("repulsion=2", "num_components=2", "num_latents=1")
    assert "auto" not in sweeping._command(
        parse(shlex.split("sweep ppca t.csv --sizes 1:2")), "fit", "--set", {}
    )


def test_files_of_the_same_people_are_parts_that_their_id_joins(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, column in (("a", "height"), ("b", "weight")):
        rows = "".join(f"p{i},{i * i % 7}.5\n" for i in range(9))
        (tmp_path / f"{name}.csv").write_text(f"person,{column}\n{rows}")
    asked = {}

    def fit(model, *data, **keywords):
        asked.update(columns=[list(part.columns) for part in data], id=keywords["id"])
        raise ValueError("enough")

    monkeypatch.setattr("inference.fitting.front_door.fit", fit)
    assert main(["fit", "paired", "a.csv", "b.csv", "--id", "person"]) == 2
    assert "enough" in capsys.readouterr().err
    assert asked == {"columns": [["person", "height"], ["person", "weight"]], "id": "person"}
    assert main(["fit", "ppca", "a.csv", "b.csv"]) == 2
    assert "is read in batches" in capsys.readouterr().err


def test_the_labels_of_rows_go_with_the_columns_that_are_chosen(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("who,a,b,c\nA,1,2,3\nB,4,5,6\n")
    given = {"files": [str(file)], "x": None, "y": None, "views": (), "read": {}, "id": "who"}

    def chosen(**options):
        return [list(table.columns) for table in data_of(SimpleNamespace(**given | options))[1]]

    assert chosen() == [["who", "a", "b", "c"]]
    assert chosen(x=["b", "a"], y=["c"]) == [["who", "b", "a"], ["c"]]
    assert chosen(x=["who:b"]) == [["who", "a", "b"]]
    assert chosen(views=[["a"], ["b", "c"]]) == [["who", "a"], ["who", "b", "c"]]
    with pytest.raises(ValueError, match="there is no column 'whom'.* did you mean who"):
        chosen(x=["a"], id="whom")


def test_views_in_files_of_their_own_are_predicted_as_they_are_fitted(tmp_path, monkeypatch, capsys):
    """Once both files were read as batches of one table, and the second lacked the columns of the first."""
    import inference

    monkeypatch.chdir(tmp_path)
    latents = np.random.default_rng(0).normal(size=(30, 1))
    cells = latents + 0.3 * np.random.default_rng(1).normal(size=(30, 4))
    people = pd.Index([f"p{number:02d}" for number in range(30)], name="person")
    a = pd.DataFrame(cells[:, :2], people, ["a", "b"])
    b = pd.DataFrame(cells[:, 2:], people, ["c", "d"])
    model = Paired((Gaussian(noise_variance=None),) * 2, num_shared=1, specific="full_covariance")
    tree = inference.fit(model, a, b, method="closed_form")
    inference.save(tree, "fit.nc")
    a.to_csv("a.csv")
    b[::-1].drop(index="p03").to_csv("b.csv")
    assert main(["predict", "fit.nc", "a.csv", "b.csv"]) == 2
    assert "tables of the same rows, each with columns of its own, go by --id" in capsys.readouterr().err
    call = ["predict", "fit.nc", "a.csv", "b.csv", "--what", "scores", "--out", "scores.csv", "--id"]
    assert main([*call, "persons"]) == 2
    assert (
        "--id: there is no column 'persons'; there are: person, a, b; did you mean" in capsys.readouterr().err
    )
    assert main([*call, "person"]) == 0
    assert "1 of 30 rows of y_0 have no partner" in capsys.readouterr().out
    found = pd.read_csv("scores.csv", index_col=0)
    wanted = inference.transform(tree, a.drop(index="p03"), b.drop(index="p03"))
    assert list(found.index) == list(wanted["observation"].to_numpy())
    np.testing.assert_allclose(found.to_numpy(), wanted, rtol=1e-9)
    assert main(["predict", "fit.nc", "a.csv"]) == 0
    assert "predicted  y_1 of each row" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("sizes", "heldout", "more"),
    [
        (["1:2"], [-3.0, -2.0], "num_latents=2:3"),  # three columns of four, no more
        (["1:2"], [-2.0, -1.9], ""),  # the best, but a smaller one is as good and recommended
        (["1:2"], [-2.0, -3.0], ""),
        (["1,3"], [-3.0, -2.0], ""),
    ],
)
def test_a_size_at_the_edge_of_a_sweep_is_not_called_the_optimum(
    sizes, heldout, more, tmp_path, monkeypatch, capsys
):
    def compared(models, *data, **settings):
        table = pd.DataFrame({"heldout": heldout, "difference": heldout - max(heldout)}, list(models))
        table.attrs |= {"columns": "", "read_off": [], "why_no_evidence": {}}
        return table.assign(difference_error=0.2, not_converged=1)

    heldout = np.array(heldout)
    monkeypatch.setattr(sweeping, "cross_validate", compared)
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(np.random.default_rng(0).normal(size=(12, 4)), columns=list("abcd")).to_csv("t.csv")
    assert main(["sweep", "ppca", "t.csv", "--method", "em", "--sizes", *sizes]) == 0
    out = capsys.readouterr().out
    command = f"zoo sweep ppca t.csv --method em --sizes {more}\n"
    assert (command in out, "num_latents above 2 was not tried" in out) == (bool(more), bool(more))
    assert "raise --max-iterations or --num-restarts" in out


def test_a_sweep_by_a_sampler_advises_of_its_options_and_says_why_there_is_no_evidence(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(12, 2))
    pd.DataFrame(rows, columns=list("ab")).to_csv("t.csv", index=False)
    short = "--num-warmup 2 --num-samples 8 --num-chains 2 --folds 2".split()
    assert main(["sweep", "mixture", "t.csv", "--sizes", "2", "--method", "tempered", *short]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "the log evidence of num_components = 2 is not told: " in out and "raise --num-samples" in out
    assert "raise --num-warmup or --num-samples" in out and "--max-iterations" not in out


def test_the_help_of_film_names_the_models_and_methods_that_have_films(capsys):
    """Those that a film refuses are not named, by the rules of films themselves."""
    assert main(["film", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    filmed, at_once = set(), set()
    for name in zoo.MODELS:
        kind = zoo.model_class(name)
        if ("observation", "feature") in kind.dims.values() and (kind.roles.cluster or kind.roles.loadings):
            filmed.add(name)
            at_once |= {own for own in kind.methods if isinstance(methods._method_of(name, own), Direct)}
    kinds, others = told.partition("Models with films: ")[2].split("; methods: all but ")
    assert set(re.findall(r"[a-z_]+", kinds)) - {"and"} == filmed
    assert set(re.findall(r"[a-z_]+", others.partition(", which")[0])) - {"and"} == at_once
