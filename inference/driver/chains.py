"""The loop of a sampler: its compiled step over all chains, in chunks.

One compiled function runs up to ``limit`` steps inside a ``while_loop``; the limit is an argument, so that
any chunk length is the same executable and a run that was cut anywhere is bit for bit the run that was not.
Between chunks, and only there, the host looks at the clock, the objective, the progress bar, the checkpoint
and Ctrl-C. The key of iteration i of chain r is ``fold_in(fold_in(key, r), i)``.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from inference.algorithm import ChainsRun
from inference.driver.checkpoint import Checkpoint
from inference.driver.host import CHUNK_CAPACITY, ChunkLength, Interrupt, resume, start_each
from inference.driver.progress import beginning_with
from inference.numerics.compiled import compiled

__all__ = ["sample"]

DRAW_BYTES = 2**26  # what a chunk's draws may take


def sample(
    step: Callable,
    start: Callable,
    position: Callable,
    model: Any,
    data: tuple,
    *,
    keys: Array,
    variables: Any,
    num_chains: int,
    num_warmup: int,
    num_samples: int,
    thinning: int,
    chain_method: str,
    checkpoint: Checkpoint,
    open_bar: Callable,
    resize: Callable | None = None,
) -> ChainsRun:
    """Run chains of a sampler: warm-up, then ``num_samples * thinning`` sweeps, every ``thinning``-th kept.

    Args:
        step: the sampler's step; its ``info.objective`` is the log joint.
        start: ``start(key, variables, model, *data) -> state`` of one chain.
        position: ``position(state, model)``, what is kept of a draw.
        model: passed to the step.
        data: passed to the step.
        keys: of the chains, shape (num_chains,).
        variables: what the starts are given, leaves with a leading axis over chains.
        num_chains: chains run side by side.
        num_warmup: sweeps that are not kept.
        num_samples: draws kept per chain.
        thinning: sweeps per kept draw.
        chain_method: ``"vectorized"`` (vmap), ``"sequential"`` (one after another, within each sweep) or
            ``"parallel"`` (over devices).
        checkpoint: where to save and resume.
        open_bar: ``open_bar(total, done)``, a context that is told of sweeps and shows them.
        resize: ``resize(states, model, full)``, for a sampler whose state has slots: the states of all chains
            with more of them when a sweep has said ``info.full`` (it is then made again from where it began),
            or with no more than they need, at the end of warm-up.

    Raises:
        FloatingPointError: the log joint is not finite, and no chunk of draws was finished before.
    """
    states, stored = resume(checkpoint, partial(start_each, start), keys, variables, model, data)
    total = num_warmup + num_samples * thinning
    shapes = jax.eval_shape(_over_chains(position, model), states)
    kept = _restored_draws(shapes, num_samples, stored)
    trace = {} if stored is None else beginning_with("trace_", stored)
    chunks = [trace] if trace else []
    done = 0 if stored is None else int(stored["done"])
    draw_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    capacity = int(np.clip(DRAW_BYTES // max(draw_bytes, 1), 1, min(CHUNK_CAPACITY, num_samples)))
    run_chunk = _chunk_of(chain_method, num_chains)
    chunk, reason, longest = ChunkLength(), "completed", CHUNK_CAPACITY

    def save() -> None:
        arrays = {f"draw_{i}": leaf[:, : _num_draws(done)] for i, leaf in enumerate(jax.tree.leaves(kept))}
        trace = {f"trace_{name}": values for name, values in _joined(chunks).items()}
        checkpoint.save(states, arrays | trace | {"done": np.asarray(done)})

    def _num_draws(sweeps: int) -> int:
        return max(sweeps - num_warmup, 0) // thinning

    with Interrupt() as interrupt, open_bar(total, done) as bar:
        while done < total:
            if interrupt.requested and (chunks or done):
                reason = "interrupted"
                break
            stop = num_warmup if done < num_warmup else total  # a chunk ends where warm-up does
            limit, longest = min(chunk.length, stop - done, longest), CHUNK_CAPACITY
            if done >= num_warmup:
                limit = min(limit, (_num_draws(done) + capacity + 1) * thinning + num_warmup - 1 - done)
            with chunk:
                new_states, infos, draws = run_chunk(
                    (step, position, capacity), states, keys, done, limit, num_warmup, thinning, model, data
                )
                infos = {name: np.asarray(value)[:, :limit] for name, value in infos._asdict().items()}
            if resize is not None and (full := infos["full"].any(axis=0)).any():
                if full[0]:
                    states = resize(states, model, True)
                else:
                    longest = int(full.argmax())  # sweeps before the one that ran out of slots
                continue
            bad = _impossible(infos["objective"], num_warmup - done)
            if bad.any():
                chain, sweep = np.argwhere(bad)[0]
                value = infos["objective"][chain, sweep]
                was = "not a number" if np.isnan(value) else "infinite" if value > 0 else "minus infinity"
                at = f"the log joint of chain {chain} was {was} at sweep {done + sweep}"
                reason = f"{at}; these are the draws before it"
                break
            before, after = _num_draws(done), _num_draws(done + limit)
            for target, new in zip(jax.tree.leaves(kept), jax.tree.leaves(draws), strict=True):
                target[:, before:after] = np.asarray(new)[:, : after - before]
            chunks.append(infos)
            states, done = new_states, done + limit
            if resize is not None and done == num_warmup:
                states = resize(states, model, False)
            bar.update(limit)
            log_joint = f"log joint {infos['objective'][:, -1].max():.6g}"
            bar.set_postfix_str("warm-up" if done < num_warmup else log_joint, refresh=False)
            if checkpoint.is_due() or done == num_warmup:
                save()
    save()
    if not chunks:
        raise FloatingPointError(reason)
    trace, num_draws = _joined(chunks), _num_draws(done)
    if num_draws == 0:  # stopped in warm-up: what there is is the state reached
        reached = jax.tree.map(lambda leaf: np.asarray(leaf)[:, None], _over_chains(position, model)(states))
        return ChainsRun(reached, trace, f"{reason} in warm-up", done)
    return ChainsRun(jax.tree.map(lambda leaf: leaf[:, :num_draws], kept), trace, reason, done)


def _impossible(log_joint: np.ndarray, warmup_left: int) -> np.ndarray:
    """Which sweeps (num_chains, sweeps) end where no chain can be.

    Minus infinity is a state of probability zero: given variables may start there, and warm-up leads away,
    but no draw may be there. Plus infinity and NaN come of overflow.
    """
    in_warmup = np.arange(log_joint.shape[1]) < warmup_left
    return ~(np.isfinite(log_joint) | (np.isneginf(log_joint) & in_warmup))


def _chunk(
    over: Callable,
    functions: tuple[Callable, Callable, int],
    states: Any,
    keys: Array,
    done: Array,
    limit: Array,
    num_warmup: Array,
    thinning: Array,
    model: Any,
    data: tuple,
) -> tuple[Any, Any, Any]:
    """Run ``limit`` sweeps of every chain.

    Returns states, infos (num_chains, CHUNK_CAPACITY) and draws (num_chains, capacity, ...).
    """
    step, position, capacity = functions
    step = jax.jit(step)  # so that it is traced once, not once for its shapes and once for its body

    def sweep(iteration: Array, states: Any) -> tuple[Any, Any]:
        every = over(lambda args: step(jax.random.fold_in(args[0], iteration), args[1], model, *data))
        return every((keys, states))

    def body(carry: tuple) -> tuple:
        states, infos, draws, count = carry
        states, info = sweep(done + count, states)
        infos = jax.tree.map(lambda buffer, value: buffer.at[:, count].set(value), infos, info)
        sampled = done + count + 1 - num_warmup  # sweeps past warm-up, this one included
        slot = sampled // thinning - 1 - jnp.maximum(done - num_warmup, 0) // thinning
        slot = jnp.where((sampled > 0) & (sampled % thinning == 0), slot, capacity)  # past the end: dropped
        values = _over_chains(position, model)(states)
        draws = jax.tree.map(lambda buffer, value: buffer.at[:, slot].set(value, mode="drop"), draws, values)
        return states, infos, draws, count + 1

    info_shapes = jax.eval_shape(sweep, done, states)[1]
    draw_shapes = jax.eval_shape(_over_chains(position, model), states)
    infos = jax.tree.map(lambda s: jnp.zeros((s.shape[0], CHUNK_CAPACITY), s.dtype), info_shapes)
    draws = jax.tree.map(lambda s: jnp.zeros((s.shape[0], capacity, *s.shape[1:]), s.dtype), draw_shapes)
    carry = (states, infos, draws, jnp.zeros((), int))
    states, infos, draws, _ = jax.lax.while_loop(lambda carry: carry[3] < limit, body, carry)
    return states, infos, draws


def _over_chains(position: Callable, model: Any) -> Callable:
    return jax.vmap(lambda state: position(state, model))


def _one_by_one(function: Callable) -> Callable:
    return partial(jax.lax.map, function)


_vectorized = compiled(partial(_chunk, jax.vmap), repeats=True, static_argnums=0)
_sequential = compiled(partial(_chunk, _one_by_one), repeats=True, static_argnums=0)


@partial(compiled, repeats=True, static_argnums=0)
def _parallel(functions: tuple, states: Any, keys: Array, *rest: Any) -> Any:
    """Chains dealt out to the devices, vectorised on each; no device waits for another inside a chunk."""
    mesh = Mesh(np.array(jax.devices()), ("chain",))
    split, whole = PartitionSpec("chain"), PartitionSpec()
    return jax.shard_map(
        partial(_chunk, jax.vmap, functions),
        mesh=mesh,
        in_specs=(split, split, *[whole] * len(rest)),
        out_specs=split,
        check_vma=False,
    )(states, keys, *rest)


def _chunk_of(chain_method: str, num_chains: int) -> Callable:
    if chain_method == "parallel":
        if num_chains % len(jax.devices()):
            raise ValueError(
                f"chain_method='parallel' deals chains out to devices: num_chains must be a multiple of "
                f"{len(jax.devices())}; got {num_chains}"
            )
        return _parallel
    return {"vectorized": _vectorized, "sequential": _sequential}[chain_method]


def _restored_draws(shapes: Any, num_samples: int, stored: dict | None) -> Any:
    """Host arrays for all draws, with those of a checkpoint filled in."""
    leaves, structure = jax.tree.flatten(shapes)
    kept = [np.zeros((s.shape[0], num_samples, *s.shape[1:]), s.dtype) for s in leaves]
    if stored is not None:
        for i, target in enumerate(kept):
            target[:, : stored[f"draw_{i}"].shape[1]] = stored[f"draw_{i}"]
    return jax.tree.unflatten(structure, kept)


def _joined(chunks: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The recorded values of all chunks, shape (num_chains, sweeps)."""
    names = chunks[0] if chunks else ()
    return {name: np.concatenate([chunk[name] for chunk in chunks], axis=1) for name in names}
