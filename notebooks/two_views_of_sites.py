# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Two views of rock art
#
# **Goals.** After this notebook you can
#
# - split what moves two tables into shared and specific latents;
# - report components that a rotation cannot change, with intervals and with controls that should be zero;
# - predict a hidden view from the other, and say how little that may be worth.
#
# **Duration.** Three quarters of an hour with the exercise. The computer takes about 2 minutes at full size on two
# cores, under a minute with `ZOO_NOTEBOOK_SIZE=small`. Numbers quoted in the text are those of the full size.
#
# What do the place and the technique of a site have in common with the motifs found there?
# Exponential-family canonical correlation analysis (ECCA; Virtanen 2010, section 4.3.3) splits what moves
# each of two binary tables into latents that both share and latents of each alone. The thesis shows films,
# their genres and the words of their descriptions (figure 12), words of no relation among them for contrast.
# Here the rows are 103 sites of the western Pacific (M. Wilson, *Picturing Pacific Pre-History*, 2002): one
# view is where the site lies and whether its art is painted, the other which motifs were found, and among
# the motifs four shuffled ones that belong to nobody. Where the environment variable `ZOO_DATA` names a
# folder with the set `movies` (see `data/README.md`), films come in their place as in the thesis: ten
# genres, and words of their descriptions, half of them chosen because they have to do with genres, half not.
#
# Components of such a model turn, swap and change signs from draw to draw. We look at the singular value
# decomposition of the shared natural parameters instead, which does not (section 6.2.2, corrected), with
# intervals.

# %%
from inference.course import COLOURS, at_size, inference, is_held, load, np, pd, plt, quiet, zoo

# %% [markdown]
# ## 1. The two tables
#
# Districts with nine sites or more and the technique; motifs found at twelve sites or more. Four of them are
# put in a second time with the sites shuffled. For every fifth site the first view is hidden: rows that miss
# a view take part in the fit with what they have. (Films: a few hundred at random, genres and words that
# occur in at least five of them; the controls are the words chosen for having no genre.)


# %%
def sites():
    """Place and technique, motifs with four shuffled ones last, the number of these, titles."""
    art = load("rock_art")
    motifs = art.frame()
    motifs = motifs.loc[:, motifs.sum() >= 12]
    district = pd.get_dummies(pd.Series(art["district"], index=motifs.index)).astype(float)
    district = district.loc[:, district.sum() >= 9]
    painted = pd.Series(art["technique"] == "P", index=motifs.index, name="painted").astype(float)
    place = pd.concat([painted, district], axis=1)
    rng = np.random.default_rng(0)
    shuffled = motifs.iloc[:, :4].apply(lambda column: rng.permutation(column)).add_prefix("shuffled ")
    motifs = pd.concat([motifs, shuffled], axis=1)
    return place, motifs, 4, "place and technique | motifs | shuffled motifs"


def films():
    """Genres, words with those of no genre last, the number of these, titles."""
    held = load("movies")
    rows = np.sort(np.random.default_rng(0).permutation(len(held["x"]))[: at_size(200, 100)])
    words, genres = (held.frame(key).astype(float).iloc[rows].reset_index(drop=True) for key in ("x", "y"))
    neutral = words.iloc[:, 16:].loc[:, lambda part: part.sum() >= 5]  # the last sixteen of the set
    related = words.iloc[:, :16].loc[:, lambda part: part.sum() >= 5]
    words = pd.concat([related, neutral], axis=1).add_prefix("word ")
    genres = genres.loc[:, genres.sum() >= 5]
    return genres, words, neutral.shape[1], "genres | words | words of no genre"


place, motifs, num_controls, titles = films() if is_held("movies") else sites()
hidden = np.arange(len(place)) % 5 == 0
seen = place.mask(np.broadcast_to(hidden[:, None], place.shape))
print(
    f"{len(place)} rows: {place.shape[1]} columns of the first view, {motifs.shape[1]} of the second, "
    f"{num_controls} of them controls; {hidden.sum()} rows hidden"
)

