"""Fields say what they may be, their unit, and how they are read off the data where they are open."""

import dataclasses
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import Array

from zoo.coordinates import Unit
from zoo.coordinates.of_models import coordinate_fields, is_stated
from zoo.fields import (
    choice,
    facts_of,
    flag,
    names_of,
    numbers,
    part,
    positive,
    pseudo_counts,
    scale_of,
    size,
    size_fields,
    size_of,
    static,
    whole,
)
from zoo.kernels import Kernel, as_kernel
from zoo.model import Model

PLACE = Unit(1, (-1,), is_location=True)


@dataclasses.dataclass(frozen=True, eq=False)
class Declared(Model):
    """A field of each kind."""

    num_latents: int = size(2)
    num_levels: int = whole(3, least=2)
    form: str = choice("round", "square")
    repeats: bool = flag()
    rate: Array = positive(1.0)
    strength: Array = pseudo_counts(1.0, prior=(dist.Gamma,))
    share: Array = numbers(0.0, least=0)
    degrees: Array = numbers(2.0, above=-1)
    loc: Array | None = numbers(
        None, ("feature",), unit=PLACE, read=lambda m, x: x.once(mean), otherwise=lambda m: m.start
    )
    noise: Array | None = positive(
        None, lambda m: {"each latent": m.num_latents}, or_one=True, unit="noise_unit"
    )
    kernel: Kernel | str = part("rbf", Kernel, "a kernel", convert=as_kernel, fill=lambda m, x: m.kernel)
    names: tuple[str, ...] = static(())
    standardize: bool = flag(inside=False)
    column_scale: Array | None = scale_of()
    num_features: int | None = size_of("x")

    dims = {"x": ("observation", "feature")}
    units = {"x": PLACE}
    start = None

    @property
    def noise_unit(self) -> Unit | None:
        return Unit(2) if self.form == "round" else None


def mean(part: Any) -> np.ndarray:
    return part.rows.mean(axis=0)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"num_latents": 0}, ValueError, "num_latents must be at least 1; got 0"),
        ({"num_latents": 1.5}, TypeError, "num_latents must be a whole number; got 1.5"),
        ({"num_latents": None}, TypeError, "num_latents must not be None: leave it out for the default, 2"),
        ({"num_levels": 1}, ValueError, "num_levels must be a whole number of at least 2; got 1"),
        ({"form": "flat"}, ValueError, "form must be one of round, square; got 'flat'"),
        ({"repeats": 1}, TypeError, "repeats must be True or False; got 1"),
        ({"rate": -1.0}, ValueError, "rate must be a positive number; got -1.0"),
        ({"rate": [1.0, 2.0]}, ValueError, r"rate must be a positive number; got array\(\[1., 2.\]\)"),
        ({"rate": np.nan}, ValueError, "rate must be a positive number; got nan"),
        ({"rate": np.inf}, ValueError, "rate must be a positive number; got inf"),
        (
            {"rate": dist.Gamma(1.0, 1.0)},
            ValueError,
            "rate of Declared must be numbers: it can have no prior; got a Gamma",
        ),
        (
            {"strength": 0.0},
            ValueError,
            "strength must be a positive number or a Gamma distribution; got 0.0",
        ),
        ({"strength": 1e12}, ValueError, "strength must be at most 1e[+]10"),
        (
            {"strength": dist.Normal(1.0, 1.0)},
            ValueError,
            "strength of Declared may have a Gamma as its prior; got a Normal",
        ),
        (
            {"strength": dist.Gamma(-1.0, -1.0, validate_args=False)},
            ValueError,
            "the Gamma prior of strength needs a positive concentration and rate",
        ),
        ({"share": -0.5}, ValueError, "share must be a number of at least 0; got -0.5"),
        ({"degrees": -1.0}, ValueError, "degrees must be a number above -1; got -1.0"),
        ({"loc": [0.0, np.inf]}, ValueError, r"loc must be finite; got array\(\[ 0., inf\]\)"),
        (
            {"loc": [0.0, 1.0], "num_features": 3},
            ValueError,
            r"loc must have shape \(3,\), one number for each feature; got shape \(2,\)",
        ),
        (
            {"loc": 0.0},
            ValueError,
            r"loc must have shape \(num_features,\), or use Declared.from_data; got shape \(\)",
        ),
        (
            {"noise": [1.0, 2.0, 3.0]},
            ValueError,
            r"noise must have shape \(\) or \(2,\), one number for each latent; got shape \(3,\)",
        ),
        ({"noise": [1.0, 0.0]}, ValueError, r"noise must be positive; got array\(\[1., 0.\]\)"),
        ({"noise": -1.0}, ValueError, "noise must be a positive number; got -1.0"),
        ({"kernel": "cosine"}, ValueError, "no kernel is called 'cosine'"),
        ({"column_scale": [1.0, 0.0]}, ValueError, "column_scale must be positive"),
        ({"num_features": -1}, ValueError, "num_features must be at least 0; got -1"),
    ],
)
def test_a_value_outside_its_domain_is_refused(fields, error, message):
    with pytest.raises(error, match=message):
        Declared(**fields)


