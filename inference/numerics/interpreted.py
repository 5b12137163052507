"""Traced programs run by NumPy: what runs once on little data costs less so than its compilation.

XLA takes two to four milliseconds to compile an operation, the first time that a person calls it; NumPy and
SciPy have theirs compiled already, and take microseconds for an operation on a small array. So a program
that runs once is traced as before, and its operations (the equations of the jaxpr) are then done one by one.
The results are those of the compiled program but for rounding.

Whether that pays is told from the sizes in the jaxpr, never timed: the same call always runs the same way.
A loop of unknown length counts as `ITERATIONS` of its body. A program with an operation that is not listed
here is compiled.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from jax.interpreters.partial_eval import dce_jaxpr
from jax.lax import GatherScatterMode
from scipy import linalg, special

from inference.numerics.weighted_rows import bucket

GENERATOR, KEYS = "threefry2x32", "key<fry>"  # JAX's default generator, and the type of its keys
COMPILED = 1.5e-3  # seconds that an operation may take here on average: half of its compilation, or less
FEWEST_DRAWS = 4096  # of gamma variables: fewer are drawn as so many
ITERATIONS = 100  # of a loop of unknown length: a search for a mode takes fewer
CALL, PRODUCT = 6e-6, 6e-10  # seconds of an operation on nothing, and of a product of two numbers
CELL, SLOW_CELL, SPECIAL_CELL = (
    1.5e-9,
    1.2e-8,
    7e-8,
)  # of a cell that is added, sorted, or given to special functions
ROTATIONS, PARITY = ((13, 15, 26, 6), (17, 29, 16, 24)), np.uint32(0x1BD11BDA)  # of the generator
DRAW, DRAWN_BY = 2e-6, 150  # of a gamma variable, and operations of its program


def evaluate(closed: ClosedJaxpr, arguments: Sequence[Any]) -> list[np.ndarray | Array]:
    """Do the operations of a program in NumPy.

    Args:
        closed: the program, of which `worth_compiling` is false.
        arguments: one for each of its inputs, arrays or numbers.

    Returns:
        Its results, which cannot be written to: some may be arguments, or held by the program.
    """
    with np.errstate(all="ignore"):
        held = [_held(value, aval) for value, aval in zip(arguments, closed.in_avals, strict=True)]
        found = _run(closed, held)
    kinds = (aval.dtype for aval in closed.out_avals)
    return [
        _fixed(value)
        if isinstance(kind, np.dtype)
        else jax.random.wrap_key_data(_words_of(value), impl=GENERATOR)
        for value, kind in zip(found, kinds, strict=True)
    ]


def _fixed(value: np.ndarray) -> np.ndarray:
    """A view that cannot be written to."""
    view = value.view()
    view.flags.writeable = False
    return view


def _held(value: Any, aval: Any) -> np.ndarray:
    """An argument as `_run` takes it: a key as one number of its two words."""
    if isinstance(aval.dtype, np.dtype):
        return np.asarray(value, aval.dtype)
    return _key_of(np.asarray(jax.random.key_data(value)))


def _key_of(words: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(words).view(np.uint64)[..., 0]


def _words_of(key: np.ndarray) -> np.ndarray:
    return np.array(key, order="C")[..., None].view(np.uint32)


def _type_of(aval: Any) -> np.dtype:
    return aval.dtype if isinstance(aval.dtype, np.dtype) else np.dtype(np.uint64)


@lru_cache(maxsize=256)
def worth_compiling(closed: ClosedJaxpr) -> bool:
    """Whether a program had better be compiled than be run by `evaluate`.

    Args:
        closed: the program.
    """
    try:
        _check_kinds(closed.in_avals)
        equations, seconds = _cost(_needed(closed.jaxpr))
    except NotImplementedError:
        return True
    return seconds > COMPILED * equations


def _run(closed: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
    """The results of a program whose arguments have its types."""
    plan = _planned(closed.jaxpr)
    values = [*map(np.asarray, closed.consts), *arguments, *plan.literals, *plan.room]
    for function, params, given, one, several in plan.operations:
        found = function(params, *[values[place] for place in given])
        if one is None:
            for (place, kind), value in zip(several, found, strict=True):
                values[place] = np.asarray(value, kind)
            continue
        place, kind = one
        values[place] = (
            found if found.__class__ is np.ndarray and found.dtype == kind else np.asarray(found, kind)
        )
    return [values[place] for place in plan.results]


class _Plan(NamedTuple):
    """A program whose values have places in one list: constants, arguments, literals, and what is computed.

    Attributes:
        literals: numbers that the program holds.
        room: as many as are computed.
        operations: of each its function, the fixed part of its arguments, the places of the others, and place
            and type of its one result, or else of its several results.
        results: places.
    """

    literals: list[np.ndarray]
    room: list[None]
    operations: list[tuple]
    results: list[int]


@lru_cache(maxsize=4096)
def _planned(jaxpr: Jaxpr) -> _Plan:
    """The places of a program's values, found once: a loop runs through them in every turn."""
    jaxpr = _needed(jaxpr)
    held = [place for equation in jaxpr.eqns for place in equation.invars] + list(jaxpr.outvars)
    literals = [place for place in held if isinstance(place, Literal)]
    of_literals = {id(place): place for place in literals}
    made = [place for equation in jaxpr.eqns for place in equation.outvars]
    order = [*jaxpr.constvars, *jaxpr.invars, *of_literals.values(), *made]
    places = {id(place): number for number, place in enumerate(order)}
    operations = []
    for equation in jaxpr.eqns:
        found = [(places[id(place)], _type_of(place.aval)) for place in equation.outvars]
        one = None if equation.primitive.multiple_results else found[0]
        given = [places[id(place)] for place in equation.invars]
        operations.append((_DONE[equation.primitive.name], equation.params, given, one, found))
    values = [np.asarray(place.val, _type_of(place.aval)) for place in of_literals.values()]
    return _Plan(values, [None] * len(made), operations, [places[id(place)] for place in jaxpr.outvars])


