"""Checkpoints: whose run a file is of, what may be in it, and what becomes of a run that cannot write it."""

import ast
import copy
import dataclasses
import errno
import inspect
import io
import itertools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import tracemalloc
import warnings
import zipfile
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import zoo
from inference import fit
from inference.algorithm import FitRequest
from inference.cli.printing import as_options
from inference.driver import checkpoint as module
from inference.driver import host
from inference.driver.checkpoint import FORMAT, LENGTHS, Checkpoint, Layout, _in_order, fingerprint, slots_of
from inference.driver.progress import History, layout_of_ascent, new_progress, stored
from inference.fitting.in_memory import LIMITS, aspects_of
from inference.fitting.verdict import convergence_judgements
from inference.methods import method_of
from inference.methods.mixture import collapsed_gibbs
from inference.methods.pcp.vb_posterior import SLOT_AXES, PCPVBState, shrink
from inference.numerics import atomic_files
from inference.numerics.atomic_files import held_alone
from inference.settings import More
from tests.support.fit_requests import request_of
from tests.support.interruptions import cut_short, same
from tests.support.processes import LIMIT, started
from tests.support.relation_cases import CASES
from zoo.fields import names_of
from zoo.model import Assumptions

ROOT = Path(__file__).parents[3]
VB = {"method": "vb", "num_restarts": 2, "max_iterations": 4, "num_samples": 5, "seed": 2}
GIBBS = {"method": "gibbs", "num_chains": 2, "num_warmup": 4, "num_samples": 6, "seed": 2}
pytestmark = pytest.mark.filterwarnings("ignore:mixture by .* has not converged")


# Whose run it is


def _moved(table):
    """The least change of one cell."""
    table = table.copy()
    table.iloc[3, 1] = np.nextafter(table.iloc[3, 1], np.inf)
    return table


def _with_days(table):
    return table.assign(day=["low", "high"] * 30)


def _halves(table):
    return {"responsibilities": np.full((len(table), 3), 1 / 3) + [0.1, 0.0, -0.1]}


#: Argument of `fit`: the call, what is changed in it (of both what depends on the table is a function), and
#: the aspect that must be named.
CHANGES = {
    "model": [(VB, {"model": {"concentration": 2.0}}, "model.concentration")],
    "data": [(VB, {"data": _moved}, "data.x")],
    "method": [(VB, {"method": "em"}, "method")],
    "seed": [(VB, {"seed": 3}, "seed"), (VB, {"seed": lambda table: jax.random.key(9)}, "seed")],
    "num_chains": [(GIBBS, {"num_chains": 3}, "num_chains")],
    "num_warmup": [(GIBBS, {"num_warmup": 5}, "num_warmup")],
    "num_samples": [(GIBBS, {"num_samples": 7}, "num_samples"), (VB, {"num_samples": 6}, "num_samples")],
    "thinning": [(GIBBS, {"thinning": 2}, "thinning")],
    "until": [(GIBBS, {"until": "converged"}, "until")],
    "chain_method": [(GIBBS, {"chain_method": "sequential"}, "chain_method")],
    "max_iterations": [(VB, {"max_iterations": 5}, "max_iterations")],
    "tolerance": [(VB, {"tolerance": 1e-5}, "tolerance")],
    "num_restarts": [(VB, {"num_restarts": 3}, "num_restarts"), (VB, {"num_restarts": None}, "num_restarts")],
    "init": [
        (VB, {"init": "random"}, "init"),
        (VB, {"init": _halves}, "init['responsibilities']"),
        (VB | {"init": _halves}, {"init": lambda table: {"responsibilities": np.full((60, 3), 1 / 3)}},
         "init['responsibilities']"),
    ],
    "sample_weight": [(VB, {"sample_weight": lambda table: np.arange(60.0)}, "sample_weight")],
    "batch_size": [(VB, {"batch_size": 20}, "batch_size")],
    "dtype": [(VB, {"dtype": "float32"}, "dtype")],
    "keep": [(GIBBS, {"keep": ("assignments",)}, "keep")],
    "families": [(VB, {"families": {"width": "leave_out"}}, "data.x")],
    "levels": [(VB | {"data": _with_days}, {"levels": {"day": ["high", "low"]}}, "model.components")],
    "id": [(VB, {"id": "width"}, "data.x")],
    "options": [
        (VB, {"moves": ("merge",)}, "option moves"),
        (GIBBS, {"split_merge": 3}, "option split_merge"),
    ],
}  # fmt: skip
#: Arguments that decide no number of a run: it may be resumed with others.
DECIDE_NOTHING = {"max_sweeps", "max_seconds", "progress", "checkpoint"}


