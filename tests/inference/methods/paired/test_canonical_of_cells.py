"""Canonical correlations of cells that are not Gaussian, against those of many rows drawn from the model."""

import jax
import numpy as np
import pytest

import zoo
from inference.methods.paired.closed_form import canonical
from inference.precision import in_precision
from zoo.answers import answer_of
from zoo.exponential_family import Bernoulli, ByColumn, Categorical, Gaussian, Ordinal, Poisson

ROWS, SIZES = 50_000, (4, 3)
MIXED = ByColumn.of((Gaussian(None), Poisson(), Gaussian(None), Bernoulli()))


def drawn(families, scale, shared=1.0):
    """A model of one shared latent and one of the second view, and values of its sites."""
    rng = np.random.default_rng(0)
    model = zoo.Paired(families, num_shared=1, num_specific=(0, 1)).with_sizes_from(
        *(rng.integers(1, 3, size=(5, size)).astype(float) for size in SIZES)
    )
    values = {"latents": rng.normal(size=(ROWS, 2)) * np.sqrt(float(model.entry_variance))}
    for v, (family, size) in enumerate(zip(model.families, SIZES, strict=True)):
        values[f"loadings_{v}"] = scale * rng.normal(size=(family.num_params(size), 2)) * [shared, v]
        if family.num_cut_points:
            values[f"cut_points_{v}"] = np.tile([-1.0, 0.0, 1.5], (size, 1))
        else:
            values[f"loc_{v}"] = 0.5 * rng.normal(size=family.num_params(size))
        if family.learns_noise:
            values[f"noise_variance_{v}"] = np.array(0.3)
    return model, values


def of_rows(model, values):
    """The first canonical correlation of drawn cells, of classes by their indicators."""
    bases = []
    for v, family in enumerate(model.families):
        y = np.asarray(model.rows_of(v, values).sample(jax.random.key(v)))
        if family.has_classes:
            y = np.concatenate([y == c for c in range(1, family.num_classes)], axis=1)
        bases.append(np.linalg.qr(y - y.mean(0))[0])
    return np.linalg.svd(bases[0].T @ bases[1], compute_uv=False)[0]


@pytest.mark.parametrize(
    "families, scale",
    [
        (("bernoulli", "bernoulli"), 1.5),
        (("poisson", "bernoulli"), 0.5),
        ((Categorical(3), Ordinal(4)), 0.7),
        ((MIXED, Gaussian(None)), 0.5),
    ],
    ids=lambda value: "" if isinstance(value, float) else "-".join(type(f).__name__ for f in value),
)
def test_they_are_those_of_the_cells(families, scale):
    """To the second order of the delta method; without noise of the cells all would be 1."""
    with in_precision():
        model, values = drawn(families, scale)
        found = canonical(*answer_of(model, "view_covariances", values)).correlations[0]
        np.testing.assert_allclose(found, of_rows(model, values), atol=0.02)


def test_views_that_share_next_to_nothing_do_not_correlate():
    with in_precision():
        model, values = drawn(("bernoulli", "poisson"), 1.0, shared=1e-3)
        assert canonical(*answer_of(model, "view_covariances", values)).correlations[0] < 1e-4
