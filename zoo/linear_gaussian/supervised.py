r"""Inputs and outputs of SPPCA, two of each: what a program draws of them, and what follows given the inputs.

Inputs are cells, :math:`x = W_x z + \mu_x + \epsilon` (`Primal`), or rows in a feature space that are known
by their kernel values (`FeatureSpace`). Outputs are real numbers, :math:`y = W_y z + \mu_y + \epsilon`
(`Real`), or zeros and ones that utilities decide (`Probit`). They meet inputs through the latents alone, so
each of the former goes with each of the latter.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast, override

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro import deterministic, sample

from zoo.coordinates import by_part
from zoo.coordinates.of_models import field_by_part, part_sizes
from zoo.fields import facts_of, require
from zoo.kernels.gram import (
    FeatureRows,
    centred_cross,
    centred_diagonal,
    centred_matrix,
    feature_rows,
    given_latents,
)
from zoo.linear_gaussian.probit import DecidedOutputs, ProbitOutputs, ProbitOutputsGivenRows, carried_over
from zoo.linear_gaussian.rows import (
    RowsGivenOthers,
    ShiftedRows,
    flat,
    latents_covariance,
    latents_mean,
    linear_gaussian,
    log_density,
    reduced,
    shared_latents_covariance,
)
from zoo.model import in_current_precision
from zoo.programs import local
from zoo.shapes import Values
from zoo.sparse import SparseMatrix

if TYPE_CHECKING:
    from zoo.sppca import SPPCA


class BlockPrior(NamedTuple):
    """The proper prior of the inputs, or of the outputs.

    Attributes:
        loading_variance: of every loading, shape ().
        loc_mean: of the means, shape () or (columns,).
        loc_variance: of every mean, shape ().
        noise_concentration: of the noise variance, shape ().
        noise_rate: of the noise variance, shape (), or of each output, (num_outputs,) or (1,).
    """

    loading_variance: Array
    loc_mean: Array
    loc_variance: Array
    noise_concentration: Array
    noise_rate: Array


def block_prior(model: "SPPCA", block: str) -> BlockPrior:
    """The proper prior of one block of columns.

    Args:
        model: an SPPCA with ``loading_prior="gaussian"``.
        block: ``"x"`` or ``"y"``.

    Returns:
        Its numbers, in the current precision.
    """
    names = ("loading_variance", "loc_mean", "loc_variance", "noise_rate")
    require(model, *names)
    own, number = in_current_precision(model), model.data_names.index(block)
    found = {name: field_by_part(own, name)[number] for name in names}
    shape = own.noise_concentration, facts_of(own, "unit")["noise_rate"], part_sizes(own)
    return BlockPrior(**found, noise_concentration=by_part(*shape)[number])


class Block(NamedTuple):
    """Parameters of the columns of x or of y, or the priors of these.

    Attributes:
        loadings: W, shape (num_columns, num_latents).
        loc: mu, shape (num_columns,).
        noise_variance: shape () or (num_columns,).
    """

    loadings: Any
    loc: Any
    noise_variance: Any


def joint(model: "SPPCA", values: Values) -> Block:
    """Loadings, mean and noise variance of the columns of [x, y].

    Args:
        model: an SPPCA without a kernel; utilities of probit outputs have noise variance 1.
        values: of the sites.

    Returns:
        Shapes (M + L, K), (M + L,) and (M + L,).
    """
    return _joined(cast(Primal, model.inputs).block(values), model.outputs.block(values))


def _joined(*blocks: Block) -> Block:
    each = (Block(w, loc, jnp.broadcast_to(noise, loc.shape)) for w, loc, noise in blocks)
    return Block(*map(jnp.concatenate, zip(*each, strict=True)))


def _input_noise(model: "SPPCA", prior: dist.Distribution) -> dict[str, Array]:
    """The noise variance of x, given or drawn."""
    if model.noise_variance_x is None:
        return {"noise_variance_x": sample("noise_variance_x", prior)}
    return {"noise_variance_x": deterministic("noise_variance_x", jnp.asarray(model.noise_variance_x))}


@dataclass(frozen=True, eq=False)
class Inputs:
    """The inputs of a model.

    Attributes:
        model: an SPPCA.
    """

    model: Any

    def sample(self, prior: Block, num_rows: int) -> dict[str, Array]:
        """Draw the parameters.

        Args:
            prior: of these.
            num_rows: how many rows there are.

        Returns:
            Site to value, shapes as in ``dims``.

        Raises:
            NotImplementedError: of this base class, as all of these.
        """
        raise NotImplementedError

    def rows(self, values: Values, z: Array | None) -> dist.Distribution:
        """The inputs of rows.

        Args:
            values: of the sites.
            z: latents, shape (num_observations, num_latents), or None: summed out.

        Returns:
            Distribution with event shape (num_features,).
        """
        raise NotImplementedError

    def outputs(self, values: Values, x: Array | SparseMatrix, of_y: Block) -> dist.Distribution:
        """Real outputs given x, latents summed out.

        Args:
            values: of the sites.
            x: inputs, shape (num_observations, num_features), NaN where a cell is missing.
            of_y: the outputs' parameters.

        Returns:
            Distribution with batch shape (num_observations,) and event shape (num_outputs,).
        """
        raise NotImplementedError

    def latents(self, values: Values, x: Array | SparseMatrix) -> tuple[Array, Array]:
        """Mean and covariance of the latents of rows given x alone.

        Args:
            values: of the sites.
            x: inputs, as in `outputs`.

        Returns:
            Shapes (num_observations, num_latents) and (num_observations, num_latents, num_latents).
        """
        raise NotImplementedError

    def latents_with(
        self, values: Values, x: Array | SparseMatrix, y: Array, of_y: Block
    ) -> tuple[Array, Array]:
        """Mean and covariance of the latents of rows given x and real outputs.

        Args:
            values: of the sites.
            x: inputs, as in `outputs`.
            y: outputs, shape (num_observations, num_outputs), NaN where one is missing.
            of_y: the outputs' parameters.

        Returns:
            Shapes (num_observations, num_latents) and (num_observations, num_latents, num_latents).
        """
        raise NotImplementedError

    def log_density(
        self, values: Values, x: Array | SparseMatrix, y: Array | None = None, of_y: Block | None = None
    ) -> Array:
        """Log p(x), or log p(x, y) of real outputs, of each row over its observed cells.

        Args:
            values: of the sites.
            x: inputs, as in `outputs`.
            y: outputs, as in `latents_with`, or None.
            of_y: the outputs' parameters.

        Returns:
            Shape (num_observations,), in nats.
        """
        raise NotImplementedError


class Primal(Inputs):
    """Inputs that are cells: W z + mu + noise."""

    @override
    def sample(self, prior: Block, num_rows: int) -> dict[str, Array]:
        values = {"loadings_x": sample("loadings_x", prior.loadings), "loc_x": sample("loc_x", prior.loc)}
        return values | _input_noise(self.model, prior.noise_variance)

    def block(self, values: Values) -> Block:
        """The parameters of the columns.

        Args:
            values: of the sites.

        Returns:
            These, the noise variance of shape ().
        """
        return Block(values["loadings_x"], values["loc_x"], values["noise_variance_x"])

    @override
    def rows(self, values: Values, z: Array | None) -> dist.Distribution:
        return linear_gaussian(*self.block(values), z)

    @override
    def outputs(self, values: Values, x: Array | SparseMatrix, of_y: Block) -> dist.Distribution:
        return RowsGivenOthers(x, *_joined(self.block(values), of_y))

    @override
    def latents(self, values: Values, x: Array | SparseMatrix) -> tuple[Array, Array]:
        w, loc, noise = self.block(values)
        size = w.shape[1]

        def shared(x: Array) -> Array:
            return jnp.broadcast_to(shared_latents_covariance(w, noise), (x.shape[0], size, size))

        def by_row(x: Array) -> Array:
            return latents_covariance(x, w, noise)

        if isinstance(x, SparseMatrix):
            return latents_mean(x, w, loc, noise), by_row(x)
        return latents_mean(x, w, loc, noise), jax.lax.cond(jnp.any(jnp.isnan(x)), by_row, shared, x)

    @override
    def latents_with(
        self, values: Values, x: Array | SparseMatrix, y: Array, of_y: Block
    ) -> tuple[Array, Array]:
        rows, (loadings, loc, noise), _ = self._with(values, x, y, of_y)
        return latents_mean(rows, loadings, loc, noise), latents_covariance(rows, loadings, noise)

    @override
    def log_density(
        self, values: Values, x: Array | SparseMatrix, y: Array | None = None, of_y: Block | None = None
    ) -> Array:
        if y is None:
            return log_density(x, *self.block(values))
        rows, block, log_factor = self._with(values, x, y, of_y)
        return log_density(rows, *block) + log_factor

    def _with(
        self, values: Values, x: Array | SparseMatrix, y: Array, of_y: Block
    ) -> tuple[Array, Block, Array | float]:
        """Rows [x, y] and their columns' parameters, sparse x reduced, and a term of each log density."""
        own, log_factor = self.block(values), 0.0
        if isinstance(x, SparseMatrix):
            x, *parts, log_factor = reduced(x, *own)
            own = Block(*parts)
        return jnp.concatenate([x, y], axis=1), _joined(own, of_y), log_factor


