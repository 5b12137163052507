r"""Expectation maximisation for probabilistic PCA and factor analysis, with missing cells.

Maximum likelihood with a flat prior, else the mode of the log posterior (in loadings, mean and noise
variance, the latents and ARD precisions integrated out). The updates and parameter expansion are those of
`inference.methods.linear_gaussian.em`; PPCA is one noise group, factor analysis a group for each column. The
estimate is returned in its canonical rotation: orthogonal loadings, longest first, the largest entry of each
positive (of factor analysis under flat priors the loadings of columns in their deviations, so that the units
of columns do not choose the rotation).

Without missing cells PPCA has a closed form (`inference.methods.ppca.closed_form`), which EM agrees with;
factor analysis, missing cells and priors need EM. Where the spread of the parameters matters, use VB or NUTS.

Student-t rows are reweighted in every sweep by E[u], so that rows far outside count for little.

Sparse rows stay sparse: `inference.methods.linear_gaussian.sparse_em`, whose sweeps run on the host.

Reference: Tipping and Bishop (1999), appendix B; Yu (2006), section 5.1.2.
"""

from functools import cache, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.algorithm import Algorithm, Ascent, Init, Outcome
from inference.methods.linear_gaussian import em as linear_gaussian
from inference.methods.linear_gaussian import rows as linear_gaussian_rows
from inference.methods.linear_gaussian import sparse_em as sparse_linear_gaussian
from inference.methods.linear_gaussian.em import LinearGaussianInfo, LinearGaussianState, LoadingPrior
from inference.methods.linear_gaussian.rows import CompressedRows, SparseRows
from inference.methods.ppca import EM
from inference.methods.ppca.closed_form import point_outcome, turned
from inference.numerics.weighted_rows import Rows, unweighted
from inference.precision import to_numpy
from zoo.coordinates import Unit
from zoo.mcfa import MCFA
from zoo.ppca import PPCA
from zoo.shapes import Values
from zoo.sparse import SparseMatrix
from zoo.sppca import SPPCA


def groups_of(model: PPCA | MCFA, num_features: int) -> np.ndarray:
    """The noise group of each column."""
    return np.arange(num_features) if model.noise == "diagonal" else np.zeros(num_features, np.int64)


def degrees_of_rows(model: PPCA | MCFA | SPPCA) -> Array | None:
    """Of Student-t rows; those of other models that come by here are of something else."""
    return model.degrees_of_freedom if isinstance(model, PPCA) else None


def prior_of(model: PPCA | MCFA, rows: CompressedRows) -> LoadingPrior | None:
    """The prior with its mean about the centre of the data; None if it is flat."""
    if model.loading_prior == "flat":
        return None
    return LoadingPrior(
        loading_variance=model.loading_variance if model.loading_prior == "gaussian" else None,
        ard_concentration=model.ard_concentration,
        ard_rate=model.ard_rate,
        loc=model.loc_mean - rows.original_centre,
        loc_variance=model.loc_variance,
        noise_concentration=model.noise_concentration,
        noise_rate=model.noise_rate,
    )


def prepare(
    model: PPCA | MCFA, data: tuple[np.ndarray | SparseMatrix | Rows], init: Init, **options: object
) -> tuple[np.ndarray | SparseMatrix | Rows, CompressedRows | SparseRows]:
    """The rows themselves and their compressed form."""
    (x,) = data
    if isinstance(x, SparseMatrix):
        return x, linear_gaussian_rows.sparse_rows(x, None, groups_of(model, x.shape[1]))
    if isinstance(unweighted(x), SparseMatrix):
        raise ValueError("sample_weight goes with dense rows: sparse ones count once")
    return x, dense_rows(model, x, rotate=model.loading_prior == "flat")


def dense_rows(model: PPCA | MCFA, x: np.ndarray | Rows, *, rotate: bool) -> CompressedRows:
    """The compressed form of dense rows; Student-t ones, with a weight of their own each, stay."""
    groups, nu = groups_of(model, x.shape[1]), degrees_of_rows(model)
    if nu is None:
        return linear_gaussian_rows.compress(x, groups, rotate=rotate)
    rows = linear_gaussian_rows.compress(x, groups, rotate=False, most_patterns=0)
    return rows._replace(degrees_of_freedom=nu)


