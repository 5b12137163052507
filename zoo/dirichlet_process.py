r"""Priors of mixture weights, and draws from a Dirichlet process.

Dirichlet-multinomial allocation and truncated stick-breaking are classes with the same interface:

* `DirichletAllocation`: :math:`\pi \sim \mathrm{Dirichlet}(\alpha/K, \dots, \alpha/K)`. The finite mixture;
  as K grows it tends to the Dirichlet process (Yu 2006, section 3.3.3). The components are exchangeable.
* `StickBreaking`: :math:`V_j \sim \mathrm{Beta}(1, \alpha)` for j < K, :math:`V_K = 1`,
  :math:`\pi_j = V_j \prod_{l<j}(1 - V_l)`, the truncated Dirichlet process (Yu 2006, section 3.3.2). The
  components are not exchangeable: earlier sticks are longer.

The program draws the *decays* :math:`E_j = -\log(1 - V_j) \sim \mathrm{Exponential}(\alpha)`, of which
:math:`V_j = 1 - e^{-E_j}` and :math:`\log \pi_j = \log(1 - e^{-E_j}) - \sum_{l<j} E_l` follow. It is the same
prior, held in numbers that do not round: at small concentrations 1 - V is far below the spacing of floating
point numbers at one (its logarithm is :math:`-1/\alpha` in expectation), and a sampler that held V would see
no concentration much below 1/36 (1/16 in float32).

Correction: the thesis's updates (3.12)-(3.15) give the last stick a Beta factor although :math:`V_K = 1` is
fixed, so its weights sum to less than one. That is a different model; ``free_last_stick=True`` is it, kept
to reproduce the published tables. At concentrations large against K it spreads the rows over many components
where the model as defined puts them all on the last stick.

`polya_urn` draws from a Dirichlet process :math:`\mathrm{DP}(\alpha, G_0)`: each value is new with
probability :math:`\alpha / (\alpha + i)`, else one of the i before it (Blackwell and MacQueen 1973; Yu 2006,
(3.5)).
"""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import digamma, gammaln, xlogy

from zoo.checks import shown
from zoo.shapes import PerComponent, Scalar, Values
from zoo.supports.small_probabilities import Dirichlet

if TYPE_CHECKING:
    from zoo.model import Model


class DirichletAllocation(NamedTuple):
    """Symmetric Dirichlet weights over ``num_components`` components.

    Attributes:
        num_components: K.
        name: site of the weights in the program.
    """

    num_components: int
    name: str = "weights"

    @property
    def has_sticks(self) -> Literal[False]:
        """Whether the weights are made of sticks."""
        return False

    @property
    def site(self) -> str:
        """Name of the latent site, the weights."""
        return self.name

    def sample(self, concentration: Array) -> Array:
        """Sample the weights from the prior in a NumPyro program.

        Args:
            concentration: total, shape ().

        Returns:
            Log weights, shape (num_components,).
        """
        share = concentration / self.num_components
        return jnp.log(numpyro.sample(self.name, Dirichlet(share * jnp.ones(self.num_components))))

    def log_density_of_occupied(
        self, weights: Array, log_prob: Array, concentration: Array, occupied: Array
    ) -> Array:
        """Log prior density of the weights of some components and the sum of the others.

        Args:
            weights: shape (num_components,).
            log_prob: of all weights, in nats.
            concentration: total, shape ().
            occupied: which components, shape (num_components,).

        Returns:
            A scalar, in nats: ``log_prob`` itself where these are all components.
        """
        share, number = concentration / self.num_components, jnp.sum(occupied)
        others = share * (self.num_components - number)
        rest = jnp.sum(jnp.where(occupied, 0.0, weights))
        tiny = jnp.finfo(weights.dtype).tiny
        own = jnp.sum(jnp.where(occupied, (share - 1) * jnp.log(jnp.maximum(weights, tiny)), 0.0))
        lumped = (others - 1) * jnp.log(jnp.maximum(rest, tiny)) - gammaln(jnp.maximum(others, tiny))
        marginal = gammaln(concentration) - number * gammaln(share) + own + lumped
        return jnp.where(number == self.num_components, jnp.sum(log_prob), marginal)

    def posterior(self, counts: PerComponent, concentration: Scalar) -> dist.Distribution:
        """Distribution of the weights given rows per component, counted or expected (Yu 2006, 2.2.2).

        Args:
            counts: rows per component, shape (num_components,).
            concentration: total, shape ().

        Returns:
            Dirichlet with event shape (num_components,).
        """
        return dist.Dirichlet(concentration / self.num_components + counts)

    def sample_posterior(self, q: dist.Distribution) -> Array:
        """Sample the weights from a `posterior` in a NumPyro program.

        Returns:
            Log weights, shape (num_components,).
        """
        return jnp.log(numpyro.sample(self.name, q))

    def log_weights(self, values: Values) -> Array:
        """Log weights computed from the value of this prior's site.

        Args:
            values: of the sites; ``weights``, shape (..., num_components), is read.

        Returns:
            Shape (..., num_components).
        """
        return jnp.log(values["weights"])

    def expected_log_weights(self, q: dist.Distribution) -> PerComponent:
        """E[log weights] under a `posterior`.

        Returns:
            Shape (num_components,).
        """
        return digamma(q.concentration) - digamma(jnp.sum(q.concentration, axis=-1, keepdims=True))

    def sum_of_expected_logs(self, q: dist.Distribution) -> Scalar:
        """The sum of E[log weights] under a `posterior`.

        Args:
            q: result of `posterior`.

        Returns:
            A scalar.
        """
        return jnp.sum(self.expected_log_weights(q))

    def expected_weights(self, q: dist.Distribution) -> PerComponent:
        """E[weights] under a `posterior`.

        Returns:
            Shape (num_components,).
        """
        return q.concentration / jnp.sum(q.concentration, axis=-1, keepdims=True)

    def log_normaliser(self, q: dist.Distribution) -> Scalar:
        """Log of the integral of the Dirichlet kernel of a `posterior`.

        Returns:
            A scalar, in nats.
        """
        return jnp.sum(gammaln(q.concentration)) - gammaln(jnp.sum(q.concentration))

    def variables(self, q: dist.Distribution) -> dict[str, Array]:
        """The parameters of a `posterior` under the names they have in a fit.

        Returns:
            The concentration, shape (num_components,).
        """
        return {f"{self.name}_concentration": q.concentration}

    @property
    def posterior_names(self) -> tuple[str, ...]:
        """Of what `variables` returns."""
        return (f"{self.name}_concentration",)

    def with_variables(self, values: Values) -> dist.Distribution:
        """The `posterior` with the parameters that `variables` returned.

        Returns:
            Dirichlet with event shape (num_components,).
        """
        return dist.Dirichlet(jnp.asarray(values[f"{self.name}_concentration"]))


