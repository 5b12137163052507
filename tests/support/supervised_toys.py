"""Data of the SPPCA tests: the toy of known parameters, labelled in full or in part."""

import jax.numpy as jnp
import numpy as np
import scipy.linalg


def toy(seed, num_rows=150, num_features=12, num_outputs=3, num_latents=3, labelled=45):
    """z ~ N(0, I), loadings N(0, 1), noise sd .5 (x) and .4 (y): x, all outputs, and those of a few rows."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(num_rows, num_latents))
    x = z @ rng.normal(size=(num_latents, num_features)) + 0.5 * rng.normal(size=(num_rows, num_features))
    y = z @ rng.normal(size=(num_latents, num_outputs)) + 0.4 * rng.normal(size=(num_rows, num_outputs))
    partly = y.copy()
    partly[labelled:] = np.nan
    return x, y, partly


def scaled_loadings(tree):
    """[W_x / sx; W_y / sy], whose span the theorem knows."""
    estimate = tree["variational"]
    blocks = [
        estimate[f"loadings_{b}"].to_numpy() / np.sqrt(float(estimate[f"noise_variance_{b}"])) for b in "xy"
    ]
    return np.concatenate(blocks)


def angle(a, b):
    """The largest angle between two spans, radians."""
    return scipy.linalg.subspace_angles(a, b).max()


def best(tree):
    """The last objective of the best restart."""
    return float(np.nanmax(tree["trace"]["objective"].to_numpy()))


def sweeps_to(objective, target, within=1e-5):
    """How many sweeps it took to come within so many nats of the target; infinite if it did not."""
    reached = np.flatnonzero(np.asarray(objective) >= target - within)
    return reached[0] + 1 if reached.size else np.inf


def dual_scores(gram, y, cross, noise, num_latents):
    """Scores of new rows from inner products alone (theorem 7.3.2 ii, corrected), everything centred."""
    num_rows = gram.shape[0]
    values, vectors = jnp.linalg.eigh(gram / noise[0] + y @ y.T / noise[1])
    v = vectors[:, ::-1][:, :num_latents]
    d = 1.0 - num_rows / values[::-1][:num_latents]
    inner = v.T @ gram @ v + num_rows * noise[0] * jnp.diag(1.0 / d)
    return jnp.sqrt(num_rows) * jnp.linalg.solve(inner, v.T @ cross.T).T / jnp.sqrt(d)