def options_of(model):
    """Names of the options of all methods of a model."""
    return {name for method in model.methods for name in method_of(model, method).options}


def _call(call, table):
    """Model, data and the rest of a call."""
    call = {name: value(table) if callable(value) else value for name, value in call.items()}
    fields = {"num_components": 3, "concentration": 1.0} | call.pop("model", {})
    return zoo.Mixture(**fields), call.pop("data", table), call


def test_every_argument_of_fit_decides_something_or_nothing():
    parameters = {*inspect.signature(fit).parameters, *More.__annotations__} - {"more"}
    options = {name for cls in map(zoo.model_class, zoo.MODELS) for name in options_of(cls())}
    assert CHANGES.keys() | DECIDE_NOTHING == parameters - options | {"options"}
    assert not CHANGES.keys() & DECIDE_NOTHING and set(LIMITS) <= DECIDE_NOTHING


@pytest.fixture(scope="module")
def saved(two_clusters, tmp_path_factory):
    """Finished runs by the arguments that made them, each made once."""
    folder, made = tmp_path_factory.mktemp("runs"), {}

    def of(call):
        key = repr(sorted(call.items(), key=str))
        if key not in made:
            made[key] = folder / f"{len(made)}.ckpt"
            model, data, rest = _call(call, two_clusters)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                fit(model, data, checkpoint=made[key], **rest)
        return made[key]

    return of


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("argument", "number"),
    [(argument, n) for argument, all_of in CHANGES.items() for n in range(len(all_of))],
)
def test_a_call_with_one_change_is_refused_and_the_change_is_named(argument, number, saved, two_clusters):
    before, change, aspect = CHANGES[argument][number]
    path = saved(before)
    content = path.read_bytes()
    model, data, call = _call(before | change, two_clusters)
    with pytest.raises(ValueError, match="belongs to another run; what differs: ") as caught:
        fit(model, data, checkpoint=path, **call)
    assert re.search(rf"(: |; ){re.escape(aspect)}[^;]*: [^;]* there, [^;]* now", str(caught.value))
    assert ("go on from its fit: init=tree" in str(caught.value)) == (aspect in LENGTHS)
    assert path.read_bytes() == content and os.listdir(path.parent).count(path.name) == 1


#: Fields of a request that are no aspect of a run, and why.
NO_ASPECTS = {
    "coords": "labels of the result",
    "columns": "what the columns hold, in the result; what is made of it is in the data",
    "init": "what is made of it is in the strategy and the variables",
    "stream": "its rows are, see the test of batches",
    "show_progress": "on the screen only",
    "checkpoint": "the file itself",
    "back": "follows from the data",
}
OTHERS = {
    "model": lambda request: dataclasses.replace(request.model, num_components=5),
    "data": lambda request: (request.data[0] + 1,),
    "method": lambda request: request.method,
    "name": lambda request: "em",
    "settings": lambda request: dataclasses.replace(request.settings, learn=("concentration",)),
    "drops_starts": lambda request: True,
    "strategy": lambda request: "random",
    "variables": lambda request: {"locs": np.ones((2, 3, 2))},
    "sample_weight": lambda request: np.ones(60),
    "batch_size": lambda request: 7,
    "key": lambda request: jax.random.key(9),
    "seed": lambda request: 9,
    "dtype": lambda request: "float32",
    "keep": lambda request: ("observed_data",),
}


def test_every_part_of_a_request_is_an_aspect(two_clusters):
    parts = {field.name for field in dataclasses.fields(FitRequest)}
    assert OTHERS.keys() | NO_ASPECTS.keys() == parts
    model, data, call = _call(VB, two_clusters)
    request = request_of(model, data, **call)
    aspects = aspects_of(request)
    for part, other in OTHERS.items():
        if part in ("method", "seed"):  # by their names and words, in `name` and `key`
            continue
        changed = aspects_of(dataclasses.replace(request, **{part: other(request)}))
        assert changed != aspects, part
    assert aspects_of(request_of(model, data, **call)) == aspects


