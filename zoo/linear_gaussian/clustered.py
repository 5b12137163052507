r"""Rows W z + mu + noise whose latents z come from a mixture of Gaussians.

Given the cluster m the latents are :math:`z = m_m + R_m u` with :math:`u \sim N(0, I)` and
:math:`R_m R_m^T = \Lambda_m^{-1}`: the row is a linear-Gaussian one with loadings :math:`W R_m` and mean
:math:`\mu + W m_m`, whose densities and posteriors are those of `zoo.linear_gaussian.rows`.

Latents of mean 0 and covariance 1 are :math:`S^{-1/2}(z - E[z])`, S the covariance of z with the label summed
out; the loadings that go with them are :math:`W S^{1/2}`. The symmetric root turns with the latents.

Reference: Baek, McLachlan and Flack (2010), section 3.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Self, override

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import logsumexp

from zoo.answers import Answers, TypicalCells
from zoo.checks import shown
from zoo.conjugate.gaussian import GaussianWishart, symmetric_inverse
from zoo.dirichlet_process import compact_labels
from zoo.linear_gaussian import rows
from zoo.linear_gaussian.rows import linear_gaussian
from zoo.shapes import Covariances, PerRow, Rows, RowsByComponent, Scores, Values

if TYPE_CHECKING:
    from zoo.mcfa import MCFA


def unit_clusters(num_latents: int, mean_precision: Array, degrees_of_freedom: Array) -> GaussianWishart:
    """The default prior of Gaussian clusters of latents with mean zero and covariance one.

    Args:
        num_latents: K.
        mean_precision: beta0, the number of rows that the prior mean of a cluster is worth.
        degrees_of_freedom: nu0.

    Returns:
        The prior, under which ``beta0 * precisions`` have expectation one.
    """
    zeros, identity = np.zeros(num_latents), np.eye(num_latents)
    return GaussianWishart(zeros, 1.0, identity, float(num_latents), zeros).replaced(
        mean_precision=mean_precision,
        degrees_of_freedom=degrees_of_freedom,
        scale_matrix=identity / (mean_precision * degrees_of_freedom),
    )


def check_degrees(name: str, value: np.ndarray, model: "MCFA") -> None:
    """Raise ValueError unless the Wishart prior of the precisions of latents is proper.

    Args:
        name: of the field.
        value: degrees of freedom.
        model: with ``num_latents``.
    """
    least = model.num_latents - 1
    if not value > least:
        raise ValueError(
            f"{name} must exceed num_latents - 1 = {least} for the Wishart prior to be proper; "
            f"got {shown(value)}"
        )


LEAST_NOISE = 1e-3  # of a start, in mean variances of the columns


class ClusteredRows(dist.Distribution):
    """A row W z + mu + noise with label and latents summed out; missing cells are left out.

    Args:
        log_weights: of the clusters, shape (num_components,).
        locs: means of the latents, shape (num_components, num_latents).
        precisions: of the latents, shape (num_components, num_latents, num_latents).
        loadings: W, shape (num_features, num_latents).
        loc: shape (num_features,).
        noise_variance: shape (num_features,) or ().
    """

    support = dist.constraints.real_vector
    pytree_data_fields = ("log_weights", "locs", "precisions", "loadings", "loc", "noise_variance")

    def __init__(
        self,
        log_weights: Array,
        locs: Array,
        precisions: Array,
        loadings: Array,
        loc: Array,
        noise_variance: Array,
    ) -> None:
        self.log_weights, self.locs, self.precisions = log_weights, locs, precisions
        self.loadings, self.loc, self.noise_variance = loadings, loc, noise_variance
        super().__init__((), loc.shape, validate_args=False)

    @classmethod
    def of(cls, model: "MCFA", values: Values) -> Self:
        """The row at values of the sites.

        Args:
            model: with a ``mixture`` of the latents.
            values: of the sites, weights by their decays, fractions or themselves.

        Returns:
            The distribution.
        """
        names = ("locs", "precisions", "raw_loadings", "raw_loc", "noise_variance")
        return cls(model.mixture.weights.log_weights(values), *(values[name] for name in names))

    def given(self, latents: Array | None) -> dist.Distribution:
        """Rows given their latents.

        Args:
            latents: shape (num_observations, num_latents), or None: summed out.

        Returns:
            The distribution of every row, or of a row.
        """
        if latents is None:
            return self
        return linear_gaussian(self.loadings, self.loc, self.noise_variance, latents)

    @property
    def clusters(self) -> "_Clusters":
        """The rows of each cluster as linear-Gaussian ones."""
        roots = jnp.linalg.cholesky(symmetric_inverse(self.precisions))
        return _Clusters(roots, self.loadings @ roots, self.loc + self.locs @ self.loadings.T)

    @property
    def standard(self) -> "Standard":
        """Loadings and mean for latents of mean 0 and covariance 1, and the way to these."""
        shares = jax.nn.softmax(self.log_weights)
        mean = shares @ self.locs
        away = self.locs - mean
        each = symmetric_inverse(self.precisions) + away[:, :, None] * away[:, None, :]
        values, vectors = jnp.linalg.eigh(jnp.einsum("m,mij->ij", shares, each))
        root, inverse = ((vectors * values**power) @ vectors.T for power in (0.5, -0.5))
        return Standard(self.loadings @ root, self.loc + self.loadings @ mean, mean, inverse)

    def by_cluster(self, function: Callable, x: Rows) -> Any:
        """A function of `zoo.linear_gaussian.rows` under each cluster.

        Args:
            function: of rows, loadings, mean and noise variance.
            x: rows, shape (num_observations, num_features).

        Returns:
            What the function returns, a leading axis over clusters.
        """
        _, loadings, locs = self.clusters
        return jax.vmap(lambda w, mu: function(x, w, mu, self.noise_variance))(loadings, locs)

    def log_joint(self, x: Rows) -> RowsByComponent:
        """Log weight plus log density of each row under each cluster, in nats.

        Args:
            x: rows, NaN where a cell is missing.

        Returns:
            Shape (num_observations, num_components).
        """
        return self.by_cluster(rows.log_density, x).T + jax.nn.log_softmax(self.log_weights)

    def log_prob(self, value: Rows) -> PerRow:
        """Log density in nats over the observed cells; shape (num_observations,) for a matrix of rows."""
        flat = value.reshape(-1, value.shape[-1])
        return logsumexp(self.log_joint(flat), axis=-1).reshape(value.shape[:-1])

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of complete rows."""
        label_key, latent_key, noise_key = jax.random.split(key, 3)
        labels = jax.random.categorical(label_key, self.log_weights, shape=sample_shape)
        standard = jax.random.normal(latent_key, (*sample_shape, self.locs.shape[-1]))
        _, loadings, locs = self.clusters
        noise = jax.random.normal(noise_key, (*sample_shape, *self.loc.shape))
        mean = locs[labels] + jnp.einsum("...dk,...k->...d", loadings[labels], standard)
        return mean + jnp.sqrt(self.noise_variance) * noise


