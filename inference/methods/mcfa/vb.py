r"""Variational Bayes for mixtures of factor analysers with common loadings.

The posterior is approximated by :math:`\prod_i q(c_i, z_i)` times the factors of both halves of the model,
those of VB for PPCA, :math:`q(W, \mu)\, q(\tau)\, q(\gamma)`, and for mixtures, :math:`q(\alpha)\, q(\pi)
\prod_m q(m_m, \Lambda_m)`. Labels and latents of a row are not factorised. With :math:`\langle\cdot\rangle`
the expectation under q and o the observed cells of row i,

.. math::
    q(z_i \mid m) &= N(S_{im} h_{im}, S_{im}), \quad
        S_{im}^{-1} = \sum_{d \in o} \langle \tau_d w_d w_d^T \rangle + \langle \Lambda_m \rangle, \quad
        h_{im} = \sum_{d \in o} \langle \tau_d w_d (x_{id} - \mu_d) \rangle + \langle \Lambda_m m_m \rangle \\
    q(c_i = m) &\propto \exp\{\langle \log \pi_m \rangle + \tfrac12 \langle \log |\Lambda_m| \rangle
        - \tfrac12 \langle m_m^T \Lambda_m m_m \rangle + \tfrac12 \log |S_{im}|
        + \tfrac12 h_{im}^T S_{im} h_{im}\} .

Given these the mixture sees rows z with expected statistics :math:`\sum_i q(c_i = m)\, \langle [1, z_i, z_i
z_i^T] \rangle_m`, and the columns see latents with expected moments: both are updated by the modules of the
two models. Clusters merge and die by the moves of the mixture.

The objective is the whole evidence lower bound in nats: that of the mixture with the entropy of
:math:`q(c, z)` in the place of that of labels, and the terms of the columns. With one cluster it is the bound
of a PPCA whose latents have an unknown mean and covariance. S is shared by rows that miss the same cells. A
step costs O(N D K + N M K^2) and O(P D K^2 + P M K^3) for P patterns of missing cells.
"""

from collections.abc import Generator
from functools import cache, partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import cho_solve

from inference.algorithm import Algorithm, Ascent, Init, Outcome, as_one_chain, starts_by_size
from inference.methods.linear_gaussian import em as linear_gaussian_em
from inference.methods.linear_gaussian import vb as linear_gaussian
from inference.methods.linear_gaussian.rows import CompressedRows
from inference.methods.linear_gaussian.vb import LatentMoments, LinearGaussianPosterior, Transformation
from inference.methods.mcfa import VB
from inference.methods.mixture import vb as mixture_vb
from inference.methods.mixture import vb_posterior as of_mixture
from inference.methods.mixture.starts import kmeans_labels
from inference.methods.mixture.vb_hyperparameters import initial_concentration
from inference.methods.mixture.vb_posterior import MixtureVBState
from inference.methods.ppca import em as of_ppca
from inference.methods.ppca.vb import MOMENTS
from inference.numerics.compiled import compiled
from inference.numerics.host_draws import generator, label_draws, site_draws
from inference.numerics.weighted_rows import row_limit, unweighted, weight_of
from zoo.answers import answer_of
from zoo.conjugate import GaussianWishart
from zoo.coordinates import Unit
from zoo.linear_gaussian.clustered import ClusteredRows
from zoo.mcfa import MCFA
from zoo.model import in_current_precision
from zoo.shapes import Values

NEEDED = 10  # starts: from single ones k-means in principal components may unite clusters
OF_NOISE = ("noise_precision_concentration", "noise_precision_rate")
OF_ARD = ("loading_precision_concentration", "loading_precision_rate")
DIMS = {
    "raw_loadings_mean": ("feature", "latent"),
    "raw_loadings_covariance": ("feature", "latent", "latent_2"),
    "raw_loadings_loc_covariance": ("feature", "latent"),
    "raw_loc_mean": ("feature",),
    "raw_loc_variance": ("feature",),
    **dict.fromkeys(OF_NOISE, ()),
    **dict.fromkeys(OF_ARD, ("latent",)),
    "components_loc": ("component", "latent"),
    "components_mean_precision": ("component",),
    "components_scale_matrix": ("component", "latent", "latent_2"),
    "components_degrees_of_freedom": ("component",),
    "weights_concentration": ("component",),
    "expected_weights": ("component",),
    "stick_fractions_concentration1": ("stick",),
    "stick_fractions_concentration0": ("stick",),
    "num_relevant": (),
}

