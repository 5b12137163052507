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
# # Which cluster is number one?
#
# **Goals.** After this notebook you can
#
# - fit a mixture by EM and by Gibbs sampling, and read a picture of each;
# - say why the mean of "cluster 0" over draws describes no cluster;
# - report what no renumbering can change, and give all draws one numbering where you need one.
#
# **Duration.** Half an hour with the exercises. The computer takes about a minute at full size on two cores, under a
# minute with `ZOO_NOTEBOOK_SIZE=small`.
#
# This notebook is part of a [kit of ninety minutes](../guide/teach_mixtures.md). Each exercise is checked by the cell
# that follows it.

# %%
from inference.course import COLOURS, at_size, inference, load, np, plots, plt, zoo

# %% [markdown]
# ## 1. Two kinds of eruption
#
# A row is one eruption of Old Faithful: its length and the wait for the next, in minutes.

# %% mystnb={"image": {"alt": "Eruptions in the plane of duration and waiting time: two clouds, an ellipse around each."}}
x = load("faithful").frame()
model = zoo.Mixture.from_data(x, num_components=2)
film = plots.film(model, x, method="em", init="random", seed=0)
em = film.tree
plots.plot_mixture(em)

# %% [markdown]
# A mixture says that each eruption first chooses a kind, with probabilities $w_1, \dots, w_K$, and then a length and a wait
# from that kind's Gaussian:
#
# $$p(x) = \sum_{k=1}^{K} w_k \, N(x \mid \mu_k, \Sigma_k).$$
#
# EM repeats two steps. *E*: given the Gaussians, which share $r_{nk}$ of row $n$ belongs to kind $k$? *M*: given the shares,
# the weighted mean, covariance and number of rows of each kind. Neither step lowers the likelihood: play the film.

# %%
film

# %% [markdown]
# **Exercise 1.** `inference.transform(em, x)` gives the shares $r_{nk}$, a row for each eruption. Where EM has settled, the
# M step no longer moves anything. What, then, must the weights be? Compute them from the shares.

# %%
# Answer: the mean share of each kind.
weights = inference.transform(em, x).to_numpy().mean(axis=0)
weights.round(3)

# %%
# Check of exercise 1
assert np.allclose(weights, em["posterior"]["weights"].to_numpy().squeeze(), atol=1e-3)

# %% [markdown]
# ## 2. Any numbering will do
#
# Nothing in the formula says which kind is number one: a sum does not depend on the order of its terms. With $K$ kinds there
# are $K!$ numberings of the same density, so the likelihood has $K!$ maxima of the same height, and under a prior that
# treats all kinds alike the posterior has $K!$ equal copies.

# %%
from scipy.stats import multivariate_normal


def log_likelihood(weights, locs, covariances):
    """Of all rows, in nats."""
    kinds = [w * multivariate_normal(m, c).pdf(x) for w, m, c in zip(weights, locs, covariances, strict=True)]
    return np.log(np.sum(kinds, axis=0)).sum()


at = em["posterior"].isel(chain=0, draw=0)
fitted = [at[name].to_numpy() for name in ("weights", "locs", "covariances")]
print(f"log likelihood {log_likelihood(*fitted):.6f}")

# %% [markdown]
# **Exercise 2.** Number the two kinds the other way round, in all three arrays. What is the log likelihood now? And how many
# numberings has a mixture of six kinds?

# %%
# Answer: the same; 6! = 720.
swapped = log_likelihood(*(part[::-1] for part in fitted))
numberings = 720
print(f"{swapped:.6f}")

# %%
# Check of exercise 2
assert np.isclose(swapped, log_likelihood(*fitted), rtol=1e-12)
assert numberings == np.prod(range(1, 7))

# %% [markdown]
# ## 3. Four chains, two numberings
#
# Gibbs sampling draws from the posterior: labels given the kinds, kinds given the labels, again and again. Four chains start
# at random, and each finds the two clouds. Which of them it calls 0 is chance: choose chain "all" and colours by "the
# sampler's labels", then play.

# %%
film = plots.film(
    model, x, method="gibbs", seed=1, num_warmup=200, num_samples=at_size(full=1000, small=300), num_chains=4
)
film

