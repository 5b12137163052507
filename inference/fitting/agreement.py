"""What processes that share a fit must have in common: the call, the columns, of a sampler the data."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from inference.algorithm import FitRequest, model_name
from inference.processes import gathered


def check_agreement(request: FitRequest) -> None:
    """Raise before anything is compiled unless every process has made the same call.

    Processes that share rows each pass rows of their own, with the same columns; those that share chains all
    pass the same data.

    Raises:
        ValueError: the calls differ (the message says in what), the same in every process.
    """
    if jax.process_count() == 1:
        return
    mine = {
        "model": model_name(request.model),
        "method": request.name,
        **request.told,
        **request.options,
        "init": request.strategy if request.variables is None else "given",
        "batch_size": request.batch_size,
        "seed": request.seed,
        "dtype": request.dtype,
        "keep": request.keep,
        "checkpoint": request.checkpoint is not None,
        "number of columns": [part.shape[1:] for part in request.data],
        "sample_weight": "given" if request.sample_weight is not None else None,
    }
    if not request.spreads_rows:
        mine["data (their SHA-256; processes that share chains all pass the same)"] = _sha(
            jax.tree.leaves((request.data, request.variables))
        )
    mine["hyperparameters (their SHA-256)"] = _sha(jax.tree.leaves(request.model))  # read off the data
    calls = [json.loads(str(part["call"])) for part in gathered(call=json.dumps(mine, default=str))]
    for number, other in enumerate(calls):
        for name in dict.fromkeys((*calls[0], *other)):  # in order: the cause before what follows from it
            first, second = calls[0].get(name), other.get(name)
            if first != second:
                raise ValueError(
                    f"the processes call fit with different {name}: {first!r} in process 0, {second!r} in "
                    f"process {number}"
                )


def combined(aspects: Mapping[str, str]) -> dict[str, str]:
    """The fingerprint of a run that several processes share, from that of each: the same in every process.

    Args:
        aspects: of this process (`inference.driver.checkpoint.fingerprint`).
    """
    if jax.process_count() == 1:
        return dict(aspects)
    every = [json.loads(str(part["aspects"])) for part in gathered(aspects=json.dumps(dict(aspects)))]

    def joined(values: list[str]) -> str:
        return values[0] if len(set(values)) == 1 else _sha(["\n".join(values).encode()])

    return {name: joined([one[name] for one in every]) for name in aspects}


def _sha(parts: list[Any]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, bytes):
            digest.update(part)
        else:
            array = np.ascontiguousarray(part)
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(array)
    return digest.hexdigest()