FOLLOWING = ("responsibilities", "latents", "latents_covariance", "num_occupied", "num_relevant")


class Holes(NamedTuple):
    """Which cells rows have.

    Attributes:
        seen: the different patterns, one where observed, else zero, shape (num_patterns, num_features).
        place: the pattern of each row, shape (num_observations,).
    """

    seen: Array
    place: Array


class MCFAPosterior(NamedTuple):
    """The factors of q but labels and latents, which follow from them.

    Attributes:
        columns: q of loadings, mean, noise and ARD precisions, as of PPCA.
        mixture: q of weights and clusters, as of a mixture of the latents.
    """

    columns: LinearGaussianPosterior
    mixture: MixtureVBState


class MCFAInfo(NamedTuple):
    """Values recorded at every step.

    Attributes:
        objective: the evidence lower bound, in nats.
        num_occupied: clusters with more than half an expected row.
        noise_variance: 1 / E[tau], mean over the columns' groups.
        num_relevant: latents whose loadings are larger than their uncertainty.
    """

    objective: Array
    num_occupied: Array
    noise_variance: Array
    num_relevant: Array


class ColumnMoments(NamedTuple):
    """Expectations of the columns under q.

    Attributes:
        loadings: E[w], shape (num_features, num_latents).
        loc: E[mu], shape (num_features,).
        covariance: of [w, mu] of each column, shape (num_features, num_latents + 1, num_latents + 1).
        precision: E[tau] of each column, shape (num_features,).
    """

    loadings: Array
    loc: Array
    covariance: Array
    precision: Array


class RowFactors(NamedTuple):
    """The factor of labels and latents.

    Attributes:
        scores: log q(c_i = m) up to a term of each row, shape (num_observations, num_components).
        mean: of the latents given the label, shape (num_observations, num_components, num_latents).
        covariance: by pattern of missing cells, shape (num_patterns, num_components, K, K).
        place: the pattern of each row.
    """

    scores: Array
    mean: Array
    covariance: Array
    place: Array

    @property
    def shares(self) -> Array:
        """q(c_i = m)."""
        return jax.nn.softmax(self.scores, axis=-1)

    def marginal(self) -> tuple[Array, Array]:
        """Means and second moments of the latents, labels summed out, (N, K) and (N, K, K)."""
        first = jnp.einsum("nm,nmk->nk", self.shares, self.mean)
        second = jnp.einsum("nm,nmi,nmj->nij", self.shares, self.mean, self.mean)
        return first, second + jnp.einsum("nm,nmij->nij", self.shares, self.covariance[self.place])


# The local step


def update_rows(
    columns: ColumnMoments, state: MixtureVBState, model: MCFA, x: Array, holes: Holes
) -> RowFactors:
    """The optimal q of labels and latents of all rows, given the other factors."""
    k, mixture = model.num_latents, model.mixture
    coefficients = mixture.components.expected_coefficients(state.components)
    constant = coefficients[:, 0] + mixture.weights.expected_log_weights(state.weights)
    linear, precision = coefficients[:, 1 : k + 1], _matrices(coefficients[:, k + 1 :], k)
    outer = columns.loadings[:, :, None] * columns.loadings[:, None, :] + columns.covariance[:, :k, :k]
    seen = holes.seen * columns.precision
    own = (seen @ outer.reshape(-1, k**2)).reshape(-1, 1, k, k) + precision
    factor = jnp.linalg.cholesky(own)
    covariance = cho_solve((factor, True), jnp.broadcast_to(jnp.eye(k), own.shape))
    half_log_det = -jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
    pull = jnp.nan_to_num(x - columns.loc) * columns.precision @ columns.loadings
    pull -= (seen @ columns.covariance[:, :k, k])[holes.place]
    target = pull[:, None] + linear
    mean = jnp.einsum("nmij,nmj->nmi", covariance[holes.place], target)
    scores = constant + half_log_det[holes.place] + 0.5 * jnp.sum(target * mean, axis=-1)
    return RowFactors(scores, mean, covariance, holes.place)