@lru_cache(maxsize=4096)
def _needed(jaxpr: Jaxpr) -> Jaxpr:
    """The program without what no result needs."""
    return dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars), instantiate=True)[0]


def _cost(jaxpr: Jaxpr) -> tuple[int, float]:
    """Number of operations of a program, each counted once, and the seconds that `evaluate` would take.

    Raises:
        NotImplementedError: it does not know an operation.
    """
    equations, seconds = 0, 0.0
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name not in _DONE or equation.effects or any(equation.params.get(p) for p in _NOT_DONE):
            raise NotImplementedError(name)
        _check_kinds(place.aval for place in equation.outvars)
        inner = [_cost(_needed(part)) for part in _parts(equation)]
        equations += 1 + sum(count for count, _ in inner) + DRAWN_BY * (name == "random_gamma")
        repeats = ITERATIONS if name == "while" else equation.params.get("length", 1)
        seconds += CALL + repeats * sum(spent for _, spent in inner)
        if not inner:
            seconds += _seconds(equation)
    return equations, seconds


def _check_kinds(avals: Iterable[Any]) -> None:
    """Raise NotImplementedError unless all keys are of JAX's default generator in its present form."""
    kinds = {str(aval.dtype) for aval in avals if not isinstance(aval.dtype, np.dtype)}
    if kinds and (kinds != {KEYS} or not jax.config.jax_threefry_partitionable):
        raise NotImplementedError(", ".join(kinds))


def _parts(equation: JaxprEqn) -> Iterator[Jaxpr]:
    """The programs that an operation runs."""
    if equation.primitive.name in _SCATTERED:  # whose program is one addition
        return
    for value in equation.params.values():
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, ClosedJaxpr):
                yield part.jaxpr


