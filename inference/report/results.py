"""The section of a report on results: what the fit says about its data."""

import numpy as np
import pandas as pd
import xarray as xr

from inference.component_subspaces import (
    component_similarity,
    effective_directions,
    loading_products,
    responsibility_overlap,
)
from inference.convergence.identifiable import draws_of, kind_of
from inference.convergence.partitions import point_partition
from inference.diagnostics.profile_parts import place_in_words
from inference.diagnostics.profile_tables import profile_cells
from inference.diagnostics.summaries import occupied
from inference.plots.co_clustering import plot_co_clustering
from inference.plots.components import (
    plot_component_similarity,
    plot_hinton,
    plot_loading_products,
    plot_overlap,
)
from inference.plots.draws import plot_scree
from inference.plots.fits import plot_mixture
from inference.plots.mixtures import occupied_components
from inference.plots.projections import plot_biplot, plot_loadings, stacked_loadings
from inference.plots.topics import plot_clusters, plot_topics
from inference.prediction import transform
from inference.report.page import Paragraph, Picture, Section, ShownTable
from inference.results.files import model_of
from inference.results.groups import labels_of, loadings_of, responsibilities_of, restored_data, with_groups
from inference.symmetry import relabel
from inference.symmetry.rotation import aligned_draws
from inference.topics.topic_tables import top_words
from zoo.coordinates.of_models import noise_factors

_MOST_ROWS = 5000  # of a point partition: it costs O(N^2)
_MOST_LOCAL_PCAS = 12
_MOST_PRODUCT_FEATURES = 64  # of a drawn W W'
_MOST_DRAWS = 400  # turned to a common mean
_NO_COMPONENTS = Paragraph(
    "No picture of clusters: labels are matched by the assignments, which this fit does not hold."
)
_IDENTIFIED = (
    "Read products of loadings, sizes of directions, offsets and shares of rows; the numbers of components, "
    "the order and the signs of their columns mean nothing, nor do axes of equal size or of size zero. The "
    "angular kernel changes with those signs: beside its value is the range that signs alone can cause."
)


def results_section(tree: xr.DataTree, tables: dict[str, pd.DataFrame]) -> Section:
    """The section on results: the tables of `inference.diagnostics.profiles`, pictures between."""
    blocks: list = []
    for keys, pictures in _ORDER:
        blocks += [_shown(tables[key], key) for key in keys if key in tables]
        blocks += pictures(tree)
    if not blocks:
        text = (
            "This model has no clusters, topics or latents: the results are the invariants under Convergence."
        )
        blocks.append(Paragraph(text))
    return Section("Results", blocks)


def _shown(table: pd.DataFrame, key: str) -> ShownTable | Paragraph:
    """A table of `profiles` as a reader sees it: typical values and loadings side by side, long ones cut."""
    if table.empty:
        return Paragraph(f"{table.attrs.get('title', key)}: {table.attrs.get('note', 'none')}.")
    cells, notes = profile_cells(table), str(table.attrs.get("note", "")).split("; ")
    cells = cells.loc[:, ~(cells == "-").all()]
    if {"column", "quantity"} <= {*cells.index.names, *cells.columns}:
        if cells.reset_index()["quantity"].str.startswith("probability of").any():
            notes.insert(1, "NAME: VALUE is the probability of that value")
        cells = _with_places(cells)
    if (across := _ACROSS.get(key)) and table.index.nlevels > 1:
        level, most = across
        number = len(dict.fromkeys(table.index.get_level_values(level)))
        cells = _wide(cells["mean"], level, most)
        notes += [f"the first {most} of {number} {level}s"] if number > most else []
    if len(cells) > _MOST_LINES:
        notes.append(f"the first {_MOST_LINES} of {len(cells)} rows")
        cells = cells.head(_MOST_LINES)
    names = [name for name in cells.index.names if name is not None]
    single = [
        name for name in names if name in ("view",) and len(set(cells.index.get_level_values(name))) == 1
    ]
    cells = cells.droplevel(single) if single and cells.index.nlevels > len(single) else cells
    hidden = {str(name) for name in table.columns} - {str(name) for name in cells.columns}
    note = "; ".join(clause for clause in notes if clause.partition(":")[0] not in hidden)
    return ShownTable(str(table.attrs.get("title", key)), cells, _DECISIVE.get(key, ()), note)