def _other(value):
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return f"{value} other"
    if isinstance(value, np.ndarray):
        changed = np.array(value)
        changed.flat[-1] += 0.5
        return changed if changed.size else np.ones(1)
    if isinstance(value, tuple):
        return (*value[:-1], _other(value[-1])) if value else (1,)
    if isinstance(value, dist.Distribution):
        return jax.tree.map(lambda leaf: leaf * 1.5, value)
    if isinstance(value, Assumptions):
        names = [n for n in names_of(value).leaves if getattr(value, n) is not None] or names_of(value).static
        return value.replaced(**{names[0]: _other(getattr(value, names[0]))}) if names else None
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return dataclasses.replace(value, **{names[0]: _other(getattr(value, names[0]))}) if names else None
    return 1.0  # of None


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_every_field_and_every_option_of_every_model_is_an_aspect(case):
    make, data, methods = CASES[case]
    model = make(*data)
    request = request_of(model, *data, method=methods[0])
    own = aspects_of(request)
    for field in dataclasses.fields(request.model):
        changed = request.model.replaced(**{field.name: _other(getattr(request.model, field.name))})
        differs = {name for name, value in fingerprint(changed).items() if own.get(name) != value}
        assert differs and all(name.startswith(f"model.{field.name}") for name in differs), field.name
    for method in methods:
        request = request_of(model, *data, method=method)
        before = aspects_of(request)
        for name, value in request.options.items():
            settings = copy.copy(request.settings)
            object.__setattr__(settings, name, _other(value))  # whatever its domain is
            after = aspects_of(dataclasses.replace(request, settings=settings))
            assert {n for n in before if before[n] != after[n]} == {f"option {name}"}


def test_batches_are_identified_by_their_rows(two_clusters):
    model = zoo.Mixture(num_components=3)
    call = {"batch_size": 20, "num_restarts": 1}
    rows = two_clusters.to_numpy()
    chunks = lambda x: lambda: iter(np.split(x, 3))  # noqa: E731
    for form in (np.array, chunks):
        one, other = (aspects_of(request_of(model, form(x), **call)) for x in (rows, rows[::-1]))
        assert one["data.batches"] != other["data.batches"]


def test_the_words_of_an_aspect_tell_values_apart():
    """Values that look alike: neither arrays cut by their printing, nor names of entries, are left out."""
    long = np.arange(5000.0)
    other = long.copy()
    other[2500] += 1e-9
    model = zoo.PPCA(num_latents=1)
    values = [
        long,
        other,
        long.astype(np.float32),
        long.reshape(50, 100),
        1,
        1.0,
        True,
        "1",
        None,
        (1,),
        ((1,),),
    ]
    values += [{"a": long}, {"b": long}, dist.Gamma(1.0, 2.0), dist.Gamma(2.0, 1.0), dist.Beta(1.0, 2.0)]
    values += [
        zoo.sparse.SparseCounts([0], [1], [2.0], (2, 2)),
        zoo.sparse.SparseCounts([0], [1], [2.0], (2, 3)),
    ]
    told = [json.dumps(fingerprint(model, value=value), sort_keys=True) for value in values]
    assert len(set(told)) == len(values)
    assert all("0x" not in words for words in told)


# What may be in it


class State(NamedTuple):
    """Of two restarts: distributions, a key and integers, as states of VB and of samplers hold them."""

    weights: object
    concentration: object
    key: object
    count: object


def _state():
    return State(
        dist.Beta(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([[5.0, 6.0], [7.0, 8.0]])),
        dist.Gamma(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0])),
        jax.random.split(jax.random.key(3), 2),
        jnp.arange(4).reshape(2, 2),
    )


def _values(state):
    return {
        "concentration1": state.weights.concentration1,
        "concentration0": state.weights.concentration0,
        "concentration": state.concentration.concentration,
        "rate": state.concentration.rate,
        "key": jax.random.key_data(state.key),
        "count": state.count,
    }


ASPECTS = {"model": "Mixture"}


def _file(path):
    progress = new_progress(2)._replace(iteration=np.array([3, 3]), objective=np.array([-2.0, -np.inf]))
    history = History()
    history.add(np.zeros(2, int), progress.iteration, {"objective": np.zeros((2, 3))})
    Checkpoint(path, ASPECTS).save(_state(), stored(progress, history))
    return path


def _loaded(path):
    shapes = jax.eval_shape(lambda: _state())  # a fresh function: JAX remembers the order of leaves
    return Checkpoint(path, ASPECTS).load(lambda: shapes, lambda template: layout_of_ascent(2, 10))


def test_what_was_saved_is_loaded(tmp_path):
    state, arrays = _loaded(_file(tmp_path / "run"))
    for name, value in _values(_state()).items():
        np.testing.assert_array_equal(_values(state)[name], value)
    np.testing.assert_array_equal(arrays["progress_objective"], [-2.0, -np.inf])
    assert _loaded(tmp_path / "none") is None