def _matrices(quadratic: Array, size: int) -> Array:
    """Precisions whose quadratic form has these coefficients on the upper triangle of z z'."""
    row, column = np.triu_indices(size)
    upper = jnp.zeros((len(quadratic), size, size), quadratic.dtype).at[:, row, column].set(-quadratic)
    return upper + jnp.swapaxes(upper, -1, -2)


def statistics_of(local: RowFactors, weight: Array) -> tuple[Array, Array]:
    """Expected statistics of the latents by cluster, and the entropy of labels and latents in nats."""
    k, number = local.mean.shape[-1], len(local.covariance)
    shares = weight[:, None] * local.shares
    by_pattern = jax.ops.segment_sum(shares, local.place, number)
    spread = jnp.einsum("pm,pmij->mij", by_pattern, local.covariance)
    second = jnp.einsum("nm,nmi,nmj->mij", shares, local.mean, local.mean) + spread
    row, column = np.triu_indices(k)
    first = jnp.einsum("nm,nmk->mk", shares, local.mean)
    counts = jnp.sum(shares, axis=0)
    statistics = jnp.concatenate([counts[:, None], first, second[:, row, column]], axis=1)
    log_det = jnp.linalg.slogdet(local.covariance)[1] + k * (1 + np.log(2 * np.pi))
    entropy = jnp.sum(by_pattern * log_det) / 2 + weight @ jnp.sum(
        jax.scipy.special.entr(local.shares), axis=1
    )
    return statistics, entropy


def moments_of(
    local: RowFactors, weight: Array, x: Array, holes: Holes, rows: CompressedRows
) -> LatentMoments:
    """Moments of the latents as the columns see them."""
    first, second = local.marginal()
    k, first = first.shape[1], weight[:, None] * first
    whole = linear_gaussian_em.bordered(weight[:, None, None] * second, first, weight)
    by_pattern = jax.ops.segment_sum(whole.reshape(len(whole), -1), holes.place, len(holes.seen))
    by_class = holes.seen[:, rows.class_member].T @ by_pattern
    total = jnp.sum(whole, axis=0)
    return LatentMoments(
        second=by_class.reshape(-1, k + 1, k + 1),
        cross=jnp.nan_to_num(x - rows.centre).T @ first,
        total_second=total[:k, :k],
        total_first=total[:k, k],
        half_log_det=jnp.zeros(()),
    )


def transformation(
    columns: LinearGaussianPosterior, state: MixtureVBState, model: MCFA, rows: CompressedRows
) -> Transformation:
    """The transformation of the latents after which the priors of columns and clusters are about highest."""
    of_loadings, gram, with_loc = linear_gaussian.prior_pulls(columns, rows, of_ppca.prior_of(model, rows))
    q, counts = cast(GaussianWishart, state.components), state.statistics[:, 0]
    held = (counts > of_mixture.OCCUPIED).astype(counts.dtype)
    expected = q.degrees_of_freedom[:, None, None] * q.scale_matrix
    strength = model.mean_precision * counts / q.mean_precision
    pull = model.mean_precision * jnp.einsum("m,mij,mj->i", held, expected, q.loc)
    m = jnp.linalg.solve(gram + jnp.einsum("m,mij->ij", held * strength, expected), pull - with_loc)
    total = jnp.einsum("m,mij->ij", held, expected) * model.mean_precision * model.degrees_of_freedom
    number = jnp.sum(held) * model.degrees_of_freedom
    if model.loading_prior == "gaussian":
        total, number = total + of_loadings, number + len(columns.mean)
    values, vectors = jnp.linalg.eigh(total)
    lengths = jnp.sqrt(number / values)
    root, inverse = ((vectors * own) @ vectors.T for own in (lengths, 1 / lengths))
    if model.loading_prior == "ard":
        turn = jnp.linalg.eigh(root @ of_loadings @ root)[1]
        root, inverse = root @ turn, turn.T @ inverse
    return Transformation(root, inverse, jnp.sum(jnp.log(lengths)), m)


