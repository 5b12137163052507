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
# # Which way does the first axis point?
#
# **Goals.** After this notebook you can
#
# - fit probabilistic PCA and read its biplot;
# - say why the mean of a loading over draws is near zero though the loading is large;
# - report what no rotation can change, and turn all draws to one orientation where you need one.
#
# **Duration.** Half an hour with the exercises. The computer takes about a minute at full size on two cores, under a
# minute with `ZOO_NOTEBOOK_SIZE=small`.
#
# This notebook is part of a [kit of ninety minutes](../guide/teach_projections.md). Each exercise is checked by the cell
# that follows it.

# %%
from inference.course import COLOURS, at_size, inference, load, np, plots, plt, quiet, zoo

# %% [markdown]
# ## 1. Two axes for eight acids
#
# A row is an Italian olive oil, a column one of its fatty acids, in units of its standard deviation. Points are oils, arrows
# are acids; colours are areas, which the fit did not see.

# %% mystnb={"image": {"alt": "Oils in the plane of two latents, coloured by area, with an arrow for each fatty acid; the areas lie apart."}}
olive = load("olive")
x = (olive.frame() - olive.frame().mean()) / olive.frame().std(ddof=0)
fit = inference.fit(zoo.PPCA.from_data(x, num_latents=2), x, method="closed_form")
plots.plot_biplot(fit, colour_by=olive["area"])

# %% [markdown]
# Probabilistic PCA (Tipping and Bishop 1999) says that each row has two hidden scores $z_n$, and that the columns are a linear
# function of them with noise of one size:
#
# $$z_n \sim N(0, I), \qquad x_n = W z_n + \mu + \varepsilon_n, \qquad \varepsilon_n \sim N(0, \sigma^2 I).$$
#
# With the scores integrated out, a row is Gaussian with covariance $W W^\top + \sigma^2 I$. At the maximum of the likelihood
# $W$ spans the first principal components, and $\sigma^2$ is the mean variance of the directions that are left out.

# %% [markdown]
# **Exercise 1.** Eight columns of variance one have a total variance of eight. Which share of it lies in the plane of the first
# two principal components? You need only $\sigma^2$, `fit["posterior"]["noise_variance"]`.

# %%
# Answer: six directions with a mean variance of sigma^2 are left out.
noise = float(fit["posterior"]["noise_variance"].squeeze())
share = 1 - 6 * noise / 8
print(f"{share:.1%}")

# %%
# Check of exercise 1
eigenvalues = np.linalg.eigvalsh(np.cov(x.to_numpy().T, ddof=0))
assert np.isclose(share, eigenvalues[-2:].sum() / 8)

# %% [markdown]
# ## 2. Turn it as you like
#
# Turn the scores by a rotation $R$ and the loadings with them: $W R \, R^\top z = W z$. The likelihood knows only
# $W W^\top = (W R)(W R)^\top$. So the data cannot say which way the first axis points: PCA picks the direction of largest
# variance, which is a convention.

# %% mystnb={"image": {"alt": "Arrows of the eight acids in the plane of two latents, as fitted and turned by forty degrees: the same fan."}}
w = fit["posterior"]["loadings"].to_numpy().squeeze()
angle = np.deg2rad(40)
turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
figure, axes = plt.subplots(1, 2, figsize=(7, 3.4), sharey=True)
for axis, arrows, title in zip(axes, (w, w @ turn), ("as fitted", "turned"), strict=True):
    axis.quiver(*np.zeros((2, 8)), *arrows.T, angles="xy", scale_units="xy", scale=1, color=COLOURS[0])
    axis.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal", title=title, xlabel="latent 0")
axes[0].set_ylabel("latent 1")
plt.show()

# %% [markdown]
# **Exercise 2.** By how much does `turn` change the largest entry of $W$, and by how much the largest of $W W^\top$?

# %%
# Answer: the loadings change by as much as they are large, their products not at all.
turned = w @ turn
change_of_loadings = np.abs(turned - w).max()
change_of_products = np.abs(turned @ turned.T - w @ w.T).max()
print(f"{change_of_loadings:.3f} and {change_of_products:.1e}")

# %%
# Check of exercise 2
assert change_of_products < 1e-10 and change_of_loadings > 0.3
assert np.isclose(change_of_loadings, np.abs(w @ (turn - np.eye(2))).max())

# %% [markdown]
# ## 3. A ring of draws
#
# With a prior on $W$ that favours no direction the posterior is a ring: all turned copies are equally probable. NUTS draws from
# it (every fourth oil is enough).

# %% mystnb={"image": {"alt": "Draws of the loadings of oleic acid on two latents. Left, as drawn: a ring around zero. Right, aligned: one cloud."}}
from inference.symmetry import align_rotation

