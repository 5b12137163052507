"""Nothing is lost to an output: only regular files are replaced, never data, never what a run has made."""

import ast
import os
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import inference
from inference.cli import main
from inference.cli.paths import target
from inference.fitting import front_door
from inference.fitting.verdict import Judgement
from inference.numerics.atomic_files import check_replaceable, replacing
from inference.report import report, report_comparison
from inference.report.page import Front, Picture, Section, check_page_path, write_page
from inference.results import files
from tests.support.report_cases import fitted

ROOT = Path(__file__).parents[3]
NOTES = b"mine, and not to be lost\n"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two fits, as files hold them."""
    path = tmp_path_factory.mktemp("saved") / "fit.nc"
    content = {}
    for name, model in (("fit.nc", "ppca"), ("other.nc", "mixture")):
        inference.save(fitted(model), path)
        content[name] = path.read_bytes()
    return content


@pytest.fixture
def folder(saved, tmp_path, monkeypatch):
    """A table, two fits, a checkpoint, notes, a link, a pipe and a folder, by every ending."""
    np.savetxt(tmp_path / "data.csv", np.random.default_rng(0).normal(size=(12, 2)), delimiter=",")
    for name, content in saved.items():
        (tmp_path / name).write_bytes(content)
    with (tmp_path / "run.ckpt").open("wb") as file:
        np.savez(file, format=np.asarray(5), fingerprint=np.asarray("{}"))
    for ending in ("nc", "html", "md", "csv", "svg", "txt"):
        (tmp_path / f"notes.{ending}").write_bytes(NOTES)
        (tmp_path / f"link.{ending}").symlink_to("notes.txt")
        os.mkfifo(tmp_path / f"pipe.{ending}")
        (tmp_path / f"folder.{ending}").mkdir()
        for made in ("run.ckpt", "fit.nc"):
            name = f"{made.partition('.')[0]}.{ending}"
            if name != made:
                (tmp_path / name).write_bytes((tmp_path / made).read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def state(folder):
    """Every file: its kind and what it holds."""
    return {
        path.name: path.read_bytes() if path.is_file() and not path.is_symlink() else os.lstat(path).st_mode
        for path in folder.iterdir()
    }


FIT, SWEPT = "fit ppca data.csv --set num_latents=1 --force", "sweep ppca data.csv --sizes 1 --force"
COMMANDS = {  # command with --force, ending of what it writes, and what else of a run it must not replace
    "fit": (f"{FIT} --out", "nc", ("run",)),
    "report of fit": (f"{FIT} --out new.nc --report", "html", ("run", "fit")),
    "markdown of fit": (f"{FIT} --out new.nc --report", "md", ("run", "fit")),
    "show": ("show mixture --force --out", "md", ("run", "fit")),
    "report": ("report fit.nc --force --out", "html", ("run", "fit")),
    "comparison": ("report fit.nc other.nc --force --out", "html", ("run", "fit")),
    "predict": ("predict fit.nc data.csv --force --out", "csv", ("run", "fit")),
    "sweep": (f"{SWEPT} --out", "csv", ("run", "fit")),
    "compare": ("compare data.csv --force --out", "svg", ("run", "fit")),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_force_replaces_regular_files_that_no_run_has_made(command, folder, capsys, monkeypatch):
    """All is refused before the run, even with --force."""
    monkeypatch.setattr("inference.fitting.front_door.plan", lambda request: pytest.fail("a fit was begun"))
    words, ending, made = COMMANDS[command]
    before = state(folder)
    for name in ("link", "pipe", "folder", *made):
        assert main([*words.split(), f"{name}.{ending}"]) == 2, name
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and f"cannot write {name}.{ending}" in err or name == "run"
        assert state(folder) == before, name
    if command in ("fit", "report of fit", "markdown of fit"):
        assert main([*f"{FIT} --out x.nc --checkpoint".split(), f"notes.{ending}"]) == 2
        assert main([*f"{FIT} --out x.nc --checkpoint".split(), "folder.txt"]) == 2
        assert capsys.readouterr().err.count("\n") == 2 and state(folder) == before


@pytest.mark.slow
def test_a_fit_replaces_a_fit_and_nothing_else_and_says_so_before_the_run(folder, capsys, monkeypatch):
    """`save` refused it when hours had been spent."""
    monkeypatch.setattr("inference.fitting.front_door.plan", lambda request: pytest.fail("a fit was begun"))
    for name in ("notes.nc", "run.ckpt", "data.csv", "run.nc"):
        before = state(folder)
        assert main([*FIT.split(), "--out", name]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and ("is no fit" in error or "this command reads it" in error), error
        assert state(folder) == before


def test_what_came_during_the_run_is_not_replaced_even_with_force(folder):
    chosen = target("--out", "new.nc", "b.nc", force=True)
    (folder / "new.nc").write_bytes(NOTES)
    assert str(chosen.settled()) == "new-2.nc"
    chosen = target("--out", "fit.nc", "b.nc", force=True)
    assert str(chosen.settled()) == "fit.nc"
    (folder / "fit.nc").write_bytes(NOTES)  # exchanged meanwhile
    assert str(chosen.settled()) == "fit-2.nc"


@pytest.mark.parametrize("ending", ["html", "md"])
def test_reports_from_python_replace_no_link_and_nothing_that_a_run_has_made(ending, folder):
    before = state(folder)
    tree = fitted("ppca")
    for name in ("link", "pipe", "folder", "run", "fit"):
        for write in (
            lambda path: report(tree, path),
            lambda path: report_comparison({"a": tree, "b": tree}, path),
        ):
            with pytest.raises((ValueError, IsADirectoryError), match=f"cannot write .*{name}.{ending}"):
                write(folder / f"{name}.{ending}")
    assert state(folder) == before


def page_with_pictures(path):
    """A small page of two pictures, and their files where it is Markdown."""
    front = Front("Title", Judgement(True, "well", "seen", "go on"), {"Data": "some"})
    blocks = [
        Picture(name, "caption", "words for one who cannot see it", Figure()) for name in ("one", "two")
    ]
    return write_page(front, [Section("Section", blocks)], path)


def test_pictures_of_markdown_replace_those_of_the_former_page_and_no_others(folder):
    page = folder / "a (b).md"
    page_with_pictures(page)
    pictures = sorted(folder.glob("a (b)-*.png"))
    assert [path.name for path in pictures] == ["a (b)-one.png", "a (b)-two.png"]
    page_with_pictures(page)
    assert sorted(folder.glob("a (b)-*.png")) == pictures  # its own were replaced
    assert "](a%20%28b%29-one.png)" in page.read_text(encoding="utf-8")
    page.unlink()
    pictures[0].write_bytes(NOTES)
    pictures[1].unlink()
    pictures[1].symlink_to("notes.txt")
    page_with_pictures(page)
    assert pictures[0].read_bytes() == pictures[1].read_bytes() == NOTES and pictures[1].is_symlink()
    assert "](a%20%28b%29-one-2.png)" in page.read_text(encoding="utf-8")


def test_the_ending_of_a_page_may_be_in_capitals(folder):
    """The command line took REPORT.HTML, and the page refused it when the fit had been made."""
    check_page_path(folder / "A.HTML")
    assert page_with_pictures(folder / "A.HTML").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_workbook_is_no_checkpoint(folder):
    with (folder / "book.xlsx").open("wb") as file:
        np.savez(file, x=np.ones(2))
    check_replaceable(folder / "book.xlsx")
    (folder / "cut.csv").write_bytes((folder / "run.ckpt").read_bytes()[:90])
    check_replaceable(folder / "cut.csv")


# Whole or not at all, everywhere


WRITERS = {
    *("to_csv", "to_parquet", "to_excel", "to_netcdf", "savefig", "write_text", "write_bytes"),
    *("savez", "savez_compressed", "tofile", "savetxt"),
}


def unsafe_writes(path, source):
    """Calls that write a file otherwise than through `replacing`."""
    if not re.search(rf"\bopen\(|{'|'.join(WRITERS)}", source):
        return
    tree = ast.parse(source)
    given = {
        item.optional_vars.id
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        for item in node.items
        if isinstance(item.context_expr, ast.Call)
        and getattr(item.context_expr.func, "id", "") in ("replacing", "_Steady")
        and isinstance(item.optional_vars, ast.Name)
    }
    in_memory = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call | ast.Tuple)
        and "BytesIO()" in ast.unparse(node.value)
        for name in node.targets
        for target in ([name] if isinstance(name, ast.Name) else getattr(name, "elts", []))
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        words = [*node.args, *(keyword.value for keyword in node.keywords)]
        opens = name == "open" and any(
            isinstance(word, ast.Constant) and isinstance(word.value, str) and set(word.value) & set("wax+")
            for word in words
            if isinstance(word, ast.Constant) and len(str(word.value)) <= 3
        )
        first = node.args[0] if node.args else None
        safe = isinstance(first, ast.Name) and first.id in given | in_memory
        if opens or (name in WRITERS and not safe):
            yield f"{path}:{node.lineno}: {ast.unparse(node)[:60]}"


ALLOWED = {
    "inference/numerics/atomic_files.py",  # where it is done
    "inference/diagnostics/comparison.py",  # a counter of the kernel
    "inference/results/written_tables.py",  # parts of a table, into the file that one `replacing` holds
}


def test_every_file_is_written_whole_or_not_at_all():
    found = [
        place
        for package in ("zoo", "inference")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.relative_to(ROOT).as_posix() not in ALLOWED
        for place in unsafe_writes(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "planted",
    [
        "table.to_csv(path)",
        "figure.savefig(place, dpi=150)",
        "Path(path).write_text('a')",
        "with open(path, 'w') as file: file.write('a')",
        "path.open('r+b')",
        "np.savez(path, x=1)",
    ],
)
def test_planted_writes_are_found(planted):
    assert list(unsafe_writes("planted.py", planted))


def test_a_page_or_a_table_that_fails_leaves_the_former_one(folder):
    with pytest.raises(OSError, match="full"), replacing(folder / "notes.csv") as file:
        file.write(b"half")
        raise OSError(28, "full")
    assert (folder / "notes.csv").read_bytes() == NOTES


def test_a_fit_whose_place_is_gone_is_saved_elsewhere(folder, saved, monkeypatch, capsys):
    """The folder is removed, or the disk is full, while the run goes on."""
    tree = inference.load(folder / "fit.nc")

    def removing(*args, **settings):
        (folder / "runs").rmdir()
        return tree.copy()

    monkeypatch.setattr(front_door, "fit", removing)
    for name in ("taken.nc", "free.nc"):
        (folder / "runs").mkdir()
        (folder / "taken.nc").write_bytes(NOTES)
        assert main(["fit", "ppca", "data.csv", "--read", "header=no", "--out", f"runs/{name}"]) == 2
        out, err = capsys.readouterr()
        elsewhere = folder / name.replace("taken", "taken-2")
        assert f"saved to {elsewhere}" in out
        assert re.fullmatch(
            rf"zoo: error: .*the folder runs does not exist: the fit was saved to {elsewhere} instead\n", err
        )
        assert inference.load(elsewhere)["posterior"].identical(tree["posterior"])
    assert (folder / "taken.nc").read_bytes() == NOTES

    def full(tree, path):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(files, "save", full)
    (folder / "runs").mkdir()
    before = state(folder)
    assert main(["fit", "ppca", "data.csv", "--read", "header=no", "--out", "runs/full.nc"]) == 2
    assert re.fullmatch(r"zoo: error: .*No space left.*: nor could .*\n", capsys.readouterr().err)
    del before["runs"]
    assert state(folder) == before


@pytest.mark.parametrize(
    ("option", "name", "reason"),
    [
        ("--out", "n" * 300 + ".nc", "its name takes 30. bytes"),
        ("--checkpoint", "n" * 300, "its name takes 30. bytes"),
        ("--out", "notes.txt/a.nc", "Not a directory"),
    ],
)
def test_a_name_that_no_file_has(option, name, reason, folder, capsys):
    assert main(["fit", "ppca", "data.csv", option, name]) == 2
    assert re.fullmatch(rf"zoo: error: cannot write .*{reason}.*\n", capsys.readouterr().err)


def test_ctrl_c_says_what_goes_on_from_where(folder, monkeypatch, capsys):
    def interrupted(*args, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(front_door, "fit", interrupted)
    fit = ["fit", "ppca", "data.csv", "--read", "header=no", "--out", "new.nc"]
    assert main([*fit, "--checkpoint", "run.ckpt"]) == 130
    assert capsys.readouterr().err == "zoo: interrupted; the same command goes on from run.ckpt\n"
    assert main(fit) == 130
    assert capsys.readouterr().err == "zoo: interrupted before there was anything to keep\n"