def transformed_sums(sums: mixture_vb.RowSums, by: Transformation) -> mixture_vb.RowSums:
    """Statistics and entropy of transformed latents."""
    k, statistics = len(by.m), sums.statistics
    count, first = statistics[:, 0], statistics[:, 1 : k + 1]
    row, column = np.triu_indices(k)
    second = jnp.zeros((len(count), k, k), count.dtype).at[:, row, column].set(statistics[:, k + 1 :])
    second = second.at[:, column, row].set(statistics[:, k + 1 :])
    away, cross = first - count[:, None] * by.m, first[:, :, None] * by.m
    second = second - cross - jnp.swapaxes(cross, 1, 2) + count[:, None, None] * jnp.outer(by.m, by.m)
    second = (by.inverse @ second @ by.inverse.T)[:, row, column]
    moved = jnp.concatenate([count[:, None], away @ by.inverse.T, second], axis=1)
    return mixture_vb.RowSums(moved, sums.entropy - jnp.sum(count) * by.log_det)


def columns_of(state: LinearGaussianPosterior, rows: CompressedRows) -> ColumnMoments:
    """The expectations that the local step reads, of the data's own columns."""
    precision = (state.noise_concentration / state.noise_rate)[rows.group]
    covariance = state.covariance[rows.column_class]
    return ColumnMoments(state.mean[:, :-1], state.mean[:, -1] + rows.centre, covariance, precision)


# The algorithm


def prepare(model: MCFA, data: tuple, init: Init, **options: object) -> tuple[Any, CompressedRows, Holes]:
    """The rows, their sums by column, and which cells they miss."""
    rows = of_ppca.dense_rows(model, data[0], rotate=model.loading_prior == "flat")
    patterns, place = np.unique(~np.isnan(unweighted(data[0])), axis=0, return_inverse=True)
    return data[0], rows, Holes(patterns.astype(float), place.ravel())


def completed(
    model: MCFA, x: Any, rows: CompressedRows | None = None, holes: Holes | None = None
) -> tuple[Array, Array, CompressedRows, Holes]:
    """Rows, weights, and what `prepare` made of them, or every row by itself."""
    cells = jnp.asarray(unweighted(x))
    own = Holes(jnp.where(jnp.isnan(cells), 0.0, 1.0), jnp.arange(len(cells))) if holes is None else holes
    return cells, weight_of(x), of_ppca.compressed_rows(model, x, rows), own


def init(key: Array, model: MCFA, *data: Any, strategy: str = "kmeans") -> MCFAPosterior:
    """Principal components, and clusters of their scores by k-means or at random."""
    x, weight, rows, _ = completed(model, *data)
    parameters = linear_gaussian_em.start_of("pca", key, rows, model.num_latents)
    columns = linear_gaussian.posterior_at(parameters, rows, of_ppca.prior_of(model, rows))
    own = columns_of(columns, rows)
    mean, covariance = linear_gaussian.latents_of(x, *own)
    if strategy == "kmeans":
        labels = kmeans_labels(key, mean, model.num_components, weight=weight)
    else:
        labels = jax.random.randint(key, x.shape[:1], 0, model.num_components)
    return _at_shares(jax.nn.one_hot(labels, model.num_components), columns, mean, covariance, weight, model)


def _at_shares(
    shares: Array,
    columns: LinearGaussianPosterior,
    mean: Array,
    covariance: Array,
    weight: Array,
    model: MCFA,
) -> MCFAPosterior:
    """The state whose mixture is optimal for shares of the clusters and moments of the latents."""
    shape = (*shares.shape, mean.shape[1])
    each = jnp.broadcast_to(mean[:, None], shape), jnp.broadcast_to(covariance[:, None], (*shape, shape[-1]))
    statistics, _ = statistics_of(RowFactors(jnp.log(shares), *each, jnp.arange(len(shares))), weight)
    mixture = model.mixture
    return MCFAPosterior(
        columns, of_mixture.from_statistics(statistics, initial_concentration(mixture), mixture)
    )


