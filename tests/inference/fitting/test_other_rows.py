"""A fit of other rows is a start: what it held of each of its rows is drawn anew for those of the call."""

import numpy as np
import pandas as pd
import pytest

import inference
import zoo
from inference import fit, predict

RNG = np.random.default_rng(0)
GROUP = np.repeat([0, 1], [40, 30])
ROWS = RNG.normal(size=(70, 3)) + 6 * GROUP[:, None]
BITS = (RNG.random((70, 8)) < np.where(GROUP == 1, 0.9, 0.1)[:, None]).astype(float)
COUNTS = RNG.poisson(np.where(GROUP[:, None] == np.arange(8) // 4, 6.0, 0.5))
CLUSTERED = {
    "mixture": (zoo.Mixture(num_components=2), ROWS, ("vb", "em", "gibbs", "collapsed_gibbs")),
    "mcfa": (zoo.MCFA(num_components=2, num_latents=1), ROWS, ("vb", "gibbs")),
    "depcam": (zoo.DEPCAM(num_components=2, num_latents=1), BITS, ("em", "vb")),
    "pcp": (zoo.PCP(num_topics=2, num_clusters=2), COUNTS, ("vb", "gibbs")),
}
OTHERS = {
    "lda": (zoo.LDA(num_topics=2), COUNTS, ("vb", "gibbs", "collapsed_gibbs")),
    "plsi": (zoo.PLSI(num_topics=2), COUNTS, ("em",)),
    "epca": (zoo.EPCA(num_latents=1), BITS, ("vb", "gibbs")),
    "ppca": (zoo.PPCA(num_latents=1, loading_prior="gaussian"), ROWS, ("em", "vb", "gibbs")),
}
SHORT = {"gibbs": {"num_warmup": 1, "num_samples": 1}, "vb": {"max_iterations": 1}}
LONG = {"gibbs": {"num_warmup": 50, "num_samples": 20}, "vb": {"num_restarts": 5}}
LONG |= {"collapsed_gibbs": LONG["gibbs"], "em": LONG["vb"]}
SHORT |= {"collapsed_gibbs": SHORT["gibbs"], "em": SHORT["vb"]}


def pairs(cases):
    return [(name, method) for name, (*_, methods) in cases.items() for method in methods]


@pytest.mark.filterwarnings("ignore")  # of one step nothing has converged
@pytest.mark.cases_by_default(4)
@pytest.mark.parametrize(("name", "method"), pairs(CLUSTERED))
def test_one_step_from_other_rows_keeps_their_clusters(name, method):
    model, x, _ = CLUSTERED[name]
    rows = np.arange(70) % 7 != 0
    tree = fit(model, x, method=method, **LONG[method])
    assert np.mean(predict(tree, x) == GROUP) > 0.95  # the first cluster is the larger one
    again = fit(model, x[rows], method=method, init=tree, **SHORT[method])
    assert np.mean(predict(again, x[rows]) == GROUP[rows]) > 0.95


@pytest.mark.filterwarnings("ignore")
@pytest.mark.cases_by_default(3)
@pytest.mark.parametrize(("name", "method"), pairs(OTHERS))
def test_other_rows_are_a_start_of_models_without_clusters(name, method):
    model, x, _ = OTHERS[name]
    tree = fit(model, x, method=method, **SHORT[method])
    again = fit(model, x[:50], method=method, init=tree, **SHORT[method])
    sizes = [group.sizes for group in again.children.values()]
    assert {held[dim] for held in sizes for dim in ("observation", "document") if dim in held} == {50}


@pytest.mark.filterwarnings("ignore")
def test_rows_of_other_names_are_other_rows():
    """As many, in another order: labels of the former rows would be those of the wrong ones."""
    table = pd.DataFrame(ROWS, index=[f"row {i}" for i in range(70)])
    model = zoo.Mixture(num_components=2)
    tree = fit(model, table, method="gibbs", **LONG["gibbs"])
    shuffled = table.sample(frac=1, random_state=3)
    wanted = GROUP[[int(name.removeprefix("row ")) for name in shuffled.index]]
    again = fit(model, shuffled, method="gibbs", init=tree, num_warmup=0, num_samples=1, split_merge=0)
    agree = np.mean(again["posterior"]["assignments"].to_numpy()[:, 0] == wanted, axis=1)
    assert np.all(np.maximum(agree, 1 - agree) > 0.95)  # each chain has its own numbers


@pytest.mark.filterwarnings("ignore:epca by map has not converged")
def test_a_method_that_needs_every_site_says_so():
    tree = fit(zoo.EPCA(num_latents=1), BITS, method="map", max_iterations=2)
    with pytest.raises(ValueError, match="init must hold every site of the program; missing: latents"):
        fit(zoo.EPCA(num_latents=1), BITS[:50], method="map", init=tree)


@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_a_kernel_goes_on_from_the_former_rows():
    """Its coefficients are of those, which the new rows join: they are not drawn anew."""
    model = zoo.KernelPCA(kernel="rbf", num_latents=1, noise_variance=0.01)
    tree = fit(model, ROWS[:50], method="em", max_iterations=20)
    again = fit(inference.model_of(tree), ROWS, method="em", init=tree, max_iterations=2)
    assert again["posterior"].sizes["observation"] == 70
