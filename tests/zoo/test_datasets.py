"""The catalogue tells the truth about what it loads, and says what to do about what it cannot."""

import hashlib
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import zoo
from inference.cli.selection import select
from zoo import datasets
from zoo.datasets import catalogue, load

USER_HELD = [name for name, entry in catalogue().items() if entry["kind"] == "user"]
SHIPPED = [name for name, entry in catalogue().items() if entry["kind"] == "shipped"]


def test_old_faithful_is_the_published_one():
    dataset = load("faithful")
    x = dataset["x"]
    assert x.shape == (272, 2) and x.dtype == np.float64
    assert dataset.columns == {"x": ("eruptions", "waiting")}
    # means and standard deviations as R prints them for datasets::faithful
    np.testing.assert_allclose(x.mean(0), [3.487783, 70.897059], atol=5e-7)
    np.testing.assert_allclose(x.std(0, ddof=1), [1.141371, 13.594974], atol=5e-7)
    assert "Azzalini" in dataset.citation and "minutes" in dataset.description and dataset.terms
    assert list(dataset.frame().columns) == ["eruptions", "waiting"]


def test_rock_art_is_a_binary_table_with_named_rows_and_columns():
    dataset = load("rock_art")
    x = dataset["x"]
    assert x.shape == (103, 614) and x.dtype == np.float64 and set(np.unique(x)) == {0.0, 1.0}
    # the motifs' columns run from Ca1 to Zoo6 in the documentation of DAAG::rockArt
    assert dataset.columns["x"][0] == "Ca1" and dataset.columns["x"][-1] == "Zoo6"
    assert x.any(1).all() and x.any(0).all()
    technique, count = np.unique(dataset["technique"], return_counts=True)
    assert technique.tolist() == ["E", "P"] and count.tolist() == [67, 36]
    assert len(set(dataset["district"])) == 15 and dataset["district"][0] == "Sogeri"
    frame = dataset.frame()
    assert frame.index.is_unique and frame.index[3] == "7.1" and "Turtle" in frame
    assert dataset.frame("district").index.equals(frame.index)


def test_votes_repub_misses_217_numbers():
    dataset = load("votes_repub")
    x, frame = dataset["x"], dataset.frame()
    assert x.shape == (50, 31) and np.isnan(x).sum() == 217
    assert (
        frame.columns[0] == "1856"
        and frame.columns[-1] == "1976"
        and list(frame.index) == sorted(frame.index)
    )
    assert frame.loc["Alabama", "1976"] == 43.48 and frame.loc["Hawaii", :"1956"].isna().all()
    assert 0 < np.nanmin(x) and np.nanmax(x) < 100


def test_the_command_line_names_rows_too():
    name, (table,) = select("votes_repub")
    assert name == "votes_repub" and table.index[0] == "Alabama" and table.columns[0] == "1856"
    _, (table,) = select("rock_art", x=["Turtle", "Boat:Hand"])
    assert table.shape == (103, 4) and table.index[3] == "7.1"


def test_bfi_is_ordinal_with_missing_answers():
    dataset = load("bfi")
    x, frame = dataset["x"], dataset.frame()
    assert x.shape == (2800, 25) and set(np.unique(x[~np.isnan(x)])) == {1, 2, 3, 4, 5, 6}
    assert list(frame.columns) == [f"{factor}{i}" for factor in "ACENO" for i in range(1, 6)]
    # numbers of answers, means and standard deviations as psych::describe(bfi) prints them
    assert np.isnan(x).sum() == 508 and frame["A1"].count() == 2784 and frame["N4"].count() == 2764
    np.testing.assert_allclose(frame[["A1", "C1", "O5"]].mean(), [2.41, 4.50, 2.49], atol=0.005)
    np.testing.assert_allclose(frame[["A1", "C1", "O5"]].std(), [1.41, 1.24, 1.33], atol=0.005)


