"""Checkpoints: the state of a run in one file, replaced atomically, with a fingerprint of the run.

The file is a ``.npz`` without pickle or compression. It holds the number of its format, a fingerprint of the
run (every argument that decides its numbers, by name), the leaves of the driver's state in an order that is
the same in every process, and the progress, draws and traces so far. The structure of the state is never read
from the file: it comes from the ``init`` of the algorithm, so a file cannot make the program build anything
but arrays. Nor do sizes: the fingerprint is read first, and what follows only within the shapes that this run
gives it. Of several processes of one run the first reads and writes, for all.
"""

import dataclasses
import hashlib
import io
import json
import os
import time
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution

from inference.numerics.atomic_files import replacing
from inference.numerics.devices import of_first_process
from zoo.checks import warn, words_of
from zoo.model import Assumptions, Model

SECONDS_BETWEEN_SAVES = 5.0
NO_LIMIT = 2**31 - 1  # steps
# 5 had one aspect for all settings and distributions in an order that changed from process to process, 4
# states of DEPCAM without labels, 3 other coordinates of probabilities, 2 stick fractions, 1 the progress of
# restarts
FORMAT = 6
HEADER = ("format", "fingerprint", "not_finite")
HEADER_BYTES = 2**24  # that the fingerprint may take
SHORT = 100  # letters of a value that a fingerprint shows as it is
LENGTHS = {"num_samples", "num_warmup", "thinning", "max_iterations", "tolerance"}  # of a run that may go on
MOST_TOLD = 5  # aspects in which two runs differ


class AtMost(NamedTuple):
    """The size of an axis that may be shorter.

    Attributes:
        size: the most; None: as long as the file is.
    """

    size: int | None


class Kept(NamedTuple):
    """The shape of an array of a checkpoint, and NumPy's kinds of its numbers.

    Attributes:
        shape: an `AtMost` where the size changes as the run goes on.
        kinds: letters of ``dtype.kind``.
    """

    shape: tuple[int | AtMost, ...]
    kinds: str = "biuf"


class Layout(NamedTuple):
    """The arrays that a loop keeps beside its state.

    Attributes:
        arrays: by name; a name that ends in a star stands for any number of arrays, none of them needed.
        contradiction: ``contradiction(arrays)``, what does not go together in them, in a clause; empty where
            all is well.
        slot_axes: of a state with slots, whose number changes as the run goes on: the path of a leaf, as
            ``jax.tree_util.keystr`` gives it, to its axes over slots, each with what it is over. All axes
            over one thing have one size; every other axis has that of a fresh state.
        most_slots: the largest size of these axes.
    """

    arrays: Mapping[str, Kept]
    contradiction: Callable[[Mapping[str, np.ndarray]], str]
    slot_axes: Mapping[str, Mapping[int, str]] = MappingProxyType({})
    most_slots: int = 0


def fingerprint(model: Model, **arguments: Any) -> dict[str, str]:
    """The identity of a run as short strings by aspect; two runs are the same if all aspects agree.

    Args:
        model: the (filled) model; its class and every field count, those of nested priors too, each as
            an aspect of its own.
        **arguments: anything else that determines the answer: numbers, text, arrays, models, and tuples and
            dicts of them. The entries of a dict are aspects of their own, ``name.key``, or ``key`` alone
            where the argument's name begins with an underscore.
    """
    aspects = dict(_told_fields(model, "model"))
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            prefix = "" if name.startswith("_") else f"{name}."
            aspects |= {f"{prefix}{key}": _told(part) for key, part in value.items()}
        else:
            aspects[name] = _told(value)
    return aspects