def _changed(path, change):
    """The file with its arrays changed, each written as NumPy writes it."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    change(arrays)
    with open(path, "wb") as file:
        np.savez(file, **arrays)


def _members(path):
    with zipfile.ZipFile(path) as file:
        return {info.filename: file.read(info) for info in file.infolist()}


def _with_members(path, members, compression=zipfile.ZIP_STORED):
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", compression) as file:
        warnings.simplefilter("ignore", UserWarning)  # of a name that is there twice
        for name, content in members:
            file.writestr(name, content)


def _header_of(shape, descr="<f8"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


def _declaring(name, shape, content=b"", descr="<f8"):
    def change(path):
        members = _members(path) | {f"{name}.npy": _header_of(shape, descr) + content}
        _with_members(path, members.items())

    return change


def _headed(text):
    """A state whose header is this text: NumPy gives it to a tokenizer, which has errors of its own."""
    header = text.encode().ljust(117) + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(32)
    return lambda path: _with_members(path, (_members(path) | {"state_0.npy": content}).items())


def _setting(name, value):
    return lambda path: _changed(path, lambda arrays: arrays.update({name: np.asarray(value)}))


def _without(name):
    return lambda path: _changed(path, lambda arrays: arrays.pop(name))


def _compressed(path):
    _with_members(path, _members(path).items(), zipfile.ZIP_DEFLATED)


def _bomb(path):
    members = _members(path) | {"state_0.npy": _header_of((10**8,)) + bytes(10**8)}
    _with_members(path, members.items(), zipfile.ZIP_DEFLATED)


def _twice(path):
    members = list(_members(path).items())
    _with_members(path, [*members, members[-1]])


def _cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def _flipped(path):
    content = bytearray(path.read_bytes())
    content[content.index(np.array([7.0, 8.0], np.float32).tobytes())] ^= 1
    path.write_bytes(content)


def _no_array(path):
    _with_members(path, (_members(path) | {"state_0.npy": b"x"}).items())


NOT_FINITE = np.array([[1.0, np.nan], [3.0, 4.0]], np.float32)
#: What is wrong with a file, and the words of the refusal.
HOSTILE = {
    "no zip": (lambda path: path.write_bytes(b"garbage"), "File is not a zip file"),
    "empty": (lambda path: path.write_bytes(b""), "File is not a zip file"),
    "cut": (_cut, "File is not a zip file"),
    "a flipped bit": (_flipped, "Bad CRC-32"),
    "compressed": (_compressed, "is compressed, which no array of a checkpoint is"),
    "a bomb": (_bomb, "is compressed"),
    "a member twice": (_twice, "is there twice"),
    "no fingerprint": (_without("fingerprint"), "it has no fingerprint"),
    "a fingerprint that is a list": (_setting("fingerprint", "[]"), "its fingerprint is none"),
    "a fingerprint that is null": (_setting("fingerprint", "null"), "its fingerprint is none"),
    "a fingerprint of numbers": (_setting("fingerprint", '{"model": 3}'), "its fingerprint is none"),
    "a deep fingerprint": (_setting("fingerprint", "[" * 100_000), "recursion|its fingerprint"),
    "a fingerprint that is no text": (_setting("fingerprint", 3), "fingerprint holds int64, which it cannot"),
    "a format that is text": (_setting("format", "6"), "format holds <U1"),
    "no state": (_without("state_0"), "it lacks state_0"),
    "no progress": (_without("progress_status"), "it lacks progress_status"),
    "one member more": (_setting("state_9", 1.0), "it has 'state_9', which a run of this kind does not keep"),
    "another shape": (_setting("state_1", np.ones(4)), r"state\.weights\.concentration0 has the shape \(4"),
    "another type": (_setting("state_6", np.ones((2, 2), np.int8)), "holds int8 and must hold int32"),
    "text for numbers": (_setting("state_0", "a"), "holds <U1, which it cannot"),
    "not finite": (_setting("state_1", NOT_FINITE), "concentration0 holds numbers that are not"),
    "a trace that is not finite": (_setting("trace_objective", [[0.0, 0, np.nan]] * 2), "are not finite"),
    "a trace cut short": (_setting("trace_objective", [[0.0, 0]] * 2), "is of 2 steps and 3 were taken"),
    "no trace": (_without("trace_objective"), "it lacks trace_objective"),
    "too many steps": (_setting("progress_iteration", [3, 11]), "has taken 11 steps of at most 10"),
    "steps below zero": (_setting("progress_iteration", [3, -(2**31)]), "has taken -2147483648 steps"),
    "every restart left behind": (_setting("progress_status", [-1, -1]), "the status of a restart is none"),
    "a header that does not end": (_headed("{'descr': ("), "multi-line statement"),
    "a header of text that does not end": (_headed("{'descr': \'\'\'"), "multi-line string"),
    "a long trace": (_setting("trace_objective", np.zeros((2, 11))), r"must have \(2, at most 10\)"),
    "an unknown status": (_setting("progress_status", [0, 17]), "the status of a restart is none"),
    "a declared terabyte": (_declaring("trace_x", (2, 10**11)), "at most 10"),
    "more declared than there is": (_declaring("trace_objective", (2, 10)), "declares 160 bytes and has"),
    "less declared than there is": (_declaring("trace_x", (2, 3), bytes(96)), "not as many bytes"),
    "a negative size": (_declaring("trace_objective", (2, -3)), "must have"),
    "objects": (_declaring("trace_x", (2, 3), b"cos\nsystem\n", "|O"), "holds object, which it cannot"),
    "records": (_declaring("trace_x", (2, 3), bytes(96), [("a", "<f8"), ("b", "<f8")]), "which it cannot"),
    "no array": (_no_array, "magic|EOF"),
}  # fmt: skip


@pytest.mark.parametrize("fault", HOSTILE)
def test_a_hostile_file_is_one_error_that_names_file_and_remedy(fault, tmp_path):
    damage, words = HOSTILE[fault]
    path = _file(tmp_path / "run.ckpt")
    damage(path)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as caught:
            _loaded(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert message.startswith(f"{path} is not a checkpoint of this library, or is damaged (")
    assert message.endswith("); remove it or name another") and "\n" not in message
    assert re.search(words, message), message
    assert peak < 20e6


def test_a_file_that_shares_nothing_with_the_run_is_a_short_message(tmp_path):
    path, aspects = tmp_path / "run", {f"option {'x' * 90} {i}": "1" for i in range(50)}
    Checkpoint(path, {}).save(np.ones(2, np.float32), {})
    with pytest.raises(ValueError, match="what differs: .*; and 45 more. Repeat the call") as caught:
        Checkpoint(path, aspects).load(lambda: None, lambda template: None)
    assert len(str(caught.value)) < 800


@pytest.mark.parametrize("format", [None, 1, FORMAT - 1, FORMAT + 1])
def test_a_file_of_another_format_says_so(format, tmp_path):
    path = _file(tmp_path / "run")
    (_without("format") if format is None else _setting("format", format))(path)
    with pytest.raises(
        ValueError, match=f"has format {format or 1} and this version resumes format {FORMAT}"
    ):
        _loaded(path)


def test_a_state_that_may_be_infinite_is_resumed(tmp_path):
    """EM's weights of empty clusters are minus infinity: the run that saved them says so."""
    shape, values = jax.eval_shape(lambda: jnp.ones(2)), np.array([0.0, -np.inf], np.float32)
    path, layout = tmp_path / "run", Layout({}, lambda arrays: "")
    Checkpoint(path, {}).save(values, {})
    state, _ = Checkpoint(path, {}).load(lambda: shape, lambda template: layout)
    np.testing.assert_array_equal(state, values)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([(2, 7), (2, 8), (2, 9, 8)], ""),
        ([(2, 7), (2, 3), (2, 9, 3)], ""),
        ([(2, 7), (2, 3), (2, 9, 4)], "does not go with"),
        ([(2, 7), (2, 3), (2, 9, 5)], "does not go with"),
        ([(2, 6), (2, 3), (2, 9, 3)], "must have"),
        ([(2, 8), (2, 8), (2, 9, 8)], "must have"),
        ([(2, 7), (2, 8), (2, 8, 8)], "must have"),
        ([(2, 7), (2, 9), (2, 9, 9)], "at most 8"),
        ([(3, 7), (3, 3), (3, 9, 3)], "must have"),
        ([(2, 7), (2, 0), (2, 9, 0)], "does not go with"),
        ([(2, 7), (2, 8, 1), (2, 9, 8)], "must have"),
    ],
)
def test_a_state_with_slots_may_have_grown_or_shrunk_in_one_size(sizes, words, tmp_path):
    shapes = jax.eval_shape(lambda: [jnp.ones(shape) for shape in [(2, 7), (2, 4), (2, 9, 4)]])
    slots, most = slots_of(shapes, (("[1]", 1), ("[2]", 2), ("[9]", 1)))
    assert slots == {"[1]": {1: "slots"}, "[2]": {2: "slots"}} and most == 4
    assert slots_of(shapes, (("[9]", 1), ("[1]", 1))) == ({}, 0)
    path, layout = tmp_path / "run", Layout({}, lambda arrays: "", slots, 8)
    Checkpoint(path, {}).save([np.ones(shape, np.float32) for shape in sizes], {})
    if words:
        with pytest.raises(ValueError, match=words):
            Checkpoint(path, {}).load(lambda: shapes, lambda template: layout)
    else:
        state, _ = Checkpoint(path, {}).load(lambda: shapes, lambda template: layout)
        assert [leaf.shape for leaf in state] == sizes


