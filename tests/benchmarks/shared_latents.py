"""Figures 8 and 10 of Virtanen (2010) with all the models that they compare, and the controls they lack.

Run ``python -m tests.benchmarks.shared_latents figure_8`` or ``figure_10``; it writes into
tests/reference/paired.json and figure_10.json.

``figure_8``: a binary target, twenty binary covariates; one latent that both share (loading 4 on the target),
five of the covariates alone. Error of predicting the target of 950 new rows from 50. Supervised EPCA (SEPCA)
with one to six latents; the same with the covariates' density to the power alpha (Rish et al. 2008), 1/1000
as in the figure, and 1/10, 1/100 and 1/10000 for its "wide range of values"; EPLS
with one shared latent and five of the covariates; logistic regression with a ridge as the control. All
by MAP, the best of two starts, and new rows at the mode of their latents. The prior's penalty goes by the
nuclear norm of Theta over the root of the product of the variances of U and V: this product is 1, and 1 /
alpha^2 with alpha, so that the covariates' density and the penalty are in the same proportion. The thesis's
claims: SEPCA with one to five latents errs more than EPLS (paired t-tests, Bonferroni's correction for five),
with six as much; alpha helps where there are few latents, but as many are needed as without; the benefit of
EPLS is "primarily improved interpretation". For the last, the absolute correlation with the true shared
latent of the 50 rows is measured: the largest of a fitted latent, the largest of a principal axis of the
fitted latents, and that of the latents along the target's row of loadings, an axis that every fit with one
target has. The record is written after every fourth replicate.

``figure_10``: two views of twenty columns, binary or counts, of 50 rows, one shared latent and two of each
view (`tests.benchmarks.paired_mixing.figure_10_data`); a label Bernoulli(sigmoid(4 u)) that no method sees;
error of nine nearest neighbours in the shared space. CCA, ridge CCA (its ridge by five-fold cross-validation
of the correlation, no label), Bayesian CCA (Gaussian cells), GiBECCA (as printed, and corrected, where whole
rows are accepted, each by four chains with their PSRF: 4000 sweeps as printed, and 16 000 on binary views
and 8000 on counts corrected, which needs more: `tests.benchmarks.figure_11`), BECCA (binary by Gibbs, counts
by NUTS) and its mode. A Bayesian method's score is the leading direction of the posterior mean of Theta_S,
which signs and rotations cannot change.

Differences are paired over drawn data sets; their standard errors count data sets.
"""

import argparse
import json
import time
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import zoo
from inference import fit, transform
from inference.precision import in_precision
from inference.symmetry import align_rotation
from tests.benchmarks.figure_11 import PICKED, Timed, chains_of_gibecca, corrected, printed, psrf
from tests.benchmarks.paired_mixing import CHAINS, FEATURES, figure_10_data
from tests.tools.recording import REFERENCE, add_part_to_record, code_of, mean_and_error
from zoo.exponential_family import Gaussian
from zoo.model import in_current_precision

BINARY = ("bernoulli", "bernoulli")
EPLS = "EPLS(1 + 5)"
SCALES = {"bernoulli": 1.5, "poisson": 0.7}  # deviation of the loadings of Figure 10
SAMPLED_BY = {"bernoulli": "gibbs", "poisson": "nuts"}
LENGTHS = {  # warm-up, draws, sweeps for each draw
    "bcca": (300, 500, 1),
    "becca": (300, 500, 1),
}
RIDGES = np.geomspace(1e-2, 1e2, 9)  # in units of the mean variance of a column
LONG = {family: Timed(chains_of_gibecca, (3, 4, 5)) for family in SCALES}
LONG_SWEEPS, PSRFS = 4000, {}  # of the run that was made last
APART = {"bernoulli": 4, "poisson": 2}  # sweeps of corrected GiBECCA between those that are looked at
NUM_LATENTS, ALPHAS = (1, 2, 3, 4, 5, 6), (1e-3, 1e-1, 1e-2, 1e-4)