def _with_places(cells: pd.DataFrame) -> pd.DataFrame:
    """Column and quantity as one: ``age``, ``visits (rate)``, ``town: Ulm``."""
    levels = list(cells.index.names)
    flat = cells.reset_index()
    flat["column"] = [place_in_words(*pair) for pair in zip(flat["column"], flat["quantity"], strict=True)]
    return flat.drop(columns="quantity").set_index([name for name in levels if name != "quantity"])


def _wide(means: pd.Series, level: str, most: int) -> pd.DataFrame:
    """Means with their intervals, a column for each cluster or latent, in the order of the table."""
    kept = list(dict.fromkeys(means.index.get_level_values(level)))[:most]
    rows = means.index.droplevel(level).unique()
    columns = {
        f"{level} {number}": means.xs(number, level=level).reindex(rows).fillna("-") for number in kept
    }
    return pd.DataFrame(columns, index=rows)


def _cluster_pictures(tree: xr.DataTree) -> list[ShownTable | Picture | Paragraph]:
    model, names, blocks = model_of(tree), draws_of(tree), []
    for sites, blocks_of in ((model.roles.gaussian, _components), (model.roles.subspaces, local_pca_blocks)):
        if sites and all(site in names for site in sites):
            blocks += blocks_of(tree)
    return blocks


def _topic_pictures(tree: xr.DataTree) -> list[Picture | Paragraph]:
    return topic_blocks(tree) if model_of(tree).roles.topic in draws_of(tree) else []


def _projection_pictures(tree: xr.DataTree) -> list[Paragraph | Picture]:
    return projection_blocks(tree) if "rotation" in model_of(tree).symmetries else []


def _together(tree: xr.DataTree) -> list[Picture]:
    """The co-clustering of the rows, where there are clusters of rows and not too many rows."""
    if model_of(tree).roles.cluster is None or "labels" not in model_of(tree).symmetries:
        return []
    labels = labels_of(tree)
    per_row = responsibilities_of(tree) if labels is None else labels
    num_rows = 0 if per_row is None else per_row.sizes.get("observation", 0)  # documents: their own section
    if not 0 < num_rows <= _MOST_ROWS or (labels is None and kind_of(tree) == "sampling"):
        return []
    partition = point_partition(tree)
    sizes = np.unique(partition.values, return_counts=True)[1]
    listed = ", ".join(map(str, sizes))
    alt = f"Matrix in blocks: the point partition of {num_rows} rows has clusters of {listed} rows."
    caption = (
        "Posterior probability that two rows share a component, rows ordered by the point partition. "
        "Sharp blocks are reliable clusters."
    )
    counts = occupied(tree)
    if len(sizes) != counts.attrs["mode"]:
        caption += (
            f" The partition has {len(sizes)} clusters where {counts.attrs['mode']} hold rows in most draws: "
            "its small ones are rows that the draws put now into one cluster, now into another."
        )
    return [Picture("co-clustering", caption, alt, plot_co_clustering(tree))]


_MOST_LINES = 40  # of a table
_ACROSS = {"cluster_values": ("cluster", 8), "loadings": ("latent", 8)}
_DECISIVE = {
    "clusters": ("share", "rows"),
    "topics": ("share", "words"),
    "num_clusters": ("probability", "starts", "behind"),
    "cluster_differences": ("column", "difference"),
    "cluster_rows": ("row", "probability"),
    "latents": ("share",),
    "columns": ("explained",),
    "extreme_rows": ("row", "score"),
    "starts": ("behind",),
}
_ORDER = (  # keys of `profiles` and the pictures that follow them
    (("clusters", "num_clusters", "cluster_values", "cluster_differences"), _cluster_pictures),
    (("cluster_rows",), _together),
    (("topics", "cluster_topics", "topic_documents"), _topic_pictures),
    (("latents", "loadings", "columns", "canonical_correlations", "extreme_rows"), _projection_pictures),
    (("filled_cells", "starts"), lambda tree: []),
)