class Standard(NamedTuple):
    """A row in latents of mean 0 and covariance 1.

    Attributes:
        loadings: W S^1/2, shape (num_features, num_latents).
        loc: E[x], shape (num_features,).
        mean: E[z], shape (num_latents,).
        inverse: S^-1/2, shape (num_latents, num_latents).
    """

    loadings: Array
    loc: Array
    mean: Array
    inverse: Array

    def latents(self, raw: Array) -> Array:
        """Latents of mean 0 and covariance 1.

        Args:
            raw: those of the program, shape (..., num_latents).

        Returns:
            The same shape.
        """
        return (raw - self.mean) @ self.inverse


class _Clusters(NamedTuple):
    """Roots of the covariances of latents, loadings W R and means mu + W m, each with an axis of clusters."""

    roots: Array
    loadings: Array
    locs: Array


class ClusteredAnswers(Answers):
    """Of rows whose latents come from ``model.mixture``, with the sites of `zoo.MCFA`."""

    weighs_rows = True

    @override
    def log_rows(self, model: "MCFA", values: Values, x: Rows) -> PerRow:
        return ClusteredRows.of(model, values).log_prob(x)

    @override
    def conditionals(self, model: "MCFA", values: Values, x: Rows) -> dict[str, dist.Distribution]:
        """The labels, latents summed out; then the latents given ``values["assignments"]``."""
        row = ClusteredRows.of(model, values)
        found = {"assignments": dist.Categorical(logits=row.log_joint(x))}
        if "assignments" in values:
            found["raw_latents"] = _own_latents(row, x, values["assignments"])
        return found

    @override
    def start(self, model: "MCFA", key: Array, x: Rows) -> dict[str, Array]:
        """Principal components of unit variance, with clusters of half that spread at some of the rows."""
        (size, _), k, m = x.shape, model.num_latents, model.num_components
        loc = jnp.nanmean(x, axis=0)
        away = jnp.nan_to_num(x - loc)
        left, lengths, right = jnp.linalg.svd(away, full_matrices=False)
        latents, loadings = left[:, :k] * np.sqrt(size), right[:k].T * lengths[:k] / np.sqrt(size)
        left_over = jnp.mean((away - latents @ loadings.T) ** 2, axis=0) + LEAST_NOISE * jnp.mean(away**2)
        values = {
            "locs": latents[jax.random.choice(key, size, (m,), replace=m > size)],
            "precisions": jnp.broadcast_to(4.0 * jnp.eye(k), (m, k, k)),
            "raw_loadings": loadings,
            "raw_loc": loc,
            "noise_variance": left_over if model.noise == "diagonal" else jnp.mean(left_over),
        }
        weights = model.mixture.weights  # equal ones
        decays = -jnp.log1p(-1.0 / jnp.arange(m, 1.0, -1.0))
        values[weights.site] = decays if weights.has_sticks else jnp.full(m, 1.0 / m)
        if model.mixture.has_random_concentration:
            values["concentration"] = jnp.asarray(model.concentration.mean)
        if model.loading_prior == "ard":
            values["loading_precision"] = 1 / jnp.mean(loadings**2, axis=0)
        return values

    @override
    def derived(self, model: "MCFA", values: Values) -> dict[str, Array]:
        labels, num_occupied = compact_labels(values["assignments"], model.num_components)
        found = {"assignments": labels, "num_occupied": num_occupied}
        if "raw_latents" in values:
            found["latents"] = ClusteredRows.of(model, values).standard.latents(values["raw_latents"])
        return found

    @override
    def scores(self, model: "MCFA", values: Values, x: Rows, *, kind: str = "latent") -> Scores:
        """The mean of standard latents, or the completed row in the orthonormal basis L (L'L)^-1/2."""
        row = ClusteredRows.of(model, values)
        standard = row.standard
        if kind == "latent":
            shares, means = _latents(row, x)[:2]
            return standard.latents(jnp.einsum("nm,mnk->nk", shares, means))
        left, _, right = jnp.linalg.svd(standard.loadings, full_matrices=False)
        return (self.cells(model, values, x)[0] - standard.loc) @ (left @ right)

    @override
    def scores_covariance(self, model: "MCFA", values: Values, x: Rows) -> Covariances:
        row = ClusteredRows.of(model, values)
        shares, means, spreads = _latents(row, x)
        away = means - jnp.einsum("nm,mnk->nk", shares, means)
        raw = jnp.einsum("nm,mnij->nij", shares, spreads + away[..., :, None] * away[..., None, :])
        inverse = row.standard.inverse
        return inverse @ raw @ inverse

    @override
    def cells(self, model: "MCFA", values: Values, x: Rows) -> tuple[Rows, Rows]:
        row = ClusteredRows.of(model, values)
        shares = jax.nn.softmax(row.log_joint(x), axis=-1)
        means, variances = row.by_cluster(rows.completed, x)
        mean = jnp.where(jnp.isnan(x), jnp.einsum("nm,mnd->nd", shares, means), x)
        return mean, jnp.einsum("nm,mnd->nd", shares, variances + (means - mean) ** 2)

    @override
    def typical_cells(self, model: "MCFA", values: Values) -> tuple[TypicalCells, ...]:
        row = ClusteredRows.of(model, values)
        _, loadings, locs = row.clusters
        spread = jnp.sqrt(jnp.sum(loadings**2, axis=-1) + row.noise_variance)
        return (TypicalCells("mean", np.arange(model.num_features), locs, spread),)