# %% [markdown]
# ## 2. The fit
#
# Two shared latents, one of the place alone, two of the motifs alone; the joint prior with beta = 0.4. NUTS
# starts at the maximum a posteriori. Raw latents and loadings are not looked at: R-hat is that of natural
# parameters, of their singular values, and of the log density.

# %%
from inference.diagnostics import summary

chains = at_size(
    full={"num_chains": 4, "num_warmup": 1000, "num_samples": 1000},
    small={"num_chains": 2, "num_warmup": 200, "num_samples": 120},
)
model = zoo.Paired.ecca(("bernoulli", "bernoulli"), num_shared=2, num_specific=(1, 2), beta=0.4)
with quiet():
    start = inference.fit(model, seen, motifs, method="map", num_restarts=2)
    tree = inference.fit(model, seen, motifs, method="nuts", init=start, **chains)
print(f"divergences: {int(tree['sample_stats']['diverging'].sum())}, {tree.attrs['stop_reason']}")
table = summary(tree)
table.loc[[name for name in table.index if name.startswith(("theta", "lp"))]].round(3)

# %% [markdown]
# ## 3. Components with intervals
#
# Bars are posterior means, lines 90 % intervals. A column whose interval lies on one side of zero takes part
# in what place and motifs share; the shuffled ones should not.

# %% mystnb={"image": {"alt": "Two bar charts, one for each shared component: loadings of the columns of both views with 90 % intervals; controls in grey lie near zero."}}
from inference.symmetry import component_intervals
from inference.symmetry import components

found = components(tree, "shared")
intervals = component_intervals(tree, "shared", prob=0.9)
print(
    "singular values:", *(f"{value:.1f}" for value in found["singular_values"].mean(("chain", "draw")).values)
)
print("share of draws in which a component can be told by its size:", found["separation"].values.round(2))

names = [*place.columns, *motifs.columns]
colours = (
    [COLOURS[0]] * place.shape[1] + [COLOURS[2]] * (motifs.shape[1] - num_controls) + ["0.7"] * num_controls
)
figure, axes = plt.subplots(2, 1, figsize=(9, 5.4), sharex=True)
for number, axis in enumerate(axes, start=1):
    rows = [f"loadings_0[{name}, {number}]" for name in place.columns]
    rows += [f"loadings_1[{name}, {number}]" for name in motifs.columns]
    part = intervals.loc[rows]
    spots = np.arange(len(rows))
    axis.bar(spots, part["mean"], color=colours)
    axis.vlines(spots, part["low"], part["high"], color="0.2", lw=1)
    axis.axhline(0, color="0.5", lw=0.8)
    axis.axvline(place.shape[1] - 0.5, color="0.5", lw=0.8, ls=":")
    axis.set(ylabel=f"shared component {number}")
axes[0].set_title(titles, fontsize=10)
axes[1].set_xticks(np.arange(len(names)), names, rotation=60, ha="right", fontsize=8)
plt.show()

# %% [markdown]
# On rock art the first component is what place and technique have to do with motifs: painted sites and those
# of Morobe go with the motif SA, and less with Xd1; the other motifs cannot be told from zero. No column of the second has an interval off
# zero; motifs lean to one side together, which would be how many of them a site has. The shuffled motifs are
# near zero in both.
#
# On films the first component sets action, crime and thrillers against romance and comedy, words like
# genres, and the second action and comedy against drama and crime; words of
# no genre are near zero. That is how the thesis reads
# its own.
#
# ## 4. One view from the other
#
# What does the second view say of the rows whose first view was hidden? Log probability for each hidden
# cell, against the share of ones in the column.

