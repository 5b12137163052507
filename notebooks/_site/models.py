"""A page for each model: its example, executed, with a picture, and its card as ``zoo show`` prints it."""

from pathlib import Path

import zoo
from zoo.cards import read_card, read_notes
from zoo.cards.page import card_as_markdown

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
    "pcp": ("plots.plot_clusters(tree)", "clusters of documents as mixtures of topics"),
    "depcam": ("plots.plot_hinton(tree)", "loadings of each component as squares"),
    "mcfa": ("plots.plot_biplot(tree)", "rows in the plane of the first two latents, by cluster"),
}
HEADER = """---
file_format: mystnb
kernelspec:
  name: python3
---

"""
EXAMPLE = """## An example

```{{code-cell}} python
---
tags: [remove-stderr]
---
{code}
print(profile_text(tree))
```

```{{code-cell}} python
---
mystnb:
  image:
    alt: "{alt}"
---
from inference import plots
{picture}
```

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
    """The card, with the executed example before the first of its other sections."""
    card = read_card(name)
    title, rest = card_as_markdown(card).split("\n", 1)
    head, sections = rest.split("\n## ", 1)
    title = f"# {zoo.MODELS[name]['class']}: {zoo.MODELS[name]['title']}"
    picture, alt = PICTURES[name]
    code = read_notes(card).usage.python.strip()
    if "area" in picture and "area" not in code:
        picture = picture.replace("area", 'zoo.datasets.load("olive")["area"]')
    code = f"import inference, zoo\nfrom inference.diagnostics import profile_text\n\n{code}"
    example = EXAMPLE.format(code=code, picture=picture, alt=alt)
    return f"{title}\n{head}\n{example}## {sections}"