def fitted(model, *views, **options):
    """A fit without bars; that short chains have not converged is the subject."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*has not converged")
        return fit(model, *views, progress=False, **options)


def paired_difference(first, second):
    """Mean and standard error of first - second, over the data sets that both have: the first ones."""
    both = min(len(first), len(second))
    return mean_and_error(np.subtract(first[:both], second[:both]), 4)


# Figure 10


def shared_score(tree):
    """The leading direction of the posterior mean of Theta_S, one number a row."""
    posterior = tree["posterior"]
    u = posterior["latents"].to_numpy()[..., :1]
    loadings = [posterior[f"loadings_{v}"].to_numpy()[..., :1] for v in (0, 1)]
    shared = np.mean(u @ np.swapaxes(np.concatenate(loadings, axis=-2), -1, -2), axis=(0, 1))
    return np.linalg.svd(shared - shared.mean(axis=0), full_matrices=False)[0][:, 0]


def sampled(model, views, seed, method, kind):
    """The score from one chain."""
    warmup, draws, thinning = LENGTHS[kind]
    lengths = {"num_chains": 1, "num_warmup": warmup, "num_samples": draws, "thinning": thinning}
    return shared_score(fitted(model, *views, method=method, seed=seed, **lengths))


def low_rank(family):
    """BECCA's program: latents of each view, the joint prior."""
    return zoo.Paired.ecca((family,) * 2, 1, (2, 2), beta=0.5, conjugate=(0.1, 0.2))


def becca(family, views, seed):
    """By the sampler that the family has."""
    return sampled(low_rank(family), views, seed, SAMPLED_BY[family], "becca")


def becca_mode(family, views, seed):
    """The best of three starts."""
    return shared_score(fitted(low_rank(family), *views, method="map", num_restarts=3, seed=seed))


def full_covariance(family):
    """One shared latent; each view has a full covariance of its own about it."""
    return zoo.Paired((family,) * 2, num_shared=1, specific="full_covariance", ard=True)


def bayesian_cca(family, views, seed):
    """The cells taken for Gaussian ones."""
    return sampled(full_covariance(Gaussian(None)), views, seed, "gibbs", "bcca")


def canonical_directions(views, ridge):
    """The first pair of directions of CCA; ``ridge`` times its mean variance is added to each view's."""
    whitened, back = [], []
    for y in views:
        centred = y - y.mean(axis=0)
        left, d, right = np.linalg.svd(centred, full_matrices=False)
        kept = d > 1e-9 * d[0]
        root = np.sqrt(d[kept] ** 2 + ridge * np.sum(d**2) / y.shape[1])
        whitened.append(left[:, kept] * (d[kept] / root))
        back.append(right[kept].T / root)
    left, _, right = np.linalg.svd(whitened[0].T @ whitened[1])
    return back[0] @ left[:, 0], back[1] @ right[0]


def variates(views, ridge, train=slice(None), test=slice(None)):
    """Of rows ``test``, with directions found on rows ``train``: shape (2, rows)."""
    found = canonical_directions([y[train] for y in views], ridge)
    pairs = zip(views, found, strict=True)
    return np.array([(y[test] - y[train].mean(axis=0)) @ direction for y, direction in pairs])


def classical_cca(views, ridge=0.0):
    """The mean of the two first canonical variates, one number a row."""
    return variates(views, ridge).mean(axis=0)


def ridge_cca(views, seed):
    """With the ridge whose held-out variates correlate best over five folds."""
    parts = np.array_split(np.random.default_rng(seed).permutation(len(views[0])), 5)

    def held_out(ridge):
        found = [variates(views, ridge, np.setdiff1d(np.arange(len(views[0])), part), part) for part in parts]
        # signs and sizes of directions differ from fold to fold, the sign of a product of two does not
        return np.mean([np.corrcoef(own)[0, 1] if own.std(axis=1).min() > 0 else 0.0 for own in found])

    return classical_cca(views, RIDGES[int(np.argmax([held_out(ridge) for ridge in RIDGES]))])


def several_corrected(apart, key, values, model, *data):
    """Sweeps of GiBECCA as ours is, of which the last is looked at."""

    def once(number, values):
        return corrected(jax.random.fold_in(key, number), values, model, *data)

    return jax.lax.fori_loop(0, apart, once, dict(values))