def _seconds(equation: JaxprEqn) -> float:
    """What the cells of an operation take."""
    name = equation.primitive.name
    cells = max(math.prod(place.aval.shape) for place in (*equation.invars, *equation.outvars))
    if name == "dot_general":
        (left, _), _ = equation.params["dimension_numbers"]
        summed = math.prod(equation.invars[0].aval.shape[dim] for dim in left)
        return PRODUCT * summed * math.prod(equation.outvars[0].aval.shape) + CELL * cells
    if name == "random_gamma":
        keys, concentration = (math.prod(place.aval.shape) for place in equation.invars)
        return DRAW * keys * max(concentration // max(keys, 1), FEWEST_DRAWS)
    if name in ("cholesky", "triangular_solve", "eigh", "svd", "qr", "lu"):
        return CELL * cells * equation.invars[0].aval.shape[-1]
    return cells * (
        CELL if name in _QUICK else SPECIAL_CELL if name in _SPECIAL or name in _RANDOM else SLOW_CELL
    )


def _integer_pow(params: dict, x: np.ndarray) -> Any:
    """By products, as XLA does."""
    exponent, found, power = abs(params["y"]), None, x
    while exponent:
        if exponent & 1:
            found = power if found is None else found * power
        exponent >>= 1
        power = power * power if exponent else power
    found = np.ones_like(x) if found is None else found
    return 1 / found if params["y"] < 0 else found


def _divided(params: dict, x: np.ndarray, y: np.ndarray) -> Any:
    if np.issubdtype(x.dtype, np.inexact):
        return x / y
    return np.abs(x) // np.abs(y) * np.sign(x) * np.sign(y)  # towards zero


def _select(params: dict, which: np.ndarray, *cases: np.ndarray) -> Any:
    if len(cases) == 2:
        return np.where(which, cases[1], cases[0])
    return np.select([which == number for number in range(len(cases))], cases)


def _broadcast(params: dict, x: np.ndarray) -> Any:
    shape = params["shape"]
    if x.ndim:
        aligned = [1] * len(shape)
        for dim, size in zip(params["broadcast_dimensions"], x.shape, strict=True):
            aligned[dim] = size
        x = x.reshape(aligned)
    found = np.empty(shape, x.dtype)  # in a third of the time of a view, where there are few cells
    found[...] = x
    return found


def _iota(params: dict) -> Any:
    shape, dim = params["shape"], params["dimension"]
    line = np.arange(shape[dim], dtype=params["dtype"])
    return np.broadcast_to(line.reshape([-1 if d == dim else 1 for d in range(len(shape))]), shape)


def _pad(params: dict, x: np.ndarray, value: Any) -> Any:
    config = params["padding_config"]
    spread = [max(size + inner * (size - 1), 0) for size, (_, _, inner) in zip(x.shape, config, strict=True)]
    found = np.full(spread, value, x.dtype)
    found[tuple(slice(None, None, inner + 1) for _, _, inner in config)] = x
    found = np.pad(found, [(max(low, 0), max(high, 0)) for low, high, _ in config], constant_values=value)
    cut = (
        (max(-low, 0), size + min(high, 0)) for (low, high, _), size in zip(config, found.shape, strict=True)
    )
    return found[tuple(slice(low, end) for low, end in cut)]


def _slice(params: dict, x: np.ndarray) -> Any:
    steps = params["strides"] or (1,) * x.ndim
    return x[tuple(map(slice, params["start_indices"], params["limit_indices"], steps))]


def _window(shape: tuple, sizes: Sequence[int], starts: Sequence[Any]) -> tuple[slice, ...]:
    """Where a window of a size lies, moved inside if it would not be."""
    begins = [int(np.clip(start, 0, n - size)) for n, size, start in zip(shape, sizes, starts, strict=True)]
    return tuple(slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=True))