class Checkpoint:
    """The file where the driver saves and resumes; with ``path=None`` it does neither."""

    def __init__(self, path: str | os.PathLike | None, aspects: Mapping[str, str]) -> None:
        """Remember the path and the fingerprint; nothing is read or written yet.

        Args:
            path: of the file, or None.
            aspects: the fingerprint that a run must share with the one that saved, by name (`fingerprint`).
        """
        self.path = None if path is None else Path(path)
        self.aspects = dict(aspects)
        self._saved_at = time.monotonic()
        self._has_warned = False

    def load(
        self, template: Callable[[], Any], layout: Callable[[Any], Layout]
    ) -> tuple[Any, dict[str, np.ndarray]] | None:
        """The saved state, shaped like the template, and the saved arrays; None if there is no file yet.

        Args:
            template: ``template()``, a state of this run or its shapes, asked for once the file has turned
                out to be of this run; the saved one gets its structure, dtypes and places on devices.
            layout: ``layout(template)``, the arrays beside it.

        Returns:
            The saved state and the saved arrays by name, in the shapes that they had; None if there is no
                file yet, or none is kept.

        Raises:
            ValueError: the file is damaged, is no checkpoint, is of another format, belongs to another run
                (the message says what differs), or holds other arrays than this run does.
        """
        if self.path is None:
            return None
        several = jax.process_count() > 1
        source: Path | io.BytesIO | None = self.path if self.path.exists() else None
        if several:
            content = of_first_process(self._content)
            source = None if content is None else io.BytesIO(content)
        if source is None:
            return None
        with ExitStack() as stack:
            with self._legible():
                file = stack.enter_context(zipfile.ZipFile(source))
                members = _members(file)
                self._check_header(file, members)
            shapes = template()
            of_run = layout(shapes)
            with self._legible():
                return _read(file, members, shapes, of_run)

    @contextmanager
    def _legible(self) -> Iterator[None]:
        """Turn what a reader raises at bytes that are none of ours into one ValueError."""
        try:
            yield
        except _OtherRun as error:
            raise ValueError(str(error)) from None
        except _FAULTS as error:
            raise ValueError(
                f"{self.path} is not a checkpoint of this library, or is damaged ({words_of(error)}); remove "
                "it or name another"
            ) from None

    def _content(self) -> bytes | None:
        return self.path.read_bytes() if self.path is not None and self.path.exists() else None

    def _check_header(self, file: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo]) -> None:
        """Raise `_OtherRun` unless the file has this format and this fingerprint."""
        if "fingerprint" not in members:
            raise _Damaged("it has no fingerprint")
        written = 1
        if "format" in members:
            written = int(_array(file, members["format"], Kept((), "iu")))
        if written != FORMAT:
            raise _OtherRun(
                f"the checkpoint {self.path} has format {written} and this version resumes format {FORMAT}: "
                "remove the file and run again, or resume it with the version that wrote it"
            )
        saved = json.loads(str(_array(file, members["fingerprint"], Kept((), "U"), HEADER_BYTES)))
        if not isinstance(saved, dict) or not all(isinstance(value, str) for value in saved.values()):
            raise _Damaged("its fingerprint is none")
        names = sorted(self.aspects.keys() | saved.keys())
        pairs = {name: (saved.get(name), self.aspects.get(name)) for name in names}
        differs = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
        if differs:
            shown = list(differs.items())[:MOST_TOLD]
            details = "; ".join(f"{n[:60]}: {_short(a)} there, {_short(b)} now" for n, (a, b) in shown)
            details += f"; and {len(differs) - MOST_TOLD} more" if len(differs) > MOST_TOLD else ""
            remedy = "Repeat the call that wrote it, or name another file"
            if differs.keys() <= LENGTHS:
                remedy = "Repeat the call that wrote it and go on from its fit: init=tree, with another file"
            raise _OtherRun(
                f"the checkpoint {self.path} belongs to another run; what differs: {details}. {remedy}"
            )

    def is_due(self) -> bool:
        """Whether the last save, or the last attempt, is long enough ago.

        Returns:
            True if files are kept and `SECONDS_BETWEEN_SAVES` have passed since the last one.
        """
        return self.path is not None and time.monotonic() - self._saved_at >= SECONDS_BETWEEN_SAVES

    def until_next(self, done: int) -> int:
        """The most steps of the next chunk: a run on a file is cut by the clock alone."""
        return NO_LIMIT

    def save(self, state: Any, arrays: Mapping[str, np.ndarray]) -> None:
        """Write state and arrays to a new file in the same folder, then rename it over the old one.

        Args:
            state: of the algorithm, a pytree of arrays.
            arrays: the other arrays needed to continue, by name; no name may begin with ``state_``.

        Warns:
            UserWarning: the file cannot be written, the first time; the former one is then still whole, and
                the next save tries again.
        """
        if self.path is None or jax.process_index() != 0:
            return
        leaves = (leaf for _, leaf in _in_order(state))
        members = {f"state_{number}": _to_file(leaf) for number, leaf in enumerate(leaves)} | dict(arrays)
        header = {
            "format": np.asarray(FORMAT),
            "fingerprint": np.asarray(json.dumps(self.aspects)),
            "not_finite": np.asarray(
                json.dumps([n for n, array in members.items() if not _is_finite(array)])
            ),
        }
        stored: dict[str, Any] = header | members
        self._saved_at = time.monotonic()
        try:
            with replacing(self.path) as file:
                np.savez(file, **stored)
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                warn(
                    f"the checkpoint {self.path} could not be written ({_reason(error)}): the "
                    "run goes on without it and tries again at each save; free the disk or make its folder "
                    "again, or there is nothing to resume from"
                )


def _reason(error: OSError) -> str:
    return str(error) if error.errno is None else os.strerror(error.errno)


# Reading


class _Damaged(ValueError):
    """What is wrong with a file, in a clause."""


class _OtherRun(ValueError):
    """A whole message on a file that is well but not of this run."""


