"""The registry answers without importing anything, and agrees with the classes it points at."""

import importlib
import re
import subprocess
import sys

import pytest

import zoo
from zoo.cards import read_card


def imported_by(code):
    """The modules that a fresh interpreter has loaded after running the code."""
    code = f"{code}\nimport sys; print('modules:', *sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.rpartition("modules:")[2].split())


@pytest.mark.parametrize(
    "code",
    [
        "import zoo; zoo.MODELS; zoo.canonical_name('dma')",
        "from zoo.cards import read_card; read_card('mixture')",
        "from inference.cli import main; assert main(['list']) == 0",
        "from inference.cli import main; assert main(['show', 'mixture']) == 0",
        "from inference.cli import main; assert main(['show', 'nothing']) == 2",
    ],
)
def test_metadata_needs_neither_jax_nor_numpy(code):
    assert not {"jax", "numpy", "numpyro", "pandas", "xarray", "arviz"} & imported_by(code)


def test_registry_is_plain_and_points_at_classes():
    for name, entry in zoo.MODELS.items():
        assert name == entry["class"].lower()
        assert set(entry) == {"module", "class", "title", "paper"} and all(
            isinstance(v, str) for v in entry.values()
        )
        model = getattr(importlib.import_module(entry["module"]), entry["class"])
        assert getattr(zoo, entry["class"]) is model and issubclass(model, zoo.Model)


@pytest.mark.parametrize("name", zoo.MODELS)
def test_a_card_says_what_the_class_says(name):
    """The card is read with ast; the class is imported: both must tell the same."""
    import dataclasses

    card, model = read_card(name), getattr(zoo, zoo.MODELS[name]["class"])
    assert card.dims == model.dims and card.symmetries == model.symmetries and card.methods == model.methods
    assert tuple(card.fields) == tuple(f.name for f in dataclasses.fields(model) if f.init)
    assert card.module_docstring == importlib.import_module(model.__module__).__doc__.strip()
    assert re.search(r"\bsample\(", card.program) and card.program.startswith(
        ("def __call__(", "def program(")
    )


def test_aliases_lead_to_models_or_say_that_the_model_is_not_here():
    for alias, target in zoo.ALIASES.items():
        assert alias not in zoo.MODELS and alias == alias.lower()
        if target in zoo.MODELS:
            assert zoo.canonical_name(alias) == target
        else:
            with pytest.raises(
                ValueError,
                match=f"{alias} is an alias of {target}, which is not in this version; the zoo has: mixture",
            ):
                zoo.canonical_name(alias)
    assert zoo.canonical_name("VBDMA") == zoo.canonical_name("dpmixture") == "mixture"
    with pytest.raises(ValueError, match="no model is called 'resnet'; the zoo has: mixture"):
        zoo.canonical_name("resnet")


def test_a_model_that_is_not_here_is_no_attribute():
    absent = {"PPCA", "KernelPCA", "SPPCA", "EPCA", "Paired", "DEPCAM", "LDA", "PLSI", "PCP"} - {
        e["class"] for e in zoo.MODELS.values()
    }
    assert not [name for name in absent if hasattr(zoo, name)]


def test_public_names_can_be_listed_and_reached():
    for name in zoo.__all__:
        assert name in dir(zoo) and getattr(zoo, name) is not None
    assert zoo.conjugate.GaussianWishart.__module__ == "zoo.conjugate.gaussian"
    assert zoo.datasets.load("faithful")["x"].shape == (272, 2)
