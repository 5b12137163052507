r"""Finite and Dirichlet-process mixtures.

Generative process, in the letters of Yu (2006, chapters 2 and 3)::

    alpha       given, or ~ Gamma(a, b)
    pi          ~ Dirichlet(alpha/K, ..., alpha/K)                     weight_prior="dirichlet"
    V_j         ~ Beta(1, alpha), j < K;  V_K = 1                      weight_prior="stick_breaking"
                  that is, -log(1 - V_j) ~ Exponential(alpha)
    pi_j        = V_j (1 - V_1) ... (1 - V_{j-1})
    theta_k     ~ the conjugate prior of the components, k = 1..K
                  (Gaussian: Lambda_k ~ Wishart(W0, nu0), mu_k ~ N(m0, (beta0 Lambda_k)^-1))
    c_i         ~ Categorical(pi), i = 1..N
    x_i         ~ p(x | theta_{c_i})

and of cells recorded in steps of h, with ``rounding`` (`zoo.conjugate.rounded`), in place of the last line::

    u_id        ~ Uniform(-1/2, 1/2)
    x_i - h u_i ~ p(x | theta_{c_i})

======================  ===================  ==================  ============================================
letter                  site                 shape               support
======================  ===================  ==================  ============================================
alpha                   ``concentration``    ()                  positive; a site only with a Gamma prior
-log(1 - V)             ``stick_decays``     (K - 1,)            positive; only with ``"stick_breaking"``
V                       ``stick_fractions``  (K - 1,)            deterministic, of the decays
pi                      ``weights``          (K,)                simplex
Lambda_k                ``precisions``       (K, D, D)           positive definite
Lambda_k^-1             ``covariances``      (K, D, D)           deterministic
mu_k                    ``locs``             (K, D)              real
theta_k                 ``probs``            (K, D)              (0, 1) or simplex; binary and count families
theta_k                 ``rates``            (K, D)              positive; Poisson, exponential, gamma
c_i                     ``assignments``      (N,)                0..K-1; summed out unless ``explicit``
u_i                     ``rounding_errors``  (N, D)              (-1/2, 1/2); summed out unless ``explicit``
x_i                     ``x``                (N, D)              data
======================  ===================  ==================  ============================================

The sites of the parameters depend on the component family (`zoo.conjugate` lists them all); the table names
those of the Gaussian and of common families. A hyperparameter of the components that has a prior is a site
too, such as ``prior_mean_precision``.

Symmetries: the posterior does not change when labels are permuted (exactly so for Dirichlet weights;
stick-breaking weights prefer some orders).

Departures from the source. The last stick fraction is fixed at 1, as in the thesis's text but not in its
printed updates (3.12)-(3.15); ``free_last_stick=True`` is the printed version. Its weights sum to less than
one, so each row carries the factor :math:`\sum_k \pi_k` and the prior is not normalised; it is there to
reproduce Table 3.1. The Wishart needs nu0 > D - 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, override

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import logsumexp
from numpyro import factor, sample

from zoo.conjugate.component_prior import ComponentPrior
from zoo.conjugate.gaussian import GaussianWishart
from zoo.conjugate.mixture_rows import ERRORS, MixtureAnswers, MixtureRows
from zoo.coordinates import Unit
from zoo.dirichlet_process import WeightPrior, weight_prior
from zoo.fields import Part, choice, flag, part, pseudo_counts, require, whole
from zoo.intake import Columns
from zoo.intake.families import components_of
from zoo.model import ANY, Model, Roles, Table
from zoo.programs import local
from zoo.shapes import Rows
from zoo.sparse import is_sparse

DENSE = "give {name}.toarray(), or take components of zoo.conjugate.MultinomialDirichlet"
ONE_ROW = "a mixture of one row has nothing to cluster"


def _filled(model: "Mixture", x: Part) -> ComponentPrior:
    """The components with their fields, and the point about which they sum moments, read off the rows."""
    components = GaussianWishart() if model.components is None else model.components
    components = components.filled(x.rows, x.weight)
    return components if is_sparse(x.rows) else components.centred(x.rows)


COMPONENTS: dict[str, Any] = {"kind": ComponentPrior, "called": "a prior from zoo.conjugate"}


@dataclass(frozen=True, eq=False)
class Mixture(Model):
    """A mixture of exponential families with Dirichlet or (truncated) Dirichlet-process weights.

    Attributes:
        components: the conjugate prior of a component's parameters, such as `zoo.conjugate.GaussianWishart`;
            one that is not filled, such as ``NormalGamma()``, has its fields read off the data. None:
            `GaussianWishart` for an array and for tables whose columns are all real; for other tables the
            family of their columns, or `Product` of several (`zoo.intake`).
        num_components: K, the number of components or the truncation of the Dirichlet process.
        concentration: alpha, from 1e-300 to 1e10, or a ``numpyro.distributions.Gamma`` as its prior. With
            Dirichlet weights each component gets alpha / K.
        weight_prior: ``"dirichlet"`` (Dirichlet-multinomial allocation; the finite mixture) or
            ``"stick_breaking"`` (truncated Dirichlet process).
        free_last_stick: the thesis's literal stick-breaking updates, whose weights sum to less than one; for
            comparison only.

    Example:
        >>> import numpy as np, zoo
        >>> model = zoo.Mixture.from_data(np.random.default_rng(0).normal(size=(50, 2)), num_components=3)
        >>> model.components.loc.shape
        (2,)
    """

    components: ComponentPrior | None = part(**COMPONENTS, families=True, read=_filled, fill=_filled)
    num_components: int = whole(20)
    concentration: Array | dist.Distribution = pseudo_counts(1.0, prior=(dist.Gamma,))
    weight_prior: str = choice("dirichlet", "stick_breaking")
    free_last_stick: bool = flag(proper_with="=False")

    def program(self, x: Rows | None, rows: numpyro.plate) -> Rows:
        """Concentration, weights and components; then the label and the cells of each row."""
        alpha = self.concentration
        if self.has_random_concentration:
            alpha = sample("concentration", alpha)
        log_weights = self.weights.sample(alpha)
        family = self.components.sample_hyperparameters()
        theta = family.sample(self.num_components)
        with rows:
            if self.free_last_stick:  # what the printed updates imply: labels are not renormalised
                factor("stick_mass", jnp.full(rows.size, logsumexp(log_weights)))
            c = local("assignments", dist.Categorical(logits=log_weights), enumerate="parallel")
            u = None
            if family.is_rounded:  # cells recorded in steps h: x = y + h u
                u = local(ERRORS, dist.Uniform(-0.5, 0.5).expand([self.num_features]).to_event(1))
            return sample("x", MixtureRows(family, theta, log_weights, c, rows.size, u), obs=x)

    data = (Table("x", ANY, missing="rows", sparse="counts", dense=DENSE, needs=2, why=ONE_ROW),)
    dims = {
        "concentration": (),
        "stick_decays": ("stick",),
        "stick_fractions": ("stick",),
        "weights": ("component",),
        "precisions": ("component", "feature", "feature_2"),
        "covariances": ("component", "feature", "feature_2"),
        "locs": ("component", "feature"),
        "assignments": ("observation",),
        "responsibilities": ("observation", "component"),
        "rounding_errors": ("observation", "feature"),
        "num_occupied": (),
        "expected_weights": ("component",),
        "weights_concentration": ("component",),
        "stick_fractions_*": ("stick",),
        "x": ("observation", "feature"),
    }
    symmetries = ("labels",)
    roles = Roles(
        cluster="assignments",
        weight="weights",
        gaussian=("weights", "locs", "covariances"),
        scores=("observation", "component"),
    )
    answers = MixtureAnswers
    methods = ("vb", "gibbs", "collapsed_gibbs", "em", "nuts", "hmc", "svi", "tempered")

    @property
    def units(self) -> Mapping[str, Unit]:
        """Rows, and the parameters and hyperparameters of the components."""
        if self.components is None or self.components.unit_of_cells is None:
            return {}
        of_prior, dims = self.components.units_of_hyperparameters(), self.components.parameter_dims
        sites = self.components.hyperprior_sites().items()
        units = {name: unit for name, unit in self.components.units_of_parameters.items() if name in dims}
        units |= {site: of_prior[name] for name, site in sites if name in of_prior}
        return {"x": self.components.unit_of_cells} | units

    # The prior

    @property
    def weights(self) -> WeightPrior:
        """The prior of the weights (one component has no sticks: its weight is 1 under either prior)."""
        return weight_prior(self.weight_prior, self.num_components, free_last_stick=self.free_last_stick)

    @property
    @override
    def prior(self) -> str:
        return "unnormalised" if self.free_last_stick else "proper"

    @property
    def has_random_concentration(self) -> bool:
        """Whether the concentration has a prior (and so is a site of the program)."""
        return isinstance(self.concentration, dist.Distribution)

    @property
    def expected_concentration(self) -> Array:
        """The concentration, or its prior mean."""
        return self.concentration.mean if self.has_random_concentration else self.concentration

    @property
    def leftover_stick_mass(self) -> float:
        """Prior expectation of the last stick's weight, (alpha / (1 + alpha))^(K - 1)."""
        alpha = float(self.expected_concentration)
        return (alpha / (1.0 + alpha)) ** (self.num_components - 1)

    # Sizes and checks

    @property
    def num_features(self) -> int:
        """Number of columns of the data.

        Raises:
            ValueError: the components are not known, or have no fields yet.
        """
        require(self, "components")
        if not self.components.is_filled:
            raise ValueError(
                f"the fields of components, {type(self.components).__name__}, are not set: make the model "
                "with Mixture.from_data(x, components=...)"
            )
        return self.components.num_features

    @override
    def with_families(self, columns: Sequence[Columns | None]) -> Self:
        (own,) = columns
        if own is None:
            return self
        if self.components is None:
            return self._with(components_of(own))
        return self._with(self.components.with_column_names([column.name for column in own.kept]))

    def _with(self, components: ComponentPrior) -> Self:
        return self if components is self.components else self.replaced(components=components)

    def validate(self) -> None:
        """Raise ValueError if a free last stick has no sticks."""
        if self.free_last_stick and self.weight_prior != "stick_breaking":
            raise ValueError('free_last_stick goes with weight_prior="stick_breaking" only')

    @property
    def variable_dims(self) -> Mapping[str, tuple[str, ...]]:
        """The dims of all variables, those of the component family's parameters among them."""
        if self.components is None:
            return self.dims
        posterior = {f"components_{name}": own for name, own in self.components.posterior_dims.items()}
        sites = self.components.hyperprior_sites().items()
        hyper = {site: self.components.field_dims[name] for name, site in sites}
        return dict(self.dims) | dict(self.components.parameter_dims) | posterior | hyper

    @property
    @override
    def part_families(self) -> tuple[ComponentPrior]:
        return (GaussianWishart() if self.components is None else self.components,)
