"""Bad inputs of all models: a product of models, what is passed, and kinds of badness.

``python -m tests.support.bad_inputs`` makes every call of the table and writes
tests/reference/bad_inputs.json: how many were refused by one clear message of ours, how many of these before
anything was compiled, and how many were accepted, which is right only where the table says so.
test_bad_inputs.py makes a sample of them.

A call is cut off where `fit` has its request and plans the run: what is accepted shows there what was made of
it, the arrays cell by cell. A kind of data says which array it stands for; an argument, a field or an option
says which values it takes, by its declared kind.
"""

import dataclasses
import decimal
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.sparse
import xarray as xr
from jax import monitoring

import inference
import zoo
from inference.fitting import front_door
from inference.methods import method_of
from tests.tools.recording import write_record

ROOT = Path(zoo.__file__).parents[1]
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 3)).round(2), RNG.normal(size=(12, 2)).round(2)
BITS, MORE_BITS = RNG.integers(0, 2, size=(2, 12, 3)).astype(float)
COUNTS = RNG.poisson(2.0, size=(8, 5)) + 1.0
MODELS = {  # data and fields of a small model
    "mixture": ((X,), {"num_components": 2}),
    "ppca": ((X,), {"num_latents": 1}),
    "kernelpca": ((X,), {"num_latents": 1, "noise_variance": 0.1}),
    "sppca": ((X, Y), {"num_latents": 1}),
    "epca": ((BITS,), {"num_latents": 1}),
    "paired": ((BITS, MORE_BITS), {"num_shared": 1}),
    "lda": ((COUNTS,), {"num_topics": 2}),
    "plsi": ((COUNTS,), {"num_topics": 2}),
    "pcp": ((COUNTS,), {"num_topics": 2, "num_clusters": 2}),
    "depcam": ((BITS,), {"num_components": 2, "num_latents": 1, "sparsity": 1.0}),
    "mcfa": ((X,), {"num_components": 2, "num_latents": 1}),
}
OF_BITS = ("epca", "paired", "depcam")
OF_COUNTS = ("lda", "plsi", "pcp")
TAKES_MISSING = {"mixture", "ppca", "sppca", "epca", "paired", "depcam", "mcfa"}
TAKES_SPARSE = {"ppca", "sppca", *OF_COUNTS}
ITERATIVE = {"ppca": "em", "kernelpca": "em"}  # where the first method solves directly


class Case(NamedTuple):
    """A call.

    Attributes:
        model: its name.
        subject: what is bad: data, an argument, a field or an option.
        kind: how.
        words: of which the message of a refusal holds one.
        call: makes the model and fits it.
        is_taken: whether it is to be accepted; None: it may be, and then as ``expected``.
        expected: the data that an accepted call fits; None: those of the model.
    """

    model: str
    subject: str
    kind: str
    words: tuple[str, ...]
    call: Any
    is_taken: bool | None
    expected: tuple | None = None


# Data


def _cell(value):
    def change(x):
        x = x.copy()
        x[1, 1] = value
        return x

    return change


def _objects(*values):
    """A table of objects, some of which are other than numbers."""

    def change(x):
        x = x.astype(object)
        x[tuple(range(1, len(values) + 1)), 1] = values
        return x

    return change


def _masked(x):
    mask = np.zeros(x.shape, bool)
    mask[1, 1] = True
    return np.ma.masked_array(x, mask)


def _sparse_nan(x):
    x = scipy.sparse.csr_array(x)
    x.data[0] = np.nan
    return x


def _crooked(x):
    """Sparse rows whose places are outside of the matrix."""
    x = scipy.sparse.csr_matrix(x)
    x.indices[0] = 99
    return x


def _frame(x, **columns):
    names = [f"c{i}" for i in range(x.shape[1])]
    return pd.DataFrame(x, columns=names).assign(**columns)


def _nullable(x):
    frame = _frame(x).astype("Float64")
    frame.iloc[1, 1] = pd.NA
    return frame