def _updated(params: dict, x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> Any:
    found = np.array(x)
    found[_window(x.shape, update.shape, starts)] = update
    return found


def _product(params: dict, x: np.ndarray, y: np.ndarray) -> Any:
    """By `numpy.einsum`, in one thread: threads of BLAS take ten times as long for products this small."""
    summed, batch = params["dimension_numbers"]
    of_x, of_y = list(range(x.ndim)), list(range(x.ndim, x.ndim + y.ndim))
    for left, right in zip((*summed[0], *batch[0]), (*summed[1], *batch[1]), strict=True):
        of_y[right] = of_x[left]
    free = [
        [dim for k, dim in enumerate(of) if k not in (*a, *b)]
        for of, a, b in zip((of_x, of_y), summed, batch, strict=True)
    ]
    return np.einsum(x, of_x, y, of_y, [*batch[0], *free[0], *free[1]])


def _sort(params: dict, *operands: np.ndarray) -> list[Any]:
    dim, keys = params["dimension"], operands[: params["num_keys"]]
    order = np.lexsort(keys[::-1], axis=dim) if len(keys) > 1 else keys[0].argsort(axis=dim, kind="stable")
    return [np.take_along_axis(operand, order, dim) for operand in operands]


def _cumulative(ufunc: np.ufunc, params: dict, x: np.ndarray) -> Any:
    axis = params["axis"]
    x = np.flip(x, axis) if params["reverse"] else x
    found = ufunc.accumulate(x, axis=axis, dtype=x.dtype)
    return np.flip(found, axis) if params["reverse"] else found


def _reduced(ufunc: np.ufunc, start: np.ndarray, params: dict, x: np.ndarray) -> Any:
    at_least = start if ufunc.identity is None and x.size == 0 else None
    initial = {} if at_least is None else {"initial": at_least}
    return ufunc.reduce(x, axis=tuple(params["axes"]), dtype=x.dtype, **initial)


def _arg(find: Callable, params: dict, x: np.ndarray) -> Any:
    return find(x, axis=params["axes"][0])


def _places(
    shape: tuple, indices: np.ndarray, sizes: Sequence[int], window: Sequence[int], rank: int, dims: Any
) -> tuple[list[Any], Any]:
    """Index arrays along every dim of an array that is gathered from or scattered to, and which are inside.

    Args:
        shape: of the array.
        indices: starts of the windows, the last axis over the dims that they index.
        sizes: of a window.
        window: dims of the windows in the result (or the updates), in the order of those of the array.
        rank: of the result (or the updates).
        dims: the array's dims that are not in the result, those that are indexed, and those that run along
            with dims of the indices, which follow them.
    """
    dropped, indexed, along, along_indices = dims
    batch = [dim for dim in range(rank) if dim not in window]
    kept = [dim for dim in range(len(shape)) if dim not in (*dropped, *along)]

    def stretched(values: np.ndarray, at: Sequence[int]) -> Any:
        line = np.ones(rank, int)
        line[list(at)] = values.shape
        return values.reshape(line)

    found, inside = [], np.ones((1,) * rank, bool)
    for dim, (length, size) in enumerate(zip(shape, sizes, strict=True)):
        place = np.zeros((1,) * rank, np.int64)
        if dim in indexed:
            start = indices[..., list(indexed).index(dim)].astype(np.int64)
            inside = inside & stretched((start >= 0) & (start <= length - size), batch)
            place = stretched(np.clip(start, 0, length - size), batch)
        elif dim in along:
            place = stretched(np.arange(length), [batch[along_indices[list(along).index(dim)]]])
        if dim in kept:
            place = place + stretched(np.arange(size), [window[kept.index(dim)]])
        found.append(place)
    return found, inside


def _gather(params: dict, x: np.ndarray, indices: np.ndarray) -> Any:
    numbers, rank = (
        params["dimension_numbers"],
        indices.ndim - 1 + len(params["dimension_numbers"].offset_dims),
    )
    dims = (
        numbers.collapsed_slice_dims,
        numbers.start_index_map,
        numbers.operand_batching_dims,
        numbers.start_indices_batching_dims,
    )
    places, inside = _places(x.shape, indices, params["slice_sizes"], numbers.offset_dims, rank, dims)
    found = x[tuple(places)]
    if params["mode"] != GatherScatterMode.FILL_OR_DROP or inside.all():
        return found
    fill = params["fill_value"]
    if fill is None and np.issubdtype(x.dtype, np.inexact):
        fill = np.nan
    elif fill is None:
        fill = (
            True if x.dtype == bool else getattr(np.iinfo(x.dtype), "min" if x.dtype.kind == "i" else "max")
        )
    return np.where(inside, found, np.asarray(fill, x.dtype))


def _scattered(
    ufunc: np.ufunc | None, params: dict, x: np.ndarray, indices: np.ndarray, updates: np.ndarray
) -> Any:
    numbers = params["dimension_numbers"]
    gone = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    widths = iter(updates.shape[dim] for dim in numbers.update_window_dims)
    sizes = [1 if dim in gone else next(widths) for dim in range(x.ndim)]
    dims = (
        numbers.inserted_window_dims,
        numbers.scatter_dims_to_operand_dims,
        numbers.operand_batching_dims,
        numbers.scatter_indices_batching_dims,
    )
    places, inside = _places(x.shape, indices, sizes, numbers.update_window_dims, updates.ndim, dims)
    at = np.broadcast_to(sum(map(np.multiply, places, _strides(x.shape))), updates.shape)
    if params["mode"] == GatherScatterMode.FILL_OR_DROP and not inside.all():
        held = np.broadcast_to(inside, updates.shape)
        at, updates = at[held], updates[held]
    found = np.array(x, order="C")
    cells, at, updates = found.reshape(-1), at.reshape(-1), updates.reshape(-1)
    if ufunc is None:
        cells[at] = updates
    else:
        ufunc.at(cells, at, updates)  # of one dim, for which it has a fast loop
    return found


def _strides(shape: tuple[int, ...]) -> list[int]:
    """By how many places each dim of an array moves through its cells."""
    return [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]


def _matrices(function: Callable, *operands: np.ndarray) -> Any:
    """``function`` of matrices, NaN for those of which it has no answer."""
    try:
        return function(*operands)
    except np.linalg.LinAlgError:
        if operands[0].ndim == 2:
            return np.full_like(operands[-1], np.nan)
        return np.stack([_matrices(function, *of_one) for of_one in zip(*operands, strict=True)])


def _solved(params: dict, a: np.ndarray, b: np.ndarray) -> Any:
    """By substitution, as XLA does: what is zero for the triangle's sake is zero exactly."""
    if not params["left_side"]:
        a, b = np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2)
    lower = params["lower"] == params["left_side"]
    if params["transpose_a"]:
        a, lower = np.swapaxes(a, -1, -2), not lower
    size, found = a.shape[-1], np.empty_like(b)
    for row in range(size) if lower else reversed(range(size)):
        known = slice(0, row) if lower else slice(row + 1, size)
        rest = b[..., row, :] - (a[..., row, None, known] @ found[..., known, :])[..., 0, :]
        found[..., row, :] = rest if params["unit_diagonal"] else rest / a[..., row, row, None]
    return found if params["left_side"] else np.swapaxes(found, -1, -2)