def test_the_slots_that_methods_name_are_those_whose_number_changes():
    """What `resize` of the collapsed sampler and `shrink` of PCP do to the shapes of their states."""
    x, counts = jnp.zeros((12, 2)), np.ones((6, 4), int) + np.eye(6, 4, dtype=int)
    mixture = zoo.Mixture.from_data(
        np.arange(24.0).reshape(12, 2) % 7, num_components=4, weight_prior="stick_breaking"
    )
    keys = jax.random.split(jax.random.key(0), 2)
    states = jax.vmap(lambda key: collapsed_gibbs.init(key, mixture, x))(keys)
    cases = [(collapsed_gibbs.METHOD.slot_axes, states, collapsed_gibbs.resize(states, mixture, True))]
    pcp = zoo.PCP.from_data(counts, num_topics=2, num_clusters=64)
    states = jax.eval_shape(lambda: pcp_state(pcp, 2))
    states = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), states)
    states = states._replace(concentration=np.full(2, 64.0))  # alpha / M is 1: every cluster is at its prior
    cases.append((SLOT_AXES, states, shrink(states, pcp)))
    for slot_axes, before, after in cases:
        slots, size = slots_of(before, slot_axes)
        changed = {
            (label, axis)
            for (label, one), (_, other) in zip(_in_order(before), _in_order(after), strict=True)
            for axis, sizes in enumerate(zip(one.shape, other.shape, strict=True))
            if sizes[0] != sizes[1]
        }
        assert changed == {(label, axis) for label, axes in slots.items() for axis in axes}
        assert len(changed) == len(slot_axes)
        assert slots_of(after, slot_axes)[1] != size


