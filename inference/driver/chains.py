"""The loop of a sampler: its compiled step over all chains, in chunks.

One compiled function runs up to ``limit`` steps inside a ``while_loop``; the limit is an argument, so that
any chunk length is the same executable and a run that was cut anywhere is bit for bit the run that was not.
Between chunks, and only there, the host looks at the clock, the objective, the progress bar, the checkpoint
and Ctrl-C. The key of iteration i of chain r is ``fold_in(fold_in(key, r), i)``.

A run may go on until its draws are believed: after every ``num_samples`` draws they are looked at, and two
looks in a row that pass end it. What is drawn does not depend on the looks, so that such a run is resumed as
any other; a limit in seconds decides at which look it stops and nothing else.

Several processes share the chains: each runs its own, one after another, by the program of
``chain_method="sequential"`` in one process with other bounds of its loop over chains, so that every chain is
the same bit for bit. What is recorded of a chunk is exchanged, so that all see the same and decide alike;
states and draws are, where they are saved, looked at or concluded from.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from inference.algorithm import ChainsRun, check_info, one_round
from inference.driver.checkpoint import AtMost, Checkpoint, Kept, Layout, slots_of
from inference.driver.host import CHUNK_CAPACITY, ChunkLength, Interrupt, resume, start_each, with_rows
from inference.driver.progress import beginning_with
from inference.numerics.compiled import compiled
from inference.numerics.weighted_rows import with_padding
from inference.processes import agreed, any_process, gathered_leaves, share_of
from zoo.model import Model

DRAW_BYTES = 2**26  # what a chunk's draws may take
FEW_SLOTS = 64  # that a state may always have, temperatures among them
PASSES = 2  # looks in a row that must pass


def sample(
    step: Callable,
    start: Callable,
    position: Callable,
    model: Model,
    data: tuple,
    *,
    keys: Array,
    variables: Mapping[str, np.ndarray] | None,
    num_chains: int,
    num_warmup: int,
    num_samples: int,
    thinning: int,
    chain_method: str,
    checkpoint: Checkpoint,
    open_bar: Callable,
    resize: Callable | None = None,
    slot_axes: tuple[tuple[str, int] | tuple[str, int, str], ...] = (),
    start_data: tuple | None = None,
    of_rows: tuple[str, ...] = (),
    rounds: Callable = one_round,
    max_looks: int = 1,
    max_seconds: float | None = None,
    look: Callable | None = None,
    status: Callable | None = None,
    loops: bool = False,
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
            or with no more than they need, at the end of each round of warm-up.
        slot_axes: with ``resize``, the paths of the leaves of the states that have slots, and the axis.
        start_data: what the starts are given instead of ``data``, which has copies beside its rows; None: the
            data.
        of_rows: the paths of the leaves of a state that have an axis over rows; outside the compiled steps
            they have as many as ``start_data``.
        rounds: ``rounds(num_warmup)``, the sweeps at which rounds of warm-up end, the last at its end.
        max_looks: with ``look``, the most times that ``num_samples`` draws are made.
        max_seconds: with ``look``, the seconds after which the next look is the last.
        look: ``look(draws, trace, num_sweeps) -> (passed, largest R-hat)`` of the draws so far, after every
            ``num_samples`` of them; None: ``num_samples`` draws are made and not looked at.
        status: ``status(draws, log_joint)``, a few words on the draws so far for the progress line.
        loops: of an `Algorithm`: whether ``"vectorized"`` chains take their steps in turn on a CPU.

    Raises:
        FloatingPointError: the log joint is not finite, and no chunk of draws was finished before.
    """
    begun, block = time.monotonic(), num_samples
    given = data if start_data is None else start_data
    num_rows, size = (with_padding(part[0]).shape[0] if of_rows else 0 for part in (given, data))
    most = num_warmup + block * max_looks * thinning if look is None else None
    states, stored = resume(
        *(checkpoint, partial(start_each, start), keys, variables, model, given),
        layout=partial(
            _layout, _over_chains(position, model), num_chains, num_warmup, thinning, most, slot_axes, given
        ),
    )
    num_samples = block * max_looks
    total = num_warmup + num_samples * thinning
    shapes = jax.eval_shape(_over_chains(position, model), states)
    kept = _restored_draws(shapes, block, stored)
    looks = [] if stored is None or "looks" not in stored else list(stored["looks"])
    spent = 0.0 if stored is None else float(stored.get("seconds", 0.0))
    trace = {} if stored is None else beginning_with("trace_", stored)
    chunks = [trace] if trace else []
    done = 0 if stored is None else int(stored["done"])
    draw_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    capacity = int(np.clip(DRAW_BYTES // max(draw_bytes, 1), 1, min(CHUNK_CAPACITY, block)))
    own = share_of(num_chains)  # all of them where there is one process
    several = own != slice(0, num_chains)
    run_chunk, ends = _chunk_of(chain_method, num_chains, own, loops), rounds(num_warmup)
    chunk, reason, longest = ChunkLength(), "completed", CHUNK_CAPACITY

    def draws_of_all(count: int) -> Any:
        first = jax.tree.map(lambda leaf: leaf[:, :count], kept)
        return gathered_leaves(first, own) if several else first

    def save() -> None:
        leaves = jax.tree.leaves(draws_of_all(_num_draws(done)))
        arrays = {f"draw_{i}": leaf for i, leaf in enumerate(leaves)}
        trace = {f"trace_{name}": values for name, values in _joined(chunks).items()}
        arrays |= trace | {"done": np.asarray(done)}
        if look is not None:
            seconds = np.asarray(spent + time.monotonic() - begun)
            arrays |= {"looks": np.reshape(looks, (-1, 3)), "seconds": seconds}
        checkpoint.save(gathered_leaves(states, own) if several else states, arrays)

    def resized(states: Any, full: bool) -> Any:
        of_all = gathered_leaves(states, own) if several else states
        return of_all if resize is None else resize(of_all, model, full)

    def _num_draws(sweeps: int) -> int:
        return _draws_after(sweeps, num_warmup, thinning)

    with Interrupt() as interrupt, open_bar(total, done) as bar:
        while done < total and not _believed(looks):
            if any_process(interrupt.requested) and (chunks or done):
                reason = "interrupted"
                break
            # a chunk ends where a round of warm-up does, and where the draws are looked at
            next_look = num_warmup + (_num_draws(done) // block + 1) * block * thinning
            stop = min((end for end in ends if end > done), default=min(total, next_look))
            limit = min(agreed(chunk.length), stop - done, longest, checkpoint.until_next(done))
            longest = CHUNK_CAPACITY
            if done >= num_warmup:
                limit = min(limit, (_num_draws(done) + capacity + 1) * thinning + num_warmup - 1 - done)
            with chunk:
                new_states, infos, draws = run_chunk(
                    (step, position, capacity),
                    with_rows(states, of_rows, size),
                    keys,
                    (own.start, own.stop),
                    done,
                    limit,
                    num_warmup,
                    thinning,
                    model,
                    data,
                )
                infos = {name: np.asarray(value)[:, :limit] for name, value in infos._asdict().items()}
            if several:
                infos = gathered_leaves(infos, own)
            if "full" in infos and (full := infos["full"].any(axis=0)).any():
                if full[0]:
                    states = resized(states, True)
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
            kept = _with_room(kept, after, block, num_samples)
            for target, new in zip(jax.tree.leaves(kept), jax.tree.leaves(draws), strict=True):
                own_part = (slice(None), slice(after - before), *map(slice, target.shape[2:]))
                target[:, before:after] = np.asarray(new)[own_part]
            chunks.append(infos)
            states, done = with_rows(new_states, of_rows, num_rows), done + limit
            if resize is not None and done in ends:
                states = resized(states, False)
            bar.update(limit)
            is_look = after > before and after % block == 0 and done == num_warmup + after * thinning
            if look is not None and is_look:
                passed, r_hat = look(draws_of_all(after), _joined(chunks), done)
                looks.append((after, float(passed), r_hat))
            if not getattr(bar, "disable", False):
                status = None if several else status  # of draws, which are not exchanged for it
                bar.set_postfix_str(
                    _phase(done, num_warmup, infos, kept, after, chunks, looks, status), refresh=False
                )
            if agreed(checkpoint.is_due()) or (done == num_warmup and checkpoint.path is not None):
                save()
            if is_look and max_seconds is not None:
                if agreed(spent + time.monotonic() - begun > max_seconds):
                    break
    if checkpoint.path is not None:
        save()
    if not chunks:
        raise FloatingPointError(reason)
    trace, num_draws = _joined(chunks), _num_draws(done)
    if num_draws == 0:  # stopped in warm-up: what there is is the state reached
        states = gathered_leaves(states, own) if several else states
        reached = jax.tree.map(lambda leaf: np.asarray(leaf)[:, None], _over_chains(position, model)(states))
        return ChainsRun(reached, trace, f"{reason} in warm-up", done)
    draws = draws_of_all(num_draws)
    return ChainsRun(draws, trace, reason, done, None if look is None else np.reshape(looks, (-1, 3)))


def _draws_after(sweeps: int, num_warmup: int, thinning: int) -> int:
    return max(sweeps - num_warmup, 0) // thinning


def _layout(
    positions: Callable,
    num_chains: int,
    num_warmup: int,
    thinning: int,
    most: int | None,
    slot_axes: tuple[tuple[str, int] | tuple[str, int, str], ...],
    data: tuple,
    template: Any,
) -> Layout:
    """The arrays of a checkpoint beside the states; ``most`` sweeps, None until the chains agree."""
    draws = jax.tree.leaves(jax.eval_shape(positions, template))
    room = None if most is None else _draws_after(most, num_warmup, thinning)
    arrays = {
        f"draw_{i}": Kept((num_chains, AtMost(room), *leaf.shape[1:]), leaf.dtype.kind)
        for i, leaf in enumerate(draws)
    }
    arrays |= {"trace_*": Kept((num_chains, AtMost(most))), "done": Kept((), "i")}
    if most is None:
        arrays |= {"looks": Kept((AtMost(None), 3), "f"), "seconds": Kept((), "f")}

    def contradiction(stored: Mapping[str, np.ndarray]) -> str:
        done = int(stored["done"])
        if done < 0 or (most is not None and done > most):
            return f"{done} sweeps were made of at most {most}"
        for name, values in stored.items():
            of_sweeps = done if name.startswith("trace_") else _draws_after(done, num_warmup, thinning)
            if name.startswith(("trace_", "draw_")) and values.shape[1] != of_sweeps:
                return f"{name} is of {values.shape[1]} sweeps or draws, and there were {of_sweeps}"
        return "it lacks trace_objective" if done and "trace_objective" not in stored else ""

    # twice as many as were full: of one row each, and one that is kept free
    slots, num_slots = slots_of(template, slot_axes)
    most_slots = max(num_slots, 4 * (data[0].shape[0] + 1), FEW_SLOTS) if slots else 0
    return Layout(arrays, contradiction, slots, most_slots)


def _believed(looks: list) -> bool:
    """Whether the last looks have passed."""
    return len(looks) >= PASSES and all(own[1] for own in looks[-PASSES:])


def _phase(
    done: int,
    num_warmup: int,
    infos: dict[str, np.ndarray],
    kept: Any,
    num_draws: int,
    chunks: list[dict[str, np.ndarray]],
    looks: list,
    status: Callable | None,
) -> str:
    """The words of the progress line: the phase, the log joint, and how far the chains agree."""
    log_joint = f"log joint {infos['objective'][:, -1].max():.6g}"
    if done < num_warmup:
        return f"warm-up, {log_joint}"
    words = [f"sampling, {log_joint}"]
    if status is not None:
        objective = np.concatenate([chunk["objective"] for chunk in chunks], axis=1)[:, num_warmup:]
        words.append(status(jax.tree.map(lambda leaf: leaf[:, :num_draws], kept), objective))
    if looks:
        words.append(f"largest R-hat at {int(looks[-1][0])} draws {looks[-1][2]:.3f}")
    return ", ".join(filter(None, words))


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
    own: tuple[Array, Array],
    done: Array,
    limit: Array,
    num_warmup: Array,
    thinning: Array,
    model: Model,
    data: tuple,
) -> tuple[Any, Any, Any]:
    """Run ``limit`` sweeps of every chain, or where chains run in turn of those from own[0] to own[1].

    Returns states, infos (num_chains, CHUNK_CAPACITY) and draws (num_chains, capacity, ...).
    """
    step, position, capacity = functions
    step = jax.jit(step)  # so that it is traced once, not once for its shapes and once for its body

    def sweep(iteration: Array, states: Any) -> tuple[Any, Any]:
        def one(key: Array, state: Any) -> tuple[Any, Any]:
            return step(jax.random.fold_in(key, iteration), state, model, *data)

        return over(one, keys, states, own)

    def body(carry: tuple) -> tuple:
        states, infos, draws, count = carry
        states, info = sweep(done + count, states)
        infos = jax.tree.map(lambda buffer, value: buffer.at[:, count].set(value), infos, info)
        sampled = done + count + 1 - num_warmup  # sweeps past warm-up, this one included
        before = jax.lax.div(jnp.maximum(done - num_warmup, 0), thinning)
        slot = jax.lax.div(sampled, thinning) - 1 - before  # where it is read, both are above zero
        kept = (sampled > 0) & (jax.lax.rem(sampled, thinning) == 0)
        slot = jnp.where(kept, slot, capacity)  # past the end: dropped
        values = _over_chains(position, model)(states)
        draws = jax.tree.map(lambda buffer, value: buffer.at[:, slot].set(value, mode="drop"), draws, values)
        return states, infos, draws, count + 1

    info_shapes = jax.eval_shape(sweep, done, states)[1]
    check_info(info_shapes)
    draw_shapes = jax.eval_shape(_over_chains(position, model), states)
    infos = jax.tree.map(lambda s: jnp.zeros((s.shape[0], CHUNK_CAPACITY), s.dtype), info_shapes)
    draws = jax.tree.map(lambda s: jnp.zeros((s.shape[0], capacity, *s.shape[1:]), s.dtype), draw_shapes)
    carry = (states, infos, draws, jnp.zeros((), int))
    states, infos, draws, _ = jax.lax.while_loop(lambda carry: carry[3] < limit, body, carry)
    return states, infos, draws


def _over_chains(position: Callable, model: Model) -> Callable:
    return jax.vmap(lambda state: position(state, model))


def _side_by_side(one: Callable, keys: Array, states: Any, own: tuple[Array, Array]) -> tuple[Any, Any]:
    return jax.vmap(one)(keys, states)


def _one_by_one(one: Callable, keys: Array, states: Any, own: tuple[Array, Array]) -> tuple[Any, Any]:
    """States and infos; the bounds are arguments, so that the program does not know how many chains run."""
    begin, end = own
    info_shapes = jax.eval_shape(one, keys[0], jax.tree.map(lambda leaf: leaf[0], states))[1]
    infos = jax.tree.map(lambda s: jnp.zeros((keys.shape[0], *s.shape), s.dtype), info_shapes)

    def body(number: Array, carry: tuple) -> tuple:
        state = jax.tree.map(lambda leaf: leaf[number], carry[0])
        return jax.tree.map(lambda leaf, new: leaf.at[number].set(new), carry, one(keys[number], state))

    return jax.lax.fori_loop(begin, end, body, (states, infos))


_vectorized = compiled(partial(_chunk, _side_by_side), repeats=True, static_argnums=0)
_sequential = compiled(partial(_chunk, _one_by_one), repeats=True, static_argnums=0)


@partial(compiled, repeats=True, static_argnums=0)
def _parallel(functions: tuple, states: Any, keys: Array, *rest: Any) -> Any:
    """Chains dealt out to the devices, vectorised on each; no device waits for another inside a chunk."""
    mesh = Mesh(np.array(jax.devices()), ("chain",))
    split, whole = PartitionSpec("chain"), PartitionSpec()
    return jax.shard_map(
        partial(_chunk, _side_by_side, functions),
        mesh=mesh,
        in_specs=(split, split, *[whole] * len(rest)),
        out_specs=split,
        check_vma=False,
    )(states, keys, *rest)


def _chunk_of(chain_method: str, num_chains: int, own: slice, loops: bool) -> Callable:
    if chain_method == "parallel":
        if num_chains % len(jax.devices()):
            raise ValueError(
                f"chain_method='parallel' distributes chains over devices: num_chains must be a multiple of "
                f"{len(jax.devices())}; got {num_chains}"
            )
        return _parallel
    in_turn = chain_method == "sequential" or (loops and jax.default_backend() == "cpu")
    return _sequential if in_turn else _vectorized


def _restored_draws(shapes: Any, num_samples: int, stored: dict | None) -> Any:
    """Host arrays for all draws, with those of a checkpoint filled in."""
    leaves, structure = jax.tree.flatten(shapes)
    if stored is not None:  # of a run until the chains agree there may be more
        num_samples = max(num_samples, stored["draw_0"].shape[1])
    kept = [np.zeros((s.shape[0], num_samples, *s.shape[1:]), s.dtype) for s in leaves]
    if stored is not None:
        for i, target in enumerate(kept):
            target[:, : stored[f"draw_{i}"].shape[1]] = stored[f"draw_{i}"]
    return jax.tree.unflatten(structure, kept)


def _with_room(kept: Any, num_draws: int, block: int, most: int) -> Any:
    """The host arrays with room for so many draws, made longer by as much again where they must be."""
    room = jax.tree.leaves(kept)[0].shape[1]
    if num_draws <= room:
        return kept
    room = min(most, -(-max(num_draws, 2 * room) // block) * block)
    return jax.tree.map(lambda leaf: np.concatenate([leaf, _nothing(leaf, room)], axis=1), kept)


def _nothing(leaf: np.ndarray, room: int) -> np.ndarray:
    return np.zeros((leaf.shape[0], room - leaf.shape[1], *leaf.shape[2:]), leaf.dtype)


def _joined(chunks: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The recorded values of all chunks, shape (num_chains, sweeps)."""
    names = chunks[0] if chunks else ()
    return {name: np.concatenate([chunk[name] for chunk in chunks], axis=1) for name in names}