def _factors(function: Callable, x: np.ndarray) -> list[Any]:
    """The factors of matrices, NaN for those that have none."""
    try:
        return list(function(x))
    except np.linalg.LinAlgError:
        if x.ndim == 2:
            return [np.full_like(factor, np.nan) for factor in function(np.zeros_like(x))]
        return list(map(np.stack, zip(*(_factors(function, one) for one in x), strict=True)))


def _eigh(params: dict, x: np.ndarray) -> list[Any]:
    return _factors(lambda x: np.linalg.eigh(x, "L" if params["lower"] else "U")[::-1], x)


def _svd(params: dict, x: np.ndarray) -> list[Any]:
    def factors(x: np.ndarray) -> tuple:
        if not params["compute_uv"]:
            return (np.linalg.svd(x, compute_uv=False),)
        left, lengths, right = np.linalg.svd(x, params["full_matrices"])
        return lengths, left, right

    return _factors(factors, x)


def _qr(params: dict, x: np.ndarray) -> list[Any]:
    return list(np.linalg.qr(x, "complete" if params["full_matrices"] else "reduced"))


def _lu(params: dict, x: np.ndarray) -> list[Any]:
    if x.ndim > 2:
        return list(map(np.stack, zip(*(_lu(params, one) for one in x), strict=True)))
    factors, pivots = linalg.lu_factor(x, check_finite=False)
    order = np.arange(len(x))
    for row, pivot in enumerate(pivots):
        order[[row, pivot]] = order[[pivot, row]]
    return [factors, pivots, order]