#: Other forms of the same numbers.
SAME = {
    "list": lambda x: x.tolist(),
    "tuple": lambda x: tuple(map(tuple, x.tolist())),
    "Fortran order": np.asfortranarray,
    "reversed view": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "read-only": lambda x: np.frombuffer(x.tobytes()).reshape(x.shape),
    "big-endian": lambda x: x.astype(">f8"),
    "objects": lambda x: x.astype(object),
    "jax": lambda x: np.asarray(x) if x.dtype == object else jnp.asarray(x.astype(np.float32)),
    "long double": lambda x: x.astype(np.longdouble),
    "matrix": lambda x: np.asmatrix(x),
    "unmasked": lambda x: np.ma.masked_array(x),
    "DataFrame": _frame,
    "nullable DataFrame": lambda x: _frame(x).astype("Float64"),
    "DataFrame of objects": lambda x: _frame(x).astype(object),
    "columns 0, 1": lambda x: pd.DataFrame(x),
    "DataArray": lambda x: xr.DataArray(x),
    "float32": lambda x: x.astype(np.float32),
}
WHOLE = {
    "int8": lambda x: x.astype(np.int8),
    "uint64": lambda x: x.astype(np.uint64),
    "float16": lambda x: x.astype(np.float16),
    "Int64": lambda x: _frame(x).astype("Int64"),
}
SPARSE = {
    "csr": scipy.sparse.csr_array,
    "coo": scipy.sparse.coo_matrix,
    "csc": scipy.sparse.csc_matrix,
}
MISSING = {
    "NaN": _cell(np.nan),
    "None": lambda x: _objects(None)(x).tolist(),
    "masked": _masked,
    "NA": _nullable,
    "DataFrame NaN": lambda x: _frame(_cell(np.nan)(x)),
}
REFUSED = {
    "nothing": lambda x: None,
    "word": lambda x: "strange",
    "empty word": lambda x: "",
    "bytes": lambda x: b"strange",
    "number": lambda x: 3.0,
    "True": lambda x: True,
    "dict": lambda x: {"a": x},
    "set": lambda x: {1, 2},
    "generator": lambda x: (row for row in [1.0]),
    "function": lambda x: len,
    "class": lambda x: np.ndarray,
    "row": lambda x: x[0],
    "cube": lambda x: x[None],
    "no rows": lambda x: x[:0],
    "no columns": lambda x: x[:, :0],
    "empty list": lambda x: [],
    "list of empty lists": lambda x: [[], []],
    "ragged": lambda x: [[1.0, 2.0], [1.0]],
    "deep list": lambda x: [[[[1.0]]]],
    "complex": lambda x: x + 1j,
    "words": lambda x: x.astype(str),
    "words and numbers": _objects("red"),
    "objects of no kind": _objects(object()),
    "dicts": _objects({}),
    "complex objects": _objects(1j),
    "dates": lambda x: x.astype(int).astype("datetime64[D]"),
    "time spans": lambda x: x.astype(int).astype("timedelta64[s]"),
    "byte strings": lambda x: x.astype("S4"),
    "raw bytes": lambda x: x.astype("V8"),
    "records": lambda x: np.zeros(x.shape, [("a", float)]),
    "inf": _cell(np.inf),
    "-inf": _cell(-np.inf),
    "inf of objects": _objects(np.inf),
    "DataFrame inf": lambda x: _frame(_cell(np.inf)(x)),
    "all missing": lambda x: np.full(x.shape, np.nan),
    "all masked": lambda x: np.ma.masked_all(x.shape),
    "a column missing": lambda x: np.column_stack([x[:, 0] * np.nan, x[:, 1:]]),
    "overflowing": lambda x: _cell(1e308)(x),
    "sparse NaN": _sparse_nan,
    "sparse out of bounds": _crooked,
    "sparse complex": lambda x: scipy.sparse.csr_array(x + 1j),
    "tree": lambda x: xr.DataTree(),
    "model": lambda x: zoo.PPCA(num_latents=1),
    "DataFrame of complex": lambda x: _frame(x + 1j),
    "DataFrame without rows": lambda x: _frame(x)[:0],
    "DataFrame without columns": lambda x: _frame(x)[[]],
    "DataFrame of one name": lambda x: _frame(x).set_axis(["a"] * x.shape[1], axis=1),
    "DataFrame of lists": lambda x: _frame(x, c1=[[1.0]] * len(x)),
    "DataFrame of spans": lambda x: _frame(x, c1=pd.to_timedelta(np.arange(len(x)), unit="D")),
    "decimal NaN": _objects(decimal.Decimal("sNaN")),
}
OF_BITS_OR_COUNTS = {  # numbers that are no bits and no counts
    "negative": lambda x: _cell(-1.0)(x),
    "half": lambda x: _cell(0.5)(x),
    "huge": lambda x: _cell(2.0**53)(x) * 2.0,
    "DataFrame negative": lambda x: _frame(_cell(-1.0)(x)),
}
LEFT_OUT = {"DataFrame of lists"}  # such a column is left out, which is warned of
LABELLED = {  # of outputs, which may be labels of classes
    "row", "words", "byte strings", "words and numbers",
}  # fmt: skip


