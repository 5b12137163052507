"""The size of a model of class labels by rows whose labels are hidden, for ``zoo fit``."""

import warnings
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from inference.cli.settings import resolve
from inference.diagnostics.model_size import choose_num_latents_for_classes, read_rows

__all__ = ["class_facts", "validated"]

_ASCENTS = ("em", "ep", "vb")  # methods that are run to validate; of others the default one stands in
_WITHOUT_CLASSES = ("morp", "kernel_cca")
_SETTINGS = ("seed", "max_iterations", "tolerance")
_OF_FLOORS = (".* is at its floor", "the .+ outputs have rank")  # by which the validated size is not judged


def validated(
    model: type,
    settings: dict[str, Any],
    data: Sequence[Any],
    options: SimpleNamespace,
    **reading: Any,
) -> Any:
    """Cross-validate a model of class labels; settle its size where the command does not name one.

    Args:
        model: its class.
        settings: fields; ``num_latents`` is added.
        data: parts of the data.
        options: of the command line.
        **reading: as for `inference.fit`: ``families``, ``levels``, ``id``.

    Returns:
        The table of `inference.choose_num_latents_for_classes`; None where outputs are no class labels, rows
        are weighted, or the method has no class probabilities.
    """
    takes_labels = any("class_labels" in table.cells for table in model.data)
    if not takes_labels or options.sample_weight is not None:
        return None
    if options.method in _WITHOUT_CLASSES or len(data) < 2:
        return None
    fields = resolve(settings)
    if read_rows(model(**fields), tuple(data), **reading)[0].classes is None:
        return None
    given = fields.get("num_latents")
    table = choose_num_latents_for_classes(
        *data,
        candidates=None if given is None else (given,),
        method=options.method if options.method in _ASCENTS else "auto",
        fields=fields,
        **reading,
        **{name: getattr(options, name) for name in _SETTINGS if getattr(options, name) is not None},
    )
    if given is None:
        settings["num_latents"] = table.attrs["chosen"]
        for message in _OF_FLOORS:
            warnings.filterwarnings("ignore", message=message)
    return table


def class_facts(table: Any) -> dict[str, str]:
    """The accuracy by class, and how the size was chosen, as attributes of the fit; none without a table."""
    if table is None:
        return {}
    right: Mapping[Any, int] = table.attrs["right"]
    labelled, chosen = table.attrs["labelled"], table.attrs["chosen"]
    number = sum(labelled.values())
    by_class = ", ".join(f"{name} {right[name]} of {labelled[name]}" for name in labelled)
    facts = {
        "classes": f"{number} of {table.attrs['rows']} rows are labelled; predicted with their labels hidden "
        f"{sum(right.values())} of them are right ({table['accuracy'][chosen]:.1%}): {by_class}"
    }
    if len(table) > 1:
        tried = ", ".join(f"{k}: {share:.1%}" for k, share in table["accuracy"].items())
        facts["size"] = (
            f"num_latents={chosen}, the fewest whose log probability of the hidden labels is within one "
            f"standard error of the best (right by number of latents: {tried})"
        )
    return facts
