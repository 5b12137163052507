"""Names that are not known are answered with those that were meant."""

import pytest

import zoo
from zoo.naming import did_you_mean


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("num_latent", ["num_latents", "noise"], "num_latents"),
        ("n_components", ["num_latents", "noise"], "num_latents"),
        ("n_components", ["num_components", "num_latents"], "num_components"),
        ("random_state", ["seed", "num_samples"], "seed"),
        ("draws", ["num_warmup", "num_samples"], "num_samples"),
        ("NUTS", ["hmc", "nuts"], "nuts"),
        ("colour", ["num_latents"], None),
        ("random_state", ["noise_floor"], None),
    ],
)
def test_a_name_of_another_library_or_nearly_one_of_these(name, known, meant):
    assert did_you_mean(name, known) == ("" if meant is None else f"; did you mean {meant}?")


@pytest.mark.parametrize(
    ("model", "meant"), [("Mixture", "num_components"), ("EPCA", "num_latents"), ("Paired", "num_shared")]
)
def test_a_number_in_the_place_of_the_families_is_a_size(model, meant):
    with pytest.raises(TypeError, match=rf"is no number; did you mean {model}\({meant}=3\)\?"):
        getattr(zoo, model)(3)