#: A model of views takes as many as there are families; tables are paired by their index.
MAY_BE = {("paired", "one part more"), ("paired", "two parts more")}


def data_cases(model):
    data, fields = MODELS[model]
    names = zoo.model_class(model)(**fields).data_names if model != "paired" else ("y_0", "y_1")
    for place, site in enumerate(names):
        x = data[place]
        nan = _cell(np.nan)(x)
        single = x.astype(np.float32).astype(float)
        kinds = [
            (kind, make, True, single if kind in ("jax", "float32") else x) for kind, make in SAME.items()
        ]
        if model in OF_BITS + OF_COUNTS:
            kinds += [(kind, make, True, x) for kind, make in WHOLE.items()]
            for kind, make in OF_BITS_OR_COUNTS.items():  # a table chooses its own family
                is_taken = None if kind.startswith("DataFrame") and model in OF_BITS else False
                kinds.append((kind, make, is_taken, None))
        taken = model in TAKES_SPARSE and site != "y"
        kinds += [(kind, make, taken, x) for kind, make in SPARSE.items()]
        kinds += [(kind, make, model in TAKES_MISSING, nan) for kind, make in MISSING.items()]
        for kind, make in REFUSED.items():
            is_taken = None if kind in LEFT_OUT or (site == "y" and kind in LABELLED) else False
            kinds.append((kind, make, is_taken, None))
        for kind, make, is_taken, expected in kinds:
            yield Case(
                model,
                f"data {site}",
                kind,
                (),
                lambda p=place, m=make: _fit(model, [m(d) if p == i else d for i, d in enumerate(data)]),
                is_taken,
                None
                if expected is None
                else tuple(expected if place == i else d for i, d in enumerate(data)),
            )
    others = {
        "no data": (lambda: _fit(model, ()), ("no data",)),
        "one part more": (lambda: _fit(model, (*data, data[0])), ("takes",)),
        "two parts more": (lambda: _fit(model, (*data, data[0], data[0])), ("takes",)),
        "a tuple of parts": (lambda: _fit(model, (data,)), ()),
        "one row": (lambda: _fit(model, [d[:1] for d in data]), ("row", "document", "constant")),
    }
    if len(data) > 1:
        others |= {
            "other rows": (lambda: _fit(model, (data[0], data[1][:-1])), ("row",)),
            "first part alone": (lambda: _fit(model, data[:1]), ("takes", "view")),
            "other index": (
                lambda: _fit(model, (_frame(data[0]), _frame(data[1]).set_axis(range(50, 62)))),
                (),
            ),
        }
    for kind, (call, words) in others.items():
        is_taken = None if (model, kind) in MAY_BE or kind == "one row" else False
        yield Case(model, "data", kind, words, call, is_taken)


# Arguments, fields and options

KINDS = {
    "None": None,
    "word": "strange",
    "empty word": "",
    "bytes": b"strange",
    "True": True,
    "NaN": np.nan,
    "inf": np.inf,
    "-inf": -np.inf,
    "-1": -1,
    "0": 0,
    "1.5": 1.5,
    "10**30": 10**30,
    "complex": 1j,
    "empty tuple": (),
    "tuple of words": ("strange",),
    "tuple of dicts": ({},),
    "list": [1, "a"],
    "dict": {"strange": 1},
    "matrix": np.full((2, 2), -1.0),
    "cube": np.ones((2, 3, 4)),
    "words": np.array(["a", "b"]),
    "object": object(),
    "function": len,
    "class": dict,
}