def _latents(row: ClusteredRows, x: Rows) -> tuple[Array, Array, Array]:
    """Shares of the clusters in each row, and by cluster mean and covariance of the latents of each row."""
    roots, loadings, locs = row.clusters
    shares = jax.nn.softmax(row.log_joint(x), axis=-1)

    def of_cluster(root: Array, loadings: Array, loc: Array, mean: Array) -> tuple[Array, Array]:
        standard = rows.latents_mean(x, loadings, loc, row.noise_variance)
        return mean + standard @ root.T, root @ rows.latents_covariance(
            x, loadings, row.noise_variance
        ) @ root.T

    return shares, *jax.vmap(of_cluster)(roots, loadings, locs, row.locs)


def _own_latents(row: ClusteredRows, x: Rows, labels: Array) -> dist.Distribution:
    """The latents of rows given the cluster of each: precision Lambda + sum of w w' / psi."""
    seen = jnp.where(jnp.isnan(x), 0.0, 1.0) / row.noise_variance
    size = row.locs.shape[-1]
    outer = (row.loadings[:, :, None] * row.loadings[:, None, :]).reshape(-1, size**2)
    own = row.precisions[labels]
    precision = own + (seen @ outer).reshape(-1, size, size)
    pull = (own @ row.locs[labels][..., None])[..., 0] + (seen * jnp.nan_to_num(x - row.loc)) @ row.loadings
    mean = jnp.linalg.solve(precision, pull[..., None])[..., 0]
    return dist.MultivariateNormal(mean, precision_matrix=precision, validate_args=False)