def _components(tree: xr.DataTree) -> list[Picture | Paragraph]:
    if kind_of(tree) == "sampling" and labels_of(tree) is None:
        return [_NO_COMPONENTS]
    aligned = tree if "relabelled" in tree.attrs else relabel(tree)
    components = occupied_components(aligned)
    blocks = []
    if "relabel_rhat_after" in aligned.attrs:
        before, after = aligned.attrs["relabel_rhat_before"], aligned.attrs["relabel_rhat_after"]
        text = f"Largest R-hat of parameters of clusters: {before:.3f} before relabelling, {after:.3f} after."
        blocks.append(Paragraph(text))
    if "observed_data" not in tree.children:
        return [*blocks, Paragraph("This fit does not hold its data, so there is no picture of them.")]
    shares = zip(components.index, components.share, strict=True)
    described = "; ".join(f"cluster {k} with {100 * share:.0f} % of the rows" for k, share in shares)
    alt = f"Scatter plot of the rows with an ellipse for each cluster: {described}."
    caption = "The data, the clusters and the predictive density."
    blocks.append(Picture("components", caption, alt, plot_mixture(aligned), leads=1))
    return blocks


def local_pca_blocks(tree: xr.DataTree) -> list[Paragraph | Picture | ShownTable]:
    """Build the tables and pictures of the components of a repulsive mixture of PCAs."""
    if kind_of(tree) == "sampling" and labels_of(tree) is None:
        return [_NO_COMPONENTS]
    table = effective_directions(tree)
    if len(table) > _MOST_LOCAL_PCAS:
        caption = f"The largest {_MOST_LOCAL_PCAS} of {len(table)} components"
        return [Paragraph(_IDENTIFIED), ShownTable(caption, table[:_MOST_LOCAL_PCAS])]
    reach = ", ".join(f"{value:.1f}" for value in table["effective"])
    caption = "Sizes of the directions of each component: the area of a square is |phi|."
    alt = f"Hinton diagram: effective numbers of directions {reach}."
    blocks = [
        Paragraph(_IDENTIFIED),
        ShownTable("Components and the directions they use, the largest share of rows first", table),
        Picture("hinton", caption, alt, plot_hinton(tree), leads=2),
    ]
    blocks += _pairs(tree) if len(table) > 1 else []
    products = loading_products(tree, in_standard_units=True)
    if products.sizes["feature"] <= _MOST_PRODUCT_FEATURES:
        traces = ", ".join(f"{np.trace(p):.3g}" for p in products.values)
        caption = "W W' of each component: features of one colour move together, of the other against it."
        caption += " Columns are in their standard deviations." if noise_factors(model_of(tree)) else ""
        alt = f"Matrices with traces {traces}."
        blocks.append(Picture("loading-products", caption, alt, plot_loading_products(tree)))
    return blocks


def _pairs(tree: xr.DataTree) -> list[Picture | ShownTable]:
    found, overlap = component_similarity(tree), responsibility_overlap(tree)
    above = np.triu_indices(len(overlap), 1)
    columns = {str(name): values.values[above] for name, values in found.data_vars.items()}
    columns["rows in common"] = overlap.to_numpy()[above]
    index = [f"{first} and {second}" for first, second in zip(*above, strict=True)]
    caption = "Pairs of components: similarities, and which share of the first's rows the second would take"
    table = ShownTable(caption, pd.DataFrame(columns, pd.Index(index, name="components")))
    caption = "Similarity of components by both kernels of the prior and by the correlation of W W'."
    described = "no component has a direction"
    if np.isfinite(columns["products"]).any():
        described = f"largest correlation of two products {np.nanmax(columns['products']):.2f}"
    figure = plot_component_similarity(tree)
    similarity = Picture("component-similarity", caption, f"Three matrices; {described}.", figure)
    caption = "Where rows of a component would go if labels were drawn again; dark diagonal: certain labels."
    lost = f"the least certain component would lose {np.nanmax(1 - np.diag(overlap)):.0%} of its rows"
    return [table, similarity, Picture("overlap", caption, f"Matrix; {lost}.", plot_overlap(tree))]


def projection_blocks(tree: xr.DataTree) -> list[Paragraph | Picture]:
    """Build the pictures of loadings, and of rows and features on the plane of the first two latents."""
    loadings = list(loadings_of(tree).values())
    if not loadings:
        return _rows_alone(tree)
    num_latents = loadings[0].sizes["latent"]
    aligned = aligned_draws(tree, _MOST_DRAWS)
    blocks: list[Paragraph | Picture] = [Paragraph(_how_aligned(tree, aligned))]
    if num_latents > 2:  # cards show the shares of two
        caption = "Share of the variance that each latent explains."
        alt = f"Scree picture of {num_latents} latents; the table of latents holds the numbers."
        blocks.append(Picture("scree", caption, alt, plot_scree(tree)))
    caption = "Loadings: features that move together along each latent; signs and order are a convention."
    strongest = _strongest(aligned)
    blocks.append(
        Picture("loadings", caption, f"Loadings by feature. {strongest}", plot_loadings(aligned), leads=2)
    )
    site = model_of(tree).roles.latent
    held = site in draws_of(tree) or site in tree.get("variational", {})
    if num_latents > 1 and held:
        caption = "Rows (points) and features (arrows) on the plane of the first two aligned latents."
        alt = f"Biplot of the rows with an arrow for each feature. {strongest}"
        blocks.append(Picture("biplot", caption, alt, plot_biplot(aligned), leads=1))
    return blocks


