"""The check that no module above the algorithms asks for a model by name, held against planted violations."""

from pathlib import Path

import pytest
from architecture_names import model_tests

import zoo

ROOT = Path(zoo.__file__).parent.parent
ALGORITHMS = {
    "kernel_components",
    "kernel_rows",
    "maximum_a_posteriori",
    "mixture_starts",
    "hamiltonian",
    "ppca_estimate",
    "projection_views",
    "sppca_estimate",
    "autoguides",
    "spectral_labels",
}
COMMAND_LINE = ("__init__", "cli", "selection", "suitable_fields", "settings", "arguments", "model_card")
ABOVE = sorted(
    [path for path in (ROOT / "inference").glob("*.py") if path.stem not in ALGORITHMS]
    + [path for name in COMMAND_LINE for path in (ROOT / "zoo").glob(f"{name}.py")]
)


def test_nothing_above_the_algorithms_asks_for_a_model_by_name():
    assert len(ABOVE) > 80
    found = [line for path in ABOVE for line in model_tests(path.name, path.read_text(encoding="utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    "planted",
    [
        "isinstance(model, Paired)",
        "isinstance(model, (int, zoo.PPCA))",
        "issubclass(kind, zoo.documents.topic_model.TopicModel)",
        "type(model) is Mixture",
        "tree.attrs['model'] == 'pcp'",
        "tree.attrs.get('model') in ('lda', 'plsi')",
        "type(model).__name__ == 'SPPCA'",
        "tree.attrs['model'] in NAMED",
        "'assignments' in tree['posterior']",
        "'num_occupied' not in trace",
        "name in ('assignments', 'doc_clusters')",
        "{'bases', 'scales'} <= set(posterior.data_vars)",
        "name == 'latents'",
        "'loadings_1' in posterior",
        "posterior.get('latents')",
        "str(name).startswith('loadings')",
        "[name for name in ('weights', 'locs') if name not in posterior]",
    ],
)
def test_planted_tests_are_found(planted):
    source = f"NAMED = ('lda', 'pcp')\n\n\ndef f(tree):\n    return {planted}\n"
    assert model_tests("planted.py", source)[0].startswith("planted.py:5: ")


def test_what_a_module_may_ask_is_let_through():
    source = """
def f(tree, model, name):
    if isinstance(model, Model) and model.cluster_site in tree["posterior"] and model.takes_documents:
        return tree["posterior"][model.cluster_site], tree.attrs.get("latents", "")
    if name == "vb" or "chain" in tree.dims or name.startswith("x") or "observed_data" in tree.children:
        return {"assignments": name, "latents": tree["variational"]["weights"]}
    return [column for column in ("mean", "sd") if column in tree]
"""
    assert model_tests("clean.py", source) == []
