"""Damaged and hostile files, all made here, and a process of bounded memory that reads them.

``python -m tests.support.hostile_files`` makes a thousand damaged fits and checkpoints (cut at every
kilobyte, bits flipped, blocks zeroed, moved, repeated), damaged tables beside them, and hostile files of
every kind (loops, links to other files, sizes that no machine holds, thousands of groups, deep text), reads
each in a child process, and writes tests/reference/hostile_files.json: how many were refused by one line, how
many were read and are equal to what was saved, how many were read and are not, the longest time (of the
processor) and the largest memory. test_hostile_files.py reads a handful of them.

What this library writes, a fit or a checkpoint, has a checksum: damaged, it is refused or read as it was
saved. A table is the user's own file. Workbooks and ``.npz`` archives have checksums too; numbers in netCDF
and Parquet have none unless their writer asked for it, so that a flipped bit is read as another number: such
files are counted as ``other``, never as equal.

Every link leads to a file that holds `SECRET`, or to a pipe, at which whoever opens it waits for ever.
"""

import io
import json
import os
import resource
import select
import subprocess
import sys
import time
import warnings
import zipfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import h5py
import numpy as np
import pandas as pd

import inference
import zoo
from zoo.datasets import read_tables

ROOT = Path(zoo.__file__).parents[1]
sys.path[:0] = [] if str(ROOT / "tests") in sys.path else [str(ROOT / "tests")]

from tests.support.processes import started  # noqa: E402 - which is found there
from tests.tools.recording import write_record  # noqa: E402

__all__ = [
    "HOSTILE",
    "KINDS",
    "OURS",
    "SHARES",
    "Reader",
    "damaged",
    "fault_of",
    "hostile",
    "intact",
    "traps",
]

#: Kinds of files: what this library writes, and tables. Checkpoints are read where a run goes on.
OURS = ("fit", "checkpoint")
KINDS = (*OURS, "npz", "nc", "xlsx", "parquet")
WITHOUT_SUMS = ("nc", "parquet")  # whose numbers have no checksum unless their writer asked for it
ENDINGS = {"fit": "nc", "checkpoint": "ckpt"}
SECRET = 424242.5
MOST_SECONDS, MOST_BYTES = 10.0, 2**30
COMMAND = "python -m tests.support.hostile_files"
HOSTILE = 150  # files at least
#: Damaged files of each kind: a thousand of ours, and tables beside them.
SHARES = {"fit": 600, "checkpoint": 400, "npz": 150, "nc": 150, "xlsx": 150, "parquet": 150}
ROWS = np.random.default_rng(0).normal(size=(30, 2))
RUN = {"method": "em", "max_iterations": 40, "num_restarts": 1, "progress": False}


def intact(kind, folder):
    """A whole file of a kind.

    Args:
        kind: one of `KINDS`.
        folder: where.

    Returns:
        Its path.
    """
    path = Path(folder) / f"whole-{kind}.{ENDINGS.get(kind, kind)}"
    table = pd.DataFrame(np.random.default_rng(1).normal(size=(200, 5)), columns=list("abcde"))
    if kind == "fit":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call = {"method": "vb", "max_iterations": 3, "num_restarts": 1, "num_samples": 10}
            inference.save(inference.fit(zoo.Mixture(num_components=2), ROWS, **call), path)
    elif kind == "checkpoint":
        _run(path)
    elif kind == "npz":
        np.savez(path, x=table.to_numpy(), y=np.arange(200))
    elif kind == "nc":
        table.to_xarray().to_netcdf(path, engine="h5netcdf")
    elif kind == "xlsx":
        table[:40].to_excel(path, index=False)
    else:
        table.to_parquet(path)
    return path