def _linear_solve(params: dict, *operands: np.ndarray) -> list[Any]:
    lengths = params["const_lengths"]
    begin, known = lengths.matvec + lengths.vecmat, sum(lengths)
    return _run(params["jaxprs"].solve, [*operands[begin : begin + lengths.solve], *operands[known:]])


def _platform(params: dict) -> Any:
    return next(n for n, names in enumerate(params["platforms"]) if names is None or "cpu" in names)


def _while(params: dict, *operands: np.ndarray) -> list[Any]:
    of_test, of_body = params["cond_nconsts"], params["body_nconsts"]
    for_test, for_body = operands[:of_test], operands[of_test : of_test + of_body]
    state = list(operands[of_test + of_body :])
    while (runs := _run(params["cond_jaxpr"], [*for_test, *state])[0]).any():
        after = _run(params["body_jaxpr"], [*for_body, *state])
        state = [  # under `jax.vmap` each of many stops by itself
            np.where(runs.reshape(runs.shape + (1,) * (old.ndim - runs.ndim)), new, old) if runs.ndim else new
            for old, new in zip(state, after, strict=True)
        ]
    return state


def _cond(params: dict, which: np.ndarray, *operands: np.ndarray) -> list[Any]:
    branches = params["branches"]
    return _run(branches[int(np.clip(which, 0, len(branches) - 1))], operands)


def _scan(params: dict, *operands: np.ndarray) -> list[Any]:
    fixed, carried = _kinds_of_operands(params)
    given, state, lines = (
        operands[:fixed],
        list(operands[fixed : fixed + carried]),
        operands[fixed + carried :],
    )
    closed, steps = params["jaxpr"], range(params["length"])
    if not steps:
        kinds = closed.out_avals[carried:]
        return [*state, *(np.zeros((0, *aval.shape), aval.dtype) for aval in kinds)]
    rows = []
    for step in reversed(steps) if params["reverse"] else steps:
        found = _run(closed, [*given, *state, *(line[step] for line in lines)])
        state, row = found[:carried], found[carried:]
        rows.append(row)
    rows = rows[::-1] if params["reverse"] else rows
    return [*state, *map(np.stack, zip(*rows, strict=True))]


def _kinds_of_operands(params: dict) -> tuple[int, int]:
    """How many operands of a scan all steps share, and how many it carries, in JAX before and since 0.10."""
    if "num_carry" in params:
        return params["num_consts"], params["num_carry"]
    fixed, carried, _ = map(len, params["ft_in"].unpack())
    return fixed, carried


def _rounded(params: dict, x: np.ndarray) -> Any:
    if int(params["rounding_method"]) == 1:  # to the nearest even
        return np.rint(x)
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _unsigned_shift(params: dict, x: np.ndarray, by: np.ndarray) -> Any:
    kind = f"u{x.dtype.itemsize}"
    return (x.view(kind) >> by.view(kind)).view(x.dtype)


