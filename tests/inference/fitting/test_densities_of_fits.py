"""Every density that a fit reports is of the data as passed, whatever the units that it was computed in.

With ``standardize=True`` each number of the trace and among the attributes is that of the table divided by
hand, less the Jacobian of what it is a density of; what is no density is equal. The objective of a sampler is
the log joint of its draws, whatever coordinates it moves in.
"""

import numpy as np
import pytest

import inference
import zoo
from inference import fit
from zoo.exponential_family import Gaussian

SCALES = np.array([1e-3, 1.0, 50.0, 1e3])
UNKNOWN = Gaussian(noise_variance=None)
MODELS = {
    "ppca": zoo.PPCA(num_latents=1),
    "ppca, gaussian": zoo.PPCA(num_latents=1, loading_prior="gaussian"),
    "ppca, ard": zoo.PPCA(num_latents=1, loading_prior="ard", noise="diagonal"),
    "kernelpca": zoo.KernelPCA(num_latents=1, noise_variance=0.1),
    "kernelpca, latents": zoo.KernelPCA(num_latents=1, noise_variance=0.1, latent_variance=1.0),
    "sppca": zoo.SPPCA(num_latents=1, output_noise="per_output"),
    "sppca, gaussian": zoo.SPPCA(num_latents=1, loading_prior="gaussian"),
    "sppca, probit": zoo.SPPCA(num_latents=1, loading_prior="gaussian", output_likelihood="probit"),
    "epca": zoo.EPCA(family=UNKNOWN, num_latents=1),
    "paired": zoo.Paired((UNKNOWN, UNKNOWN), num_shared=1, view_weights=(1.0, 0.5)),
    "paired, full": zoo.Paired((UNKNOWN, UNKNOWN), num_shared=1, specific="full_covariance"),
    "depcam": zoo.DEPCAM(family=UNKNOWN, num_components=2, num_latents=1),
}
REFUSED = {
    "ppca": ("vb", "tempered"),
    "ppca, gaussian": ("closed_form",),
    "ppca, ard": ("closed_form",),
    "kernelpca": ("nuts", "svi"),
    "kernelpca, latents": ("closed_form", "em"),
    "sppca": ("vb", "closed_form", "morp", "kernel_cca", "gibbs", "ep", "tempered"),
    "sppca, gaussian": ("closed_form", "morp", "kernel_cca", "ep"),
    "sppca, probit": ("closed_form", "morp", "kernel_cca", "em", "vb"),
    "paired": ("closed_form", "tempered"),  # whose views have weights
    "depcam": ("tempered",),  # whose components repel each other
}
PAIRS = [("ppca, gaussian", "hmc")] + [
    (name, method)
    for name, model in MODELS.items()
    for method in model.methods
    if method not in ("hmc", *REFUSED.get(name, ()))
]
BY_DEFAULT = {("ppca", "closed_form"), ("ppca", "em"), ("ppca, gaussian", "nuts"), ("ppca, gaussian", "svi")}
CHAINS = {"num_warmup": 4, "num_samples": 4, "num_chains": 1}
CLIMB = {"max_iterations": 6, "tolerance": 0.0}
SETTINGS = {
    "closed_form": {},
    "gibbs": CHAINS,
    "tempered": CHAINS | {"num_temperatures": 2},
    "nuts": CHAINS | {"max_tree_depth": 3},
    "hmc": CHAINS | {"num_steps": 2},
    **dict.fromkeys(("vb", "svi"), CLIMB | {"num_samples": 4}),
}
#: Free entries of a site that have the unit of a column, times their power; of DEPCAM for each component.
POWERS = {"loadings": 1, "loc": 1, "offsets": 2, "specific_precision": -3}
#: Of the parts of the data in the density; the score of a kernel is no density of rows.
WEIGHTS = {"paired": (1.0, 0.5), "kernelpca": (0.0,), "kernelpca, latents": (0.0,)}

pytestmark = pytest.mark.filterwarnings("ignore:.*has not converged", "ignore:.*probit outputs")


def parts_of(name):
    """The data of a model, with a missing cell where it takes one, and the columns' standard deviations."""
    r = np.random.default_rng(1)
    x = (r.normal(size=(20, 1)) @ r.normal(size=(1, 4)) + 0.4 * r.normal(size=(20, 4)) + 3.0) * SCALES
    if name in ("epca", "depcam", "ppca, gaussian"):
        x[3, 2] = np.nan
    if name == "sppca, probit":
        return (x, (x[:, :1] > x[:, :1].mean()) * 1.0), (x.std(0), np.ones(1))
    parts = (x[:, :2], x[:, 2:]) if name.startswith(("sppca", "paired")) else (x,)
    return parts, tuple(np.nanstd(part, axis=0) for part in parts)


