"""A model is a frozen pytree that validates once, when a person makes it."""

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from inference.results.model_fields import describe, restore
from zoo.conjugate import GaussianWishart
from zoo.fields import static
from zoo.mixture import Mixture
from zoo.model import Assumptions, Model, in_current_precision


@dataclasses.dataclass(frozen=True, eq=False)
class Counting(Assumptions):
    rate: np.ndarray = 1.0
    size: int = static(default=3)
    validated = 0

    def validate(self):
        type(self).validated += 1
        if isinstance(self.rate, jax.core.Tracer):
            raise TypeError("validated a tracer")


def test_hyperparameters_are_float64_leaves_and_sizes_are_not():
    thing = Counting(rate=2)
    leaves, structure = jax.tree.flatten(thing)
    assert [leaf.dtype for leaf in leaves] == [np.float64] and leaves[0] == 2.0
    assert jax.tree.unflatten(structure, [5.0]).size == 3
    assert structure == jax.tree.structure(Counting(rate=7)) != jax.tree.structure(Counting(size=4))


@pytest.mark.parametrize("given", [GaussianWishart, Mixture, dist.Normal])
def test_a_class_in_place_of_a_part_is_refused(given):
    with pytest.raises(
        TypeError, match=rf"^rate is the class {given.__name__}: make one, {given.__name__}\(\)"
    ):
        Counting(rate=given)


def test_the_constructor_validates_once_and_jax_never_does():
    before = Counting.validated
    thing = Counting()
    doubled = jax.jit(lambda a: a.replaced(rate=2 * a.rate))(thing)
    batched = jax.vmap(lambda r: thing.replaced(rate=r))(jnp.arange(4.0))
    assert Counting.validated == before + 1
    assert doubled.rate == 2.0 and batched.rate.shape == (4,) and batched.size == 3


def test_equality_and_hash_are_identity():
    one, two = Counting(), Counting()
    assert one != two and one == one and len({one, two}) == 2


def test_paths_name_fields():
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(Counting())]
    assert paths == [".rate"]


@pytest.mark.parametrize("given", [2, 2.5, [1.0, 2.0]])
def test_plain_numbers_in_a_copy_are_arrays_as_in_the_constructor(given):
    """Of models and of their nested priors, so that a copy is stored as the model itself is."""
    copied, made = Counting().replaced(rate=given), Counting(rate=given)
    assert copied.rate.dtype == np.float64 and np.array_equal(copied.rate, made.rate)
    prior = GaussianWishart([0.0, 0.0], 1.0, np.eye(2), 3.0).replaced(degrees_of_freedom=2.0)
    fields, arrays = describe(Mixture(components=prior))
    assert restore("mixture", fields, arrays).components.degrees_of_freedom == 2.0


def test_a_copy_with_unknown_field_is_refused():
    with pytest.raises(TypeError, match="no field 'speed'"):
        Counting().replaced(speed=1)


def test_hyperpriors_keep_their_parameters_in_float64():
    model = Mixture(components=GaussianWishart([0.0], 1.0, [[1.0]], 2.0), concentration=dist.Gamma(2, 0.1))
    assert model.concentration.rate.dtype == np.float64 and model.concentration.rate == 0.1
    assert len(jax.tree.leaves(model)) == 7


def test_something_that_is_no_number_is_refused_by_name():
    with pytest.raises(TypeError, match="rate must be a number, an array or a NumPyro distribution"):
        Counting(rate="fast")


def test_explicit_is_a_copy_and_changes_nothing_else():
    model = Mixture(components=GaussianWishart([0.0], 1.0, [[1.0]], 2.0))
    assert model.explicit.draw_locals and not model.draw_locals
    assert model.explicit.components is model.components


def test_the_base_class_has_no_program():
    with pytest.raises(TypeError, match="defines no program"):
        Model()(np.zeros((2, 1)))


@pytest.mark.slow
def test_numpyro_works_after_arviz_was_imported_first():
    """ArviZ's lazy stub of NumPyro made its distributions package lack a submodule that NUTS needs."""
    program = (
        "import arviz, numpyro.distributions as dist, zoo, numpy as np, numpyro, jax; zoo.Mixture; "
        "from numpyro.infer.util import initialize_model; "
        "initialize_model(jax.random.key(0), lambda: numpyro.sample('a', dist.Gamma(1.0, 1.0))); "
        "print('fine')"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "fine", run.stderr[-500:]


def test_hyperparameters_do_not_carry_a_precision_from_one_context_into_another():
    """JAX remembers a NumPy constant by identity: without the copy the second line would be 64-bit."""
    thing = Counting(rate=[1.0, 2.0])
    with jax.enable_x64(True):
        assert jax.vmap(lambda k: k * in_current_precision(thing).rate)(jnp.ones(2)).dtype == np.float64
    assert in_current_precision(thing).rate.dtype == np.float32
    with jax.enable_x64(True):
        assert in_current_precision(thing).rate.dtype == np.float64