def _is_whole(value, least):
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= least


def _whole(least):
    return lambda value: None if value == 10**30 and _is_whole(value, least) else _is_whole(value, least)


def _number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


#: Which of the kinds an argument of `fit` takes: True, False, or None where it depends on the method.
ARGUMENTS = {
    "method": lambda value: False,
    "seed": lambda value: _is_whole(value, 0) and value < 2**32,
    "num_chains": _whole(1),
    "num_warmup": _whole(0),
    "num_samples": _whole(1),
    "thinning": _whole(1),
    "chain_method": lambda value: False,
    "max_iterations": _whole(1),
    "tolerance": lambda value: _number(value) and 0 <= value < np.inf,
    "num_restarts": lambda value: value is None or _whole(1)(value),
    "init": lambda value: None if isinstance(value, dict) else value is None,  # its names are the method's
    "sample_weight": lambda value: value is None,
    "batch_size": lambda value: value is None or (None if value == 10**30 else False),
    "dtype": lambda value: False,
    "keep": lambda value: value == (),
    "progress": lambda value: value is None or value is True,
    "checkpoint": lambda value: None if value in (None, "strange") else False,
    "families": lambda value: value is None,
    "levels": lambda value: value is None,
    "id": lambda value: value is None,
    "until": lambda value: value is None,
    "max_sweeps": lambda value: value is None or _whole(1)(value),
    "max_seconds": lambda value: None if value is None or (_number(value) and value > 0) else False,
    "strange": lambda value: False,
}


def _takes(predicate, value):
    """What a predicate says of a value, arrays and objects included, which compare in their own ways."""
    if isinstance(value, np.ndarray):
        return False
    return predicate(value)


def argument_cases(model):
    data, _ = MODELS[model]
    for name, predicate in ARGUMENTS.items():
        for kind, value in KINDS.items():
            method = {"method": ITERATIVE[model]} if model in ITERATIVE and name != "method" else {}
            yield Case(
                model,
                f"argument {name}",
                kind,
                (name,),
                lambda n=name, v=value, m=method: _fit(model, data, **(m | {n: v})),
                _takes(predicate, value),
            )


def field_takes(field, value):
    """Whether a field of a model takes a value, by its declared kind; None where that does not say."""
    written = field.type.__name__ if isinstance(field.type, type) else str(field.type)
    kinds = set(written.replace(" ", "").split("|"))
    if value is None:
        return None if field.default is not None and "None" not in kinds else True
    if value is True:
        return None if "bool" in kinds else False
    if isinstance(value, np.ndarray | tuple | list):
        return None if isinstance(value, np.ndarray) or value == () or "tuple" in written else False
    if isinstance(value, str):
        return False
    return None if _number(value) and abs(value) < np.inf else False


#: Sizes that contradict others are refused by what they contradict.
OTHER_WORDS = dict.fromkeys(("num_features", "num_outputs", "num_words"), ("columns", "num_latents"))


def field_cases(model):
    data, small = MODELS[model]
    for field in dataclasses.fields(zoo.model_class(model)):
        if not field.init:
            continue
        for kind, value in KINDS.items():
            yield Case(
                model,
                f"field {field.name}",
                kind,
                (field.name, *OTHER_WORDS.get(field.name, ())),
                lambda n=field.name, v=value: _fit(model, data, {**small, n: v}),
                field_takes(field, value),
            )


def option_cases(model):
    data, fields = MODELS[model]
    cls = zoo.model_class(model)
    for method in cls.methods:
        for name, default in method_of(cls(), method).options.items():
            for kind, value in KINDS.items():
                same_kind = type(value) is type(default) or (_number(value) and _number(default))
                both = isinstance(value, tuple | list) and isinstance(default, tuple)
                is_taken = None if same_kind or both or value is None else False
                if _number(value) and (value is None or default is None):
                    is_taken = None
                if isinstance(value, float) and not np.isfinite(value):
                    is_taken = False
                yield Case(
                    model,
                    f"option {method} {name}",
                    kind,
                    (),
                    lambda m=method, n=name, v=value: _fit(model, data, method=m, **{n: v}),
                    is_taken,
                )