SWEEPS = {  # of GiBECCA, by how it is run and the family
    "as printed": dict.fromkeys(SCALES, printed),
    "corrected": {family: partial(several_corrected, apart) for family, apart in APART.items()},
}


def gibecca(way, family, views, seed):
    """Four chains of as many draws as Figure 11 has, their second halves."""
    with in_precision():
        data = tuple(map(jnp.asarray, views))
        model = in_current_precision(full_covariance(family).replaced(num_features=(FEATURES,) * 2))
        keys = jax.random.split(jax.random.key(seed), CHAINS)
        draws, _ = LONG[family](keys, model, data, SWEEPS[way][family], LONG_SWEEPS, shared_cells)
    half = np.asarray(draws, float)[:, LONG_SWEEPS // 2 :]
    picked = half[..., PICKED].reshape(CHAINS, -1, len(PICKED))
    PSRFS[way] = round(float(np.median(psrf(picked))), 4)
    shared = half.mean(axis=(0, 1)).reshape(len(views[0]), -1)
    return np.linalg.svd(shared - shared.mean(axis=0), full_matrices=False)[0][:, 0]


def shared_cells(values):
    """Theta_S, all cells, in single precision since there are many draws."""
    loadings = jnp.concatenate([values["loadings_0"], values["loadings_1"]])[:, :1]
    return (values["latents"][:, :1] @ loadings.T).ravel().astype(jnp.float32)


METHODS = {
    "cca": lambda family, views, seed: classical_cca(views),
    "ridge_cca": lambda family, views, seed: ridge_cca(views, seed),
    "bcca": bayesian_cca,
    "gibecca": partial(gibecca, "corrected"),
    "gibecca_printed": partial(gibecca, "as printed"),
    "becca": becca,
    "becca_mode": becca_mode,
}
ORDER = ("cca", "bcca", "gibecca", "becca")  # the thesis's, worst first


def nearest_neighbours_error(score, labels):
    """Of the majority among the nine nearest other rows."""
    distance = np.abs(score[:, None] - score)
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1)[:, :9]
    return float(np.mean((labels[nearest].mean(axis=1) > 0.5) != labels))


def labels_of(truth, seed):
    """Bernoulli(sigmoid(4 u))."""
    return np.random.default_rng(100 + seed).random(len(truth)) < 1 / (1 + np.exp(-4 * truth))


def figure_10(replicates, families=tuple(SCALES), corrected_on=None):
    """Errors and correlations of all methods on both kinds of views, and paired differences.

    Recorded after every data set; what a record of the same code has is not run again.

    Args:
        replicates: number of data sets.
        families: of the cells.
        corrected_on: of how many data sets, the first ones, corrected GiBECCA runs; None: all.
    """
    corrected_on = replicates if corrected_on is None else corrected_on
    for family in families:
        part = f"order, {family}"
        held = held_data_sets(part)
        for seed in range(replicates):
            views, truth = figure_10_data(seed, family, SCALES[family])
            labels = labels_of(truth, seed)
            if seed == len(held):
                told = nearest_neighbours_error(truth, labels)
                held.append(
                    {"error": {"true latent": told}, "correlation": {}, "PSRF": {}, "cpu_seconds": {}}
                )
            own = held[seed]
            for name, method in METHODS.items():
                if name in own["correlation"] or (name == "gibecca" and seed >= corrected_on):
                    continue
                clock = time.process_time()
                score = method(family, views, seed)
                own["cpu_seconds"][name] = round(time.process_time() - clock, 2)
                own["error"][name] = nearest_neighbours_error(score, labels)
                own["correlation"][name] = round(float(abs(np.corrcoef(score, truth)[0, 1])), 4)
                own["PSRF"] |= {way: PSRFS.pop(way) for way in tuple(PSRFS)}
            figures = figures_of_figure_10(family, held)
            asked = f"--replicates {replicates} --family {family} --corrected {corrected_on}"
            command = f"python -m tests.benchmarks.shared_latents figure_10 {asked}"
            add_part_to_record("figure_10", part, command, **figures)
            print(family, seed, own, flush=True)
        print(family, figures, flush=True)