rows = x.iloc[::4]
model = zoo.PPCA.from_data(rows, num_latents=2, loading_prior="gaussian")
with quiet():
    film = plots.film(
        model,
        rows,
        method="nuts",
        seed=0,
        num_warmup=200,
        num_samples=at_size(full=1000, small=150),
        num_chains=4,
    )
draws = film.tree
aligned = align_rotation(draws)
clouds = [
    tree["posterior"]["loadings"].sel(feature="oleic").to_numpy().reshape(-1, 2) for tree in (draws, aligned)
]
figure, axes = plt.subplots(1, 2, figsize=(7, 3.4), sharey=True)
for axis, cloud, title in zip(axes, clouds, ("as drawn", "aligned"), strict=True):
    axis.scatter(*cloud.T, s=4, alpha=0.4, color=COLOURS[0])
    axis.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), aspect="equal", title=title, xlabel="oleic on latent 0")
axes[0].set_ylabel("on latent 1")
plt.show()

# %% [markdown]
# The same draws as a film, on the plane of the first two principal components: arrows are the latents, the grey ellipse is where
# the model expects nine rows in ten. Choose chain "all", then play. The arrows turn; the ellipse hardly moves.

# %%
film

# %% [markdown]
# **Exercise 3.** Average the loading of oleic acid on latent 0 over the draws as they are. Compare with the average *length* of
# its arrow, which no rotation changes.

# %%
# Answer: the mean is near zero, the arrow is about as long as in the first picture.
mean_loading = clouds[0][:, 0].mean()
mean_length = np.linalg.norm(clouds[0], axis=1).mean()
print(f"mean loading {mean_loading:.2f}, mean length {mean_length:.2f}")

# %%
# Check of exercise 3
assert np.isclose(mean_length, np.linalg.norm(clouds[1], axis=1).mean())
assert abs(mean_loading) < 0.5 * mean_length

# %% [markdown]
# ## 4. What a rotation cannot change
#
# Lengths of arrows, angles between them, $W W^\top$, $\sigma^2$, the plane itself, the density of new rows: these can be averaged
# over draws. R-hat is taken of such quantities. For a picture one turns every draw to one orientation (orthogonal Procrustes;
# Schönemann 1966), as on the right above.

# %%
before, after = aligned.attrs["rotation_rhat_before"], aligned.attrs["rotation_rhat_after"]
print(f"largest R-hat of a loading: {before:.2f} as drawn, {after:.3f} aligned")

# %% [markdown]
# **Exercise 4.** Is the plane of two latents the same in both halves of the oils? Fit the even and the odd rows, and compare
# the planes by the largest angle between them (`scipy.linalg.subspace_angles`), in degrees. Why not by the loadings?

# %%
# Answer: a few degrees. Loadings may differ by a rotation or a sign between fits of the same plane.
from scipy.linalg import subspace_angles

halves = [
    inference.fit(zoo.PPCA.from_data(half, num_latents=2), half, method="closed_form")["posterior"][
        "loadings"
    ]
    for half in (x.iloc[::2], x.iloc[1::2])
]
largest_angle = np.rad2deg(subspace_angles(*(half.to_numpy().squeeze() for half in halves)).max())
print(f"{largest_angle:.1f} degrees")

# %%
# Check of exercise 4
vectors = [
    np.linalg.svd(half, full_matrices=False)[2][:2].T
    for half in (x.iloc[::2] - x.iloc[::2].mean(), x.iloc[1::2] - x.iloc[1::2].mean())
]
assert np.isclose(largest_angle, np.rad2deg(subspace_angles(*vectors).max()), atol=1e-4)

# %% [markdown]
# How many latents there should be, what to do about missing cells, and how VB's error bars compare with those of NUTS:
# [pca_to_bayesian_pca](../pca_to_bayesian_pca.py).
#
# ## What was claimed

# %%
assert after < 1.1
assert mean_length > 0.7 and abs(mean_loading) < 0.35 * mean_length
assert largest_angle < 10

# %% [markdown]
# ## References
#
# - Forina, M., Armanino, C., Lanteri, S. and Tiscornia, E. (1983). Classification of olive oils from their fatty acid
#   composition. *Food Research and Data Analysis*, 189-214.
# - Schönemann, P. H. (1966). A generalized solution of the orthogonal Procrustes problem. *Psychometrika* 31, 1-10.
# - Tipping, M. E. and Bishop, C. M. (1999). Probabilistic principal component analysis. *Journal of the Royal Statistical
#   Society B* 61, 611-622.

# %%
zoo.show_versions()