def cases(model):
    """All bad calls of a model."""
    yield from data_cases(model)
    yield from argument_cases(model)
    yield from field_cases(model)
    yield from option_cases(model)


# What became of a call


class _Planned(BaseException):
    """Raised in the place of the plan of a run: the call was accepted."""

    def __init__(self, request):
        self.request = request


def _plan(request):
    raise _Planned(request)


def _fit(model, data, fields=None, **call):
    inference.fit(zoo.model_class(model)(**(MODELS[model][1] if fields is None else fields)), *data, **call)


class Outcome(NamedTuple):
    """What became of a call.

    Attributes:
        kind: ``"accepted"``, ``"refused"`` or ``"raw"``.
        text: what was said.
        num_compiled: how often a program was traced or compiled.
        fault: why it is not right; empty where it is.
    """

    kind: str
    text: str
    num_compiled: int
    fault: str


def outcome(case):
    """Make a call up to the plan of its run."""
    events = []

    def note(event, duration, **details):
        if "/jax/core/compile" in event:
            events.append(event)

    plan, front_door.plan = front_door.plan, _plan
    monitoring.register_event_duration_secs_listener(note)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", UserWarning)  # ours, of data that are unusual
            warnings.simplefilter("ignore", PendingDeprecationWarning)  # np.matrix itself
            case.call()
        kind, text, fault = "raw", "the run was not planned", "the run was not planned"
    except _Planned as planned:
        kind, text, fault = "accepted", "", _fault_of_acceptance(case, planned.request)
    except Exception as error:
        kind, text, fault = _refusal(case, error)
    finally:
        front_door.plan = plan
        monitoring.unregister_event_duration_listener(note)
    return Outcome(kind, text, len(events), fault)


def _refusal(case, error):
    text = str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    ours = any(Path(last.filename).is_relative_to(ROOT / room) for room in ("zoo", "inference"))
    raw = ""
    if type(error) not in (TypeError, ValueError, FloatingPointError, FileNotFoundError):
        raw = f"{type(error).__name__} is no error of ours"
    elif not ours:
        raw = f"raised in {Path(last.filename).name}:{last.lineno} ({last.name})"
    elif "\n" in text or len(text) > 600 or not text:
        raw = "more than one line"
    elif case.words and not any(word in text for word in case.words):
        raw = f"names none of {case.words}"
    if raw:
        return "raw", text, raw
    return "refused", text, "it is to be accepted" if case.is_taken else ""


def _fault_of_acceptance(case, request):
    if case.is_taken is False:
        return "it is to be refused"
    if case.expected is None:
        return ""
    passed = request.data if request.back is None else request.back.request.data
    for place, wanted in enumerate(case.expected):
        found = passed[place]
        if not isinstance(found, np.ndarray):
            found = found.to_scipy().toarray()
        if found.shape != wanted.shape or not np.array_equal(found, wanted, equal_nan=True):
            return f"part {place} is not what was passed"
    return ""


def main():
    """Make every call and write the record."""
    found, faults = {}, []
    for model in MODELS:
        tally = Counter()
        for case in cases(model):
            result = outcome(case)
            tally[result.kind] += 1
            tally["to be refused"] += case.is_taken is False
            tally["to be accepted"] += case.is_taken is True
            tally["refused before any compilation"] += result.kind == "refused" and not result.num_compiled
            tally["wrong"] += bool(result.fault)
            if result.fault:
                faults.append(f"{model}: {case.subject} {case.kind}: {result.fault}: {result.text[:150]!r}")
        found[model] = dict(tally)
    names = sorted(set().union(*found.values()))
    total = {name: sum(tally.get(name, 0) for tally in found.values()) for name in names}
    print(*faults, total, sep="\n")
    if not faults:
        calls = sum(total.get(name, 0) for name in ("accepted", "refused", "raw"))
        figures = {"calls": calls, "total": total, "by_model": found}
        write_record("bad_inputs", "python -m tests.support.bad_inputs", "pandas", "scipy", **figures)
    return bool(faults)


if __name__ == "__main__":
    raise SystemExit(main())