def compressed_rows(
    model: PPCA | MCFA, x: Array | Rows, rows: CompressedRows | None = None
) -> CompressedRows:
    """The compressed rows that `prepare` made, or without these every row by itself."""
    if rows is not None:
        return rows
    own = linear_gaussian_rows.one_by_one(x, groups_of(model, x.shape[1]))
    return own._replace(degrees_of_freedom=degrees_of_rows(model))


def init(
    key: Array, model: PPCA, x: Array | Rows, rows: CompressedRows | None = None, *, strategy: str = "pca"
) -> LinearGaussianState:
    """The state at principal components (``"pca"``) or at random loadings (``"random"``)."""
    rows = compressed_rows(model, x, rows)
    parameters = sparse_linear_gaussian.first_parameters(strategy, key, rows, model.num_latents)
    return sparse_linear_gaussian.begin_with(parameters, rows, prior_of(model, rows))


def start(key: Array, variables: Values, model: PPCA, *data: Any, **options: object) -> LinearGaussianState:
    """The state at given ``loadings``, ``loc`` and ``noise_variance``; the key is ignored."""
    linear_gaussian.check_given(variables, ("loadings", "loc", "noise_variance"))
    rows = compressed_rows(model, *data)
    noise = jnp.broadcast_to(variables["noise_variance"], (rows.num_groups,))
    parameters = linear_gaussian.given_start(variables["loadings"], variables["loc"], noise, rows)
    return sparse_linear_gaussian.begin_with(parameters, rows, prior_of(model, rows))


def step(
    key: Array,
    state: LinearGaussianState,
    model: PPCA,
    x: Array | Rows,
    rows: CompressedRows | None = None,
    *,
    acceleration: str = "px",
    noise_floor: float = 1e-6,
) -> tuple[LinearGaussianState, LinearGaussianInfo]:
    """Run one sweep of `inference.methods.linear_gaussian.em.step`; the key is ignored."""
    rows = compressed_rows(model, x, rows)
    options = {"acceleration": acceleration, "floor": noise_floor}
    return sparse_linear_gaussian.sweep(state, rows, prior_of(model, rows), **options)


ALGORITHM = Algorithm(init, step, settling_steps=linear_gaussian.settling_steps)


@cache
def build(strategy: str, **options: Any) -> Algorithm:
    """Build the algorithm with a start strategy and options."""
    begin, once = partial(init, strategy=strategy), partial(step, **options)
    return ALGORITHM._replace(init=begin, step=once)


def conclude(
    key: Array,
    state: LinearGaussianState,
    model: PPCA,
    data: tuple,
    *sizes: object,
    noise_floor: float = 1e-6,
    **options: object,
) -> Outcome:
    """Conclude with the estimate in its canonical rotation and the latents of the rows."""
    rows = compressed_rows(model, *data)
    parameters = to_numpy(state.parameters)
    loadings, loc = linear_gaussian_rows.expanded(parameters.loadings, parameters.loc, rows)
    noise = parameters.noise_variance if model.noise == "diagonal" else parameters.noise_variance[0]
    values = {"loadings": loadings, "loc": loc, "noise_variance": np.asarray(noise)}
    if model.loading_prior == "ard":
        values = turned(values)[0]
        precision = linear_gaussian.expected_precision(values["loadings"], prior_of(model, rows))
        values["loading_precision"] = np.asarray(precision)
    latents = state.moments.latents
    return point_outcome(
        values,
        model,
        data[0],
        held=np.flatnonzero(np.asarray(state.at_floor)),
        noise_floor=noise_floor,
        log_likelihood=float(state.moments.log_likelihood),
        latents=None if latents is None else np.asarray(latents),
    )


METHOD = Ascent(
    settings=EM,
    strategies=("pca", "random"),
    takes=frozenset({"weights", "sparse", "batches", "moments"}),
    build=build,
    start=start,
    conclude=conclude,
    trace_units={"noise_variance": Unit(2)},
    prepare=prepare,
    for_steps=linear_gaussian_rows.rows_alone,
    runs_on_host=linear_gaussian_rows.runs_on_host,
)