def densities_of(tree):
    """Every number of the trace's last step and among the attributes, by name."""
    found = {name: float(value.values.ravel()[-1]) for name, value in tree["trace"].data_vars.items()}
    known = {n: v for n, v in tree.attrs.items() if isinstance(v, int | float) and n != "sampling_time"}
    return found | known


def has_density_of_parameters(model, method):
    if model.prior == "improper" or method in ("svi", "closed_form"):
        return False
    return method != "vb" or type(model) is zoo.DEPCAM  # whose parameters are points


@pytest.mark.parametrize(
    ("name", "method"),
    [pytest.param(*pair, marks=() if pair in BY_DEFAULT else pytest.mark.slow) for pair in PAIRS],
)
def test_densities_are_of_the_data_as_passed(name, method):
    model, (parts, scales) = MODELS[name], parts_of(name)
    settings = SETTINGS.get(method, CLIMB)
    tree = fit(model.replaced(standardize=True), *parts, method=method, **settings)
    plain = fit(model, *(part / s for part, s in zip(parts, scales, strict=True)), method=method, **settings)
    rows = [(np.isfinite(part) * np.log(s)).sum() for part, s in zip(parts, scales, strict=True)]
    cells = float(np.dot(WEIGHTS.get(name, np.ones(len(parts))), rows))
    sites = {site.rsplit("_", 1)[0] if site[-1] in "01xy" else site for site in map(str, tree["posterior"])}
    each = sum(POWERS.get(site, 0) for site in sites) * sum(np.log(s).sum() for s in scales)
    lost = {"objective": cells + each * has_density_of_parameters(model, method)}
    lost |= {"log_likelihood": cells, "elbo": cells, "aic": -2 * cells, "bic": -2 * cells}
    found, hand = densities_of(tree), densities_of(plain)
    assert found.keys() == hand.keys() and "objective" in found
    for own, value in found.items():
        wanted = hand[own] - lost.get(own, 0.0)
        assert value == pytest.approx(wanted, rel=1e-6, abs=1e-5), own
    if "num_warmup" in settings and not (method == "gibbs" and name.startswith("sppca")):  # draws latents too
        joint = tree["trace"]["objective"].values[:, -settings["num_samples"] :]
        np.testing.assert_allclose(joint, tree["sample_stats"]["lp"], rtol=1e-7, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "method"), [("ppca", "closed_form"), ("ppca", "em"), pytest.param("ppca, ard", "em")]
)
def test_log_likelihood_is_the_sum_of_the_densities_of_the_rows(name, method):
    """And AIC and BIC are computed from it; weighted rows count so often."""
    (x,), _ = parts_of(name)
    weight = np.where(np.arange(20) < 5, 2.0, 1.0)
    for own in (None, weight) if method == "em" else (None,):
        model = MODELS[name].replaced(standardize=True)
        tree = fit(model, x, method=method, sample_weight=own, max_iterations=6, tolerance=0.0)
        densities = inference.log_density(tree, x).to_numpy()
        own = np.ones(20) if own is None else own
        wanted, number = float(own @ densities), tree.attrs["num_parameters"]
        assert tree.attrs["log_likelihood"] == pytest.approx(wanted, rel=1e-8)
        assert tree.attrs["bic"] == pytest.approx(-2 * wanted + number * np.log(own.sum()), rel=1e-8)
        assert tree.attrs["aic"] == pytest.approx(-2 * wanted + 2 * number, rel=1e-8)


@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_a_flat_prior_has_density_one_in_any_unit():
    """So that the log joint of its draws is the log likelihood of the rows in the units of the data."""
    x = 1e3 * np.random.default_rng(0).normal(size=(20, 3))
    options = {"num_chains": 1, "num_warmup": 10, "num_samples": 5, "progress": False}
    tree = inference.fit(zoo.PPCA(num_latents=1), x, method="nuts", **options)
    likelihood = tree["log_likelihood"]["log_likelihood"].sum("observation")
    np.testing.assert_allclose(tree["sample_stats"]["lp"], likelihood, rtol=1e-10)
