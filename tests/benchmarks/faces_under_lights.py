"""Figure 4 of Morrison (2016): principal components of one face under many lights.

Run ``ZOO_DATA=... python -m tests.benchmarks.faces_under_lights``; it needs the extended Yale B faces (38
people, about 64 lights each, 32 x 32 pixels) and writes tests/reference/ppca_faces_under_lights.json.

The lecture shows the components of Alan Yuille's face, whose pictures are not to be had, and says that
pictures of an object under many lights "lie mostly in 3-5 dimensions" and that the first three components
look like the face lit from three orthogonal directions. Protocol: every person of Yale B alone, all pictures,
PCA as the closed form of `zoo.PPCA` with three and with five latents, pixels as they are. Recorded: the share
of the variance that one, three and five components hold; as the control the same for as many pictures of
different people under all lights, drawn at random (here faces differ as well as lights). Of the directions
only what needs no eye: the correlation of each component with its mirror image, left for right (lights in
front or above give +1, a light from one side against the other -1), and with itself upside down.
"""

import time
import warnings

import numpy as np

import zoo
from inference import fit
from tests.tools.recording import write_record
from zoo.datasets import load

SIZES = (1, 3, 5)
SIDE = 32


def components_of(x, num_latents):
    """Principal directions, shape (num_features, num_latents), and their share of the variance."""
    varied = x.std(axis=0) > 0  # some corners are black under every light
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the columns of x have very different scales")
        model, options = zoo.PPCA(num_latents=num_latents), {"num_samples": 1, "progress": False}
        tree = fit(model, x[:, varied], method="closed_form", **options)
    at = tree["posterior"].isel(chain=0, draw=0)
    loadings, d, _ = np.linalg.svd(at["loadings"].to_numpy(), full_matrices=False)
    directions = np.zeros((x.shape[1], num_latents))
    directions[varied] = loadings
    noise = float(at["noise_variance"])
    # eigenvalues of the covariance: those of the loadings' square plus the noise
    return directions, float(np.sum(d**2 + noise) / np.sum(np.var(x, axis=0)))


def mirrored(directions):
    """Correlation of each picture with its mirror image and with itself upside down."""
    found = []
    for picture in directions.T.reshape(-1, SIDE, SIDE):
        flips = picture[:, ::-1], picture[::-1]
        found.append([np.corrcoef(picture.ravel(), own.ravel())[0, 1] for own in flips])
    return np.array(found)


def main():
    """Run, print, record."""
    began = time.process_time()
    held = load("yaleb")
    x, people = held["x"].reshape(len(held["x"]), -1).astype(float), np.asarray(held["labels"])
    shares = {"one person": [], "different people": []}
    mirrors, rng = [], np.random.default_rng(0)
    for person in np.unique(people):
        rows = np.flatnonzero(people == person)
        others = rng.choice(len(x), len(rows), replace=False)
        for name, chosen in (("one person", rows), ("different people", others)):
            shares[name].append([components_of(x[chosen], size)[1] for size in SIZES])
        mirrors.append(mirrored(components_of(x[rows], 3)[0]))
    figures = {"people": len(mirrors), "pictures": len(x)}
    for name, own in shares.items():
        figures[f"share_of_variance, {name}"] = {
            str(size): {"mean": round(float(m), 4), "smallest": round(float(low), 4)}
            for size, m, low in zip(SIZES, np.mean(own, axis=0), np.min(own, axis=0), strict=True)
        }
    mirrors = np.array(mirrors)
    figures["correlation_with_flipped"] = {
        f"component {i + 1}": {
            what: {"mean": round(float(own.mean()), 3), "negative_for": int((own < 0).sum())}
            for what, own in (("left for right", mirrors[:, i, 0]), ("upside down", mirrors[:, i, 1]))
        }
        for i in range(3)
    }
    figures["cpu_seconds"] = round(time.process_time() - began)
    print(figures)
    write_record(
        "ppca_faces_under_lights", "ZOO_DATA=... python -m tests.benchmarks.faces_under_lights", **figures
    )


if __name__ == "__main__":
    main()