def held_data_sets(part):
    """What the record has of each data set, if it is of this code."""
    held = json.loads((REFERENCE / "figure_10.json").read_text(encoding="utf-8")).get(part, {})
    return held.get("data sets", []) if held.get("code") == code_of("figure_10") else []


def figures_of_figure_10(family, held):
    """Means over data sets, paired differences, and the data sets themselves."""
    pairs = [*zip(ORDER, ORDER[1:], strict=False)]
    pairs += [("cca", "becca"), ("cca", "ridge_cca"), ("ridge_cca", "bcca"), ("ridge_cca", "becca")]
    pairs += [("bcca", "becca"), ("becca_mode", "becca")]
    pairs += [("bcca", "gibecca_printed"), ("gibecca_printed", "becca"), ("gibecca", "gibecca_printed")]

    def of_all(kind):
        names = {name: None for own in held for name in own[kind]}
        return {name: [own[kind][name] for own in held if name in own[kind]] for name in names}

    errors, found, psrfs = map(of_all, ("error", "correlation", "PSRF"))
    figures = {
        f"median PSRF of GiBECCA {way}": {
            "median": round(float(np.median(own)), 3),
            "largest": round(max(own), 3),
        }
        for way, own in psrfs.items()
    }
    return figures | {
        "replicates": len(held),
        "lengths": LENGTHS,
        "sweeps of GiBECCA, printed and corrected": [LONG_SWEEPS, LONG_SWEEPS * APART[family]],
        "error_of_nine_neighbours": {name: round(float(np.mean(own)), 4) for name, own in errors.items()},
        "abs_correlation": {name: round(float(np.mean(own)), 4) for name, own in found.items()},
        "differences_of_errors": {
            f"{one} - {other}": paired_difference(errors[one], errors[other])
            for one, other in pairs
            if one in errors and other in errors
        },
        "cpu_seconds_of_a_fit": {
            name: round(float(np.mean(own)), 2) for name, own in of_all("cpu_seconds").items()
        },
        "data sets of GiBECCA corrected": len(errors.get("gibecca", [])),
        "data sets": held,
    }


# Figure 8


def figure_8_data(seed):
    """50 rows to learn from with their shared latent, 950 to be judged by, and the true log odds of these."""
    rng = np.random.default_rng(seed)
    loadings = np.zeros((21, 6))
    loadings[0, 0] = 4.0
    loadings[1:] = 2.0 * rng.normal(size=(20, 6))
    latents = rng.normal(size=(1000, 6))
    theta = latents @ loadings.T
    cells = (rng.uniform(size=theta.shape) < 1 / (1 + np.exp(-theta))).astype(float)
    return cells[:50], latents[:50, 0], cells[50:], theta[50:, 0]


def figure_8_models():
    """Name to model."""
    chosen = {f"SEPCA({k})": zoo.Paired.sepca(BINARY, k) for k in NUM_LATENTS}
    for alpha in ALPHAS:
        for k in NUM_LATENTS:
            chosen[f"SEPCA({k}), alpha {alpha:g}"] = zoo.Paired.sepca(
                BINARY, k, view_weights=(1.0, alpha), loading_variance=alpha**-2
            )
    return chosen | {EPLS: zoo.Paired.epls(BINARY, 1, 5)}


def predicted_targets(tree, test):
    """Whether the target's natural parameter is positive at the mode of the latents given the covariates."""
    at = align_rotation(tree)["posterior"].isel(chain=0, draw=0)  # the axes of `transform`
    u = transform(tree, None, test[:, 1:]).to_numpy()
    return u @ at["loadings_0"].to_numpy()[0] + at["loc_0"].to_numpy()[0] > 0


def told_by_one_latent(tree, truth, num_shared):
    """Absolute correlations with the truth, as the module's docstring has them."""
    at = tree["posterior"].isel(chain=0, draw=0)
    u = at["latents"].to_numpy()[:, :num_shared]
    axes = np.linalg.svd(u - u.mean(axis=0), full_matrices=False)[0]
    along = u @ at["loadings_0"].to_numpy()[0, :num_shared]
    found = (u, axes, along[:, None])
    return [float(np.nanmax(np.abs(np.corrcoef(own.T, truth)[-1, :-1]))) for own in found]


