"""What a report shows of projections and of topics: their own pictures, aligned first."""

import numpy as np
import xarray as xr

from inference.identifiable import draws_of, kind_of
from inference.observed import restored_data
from inference.page import Paragraph, Picture, Table
from inference.prediction import transform
from inference.projection_picture import plot_biplot, plot_loadings
from inference.results import model_of
from inference.rotation import align_rotation
from inference.topic_picture import plot_clusters, plot_topics
from inference.topics import top_words
from inference.tree_groups import loadings_of, thinned

__all__ = ["projection_blocks", "topic_blocks"]

_MOST_DRAWS = 400


def projection_blocks(tree: xr.DataTree) -> list[Paragraph | Picture]:
    """Loadings with intervals, and rows and features on the plane of the first two latents.

    Args:
        tree: a fit of a model with the symmetry "rotation".
    """
    loadings = list(loadings_of(tree).values())
    if not loadings:
        return _rows_alone(tree)
    num_latents = loadings[0].sizes["latent"]
    aligned = align_rotation(thinned(tree, _MOST_DRAWS))
    blocks: list[Paragraph | Picture] = [Paragraph(_how_aligned(tree, aligned))]
    caption = (
        "Loadings: what moves together along each latent axis; signs and order of axes are a convention."
    )
    strongest = _strongest(aligned)
    blocks.append(Picture("loadings", caption, f"Loadings by feature. {strongest}", plot_loadings(aligned)))
    site = model_of(tree).latent_site
    held = site in draws_of(tree) or site in tree.get("variational", {})
    if num_latents > 1 and held:
        caption = "Rows (points) and features (arrows) on the plane of the first two aligned latents."
        alt = f"Biplot of the rows with an arrow for each feature. {strongest}"
        blocks.append(Picture("biplot", caption, alt, plot_biplot(aligned)))
    return blocks


def _rows_alone(tree: xr.DataTree) -> list[Paragraph | Picture]:
    """A fit by inner products alone, without loadings."""
    latents = draws_of(tree).get(model_of(tree).latent_site)
    if latents is None and not tree.attrs.get("generative", 1) and "observed_data" in tree.children:
        return _projected_rows(tree)
    if latents is None or latents.sizes["latent"] < 2:
        return [Paragraph("This fit holds no plane to draw: the invariants above are what was found.")]
    aligned = align_rotation(thinned(tree, _MOST_DRAWS))
    caption = "Rows on the plane of the first two aligned latents: neighbours are alike by the kernel."
    alt = f"Scatter plot of {latents.sizes['observation']} rows on two latents."
    return [Paragraph(_how_aligned(tree, aligned)), Picture("rows", caption, alt, plot_biplot(aligned))]


def _projected_rows(tree: xr.DataTree) -> list[Paragraph | Picture]:
    """A projection that is no model: where it puts the fitted rows."""
    model = model_of(tree)
    scores = transform(tree, *restored_data(tree["observed_data"].to_dataset(), model)[:1])
    if scores.sizes["latent"] < 2:
        return [Paragraph("This projection has one axis: inference.transform gives the rows' places on it.")]
    held = draws_of(tree).assign({model.latent_site: scores.expand_dims(("chain", "draw"))})
    groups = {name: child.to_dataset() for name, child in tree.children.items()} | {"posterior": held}
    attrs = dict(tree.attrs) | {"rotation_aligned": 1}
    drawn = xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs)} | groups)
    caption = "Rows on the first two axes of the projection, the strongest first."
    alt = f"Scatter plot of {scores.sizes['observation']} rows on two axes."
    return [Picture("rows", caption, alt, plot_biplot(drawn))]


def _how_aligned(tree: xr.DataTree, aligned: xr.DataTree) -> str:
    if kind_of(tree) == "point":
        what = "its loadings are orthogonal" if loadings_of(tree) else "its axes are the principal ones"
        return f"One point estimate, turned so that {what}, the strongest first."
    said = "Axes of all draws are turned to a common mean before anything is averaged."
    if "rotation_rhat_after" in aligned.attrs:
        before, after = (aligned.attrs[f"rotation_rhat_{when}"] for when in ("before", "after"))
        said += f" Largest R-hat of the loadings: {before:.3f} before, {after:.3f} after."
    return said


def _strongest(aligned: xr.DataTree) -> str:
    """The feature with the largest mean loading on each of the first latents, in words."""
    means = []
    for loadings in loadings_of(aligned).values():
        variable = loadings.mean(("chain", "draw"))
        (feature,) = (dim for dim in variable.dims if dim != "latent")
        labels = [str(label) for label in variable[feature].values]
        means += list(zip(labels, variable.transpose(feature, "latent").values, strict=True))
    values = np.array([row for _, row in means])
    parts = [
        f"latent {latent}: {means[np.abs(values[:, latent]).argmax()][0]}"
        for latent in range(min(values.shape[1], 4))
    ]
    return f"Largest on {'; '.join(parts)}."


def topic_blocks(tree: xr.DataTree) -> list[Paragraph | Picture | Table]:
    """The topics by their words and shares, and clusters as mixtures of topics where there are some.

    Args:
        tree: a fit of LDA, pLSI or PCP.
    """
    words = top_words(tree)
    caption = "The most probable words of each topic"
    if kind_of(tree) == "sampling":
        caption += ", the topics of all draws brought to one numbering by their words"
    blocks: list[Paragraph | Picture | Table] = [Table(caption, words)]
    if "observed_data" not in tree.children:
        return [*blocks, Paragraph("This fit does not hold its documents, so there are no shares of topics.")]
    first = ", ".join(f"{topic}: {row.iloc[0]}" for topic, row in words.head(20).iterrows())
    caption = "Topics by their most probable words, the largest share of all tokens first."
    blocks.append(
        Picture("topics", caption, f"Bars of word probabilities. First words: {first}.", plot_topics(tree))
    )
    if model_of(tree).cluster_topic_site is not None:
        caption = "Clusters of documents as mixtures of topics, the heaviest first."
        alt = "Matrix of clusters by topics, shaded by the topic's share."
        blocks.append(Picture("clusters", caption, alt, plot_clusters(tree, least_weight=0.01)))
    return blocks