class FeatureSpace(Inputs):
    """Inputs in a feature space, W = Phi' B, which are known by their kernel values alone and not drawn.

    If the values of the sites hold the stored arrays of a fit, rows are new ones, else the fitted ones; those
    of a precomputed kernel are its values with the fitted rows.
    """

    @override
    def sample(self, prior: Block, num_rows: int) -> dict[str, Array]:
        self.model.check_noise()
        values = {"coefficients": sample("coefficients", flat(num_rows, self.model.num_latents))}
        return values | _input_noise(self.model, prior.noise_variance)

    @override
    def rows(self, values: Values, z: Array | None) -> dist.Distribution:
        return _RowsInFeatureSpace(self.model, values, z)

    def at(self, values: Values, x: Array) -> FeatureRows:
        """Moments of the latents and log density of rows without their outputs.

        Args:
            values: of the sites.
            x: rows, shape (num_observations, num_features).

        Returns:
            These.
        """
        kernel, b = in_current_precision(self.model.kernel), values["coefficients"]
        space = b, values["noise_variance_x"], self.model.feature_dimension
        if "gram_means" not in values:
            return _fitted_in_feature_space(centred_matrix(kernel, x), *space)
        fitted = values["fitted_x"], values["gram_means"]
        cross = centred_cross(kernel, x, *fitted)
        itself = jnp.zeros(len(x)) if kernel.is_precomputed else centred_diagonal(kernel, x, *fitted)
        return feature_rows(cross, itself, values["gram_products"], *space)

    @override
    def outputs(self, values: Values, x: Array, of_y: Block) -> dist.Distribution:
        return _outputs_given(self.at(values, x), of_y)

    @override
    def latents(self, values: Values, x: Array) -> tuple[Array, Array]:
        rows = self.at(values, x)
        return rows.mean, jnp.broadcast_to(rows.covariance, (*rows.mean.shape, rows.mean.shape[1]))

    @override
    def latents_with(self, values: Values, x: Array, y: Array, of_y: Block) -> tuple[Array, Array]:
        rows = self.at(values, x)
        root = jnp.linalg.cholesky(rows.covariance)
        loadings, noise = of_y.loadings @ root, of_y.noise_variance
        moved = latents_mean(y - rows.mean @ of_y.loadings.T, loadings, of_y.loc, noise)
        return rows.mean + moved @ root.T, root @ latents_covariance(y, loadings, noise) @ root.T

    @override
    def log_density(
        self, values: Values, x: Array, y: Array | None = None, of_y: Block | None = None
    ) -> Array:
        rows = self.at(values, x)
        return rows.log_density if y is None else rows.log_density + _outputs_given(rows, of_y).log_prob(y)


