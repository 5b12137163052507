"""Checkpoints: the state of a run in one file, replaced atomically, with a fingerprint of the run.

The file is a ``.npz`` without pickle. It holds the number of its format, the leaves of the driver's state in
flatten order, the progress, draws and traces so far, and a fingerprint (model class, fields and data by
SHA-256, options, versions). The structure of the state is never read from the file: it comes from the
``init`` of the algorithm, so a file cannot make the program build anything but arrays.
"""

import hashlib
import json
import os
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inference.numerics.atomic_files import replacing

__all__ = ["Checkpoint", "fingerprint"]

SECONDS_BETWEEN_SAVES = 5.0
# 4 had states of DEPCAM without labels, 3 other coordinates of probabilities, 2 stick fractions, 1 the
# progress of restarts
FORMAT = 5


def fingerprint(model: Any, data: tuple, **settings: Any) -> dict[str, str]:
    """The identity of a run as short strings by aspect; two runs are the same if all aspects agree.

    Args:
        model: the (filled) model; its class, its static fields and its hyperparameters count.
        data: the arrays it is fitted to.
        **settings: anything else that determines the answer (options, seed, versions, devices), JSON-like.
    """
    leaves, structure = jax.tree.flatten(model)
    aspects = {"model": _sha(str(structure), *leaves), "data": _sha(*jax.tree.leaves(data))}
    others = {name: json.dumps(value, sort_keys=True, default=str) for name, value in settings.items()}
    return aspects | others


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

    def load(self, template: Any) -> tuple[Any, dict[str, np.ndarray]] | None:
        """The saved state, shaped like ``template``, and the saved arrays; None if there is no file yet.

        Args:
            template: a state of this run; the saved one gets its structure, dtypes and places on devices.

        Returns:
            The saved state and the saved arrays by name, in the shapes that they had; None if there is no
                file yet, or none is kept.

        Raises:
            ValueError: the file is damaged, is no checkpoint, is of another format, or belongs to another run
                (the message says what differs).
        """
        if self.path is None or not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as file:
                stored = {name: file[name] for name in file.files}
            saved = json.loads(str(stored.pop("fingerprint")))
            written = int(stored.pop("format", 1))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{self.path} is not a checkpoint of this library, or is damaged ({error}); remove it or "
                f"name another"
            ) from None
        if written != FORMAT:
            raise ValueError(
                f"the checkpoint {self.path} has format {written} and this version resumes format {FORMAT}: "
                "remove the file and run again, or resume it with the version that wrote it"
            )
        names = sorted(self.aspects.keys() | saved.keys())
        pairs = {name: (saved.get(name), self.aspects.get(name)) for name in names}
        differs = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
        if differs:
            details = "; ".join(f"{n}: {_short(a)} there, {_short(b)} now" for n, (a, b) in differs.items())
            raise ValueError(f"the checkpoint {self.path} belongs to another run; what differs: {details}")
        leaves, structure = jax.tree.flatten(template)
        restored = [_from_file(stored.pop(f"state_{i}"), leaf) for i, leaf in enumerate(leaves)]
        return jax.tree.unflatten(structure, restored), stored

    def is_due(self) -> bool:
        """Whether the last save is long enough ago.

        Returns:
            True if files are kept and `SECONDS_BETWEEN_SAVES` have passed since the last one.
        """
        return self.path is not None and time.monotonic() - self._saved_at >= SECONDS_BETWEEN_SAVES

    def save(self, state: Any, arrays: Mapping[str, np.ndarray]) -> None:
        """Write state and arrays to a new file in the same folder, then rename it over the old one.

        Args:
            state: of the algorithm, a pytree of arrays.
            arrays: the other arrays needed to continue, by name; no name may begin with ``state_``.

        Raises:
            OSError: the file cannot be written; the former one is then still whole.
        """
        if self.path is None:
            return
        leaves = {f"state_{i}": _to_file(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        with replacing(self.path) as file:
            header = {"format": np.asarray(FORMAT), "fingerprint": np.asarray(json.dumps(self.aspects))}
            np.savez(file, **header, **leaves, **arrays)
        self._saved_at = time.monotonic()


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_file(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _from_file(array: np.ndarray, leaf: Any) -> Any:
    if _is_key(leaf):
        return jax.random.wrap_key_data(jnp.asarray(array))
    return jnp.asarray(array, dtype=leaf.dtype)


def _sha(*items: Any) -> str:
    digest = hashlib.sha256()
    for item in items:
        if isinstance(item, str):
            digest.update(item.encode())
        else:
            array = np.ascontiguousarray(item)
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(array)
    return digest.hexdigest()


def _short(value: str | None) -> str:
    return "nothing" if value is None else value if len(value) <= 60 else value[:12] + "..."
