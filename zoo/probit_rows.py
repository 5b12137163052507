r"""SPPCA with probit outputs: the rows of its program, and what it says of rows once parameters are known.

Generative process of a row: z ~ Normal(0, I), x as ever, utilities u = W_y z + mu_y + Normal(0, I), and y
what the utilities decide. There is no ``noise_variance_y``: the utilities' noise is 1. In the explicit form
the utilities are a site; those of missing outputs are N(0, 1) there, of no account, so that a sampler need
not carry them along. Otherwise they are summed out, and the latents too where a row has one decision (a
binary output, two classes); with several outputs or classes the latents stay in the program.

Given x the latents are N(m, S) and the utilities N(W m + b, W S W' + I). What is observed of y cuts the
utilities off (`zoo.probit_outputs.decisions`), so p(y | x) is the probability of a Gaussian orthant, exact
for one binary output or two classes and otherwise as accurate as `zoo.orthants` says. An output that is
missing beside observed ones has :math:`p(y_l = 1 \mid x, y_o) = p(y_l = 1, y_o \mid x) / p(y_o \mid x)`.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array

from zoo.linear_gaussian import (
    LinearGaussianRows,
    latents_covariance,
    latents_mean,
    log_density,
    shared_latents_covariance,
)
from zoo.orthants import log_orthant, orthant_moments
from zoo.probit_outputs import (
    DecidedOutputs,
    LatentsGivenDecisions,
    ProbitOutputs,
    ProbitOutputsGivenRows,
    decisions,
    num_decisions,
)

__all__ = ["PROBIT_METHODS", "ProbitRows", "sample_cells"]

PROBIT_METHODS = ("ep", "gibbs", "nuts", "hmc", "svi")
BLOCK_ROWS = 64  # rows whose nodes of integration are held at a time


class ProbitRows:
    """What of SPPCA is particular to probit outputs."""

    def _score_probit(
        self, values: dict[str, Array], num_rows: int, x: Array | None, y: Array | None
    ) -> tuple[Array, Array]:
        """The rows of the program."""
        w_x, loc_x, noise_x = values["loadings_x"], values["loc_x"], values["noise_variance_x"]
        with numpyro.plate("observations", num_rows):
            if x is not None and not self.draw_locals and self.sums_out_latents:
                x = numpyro.sample("x", LinearGaussianRows(w_x, loc_x, noise_x), obs=x)
                return x, numpyro.sample("y", self.outputs_given_inputs(values, x), obs=y)
            z = numpyro.sample("latents", dist.Normal(0.0, 1.0).expand([self.num_latents]).to_event(1))
            predictor = values["loc_y"] + z @ values["loadings_y"].T
            own = ProbitOutputs(predictor, self.is_classes)
            if self.draw_locals:
                known = jnp.ones_like(predictor) if y is None else jnp.where(jnp.isnan(y), 0.0, 1.0)
                utilities = numpyro.sample("utilities", dist.Normal(predictor * known, 1.0).to_event(1))
                own = DecidedOutputs(utilities, self.is_classes)
            x = sample_cells("x", loc_x + z @ w_x.T, noise_x, x)
            return x, numpyro.sample("y", own, obs=y)

    def _validate_probit(self) -> None:
        if self.kernel is not None:
            raise ValueError("probit outputs need x as it is: kernel=None, or output_likelihood='gaussian'")
        if self.label_coding == "reduced" and self.classes is not None and len(self.classes) > 2:
            raise ValueError(
                f"probit utilities need a column for each of the {len(self.classes)} classes: "
                f"label_coding='one_of_c'"
            )

    def _check_method(self, method: str) -> None:
        """Raise ValueError if a method does not go with the likelihood of the outputs or with the prior."""
        probit = self.output_likelihood == "probit"
        if probit and method not in PROBIT_METHODS:
            raise ValueError(
                f"method {method!r} is for output_likelihood='gaussian'; probit outputs have "
                f"{', '.join(PROBIT_METHODS)}"
            )
        if not probit and method == "ep":
            raise ValueError("method 'ep' is for output_likelihood='probit'; Gaussian outputs have 'em'")
        if method == "gibbs" and self.kernel is not None:
            raise ValueError("method 'gibbs' needs kernel=None, like every sampler")
        if self.loading_prior == "flat" and (method == "gibbs" or (probit and method != "ep")):
            raise ValueError(
                f"method {method!r} needs a proper prior: loading_prior='gaussian'; got loading_prior='flat'"
            )

    def auto_method(self, *data: Any) -> str:
        """EM; with probit outputs by expectation propagation.

        Args:
            *data: the tables; not read.

        Returns:
            ``"ep"`` or ``"em"``.
        """
        return "ep" if self.output_likelihood == "probit" else "em"

    @property
    def is_classes(self) -> bool:
        """Whether the outputs are the columns of class labels, of which one is 1."""
        return self.classes is not None and self.num_outputs == len(self.classes)

    @property
    def sums_out_latents(self) -> bool:
        """Whether the program sums the latents out of probit outputs: of one decision a row it can."""
        return num_decisions(self.num_outputs, self.is_classes) == 1

    @property
    def kept_locals(self) -> tuple[str, ...]:
        """Local latents that the program draws though `log_likelihood` has them integrated out."""
        keeps = self.output_likelihood == "probit" and not self.sums_out_latents
        return ("latents",) if keeps else ()

    def outputs_given_inputs(self, values: Mapping[str, Array], x: Array) -> ProbitOutputsGivenRows:
        """The outputs of rows given their x, latents summed out.

        Args:
            values: of the sites.
            x: inputs, shape (num_observations, num_features), NaN where a cell is missing.

        Returns:
            Distribution with batch shape (num_observations,) and event shape (num_outputs,).
        """
        mean, covariance = self.latents_given_inputs(values, x)
        w = values["loadings_y"]
        spread = jnp.einsum("li,nij,mj->nlm", w, covariance, w)
        return ProbitOutputsGivenRows(values["loc_y"] + mean @ w.T, self.is_classes, spread)

    def probit_latents(self, values: Mapping[str, Array], x: Array, y: Array) -> LatentsGivenDecisions:
        """The latents of rows given x and y, where a row has one decision.

        Args:
            values: of the sites.
            x: inputs, shape (num_observations, num_features), NaN where a cell is missing.
            y: outputs, shape (num_observations, num_outputs), NaN where one is missing.

        Returns:
            Distribution with batch shape (num_observations,) and event shape (num_latents,).
        """
        mean, covariance = self.latents_given_inputs(values, x)
        own = values["loadings_y"], values["loc_y"]
        return LatentsGivenDecisions(mean, covariance, *own, y, self.is_classes)

    def probit_log_likelihood(self, values: Mapping[str, Array], x: Array, y: Array | None) -> Array:
        """Log p(x), or log p(x, y), of each row over what is observed of it.

        Args:
            values: of the sites.
            x: inputs, as in `probit_latents`.
            y: outputs, as there, or None.

        Returns:
            Shape (num_observations,), in nats.
        """
        own = values["loadings_x"], values["loc_x"], values["noise_variance_x"]
        inputs = log_density(x, *own)
        return inputs if y is None else inputs + self.outputs_given_inputs(values, x).log_prob(y)

    def probit_latents_moments(self, values: Mapping[str, Array], x: Array, y: Array) -> tuple[Array, Array]:
        """Posterior mean and covariance of the latents of rows, given their outputs too.

        Args:
            values: of the sites.
            x: inputs, as in `probit_latents`.
            y: outputs, as there.

        Returns:
            Shapes (num_observations, num_latents) and (num_observations, num_latents, num_latents).
        """
        mean, covariance = self.latents_given_inputs(values, x)
        w, loc = values["loadings_y"], values["loc_y"]

        def one(row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            outputs, m, s = row
            centre, spread, contrast = decisions(outputs, loc + w @ m, w @ s @ w.T, self.is_classes)
            cut = orthant_moments(centre, spread)
            gain = jnp.linalg.solve(spread, contrast @ w @ s).T
            return m + gain @ (cut.mean - centre), s + gain @ (cut.covariance - spread) @ gain.T

        return jax.lax.map(one, (y, mean, covariance), batch_size=BLOCK_ROWS)

    def probit_probabilities(self, values: Mapping[str, Array], x: Array, y: Array | None) -> Array:
        """P(output = 1) given x and what is observed of y, which stays what it is.

        Args:
            values: of the sites.
            x: inputs, as in `probit_latents`.
            y: outputs, as there, or None.

        Returns:
            Shape (num_observations, num_outputs).
        """
        given = self.outputs_given_inputs(values, x)
        size = given.predictor.shape[1]
        known = jnp.full(given.predictor.shape, jnp.nan) if y is None else y
        tried = jnp.eye(size) if self.is_classes else jnp.where(jnp.eye(size, dtype=bool), 1.0, jnp.nan)

        def one(row: tuple[Array, Array, Array]) -> Array:
            outputs, predictor, spread = row

            def log_probability(outputs: Array) -> Array:
                return log_orthant(*decisions(outputs, predictor, spread, self.is_classes)[:2])

            logs = jax.vmap(log_probability)(jnp.where(jnp.isnan(tried), outputs, tried))
            if self.is_classes:
                return jax.nn.softmax(logs)
            return jnp.minimum(jnp.exp(logs - log_probability(outputs)), 1.0)

        rows = (known, given.predictor, given.covariance)
        shares = jax.lax.map(one, rows, batch_size=BLOCK_ROWS)
        return jnp.where(jnp.isnan(known), shares, known)

    def latents_given_inputs(self, values: Mapping[str, Any], x: Array) -> tuple[Array, Array]:
        """Mean and covariance of the latents of rows given x alone.

        Args:
            values: of the sites.
            x: inputs, as in `probit_latents`.

        Returns:
            Shapes (num_observations, num_latents) and (num_observations, num_latents, num_latents).
        """
        w, loc, noise = values["loadings_x"], values["loc_x"], values["noise_variance_x"]
        size = w.shape[1]

        def shared(x: Array) -> Array:
            return jnp.broadcast_to(shared_latents_covariance(w, noise), (x.shape[0], size, size))

        def by_row(x: Array) -> Array:
            return latents_covariance(x, w, noise)

        covariance = jax.lax.cond(jnp.any(jnp.isnan(x)), by_row, shared, x)
        return latents_mean(x, w, loc, noise), covariance


def sample_cells(name: str, loc: Array, noise_variance: Array, data: Array | None) -> Array:
    """The site of independent cells about their means; missing ones (NaN) are left out.

    Args:
        name: of the site.
        loc: means, shape (num_observations, num_outputs).
        noise_variance: shape (num_outputs,) or ().
        data: shape (num_observations, num_outputs), or None to draw.

    Returns:
        The data, or what was drawn, shape (num_observations, num_outputs).
    """
    cells = dist.Normal(loc, jnp.sqrt(noise_variance))
    if data is None:
        return numpyro.sample(name, cells.to_event(1))
    return numpyro.sample(name, cells.mask(~jnp.isnan(data)).to_event(1), obs=jnp.nan_to_num(data))