def start(key: Array, variables: Values, model: MCFA, *data: Any, **options: object) -> MCFAPosterior:
    """A former q, or principal components with given ``responsibilities`` or ``assignments``.

    Raises:
        ValueError: none of these is given, or not for every row.
    """
    x, weight, rows, holes = completed(model, *data)
    if "raw_loadings_mean" in variables:
        columns = _columns_from(variables, model, rows)
        mixture = of_mixture.q_from_variables(variables, model.mixture)
        local = update_rows(columns_of(columns, rows), mixture, model, x, holes)
        return MCFAPosterior(columns, mixture._replace(statistics=statistics_of(local, weight)[0]))
    if "responsibilities" not in variables and "assignments" not in variables:
        raise ValueError(
            f"init must hold 'responsibilities' or 'assignments'; got {', '.join(variables) or 'nothing'}"
        )
    shares = variables.get("responsibilities")
    if shares is None:
        shares = jax.nn.one_hot(variables["assignments"], model.num_components)
    if shares.shape != (shape := (x.shape[0], model.num_components)):
        raise ValueError(f"init: responsibilities must have shape {shape}; got {shares.shape}")
    begun = init(key, model, *data)
    moments = linear_gaussian.latents_of(x, *columns_of(begun.columns, rows))
    return _at_shares(jnp.asarray(shares, moments[0].dtype), begun.columns, *moments, weight, model)


def step(key: Array, state: MCFAPosterior, model: MCFA, *data: Any) -> tuple[MCFAPosterior, MCFAInfo]:
    """Update labels with latents, then the mixture, then the columns, and the bound; the key is ignored."""
    x, weight, rows, holes = completed(model, *data)
    local = update_rows(columns_of(state.columns, rows), state.mixture, model, x, holes)
    sums = mixture_vb.RowSums(*statistics_of(local, weight))
    mixture, info = mixture_vb.update_globals(state.mixture, sums, model.mixture, sort_sticks=True)
    moments, prior = moments_of(local, weight, x, holes, rows), of_ppca.prior_of(model, rows)
    columns, log_dets, terms = linear_gaussian.update_columns(state.columns, moments, rows, prior)
    by = transformation(columns, mixture, model, rows)
    moved, gain = linear_gaussian.transformed_columns(columns, log_dets, by, rows, prior)
    moved_mixture, moved_info = mixture_vb.update_globals(
        state.mixture, transformed_sums(sums, by), model.mixture, sort_sticks=True
    )
    better = moved_info.objective + gain > info.objective
    after, before = (
        (moved, moved_mixture, moved_info.objective + gain),
        (columns, mixture, info.objective),
    )
    columns, mixture, objective = jax.tree.map(partial(jnp.where, better), after, before)
    noise = jnp.mean(columns.noise_rate / columns.noise_concentration)
    relevant = linear_gaussian.num_relevant(columns, rows)
    return MCFAPosterior(columns, mixture), MCFAInfo(objective + terms, info.num_occupied, noise, relevant)


def propose(
    states: MCFAPosterior, asked: np.ndarray, model: MCFA, *, moves: tuple[str, ...]
) -> Generator[tuple[MCFAPosterior, np.ndarray], tuple[MCFAPosterior, np.ndarray], None]:
    """The states after merges and deletions that the mixture of the latents proposes."""
    proposals, answer = mixture_vb.propose(states.mixture, asked, model.mixture, moves=moves), None
    while True:
        try:
            proposed, tried = proposals.send(answer)
        except StopIteration:
            return
        states, taken = yield states._replace(mixture=proposed), tried
        answer = states.mixture, taken


ALGORITHM = Algorithm(init, step)


@cache
def build(strategy: str, moves: tuple[str, ...]) -> Algorithm:
    """The algorithm with a start strategy and moves."""
    proposing = partial(propose, moves=moves) if moves else None
    return Algorithm(partial(init, strategy=strategy), step, proposing)


def restarts(model: MCFA, data: tuple, **options: object) -> int:
    """Several starts where they are cheap."""
    size = data[0].shape[0] * model.num_latents
    return starts_by_size(NEEDED, size * (data[0].shape[1] + model.num_components * model.num_latents))


# The posterior in a fit


def units(model: MCFA) -> dict[str, Unit]:
    """How the moments of q follow the data; latents and clusters have no unit."""
    sites = model.units
    found = {f"raw_{name}": unit for name, unit in MOMENTS.items()}
    found |= {"noise_precision_rate": sites["noise_variance"]}
    if "loading_precision" in sites:
        found["loading_precision_rate"] = Unit(-sites["loading_precision"].power)
    return found