def pcp_state(model, num_restarts):
    """A state of PCP's mean field over so many restarts."""
    shapes = {"clusters": (64, 2), "words": (2, 4), "concentration": (), "topic_prior": (2,)}
    arrays = {name: jnp.ones((num_restarts, *shape)) for name, shape in shapes.items()}
    weights = dist.Dirichlet(jnp.ones((num_restarts, 64)))
    smoothing, rows = jnp.ones(num_restarts), jnp.ones((num_restarts, 6, 64))
    return PCPVBState(weights=weights, word_smoothing=smoothing, responsibilities=rows, **arrays)


def test_an_error_of_the_algorithm_is_not_taken_for_a_damaged_file(tmp_path):
    path = _file(tmp_path / "run")

    def failing():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Checkpoint(path, ASPECTS).load(failing, lambda template: layout_of_ascent(2, 10))


OTHER_PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
import test_checkpoint as here
print({name: value.tolist() for name, value in here._values(here._loaded(here.Path(sys.argv[2]))[0]).items()})
"""


@pytest.mark.slow
def test_a_process_with_other_hashes_resumes_the_same_parameters(tmp_path):
    """NumPyro flattens a Beta in the order of a set: another process exchanged its two parameters."""
    mine = dist.Beta.gather_pytree_data_fields()
    show = "print(*{'concentration1', 'concentration0'})"
    for seed in map(str, range(1, 200)):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        order = subprocess.run([sys.executable, "-c", show], env=environment, capture_output=True, text=True)
        if tuple(order.stdout.split()) != tuple(n for n in mine if n.startswith("concentration")):
            break
    path = _file(tmp_path / "run")
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    with started(
        [sys.executable, "-c", OTHER_PROCESS, str(Path(__file__).parent), path], env=environment
    ) as it:
        output, errors = it.communicate(timeout=LIMIT)
    assert it.returncode == 0, errors
    found = ast.literal_eval(output)
    assert found == {name: value.tolist() for name, value in _values(_state()).items()}


@pytest.mark.parametrize("reverse", [False, True])
def test_the_order_of_the_leaves_is_not_that_of_numpyros_fields(reverse, tmp_path, monkeypatch):
    path = _file(tmp_path / "run")
    words = fingerprint(zoo.PPCA(num_latents=1), prior=dist.Gamma(1.0, 2.0))
    fields = {
        kind: sorted(kind.gather_pytree_data_fields(), reverse=reverse) for kind in (dist.Beta, dist.Gamma)
    }
    for kind, names in fields.items():
        monkeypatch.setattr(kind, "gather_pytree_data_fields", classmethod(lambda cls, n=tuple(names): n))
    state, _ = _loaded(path)
    for name, value in _values(_state()).items():
        np.testing.assert_array_equal(_values(state)[name], value)
    assert fingerprint(zoo.PPCA(num_latents=1), prior=dist.Gamma(1.0, 2.0)) == words


# Files that cannot be written


def _saving_always(monkeypatch, before_save):
    """Save after every chunk of two steps; ``before_save(number)`` is called before each attempt."""
    save, numbers = Checkpoint.save, itertools.count(1)

    def counted(self, *args):
        if self.path is not None:
            before_save(next(numbers))
        save(self, *args)

    monkeypatch.setattr(module, "SECONDS_BETWEEN_SAVES", 0.0)
    monkeypatch.setattr(host.ChunkLength, "__exit__", lambda self, *error: setattr(self, "length", 2))
    monkeypatch.setattr(host.ChunkLength, "__init__", lambda self: setattr(self, "length", 2))
    monkeypatch.setattr(Checkpoint, "save", counted)


LONGER = VB | {"max_iterations": 12, "tolerance": 0.0}


def test_without_its_folder_a_run_goes_on_and_saves_once_it_is_back(two_clusters, tmp_path, monkeypatch):
    folder, model = tmp_path / "runs", zoo.Mixture(num_components=3)
    whole = fit(model, two_clusters, **LONGER)
    folder.mkdir()

    def come_and_go(number):
        if number == 2:
            shutil.rmtree(folder)
        if number == 4:
            folder.mkdir()

    with monkeypatch.context() as patch, pytest.warns(UserWarning, match="could not be written") as caught:
        _saving_always(patch, come_and_go)
        tree = fit(model, two_clusters, checkpoint=folder / "run", **LONGER)
    same(tree, whole)
    ours = [str(w.message) for w in caught if "could not be written" in str(w.message)]
    assert len(ours) == 1 and ours[0].startswith(
        f"the checkpoint {folder / 'run'} could not be written (No such"
    )
    assert os.listdir(folder) == ["run"]
    same(fit(model, two_clusters, checkpoint=folder / "run", **LONGER), whole)


def test_on_a_full_disk_a_run_goes_on(two_clusters, tmp_path, monkeypatch):
    """The disk is full from the third save to the end; the second save stays whole."""
    path, model = tmp_path / "run", zoo.Mixture(num_components=3)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(number):
        if number == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))

    try:
        with monkeypatch.context() as patch, pytest.warns(UserWarning, match=r"\(.*File too large\)"):
            _saving_always(patch, fill)
            tree = fit(model, two_clusters, checkpoint=path, **LONGER)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == ["run"]
    with np.load(path) as file:
        assert file["progress_iteration"].max() == 4
    resumed = fit(model, two_clusters, checkpoint=path, **LONGER)
    same(resumed, tree)


# One run at a time


def test_a_second_run_on_one_path_is_refused_before_it_is_compiled(two_clusters, tmp_path):
    path = tmp_path / "run"
    model = zoo.Mixture(num_components=3)
    with held_alone(path):
        with pytest.raises(
            ValueError, match=rf"run is in use by another run \(process {os.getpid()}\): wait"
        ):
            fit(model, two_clusters, checkpoint=path, **VB)
        assert not path.exists()
    assert os.listdir(tmp_path) == []
    fit(model, two_clusters, checkpoint=path, **VB)
    assert os.listdir(tmp_path) == ["run"]


HOLDER = """
import sys, time
from inference.numerics.atomic_files import held_alone
with held_alone(sys.argv[1]):
    print("held", flush=True)
    time.sleep(3600)