# %%
predicted = inference.predict(tree, seen, motifs, what="y_0")
cells = predicted.to_numpy()[hidden]
truth = place.to_numpy()[hidden] == 1
base = np.broadcast_to(np.nanmean(seen.to_numpy(), axis=0), cells.shape)
gain = np.log(np.where(truth, cells, 1 - cells)) - np.log(np.where(truth, base, 1 - base))
by_column = pd.DataFrame(
    {"gain, nats a cell": gain.mean(0), "standard error": gain.std(0) / len(gain) ** 0.5}
)
by_column.index = place.columns
print(f"mean gain {gain.mean():.3f} +- {gain.mean(1).std() / len(gain) ** 0.5:.3f} nats a cell")
by_column.round(3)

# %% [markdown]
# On rock art the motifs say next to nothing of place and technique that the columns' frequencies do not say: the
# mean gain is 0.021 +- 0.015 nats a cell at full size. On films words say something of genres, 0.14 +- 0.02 nats a
# cell, most of it of those in which the components are large.

# %% [markdown]
# ## Exercise
#
# Raw loadings of the shared latents were never shown. Turn latents and loadings by a rotation: what happens
# to the product, to the loadings, to the singular values of the product?

# %%
# Answer: only the loadings change, so nothing about single raw loadings can be believed.
draws = np.random.default_rng(0)
raw_latents, raw_loadings = draws.normal(size=(30, 2)), draws.normal(size=(5, 2))
turn = np.linalg.qr(draws.normal(size=(2, 2)))[0]
before, after = raw_latents @ raw_loadings.T, (raw_latents @ turn) @ (raw_loadings @ turn).T
print(
    f"product {np.abs(before - after).max():.1e}, loadings {np.abs(raw_loadings - raw_loadings @ turn).max():.2f}"
)
assert np.allclose(before, after, atol=1e-12) and not np.allclose(raw_loadings, raw_loadings @ turn, atol=0.1)
assert np.allclose(np.linalg.svd(before)[1], np.linalg.svd(after)[1], atol=1e-12)

# %% [markdown]
# ## 5. What was claimed
#
# The product of latents and loadings is kept by the decomposition to rounding, and its factors are
# orthonormal in every draw. The controls load less than the other columns of their view.

# %%
values = tree["posterior"]
product = values["latents"].values[..., :2] @ np.swapaxes(values["loadings_1"].values[..., :2], -1, -2)
scaled = found["latents"].values * found["singular_values"].values[..., None, :]
assert np.abs(scaled @ np.swapaxes(found["loadings_1"].values, -1, -2) - product).max() < 1e-8
assert int(tree["sample_stats"]["diverging"].sum()) == 0
loadings = np.sqrt((found["loadings_1"] ** 2).mean(("chain", "draw", "component")).values)
split = len(loadings) - num_controls
assert loadings[split:].mean() < loadings[:split].mean(), "controls share less with the first view"
assert np.isfinite(cells).all() and ((cells > 0) & (cells < 1)).all()

# %% [markdown]
# ## References
#
# - Hoffman, M. D. and Gelman, A. (2014). The No-U-Turn sampler: adaptively setting path lengths in Hamiltonian Monte
#   Carlo. *Journal of Machine Learning Research* 15, 1593-1623.
# - Klami, A., Virtanen, S. and Kaski, S. (2010). Bayesian exponential family projections for coupled data sources.
#   *Proceedings of the 26th Conference on Uncertainty in Artificial Intelligence*, 286-293.
# - Vehtari, A., Gelman, A., Simpson, D., Carpenter, B. and Bürkner, P.-C. (2021). Rank-normalization, folding, and
#   localization: an improved R-hat for assessing convergence of MCMC. *Bayesian Analysis* 16, 667-718.
# - Virtanen, S. (2010). *Bayesian exponential family projections*. Master's thesis, Aalto University School of
#   Science and Technology, Espoo.
# - Wilson, M. (2002). *Picturing Pacific Pre-History*. PhD thesis, Australian National University.

# %%
zoo.show_versions()