@partial(compiled, once=True)
def _stored(state: MCFAPosterior, model: MCFA, rows: CompressedRows) -> dict[str, Array]:
    """The parameters of q in their stored form."""
    columns, own = state.columns, columns_of(state.columns, rows)
    noise = columns.noise_concentration, columns.noise_rate
    if model.noise == "isotropic":
        noise = noise[0][0], noise[1][0]
    stored = of_mixture.variables(state.mixture, model.mixture) | {
        "raw_loadings_mean": own.loadings,
        "raw_loadings_covariance": own.covariance[:, :-1, :-1],
        "raw_loadings_loc_covariance": own.covariance[:, :-1, -1],
        "raw_loc_mean": own.loc,
        "raw_loc_variance": own.covariance[:, -1, -1],
        "num_relevant": linear_gaussian.num_relevant(columns, rows),
    }
    if model.loading_prior == "ard":
        stored |= dict(zip(OF_ARD, (columns.ard_concentration, columns.ard_rate), strict=True))
    return stored | dict(zip(OF_NOISE, noise, strict=True))


def _stored_columns(stored: Values) -> ColumnMoments:
    """The expectations of the columns under a stored q."""
    names = ("raw_loadings_covariance", "raw_loadings_loc_covariance", "raw_loc_variance")
    loc = stored["raw_loc_mean"]
    precision = jnp.broadcast_to(stored[OF_NOISE[0]] / stored[OF_NOISE[1]], loc.shape)
    covariance = linear_gaussian_em.bordered(*(jnp.asarray(stored[name]) for name in names))
    return ColumnMoments(stored["raw_loadings_mean"], loc, covariance, precision)


def _columns_from(stored: Values, model: MCFA, rows: CompressedRows) -> LinearGaussianPosterior:
    """Restore the factors of the columns, with one covariance for each class of columns."""
    own, ones = _stored_columns(stored), jnp.ones(model.num_latents)
    groups = (jnp.broadcast_to(stored[name], (rows.num_groups,)) for name in OF_NOISE)
    return LinearGaussianPosterior(
        jnp.concatenate([own.loadings, (own.loc - rows.centre)[:, None]], axis=1),
        own.covariance[rows.class_member],
        *groups,
        *(stored.get(name, ones) for name in OF_ARD),
    )


def local_rows(stored: Values, model: MCFA, x: Array) -> RowFactors:
    """Labels and latents of rows under a stored q, every row by itself."""
    state = of_mixture.q_from_variables(stored, model.mixture)
    holes = Holes(jnp.where(jnp.isnan(x), 0.0, 1.0), jnp.arange(len(x)))
    return update_rows(_stored_columns(stored), state, model, jnp.asarray(x), holes)


def point(stored: Values) -> dict[str, Array]:
    """The sites at their means under q, precisions at theirs, noise variances at 1 / E[tau]."""
    return {
        "weights": stored["expected_weights"],
        "locs": stored["components_loc"],
        "precisions": stored["components_degrees_of_freedom"][:, None, None]
        * stored["components_scale_matrix"],
        "raw_loadings": stored["raw_loadings_mean"],
        "raw_loc": stored["raw_loc_mean"],
        "noise_variance": stored[OF_NOISE[1]] / stored[OF_NOISE[0]],
    }


def latents(stored: Values, model: MCFA, x: Array) -> tuple[Array, Array, Array]:
    """Shares of the clusters, and means and covariances of standard latents, of rows under q."""
    local, standard = local_rows(stored, model, x), ClusteredRows.of(model, point(stored)).standard
    first, second = local.marginal()
    spread = second - first[:, :, None] * first[:, None, :]
    return local.shares, standard.latents(first), standard.inverse @ spread @ standard.inverse


def guide(
    stored: Values, model: MCFA, x: Array | None = None, *, num_observations: int | None = None
) -> None:
    """Run q as a NumPyro program with exactly the sites of ``model.explicit``.

    Args:
        stored: the parameters, as they are stored in a fit.
        model: the model.
        x: the rows whose labels and latents are drawn from q, shape (num_observations, num_features).
        num_observations: without ``x``: draw those of so many new rows from the weights and clusters.
    """
    stored, model = in_current_precision((dict(stored), model))
    stored = {name: numpyro.param(name, value) for name, value in stored.items() if name not in FOLLOWING}
    log_weights, clusters = _sample_globals(stored, model)
    if x is None:
        with numpyro.plate("observations", num_observations):
            labels = numpyro.sample("assignments", dist.Categorical(logits=log_weights))
            numpyro.sample("raw_latents", model.mixture.components.likelihood_of(clusters, labels))
        return
    local = local_rows(stored, model, x)
    with numpyro.plate("observations", len(x)):
        shares = dist.Categorical(probs=local.shares)
        labels = numpyro.sample("assignments", shares)
        place = jnp.arange(len(x))
        own = local.mean[place, labels], local.covariance[place, labels]
        numpyro.sample("raw_latents", dist.MultivariateNormal(*own, validate_args=False))