# %% mystnb={"image": {"alt": "Mean duration of component 0 along the draws of four chains: some chains stay near four minutes, the others near two."}}
draws = film.tree
duration = draws["posterior"]["locs"].sel(feature="eruptions")
figure, axis = plt.subplots(figsize=(7, 3))
for chain in range(4):
    axis.plot(duration.isel(chain=chain, component=0), color=COLOURS[chain], lw=0.8, label=f"chain {chain}")
axis.set(xlabel="draw", ylabel="minutes", title="mean duration of component 0", ylim=(1.5, 5))
axis.legend(ncols=4)
plt.show()

# %% [markdown]
# R-hat compares the variation between chains with that within them and should be below 1.01. For the labelled parameters it is
# bad; for quantities that have no number it is good. The sampler has converged: it is the question about "component 0" that
# has no answer.

# %%
from inference import diagnostics

labelled = diagnostics.psrf(draws, ["weights", "locs"])
unlabelled = diagnostics.psrf(draws)
worst = {
    "numbered": np.nanmax([part.max() for part in labelled.data_vars.values()]),
    "not numbered": np.nanmax([part.max() for part in unlabelled.data_vars.values()]),
}
print({name: float(value.round(3)) for name, value in worst.items()})

# %% [markdown]
# **Exercise 3.** Average the duration of component 0 over all chains and draws, as a table of posterior means would. How far,
# in minutes, is this number from the nearest of the two kinds that EM found?

# %%
# Answer: half a minute or more: it lies where hardly any eruption does.
average = float(duration.sel(component=0).mean())
distance = np.abs(em["posterior"]["locs"].sel(feature="eruptions").to_numpy() - average).min()
print(f"average {average:.2f} minutes, {distance:.2f} from the nearest kind")

# %%
# Check of exercise 3
chains = duration.sel(component=0).mean("draw")
assert chains.min() < average < chains.max() and distance > 0.4
assert np.isclose(average, chains.mean())

# %% [markdown]
# ## 4. What has no number
#
# Do rows 19 and 59 belong together? What is the density of a new eruption? How large is the *larger* kind? None of these
# mentions a label, so each can be averaged over draws.

# %% mystnb={"image": {"alt": "Matrix of probabilities that two rows belong together, rows ordered by cluster: two dark squares."}}
plots.plot_co_clustering(draws)

# %% [markdown]
# **Exercise 4.** `draws["posterior"]["assignments"]` holds the label of each row in each draw. Compute the probability that
# rows 0 and 1 are of one kind, and that rows 0 and 2 are.

# %%
# Answer: in how many draws do the labels agree?
labels = draws["posterior"]["assignments"].to_numpy().reshape(-1, len(x))
together = {other: float((labels[:, 0] == labels[:, other]).mean()) for other in (1, 2)}
together

# %%
# Check of exercise 4
matrix = diagnostics.co_clustering(draws).to_numpy()
assert all(np.isclose(matrix[0, other], value) for other, value in together.items())

# %% [markdown]
# ## 5. One numbering for all draws
#
# A table with a row for each kind needs numbers. `relabel` matches the components of all draws by who shares one with whom
# (Stephens 2000). What R-hat still shows afterwards is real disagreement.

# %%
from inference.symmetry import relabel

aligned = relabel(draws)
before, after = aligned.attrs["relabel_rhat_before"], aligned.attrs["relabel_rhat_after"]
print(f"largest labelled R-hat: {before:.2f} before, {after:.3f} after")
diagnostics.summary_cells(diagnostics.summary(aligned, var_names=["weights", "locs"]))

# %% [markdown]
# With three components instead of two the chains do disagree about more than names: see
# [old_faithful](../old_faithful.py), where the posterior itself is undecided.
#
# ## What was claimed

# %%
assert bool(draws.attrs["converged"])
assert worst["numbered"] > 1.2 and worst["not numbered"] < 1.02
assert before > 1.2 and after < 1.02

# %% [markdown]
# ## References
#
# - Azzalini, A. and Bowman, A. W. (1990). A look at some data on the Old Faithful geyser. *Applied Statistics* 39, 357-365.
# - Jasra, A., Holmes, C. C. and Stephens, D. A. (2005). Markov chain Monte Carlo methods and the label switching problem in
#   Bayesian mixture modeling. *Statistical Science* 20, 50-67.
# - Stephens, M. (2000). Dealing with label switching in mixture models. *Journal of the Royal Statistical Society B* 62,
#   795-809.

# %%
zoo.show_versions()
