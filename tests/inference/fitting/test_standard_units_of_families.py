"""``standardize=True`` of EPCA, Paired and DEPCAM: the fit of the table divided by hand, in every output."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import inference
import zoo
from inference import fit
from inference.calibration import relation_check
from inference.calibration.relation_changes import RELATIONS, Relation
from inference.calibration.relations import sized
from inference.cli import main
from inference.component_subspaces import loading_products
from inference.convergence.identifiable import invariants
from inference.diagnostics import profiles
from inference.precision import in_precision
from inference.symmetry import components
from tests.support.log_joint import log_joint
from tests.support.relation_cases import relation_of
from zoo.answers import answer_of, start_of
from zoo.cards import read_card
from zoo.exponential_family import Categorical, Gaussian

UNKNOWN = Gaussian(noise_variance=None)
SCALES = np.array([1e-3, 1.0, 50.0, 1e3])
UNITS = np.array([1e3, 0.1, 7.0, 1e-3])
CLIMB = {"max_iterations": 10, "tolerance": 0.0, "num_samples": 5}
CHAINS = {"num_warmup": 5, "num_samples": 5, "num_chains": 2}
HAMILTONIAN = CHAINS | {"max_tree_depth": 4}

pytestmark = pytest.mark.filterwarnings("ignore:.*has not converged")


@pytest.fixture(scope="module")
def table():
    """30 rows near a line in four columns of very different units, one cell missing."""
    r = np.random.default_rng(1)
    x = r.normal(size=(30, 1)) @ r.normal(size=(1, 4)) + 0.4 * r.normal(size=(30, 4)) + 3.0
    x[3, 2] = np.nan
    return x * SCALES


def epca(**fields):
    return zoo.EPCA(family=UNKNOWN, num_latents=1, **fields)


def paired(**fields):
    return zoo.Paired((UNKNOWN, UNKNOWN), num_shared=1, **fields)


def full(**fields):
    return paired(specific="full_covariance", **fields)


def depcam(**fields):
    return zoo.DEPCAM(family=UNKNOWN, num_components=2, num_latents=1, **fields)


def parts_of(make, x):
    """The data of a model, and their standard deviations."""
    parts = (x,) if make in (epca, depcam) else (np.nan_to_num(x, nan=150.0)[:, :2], x[:, 2:])
    if make is full:  # whose rows of a view are whole
        parts = tuple(np.nan_to_num(part, nan=150.0) for part in parts)
    return parts, tuple(np.nanstd(part, axis=0) for part in parts)


def power_of(name, scales):
    """What a variable of the standardised fit is multiplied by, shape as its trailing axes."""
    base, _, place = name.rpartition("_")
    base, s = (base, scales[int(place)]) if place.isdigit() else (name, scales[0])
    if base in ("loc", "natural_params", "offsets"):
        return s
    if base == "specific_precision":
        return 1.0 / np.outer(s, s)
    return s[:, None] if base == "loadings" else 1.0


def end(tree):
    return float(np.ravel(tree["trace"]["objective"])[-1])


FITS = [
    (epca, "vb", CLIMB),
    (depcam, "em", CLIMB),
    *[
        pytest.param(make, method, options, marks=pytest.mark.slow)
        for make, method, options in (
            (epca, "map", CLIMB),
            (epca, "gibbs", CHAINS),
            (epca, "nuts", HAMILTONIAN),
            (epca, "hmc", CHAINS | {"num_steps": 4}),
            (epca, "svi", CLIMB),
            (paired, "vb", CLIMB),
            (paired, "map", CLIMB),
            (paired, "gibbs", CHAINS),
            (paired, "nuts", HAMILTONIAN),
            (paired, "svi", CLIMB),
            (full, "vb", CLIMB),
            (full, "map", CLIMB),
            (full, "gibbs", CHAINS),
            (full, "closed_form", {}),
            (depcam, "vb", CLIMB),
            (depcam, "map", CLIMB),
            (depcam, "nuts", HAMILTONIAN),
            (depcam, "svi", CLIMB),
        )
    ],
]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "method", "options"), FITS)
def test_the_fit_is_that_of_the_table_divided_by_hand(table, make, method, options, tmp_path):
    """Every output after conversion by hand; without ``standardize`` the same rows have another answer."""
    parts, scales = parts_of(make, table)
    standard = tuple(part / s for part, s in zip(parts, scales, strict=True))
    tree = fit(make(standardize=True), *parts, method=method, **options)
    plain = fit(make(), *standard, method=method, **options)
    for name in plain["posterior"].data_vars:
        wanted = plain["posterior"][name] * power_of(name, scales)
        size = float(np.abs(wanted).max())
        np.testing.assert_allclose(tree["posterior"][name], wanted, rtol=1e-5, atol=1e-7 * size + 1e-12)
    cells = sum((np.isfinite(p) * np.log(s)).sum() for p, s in zip(parts, scales, strict=True))
    sites = {"loadings": 1.0, "loc": 1.0, "offsets": 2.0, "specific_precision": -3.0}
    held = {name.removesuffix("_0") for name in plain["posterior"].data_vars}
    free = sum(power for name, power in sites.items() if name in held) * sum(np.log(s).sum() for s in scales)
    if method in ("closed_form", "svi") or (method == "vb" and make is not depcam):
        free = 0.0  # a likelihood and bounds have no density of parameters
    np.testing.assert_allclose(end(tree) + cells + free, end(plain), rtol=1e-6, atol=1e-5)

    new = tuple(part[:6].copy() for part in parts)
    new[-1][0] = np.nan
    hand = tuple(part / s for part, s in zip(new, scales, strict=True))
    for kind in ({},) if make is depcam else ({"scores": "latent"}, {"scores": "orthonormal"}):
        found, wanted = inference.transform(tree, *new, **kind), inference.transform(plain, *hand, **kind)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    for part, what in enumerate(inference.model_of(tree).data_names):
        asked = {"what": "cells" if make is depcam else what} if make is not epca else {}
        found, wanted = inference.predict(tree, *new, **asked), inference.predict(plain, *hand, **asked)
        s = scales[part]
        np.testing.assert_allclose(found / s, wanted, rtol=1e-5)
        np.testing.assert_allclose(
            found.standard_deviation / s, wanted.standard_deviation, rtol=1e-5, atol=1e-9
        )
        seen = np.isfinite(new[part])
        np.testing.assert_array_equal(found.to_numpy()[seen], new[part][seen])
    lost = sum((np.isfinite(p) * np.log(s)).sum(1) for p, s in zip(new, scales, strict=True))
    found, wanted = inference.log_density(tree, *new) + lost, inference.log_density(plain, *hand)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)

    inference.save(tree, tmp_path / "fit.nc")
    back = inference.load(tmp_path / "fit.nc")
    assert inference.model_of(back).standardize
    np.testing.assert_allclose(inference.log_density(back, *new), inference.log_density(tree, *new))


def density(model, values, *data):
    return float(log_joint(model, values, *data))


@pytest.mark.slow
@pytest.mark.parametrize("make", [epca, paired, full, depcam])
def test_the_program_is_that_of_standard_units(table, make):
    """Log densities of cells and parameters; a planted factor of two of the noise must show."""
    parts, scales = parts_of(make, table)
    standard = tuple(part / s for part, s in zip(parts, scales, strict=True))
    model, plain = make(standardize=True).with_sizes_from(*parts), make().with_sizes_from(*standard)
    with in_precision():
        given, hand = (tuple(map(jnp.asarray, data)) for data in (parts, standard))
        values = start_of(plain, jax.random.key(0), *hand)
        scaled = {name: value * power_of(name, scales) for name, value in values.items()}
        started = start_of(model, jax.random.key(0), *given)
        for name, value in scaled.items():
            np.testing.assert_allclose(started[name], value, rtol=1e-6)
        cells = sum((np.isfinite(p) * np.log(s)).sum() for p, s in zip(parts, scales, strict=True))
        free = {"loadings": 1.0, "loc": 1.0, "offsets": 2.0, "specific_precision": -3.0}
        held = {name.removesuffix("_0") for name in values} & set(free)
        lost = cells + sum(free[name] for name in held) * sum(np.log(s).sum() for s in scales)
        expected = density(plain, values, *hand)
        np.testing.assert_allclose(density(model, scaled, *given) + lost, expected, rtol=1e-9)
        noise = next(name for name in values if name.startswith(("noise_variance", "specific_precision")))
        wrong = scaled | {noise: 2.0 * scaled[noise]}
        assert abs(density(model, wrong, *given) + lost - expected) > 1.0


def standard(make, parts, method, name):
    """The relation, with what happens to a fit in standard units."""
    return relation_of(sized(lambda *data: make(standardize=True), parts), method, name)


HAND = Relation("columns in other units", RELATIONS["columns_rescaled"].change, in_units=True)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "method"), [(paired, "vb"), (depcam, "em"), (epca, "vb")])
def test_columns_may_be_in_any_unit_and_from_any_origin(table, make, method):
    """A million from column to column; planted: the same change without ``standardize`` must show."""
    parts, _ = parts_of(make, table)
    for relation in ("columns_rescaled",) if make is paired else ("columns_rescaled", "shifted"):
        assert relation_check(
            make(standardize=True), method, parts, standard(make, parts, method, relation), **CLIMB
        )
    with pytest.raises(ValueError, match="columns share parameters that have a unit"):
        relation_check(make(), method, parts, "columns_rescaled", **CLIMB)
    assert not relation_check(make(), method, parts, HAND, **CLIMB)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "method", "options"),
    [
        (make, method, options)
        for make, methods in (
            (epca, ("map", "gibbs", "nuts", "hmc", "svi")),
            (paired, ("map", "gibbs", "nuts", "hmc", "svi")),
            (full, ("vb", "map", "gibbs", "nuts", "closed_form")),
            (depcam, ("vb", "map", "nuts", "hmc", "svi")),
        )
        for method in methods
        for options in [
            {
                "gibbs": CHAINS,
                "nuts": HAMILTONIAN,
                "hmc": CHAINS | {"num_steps": 4},
                "closed_form": {},
            }.get(method, CLIMB)
        ]
    ],
)
def test_every_method_is_free_of_units(table, make, method, options):
    parts, _ = parts_of(make, table)
    if method == "closed_form":
        parts = tuple(part[:, :2] for part in parts)
    relation = standard(make, parts, method, "columns_rescaled")
    assert relation_check(make(standardize=True), method, parts, relation, **options)


@pytest.fixture(scope="module")
def standardized(table):
    """A short fit by EPCA, and that of the table divided by hand."""
    return fit(epca(standardize=True), table, method="vb", **CLIMB), fit(
        epca(), table / np.nanstd(table, axis=0), method="vb", **CLIMB
    )


@pytest.mark.slow
def test_profiles_and_invariants_are_in_units_of_the_data(standardized, table):
    tree, plain = standardized
    s = np.nanstd(table, axis=0)
    found, wanted = (invariants(each) for each in (tree, plain))
    columns = s[found["natural_params"]["column"].to_numpy()]
    for name, scale in (("theta_singular_values", 1.0), ("natural_params", columns)):
        np.testing.assert_allclose(found[name] / scale, wanted[name], rtol=1e-6, atol=1e-9)
    found, wanted = components(tree), components(plain)
    np.testing.assert_allclose(found["singular_values"], wanted["singular_values"], rtol=1e-6)
    np.testing.assert_allclose(found["loadings"] / s[:, None], wanted["loadings"], rtol=1e-6, atol=1e-9)
    found, wanted = profiles(tree), profiles(plain)
    np.testing.assert_allclose(found["loadings"]["mean"] / s, wanted["loadings"]["mean"], rtol=1e-6)
    np.testing.assert_allclose(found["latents"]["share"], wanted["latents"]["share"], rtol=1e-6)
    np.testing.assert_allclose(found["columns"]["explained"], wanted["columns"]["explained"], rtol=1e-6)
    assert "standardize=True" not in found["latents"].attrs["note"]
    assert "give standardize=True" in wanted["latents"].attrs["note"]  # one noise variance for all columns


def test_canonical_correlations_and_components_have_no_unit(table):
    """Covariances of views have the noise of each column; W W' of components is in units of the data."""
    parts, scales = parts_of(paired, table)
    model = paired(standardize=True).with_sizes_from(*parts)
    r = np.random.default_rng(0)
    values = {f"loadings_{v}": r.normal(size=(2, 1)) for v in range(2)}
    values |= {f"noise_variance_{v}": np.array(0.3) for v in range(2)}
    scaled = {name: value * power_of(name, scales) for name, value in values.items()}
    plain = answer_of(paired(), "view_covariances", values)
    sizes = (np.outer(scales[0], scales[0]), np.outer(*scales), np.outer(scales[1], scales[1]))
    for found, wanted, size in zip(answer_of(model, "view_covariances", scaled), plain, sizes, strict=True):
        np.testing.assert_allclose(found / size, wanted)
    s = np.nanstd(table, axis=0)
    tree = fit(depcam(standardize=True), table, method="em", **CLIMB)
    inner = loading_products(tree, in_standard_units=True)
    np.testing.assert_allclose(loading_products(tree), inner * np.outer(s, s))
    traces = (tree["posterior"]["scales"][0, 0] ** 2).sum("latent")
    np.testing.assert_allclose(sorted(np.trace(own) for own in inner.to_numpy()), sorted(traces))