def _sample_globals(stored: Values, model: MCFA) -> tuple[Array, dict[str, Array]]:
    """Sample all but labels and latents from q; returned with log weights and parameters of the clusters."""
    mixture, own = model.mixture, _stored_columns(stored)
    state = of_mixture.q_from_variables(stored, mixture)
    if mixture.has_random_concentration:
        numpyro.sample("concentration", state.concentration)
    log_weights = mixture.weights.sample_posterior(state.weights)
    clusters = state.components.sample(model.num_components)
    if model.loading_prior == "ard":
        numpyro.sample("loading_precision", dist.Gamma(*(stored[name] for name in OF_ARD)).to_event(1))
    variance, cross = own.covariance[:, -1, -1], own.covariance[:, :-1, -1]
    loc = numpyro.sample("raw_loc", dist.Normal(own.loc, jnp.sqrt(variance)).to_event(1))
    slope = cross / variance[:, None]
    mean = own.loadings + slope * (loc - own.loc)[:, None]
    covariance = own.covariance[:, :-1, :-1] - slope[:, :, None] * cross[:, None, :]
    numpyro.sample("raw_loadings", dist.MultivariateNormal(mean, covariance, validate_args=False).to_event(1))
    noise = dist.InverseGamma(*(stored[name] for name in OF_NOISE))
    numpyro.sample("noise_variance", noise.to_event(jnp.ndim(stored[OF_NOISE[0]])))
    return log_weights, clusters


def conclude(
    key: Array,
    state: MCFAPosterior,
    model: MCFA,
    data: tuple,
    num_samples: int,
    keep_rows: bool,
    **options: object,
) -> Outcome:
    """Independent draws of q, with labels of the rows if ``keep_rows``, beside its parameters."""
    x, weight, rows, _ = completed(model, *data)
    stored, rng = _stored(state, model, rows), generator(key)
    shares, mean, covariance = _latents(stored, model, np.asarray(x))
    draws = site_draws(rng, _globals_alone, num_samples, stored, model)
    if keep_rows:
        draws |= answer_of(model, "derived", {"assignments": label_draws(rng, shares, num_samples)})
    of_rows = {"responsibilities": shares, "latents": mean, "latents_covariance": covariance}
    stored["num_occupied"] = jnp.sum(weight @ shares > of_mixture.OCCUPIED)
    stored |= {name: value for name, value in of_rows.items() if row_limit(8 * value.size, name, ())}
    dims = DIMS | (dict.fromkeys(OF_NOISE, ("feature",)) if model.noise == "diagonal" else {})
    return Outcome(posterior=as_one_chain(draws), variational=stored, dims=dims, densities={"objective": ()})


def _globals_alone(stored: Values, model: MCFA) -> None:
    _sample_globals(stored, model)


_latents = compiled(latents, once=True)


def transform(stored: Values, model: MCFA, x: Array, *, kind: str = "latent") -> Array:
    """E[z | x] of standard latents under q, or the model's orthonormal scores at the means of q."""
    return latents(stored, model, x)[1] if kind == "latent" else model.scores(point(stored), x, kind=kind)


METHOD = Ascent(
    settings=VB,
    strategies=("kmeans", "random"),
    restarts=restarts,
    takes=frozenset({"weights"}),
    build=build,
    start=start,
    prepare=prepare,
    conclude=conclude,
    guide=guide,
    transform=transform,
    covariance=lambda stored, model, x: latents(stored, model, x)[2],
    predict=lambda stored, model, x: model.predicted(point(stored), x),
    log_joint=lambda stored, model, x: local_rows(stored, model, x).scores,
    units=units,
    trace_units={"noise_variance": Unit(2)},
)
