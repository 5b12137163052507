"""A fit in a few lines, its verdict among them, as a notebook shows it.

In IPython a fit displays as its card (importing ``inference`` there registers `html_of_tree`); what xarray
shows of the tree can be opened below it. Any other DataTree is shown as before.
"""

import html
from typing import Any

import pandas as pd
import xarray as xr

from inference.convergence.identifiable import draws_of, kind_of
from inference.diagnostics.blocks import Cards
from inference.diagnostics.first_screen import found_in_words
from inference.diagnostics.profile_tables import answer_blocks, printed_tables
from inference.fitting.verdict import sentences, verdict
from inference.results.files import check_tree, model_of
from zoo.cards.markup import facts_as_html

_COLOURS = {True: "#1b7a43", False: "#b3261e", None: "#6b5900"}
_MOST = 8  # clusters, topics or latents
_NEXT = "inference.diagnostics.profiles(tree); inference.report.report(tree, path) judges the model too"


def card(tree: xr.DataTree) -> str:
    """HTML of a fit in a few lines, the first screen's; colours of its own for the verdict alone."""
    check_tree(tree)
    judgement = verdict(tree)
    said, rest = sentences(judgement)
    first = html.escape(f"{judgement.word}: {said}")
    tables = printed_tables(tree)
    found = found_in_words(tree, tables)
    colour = _COLOURS[judgement.good]
    return (
        f'<div style="border-left:4px solid {colour};padding:.3em .8em;max-width:60em">'
        f'<p style="margin:.2em 0">{html.escape(f"{found}." if found else "")}</p>'
        f'<p style="margin:.2em 0"><strong style="color:{colour}">{first}</strong> '
        f"{' '.join(map(html.escape, rest))}</p>{facts_as_html(_facts(tree, tables))}</div>"
    )


def _facts(tree: xr.DataTree, tables: dict[str, pd.DataFrame]) -> dict[str, str]:
    """Model, method and data, and the share and name of each cluster, topic or latent."""
    model, attrs, sizes = model_of(tree), tree.attrs, draws_of(tree).sizes
    draws = f"{sizes['chain']} chains of {sizes['draw']} draws"
    if kind_of(tree) != "sampling" or sizes["chain"] == 1:
        draws = "one estimate" if kind_of(tree) == "point" else f"{sizes['draw']} draws"
    facts = {
        "model": type(model).__name__,
        "method": f"{attrs.get('method')}, seed {attrs.get('seed')}; {draws}",
    }
    if "observed_data" in tree.children:
        held = tree["observed_data"].to_dataset()
        shapes = {name: value.shape for name, value in held.data_vars.items() if value.ndim == 2}
        parts = [f"{name}: {' x '.join(map(str, shape))}" for name, shape in shapes.items()]
        counts = [
            f"{key.removeprefix('num_')}: {value}" for key, value in held.attrs.items() if "num_" in key
        ]
        facts["data"] = ", ".join(parts or counts)
    for block in answer_blocks(tree, tables):
        for own in block.cards[:_MOST] if isinstance(block, Cards) else ():
            facts[own.heading] = ", ".join(filter(None, (own.shown, own.name)))
    return facts | {"next": _NEXT}


def html_of_tree(tree: Any) -> str:
    """Return the HTML of a tree in a notebook: the card of a fit above what xarray shows of any tree."""
    whole = tree._repr_html_()
    if not {"model", "model_fields", "method"} <= set(tree.attrs) or "posterior" not in tree.children:
        return whole
    try:
        own = card(tree)
    except ValueError:  # a part of a fit, or one of a model that is not registered here
        return whole
    return f"{own}<details><summary>groups of the tree</summary>{whole}</details>"
