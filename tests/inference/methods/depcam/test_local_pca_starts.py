"""Starts of mixtures of PCAs: labels by k-means, by spectral clustering, along principal directions."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import zoo
from inference import fit
from inference.methods.depcam.em import LANDMARKS, STRATEGIES, init, spectral_labels
from inference.methods.mixture.starts import hierarchical_labels, kmeans_labels, principal_labels
from inference.precision import in_precision


def rings(num_rows, seed=0):
    """Two rings about the same centre, radii 1 and 3, with noise .1: clusters that are not round."""
    rng = np.random.default_rng(seed)
    truth = np.arange(num_rows) % 2
    angle = rng.uniform(0, 2 * np.pi, num_rows)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return circle * np.where(truth, 3.0, 1.0)[:, None] + 0.1 * rng.normal(size=(num_rows, 2)), truth


def agreement(labels, truth):
    same = np.mean(np.asarray(labels) == truth)
    return max(same, 1 - same)


@pytest.mark.slow
@pytest.mark.parametrize("num_rows", [pytest.param(200, marks=pytest.mark.slow), LANDMARKS + 300])
def test_spectral_labels_find_rings_that_k_means_cuts(num_rows):
    x, truth = rings(num_rows)
    with in_precision():
        x = jnp.asarray(x)
        both = jax.jit(lambda key: (spectral_labels(key, x, 2), kmeans_labels(key, x, 2)))
        for seed in range(3):
            spectral, kmeans = both(jax.random.key(seed))
            assert agreement(spectral, truth) == 1.0
            assert agreement(kmeans, truth) < 0.8


def test_leading_singular_vectors_are_those_of_the_dense_affinity(monkeypatch):
    """Rows of the embedding that k-means is given, against NumPy on the N x N matrix of all rows."""
    x = np.random.default_rng(1).normal(size=(40, 3))
    distance = np.linalg.norm(x[:, None] - x[None], axis=-1)
    width = np.sort(distance, axis=1)[:, 7]
    z = np.exp(-(distance**2) / np.outer(width, width))
    degree = z.sum(1)
    between = z / np.sqrt(np.outer(degree, degree))
    expected = np.linalg.eigh(between @ between.T)[1][:, -3:]
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    seen = []

    def keep(key, rows, count):
        seen.append(rows)
        return kmeans_labels(key, rows, count)

    monkeypatch.setattr("inference.methods.depcam.em.kmeans_labels", keep)
    with in_precision():
        spectral_labels(jax.random.key(0), jnp.asarray(x), 3)
        own = np.asarray(seen[0])
    np.testing.assert_allclose(own @ own.T, expected @ expected.T, atol=1e-9)  # signs are free


def test_copies_of_rows_have_the_labels_of_their_distances_not_of_rounding():
    """Turned rows have the same distances and other rounding errors; of 60 binary rows many are copies."""
    labels = jax.jit(lambda key, z: spectral_labels(key, z, 3))
    with in_precision():
        for seed in range(30):
            rng = np.random.default_rng(seed)
            slopes = rng.normal(size=(60, 1)) * np.arange(1, 7) / 3
            z = (rng.random((60, 6)) < 1 / (1 + np.exp(-slopes))).astype(float)
            z -= z.mean(0)
            turned = z @ np.linalg.qr(rng.normal(size=(6, 6)))[0]
            key = jax.random.key(seed)
            np.testing.assert_array_equal(labels(key, jnp.asarray(z)), labels(key, jnp.asarray(turned)))


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
    with pytest.raises(ValueError, match="mixed, kmeans, spectral, pca, hierarchical, random"):
        fit(zoo.DEPCAM(), np.eye(5), method="em", init="dbscan")
