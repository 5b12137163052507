"""Starts of mixtures of PCAs: labels by k-means, and along principal directions."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import zoo
from inference import fit
from inference.methods.depcam.em import STRATEGIES, init
from inference.methods.mixture.starts import hierarchical_labels, principal_labels
from inference.precision import in_precision


def agreement(labels, truth):
    same = np.mean(np.asarray(labels) == truth)
    return max(same, 1 - same)


def test_labels_along_principal_directions():
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.normal(size=(10, 3)) + 8.0 * k for k in range(4)])
    x -= x.mean(0)
    with in_precision():
        x = jnp.asarray(x)
        halved = np.asarray(hierarchical_labels(x, 4)).reshape(4, 10)
        sliced = np.asarray(principal_labels(x, 4)).reshape(4, 10)
    for labels in (halved, sliced):
        assert (labels == labels[:, :1]).all() and len(set(labels[:, 0])) == 4


def test_halves_of_wide_rows_lie_along_their_leading_direction():
    """More columns than rows, where the direction is found from the smaller Gram matrix: against NumPy's."""
    x = np.random.default_rng(4).normal(size=(12, 40)) + np.repeat([[0.5], [-0.5]], 6, axis=0)
    x -= x.mean(0)
    side = x @ np.linalg.svd(x)[2][0] > 0
    with in_precision():
        assert agreement(hierarchical_labels(jnp.asarray(x), 2), side) == 1.0


def test_the_second_of_mixed_starts_is_hierarchical(monkeypatch):
    """The others are k-means by their keys, the first that of a single start; all are on huge tables."""
    x = np.random.default_rng(5).normal(size=(30, 4))
    model = zoo.DEPCAM(family="gaussian", num_components=3, num_latents=1)

    def labels(key, strategy="mixed", **number):
        options = dict(strategy=strategy, clamped_sweeps=2, integrated=False)
        return np.asarray(init(jax.random.key(key), model, jnp.asarray(x), **options, **number).labels)

    with in_precision():
        for number in (0, 2):
            np.testing.assert_array_equal(labels(7, number=number), labels(7, "kmeans"))
        np.testing.assert_array_equal(labels(7), labels(7, "kmeans"))
        np.testing.assert_array_equal(labels(7, number=1), labels(8, "hierarchical"))
        assert (labels(7, number=1) != labels(7, "kmeans")).any(), "they differ on this table"
        monkeypatch.setattr("inference.methods.depcam.em.MOST_HALVED", 3)
        np.testing.assert_array_equal(labels(7, number=1), labels(7, "kmeans"))


@pytest.mark.slow
def test_a_fit_from_two_starts_keeps_the_better_of_k_means_and_halves():
    """Without repulsion signs of bases change nothing: a fit from two is no worse than from halves."""
    x = np.random.default_rng(6).integers(0, 2, size=(40, 6)).astype(float)
    model = zoo.DEPCAM(num_components=2, num_latents=1, sparsity=0.5, repulsion=0.0)
    options = {"method": "em", "max_iterations": 12, "tolerance": 0, "clamped_sweeps": 3, "progress": False}
    single = fit(model, x, init="hierarchical", **options)["trace"]["objective"].values
    both = fit(model, x, num_restarts=2, **options)["trace"]["objective"].values
    assert np.nanmax(both) >= np.nanmax(single) - 1e-8 * abs(np.nanmax(single))


@pytest.mark.parametrize("strategy", STRATEGIES[:-1])
def test_every_start_finds_two_groups_apart(strategy):
    """A missing cell among them; offsets begin at groups' means, shrunk by one row of columns' means."""
    rng = np.random.default_rng(3)
    x = np.repeat([[4.0] * 3, [-4.0] * 3], 12, axis=0) + rng.normal(size=(24, 3))
    x[0, 1] = np.nan
    model = zoo.DEPCAM(family="gaussian", num_components=2, num_latents=1)
    with in_precision():
        options = dict(strategy=strategy, clamped_sweeps=0, integrated=False)
        state = jax.jit(partial(init, **options))(jax.random.key(0), model, jnp.asarray(x))
        offsets = np.asarray(state.values["offsets"])
    groups = x.reshape(2, 12, 3)
    means = (np.nansum(groups, axis=1) + np.nanmean(x, axis=0)) / (np.sum(~np.isnan(groups), axis=1) + 1.0)
    np.testing.assert_allclose(offsets[np.argsort(-offsets[:, 0])], means, rtol=1e-12)


def test_an_unknown_start_is_refused():
    with pytest.raises(ValueError, match="mixed, kmeans, pca, hierarchical, random"):
        fit(zoo.DEPCAM(), np.eye(5), method="em", init="dbscan")