def _run(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return inference.fit(zoo.PPCA(num_latents=1), ROWS, checkpoint=path, **RUN)


# Damage


def damaged(content, number, rng):
    """Ways in which a file is damaged by accident.

    Args:
        content: the whole file.
        number: how many are made at least.
        rng: of NumPy.

    Yields:
        What was done, and the bytes.
    """
    for length in range(0, len(content), 1024):
        yield f"cut at {length}", content[:length]
        number -= 1
    for place in range(max(number, 0)):
        data = bytearray(content)
        kind = place % 5
        begin, length = int(rng.integers(len(data))), int(rng.integers(1, 512))
        if kind in (0, 1):
            for at in rng.integers(len(data), size=2 ** (place % 6)):
                data[at] ^= 1 << int(rng.integers(8))
            done = f"{2 ** (place % 6)} bits flipped"
        elif kind == 2:
            data[begin : begin + length] = bytes(len(data[begin : begin + length]))
            done = f"{length} bytes zeroed at {begin}"
        elif kind == 3:
            other = int(rng.integers(len(data)))
            data[begin : begin + length] = data[other : other + length]
            done = f"{length} bytes of {other} at {begin}"
        else:
            data[begin:begin] = data[begin : begin + length]
            done = f"{length} bytes twice at {begin}"
        yield f"{done} ({place})", bytes(data)


# Hostile HDF5


def _changed(change):
    """A maker of a file: the whole one, changed by h5py."""

    def make(path, whole, traps):
        path.write_bytes(whole)
        with h5py.File(path, "a") as file:
            change(file, traps)

    return make


def _groups(file):
    return [name for name in file if isinstance(file[name], h5py.Group)]


def _attribute(name, value):
    def change(file, traps):
        for known in ("zoo_checksum", name):
            if known in file.attrs:
                del file.attrs[known]
        if value is not None:
            file.attrs[name] = value

    return change


def _link(place, to):
    def change(file, traps):
        if place in file:
            del file[place]
        file[place] = to(traps)

    return change


def _hard(place, to):
    def change(file, traps):
        file[place] = file[to]

    return change


def _huge(place, shape, dtype="f8", **options):
    def change(file, traps):
        if place in file:
            del file[place]
        file.create_dataset(place, shape=shape, dtype=dtype, **options)

    return change


def _external(place, trap):
    def change(file, traps):
        if place in file:
            del file[place]
        file.create_dataset(place, shape=(100,), dtype="f8", external=[(str(traps[trap]), 0, 800)])

    return change


def _virtual(place, trap):
    def change(file, traps):
        if place in file:
            del file[place]
        layout = h5py.VirtualLayout(shape=(100,), dtype="f8")
        layout[:] = h5py.VirtualSource(str(traps[trap]), "x", shape=(100,))
        file.create_virtual_dataset(place, layout)

    return change


def _many(number, depth=1, arrays=False):
    def change(file, traps):
        at = file.require_group("many")
        for i in range(number):
            if arrays:
                at[f"a{i}"] = 0.0
            else:
                group = at.create_group(f"g{i}")
                at = group if depth > 1 and i % depth else at

    return change


def _deep(number):
    def change(file, traps):
        at = file.create_group("deep")
        for _ in range(number):
            at = at.create_group("g")

    return change


def _attributes(number, size=8):
    def change(file, traps):
        group = file.create_group("noted", track_order=True)
        for i in range(number):
            group.attrs[f"a{i}"] = "x" * size

    return change


def _laughs(number, length):
    """Many texts that lie at one place of the file."""

    def change(file, traps):
        one = file.create_dataset("text/one", shape=(1,), dtype=h5py.string_dtype())
        one[0] = "x" * length
        many = file.create_dataset("text/many", shape=(number,), dtype=h5py.string_dtype(), chunks=(number,))
        many[:] = "x" * 8
        del file["text/one"]
        many[:1] = "y" * length

    return change


def _bomb(shape):
    """Zeros, which shrink a thousandfold; written chunk by chunk as one compressed block."""

    def change(file, traps):
        chunk = 2**20
        data = file.create_dataset("bomb", shape=shape, dtype="f8", chunks=(chunk,), compression="gzip")
        data[:chunk] = 0.0
        _, block = data.id.read_direct_chunk((0,))
        for begin in range(chunk, shape[0] - chunk + 1, chunk):
            data.id.write_direct_chunk((begin,), block)

    return change


def _typed(dtype, value=None):
    def change(file, traps):
        file.create_dataset(
            "posterior/odd", data=value, shape=None if value is not None else (3,), dtype=dtype
        )

    return change


def _dimension(change_list):
    def change(file, traps):
        data = file["posterior/weights"]
        change_list(file, data)

    return change


def _hdf5():
    """Name to maker of a hostile file made from a fit, or from a table in HDF5."""
    for group in ("posterior", "trace", "observed_data", "constant_data"):
        yield f"{group} in itself", _changed(_hard(f"{group}/self", group))
        yield f"root in {group}", _changed(_hard(f"{group}/root", "/"))
        for trap in ("fit", "pipe"):
            yield (
                f"{group} in the {trap}",
                _changed(_link(group, lambda t, k=trap: h5py.ExternalLink(str(t[k]), "/posterior"))),
            )
            yield (
                f"more of {group} in the {trap}",
                _changed(_link(f"{group}/more", lambda t, k=trap: h5py.ExternalLink(str(t[k]), "/x"))),
            )
            yield f"numbers of {group} in the {trap}", _changed(_external(f"{group}/more", trap))
            yield f"virtual numbers of {group} in the {trap}", _changed(_virtual(f"{group}/more", trap))
    yield "two names", _changed(_hard("posterior/again", "trace"))
    yield (
        "a circle of two",
        _changed(
            lambda f, t: (_hard("posterior/there", "trace")(f, t), _hard("trace/back", "posterior")(f, t))
        ),
    )
    for to in ("/", "/posterior", "/nowhere", "/posterior/soft", ".", "..", "/trace/objective"):
        yield f"soft link to {to}", _changed(_link("posterior/soft", lambda t, to=to: h5py.SoftLink(to)))
    for number in (3 * 10**8, 10**10, 10**15, 2**60):
        for place in ("posterior/weights", "bare"):
            chunks = {"chunks": (1024,)}
            yield f"{place} of {number}", _changed(_huge(place, (number,)))
            yield f"{place} of {number} in chunks", _changed(_huge(place, (number,), **chunks))
            yield (
                f"{place} of {number} compressed",
                _changed(_huge(place, (number,), compression="gzip", **chunks)),
            )
    yield "a square", _changed(_huge("bare", (10**5, 10**5)))
    yield "a chunk that is huge", _changed(_huge("bare", (10,), maxshape=(None,), chunks=(2**28,)))
    yield "bytes", _changed(_huge("bare", (10**10,), "i1", chunks=(1024,)))
    yield "texts of 1 GB each", _changed(_huge("bare", (10,), "S1000000000", chunks=(1,)))
    yield "texts of any length", _changed(_huge("bare", (10**10,), h5py.string_dtype(), chunks=(1024,)))
    yield "texts of two axes", _changed(_huge("bare", (10**5, 10**5), h5py.string_dtype(), chunks=(9, 9)))
    yield "texts at one place", _changed(_laughs(10**6, 2**16))
    yield "zeros that unpack to 4 GB", _changed(_bomb((2**29,)))
    yield "300 groups", _changed(_many(300))
    yield "3000 groups", _changed(_many(3000))
    yield "5000 arrays", _changed(_many(5000, arrays=True))
    for number in (12, 60, 1500):
        yield f"{number} groups in each other", _changed(_deep(number))
    yield "2000 attributes", _changed(_attributes(2000))
    yield "900 long attributes", _changed(_attributes(900, 30_000))
    yield "complex", _changed(_typed("c16"))
    yield "opaque", _changed(_typed("V12"))
    yield "a record", _changed(_typed([("a", "f8"), ("b", "i4")]))
    yield "an enumeration", _changed(_typed(h5py.enum_dtype({"a": 1})))
    yield "references", _changed(_typed(h5py.ref_dtype))
    yield "lists of any length", _changed(_typed(h5py.vlen_dtype("f8")))
    yield "a named type", _changed(lambda f, t: f.__setitem__("posterior/kind", np.dtype("f8")))
    yield "half precision", _changed(_typed("f2"))
    yield "a scalar", _changed(lambda f, t: f.__setitem__("posterior/scalar", 3.0))
    yield "no value at all", _changed(lambda f, t: f.__setitem__("posterior/empty", h5py.Empty("f8")))
    yield "a name that climbs", _changed(lambda f, t: f.__setitem__("posterior/..%2f..", 3.0))
    yield "a name that is no Unicode", _changed(lambda f, t: f[b"posterior"].__setitem__(b"\xff\xfe", 3.0))
    yield (
        "dims that are nothing",
        _changed(lambda f, t: f["posterior/weights"].attrs.__setitem__("DIMENSION_LIST", "strange")),
    )
    yield (
        "dims that are elsewhere",
        _changed(lambda f, t: f["posterior/weights"].attrs.__setitem__("_Netcdf4Coordinates", np.arange(99))),
    )


FIELDS = {
    "a list": "[1]",
    "a number": "3",
    "null": "null",
    "a word": '"x"',
    "nothing": "{}",
    "empty": "",
    "an integer": 7,
    "an array": np.arange(3),
    "deep": "[" * 100_000 + "]" * 100_000,
    "deep objects": '{"a":' * 5000 + "1" + "}" * 5000,
    "long": '{"a": "' + "x" * 60_000 + '"}',
    "a huge number": '{"num_components": 1' + "0" * 5000 + "}",
    "a huge size": '{"num_components": 1000000000}',
    "infinity": '{"concentration": 1e999}',
    "a list as type": '{"components": {"type": [1]}}',
    "a class of Python": '{"components": {"type": "os.system", "command": "true"}}',
    "a class method": '{"components": {"type": "__class__"}}',
    "Gamma without fields": '{"concentration": {"type": "Gamma"}}',
    "Gamma of words": '{"concentration": {"type": "Gamma", "concentration": "a", "rate": "b"}}',
    "an array of nowhere": '{"concentration": {"array": "nowhere"}}',
    "an array by number": '{"concentration": {"array": 3}}',
    "a dozen fields": json.dumps({f"f{i}": i for i in range(5000)}),
}
ROOT_ATTRIBUTES = {
    "no model": ("model", None),
    "a model of another": ("model", "lda"),
    "a model by path": ("model", "../../etc/passwd"),
    "a model that is a number": ("model", 3),
    "a model of nothing": ("model", ""),
    "no method": ("method", None),
    "a method that is an array": ("method", np.arange(3)),
    "another method": ("method", "closed_form"),
    "a version of 9": ("version_probabilistic_model_zoo", "9.9"),
    "a version that is a number": ("version_probabilistic_model_zoo", 3.5),
}
SUMS = (
    "{",
    "[]",
    "3",
    '{"sha256": 3}',
    '{"sha256": "a", "groups": 3}',
    '{"sha256": "a", "groups": ["../.."]}',
)


def _sum(text):
    def change(file, traps):
        file.attrs["zoo_checksum"] = text

    return change


# Hostile checkpoints


def _remade(change, **options):
    """A maker of a checkpoint: the whole one with its members changed, and checksums that are right."""

    def make(path, whole, traps):
        with zipfile.ZipFile(io.BytesIO(whole)) as file:
            members = change({info.filename: file.read(info) for info in file.infolist()})
        pairs = members.items() if isinstance(members, dict) else members
        with warnings.catch_warnings(), zipfile.ZipFile(path, "w", **options) as archive:
            warnings.simplefilter("ignore", UserWarning)  # of a name that is there twice
            for name, content in pairs:
                archive.writestr(name, content)

    return make


def _with(name, content, **options):
    """A maker: a member of this content, or of what a function of its present content gives."""

    def change(members):
        own = f"{name}.npy"
        return members | {own: content(members.get(own)) if callable(content) else content}

    return _remade(change, **options)


def _without(name):
    return _remade(lambda members: {own: held for own, held in members.items() if own != f"{name}.npy"})


def _saved(values):
    file = io.BytesIO()
    np.save(file, np.asarray(values), allow_pickle=True)
    return file.getvalue()


def _filled(name, value):
    """A member whose numbers are all the same, of the shape and type that it has."""
    return _with(name, lambda held: _saved(np.full_like(np.load(io.BytesIO(held)), value)))


def _at_one_place(path, whole, traps):
    """Members all of which the table of the archive places at the first."""
    _remade(dict)(path, whole, traps)
    content = bytearray(path.read_bytes())
    at = content.find(b"PK\x01\x02")
    while at >= 0:
        content[at + 42 : at + 46] = bytes(4)
        at = content.find(b"PK\x01\x02", at + 4)
    path.write_bytes(content)


def _locked(path, whole, traps):
    """Members that are said to be encrypted."""
    content = bytearray(whole)
    at = content.find(b"PK\x01\x02")
    while at >= 0:
        content[at + 8] |= 1
        at = content.find(b"PK\x01\x02", at + 4)
    path.write_bytes(content)


def _instead(trap):
    return lambda path, whole, traps: path.symlink_to(traps[trap])


def _checkpoints():
    deflated = {"compression": zipfile.ZIP_DEFLATED}
    for number in (10**10, 2**60):
        yield f"a state of {number}", _with("state_0", _npy((number,)))
        yield f"a trace of {number}", _with("trace_objective", _npy((1, number)))
    yield (
        "zeros that unpack to 1 GB",
        _with("state_0", lambda held: _npy((2**27,), data=_zeros(2**30)), **deflated),
    )
    yield (
        "a fingerprint that unpacks to 1 GB",
        _with("fingerprint", lambda held: _npy((), "<U268435456", _zeros(2**30)), **deflated),
    )
    yield "a state of 64 MB", _with("state_0", lambda held: _npy((2**23,), data=_zeros(2**26)))
    yield "a fingerprint of 64 MB", _with("fingerprint", lambda held: _saved("x" * 2**24))
    for text in ("[]", "null", "3", '"x"', "{}", "", '{"model": 3}', '{"model": {"a": 1}}'):
        yield f"a fingerprint {text}", _with("fingerprint", _saved(text))
    yield "a deep fingerprint", _with("fingerprint", _saved("[" * 100_000))
    yield "a fingerprint of deep objects", _with("fingerprint", _saved('{"a":' * 5000 + "1" + "}" * 5000))
    yield "a fingerprint of numbers", _with("fingerprint", _saved([1.0, 2.0]))
    yield "a format of text", _with("format", _saved("6"))
    yield "two formats", _with("format", _saved([6, 6]))
    yield "a format that is huge", _with("format", _saved(2**63 - 1))
    for text in ("{", "3", "null", "{}", '["state_0"]'):
        yield f"infinite as told by {text}", _with("not_finite", _saved(text))
    yield "infinite as told by deep text", _with("not_finite", _saved("[" * 100_000))
    for name in ("format", "fingerprint", "not_finite", "state_0", "progress_status", "trace_objective"):
        yield f"no {name}", _without(name)
    yield "objects", _with("state_0", _saved(np.array([{"a": 1}], object)))
    yield "objects that are run", _with("state_0", _npy((3,), "|O", b"cos\nsystem\n(S'true'\ntR."))
    yield "a header that is run", _with("state_0", _npy((3,), raw="__import__('os').system('true')"))
    yield "a header of brackets", _with("state_0", _npy((3,), raw="(" * 5000))
    yield "a header that does not end", _with("state_0", _npy((3,), raw="{'descr': ("))
    yield "a header of text that does not end", _with("state_0", _npy((3,), raw="{'descr': '''"))
    yield "a header that is long", _with("state_0", b"\x93NUMPY\x02\x00\xff\xff\xff\x7f{")
    yield "a header of another version", _with("state_0", b"\x93NUMPY\x09\x00\x10\x00{")
    yield "text", _with("state_0", _saved("strange"))
    yield "dates", _with("state_0", _saved(np.zeros((1, 2), "M8[s]")))
    yield "no axes", _with("state_0", _saved(3.0))
    yield "thirty axes", _with("state_0", _npy((1,) * 30, data=_zeros(8)))
    yield "an axis below zero", _with("state_0", _npy((1, -2), data=_zeros(16)))
    for value in (np.nan, np.inf, 1e308, 0.0):
        yield f"a state of {value}", _filled("state_0", value)
        yield f"an objective of {value}", _filled("progress_objective", value)
    for value in (-1, -(2**31), 10**6, 2**31 - 1):
        for name in ("iteration", "status", "small_steps", "improvements"):
            yield f"{name} of {value}", _filled(f"progress_{name}", value)
    yield (
        "5000 members",
        _remade(lambda members: members | {f"trace_x{i}.npy": _saved([[1.0]]) for i in range(5000)}),
    )
    yield "a member twice", _remade(lambda members: [*members.items(), *members.items()])
    yield "a member that climbs", _with("../../state_0", _saved(3.0))
    yield "members at one place", _at_one_place
    yield "members that are locked", _locked
    yield "compressed members", _remade(dict, **deflated)
    yield "a link to another file", _instead("fit")
    yield "a link to a pipe", _instead("pipe")


# Hostile archives


def _npz(*members, **options):
    def make(path, whole, traps):
        with zipfile.ZipFile(path, "w", **options) as archive:
            for name, content in members:
                archive.writestr(name, content() if callable(content) else content)

    return make


def _npy(shape, dtype="<f8", data=b"", raw=None):
    header = raw or repr({"descr": dtype, "fortran_order": False, "shape": shape})
    text = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def _zeros(number):
    return bytes(number)


def _archives():
    deflated = {"compression": zipfile.ZIP_DEFLATED}
    yield "an array of 80 GB", _npz(("x.npy", _npy((10**10,))))
    yield "an array of many axes", _npz(("x.npy", _npy((10**5, 10**5))))
    yield "an array below zero", _npz(("x.npy", _npy((-1, 3))))
    yield (
        "zeros that unpack to 1 GB",
        _npz(("x.npy", lambda: _npy((2**27,), data=_zeros(2**30))), compresslevel=9, **deflated),
    )
    yield "objects", _npz(("x.npy", _npy((3,), "|O", b"cos\nsystem\n(S'true'\ntR.")))
    yield "a header that is run", _npz(("x.npy", _npy((3,), raw="__import__('os').system('true')")))
    yield "a header of brackets", _npz(("x.npy", _npy((3,), raw="(" * 5000)))
    yield "a header that is long", _npz(("x.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{"))
    yield "5000 members", _npz(*((f"x{i}.npy", _npy((1,), data=_zeros(8))) for i in range(5000)))
    yield "a member that climbs", _npz(("../../x.npy", _npy((3, 1), data=_zeros(24))))
    yield "no array", _npz(("x.txt", "strange"))
    yield "records", _npz(("x.npy", _npy((3,), [("a", "<f8")], _zeros(24))))
    yield "texts of 1 GB", _npz(("x.npy", _npy((10,), "<U268435456")))


def _workbook(sheet="", dimension="A1:B2", extra=()):
    """A workbook with a sheet of these rows."""

    def make(path, whole, traps):
        with (
            zipfile.ZipFile(io.BytesIO(whole)) as source,
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            for member in source.infolist():
                content = source.read(member)
                if member.filename == "xl/worksheets/sheet1.xml":
                    head = b'<?xml version="1.0"?>' + sheet.partition("<row")[0].encode()
                    rows = sheet[sheet.find("<row") :] if "<row" in sheet else ""
                    content = (
                        head
                        + b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
                        + f'<dimension ref="{dimension}"/><sheetData>{rows}</sheetData></worksheet>'.encode()
                    )
                archive.writestr(member.filename, content)
            for name, content in extra:
                archive.writestr(name, content)

    return make


def _cell(place, value="1"):
    row = "".join(filter(str.isdigit, place))
    return f'<row r="{row}"><c r="{place}"><v>{value}</v></c></row>'


def _workbooks():
    laughs = "<!DOCTYPE a [<!ENTITY a 'aaaaaaaaaa'>" + "".join(
        f"<!ENTITY {chr(98 + i)} '{('&' + chr(97 + i) + ';') * 10}'>" for i in range(9)
    )
    yield "a cell at the last row and column", _workbook(_cell("A1") + _cell("XFD1048576"))
    yield (
        "a cell in the last column of many rows",
        _workbook("".join(_cell(f"XFD{i}") for i in range(1, 4000))),
    )
    yield "an extent that is declared alone", _workbook(_cell("A1") + _cell("A2"), "A1:XFD1048576")
    yield "entities", _workbook(laughs + "]>" + _cell("A1", "&j;"))
    yield (
        "an entity of another file",
        _workbook("<!DOCTYPE a [<!ENTITY a SYSTEM 'file:///etc/hostname'>]>" + _cell("A1", "&a;")),
    )
    yield "zeros that unpack to 1 GB", _workbook(_cell("A1"), extra=[("xl/media/zeros", _zeros(2**30))])
    yield "5000 members", _workbook(_cell("A1"), extra=[(f"xl/m{i}", "x") for i in range(5000)])
    yield "deep elements", _workbook("<row r='1'>" + "<a>" * 100_000 + "</a>" * 100_000 + "</row>")
    yield "a cell of no place", _workbook('<row r="1"><c r="ZZZZ99999999"><v>1</v></c></row>')


def _parquets():
    def constant(rows):
        def make(path, whole, traps):
            import pyarrow as pa
            import pyarrow.parquet as pq

            schema = pa.schema([("a", pa.float64())])
            with pq.ParquetWriter(path, schema) as writer:
                piece = pa.table({"a": np.zeros(2**20)}, schema=schema)
                for _ in range(rows // 2**20):
                    writer.write_table(piece)

        return make

    def junk(path, whole, traps):
        path.write_bytes(b"PAR1" + (2**31 - 1).to_bytes(4, "little") + b"PAR1")

    yield "zeros that unpack to 2 GB", constant(2**28)
    yield "a footer of 2 GB", junk


def hostile(kind):
    """Makers of hostile files.

    Args:
        kind: one of `KINDS`.

    Returns:
        Name to a function of the path, the bytes of a whole file and the traps that it may lead to.
    """
    if kind == "fit":
        found = dict(_hdf5())
        found |= {f"fields: {n}": _changed(_attribute("model_fields", v)) for n, v in FIELDS.items()}
        found |= {n: _changed(_attribute(*own)) for n, own in ROOT_ATTRIBUTES.items()}
        found |= {f"checksum {text}": _changed(_sum(text)) for text in SUMS}
        return found
    if kind == "nc":
        wanted = ("of", "zeros", "GB", "groups", "arrays", "virtual", "numbers", "bytes", "texts", "square")
        return {
            name: make
            for name, make in _hdf5()
            if any(word in name.split() for word in wanted)
            and "posterior/weights" not in name
            and "circle" not in name
        }
    makers = {"checkpoint": _checkpoints, "npz": _archives, "xlsx": _workbooks, "parquet": _parquets}
    return dict(makers[kind]())


def traps(folder):
    """Files that hostile files lead to: one with the secret, and a pipe at which a reader waits for ever.

    Args:
        folder: where.

    Returns:
        Their paths.
    """
    secret, pipe = Path(folder) / "secret.h5", Path(folder) / "pipe.h5"
    with h5py.File(secret, "w") as file:
        file["x"] = np.full(100, SECRET)
        file["posterior/x"] = np.full(100, SECRET)
    os.mkfifo(pipe)
    return {"fit": secret, "pipe": pipe}


# The child


def _reset_peak():
    Path("/proc/self/clear_refs").write_text("5")


def _peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def _read(kind, path):
    if kind == "fit":
        return inference.load(path)
    if kind == "checkpoint":
        return _run(path)
    return read_tables(path)


def _is_equal(kind, one, other):
    if kind == "checkpoint":
        return one["posterior"].identical(other["posterior"]) and one["trace"].identical(other["trace"])
    if kind == "fit":
        return one.identical(other)
    return one.keys() == other.keys() and all(one[name].equals(other[name]) for name in one)


def _holds_secret(found):
    groups = found.subtree if hasattr(found, "subtree") else [found]
    for group in groups:
        for value in (group.variables if hasattr(group, "variables") else group).values():
            array = np.asarray(value)
            if array.dtype.kind == "f" and (array == SECRET).any():
                return True
    return False


def _child(whole):
    """Read files that are named on stdin, a line each, and answer with what became of them."""
    limit = 8 * MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (4 * limit, resource.RLIM_INFINITY))  # JAX reserves much
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
    expected = {kind: _read(kind, path) for kind, path in whole.items()}
    print("ready", flush=True)
    for line in sys.stdin:
        kind, path = json.loads(line)
        _reset_peak()
        before, begin = _peak(), time.process_time()
        text = ""
        try:
            found = _read(kind, Path(path))
        except (ValueError, FileNotFoundError) as error:
            text = str(error)
            ours = type(error) in (ValueError, FileNotFoundError) and "\n" not in text and len(text) < 800
            outcome = "refused" if ours else "raw"
        except BaseException as error:
            outcome, text = "raw", f"{type(error).__name__}: {error}"[:300]
        else:
            outcome = "secret" if _holds_secret(found) else "other"
            if outcome == "other" and kind in expected and _is_equal(kind, found, expected[kind]):
                outcome = "equal"
            del found
        answer = {
            "outcome": outcome,
            "text": text,
            "seconds": time.process_time() - begin,
            "bytes": _peak() - before,
        }
        print(json.dumps(answer), flush=True)


class Reader:
    """A child process that reads one file after the other; one that takes too long or dies is made anew."""

    def __init__(self, whole):
        """Args:
        whole: kind to the path of a whole file.
        """
        self.whole = {kind: str(path) for kind, path in whole.items()}
        self._process, self._stack = None, ExitStack()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._end()

    def _end(self):
        if self._process is not None:
            self._stack.close()
            self._process = None

    def _start(self):
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        code = "import sys, json; from tests.support import hostile_files as files\n"
        code += "files._child(json.loads(sys.argv[1]))"
        command = [sys.executable, "-c", code, json.dumps(self.whole)]
        running = started(command, stdin=subprocess.PIPE, stderr=None, env=environment)
        self._process = self._stack.enter_context(running)
        if self._process.stdout.readline().strip() != "ready":
            raise RuntimeError("the child cannot read the whole files")

    def read(self, kind, path, seconds=6 * MOST_SECONDS):
        """What becomes of a file.

        Args:
            kind: of the file.
            path: where it is.
            seconds: of wall time after which the child is taken to wait for ever.

        Returns:
            ``outcome``, ``text``, ``seconds`` and ``bytes``.
        """
        if self._process is None:
            self._start()
        process = self._process
        process.stdin.write(json.dumps([kind, str(path)]) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        line = process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        status = process.poll()
        self._end()
        outcome = "waits" if not ready else f"died ({status})"
        return {"outcome": outcome, "text": "", "seconds": seconds, "bytes": 0}


def main():
    """Make and read all files, and write the record."""
    import tempfile

    rng = np.random.default_rng(0)
    kinds = sys.argv[1:] or list(KINDS)
    tallies, faults = {}, []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        whole = {kind: intact(kind, folder) for kind in kinds}
        led = traps(folder)
        with Reader(whole) as reader:
            for kind in kinds:
                content = whole[kind].read_bytes()
                path = folder / f"bad.{ENDINGS.get(kind, kind)}"
                made = [("damaged", *own) for own in damaged(content, SHARES[kind], rng)]
                made += [("hostile", *own) for own in hostile(kind).items()]
                for group, name, what in made:
                    path.unlink(missing_ok=True)
                    path.write_bytes(what) if group == "damaged" else what(path, content, led)
                    found = reader.read(kind, path)
                    tally = tallies.setdefault(f"{group} {kind}", Counter())
                    tally["files"] += 1
                    tally[found["outcome"]] += 1
                    tally["longest_seconds"] = round(max(tally["longest_seconds"], found["seconds"]), 2)
                    tally["most_megabytes"] = round(max(tally["most_megabytes"], found["bytes"] / 1e6), 1)
                    if fault := fault_of(group, kind, found):
                        faults.append(f"{group} {kind}: {name}: {fault}: {found['text'][:200]!r}")
                        print(faults[-1], flush=True)
                print(kind, *tallies.items(), flush=True)
    print(json.dumps(tallies, indent=1))
    if not faults and not sys.argv[1:]:
        write_record("hostile_files", COMMAND, "h5py", "xarray", files=tallies)
    return bool(faults)


def fault_of(group, kind, found):
    """What is wrong with what became of a file; empty where it is right.

    Args:
        group: ``"damaged"`` or ``"hostile"``.
        kind: of the file.
        found: as `Reader.read` gives it.

    Returns:
        Text.
    """
    right = {"refused", "equal"}
    if group == "hostile" or kind in WITHOUT_SUMS:
        right = right | {"other"}
    if found["outcome"] not in right:
        return found["outcome"]
    if found["seconds"] > MOST_SECONDS:
        return f"took {found['seconds']:.1f} s"
    return f"took {found['bytes'] / 1e6:.0f} MB" if found["bytes"] > MOST_BYTES else ""


if __name__ == "__main__":
    raise SystemExit(main())
