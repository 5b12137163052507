r"""Dirichlet and beta distributions whose small probabilities NUTS sees in logs.

NUTS, HMC, SVI and MAP move in real coordinates u. NumPyro's bijection to the simplex breaks sticks
:math:`z_j = \mathrm{expit}(u_j - \log(K - j))` and computes what is left as :math:`1 - z_j`, which is zero or
at least the spacing of floating point numbers at one; that to the unit interval does the same. Under
concentrations a below about 0.05 (0.2 in float32) an entry is often smaller, since
:math:`E[\log p_k] \approx -1/a`, and the density in u is then another one. Nor would NUTS reach the small
entries if it were right: logits as large as 1/a are many steps away.

The distributions here are NumPyro's, with the same density and draws. Their bijection works in logs,

.. math::
    \log p_j = \log \mathrm{expit}(x_j) + \sum_{l<j} \log \mathrm{expit}(-x_l), \qquad
    x_j = u_j + u_j^3 / 16 - \log(K - j),

so that logits of ordinary probabilities are the coordinates, and those of the order of 1/a are near. Logits
that grow exponentially would be nearer still, but put deep valleys between the corners of the simplex.

Probabilities themselves are numbers from the smallest normal one, about 1e-308 (1e-38), to one. The support
knows the concentration: what the log density :math:`\sum_k (a_k - 1) \log p_k` loses by the rounding of
entries is added to the log Jacobian determinant, which is in logs. Their sum, the density in u, is exact.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints
from numpyro.distributions.transforms import Transform, biject_to

LINEAR = 4.0  # logits up to about this are the coordinates


class _OfConcentration:
    """What has a concentration, its only leaf.

    Args:
        concentration: positive, the last axis the categories.
    """

    def __init__(self, concentration: Array) -> None:
        self.concentration = concentration

    def tree_flatten(self) -> tuple:
        """The concentration is a leaf."""
        return (self.concentration,), (("concentration",), {})

    def eq(self, other: object, static: bool = False) -> Any:
        """Whether both are the same; concentrations are compared unless ``static``."""
        if type(other) is not type(self):
            return False
        return static or jnp.array_equal(self.concentration, other.concentration)


class _Under(_OfConcentration, constraints.Constraint):
    """A set of probabilities, and the concentration of the distribution over it."""

    base_constraint: constraints.Constraint  # what a summary of such a value may assume

    def __call__(self, x: Array) -> Array:
        """Whether values are in the set.

        Returns:
            The shape of ``x`` without the axes of a value.
        """
        return self.base_constraint(x)

    def feasible_like(self, prototype: Array) -> Array:
        """Equal probabilities.

        Args:
            prototype: an array, of which the shape counts.

        Returns:
            The shape of ``prototype``.
        """
        return self.base_constraint.feasible_like(prototype)


class SimplexUnder(_Under):
    """The simplex, under a Dirichlet of given concentration, shape (..., num_categories)."""

    event_dim = 1
    base_constraint = constraints.simplex


class ProbabilityUnder(_Under):
    """The unit interval, under betas: the concentrations of p and of 1 - p, shape (..., 2)."""

    base_constraint = constraints.unit_interval


class _Exact(_OfConcentration, Transform):
    """A bijection to probabilities under a given concentration."""

    def _lost(self, exact: Array, held: Array) -> Array:
        """What the log density loses by the rounding of log probabilities."""
        return jnp.sum((jnp.asarray(self.concentration) - 1.0) * (exact - held), axis=-1)


class LogitSticks(_Exact):
    """Real vectors to the simplex by logits of sticks; zeros give equal probabilities."""

    domain = constraints.real_vector

    @property
    def codomain(self) -> constraints.Constraint:
        """The simplex."""
        return SimplexUnder(self.concentration)

    def __call__(self, x: Array) -> Array:
        """Probabilities, none below the smallest normal number.

        Args:
            x: shape (..., num_categories - 1).

        Returns:
            Shape (..., num_categories).
        """
        return _held(_log_probabilities(_logits(x) - _balance(x.shape[-1])))

    def _inverse(self, y: Array) -> Array:
        y = jnp.maximum(y, jnp.finfo(y.dtype).tiny)
        left = jnp.cumsum(y[..., :0:-1], axis=-1)[..., ::-1]  # in all later categories
        return _coordinates(jnp.log(y[..., :-1]) - jnp.log(left) + _balance(left.shape[-1]))

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: None = None) -> Array:
        """Log determinant of the Jacobian, plus what the log density of ``y`` loses by rounding.

        Args:
            x: shape (..., num_categories - 1).
            y: the probabilities.
            intermediates: not used.

        Returns:
            Shape (...), in nats.
        """
        logits = _logits(x) - _balance(x.shape[-1])
        exact = _log_probabilities(logits)
        log_det = jnp.sum(exact[..., :-1] + jax.nn.log_sigmoid(-logits) + _log_slopes(x), axis=-1)
        return log_det + self._lost(exact, jnp.log(y))

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the probabilities for a shape of reals.

        Args:
            shape: of reals.

        Returns:
            The shape of probabilities.
        """
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the reals for a shape of probabilities.

        Args:
            shape: of probabilities.

        Returns:
            The shape of reals.
        """
        return (*shape[:-1], shape[-1] - 1)


class LogitStick(_Exact):
    """Real numbers to probabilities; zero gives a half."""

    domain = constraints.real

    @property
    def codomain(self) -> constraints.Constraint:
        """The unit interval."""
        return ProbabilityUnder(self.concentration)

    def __call__(self, x: Array) -> Array:
        """Probabilities above 0 and below 1.

        Returns:
            The shape of ``x``.
        """
        info = jnp.finfo(x.dtype)
        return jnp.clip(jax.nn.sigmoid(_logits(x)), info.tiny, 1.0 - info.eps)

    def _inverse(self, y: Array) -> Array:
        return _coordinates(jnp.log(y) - jnp.log1p(-y))

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: None = None) -> Array:
        """Log derivative, plus what the log density of ``y`` loses by rounding.

        Returns:
            The shape of ``x``, in nats.
        """
        logits = _logits(x)
        exact = jnp.stack([jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits)], axis=-1)
        held = jnp.log(jnp.stack([y, 1.0 - y], axis=-1))
        return jnp.sum(exact, axis=-1) + _log_slopes(x) + self._lost(exact, held)


class Dirichlet(dist.Dirichlet):
    """NumPyro's Dirichlet, with small probabilities in logs where its coordinates are real."""

    @property
    def support(self) -> constraints.Constraint:
        """The simplex."""
        return SimplexUnder(self.concentration)