@pytest.mark.slow
def test_mixed_tables_measure_their_gaussian_columns(table):
    """Yes/no and classes have no unit and stay; views reversed keep each column's unit."""
    r = np.random.default_rng(3)
    x = np.column_stack([np.nan_to_num(table[:, 0]), r.integers(0, 2, 30), r.integers(0, 3, 30), table[:, 3]])
    family = (UNKNOWN, "bernoulli", Categorical(3), UNKNOWN)
    change = np.array([1e3, 1.0, 1.0, 1e-3])
    model = zoo.EPCA(family=family, num_latents=1, standardize=True)
    first, second = (fit(model, rows, method="map", **CLIMB) for rows in (x, x * change))
    assert inference.model_of(first).unit.tolist() == [x[:, 0].std(), 1.0, 1.0, x[:, 3].std()]
    of_params = change[[0, 1, 2, 2, 3]]
    for name, factor in (("loadings", of_params[:, None]), ("loc", of_params), ("noise_variance", 1.0)):
        found, wanted = (tree["posterior"][name] for tree in (second, first))
        np.testing.assert_allclose(found, wanted * factor, rtol=1e-5, atol=1e-9 * float(np.abs(found).max()))
    new = x[:4].copy()
    new[0, 0] = new[1, 3] = new[2, 1] = np.nan
    found, wanted = inference.predict(second, new * change), inference.predict(first, new)
    np.testing.assert_allclose(found, wanted * change, rtol=1e-5)
    views = zoo.Paired(families=(family, UNKNOWN), num_shared=1, standardize=True).with_sizes_from(x, table)
    reverse, _ = views.views_reversed()
    np.testing.assert_array_equal(reverse.unit, np.concatenate([np.nanstd(table, axis=0), views.unit[:4]]))
    np.testing.assert_array_equal(reverse.loc_mean, np.concatenate([views.loc_mean[4:], views.loc_mean[:4]]))


