"""A saved fit is whole or not there, and what is loaded is what was saved."""

import errno
import fcntl
import io
import json
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import inference
import zoo
from inference.numerics import atomic_files
from inference.numerics.atomic_files import check_writable, replacing
from inference.results import files
from inference.results.integrity import CHECKSUM, contradiction
from inference.results.model_fields import restore
from zoo.conjugate import NormalGamma, Product
from zoo.intake import bounds

ROWS = np.random.default_rng(0).normal(size=(30, 2))
QUICK = {"method": "em", "max_iterations": 5, "num_restarts": 1}


@pytest.fixture(scope="module")
def trees():
    """Two fits of one model to other rows."""
    with pytest.warns(UserWarning):
        call = {"method": "vb", "max_iterations": 3, "num_restarts": 1, "num_samples": 10}
        fits = [inference.fit(zoo.Mixture(num_components=2), x, **call) for x in (ROWS, 3 * ROWS + 1)]
    return [tree.filter(lambda node: node.name not in ("variational", "columns")) for tree in fits]


@pytest.fixture(scope="module")
def content(trees, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "fit.nc"
    inference.save(trees[0], path)
    return path.read_bytes()


@pytest.fixture
def saved(content, tmp_path):
    path = tmp_path / "fit.nc"
    path.write_bytes(content)
    return path


def as_xarray_writes(path, change=lambda tree: None):
    """The file written anew by xarray after a change, its checksum left as it was."""
    with xr.open_datatree(path, engine="h5netcdf") as opened:
        for node in opened.subtree:
            for variable in node.variables.values():
                variable.load()
    change(opened)
    opened.to_netcdf(path, engine="h5netcdf")
    return path


@pytest.mark.slow
def test_everything_is_read_before_the_file_is_closed(trees, saved):
    """xarray left log_likelihood/log_likelihood in the file: it showed the numbers of the next fit there."""
    loaded = inference.load(saved)
    inference.save(trees[1], saved)
    saved.unlink()
    for node in trees[0].subtree:
        for name, variable in node.variables.items():
            np.testing.assert_array_equal(loaded[node.path].variables[name], variable)
    assert not np.array_equal(
        loaded["log_likelihood"]["log_likelihood"], trees[1]["log_likelihood"]["log_likelihood"]
    )


def _limited(size, write):
    """A write where no file may grow beyond a size; soft limit only, so that it can be lifted again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["in memory", "reserved", "unreserved"])
def test_a_full_disk_is_one_error_and_the_former_file_is_whole(trees, saved, way, monkeypatch):
    if way != "in memory":
        monkeypatch.setattr(files, "IN_MEMORY", 0)
    if way == "unreserved":  # the disk fills up while HDF5 writes
        monkeypatch.setattr(atomic_files, "_reserve", lambda file, size: None)
    with pytest.raises(OSError, match="cannot write this file: File too large: '.*fit.nc'") as caught:
        _limited(20_000, lambda: inference.save(trees[1], saved))
    assert caught.value.errno == errno.EFBIG
    assert os.listdir(saved.parent) == ["fit.nc"]
    xr.testing.assert_identical(inference.load(saved), trees[0])
    inference.save(trees[1], saved)  # it is still in memory
    xr.testing.assert_identical(inference.load(saved), trees[1])


@pytest.mark.slow
def test_what_hdf5_does_on_a_full_disk_by_itself(saved):
    """Planted: the way it was written before ends the interpreter."""
    program = (
        "import resource, sys, inference; tree = inference.load(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
        "try: {}\nexcept OSError as error: print(error)\nprint('alive')"
    )
    ways = "inference.save(tree, 'new.nc')", "tree.to_netcdf('new.nc', engine='h5netcdf')"
    ours, theirs = (
        subprocess.run(
            [sys.executable, "-c", program.format(way), saved],
            capture_output=True,
            text=True,
            cwd=saved.parent,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        )
        for way in ways
    )
    assert ours.returncode == 0 and ours.stdout.endswith("alive\n")
    assert theirs.returncode < 0 and "alive" not in theirs.stdout


def test_a_removed_or_read_only_folder_is_one_error(trees, tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    with pytest.raises(ValueError, match="the folder .*gone does not exist"):
        inference.save(trees[0], folder / "fit.nc")
    monkeypatch.setattr(files, "check_writable", lambda path: None)  # it goes after the check
    with pytest.raises(FileNotFoundError, match="cannot write this file: .*gone/fit.nc"):
        inference.save(trees[0], folder / "fit.nc")
    monkeypatch.undo()
    folder.mkdir(mode=0o555)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as for a user who is not root
    with pytest.raises(ValueError, match="no permission"):
        inference.save(trees[0], folder / "fit.nc")


def test_large_fits_are_written_piece_by_piece_and_equal(trees, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "IN_MEMORY", 0)
    inference.save(trees[0], tmp_path / "fit.nc")
    xr.testing.assert_identical(inference.load(tmp_path / "fit.nc"), trees[0])
    assert (tmp_path / "fit.nc").stat().st_size < 200_000  # nothing of what was reserved is left


def test_what_shrinks_a_thousandfold_is_loaded_again(trees, tmp_path, monkeypatch):
    """A file that declares much more than it has is refused: `save` writes such a fit without compression."""
    monkeypatch.setattr(bounds, "SMALL_BYTES", 10_000)
    monkeypatch.setattr(bounds, "LARGEST_RATIO", 20)
    tree = trees[0].assign(zeros=xr.DataTree(xr.Dataset({"zeros": ("zero", np.zeros(10**6))})))
    inference.save(tree, tmp_path / "fit.nc")
    assert (tmp_path / "fit.nc").stat().st_size > 8 * 10**6
    xr.testing.assert_identical(inference.load(tmp_path / "fit.nc"), tree)


def test_names_up_to_the_limit_of_the_file_system(trees, tmp_path):
    longest = tmp_path / ("f" * 252 + ".nc")
    inference.save(trees[0], longest)
    assert os.listdir(tmp_path) == [longest.name]
    for refused in ("f" * 253 + ".nc", "é" * 127 + ".nc"):
        with pytest.raises(ValueError, match=r"its name takes 25\d bytes and this folder takes 255"):
            inference.save(trees[0], tmp_path / refused)
    with pytest.raises(ValueError, match="null"):
        inference.save(trees[0], tmp_path / "f\0.nc")


def test_orphans_of_dead_processes_are_removed_and_files_being_written_are_not(tmp_path):
    path = tmp_path / "fit.nc"
    program = (
        "import os, sys; from inference.numerics.atomic_files import replacing\n"
        "with replacing(sys.argv[1]) as file: os.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    killed = subprocess.run([sys.executable, "-c", program, path], env=environment)
    assert killed.returncode == -9 and len(os.listdir(tmp_path)) == 1
    with replacing(path) as file:
        file.write(b"first")
        written = set(os.listdir(tmp_path))
        assert len(written) == 1  # the orphan has gone
        with replacing(path) as other:
            other.write(b"second")
        assert set(os.listdir(tmp_path)) == written | {"fit.nc"}
    assert os.listdir(tmp_path) == ["fit.nc"] and path.read_bytes() == b"first"


def test_threads_that_save_to_one_path_leave_one_whole_file(trees, tmp_path):
    path, failed = tmp_path / "fit.nc", []

    def save():
        try:
            inference.save(trees[0], path)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=save) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and os.listdir(tmp_path) == ["fit.nc"]
    xr.testing.assert_identical(inference.load(path), trees[0])


def test_without_locks_files_are_still_replaced(tmp_path, monkeypatch):
    def unsupported(file, how):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with replacing(tmp_path / "a") as file:
        file.write(b"a")
    monkeypatch.setattr(atomic_files, "fcntl", None)
    with replacing(tmp_path / "a") as file:
        file.write(b"b")
    assert (tmp_path / "a").read_bytes() == b"b" and os.listdir(tmp_path) == ["a"]


def test_only_regular_files_are_replaced(trees, tmp_path):
    table, link, pipe = tmp_path / "mine.csv", tmp_path / "link.nc", tmp_path / "pipe.nc"
    table.write_text("a,b\n1,2\n")
    link.symlink_to(table)
    os.mkfifo(pipe)
    for path, message in (
        (link, "it is a link"),
        (pipe, "it is no regular file"),
        (Path("/dev/null"), "it is no regular file"),
        (tmp_path, "it is a folder"),
    ):
        with pytest.raises(ValueError, match=message):
            check_writable(path)
        with pytest.raises(ValueError, match=message):
            inference.save(trees[0], path)
        with pytest.raises(ValueError, match=message):
            inference.fit(zoo.PPCA(num_latents=1), ROWS, checkpoint=path, **QUICK)


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"PK\x03\x04 a checkpoint", "netcdf"])
def test_a_file_that_is_no_fit_is_not_replaced(trees, tmp_path, content):
    path = tmp_path / "mine"
    if content == "netcdf":
        xr.Dataset({"x": ("row", [1.0])}).to_netcdf(path, engine="h5netcdf")
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="is there and is no fit: it would be lost"):
        inference.save(trees[0], path)
    assert path.read_bytes() == before
    path.write_bytes(b"")  # as tempfile makes it
    inference.save(trees[0], path)


# The checksum


def test_a_changed_value_is_refused_and_a_group_of_the_users_own_is_not(trees, saved):
    with h5py.File(saved, "a") as file:
        file["mine/notes"] = np.arange(3.0)
    loaded = inference.load(saved)
    assert "integrity" not in loaded.attrs and "mine" in loaded.children
    with h5py.File(saved, "a") as file:
        file["trace/iteration"][0] += 1  # not compressed: no sum of HDF5 covers it
    with pytest.raises(ValueError, match="is damaged or was changed since it was saved.*'zoo_checksum'"):
        inference.load(saved)


def _replace(tree, name, change):
    tree[name] = xr.DataTree(change(tree[name].to_dataset()))


CHANGES = {
    "an attribute": lambda tree: tree.attrs.update(seed=17),
    "a label": lambda tree: _replace(
        tree, "observed_data", lambda group: group.assign_coords(feature=[0, 2])
    ),
    "a name": lambda tree: _replace(tree, "trace", lambda group: group.rename(objective="goal")),
    "an attribute of a group": lambda tree: tree["posterior"].attrs.update(a=1),
    "a group left out": lambda tree: tree.__delitem__("log_likelihood"),
    "one value": lambda tree: tree["observed_data"]["x"].values.__setitem__((0, 0), 0.0),
    "the sum itself": lambda tree: tree.attrs.update({CHECKSUM: "{"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_checksum_covers(saved, change):
    with pytest.raises(ValueError, match="was changed since it was saved"):
        inference.load(as_xarray_writes(saved, CHANGES[change]))


def test_a_file_without_a_checksum_says_so(trees, saved):
    as_xarray_writes(saved)
    assert "integrity" not in inference.load(saved).attrs  # xarray keeps the values, and the sum with them
    loaded = inference.load(as_xarray_writes(saved, lambda tree: tree.attrs.pop(CHECKSUM)))
    assert loaded.attrs.pop("integrity").startswith("not verified: the file has no checksum")
    xr.testing.assert_identical(loaded, trees[0])
    loaded.attrs["integrity"] = "stale"
    inference.save(loaded, saved)
    assert "integrity" not in inference.load(saved).attrs


def edit(path, **changes):
    """Change root attributes of a file, and leave out the checksum."""
    with h5py.File(path, "a") as file:
        if CHECKSUM in file.attrs:
            del file.attrs[CHECKSUM]
        for name, value in changes.items():
            file.attrs[name] = value


def _declares(number):
    def change(path):
        with h5py.File(path) as file:
            fields = json.loads(file.attrs["model_fields"])
        edit(path, model_fields=json.dumps(fields | {"num_components": number}))

    return change


def _nan(path):
    edit(path)
    with h5py.File(path, "a") as file:
        file["posterior/locs"][0, 0, 0, 0] = np.nan


def _flat(path):
    edit(path)
    with h5py.File(path, "a") as file:
        del file["posterior/weights"]
        file["posterior/weights"] = np.ones(3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_declares(3), "model has 3 of the dim 'component' and .* has 2"),
        (_declares(100_000), "model has 100000 of the dim 'component'"),
        (_declares(2 * 10**9), "model has 2000000000 of the dim 'component'"),
        (lambda path: edit(path, model_fields="{}"), "model has 20 of the dim 'component'"),
        (lambda path: edit(path, method="closed_form"), "method is 'closed_form', which Mixture does not"),
        (_nan, "locs of its group 'posterior' is not finite"),
        (_flat, "weights of its group 'posterior' has the dims .* and must have chain, draw, component"),
    ],
)
def test_a_file_that_contradicts_its_model_is_refused(saved, change, message):
    change(saved)
    with pytest.raises(ValueError, match=f"contradicts itself: .*{message}"):
        inference.load(saved)


def test_a_tree_that_contradicts_its_model_is_not_saved(trees, tmp_path):
    with pytest.raises(ValueError, match="this tree is not a whole fit: .* save the tree that inference.fit"):
        inference.save(trees[0].isel(component=[0]), tmp_path / "fit.nc")


def test_the_third_group_of_columns_is_no_second_axis():
    """A table of three kinds of columns was refused by `save`; a second axis of another length still is."""
    x = np.random.default_rng(0).normal(size=(30, 4))
    families, groups = (NormalGamma(),) * 3, ((0, 1), (2,), (3,))
    components = Product.from_data(x, families=families, columns=groups)
    model = zoo.Mixture(num_components=2, components=components)

    def tree(**dims):
        locs = np.zeros(tuple(dims.values()))
        return xr.DataTree.from_dict({"posterior": xr.Dataset({"locs_2": (tuple(dims), locs)})})

    assert model.num_features == 4
    assert contradiction(tree(chain=1, draw=1, component=2, feature_2=1), model) == ""
    assert "4 of the dim 'feature_2'" in contradiction(tree(feature=4, feature_2=1), model)


@pytest.mark.parametrize(
    "fields",
    ["[1]", "3", "null", '"x"', 7, "[" * 500 + "]" * 500, '{"components": {"type": [1]}}',
     '{"components": {"type": "GaussianWishart", "loc": "a"}}', '{"concentration": {"type": "Gamma"}}',
     '{"num_components": 1e400}', '{"a": "' + "x" * 2**22 + '"}',
     '{"components": {"array": [1]}}', '{"components": {}}', '{"concentration": [[1]]}'],
)  # fmt: skip
def test_fields_that_no_fit_has_are_one_message(fields):
    with pytest.raises(ValueError) as caught:
        restore("mixture", fields, {})
    assert caught.type is ValueError and len(str(caught.value)) < 600


@pytest.mark.parametrize("bad", ["half of a pair \ud800", "nothing \0 after it"])
def test_text_that_no_file_can_hold_is_saved_as_an_escape(trees, tmp_path, bad):
    import pandas as pd

    names = pd.Index([bad, "b"], dtype=object)  # of text that is no Unicode pandas makes no other index
    tree = inference.fit(zoo.PPCA(num_latents=1), pd.DataFrame(ROWS, columns=names), method="closed_form")
    tree.attrs["command"] = bad
    inference.save(tree, tmp_path / "fit.nc")
    loaded = inference.load(tmp_path / "fit.nc")
    assert "\\" in str(loaded["observed_data"]["feature"].values[0]) and "\\" in loaded.attrs["command"]


def test_reading_needs_no_path(saved):
    """The layout is checked and the file is read through one handle."""
    content = saved.read_bytes()
    bounds.check_layout(io.BytesIO(content), len(content))