def _outputs_given(rows: FeatureRows, of_y: Block) -> ShiftedRows:
    spread = of_y.loadings @ jnp.linalg.cholesky(rows.covariance)
    return ShiftedRows(rows.mean @ of_y.loadings.T, spread, of_y.loc, of_y.noise_variance)


def _fitted_in_feature_space(gram: Array, coefficients: Array, noise: Array, dimension: int) -> FeatureRows:
    return feature_rows(gram, jnp.diag(gram), gram @ coefficients, coefficients, noise, dimension)


class _RowsInFeatureSpace(dist.Distribution):
    """Fitted rows that are known by their kernel values with each other.

    Args:
        model: an SPPCA with a kernel.
        values: of the sites.
        latents: shape (num_observations, num_latents), or None: summed out.
    """

    support = dist.constraints.real_vector

    def __init__(self, model: "SPPCA", values: Values, latents: Array | None) -> None:
        self.model, self.latents = model, latents
        self.space = values["coefficients"], values["noise_variance_x"], model.feature_dimension
        super().__init__(self.space[0].shape[:1], (model.num_features,), validate_args=False)

    def log_prob(self, value: Array) -> Array:
        gram = centred_matrix(self.model.kernel, value)
        if self.latents is not None:
            return given_latents(self.latents, gram, jnp.diag(gram), *self.space)
        return _fitted_in_feature_space(gram, *self.space).log_density