class BetaDecay(dist.Distribution):
    r"""Distribution of :math:`E = -\log(1 - V)`, :math:`V \sim \mathrm{Beta}(a, b)`: Exponential(b) if a = 1.

    .. math:: p(E) = \frac{(1 - e^{-E})^{a - 1} e^{-b E}}{B(a, b)}, \qquad E > 0.

    A draw is :math:`\log(1 + G_a / G_b)` of two gamma variables, taken in logs, so that V is rounded
    neither near 0 nor near 1.

    Attributes:
        concentration1: a > 0.
        concentration0: b > 0, broadcast against a.
    """

    arg_constraints = {
        "concentration1": dist.constraints.positive,
        "concentration0": dist.constraints.positive,
    }
    support = dist.constraints.positive
    reparametrized_params = ["concentration1", "concentration0"]

    def __init__(
        self, concentration1: Array, concentration0: Array, *, validate_args: bool | None = None
    ) -> None:
        """Remember both parameters."""
        shape = jnp.broadcast_shapes(jnp.shape(concentration1), jnp.shape(concentration0))
        self.concentration1 = jnp.broadcast_to(concentration1, shape)
        self.concentration0 = jnp.broadcast_to(concentration0, shape)
        super().__init__(batch_shape=shape, validate_args=validate_args)

    @property
    def mean(self) -> Array:
        """E[-log(1 - V)], batch shape."""
        return digamma(self.concentration1 + self.concentration0) - digamma(self.concentration0)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw decays.

        Args:
            key: a JAX key.
            sample_shape: leading shape.

        Returns:
            Positive numbers, shape ``sample_shape`` and the batch shape.
        """
        shape = (*sample_shape, *self.batch_shape)
        taken_key, left_key = jax.random.split(key)
        dtype = jnp.result_type(float, self.concentration1)
        taken = jax.random.loggamma(taken_key, self.concentration1, shape, dtype)
        left = jax.random.loggamma(left_key, self.concentration0, shape, dtype)
        return jnp.maximum(jax.nn.softplus(taken - left), jnp.finfo(dtype).tiny)

    def log_prob(self, value: Array) -> Array:
        """Log density, in nats.

        Returns:
            Broadcast shape of ``value`` and the parameters.
        """
        a, b = self.concentration1, self.concentration0
        constant = gammaln(a + b) - gammaln(a) - gammaln(b)
        return constant + xlogy(a - 1.0, -jnp.expm1(-value)) - b * value


class StickBreaking(NamedTuple):
    """Stick-breaking weights truncated at ``num_components``.

    The last stick is 1 unless ``free_last_stick``.

    Attributes:
        num_components: the truncation.
        free_last_stick: whether the last stick is random too.
        name: deterministic site of the weights in the program; ``stick_fractions``, V, is one too.
    """

    num_components: int
    free_last_stick: bool = False
    name: str = "weights"

    @property
    def has_sticks(self) -> Literal[True]:
        """Whether the weights are made of sticks."""
        return True

    @property
    def site(self) -> str:
        """Name of the latent site, the decays of the sticks."""
        return "stick_decays"

    @property
    def num_sticks(self) -> int:
        """Number of random sticks."""
        return self.num_components if self.free_last_stick else self.num_components - 1

    def sample(self, concentration: Array) -> Array:
        """Sample the sticks from the prior in a NumPyro program.

        Args:
            concentration: alpha, shape ().

        Returns:
            Log weights, shape (num_components,).
        """
        with numpyro.plate("sticks", self.num_sticks):
            decays = numpyro.sample("stick_decays", dist.Exponential(concentration))
        log_weights = self.log_weights({"stick_decays": decays})
        numpyro.deterministic("stick_fractions", -jnp.expm1(-decays))
        numpyro.deterministic(self.name, jnp.exp(log_weights))
        return log_weights

    def log_density_of_occupied(
        self, decays: Array, log_prob: Array, concentration: Array, occupied: Array
    ) -> Array:
        """Log prior density of the sticks up to the last of some components.

        Args:
            decays: of the sticks, shape (num_sticks,); not read.
            log_prob: of each, shape (num_sticks,), in nats.
            concentration: alpha, shape (); not read.
            occupied: which components, shape (num_components,).

        Returns:
            A scalar, in nats.
        """
        needed = jnp.cumsum(occupied[::-1])[::-1] > 0  # this component or a later one has rows
        return jnp.sum(jnp.where(needed[: self.num_sticks], log_prob, 0.0))

    def posterior(self, counts: PerComponent, concentration: Scalar) -> BetaDecay:
        """Distribution of the sticks given rows per component  (3.14).

        V_j is Beta(1 + N_j, concentration + sum of N_l over l > j); this is the law of its decay.

        Args:
            counts: rows per component, counted or expected, shape (num_components,).
            concentration: alpha, shape ().

        Returns:
            Both parameters, batch shape (num_sticks,).
        """
        longer = jnp.cumsum(counts[::-1])[::-1]  # sum over l >= j
        tail = jnp.append(longer[1:], 0.0)
        return BetaDecay(1.0 + counts[: self.num_sticks], concentration + tail[: self.num_sticks])

    def sample_posterior(self, q: BetaDecay) -> Array:
        """Sample the weights from a `posterior` in a NumPyro program.

        Returns:
            Log weights, shape (num_components,).
        """
        with numpyro.plate("sticks", self.num_sticks):
            return self.log_weights({"stick_decays": numpyro.sample("stick_decays", q)})

    def log_weights(self, values: Values) -> Array:
        """Log weights computed from the sticks, or from the weights if components were reordered.

        Args:
            values: of the sites; ``stick_decays``, else ``stick_fractions``, both of shape (num_sticks,),
                else the weights are read.

        Returns:
            Shape (num_components,).
        """
        if "stick_decays" in values:
            decays = values["stick_decays"]
            return _cumulate(jnp.log(-jnp.expm1(-decays)), -decays, self.num_components)
        if "stick_fractions" in values:
            return log_stick_weights(values["stick_fractions"], self.num_components)
        return jnp.log(values[self.name])

    def best_order(self, counts: PerComponent, concentration: Scalar) -> Array:
        r"""The order of the components that maximises the bound for given counts.

        With q(V) optimal, the part of the bound that depends on the order is, with
        :math:`T_j = \sum_{l \ge j} N_l`,

        .. math::
            -\sum_{1 < j < K} \log(\alpha + T_j) + \log \Gamma(\alpha + N_K) - \log \Gamma(1 + N_K).

        Whichever component is last, the others are best in falling order of their counts. The last one is the
        smallest if alpha < 1; above, the leftover mass is large and a larger component may be better there,
        so that all K choices are compared. If the last stick is free the falling order is best.

        Args:
            counts: rows per component, counted or expected, shape (num_components,).
            concentration: alpha, or its expectation.

        Returns:
            Indices of the components, first stick first, shape (num_components,).
        """
        falling = jnp.argsort(-counts, stable=True)
        if self.free_last_stick:
            return falling
        positions, end = jnp.arange(counts.shape[-1]), self.num_components - 1

        def order(last: Array) -> Array:  # positions in the falling order, that of `last` moved to the end
            moved = jnp.where((positions >= last) & (positions < end), positions + 1, positions)
            return falling[jnp.where(positions == end, last, moved)]

        def value(last: Array) -> Array:
            ordered = counts[order(last)]
            logs = jnp.log(concentration + jnp.cumsum(ordered[::-1])[::-1])
            own = gammaln(concentration + ordered[end]) - gammaln(1.0 + ordered[end])
            return own - jnp.sum(jnp.where((positions > 0) & (positions < end), logs, 0.0))

        values = jnp.where(positions <= end, jax.vmap(value)(positions), -jnp.inf)
        best = jnp.max(values)
        # the smallest last unless another is better by more than rounding: the order must not flicker
        is_best = values[end] >= best - 100 * jnp.finfo(values.dtype).eps * (1.0 + jnp.abs(best))
        return order(jnp.where(is_best, end, jnp.argmax(values)))

    def expected_log_weights(self, q: BetaDecay) -> PerComponent:
        """E[log weights] under a `posterior`  (3.13-3.14, with the last stick fixed).

        Returns:
            Shape (num_components,).
        """
        total = digamma(q.concentration1 + q.concentration0)
        return _cumulate(
            digamma(q.concentration1) - total, digamma(q.concentration0) - total, self.num_components
        )

    def expected_weights(self, q: BetaDecay) -> PerComponent:
        """E[weights] under a `posterior`: the mean of a generalised Dirichlet  (3.21).

        Returns:
            Shape (num_components,).
        """
        return generalised_dirichlet_mean(q.concentration1, q.concentration0, self.num_components)

    def log_normaliser(self, q: BetaDecay) -> Scalar:
        """Log of the integral of the kernels of a `posterior`.

        Returns:
            A scalar, in nats.
        """
        a, b = q.concentration1, q.concentration0
        return jnp.sum(gammaln(a) + gammaln(b) - gammaln(a + b))  # jax's betaln is off by 1e-7

    def variables(self, q: BetaDecay) -> dict[str, Array]:
        """The parameters of a `posterior` under the names they have in a fit.

        Returns:
            Both parameters of the sticks, each of shape (num_sticks,).
        """
        return {
            "stick_fractions_concentration1": q.concentration1,
            "stick_fractions_concentration0": q.concentration0,
        }

    @property
    def posterior_names(self) -> tuple[str, ...]:
        """Of what `variables` returns."""
        return ("stick_fractions_concentration1", "stick_fractions_concentration0")

    def with_variables(self, values: Values) -> BetaDecay:
        """The `posterior` with the parameters that `variables` returned.

        Returns:
            Batch shape (num_sticks,).
        """
        a, b = (values[f"stick_fractions_concentration{which}"] for which in (1, 0))
        return BetaDecay(jnp.asarray(a), jnp.asarray(b))


WeightPrior = DirichletAllocation | StickBreaking


def truncation_of(model: "Model") -> int | None:
    """Number of clusters at which an infinite prior is cut.

    Args:
        model: which has ``weights`` where it has clusters.

    Returns:
        The number; None: it is part of the model, or there are no clusters.
    """
    weights = getattr(model, "weights", None)
    return weights.num_components if weights is not None and weights.has_sticks else None


def weight_prior(
    kind: str, num_components: int, *, free_last_stick: bool = False, name: str = "weights"
) -> WeightPrior:
    """The prior of mixture weights; a single component has weight 1 under either prior."""
    if kind == "dirichlet" or num_components == 1:
        return DirichletAllocation(num_components, name)
    return StickBreaking(num_components, free_last_stick, name)


def generalised_dirichlet_mean(
    concentration1: Array, concentration0: Array, num_components: int | None = None
) -> Array:
    r"""E[weights] when the sticks are independent betas  (3.21).

    .. math:: E[\pi_j] = \frac{a_j}{a_j + b_j} \prod_{l < j} \frac{b_l}{a_l + b_l},

    the leading factor being 1 for the last component.

    Args:
        concentration1: a, shape (num_components - 1,).
        concentration0: b, same shape.
        num_components: by default one more than there are sticks; as many: the last stick is free.

    Returns:
        Weights that sum to one (to less if the last stick is free), shape (num_components,).

    Example:
        >>> import numpy as np
        >>> print(generalised_dirichlet_mean(np.ones(2), np.ones(2)))
        [0.5  0.25 0.25]
    """
    total = jnp.log(concentration1 + concentration0)
    count = concentration1.shape[-1] + 1 if num_components is None else num_components
    return jnp.exp(_cumulate(jnp.log(concentration1) - total, jnp.log(concentration0) - total, count))


def with_stick_decays(values: Values) -> dict[str, Array]:
    """Decays of the sticks of values that hold fractions only, such as a caller's start.

    Returns:
        The values, with ``stick_decays``, ``-log(1 - V)`` in the shape of the fractions, where there are
        sticks. A fraction that rounds to 1 gives the decay of the largest number below 1, one of 0 the
        smallest positive number.
    """
    if "stick_decays" in values or "stick_fractions" not in values:
        return dict(values)
    fractions = jnp.asarray(values["stick_fractions"])
    info = jnp.finfo(fractions.dtype)
    decays = -jnp.log1p(-jnp.clip(fractions, info.tiny, 1 - info.epsneg))
    return {**values, "stick_decays": decays}


def log_stick_weights(stick_fractions: Array, num_components: int) -> Array:
    """Log weights ``log V_j + sum_{l<j} log(1 - V_l)``, with V = 1 for a component past the last stick.

    Args:
        stick_fractions: shape (num_components - 1,), or (num_components,) if the last stick is free; each in
            (0, 1).
        num_components: the truncation.

    Returns:
        Shape (num_components,).
    """
    tiny = jnp.finfo(
        stick_fractions.dtype
    ).tiny  # a fraction that rounds to 0 or 1 must not make a weight NaN
    log_taken = jnp.log(jnp.maximum(stick_fractions, tiny))
    log_left = jnp.log(jnp.maximum(1.0 - stick_fractions, tiny))
    return _cumulate(log_taken, log_left, num_components)


def _cumulate(log_taken: Array, log_left: Array, num_components: int) -> Array:
    """Log of each component's stick plus the logs of the remainders of the earlier sticks."""
    start = jnp.zeros(1, log_taken.dtype)
    before = jnp.concatenate([start, jnp.cumsum(log_left)])[:num_components]
    own = jnp.concatenate([log_taken, start])[:num_components]
    return before + own