def test_a_frame_chooses_its_families_and_units(table):
    frame = pd.DataFrame(table, columns=list("abcd")).assign(yes=np.where(table[:, 0] > 0.003, "yes", "no"))
    model = zoo.EPCA(num_latents=1, standardize=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of scales
        own = inference.model_of(fit(model, frame[list("abcd")], method="map", max_iterations=300))
    np.testing.assert_allclose(own.unit, np.nanstd(table, axis=0))
    with pytest.raises(ValueError, match="Bernoulli cells have no unit"):
        fit(model, frame[["yes"]], method="map")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: zoo.EPCA(family="bernoulli", standardize=True), "Bernoulli cells have no unit"),
        (lambda x: zoo.EPCA(family="gaussian", standardize=True), "cells of known noise are in the unit"),
        (lambda x: zoo.EPCA.from_data(x > 0, standardize=True), "Bernoulli cells have no unit"),
        (lambda x: epca(beta=0.5, standardize=True), "goes with beta=0"),
        (lambda x: epca(standardize="yes"), "standardize must be True or False"),
        (lambda x: epca(standardize=True).with_sizes_from(x * [1, 0, 1, 1]), "column 1 of x is constant"),
        (
            lambda x: epca(standardize=True, unit=[1.0, 2.0], num_features=4),
            "each of 4 columns",
        ),
        (
            lambda x: zoo.EPCA(
                family=(UNKNOWN, "bernoulli"), num_features=2, standardize=True, unit=[2.0, 2.0], loc_mean=0.0
            ),
            "unit must be 1 for columns that are not Gaussian of unknown noise, \\[1\\]",
        ),
        (lambda x: zoo.Paired(("poisson", "bernoulli"), standardize=True), "Bernoulli and Poisson cells"),
        (lambda x: paired(standardize=True).with_sizes_from(x, x * [1, 0, 1, 1]), "column 1 of y_1 is const"),
        (lambda x: zoo.DEPCAM(family="poisson", standardize=True), "Poisson cells have no unit"),
        (lambda x: depcam(standardize=True, column_scale=[1.0, -1.0]), "column_scale must be positive"),
    ],
)
def test_what_has_no_unit_is_refused_before_anything_is_compiled(table, make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make(np.nan_to_num(table))


@pytest.mark.slow
def test_the_command_line_takes_standardize(table, tmp_path, capsys, monkeypatch):
    """Fitted in the units of the file; the card has the field; a family without a unit is refused."""
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(np.nan_to_num(table, nan=150.0), columns=list("abcd")).to_csv("parts.csv", index=False)
    fields = ["--method", "vb", "--set", "num_latents=1", "--no-progress"]
    assert main(["fit", "epca", "parts.csv", "--standardize", *fields, "--out", "fit.nc"]) == 0
    assert "very different scales" not in capsys.readouterr().err
    assert inference.model_of(inference.load("fit.nc")).unit.shape == (4,)
    assert main(["fit", "epca", "parts.csv", "--set", "family=bernoulli", "--standardize"]) == 2
    message = capsys.readouterr().err
    assert "--standardize is of Gaussian cells of unknown noise" in message and "leave" in message
    for name in ("epca", "paired", "depcam"):
        assert "standardize" in read_card(name).fields