"""


def test_the_lock_dies_with_its_holder(tmp_path):
    path = tmp_path / "run"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with started([sys.executable, "-c", HOLDER, path], env=environment) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match=rf"\(process {process.pid}\)"), held_alone(path):
            pass
        process.kill()
        process.wait()
    assert len(os.listdir(tmp_path)) == 1  # the file is there, the lock is not
    with held_alone(path):
        pass
    assert os.listdir(tmp_path) == []


def test_threads_on_one_path_take_turns_or_are_refused(two_clusters, tmp_path):
    path, outcomes = tmp_path / "run", []
    model = zoo.Mixture(num_components=3)
    whole = fit(model, two_clusters, **VB)
    together = threading.Barrier(4)

    def run():
        together.wait()
        try:
            outcomes.append(fit(model, two_clusters, checkpoint=path, **VB))
        except BaseException as error:
            outcomes.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert len(outcomes) == 4 and len(refused) < 4
    assert all(type(error) is ValueError and "in use by another run" in str(error) for error in refused)
    for tree in outcomes:
        if tree not in refused:
            same(tree, whole)
    assert os.listdir(tmp_path) == ["run"]


def test_without_flock_nothing_is_refused(tmp_path, monkeypatch):
    def unsupported(file, how):
        raise OSError(errno.ENOLCK, "no locks")

    with held_alone(tmp_path / "run"):
        with monkeypatch.context() as patch:
            patch.setattr(atomic_files.fcntl, "flock", unsupported)
            with held_alone(tmp_path / "run"):
                pass
        with monkeypatch.context() as patch:
            patch.setattr(atomic_files, "fcntl", None)
            with held_alone(tmp_path / "run"):
                pass
    assert os.listdir(tmp_path) == []


def test_a_lock_on_a_full_disk_names_nobody_and_holds(tmp_path, monkeypatch):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with held_alone(tmp_path / "run"), pytest.raises(ValueError, match="another run: wait"):
            with held_alone(tmp_path / "run"):
                pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_a_checkpoint_is_advised_of_where_there_is_one(two_clusters, tmp_path, monkeypatch, kept):
    cut_short(monkeypatch, 2)
    call = GIBBS | {"num_samples": 60, "checkpoint": tmp_path / "run.ckpt" if kept else None}
    tree = fit(zoo.Mixture(num_components=2), two_clusters, **call)
    run, *_ = convergence_judgements(tree)
    resumed = f" (the same call with checkpoint='{tmp_path / 'run.ckpt'}' resumes where it stopped)"
    assert run.advice == f"run it to completion{resumed if kept else ''}"
    shown = as_options(run.advice)
    assert (
        f"with --checkpoint {tmp_path / 'run.ckpt'} resumes" in shown
    ) == kept and "checkpoint=" not in shown


# Signals


@pytest.fixture
def terminations():
    """SIGTERM as a list of its numbers, so that one too many does not end the tests."""
    received = []
    former = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    yield received
    signal.signal(signal.SIGTERM, former)


def test_sigterm_saves_and_returns_what_there_is(two_clusters, tmp_path, monkeypatch, terminations, capsys):
    model, path = zoo.Mixture(num_components=3), tmp_path / "run"
    whole = fit(model, two_clusters, **LONGER)
    mine = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        _saving_always(patch, lambda number: number == 2 and os.kill(os.getpid(), signal.SIGTERM))
        with pytest.warns(UserWarning, match="the run was interrupted"):
            tree = fit(model, two_clusters, checkpoint=path, **LONGER)
    assert tree.attrs["stop_reason"] == "interrupted" and tree.attrs["num_iterations"] == 4
    assert terminations == [] and signal.getsignal(signal.SIGTERM) is mine
    assert capsys.readouterr().err == "stopping after this chunk; send SIGTERM again to stop at once\n"
    same(fit(model, two_clusters, checkpoint=path, **LONGER), whole)


def test_a_second_sigterm_goes_to_its_former_handler(terminations):
    with host.Interrupt() as interrupt:
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupt.requested and terminations == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert terminations == [signal.SIGTERM]
    os.kill(os.getpid(), signal.SIGTERM)
    assert len(terminations) == 2


def test_signals_are_left_alone_where_they_are_not_ours(terminations, monkeypatch):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    found = []

    def in_thread():
        with host.Interrupt():
            found.append({number: signal.getsignal(number) for number in handlers})

    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    assert found == [handlers]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as of a process that must not be ended so
    with host.Interrupt():
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    signal.signal(signal.SIGTERM, handlers[signal.SIGTERM])
    with monkeypatch.context() as patch:  # a handler of C, which Python cannot put back
        patch.setattr(host.signal, "getsignal", lambda number: None)
        patch.setattr(host.signal, "signal", lambda *args: pytest.fail("was replaced"))
        with host.Interrupt():
            pass


@pytest.mark.parametrize("raises", [False, True])
def test_handlers_are_put_back(raises, terminations):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with host.Interrupt():
            assert all(signal.getsignal(number) != former for number, former in handlers.items())
            if raises:
                raise RuntimeError
    except RuntimeError:
        pass
    assert {number: signal.getsignal(number) for number in handlers} == handlers


# Inside a compiled function


@pytest.mark.parametrize(
    "inside",
    [
        lambda x: jax.jit(lambda y: fit(zoo.PPCA(num_latents=1), y))(x),
        lambda x: jax.vmap(lambda y: fit(zoo.PPCA(num_latents=1), y))(x[None]),
        lambda x: jax.grad(lambda y: fit(zoo.PPCA(num_latents=1), y))(x),
        lambda x: jax.jit(lambda y: fit(zoo.PPCA(num_latents=1), x))(1.0),
        lambda x: jax.jit(lambda s: fit(zoo.PPCA(num_latents=1), x, seed=s))(jax.random.key(0)),
        lambda x: jax.jit(lambda w: fit(zoo.Mixture(num_components=2), x, sample_weight=w))(x[:, 0]),
        lambda x: jax.jit(lambda r: fit(zoo.Mixture(num_components=2), x, init={"responsibilities": r}))(x),
    ],
)
def test_fit_inside_a_compiled_function_is_one_line(inside):
    with pytest.raises(
        TypeError, match="^fit cannot be called inside jax.jit, jax.vmap or jax.grad"
    ) as caught:
        inside(np.random.default_rng(0).normal(size=(20, 2)))
    assert "\n" not in str(caught.value)