@dataclass(frozen=True, eq=False)
class Outputs:
    """The outputs of a model.

    Attributes:
        model: an SPPCA.
    """

    model: Any

    @property
    def has_marginal(self) -> bool:
        """Whether the latents can be summed out of them."""
        return True

    def sample(self, prior: Block) -> dict[str, Array]:
        """Draw the parameters.

        Args:
            prior: of these.

        Returns:
            Site to value, shapes as in ``dims``.

        Raises:
            NotImplementedError: of this base class, as all of these.
        """
        raise NotImplementedError

    def block(self, values: Values) -> Block:
        """The parameters of the outputs, or of their utilities.

        Args:
            values: of the sites.

        Returns:
            These, a noise variance for each.
        """
        raise NotImplementedError

    def rows(
        self, values: Values, inputs: Inputs, x: Array, y: Array | None, z: Array | None
    ) -> dist.Distribution:
        """The outputs of rows.

        Args:
            values: of the sites.
            inputs: of the model.
            x: inputs, shape (num_observations, num_features).
            y: outputs, shape (num_observations, num_outputs), where they are known: which cells are missing.
            z: latents, shape (num_observations, num_latents), or None: given x, the latents summed out.

        Returns:
            Distribution with event shape (num_outputs,).
        """
        raise NotImplementedError


class Real(Outputs):
    """Outputs that are real numbers: W z + mu + noise."""

    @override
    def sample(self, prior: Block) -> dict[str, Array]:
        pairs = zip(("loadings_y", "loc_y", "noise_variance_y"), prior, strict=True)
        return {name: sample(name, own) for name, own in pairs}

    @override
    def block(self, values: Values) -> Block:
        noise = jnp.broadcast_to(values["noise_variance_y"], values["loc_y"].shape)
        return Block(values["loadings_y"], values["loc_y"], noise)

    @override
    def rows(
        self, values: Values, inputs: Inputs, x: Array, y: Array | None, z: Array | None
    ) -> dist.Distribution:
        block = self.block(values)
        return inputs.outputs(values, x, block) if z is None else linear_gaussian(*block, z)


class Probit(Outputs):
    """Outputs that are 0 or 1, or the columns of class labels, as their utilities decide."""

    @property
    def has_marginal(self) -> bool:
        """Where a row has one decision."""
        return self.model.num_outputs - self.model.is_classes == 1  # the last class follows from the others

    @override
    def sample(self, prior: Block) -> dict[str, Array]:
        return {"loadings_y": sample("loadings_y", prior.loadings), "loc_y": sample("loc_y", prior.loc)}

    @override
    def block(self, values: Values) -> Block:
        return Block(values["loadings_y"], values["loc_y"], jnp.ones_like(values["loc_y"]))

    @override
    def rows(
        self, values: Values, inputs: Inputs, x: Array, y: Array | None, z: Array | None
    ) -> dist.Distribution:
        """Outputs whose utilities are drawn where latents are; that of a missing one has no effect."""
        if z is None:
            return self.given_inputs(values, inputs, x)
        predictor = values["loc_y"] + z @ values["loadings_y"].T
        known = jnp.ones_like(predictor) if y is None else jnp.where(jnp.isnan(y), 0.0, 1.0)
        utilities = local("utilities", dist.Normal(predictor * known, 1.0).to_event(1))
        if utilities is None:
            return ProbitOutputs(predictor, self.model.is_classes)
        return DecidedOutputs(utilities, self.model.is_classes)

    def given_inputs(self, values: Values, inputs: Inputs, x: Array) -> ProbitOutputsGivenRows:
        """The outputs of rows given their x, latents summed out, as accurate as `zoo.linear_gaussian.probit`.

        Args:
            values: of the sites.
            inputs: of the model.
            x: inputs, shape (num_observations, num_features).

        Returns:
            Distribution with batch shape (num_observations,) and event shape (num_outputs,).
        """
        mean, covariance = inputs.latents(values, x)
        w, loc = values["loadings_y"], values["loc_y"]
        spread = carried_over(w, covariance)
        return ProbitOutputsGivenRows(loc + mean @ w.T, self.model.is_classes, spread)