def _enciphered(key: tuple[Any, Any], first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two words enciphered with two words of a key, all arrays of 32 bits that broadcast.

    Threefry-2x32, the block cipher of JAX's default generator (Salmon, Moraes, Dror and Shaw 2011, "Parallel
    random numbers: as easy as 1, 2, 3"): 20 rounds. A key's bits, its splits and ``fold_in`` encipher
    counters.
    """
    schedule = (key[0], key[1], key[0] ^ key[1] ^ PARITY)
    with np.errstate(over="ignore"):  # sums wrap
        first, second = first + schedule[0], second + schedule[1]
        for block in range(5):
            for rotation in ROTATIONS[block % 2]:
                first = first + second
                second = first ^ (second << np.uint32(rotation) | second >> np.uint32(32 - rotation))
            first = first + schedule[(block + 1) % 3]
            second = second + schedule[(block + 2) % 3] + np.uint32(block + 1)
    return first, second


def _drawn(keys: np.ndarray, shape: tuple) -> tuple[Any, Any]:
    """Two words for each key and each place of a shape: the numbers of the places, enciphered."""
    words = _words_of(keys).reshape(*keys.shape, *(1,) * len(shape), 2)
    count = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
    low, high = (part.astype(np.uint32) for part in (count, count >> np.uint64(32)))
    return _enciphered((words[..., 0], words[..., 1]), high, low)


def _bits(params: dict, keys: np.ndarray) -> Any:
    first, second = _drawn(keys, tuple(params["shape"]))
    if params["bit_width"] == 64:
        return first.astype(np.uint64) << np.uint64(32) | second
    return (first ^ second).astype(f"u{params['bit_width'] // 8}")


def _split(params: dict, keys: np.ndarray) -> Any:
    return _key_of(np.stack(_drawn(keys, tuple(params["shape"])), axis=-1))


def _seeded(params: dict, seed: np.ndarray) -> Any:
    wide = seed.astype(f"u{seed.dtype.itemsize}").astype(np.uint64)
    return _key_of(np.stack([wide >> np.uint64(32), wide], axis=-1).astype(np.uint32))


def _folded_in(params: dict, keys: np.ndarray, number: np.ndarray) -> Any:
    words, low = _words_of(keys), number.astype(np.uint32)
    return _key_of(np.stack(_enciphered((words[..., 0], words[..., 1]), np.zeros_like(low), low), axis=-1))


@partial(jax.jit, static_argnums=2, compiler_options={"xla_backend_optimization_level": 0})
def _gammas(key: Array, concentration: np.ndarray, in_logs: bool) -> Any:
    return (jax.random.loggamma if in_logs else jax.random.gamma)(key, concentration)


def _gamma_draws(params: dict, keys: np.ndarray, concentration: np.ndarray) -> Any:
    """By a program that many shapes share: a draw hangs on its key and place, not on how many there are."""
    of_keys = concentration.reshape(keys.size, -1)
    number = of_keys.shape[1]
    more = np.ones(bucket(number, FEWEST_DRAWS, number) - number, concentration.dtype)
    found = [
        _gammas(jax.random.wrap_key_data(words), np.concatenate([own, more]), params["log_space"])
        for words, own in zip(_words_of(keys).reshape(-1, 2), of_keys, strict=True)
    ]
    return np.stack([np.asarray(own)[:number] for own in found]).reshape(concentration.shape)


def _plain(function: Callable) -> Callable:
    return lambda params, *operands: function(*operands)


#: Operations that do one thing to each cell, and need no more than their operands.
_OF_CELLS = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "square": np.square,
    "sqrt": np.sqrt,
    "max": np.maximum,
    "min": np.minimum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "is_finite": np.isfinite,
    "floor": np.floor,
    "ceil": np.ceil,
    "exp": np.exp,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "copy": np.asarray,
    "stop_gradient": np.asarray,
}
_OF_CELLS_SLOWLY = {
    "rem": np.fmod,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "logistic": special.expit,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "atan2": np.arctan2,
    "tanh": np.tanh,
    "pow": np.power,
}
_SPECIAL = {
    "erf": special.erf,
    "erfc": special.erfc,
    "erf_inv": special.erfinv,
    "lgamma": special.gammaln,
    "digamma": special.psi,
    "igamma": special.gammainc,
    "igammac": special.gammaincc,
    "regularized_incomplete_beta": special.betainc,
}
_MOVED: dict[str, Callable] = {
    "broadcast_in_dim": _broadcast,
    "reshape": lambda params, x: x.reshape(params["new_sizes"]),
    "tile": lambda params, x: np.tile(x, params["reps"]),
    "squeeze": lambda params, x: x.squeeze(tuple(params["dimensions"])),
    "transpose": lambda params, x: x.transpose(params["permutation"]),
    "rev": lambda params, x: np.flip(x, params["dimensions"]),
    "slice": _slice,
    "dynamic_slice": lambda params, x, *starts: x[_window(x.shape, params["slice_sizes"], starts)],
    "dynamic_update_slice": _updated,
    "concatenate": lambda params, *parts: np.concatenate(parts, params["dimension"]),
    "stack": lambda params, *parts: np.stack(parts, params["axis"]),
    "unstack": lambda params, x: list(np.moveaxis(x, params["axis"], 0)),
    "split": lambda params, x: np.split(x, np.cumsum(params["sizes"])[:-1], params["axis"]),
    "pad": _pad,
    "iota": _iota,
    "convert_element_type": lambda params, x: x.astype(params["new_dtype"]),
    "bitcast_convert_type": lambda params, x: x.view(params["new_dtype"]),
    "optimization_barrier": lambda params, *operands: operands,
    "select_n": _select,
    "integer_pow": _integer_pow,
    "div": _divided,
    "shift_left": _plain(np.left_shift),
    "shift_right_arithmetic": _plain(np.right_shift),
    "shift_right_logical": _unsigned_shift,
    "round": _rounded,
    "reduce_sum": partial(_reduced, np.add, 0),
    "reduce_prod": partial(_reduced, np.multiply, 1),
    "reduce_max": partial(_reduced, np.maximum, -np.inf),
    "reduce_min": partial(_reduced, np.minimum, np.inf),
    "reduce_and": partial(_reduced, np.bitwise_and, True),
    "reduce_or": partial(_reduced, np.bitwise_or, False),
    "argmax": partial(_arg, np.argmax),
    "argmin": partial(_arg, np.argmin),
}
_SCATTERED: dict[str, Callable] = {
    "scatter": partial(_scattered, None),
    "scatter-add": partial(_scattered, np.add),
    "scatter-mul": partial(_scattered, np.multiply),
    "scatter-min": partial(_scattered, np.minimum),
    "scatter-max": partial(_scattered, np.maximum),
}
_OTHERS: dict[str, Callable] = {
    "cumsum": partial(_cumulative, np.add),
    "cumprod": partial(_cumulative, np.multiply),
    "cummax": partial(_cumulative, np.maximum),
    "cummin": partial(_cumulative, np.minimum),
    "cumlogsumexp": partial(_cumulative, np.logaddexp),
    "gather": _gather,
    "sort": _sort,
    "dot_general": _product,
    "cholesky": lambda params, x: _matrices(np.linalg.cholesky, x),
    "triangular_solve": _solved,
    "eigh": _eigh,
    "svd": _svd,
    "qr": _qr,
    "lu": _lu,
    "custom_linear_solve": _linear_solve,
    "platform_index": _platform,
    "jit": lambda params, *operands: _run(params["jaxpr"], operands),
    "custom_jvp_call": lambda params, *operands: _run(params["call_jaxpr"], operands),
    "custom_vjp_call": lambda params, *operands: _run(params["call_jaxpr"], operands),
    "custom_vmap_call": lambda params, *operands: _run(params["call"], operands),
    "cond": _cond,
    "scan": _scan,
    "while": _while,
}
_RANDOM: dict[str, Callable] = {
    "random_bits": _bits,
    "random_split": _split,
    "random_fold_in": _folded_in,
    "random_seed": _seeded,
    "random_wrap": lambda params, words: _key_of(words),
    "random_unwrap": lambda params, keys: _words_of(keys),
    "random_gamma": _gamma_draws,
}
_NOT_DONE = ("pivoting", "subset_by_index")  # ways to factor a matrix
_QUICK = {*_OF_CELLS, *_MOVED}
_DONE: dict[str, Callable] = {
    name: _plain(function) for name, function in (_OF_CELLS | _OF_CELLS_SLOWLY | _SPECIAL).items()
}
_DONE |= _MOVED | _SCATTERED | _OTHERS | _RANDOM