class Beta(dist.Beta):
    """NumPyro's beta, with probabilities near 0 and 1 in logs where its coordinates are real."""

    @property
    def support(self) -> constraints.Constraint:
        """The unit interval."""
        return ProbabilityUnder(self._dirichlet.concentration)


@biject_to.register(SimplexUnder)
def _to_simplex(constraint: SimplexUnder) -> LogitSticks:
    return LogitSticks(constraint.concentration)


@biject_to.register(ProbabilityUnder)
def _to_probability(constraint: ProbabilityUnder) -> LogitStick:
    return LogitStick(constraint.concentration)


def _balance(size: int) -> Array:
    """Logs of the categories left after each stick: x = 0 stands for equal probabilities."""
    return jnp.log(jnp.arange(size, 0, -1))


def _logits(u: Array) -> Array:
    return u * (1.0 + jnp.square(u / LINEAR))


def _log_slopes(u: Array) -> Array:
    """Logs of the derivative of `_logits`."""
    return jnp.log1p(3.0 * jnp.square(u / LINEAR))


def _coordinates(logits: Array) -> Array:
    """The inverse of `_logits`: the real root of a cubic equation."""
    root = 2.0 / math.sqrt(3.0) * LINEAR
    return root * jnp.sinh(jnp.arcsinh(3.0 * logits / root) / 3.0)


def _log_probabilities(logits: Array) -> Array:
    """Log probabilities of sticks with given logits."""
    none = jnp.zeros((*logits.shape[:-1], 1), logits.dtype)  # also where a single category leaves no stick
    taken = jnp.concatenate([jax.nn.log_sigmoid(logits), none], axis=-1)
    left = jnp.cumsum(jax.nn.log_sigmoid(-logits), axis=-1)
    return taken + jnp.concatenate([none, left], axis=-1)


def _held(logs: Array) -> Array:
    """Probabilities, as numbers."""
    return jnp.maximum(jnp.exp(logs), jnp.finfo(logs.dtype).tiny)