# what zipfile, zlib, NumPy's reader of headers and json raise at bytes that are none of theirs
_FAULTS = (
    ValueError, OSError, EOFError, LookupError, TypeError, SyntaxError, OverflowError, RuntimeError,
    MemoryError, zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, tokenize.TokenError,
)  # fmt: skip


def _members(file: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The arrays of a file by name; each is there once and as long as its bytes in the file."""
    members = {}
    for info in file.infolist():
        name = info.filename.removesuffix(".npy")
        if name in members:
            raise _Damaged(f"{name} is there twice")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise _Damaged(f"{name} is compressed, which no array of a checkpoint is")
        members[name] = info
    return members


def _read(
    file: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], template: Any, layout: Layout
) -> tuple[Any, dict[str, np.ndarray]]:
    """The state and the arrays beside it, each read within the size that the run gives it."""
    expected = {f"state_{n}": (label, leaf) for n, (label, leaf) in enumerate(_in_order(template))}
    arrays, contradiction, slot_axes, most_slots = layout
    starred = tuple(name[:-1] for name in arrays if name.endswith("*"))
    needed = {*HEADER, *expected, *(name for name in arrays if not name.endswith("*"))}
    if missing := sorted(needed - members.keys()):
        raise _Damaged(f"it lacks {missing[0]}")
    others = [name for name in members if name not in needed and not (starred and name.startswith(starred))]
    if others:
        raise _Damaged(f"it has {others[0][:60]!r}, which a run of this kind does not keep")
    told = json.loads(str(_array(file, members["not_finite"], Kept((), "U"), HEADER_BYTES)))
    values, num_slots = [], dict[str, int]()
    for name, (label, leaf) in expected.items():
        must, what = _stored_shape(leaf), f"the state{label}"
        sizes = list(must.shape)
        for axis in slot_axes.get(label, {}):
            sizes[axis] = AtMost(most_slots)
        array = _array(file, members[name], Kept(tuple(sizes), must.dtype.kind), what=what)
        if array.dtype != must.dtype:
            raise _Damaged(f"{what} holds {array.dtype} and must hold {must.dtype}")
        for axis, over in slot_axes.get(label, {}).items():
            if not array.shape[axis] or array.shape[axis] != num_slots.setdefault(over, array.shape[axis]):
                raise _Damaged(f"{what} has {array.shape[axis]} {over}, which does not go with the others")
        values.append(_checked_finite(array, name, told, what))
    restored = [_from_file(array, leaf) for array, (_, leaf) in zip(values, expected.values(), strict=True)]
    stored = {}
    for name in members.keys() - HEADER - expected.keys():
        pattern = name if name in arrays else next(f"{p}*" for p in starred if name.startswith(p))
        stored[name] = _checked_finite(_array(file, members[name], arrays[pattern]), name, told, name)
    if found := contradiction(stored):
        raise _Damaged(found)
    return _from_order(template, restored), stored


def _array(
    file: zipfile.ZipFile, info: zipfile.ZipInfo, kept: Kept, most: int | None = None, what: str = ""
) -> np.ndarray:
    """One array, of which nothing is read before its header agrees with what is kept of it."""
    what = what or info.filename.removesuffix(".npy")
    with file.open(info) as member:
        shape, is_fortran, dtype = _header(member)
        if dtype.kind not in kept.kinds:
            raise _Damaged(f"{what} holds {dtype}, which it cannot")
        if len(shape) != len(kept.shape) or not all(map(_goes_with, shape, kept.shape)):
            must = ", ".join(map(_size_in_words, kept.shape))
            raise _Damaged(f"{what} has the shape {shape} and must have ({must})")
        size = dtype.itemsize * int(np.prod(shape, dtype=object))
        if size > info.file_size or (most is not None and size > most):
            raise _Damaged(f"{what} declares {size} bytes and has {info.file_size}")
        content = member.read(size + 1)  # the end must come where the header says
    if len(content) != size:
        raise _Damaged(f"{what} has not as many bytes as it declares")
    array = np.frombuffer(content, dtype).copy()
    return array.reshape(shape[::-1]).T if is_fortran else array.reshape(shape)


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(member)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(member)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(member)
    raise _Damaged(f"an array has the version {version} of NumPy's format")


def _goes_with(size: int, kept: int | AtMost) -> bool:
    if isinstance(kept, int):
        return size == kept
    return 0 <= size and (kept.size is None or size <= kept.size)


def _size_in_words(kept: int | AtMost) -> str:
    if isinstance(kept, int):
        return str(kept)
    return "any" if kept.size is None else f"at most {kept.size}"


def _is_finite(array: np.ndarray) -> bool:
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())


def _checked_finite(array: np.ndarray, name: str, told: list, what: str) -> np.ndarray:
    """The array; `_Damaged` if it is not finite though the run that saved it said nothing of the kind."""
    if name not in told and not _is_finite(array):
        raise _Damaged(f"{what} holds numbers that are not finite")
    return array


# The leaves of a state


def slots_of(
    state: Any, slot_axes: Sequence[tuple[str, int] | tuple[str, int, str]]
) -> tuple[dict[str, dict[int, str]], int]:
    """The axes over slots that a state has, and the size of the first.

    Args:
        state: of an algorithm, or its shapes.
        slot_axes: as an `Algorithm` or a `Sampler` has them; a state without the first of the leaves has no
            slots.

    Returns:
        Path to axes of its leaves, as `Layout` has them, and the size; nothing and 0 where it has none.
    """
    shapes = {label: leaf.shape for label, leaf in _in_order(state)}
    if not slot_axes or slot_axes[0][0] not in shapes:
        return {}, 0
    found: dict[str, dict[int, str]] = {}
    for path, axis, *over in slot_axes:
        for label in shapes:
            if label == path or (path.endswith("*") and label.startswith(path[:-1])):
                found.setdefault(label, {})[axis] = over[0] if over else "slots"
    first, axis, *_ = slot_axes[0]
    return found, shapes[first][axis]


def _in_order(state: Any, label: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a state with their labels, in an order that is the same in every process.

    JAX flattens a distribution in the order of NumPyro's *set* of its fields, which changes with Python's
    hashes of strings, from process to process: here they come by name.
    """
    flat, _ = jax.tree_util.tree_flatten_with_path(state, is_leaf=_is_distribution)
    for path, part in flat:
        where = label + jax.tree_util.keystr(path)
        if not _is_distribution(part):
            yield where, part
            continue
        for name in sorted(type(part).gather_pytree_data_fields()):
            yield from _in_order(part.__dict__.get(name), f"{where}.{name}")


def _is_distribution(part: Any) -> bool:
    return isinstance(part, Distribution)


def _from_order(template: Any, leaves: list) -> Any:
    """A state like the template of leaves that came `_in_order`."""
    structure = jax.tree.structure(template)
    numbered = jax.tree.unflatten(structure, range(len(leaves)))
    places = [place for _, place in _in_order(numbered)]
    leaf_at = dict(zip(places, leaves, strict=True))
    return jax.tree.unflatten(structure, [leaf_at[place] for place in range(len(leaves))])


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_file(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _stored_shape(leaf: Any) -> Any:
    return jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf


def _from_file(array: np.ndarray, leaf: Any) -> Any:
    if _is_key(leaf):
        return jax.random.wrap_key_data(jnp.asarray(array))
    return jnp.asarray(array, dtype=leaf.dtype)


# Values as short strings


def _told_fields(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """The class of a model, or of what is nested in one, and all its fields."""
    yield name, type(value).__name__
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        if isinstance(part, Assumptions):
            yield from _told_fields(part, f"{name}.{field.name}")
        else:
            yield f"{name}.{field.name}", _told(part)


def _told(value: Any) -> str:
    """A value in words that are equal for equal values only: itself where it is short, else its SHA-256."""
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return _told_array(value)
    if value is None or isinstance(value, str | bool | int | float):
        words = repr(value)
    elif isinstance(value, Mapping):
        words = ", ".join(f"{key!r}: {_told(value[key])}" for key in sorted(value, key=str))
        words = f"{{{words}}}"
    elif isinstance(value, tuple | list):
        words = f"({', '.join(map(_told, value))})"
    elif isinstance(value, Distribution):
        kind = type(value)
        names = sorted({*kind.gather_pytree_data_fields(), *kind.gather_pytree_aux_fields()})
        words = ", ".join(
            f"{name}={_told(value.__dict__.get(name))}" for name in names if name != "_validate_args"
        )
        words = f"{kind.__name__}({words})"
    elif dataclasses.is_dataclass(value):
        fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        words = f"{type(value).__name__}({', '.join(f'{name}={_told(part)}' for name, part in fields)})"
    elif (leaves := jax.tree.leaves(value)) and not jax.tree_util.treedef_is_leaf(jax.tree.structure(value)):
        words = f"{type(value).__name__} {jax.tree.structure(value)} {', '.join(map(_told, leaves))}"
    else:
        words = f"{type(value).__name__} {value!r}"
    return words if len(words) <= SHORT else _sha(words.encode())


def _told_array(value: Any) -> str:
    array = np.asarray(value)
    if array.dtype.kind == "O":
        return _told(array.tolist())
    if array.size <= 4:
        return f"{array.dtype} {array.tolist()}"
    return _sha(f"{array.dtype} {array.shape}".encode(), np.ascontiguousarray(array))


def _sha(*items: Any) -> str:
    digest = hashlib.sha256()
    for item in items:
        digest.update(item)
    return digest.hexdigest()


def _short(value: str | None) -> str:
    return "nothing" if value is None else value if len(value) <= 60 else value[:12] + "..."
