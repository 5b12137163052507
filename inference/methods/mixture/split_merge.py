r"""Split-merge moves for labels with weights and component parameters integrated out.

Two rows i and j are drawn, on three moves in four j as the nearest of eight rows: neighbouring clusters are
worth merging, and on heavy tails nearly twice as many moves are accepted as with any two rows. If i and j
share a component it is split, i and j on different sides; if not, their components are merged. Which side
each of the other rows S takes is drawn from its own two-point law, given by a *launch*: a short ascent of
variational Bayes for two components on S, a function of S, i, j and of random numbers that do not depend on
the labels, hence the same for a split and for the merge that undoes it (the launch state of Jain and Neal
2004, "A split-merge Markov chain Monte Carlo procedure for the Dirichlet process mixture model", made by an
ascent in the place of restricted Gibbs scans). A split is accepted with probability

.. math::
    \min\Big\{1, \frac{p(c^{\mathrm{split}})\, L_i L_j}{p(c)\, L_{ij}\, q}\Big\},

p the prior of the labels, L the evidence of a component, q the probability of the sides given the launch; a
merge with the reciprocal. All of it is matrix products over the rows: no row waits for another, as in the
sequential allocation of Dahl (2003), whose scan costs some ten times as much on a CPU and whose large splits
are accepted six times less often (measured on Old Faithful).

The ascent starts from made-up rows: a side begins with c of them, a share f of these spread as S is and the
others copies of its seed. A split into halves (c = 10, f = 0.6 on both sides) leads to a good one whatever
the shape of S; a small piece (c from 1 to 40 near i, all of S for j) finds the few rows around i. Which of
the two is tried is drawn first. Spread in proportion to S, the made-up rows take its shape: a seed alone
would begin with that of the prior, which covers all clusters, and nine in ten ascents then end elsewhere.

The component of the larger side keeps its label. The label of the other is drawn from its conditional among
the components without rows: under Dirichlet weights all are alike, under stick-breaking weights nearer sticks
are likelier, and for the Dirichlet process without truncation labels mean nothing and the first is taken. The
ratio has the sum over these labels, :math:`\sum_s p(c^{\mathrm{split}}_s)`, in both directions.

Of tables of more than 512 rows the ascent sees M = 256 rows of S, in equal steps through it from a place
drawn at random, each for the rows between. The law of the sides that it ends with is that of every row of S,
and the ratio is that of all rows, so the move stays exact; only where the sides lie is found from a sample. A
move costs three passes over the rows, O(N s) for s statistics of a row, and O(M s T) for T = 5 steps.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp

from inference.methods.gibbs_sweep import Move
from inference.methods.mixture.urn_statistics import statistics_for
from inference.numerics.weighted_rows import Rows
from zoo.conjugate.component_prior import ComponentPrior
from zoo.gamma_functions import gammaln
from zoo.mixture import Mixture
from zoo.shapes import Values

ASCENT_STEPS = 5
HALVES = 0.5  # the share of moves that try halves, not a small piece
HALF_ROWS, HALF_SPREAD = 10.0, 0.6
LAUNCH_ROWS = 256  # that the ascent sees where there are more than twice as many
NEAR, CANDIDATES = 0.75, 8  # the share of moves whose second row is the nearest of so many
GOLDEN = 0.6180339887498949  # turns by this fraction spread evenly, however many there are
PAIR_NUMBERS = 8  # uniform numbers of a move beside those for rows
PIECE_ROWS, PIECE_SPREAD = 40.0, 0.3  # the most made-up rows of a piece
SCANNED_ROWS = 64  # whose sides are drawn again row by row: those that the ascent leaves most in doubt


@cache
def split_merge(number: int) -> Move:
    """The block of a blocked sweep that makes ``number`` split-merge moves.

    Weights and parameters of the components must be drawn next: the old ones belong to the old labels.

    Args:
        number: moves in a sweep, at least 1.

    Returns:
        The move.
    """

    def apply(key: Array, values: Values, model: Mixture, x: Array) -> dict[str, Array]:
        alpha = values["concentration"] if model.has_random_concentration else model.concentration
        components, labels = model.components.with_hyperparameters(values), values["assignments"]
        log_prior = log_split_prior(model, jnp.asarray(alpha))
        labels, *_ = repeated(key, labels, x, components, model.num_components, log_prior, number)
        return {**values, "assignments": labels}

    return Move(apply)


def repeated(
    key: Array,
    labels: Array,
    x: Array | Rows,
    components: ComponentPrior,
    num_slots: int,
    log_prior: Callable,
    number: int,
) -> tuple[Array, Array, Array]:
    """Some moves one after another.

    Args:
        key: a JAX key.
        labels: of the rows, shape (num_observations,), from 0 to num_slots - 1; ``num_slots`` after the rows,
            where there is none.
        x: the rows.
        components: the prior of a component's parameters, numbers throughout.
        num_slots: labels that there are.
        log_prior: as of `split_or_merge`.
        number: how many moves.

    Returns:
        The labels, which moves were accepted, and before which no label was free, shapes (number,).
    """
    features, is_row = components.features(x), labels < num_slots
    urn = places = None
    if isinstance(features, Array):  # sparse rows have products only
        statistics = statistics_for(components)
        rows = statistics.rows(components, x)
        urn = rows, statistics.without_rows(components, rows, 2)
        spread = jnp.std(rows, axis=0, where=is_row[:, None])
        places = rows / jnp.where(spread > 0, spread, 1.0)

    def move(state: tuple[Array, Array], place: Array) -> tuple[tuple, tuple[Array, Array]]:
        parts = ((0, size), (num_rows, num_scanned), (width - PAIR_NUMBERS, PAIR_NUMBERS))
        own = [jax.lax.dynamic_slice(numbers, [place + begin], [length]) for begin, length in parts]
        uniforms = jnp.concatenate(own)
        pair = draw_pair(uniforms[-3:], num_rows, places)
        found = split_or_merge(uniforms[:-3], pair, *state, features, urn, components, log_prior)
        labels_now, counts, accepted = found
        return (labels_now, counts), (accepted, jnp.all(state[1] > 0))

    dtype, size, num_rows = jnp.result_type(float), labels.shape[0], jnp.sum(is_row)
    counts = jnp.sum(labels[:, None] == jnp.arange(num_slots), axis=0, dtype=dtype)
    num_scanned = min(SCANNED_ROWS, size)
    # in one call, since each takes a while to compile; what is beside the rows has no numbers of its own
    numbers = jax.random.uniform(key, (number * (size + num_scanned + PAIR_NUMBERS),), dtype)
    width = num_rows + jnp.minimum(SCANNED_ROWS, num_rows) + PAIR_NUMBERS
    (labels, _), (accepted, filled) = jax.lax.scan(move, (labels, counts), width * jnp.arange(number))
    return labels, accepted, filled


def draw_pair(uniforms: Array, num_rows: int, places: Array | None) -> tuple[Array, Array]:
    """Draw the two rows of a move, by a law that labels have no part in.

    Args:
        uniforms: three independent uniform numbers on [0, 1).
        num_rows: rows that there are.
        places: of the rows, shape (num_rows, num_coordinates); None: any two rows.

    Returns:
        Two rows.
    """
    of_i, of_j, of_nearness = uniforms
    i = jnp.minimum(jnp.floor(of_i * num_rows).astype(int), num_rows - 1)
    turned = (of_j + GOLDEN * jnp.arange(1 if places is None else CANDIDATES)) % 1.0
    others = (i + 1 + jnp.floor(turned * (num_rows - 1)).astype(int)) % num_rows
    if places is None:
        return i, others[0]
    nearest = jnp.argmin(jnp.sum((places[others] - places[i]) ** 2, axis=-1))
    return i, others[jnp.where(of_nearness < NEAR, nearest, 0)]


def split_or_merge(
    uniforms: Array,
    pair: tuple[Array, Array],
    labels: Array,
    counts: Array,
    features: Any,
    urn: tuple[Array, Any] | None,
    components: ComponentPrior,
    log_prior: Callable,
) -> tuple[Array, Array, Array]:
    """Propose one split or merge, and accept or refuse it.

    Args:
        uniforms: independent uniform numbers on [0, 1), one for each row, one for each row that is drawn
            again, at most `SCANNED_ROWS`, and five.
        pair: two rows.
        labels: of the rows, shape (num_observations,), from 0 to num_slots - 1.
        counts: rows per label, shape (num_slots,), as floats.
        features: of the rows, `ComponentPrior.features`.
        urn: the rows and the statistics of two empty clusters (`inference.methods.mixture.urn_statistics`),
            by which sides are drawn again row by row; None: they are not.
        components: the prior of a component's parameters, numbers throughout.
        log_prior: ``log_prior(merged, place, kept, left)``, as `log_split_prior` makes it.

    Returns:
        The labels, the rows per label, and whether they changed. A split needs a label that is free.
    """
    num_rows = labels.shape[0]
    dtype = uniforms.dtype
    of_kind, of_size, of_sample, of_slot, of_acceptance = uniforms[-5:]
    of_side, of_launch = uniforms[:num_rows], uniforms[num_rows:-5]
    i, j = pair
    splits = labels[i] == labels[j]
    member = ((labels == labels[i]) | (labels == labels[j])).astype(dtype)
    log_odds, total = launch(features, components, member, i, j, of_kind, of_size, of_sample)
    rows = jnp.arange(num_rows)  # comparisons, not scattered writes: each of those is a loop to compile
    is_i, is_seed = rows == i, (rows == i) | (rows == j)
    now_with_i = labels == labels[i]
    with_i = jnp.where(is_seed, is_i, jnp.where(splits, of_side < jax.nn.sigmoid(log_odds), now_with_i))
    free = jnp.where(is_seed, 0.0, member)
    log_q_by_row = free * log_sigmoid(jnp.where(with_i, log_odds, -log_odds))
    if urn is None:
        log_q = jnp.sum(log_q_by_row)
    else:
        certainty = jnp.where(free > 0, jnp.abs(log_odds), jnp.inf).astype(jnp.float32)  # sorted faster
        doubtful = jax.lax.top_k(-certainty, of_launch.shape[0])[1]
        number = doubtful.shape[0]
        place_in_scan = jnp.full(num_rows, number).at[doubtful].set(jnp.arange(number))
        again, seat = (place_in_scan < number) & (free > 0), jnp.minimum(place_in_scan, number - 1)
        log_q = jnp.sum(jnp.where(again, 0.0, log_q_by_row))
        at_launch = of_launch < jax.nn.sigmoid(log_odds[doubtful])
        begun = jnp.where(again, at_launch[seat], with_i)
        of_i_side = ((member * begun)[None] @ features)[0]
        sides = urn[1].holding(components, jnp.stack([of_i_side, total - of_i_side]))
        sizes = jnp.stack([of_i_side[0], total[0] - of_i_side[0]])
        scanned = (
            urn[0][doubtful],
            jnp.where(begun[doubtful], 0, 1),
            again[doubtful],
            jnp.where(splits, of_side[doubtful], jnp.where(now_with_i[doubtful], -jnp.inf, jnp.inf)),
        )
        drawn, log_q_of_scan = draw_sides(components, sides, sizes, scanned)
        with_i, log_q = jnp.where(again, (drawn == 0)[seat], with_i), log_q + log_q_of_scan

    of_i_side = ((member * with_i)[None] @ features)[0]
    evidence = components.log_evidence(jnp.stack([of_i_side, total - of_i_side, total]))
    sizes = jnp.stack([of_i_side[0], total[0] - of_i_side[0]])
    i_keeps = sizes[0] > sizes[1]
    kept, left = jnp.max(sizes), jnp.min(sizes)
    place, other = jnp.where(i_keeps, labels[i], labels[j]), jnp.where(i_keeps, labels[j], labels[i])
    slots = jnp.arange(counts.shape[0])
    merged = jnp.where(slots == place, total[0], jnp.where(slots == other, 0.0, counts))
    log_slots = log_prior(merged, place, kept, left)
    log_ratio = logsumexp(log_slots) + evidence[0] + evidence[1] - evidence[2] - log_q
    log_ratio = jnp.where(splits, log_ratio, -log_ratio)
    accepted = jnp.log(of_acceptance) < log_ratio

    upto = jnp.cumsum(jax.nn.softmax(log_slots))
    slot = jnp.sum(upto <= of_slot * upto[-1])
    leaves = (member > 0) & (with_i != i_keeps)
    moved = jnp.where(leaves, jnp.where(splits, slot, place), labels).astype(labels.dtype)
    split = jnp.where(slots == place, kept, jnp.where(slots == slot, left, merged))
    counts = jnp.where(accepted, jnp.where(splits, split, merged), counts)
    return jnp.where(accepted, moved, labels), counts, accepted


def draw_sides(components: ComponentPrior, sides: Any, sizes: Array, scanned: tuple) -> tuple[Array, Array]:
    """Draw rows' sides one after another, each given all others: a restricted Gibbs scan.

    Args:
        components: the prior of a component's parameters.
        sides: statistics of the two sides as they are launched.
        sizes: their numbers of rows, shape (2,).
        scanned: by row, what the statistics take of it, its side at the launch, whether it is drawn at all,
            and the number below the probability of side 0 at which it takes side 0.

    Returns:
        Sides, 0 or 1, and the log probability of all that were drawn.
    """
    both = jnp.arange(2)

    def visit(carry: tuple, item: tuple) -> tuple[tuple, tuple[Array, Array]]:
        sides, sizes = carry
        row, side, is_drawn, level = item
        others = sizes - ((both == side) & is_drawn)

        def choose(density: Array) -> tuple[Array, tuple[Array, Array]]:
            scores = jnp.log(others) + density
            advantage = scores[0] - scores[1]
            drawn = jnp.where(is_drawn, jnp.where(level < jax.nn.sigmoid(advantage), 0, 1), side)
            log_q = jnp.where(is_drawn, log_sigmoid(jnp.where(drawn == 0, advantage, -advantage)), 0.0)
            return both == drawn, (drawn, log_q)

        sides, told = sides.drawn_anew(components, side, row, choose)
        return (sides, others + ((both == told[0]) & is_drawn)), told

    _, (drawn, log_q) = jax.lax.scan(visit, (sides, sizes), scanned)
    return drawn, jnp.sum(log_q)


def log_sigmoid(x: Array) -> Array:
    """As `jax.nn.log_sigmoid`, in a third of its time."""
    return jnp.minimum(x, 0.0) - jnp.log1p(jnp.exp(-jnp.abs(x)))


def launch(
    features: Any,
    components: ComponentPrior,
    member: Array,
    i: Array,
    j: Array,
    of_kind: Array,
    of_size: Array,
    of_sample: Array,
) -> tuple[Array, Array]:
    """The law of the sides: log odds of the side of row i for every row, and the statistics of all members.

    Args:
        features: of the rows.
        components: the prior of a component's parameters.
        member: 1 for the rows to be shared out, 0 for the others, shape (num_observations,).
        i: a member.
        j: another one.
        of_kind: uniform on (0, 1), which decides between halves and a small piece.
        of_size: uniform on (0, 1), which decides the rows that a small piece begins with.
        of_sample: uniform on (0, 1), which decides the members that the ascent sees where there are many.

    Returns:
        Shapes (num_observations,) and (num_statistics,).
    """
    places = jnp.arange(member.shape[0])
    is_i, is_j = places == i, places == j
    of_rows = jnp.stack([is_i.astype(member.dtype), is_j.astype(member.dtype), member]) @ features
    seeds, total = of_rows[:2], of_rows[2]
    halves = of_kind < HALVES
    piece = jnp.exp(of_size * jnp.log(PIECE_ROWS))
    numbers = jnp.where(halves, HALF_ROWS, jnp.stack([piece, total[0]]))[:, None]
    spread = jnp.where(halves, HALF_SPREAD, jnp.array([PIECE_SPREAD, 1.0]))[:, None]
    sides = numbers * ((1 - spread) * seeds + spread * total / total[0])
    if isinstance(features, Array) and member.shape[0] > 2 * LAUNCH_ROWS:  # sparse rows have products only
        seen = features[spread_members(member, of_sample)]
        worth = jnp.full(LAUNCH_ROWS, (total[0] - 2) / LAUNCH_ROWS)
    else:
        seen, worth = features, jnp.where(is_i | is_j, 0.0, member)

    def log_odds_of(sides: Array, rows: Any) -> Array:
        coefficients = components.expected_coefficients(components.posterior(sides))
        scores = rows @ (coefficients[:1] - coefficients[1:]).T
        return scores[:, 0] + jnp.log(sides[0, 0]) - jnp.log(sides[1, 0])

    both = jnp.sum(seeds, axis=0) + (worth[None] @ seen)[0]

    def ascend(_: Array, sides: Array) -> Array:
        of_i_side = seeds[0] + ((worth * jax.nn.sigmoid(log_odds_of(sides, seen)))[None] @ seen)[0]
        return jnp.stack([of_i_side, both - of_i_side])

    return log_odds_of(jax.lax.fori_loop(0, ASCENT_STEPS, ascend, sides), features), total


def spread_members(member: Array, uniform: Array) -> Array:
    """Places of `LAUNCH_ROWS` members, in equal steps through all of them from a random one.

    Args:
        member: 1 for the rows to choose from, 0 for the others, shape (num_observations,); one at least.
        uniform: uniform on [0, 1).

    Returns:
        Shape (LAUNCH_ROWS,), rising; a member comes more than once where there are fewer.
    """
    upto = jnp.cumsum(member > 0)
    ranks = jnp.floor((jnp.arange(LAUNCH_ROWS) + uniform) * (upto[-1] / LAUNCH_ROWS))
    return jnp.searchsorted(upto, jnp.minimum(ranks, upto[-1] - 1), side="right")


def log_split_prior(model: Mixture, alpha: Array, *, truncated: bool = True) -> Callable:
    r"""The prior of labels that differ by a split, weights integrated out.

    Args:
        model: the mixture.
        alpha: the concentration.
        truncated: whether stick-breaking weights have as many sticks as the program has; otherwise they are
            those of the Dirichlet process, and labels mean nothing.

    Returns:
        ``log_prior(merged, place, kept, left)``: the log probability in nats, relative to that of rows per
            label ``merged``, of those in which ``left`` of the rows at ``place`` have gone to each label,
            shape (num_slots,); minus infinity at labels with rows. ``kept`` remain.
    """
    if not model.weights.has_sticks:
        share = alpha / model.num_components
        return lambda merged, place, kept, left: _alike(merged == 0, kept, left, share, -gammaln(share))
    if not truncated:

        def process(merged: Array, place: Array, kept: Array, left: Array) -> Array:
            empty = merged == 0
            first = empty & (jnp.cumsum(empty) == 1)
            return _alike(first, kept, left, jnp.zeros_like(alpha), jnp.log(alpha))

        return process

    num_sticks = model.weights.num_sticks

    def sticks(merged: Array, place: Array, kept: Array, left: Array) -> Array:
        number = merged.shape[0]
        slots = jnp.arange(number)

        def log_probability(counts: Array, own: Array, last: Array) -> Array:
            """Of rows per stick; with the log-gammas of one more than they, and of the rows on no stick."""
            beyond = jnp.cumsum(counts[..., ::-1], axis=-1)[..., ::-1]
            return jnp.sum((own - jnp.log(alpha + beyond))[..., :num_sticks], axis=-1) + last

        # the log-gammas of all counts that occur, gathered instead of computed for every label anew
        occurring = jnp.concatenate([merged, jnp.stack([kept, left])])
        own, rest = gammaln(1 + occurring), gammaln(alpha + occurring)

        def of(which: Array) -> Array:
            fixed = rest[which[..., -1]] if num_sticks < number else jnp.zeros(which.shape[:-1])
            return log_probability(occurring[which], own[which], fixed)

        split = jnp.where(slots == place, number, jnp.broadcast_to(slots, (number, number)))
        split = jnp.where(jnp.eye(number, dtype=bool), number + 1, split)
        return jnp.where(merged == 0, of(split) - of(slots), -jnp.inf)

    return sticks


def _alike(allowed: Array, kept: Array, left: Array, share: Array, constant: Array) -> Array:
    logs = gammaln(share + jnp.stack([kept, left, kept + left]))
    return jnp.where(allowed, logs[0] + logs[1] - logs[2] + constant, -jnp.inf)
