"""Damaged and hostile files, a handful of each kind here and all of them in the slow run and the record."""

import json
from collections import Counter

import numpy as np
import pytest

import inference
from tests.support.hostile_files import (
    COMMAND,
    ENDINGS,
    HOSTILE,
    KINDS,
    MOST_BYTES,
    MOST_SECONDS,
    OURS,
    SHARES,
    WITHOUT_SUMS,
    Reader,
    damaged,
    fault_of,
    hostile,
    intact,
    traps,
)
from tests.tools.recording import REFERENCE
from zoo.intake import bounds

pytestmark = pytest.mark.repo

HANDFUL = {
    "fit": [
        "posterior in itself", "posterior in the fit", "posterior in the pipe", "numbers of trace in the fit",
        "virtual numbers of trace in the fit", "bare of 10000000000", "bare of 10000000000 compressed",
        "texts at one place", "300 groups", "60 groups in each other", "fields: deep", "references",
    ],
    "checkpoint": [
        "a state of 10000000000", "compressed members", "a deep fingerprint", "objects that are run",
        "a header that does not end", "iteration of -2147483648", "members at one place",
        "members that are locked", "a link to another file", "a link to a pipe", "5000 members",
    ],
    "npz": ["an array of 80 GB", "objects", "a header that is run", "zeros that unpack to 1 GB"],
    "nc": ["zeros that unpack to 4 GB", "bare of 10000000000", "numbers of posterior in the fit"],
    "xlsx": ["a cell at the last row and column", "entities"],
    "parquet": ["a footer of 2 GB"],
}  # fmt: skip

#: The two that take most of the time are left to the slow tests.
SOONER = [pytest.param(kind, marks=pytest.mark.slow if kind in ("fit", "npz") else ()) for kind in KINDS]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return {kind: intact(kind, folder) for kind in KINDS}


@pytest.fixture(scope="module")
def reader(whole):
    with Reader(whole) as reader:
        yield reader


def made(kind, content, folder, names, number, seed=0):
    """Files of a kind, one after the other: group, name and path."""
    path, led = folder / f"bad.{ENDINGS.get(kind, kind)}", traps(folder)
    for name, data in list(damaged(content, number, np.random.default_rng(seed))):
        path.write_bytes(data)
        yield "damaged", name, path
    for name in names:
        path.unlink(missing_ok=True)
        hostile(kind)[name](path, content, led)
        yield "hostile", name, path


@pytest.mark.parametrize("kind", SOONER)
def test_a_handful_is_refused_in_one_line_or_read_as_it_was_saved(kind, whole, reader, tmp_path):
    content = whole[kind].read_bytes()
    faults, refused = [], 0
    for group, name, path in made(kind, content, tmp_path, HANDFUL[kind], 30 + len(content) // 1024):
        found = reader.read(kind, path)
        refused += found["outcome"] == "refused"
        if fault := fault_of(group, kind, found):
            faults.append((name, fault, found["text"]))
    assert faults == []
    assert refused > len(HANDFUL[kind])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_hostile_file_and_a_hundred_damaged_ones(kind, whole, reader, tmp_path):
    content = whole[kind].read_bytes()
    files = made(kind, content, tmp_path, hostile(kind), 100 + len(content) // 1024, seed=1)
    assert [
        (name, fault)
        for group, name, path in files
        if (fault := fault_of(group, kind, reader.read(kind, path)))
    ] == []


@pytest.mark.repo
def test_the_record_is_of_all_kinds_and_within_its_bars():
    record = json.loads((REFERENCE / "hostile_files.json").read_text(encoding="utf-8"))
    files, totals = record["files"], {"damaged": Counter(), "hostile": Counter()}
    assert record["command"] == COMMAND
    assert files.keys() == {f"{group} {kind}" for group in totals for kind in KINDS}
    for name, tally in files.items():
        group, kind = name.split()
        assert tally["longest_seconds"] <= MOST_SECONDS and tally["most_megabytes"] * 1e6 <= MOST_BYTES, name
        outcomes = {key: count for key, count in tally.items() if key in ("refused", "equal", "other")}
        assert sum(outcomes.values()) == tally["files"], name  # none raw, secret, waiting or dead
        if group == "damaged":
            assert tally["files"] >= SHARES[kind]
            assert "other" not in tally or kind in WITHOUT_SUMS, name
        else:
            assert tally["files"] == len(hostile(kind)), name
        totals[group].update(tally if group == "hostile" or kind in OURS else {})
    assert totals["damaged"]["files"] >= 1000 and totals["hostile"]["files"] >= HOSTILE
    ours = totals["damaged"]
    assert ours["refused"] + ours["equal"] == ours["files"]


def test_a_whole_file_is_equal_and_a_secret_is_seen(whole, reader, tmp_path):
    """Planted: the reader tells whole files from others, and what an external link shows."""
    assert reader.read("fit", whole["fit"])["outcome"] == "equal"
    path = tmp_path / "bad.npz"
    np.savez(path, x=np.full((3, 2), 424242.5))
    assert reader.read("npz", path)["outcome"] == "secret"
    path.write_bytes(whole["npz"].read_bytes())
    assert reader.read("npz", path)["outcome"] == "equal"
    found = {"outcome": "refused", "seconds": 11.0, "bytes": 0, "text": ""}
    assert fault_of("hostile", "fit", found) == "took 11.0 s"
    assert fault_of("hostile", "fit", found | {"seconds": 1.0, "bytes": 2**31}) == "took 2147 MB"


@pytest.mark.slow
def test_a_heap_of_zeros_is_refused_before_hdf5_goes_round_in_it(whole, tmp_path):
    """HDF5 does not come back from it."""
    content = bytearray(whole["fit"].read_bytes())
    heap = content.index(b"GCOL")
    bounds._check_heaps(bytes(content))
    content[heap + 16 : heap + 400] = bytes(384)
    path = tmp_path / "zeros.nc"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="its texts are damaged"):
        inference.load(path)


@pytest.mark.parametrize(("size", "most"), [(0, 2**27), (2**19, 2**27), (2**20, 200 * 2**20)])
def test_a_small_file_may_declare_128_mib_and_a_larger_one_200_times_its_size(size, most):
    assert bounds.may_hold(0, size) and bounds.may_hold(most, size)
    assert not bounds.may_hold(most + 1, size)