def test_what_follows_from_the_fields():
    model = Declared()
    static_ones = {"num_latents", "num_levels", "form", "repeats", "names", "standardize", "num_features"}
    assert set(names_of(model).static) == static_ones | {"draw_locals"}
    assert [*facts_of(model, "is_concentration")] == ["strength"] and size_fields(model) == ("num_features",)
    dims = facts_of(model, "dims")
    assert dims["loc"] == ("feature",) == dims["column_scale"]
    assert dims["rate"] == () and "noise" not in dims
    assert facts_of(model, "unit") == {"loc": PLACE, "noise": Unit(2)}
    assert facts_of(Declared(form="square"), "unit") == {"loc": PLACE}
    assert facts_of(Declared, "size_of") == {"num_features": "x"}
    measured = Declared(standardize=True)
    assert facts_of(measured, "unit")["column_scale"] == Unit(1, (-1,))
    assert coordinate_fields(measured) == {"standardize": False, "column_scale": None}
    assert is_stated(measured) and not is_stated(model)


def test_open_fields_are_read_off_the_data_in_the_coordinates_of_the_program():
    x = np.random.default_rng(0).normal(size=(20, 3)) * [1.0, 10.0, 100.0] + 5.0
    model = Declared.from_data(x)
    assert model.num_features == 3 and model.with_sizes_from(x) is model
    np.testing.assert_allclose(model.loc, x.mean(axis=0), rtol=1e-12)
    measured = Declared.from_data(x, standardize=True)
    np.testing.assert_allclose(measured.column_scale, x.std(axis=0), rtol=1e-12)
    np.testing.assert_allclose(measured.loc, x.mean(axis=0), rtol=1e-12)  # it has the unit of the data
    given = Declared.from_data(x, loc=[1.0, 2.0, 3.0], num_features=None)
    assert given.loc.tolist() == [1.0, 2.0, 3.0] and given.num_features == 3
    with pytest.raises(ValueError, match=r"loc must have shape \(3,\)"):
        Declared.from_data(x, loc=[1.0, 2.0])
    with pytest.raises(TypeError, match="Declared has no field 'sample_weight'"):
        Declared.from_data(x, sample_weight=np.ones(20))


def test_a_field_may_follow_from_others_where_nothing_is_read():
    class Started(Declared):
        start = (1.0, 2.0)

    model = dataclasses.dataclass(frozen=True, eq=False)(Started)()
    assert model.loc.dtype == np.float64 and model.loc.tolist() == [1.0, 2.0]


def test_nothing_is_checked_where_jax_rebuilds_a_model():
    doubled = jax.jit(lambda model: model.replaced(rate=-model.rate))(Declared())
    assert doubled.rate == -1.0