def test_olive_has_its_labels_as_numbers_and_as_words():
    dataset = load("olive")
    assert dataset["x"].shape == (572, 8) and not np.isnan(dataset["x"]).any()
    np.testing.assert_allclose(dataset["x"].sum(1), 100, atol=2)  # per cent of each oil
    region, count = np.unique(dataset["region"], return_counts=True)
    assert dict(zip(region.tolist(), count.tolist(), strict=True)) == {
        "Northern Italy": 151,
        "Sardinia": 98,
        "Southern Italy": 323,
    }
    numbered = set(zip(dataset["labels"].tolist(), dataset["area"].tolist(), strict=True))
    assert len(numbered) == 9 and (0, "North-Apulia") in numbered and (3, "Sicily") in numbered
    assert dataset["labels"].dtype == np.int64 and dataset["area"].dtype.kind == "U"


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_file_has_the_sha256_that_the_catalogue_gives(name):
    entry = catalogue()[name]
    path = datasets.shipped_folder() / entry["file"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == entry["sha256"]


def test_the_readme_beside_the_files_lists_them_all():
    folder = datasets.shipped_folder()
    text = (folder / "README.md").read_text(encoding="utf-8")
    entries = catalogue()
    assert {path.name for path in folder.glob("*.csv")} == {entries[name]["file"] for name in SHIPPED}
    assert all(f"## {entries[name]['file']}" in text and entries[name]["sha256"] in text for name in SHIPPED)


def test_every_entry_is_described():
    for name, entry in catalogue().items():
        assert entry["kind"] in {"shipped", "generated", "package", "user"}, name
        assert all(entry[key] for key in ("description", "citation", "terms", "arrays")), name
        assert all(spec["shape"] for spec in entry["arrays"].values()), name
        if entry["kind"] == "user":
            assert entry["origin"] and len(entry["sha256"]) == 64, name


def test_catalogue_needs_no_packages():
    code = "import sys; from zoo.datasets import catalogue; catalogue(); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_toy_gaussians_follow_the_seed_and_the_printed_parameters():
    first, again, other = (
        load("toy_gaussians", seed=3),
        load("toy_gaussians", seed=3),
        load("toy_gaussians", seed=4),
    )
    assert np.array_equal(first["x"], again["x"]) and not np.array_equal(first["x"], other["x"])
    assert np.array_equal(load("toy_gaussians")["x"], load("toy_gaussians", seed=0)["x"])
    assert first["x"].shape == (250, 2) and np.array_equal(np.bincount(first["labels"]), [50] * 5)
    draws = [load("toy_gaussians", seed=seed) for seed in range(200)]
    pooled = {k: np.concatenate([d["x"][d["labels"] == k] for d in draws]) for k in range(5)}
    truth = {
        0: ((3, 3), (0.4, -0.3, 0.6)),
        1: ((3, 8), (1, 0, 0.2)),
        2: ((5, 6), (0.4, -0.3, 0.8)),
        3: ((7, 7), (0.7, 0.3, 0.6)),
        4: ((8, 4), (0.3, -0.2, 0.8)),
    }
    for k, (mean, (xx, xy, yy)) in truth.items():
        # 10 000 points: standard errors at most sqrt(1 / 1e4) of a mean and sqrt(2 / 1e4) of a covariance;
        # five of them are allowed
        np.testing.assert_allclose(pooled[k].mean(0), mean, atol=0.05)
        np.testing.assert_allclose(np.cov(pooled[k].T), [[xx, xy], [xy, yy]], atol=0.07)


def test_binary_prototypes_follow_the_seed_and_the_printed_recipe():
    first, again = load("binary_prototypes", seed=3), load("binary_prototypes", seed=3)
    assert np.array_equal(first["x"], again["x"])
    assert not np.array_equal(first["x"], load("binary_prototypes", seed=4)["x"])
    assert np.array_equal(load("binary_prototypes")["x"], load("binary_prototypes", seed=0)["x"])
    assert set(np.unique(first["x"])) == {0.0, 1.0}
    assert np.array_equal(np.bincount(first["prototype"]), [50] * 9)
    assert np.array_equal(first["labels"], first["prototype"] // 3)
    draws = [load("binary_prototypes", seed=seed) for seed in range(200)]
    flipped = np.stack([d["x"] != d["prototypes"][d["prototype"]] for d in draws])
    # 1 440 000 bits, of which each column has 90 000: five standard errors
    assert abs(flipped.mean() - 0.1) < 5 * 0.3 / 1200
    np.testing.assert_allclose(flipped.mean(axis=(0, 1)), 0.1, atol=5 * 0.001)
    bits = np.stack([d["prototypes"] for d in draws]).reshape(200, 3, 48)
    # 9600 bits of each category, standard errors at most 0.0051
    np.testing.assert_allclose(bits.mean(axis=(0, 2)), [0.9, 0.5, 0.1], atol=0.0256)
    assert abs(np.corrcoef(bits[:, 1].T)[np.triu_indices(48, 1)]).max() < 0.4  # drawn one by one


def test_unknown_names_are_answered_with_what_there_is():
    with pytest.raises(
        ValueError, match=r"no data set is called 'old_faithful'; the catalogue has: faithful, toy_gaussians"
    ):
        load("old_faithful")
    with pytest.raises(KeyError, match=r"faithful has no array 'y'; it has: x"):
        load("faithful")["y"]
    with pytest.raises(TypeError, match=r"the data set faithful takes no options; got seed"):
        load("faithful", seed=1)
    with pytest.raises(TypeError, match=r"toy_gaussians takes seed; got size"):
        load("toy_gaussians", size=1)


def test_a_set_that_is_not_held_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.delenv("ZOO_DATA", raising=False)
    with pytest.raises(
        FileNotFoundError, match=r"usps is not shipped.*ZOO_DATA is not set: get it from .*usps\.npz"
    ):
        load("usps")
    monkeypatch.setenv("ZOO_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=rf"the folder {tmp_path} has no cora\.npz"):
        load("cora")


def test_a_file_with_another_sha256_is_refused_unless_it_is_not_verified(monkeypatch, tmp_path):
    monkeypatch.setenv("ZOO_DATA", str(tmp_path))
    grey, digits, split = (
        np.zeros((9298, 16, 16), np.uint8),
        np.zeros(9298, np.uint8),
        np.zeros(9298, np.uint8),
    )
    grey[5, 1, 2] = 7
    np.savez_compressed(tmp_path / "usps.npz", X=grey, y=digits, split=split)
    with pytest.raises(
        ValueError,
        match=r"usps\.npz is not the file that the catalogue describes: its SHA-256 should be 6628e4",
    ):
        load("usps")
    x = load("usps", verify=False)["x"]
    assert x.shape == (9298, 256) and x[5, 18] == 7 and x.sum() == 7  # pictures are flattened row by row
    np.savez_compressed(tmp_path / "usps.npz", X=grey[:9], y=digits, split=split)
    with pytest.raises(ValueError, match=r"usps: x must have shape \(9298, 256\); got \(9, 256\)"):
        load("usps", verify=False)


def test_packed_bits_and_sparse_counts_are_unpacked(monkeypatch, tmp_path):
    monkeypatch.setenv("ZOO_DATA", str(tmp_path))
    bits = np.zeros((716, 1433), np.uint8)
    bits[3, 1432] = bits[700, 0] = 1
    np.savez_compressed(
        tmp_path / "cora_two_topics.npz", X=np.packbits(bits, axis=1), y=np.zeros(716, np.uint8)
    )
    assert np.array_equal(load("cora_two_topics", verify=False)["x"], bits)
    indptr = np.minimum(np.arange(3980), 2).astype(np.int32)
    parts = {
        "data": np.array([300, 2], np.uint16),
        "indices": np.array([9660, 4], np.uint16),
        "indptr": indptr,
        "shape": np.array([3979, 9661]),
    }
    labels = np.zeros(3979, np.uint8)
    vocabulary = np.array([f"w{i}" for i in range(9661)])
    np.savez_compressed(tmp_path / "news4.npz", **parts, vocab=vocabulary, y=labels, split=labels)
    news = load("news4", verify=False)
    assert news["counts"][0, 9660] == 300 and news["counts"][1, 4] == 2 and news["counts"].sum() == 302
    assert news.columns["counts"][4] == "w4"


def test_text_labels_of_a_table_get_their_numbers(monkeypatch, tmp_path):
    monkeypatch.setenv("ZOO_DATA", str(tmp_path))
    features = ",".join(f"f{i}" for i in range(1, 23))
    rows = [
        f"{'train' if i < 80 else 'test'},{i % 2}," + ",".join("1" if j == i % 22 else "0" for j in range(22))
        for i in range(267)
    ]
    (tmp_path / "spect.csv").write_text("\n".join([f"split,diagnosis,{features}", *rows]) + "\n")
    spect = load("spect", verify=False)
    assert spect["split"].sum() == 187 and spect["labels"].sum() == 133
    assert np.array_equal(spect["x"].argmax(1), np.arange(267) % 22)


def test_digits_without_scikit_learn_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(
        ModuleNotFoundError,
        match=r"digits comes with scikit-learn, which is not installed: pip install scikit-learn",
    ):
        load("digits")


@pytest.mark.needs_peer
def test_digits():
    digits = load("digits")
    assert (
        digits["x"].shape == (1797, 64)
        and digits["x"].max() == 16
        and set(digits["labels"]) == set(range(10))
    )


@pytest.mark.needs_peer
def test_wine():
    wine = load("wine")
    assert wine["x"].shape == (178, 13) and np.bincount(wine["labels"]).tolist() == [59, 71, 48]
    # the catalogue's names are those that scikit-learn gives the columns
    from sklearn.datasets import load_wine

    assert wine.frame().columns.tolist() == list(load_wine().feature_names)


@pytest.mark.needs_data
@pytest.mark.parametrize("name", USER_HELD)
def test_sets_that_are_held_load_with_the_shapes_of_the_catalogue(name):
    dataset = load(name)
    for key, spec in catalogue()[name]["arrays"].items():
        assert list(dataset[key].shape) == spec["shape"]
        if key in dataset.columns:
            assert len(dataset.columns[key]) == spec["shape"][1]


def test_a_wheel_s_folder_is_preferred_to_the_clone_s(tmp_path):
    """An installed wheel has zoo/data; a clone and an editable install have data one level up."""
    home = tmp_path / "site" / "zoo"
    shutil.copytree(os.path.dirname(zoo.__file__), home, ignore=shutil.ignore_patterns("__pycache__", "data"))
    shutil.copytree(datasets.shipped_folder(), tmp_path / "site" / "data")
    code = "from zoo.datasets import load; print(load('faithful')['x'].shape)"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "site", capture_output=True, text=True)
    assert run.stdout.strip() == "(272, 2)", run.stderr
    (home / "data").mkdir()
    (home / "data" / "catalogue.json").write_text(json.dumps({"only": {}}))
    code = "from zoo.datasets import catalogue; print(*catalogue())"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "site", capture_output=True, text=True)
    assert run.stdout.strip() == "only", run.stderr