def compact_labels(labels: Array | np.ndarray, num_components: int) -> tuple[Any, Any]:
    """Labels in the smallest type that holds them, and the number of components that occur.

    Args:
        labels: from 0, shape (num_observations,); an array of NumPy, for which no program is made, may have
            draws before that.
        num_components: K.

    Returns:
        The labels, and their number, shape () or that of the draws.
    """
    kind = np.min_scalar_type(num_components - 1)
    if isinstance(labels, np.ndarray):
        counts = [np.count_nonzero(np.bincount(own)) for own in labels.reshape(-1, labels.shape[-1])]
        num_occupied = np.reshape(counts, labels.shape[:-1]).astype(jnp.result_type(int))
        return labels.astype(kind, copy=False), num_occupied
    return labels.astype(kind), jnp.sum(jnp.bincount(labels, length=num_components) > 0)


def polya_urn(
    key: Array, concentration: float, num_draws: int, base: dist.Distribution | None = None
) -> Array:
    """Draw values from a Polya urn: each is new or a copy of an earlier one.

    Args:
        key: random key.
        concentration: alpha > 0.
        num_draws: how many values.
        base: the base measure, a scalar distribution; by default a standard normal.

    Returns:
        Shape (num_draws,).

    Raises:
        ValueError: a concentration that is not positive, or fewer than one draw.
    """
    base = _checked(concentration, num_draws, base)
    fresh_key, copy_key, value_key = jax.random.split(key, 3)
    place = jnp.arange(num_draws)
    fresh = jax.random.uniform(fresh_key, (num_draws,)) * (concentration + place) < concentration
    copied = jnp.floor(jax.random.uniform(copy_key, (num_draws,)) * place).astype(int)
    source = jnp.where(fresh, place, copied)

    def draw(sources: Array, i: Array) -> tuple[Array, None]:  # copies of copies lead back to a fresh value
        return sources.at[i].set(jnp.where(sources[i] == i, i, sources[sources[i]])), None

    origin = jax.lax.scan(draw, source, place)[0]
    return base.sample(value_key, (num_draws,))[origin]


def _checked(concentration: float, num_draws: int, base: dist.Distribution | None) -> dist.Distribution:
    if not concentration > 0:
        raise ValueError(f"concentration must be positive; got {shown(concentration)}")
    if num_draws < 1:
        raise ValueError(f"num_draws must be at least 1; got {shown(num_draws)}")
    return dist.Normal(0.0, 1.0) if base is None else base
