"""``zoo list``: the models with their methods and papers, and the data sets."""

from types import SimpleNamespace

from zoo import ALIASES, MODELS
from zoo.cards import methods_of
from zoo.datasets import catalogue

_HELD = {
    "Data sets": ("shipped", "generated", "package"),
    "Data sets that you must provide, in the folder that ZOO_DATA names (zoo fit MODEL NAME says how)": (
        "user",
    ),
}


def list_models(options: SimpleNamespace) -> int:
    """Print the models with their methods and papers, and the data sets."""
    print("Models")
    for name, entry in MODELS.items():
        print(f"  {name:<12} {entry['title']}")
        print(f"  {'':<12} methods: {', '.join(methods_of(name))}")
        print(f"  {'':<12} paper:   {entry['paper']}")
        print(f"  {'':<12} aliases: {', '.join(alias for alias, of in ALIASES.items() if of == name)}")
    entries = catalogue()
    width = max(map(len, entries))
    for title, kinds in _HELD.items():
        print(f"\n{title}")
        for name, entry in entries.items():
            if entry["kind"] not in kinds:
                continue
            shapes = ", ".join(
                f"{key} {' x '.join(map(str, spec['shape']))}" for key, spec in entry["arrays"].items()
            )
            package = f" (comes with {entry['package']})" if entry["kind"] == "package" else ""
            print(f"  {name:<{width}} {shapes}{package}")
    print("\nNext: zoo show MODEL, zoo fit MODEL DATASET")
    return 0