def _rows_alone(tree: xr.DataTree) -> list[Paragraph | Picture]:
    """Blocks of a fit by inner products, without loadings."""
    latents = draws_of(tree).get(model_of(tree).roles.latent)
    if latents is None and not tree.attrs.get("generative", 1) and "observed_data" in tree.children:
        return _projected_rows(tree)
    if latents is None or latents.sizes["latent"] < 2:
        return [Paragraph("This fit holds no plane to draw: the findings are the invariants above.")]
    aligned = aligned_draws(tree, _MOST_DRAWS)
    caption = "Rows on the plane of the first two aligned latents: neighbours are similar under the kernel."
    alt = f"Scatter plot of {latents.sizes['observation']} rows on two latents."
    return [
        Paragraph(_how_aligned(tree, aligned)),
        Picture("rows", caption, alt, plot_biplot(aligned), leads=1),
    ]


def _projected_rows(tree: xr.DataTree) -> list[Paragraph | Picture]:
    """Blocks of the fitted rows under a projection that is no model."""
    model = model_of(tree)
    scores = transform(tree, *restored_data(tree["observed_data"].to_dataset(), model)[:1])
    if scores.sizes["latent"] < 2:
        return [Paragraph("This projection has one axis: inference.transform computes the scores on it.")]
    held = draws_of(tree).assign({model.roles.latent: scores.expand_dims(("chain", "draw"))})
    drawn = with_groups(tree, {"posterior": held})
    drawn.attrs["rotation_aligned"] = 1
    caption = "Rows on the first two axes of the projection, the strongest first."
    alt = f"Scatter plot of {scores.sizes['observation']} rows on two axes."
    return [Picture("rows", caption, alt, plot_biplot(drawn), leads=1)]


def _how_aligned(tree: xr.DataTree, aligned: xr.DataTree) -> str:
    if kind_of(tree) == "point":
        orthogonal = "its loadings are orthogonal (in units of the noise, where it has one)"
        axes = orthogonal if loadings_of(tree) else "its axes are the principal ones"
        return f"One point estimate, turned so that {axes}, the strongest first."
    text = "Axes of all draws are turned to a common mean before anything is averaged."
    if "rotation_rhat_after" in aligned.attrs:
        before, after = (aligned.attrs[f"rotation_rhat_{when}"] for when in ("before", "after"))
        text += f" Largest R-hat of the loadings: {before:.3f} before, {after:.3f} after."
    return text


def _strongest(aligned: xr.DataTree) -> str:
    """Describe the feature with the largest mean loading on each of the first latents."""
    draws, names, _ = stacked_loadings(aligned)
    values = np.abs(draws.mean(0))[:, :4]
    parts = [f"latent {latent}: {names[row]}" for latent, row in enumerate(values.argmax(0))]
    return f"Largest on {'; '.join(parts)}."


def topic_blocks(tree: xr.DataTree) -> list[Paragraph | Picture]:
    """Build the pictures of topics by their words, and of clusters as mixtures of topics."""
    words, blocks = top_words(tree), []
    if "observed_data" not in tree.children:
        return [Paragraph("This fit does not hold its documents, so there is no picture of its topics.")]
    first = ", ".join(f"{topic}: {row.iloc[0]}" for topic, row in words.head(20).iterrows())
    caption = "Topics by their most probable words, the largest share of all tokens first."
    alt = f"Bars of word probabilities. First words: {first}."
    blocks.append(Picture("topics", caption, alt, plot_topics(tree), leads=1))
    if model_of(tree).roles.cluster_topic is not None:
        caption = "Clusters of documents as mixtures of topics, the heaviest first."
        alt = "Matrix of clusters by topics, shaded by the topic's share."
        blocks.append(Picture("clusters", caption, alt, plot_clusters(tree, least_weight=0.01)))
    return blocks
