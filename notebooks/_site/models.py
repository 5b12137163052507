"""A page for each model: its example, executed, with a picture; its program in three views; its card."""

from pathlib import Path

import zoo
from notebooks._site.programs import view
from zoo.cards import markup, read_card, read_notes
from zoo.cards.markup import Code
from zoo.cards.page import CardSection, card_sections

__all__ = ["PICTURES", "write"]

#: The picture of each model's example: a call, and what a reader who cannot see it is told.
PICTURES = {
    "mixture": ("plots.plot_mixture(tree)", "rows in the plane, with an ellipse for each cluster"),
    "ppca": ("plots.plot_biplot(tree, colour_by=area)", "scores of the rows with arrows for the columns"),
    "kernelpca": ("plots.plot_biplot(tree, colour_by=area)", "scores of the rows, coloured by area"),
    "sppca": ("plots.plot_loadings(tree)", "loadings of inputs and outputs on each latent"),
    "epca": ("plots.plot_biplot(tree)", "scores of the rows with arrows for the columns"),
    "paired": ("plots.plot_loadings(tree)", "loadings of both views on shared and specific latents"),
    "lda": ("plots.plot_topics(tree)", "the most probable words of each topic"),
    "plsi": ("plots.plot_topics(tree)", "the most probable words of each topic"),
    "pcp": ("plots.plot_clusters(tree, least_weight=0.005)", "clusters of documents as mixtures of topics"),
    "depcam": ("plots.plot_hinton(tree)", "loadings of each component as squares"),
    "mcfa": ("plots.plot_biplot(tree)", "rows in the plane of the first two latents, by cluster"),
}
HEADER = """---
file_format: mystnb
kernelspec:
  name: python3
---

"""
PAGE = """# {name}

{title}. {paper}.

```{{glue:figure}} picture
:alt: "{alt}"

The fit below, by `{picture}`.
```

```{{code-cell}} python
---
tags: [remove-stderr]
---
{code}
print(inference.diagnostics.summary_text(tree))
```

```{{code-cell}} python
---
tags: [remove-cell]
---
from inference import plots
from myst_nb import glue

glue("picture", {picture}, display=False)
```

## Equation, program, graph

{letters} Point at an equation, a line of the program or a node, or go there with Tab: what makes the same site lights up
in all three. A click, or Enter, keeps it; Escape lets it go.

{view}

## What is assumed

{assumed}
"""
INDEX = """# Models

{summary}

```{{toctree}}
:hidden:

{pages}
```
"""


def write(folder):
    """Write a page for each model, and an index with a line for each.

    Args:
        folder: where to; it is made if missing.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in zoo.MODELS:
        (folder / f"{name}.md").write_text(HEADER + _page(name), encoding="utf-8")
    lines = ["| model | what it is | fitted by | from |", "| --- | --- | --- | --- |"]
    for name, entry in zoo.MODELS.items():
        methods = ", ".join(f"`{method}`" for method in read_card(name).methods)
        lines.append(f"| [{entry['class']}]({name}.md) | {entry['title']} | {methods} | {entry['paper']} |")
    index = INDEX.format(summary="\n".join(lines), pages="\n".join(zoo.MODELS))
    (folder / "index.md").write_text(index, encoding="utf-8")


def _page(name):
    """A picture and the code of its example, the three views of the program, and the rest of the card."""
    card, entry = read_card(name), zoo.MODELS[name]
    (first, usage, *sections) = card_sections(card)
    blocks = list(first.blocks)
    process = next(place for place, block in enumerate(blocks) if isinstance(block, Code))
    letters, assumed = blocks[process - 1].text, [*blocks[1 : process - 1], *blocks[process + 1 :]]
    picture, alt = PICTURES[name]
    code = read_notes(card).usage.python.strip()
    if "area" in picture and "area" not in code:
        picture = picture.replace("area", 'zoo.datasets.load("olive")["area"]')
    page = PAGE.format(
        name=entry["class"],
        title=entry["title"],
        paper=entry["paper"],
        alt=alt,
        picture=picture,
        code=f"import inference, zoo\n\n{code}",
        letters=f"{letters.rstrip(':')}.",
        view=view(name),
        assumed=markup.as_markdown(assumed),
    )
    sections = [CardSection("On the command line", usage.blocks[1:]), *sections]
    kept = (section for section in sections if section.title != "Program")
    return page + "".join(f"\n## {own.title}\n\n{markup.as_markdown(own.blocks)}\n" for own in kept)