def figure_8(replicates):
    """Errors by model, paired differences to EPLS, and how well one latent is the shared one."""
    from sklearn.linear_model import LogisticRegression

    began = time.process_time()
    errors, told = {}, {}
    for replicate in range(replicates):
        train, shared, test, odds = figure_8_data(replicate)
        truth = test[:, 0] == 1
        errors.setdefault("true log odds", []).append(float(np.mean((odds > 0) != truth)))
        for name, model in figure_8_models().items():
            tree = fitted(
                model, train[:, :1], train[:, 1:], method="map", num_restarts=2, max_iterations=3000
            )
            errors.setdefault(name, []).append(float(np.mean(predicted_targets(tree, test) != truth)))
            num_shared = 1 if name == EPLS else model.num_latents
            told.setdefault(name, []).append(told_by_one_latent(tree, shared, num_shared))
        ridge = LogisticRegression(C=0.3).fit(train[:, 1:], train[:, 0])
        errors.setdefault("ridge logistic", []).append(
            float(np.mean((ridge.predict(test[:, 1:]) == 1) != truth))
        )
        print(replicate, {name: round(own[-1], 3) for name, own in errors.items()}, flush=True)
        if replicate > 2 and replicate % 4 == 3 or replicate == replicates - 1:
            figures = figures_of_figure_8(errors, told) | {"cpu_seconds": round(time.process_time() - began)}
            command = f"python -m tests.benchmarks.shared_latents figure_8 --replicates {replicate + 1}"
            add_part_to_record("paired", "figure_8_in_full", command, "scikit-learn", **figures)
    print(figures)


def figures_of_figure_8(errors, told):
    """What is recorded of the replicates so far."""
    from scipy.stats import ttest_rel

    names = [name for name in errors if name not in (EPLS, "true log odds")]
    tested = {k: ttest_rel(errors[f"SEPCA({k})"], errors[EPLS]).pvalue for k in NUM_LATENTS[:-1]}
    axes = ("a latent", "a principal axis", "the target's loadings")
    weighted = {f"alpha {alpha:g}": f", alpha {alpha:g}" for alpha in ALPHAS}
    return {
        "replicates": len(errors[EPLS]),
        "mean_error": {name: round(float(np.mean(own)), 4) for name, own in errors.items()},
        "more_than_epls": {name: paired_difference(errors[name], errors[EPLS]) for name in names},
        "p_values_of_more_than_epls": {  # NaN: the same errors on every replicate
            f"SEPCA({k})": float(f"{min(1.0, len(tested) * p):.2g}") for k, p in tested.items()
        },
        "weighted_less_plain": {
            name: {
                str(k): paired_difference(errors[f"SEPCA({k}){end}"], errors[f"SEPCA({k})"])
                for k in NUM_LATENTS
            }
            for name, end in weighted.items()
        },
        "one_latent_less_six": {
            name: paired_difference(errors[f"SEPCA(1){end}"], errors[f"SEPCA(6){end}"])
            for name, end in ({"plain": ""} | weighted).items()
        },
        "correlation_with_the_shared_latent": {
            name: dict(zip(axes, np.mean(own, axis=0).round(3).tolist(), strict=True))
            for name, own in told.items()
        },
        "correlation, EPLS's latent less SEPCA(6)'s": {
            axis: paired_difference(np.array(told[EPLS])[:, 0], np.array(told["SEPCA(6)"])[:, i])
            for i, axis in enumerate(axes)
        },
    }


PARTS = {"figure_8": (figure_8, 20), "figure_10": (figure_10, 12)}


def main():
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--replicates", type=int)
    parser.add_argument("--family", choices=SCALES, help="of figure_10; left out, both")
    parser.add_argument("--corrected", type=int, help="data sets of corrected GiBECCA")
    asked = parser.parse_args()
    run, replicates = PARTS[asked.part]
    options = {"families": (asked.family,)} if asked.family else {}
    options |= {} if asked.corrected is None else {"corrected_on": asked.corrected}
    run(asked.replicates or replicates, **options)


if __name__ == "__main__":
    main()
