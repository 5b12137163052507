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
# # From k-means to Gibbs
#
# **Goals.** After this notebook you can
#
# - derive k-means as a limit of EM, and say what each step of EM maximises;
# - choose a number of components by held-out rows and by BIC, and say why the likelihood of the fitted rows cannot;
# - explain what a bound on the evidence adds, and why components die under it;
# - compare two samplers of one posterior by quantities that labels cannot change.
#
# **Duration.** Two and a half hours with the seven exercises. The computer takes about 3 minutes at full size on two
# cores, under a minute with `ZOO_NOTEBOOK_SIZE=small`. Numbers quoted in the text are those of the full size.
#
# One model, a mixture, and one table of numbers, computed in five ways. Each adds something to the one
# before: k-means gives centres; EM gives them weights, shapes and doubts; VB a bound, so that components
# that are not needed die; Gibbs the posterior; the Polya urn the posterior without truncation. The last
# section does the same for binary data.
#
# For teaching: every section ends with an exercise, and the cell after it holds an answer that checks
# itself. Notation as in Yu (2006, chapters 2 and 3); EM, its bound and its limit as in Bishop
# (*Pattern Recognition and Machine Learning*, 2006, chapter 9). The last section asserts what the text claims.

# %%
from inference.course import COLOURS, SIZE, at_size, inference, load, np, pd, plots, plt, quiet, zoo

# %% [markdown]
# The data are every second row of the thesis's five overlapping Gaussians: few, so that it shows when a
# method believes them too much. Four fresh samples of the same Gaussians are held out to score the fits.

# %%
x = load("toy_gaussians")["x"][::2]
fresh = np.concatenate([load("toy_gaussians", seed=seed)["x"] for seed in range(1, 5)])
num_rows, num_features = x.shape
print(f"{num_rows} rows of {num_features} numbers to fit, {len(fresh)} to score")

# %% [markdown]
# ## 1. k-means is a limit of EM
#
# Lloyd's algorithm alternates two steps: every row to its nearest centre, every centre to the mean of its
# rows. EM for a mixture of Gaussians with a **known spherical covariance** $\sigma^2 I$ shared by all
# components alternates
#
# $$r_{ik} \propto \pi_k \exp\{-\|x_i - \mu_k\|^2 / 2\sigma^2\}, \qquad
# \mu_k = \sum_i r_{ik} x_i / \sum_i r_{ik}, \qquad \pi_k = \sum_i r_{ik} / N.$$
#
# As $\sigma^2 \to 0$ the largest term of the softmax takes all, and the weights $\pi_k$ no longer matter.
# So the two algorithms must take the same steps. We start both from the same labels (five random rows are
# made centres, every row takes the label of the nearest) and compare.

# %% tags=["hide-input"]
settings = at_size(
    full={
        "steps": (1, 2, 3, 5, 8, 13),
        "variances": np.geomspace(8.0, 0.001, 40),
        "restarts": 20,
        "numbers": (1, 2, 3, 4, 5, 6, 7, 8, 10, 12),
        "folds": 10,
        "gibbs": {"split_merge": 4, "num_warmup": 1000, "num_samples": 4000, "thinning": 5},
        "urn": {"num_warmup": 500, "num_samples": 4000},
    },
    small={
        "steps": (1, 5, 13),
        "variances": np.geomspace(8.0, 0.001, 12),
        "restarts": 6,
        "numbers": (5, 12),
        "folds": 5,
        "gibbs": {"split_merge": 4, "num_warmup": 300, "num_samples": 500, "thinning": 2},
    },
)


def fit(model, x, method, **keywords):
    """`inference.fit` without bars; runs cut short and components held by a guard are told in the text."""
    with quiet("has not converged", "em: a guard holds"):
        return inference.fit(model, x, method=method, **keywords)


# %%
num_clusters = 5


def nearest(centres):
    """The nearest centre of every row."""
    return ((x[:, None] - centres) ** 2).sum(axis=-1).argmin(axis=1)


def first_labels(seed):
    """Labels to start from: the nearest of five random rows."""
    return nearest(np.random.default_rng(seed).choice(x, num_clusters, replace=False))


def lloyd(labels, num_steps):
    """Centres and labels after some steps of k-means."""
    for _ in range(num_steps):
        centres = np.stack([x[labels == k].mean(axis=0) for k in range(num_clusters)])
        labels = nearest(centres)
    _, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    by_size = np.lexsort((first, -sizes))  # numbered as a fit numbers its components
    return centres[by_size], np.argsort(by_size)[labels]


def soft_kmeans(variance, responsibilities, **keywords):
    """EM with the covariance known to be `variance` times the identity."""
    components = zoo.conjugate.GaussianKnownCovariance.from_data(
        x, covariance=variance * np.eye(num_features)
    )
    model = zoo.Mixture(components=components, num_components=num_clusters)
    return fit(model, x, "em", init={"responsibilities": responsibilities}, **keywords)


def means_of(tree):
    """The estimated means, shape (num_components, num_features)."""
    return tree["posterior"]["locs"].to_numpy()[0, 0]


start = first_labels(0)
one_hot = np.eye(num_clusters)[start]
apart = []
for num_steps in settings["steps"]:  # a start is an M-step, so n steps of EM follow n + 1 of Lloyd
    tree = soft_kmeans(1e-5, one_hot, max_iterations=num_steps, tolerance=0.0)
    centres, labels = lloyd(start, num_steps + 1)
    apart.append(
        {
            "steps": num_steps,
            "largest distance of centres": np.abs(means_of(tree) - centres).max(),
            "rows labelled otherwise": int(
                (tree["posterior"]["assignments"].to_numpy()[0, 0] != labels).sum()
            ),
        }
    )
apart = pd.DataFrame(apart).set_index("steps")
apart

# %% [markdown]
# Now the other way: we start at the centres of k-means and **raise** the variance step by step. On the left
# each line is a centre's place along the first principal direction. At a large variance all components sit
# on one point, the mean of the data: the model has one cluster, whatever $K$ says. As the variance falls
# the centres part, in a few sudden splits. On the right the log likelihood, put on the scale of a sum of
# squares, $-2\sigma^2 \{\log L + \frac{Nd}{2} \log 2\pi\sigma^2\}$, falls onto the sum of squares that
# k-means minimises.

# %% mystnb={"image": {"alt": "Left: the places of five centres against the known variance, which part in sudden splits as it falls. Right: the log likelihood as a sum of squares, which falls onto that of k-means."}}
from inference.plots import MARKERS

starts = [lloyd(first_labels(seed), 100) for seed in range(settings["restarts"])]
centres, labels = min(starts, key=lambda start: ((x - start[0][start[1]]) ** 2).sum())
sum_of_squares = ((x - centres[labels]) ** 2).sum()
r = np.eye(num_clusters)[labels]
soft = {}
for variance in sorted(settings["variances"]):
    soft[variance] = soft_kmeans(variance, r, max_iterations=2000, tolerance=1e-9)
    r = soft[variance]["variational"]["responsibilities"].to_numpy()

variances = np.array(list(soft))
direction = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[2][0]
places = np.array([(means_of(tree) - x.mean(axis=0)) @ direction for tree in soft.values()])
log_likelihoods = np.array([tree.attrs["log_likelihood"] for tree in soft.values()])
as_squares = -2 * variances * (log_likelihoods + 0.5 * x.size * np.log(2 * np.pi * variances))

figure, axes = plt.subplots(1, 2, figsize=(10, 3.6))
for k in range(num_clusters):
    axes[0].plot(variances, places[:, k], color=COLOURS[k], marker=MARKERS[k], ms=4)
axes[0].set(
    xscale="log",
    xlabel="known variance $\\sigma^2$",
    ylabel="place of the centre",
    title="centres part as the variance falls",
)
axes[1].plot(variances, as_squares, color=COLOURS[0], marker="o", ms=4, label="EM")
axes[1].axhline(sum_of_squares, color=COLOURS[1], ls="--", label="k-means")
axes[1].set(
    xscale="log",
    xlabel="known variance $\\sigma^2$",
    ylabel="sum of squares",
    title="the likelihood becomes a sum of squares",
)
axes[1].legend()
plt.show()

# %%
from matplotlib.colors import to_rgb


def mixed_colours(shares):
    """One colour a row: those of the components, mixed by the row's shares in them."""
    palette = np.array([to_rgb(COLOURS[k % len(COLOURS)]) for k in range(shares.shape[1])])
    return np.clip(shares @ palette, 0.0, 1.0)


# %% mystnb={"image": {"alt": "The rows at four values of the known variance, coloured by responsibilities, with the centres: one cluster at a large variance, five at a small one."}}
shown = [variances[np.abs(np.log(variances / target)).argmin()] for target in (8.0, 1.5, 0.3, 0.001)]
figure, axes = plt.subplots(1, 4, figsize=(12, 3.1), sharex=True, sharey=True)
for axis, variance in zip(axes, shown, strict=True):
    shares = soft[variance]["variational"]["responsibilities"].to_numpy()
    axis.scatter(*x.T, c=mixed_colours(shares), s=16)
    axis.scatter(*means_of(soft[variance]).T, marker="+", s=130, color="black", lw=1.8)
    undecided = (shares.max(axis=1) < 0.9).mean()
    axis.set_title(f"$\\sigma^2$ = {variance:.2g}: {undecided:.0%} undecided", fontsize=10)
figure.suptitle("colours mixed by responsibility; + are centres; undecided: no share above 90 %", fontsize=10)
plt.show()

# %% [markdown]
# **Exercise 1.** With weights $\pi_1 \ne \pi_2$ the border between two components is not half way between
# their centres. If the centres are $D$ apart, how far is it moved, and towards which? (Set the two
# responsibilities equal.) What does that say about k-means and clusters of unequal size?

# %%
# Answer: by sigma^2 log(pi_1 / pi_2) / D, towards the smaller component; with sigma^2 -> 0 the shift vanishes,
# so k-means always cuts half way, however unequal the clusters.
tree = soft[shown[2]]
means, weights = means_of(tree), tree["posterior"]["weights"].to_numpy()[0, 0]
first, second = int(weights.argmax()), int(weights.argmin())
distance = np.linalg.norm(means[second] - means[first])
border = 0.5 * distance + shown[2] * np.log(weights[first] / weights[second]) / distance

ends = inference.transform(tree, means[[first, second]]).to_numpy()[:, [first, second]]
log_ratios = np.log(ends[:, 0] / ends[:, 1])  # falls on a straight line from one centre to the other
measured_border = distance * log_ratios[0] / (log_ratios[0] - log_ratios[1])
print(f"weights {weights[first]:.3f} and {weights[second]:.3f}, centres {distance:.3f} apart")
print(f"from the first centre: half way {0.5 * distance:.4f}, border {measured_border:.4f}, ", end="")
print(f"by the formula {border:.4f}")
assert abs(measured_border - border) < 1e-8

# %% [markdown]
# ## 2. EM climbs a bound
#
# Now the covariances are free. EM maximises the likelihood through a lower bound,
#
# $$\log p(x_i \mid \theta) \ge \sum_k r_{ik} \log \frac{\pi_k\, p(x_i \mid \theta_k)}{r_{ik}} .$$
#
# The E-step chooses $r$ so that the bound touches the log likelihood; the M-step moves $\theta$ uphill on the
# bound, and the likelihood, which lies above it, rises at least as much. Drawn together they make a
# staircase.

# %% mystnb={"image": {"alt": "A staircase: the bound and the log likelihood of EM over the first steps; each touches the other in turn and neither falls."}}
gaussians = zoo.Mixture.from_data(x, num_components=num_clusters)
em = fit(gaussians, x, "em", init="random", num_restarts=settings["restarts"])
figure = plots.plot_em(em, iterations=12)
figure

# %% [markdown]
# The staircase leads to the nearest top, not to the highest. The starts below differ in nothing but the
# random responsibilities that they begin with.

# %%
em_tops = (
    pd.Series(em["trace"]["objective_at_end"].to_numpy()).round(1).value_counts().sort_index(ascending=False)
)
em_tops.rename_axis("log likelihood").to_frame("starts that end there")

# %% [markdown]
# **Exercise 2.** After an M-step the bound lies below the log likelihood again. By how much? Show that the
# gap is $\sum_i \mathrm{KL}(r_i^{\text{old}} \,\|\, r_i^{\text{new}})$, and check it on one step.

# %%
# Answer: log L(new) - bound = sum_ik r_old log(r_old / r_new), for log p(x) = log[pi_k p(x | k)] - log r_new.
from scipy.optimize import linear_sum_assignment

begin = {"responsibilities": np.full((num_rows, num_clusters), 0.1) + 0.5 * one_hot}
first, second = (fit(gaussians, x, "em", init=begin, max_iterations=n, tolerance=0.0) for n in (1, 2))
r_old, r_new = (tree["variational"]["responsibilities"].to_numpy() for tree in (first, second))
distances = ((means_of(first)[:, None] - means_of(second)) ** 2).sum(axis=-1)
same = linear_sum_assignment(distances)[1]  # each fit numbers its components by their sizes
r_new = r_new[:, same]
divergence = (r_old * np.log(r_old / r_new)).sum()
gap = float(second["trace"]["objective"][1] - second["trace"]["bound"][1])
print(f"gap after the second M-step {gap:.6f} nats, divergence {divergence:.6f} nats")
assert abs(gap - divergence) < 1e-8 and gap > 0

# %% [markdown]
# ## 3. How many? The likelihood does not say
#
# The likelihood of the fitted rows can only rise with $K$. What is to be believed is the density of rows that
# were not fitted: cross-validation estimates it by refitting, BIC by a penalty of $\frac12 \log N$ nats for
# each free number. Both are put on one axis, in nats per row.

# %% mystnb={"image": {"alt": "Nats per row against the number of components: fitted rows rise throughout, held-out rows and minus BIC have a maximum."}}
candidates = {k: zoo.Mixture.from_data(x, num_components=k) for k in settings["numbers"]}
with quiet("em: a guard holds"):
    validated = inference.cross_validate(
        candidates, x, method="em", folds=settings["folds"], num_restarts=settings["restarts"]
    )
figure, axis = plt.subplots(figsize=(8, 3.6))
axis.plot(validated.index, validated["fitted"], color=COLOURS[1], marker="s", ls="--", label="fitted rows")
axis.errorbar(
    validated.index,
    validated["heldout"],
    validated["standard_error"],
    color=COLOURS[0],
    marker="o",
    capsize=3,
    label="rows held out in turn (with standard errors)",
)
axis.plot(
    validated.index,
    -0.5 * validated["bic"] / num_rows,
    color=COLOURS[2],
    marker="^",
    ls=":",
    label="-BIC / 2N",
)
axis.set(xlabel="number of components K", ylabel="nats per row", xticks=validated.index)
axis.legend()
plt.show()
by_heldout, by_bic = int(validated["heldout"].idxmax()), int(validated["bic"].idxmin())
print(f"held-out rows choose K = {by_heldout}, BIC chooses K = {by_bic}; five Gaussians made the rows")
validated[["heldout", "standard_error", "difference", "difference_error", "bic", "fitted"]].round(3)

# %% [markdown]
# **Exercise 3.** BIC needs the number of free numbers of a mixture of $K$ Gaussians with full covariances in
# $d$ dimensions. Count them, and recompute the BIC of the fit with $K = 5$.

# %%
# Answer: K - 1 weights, K d means, K d (d + 1) / 2 covariances.
counted = num_clusters - 1 + num_clusters * num_features * (1 + (num_features + 1) / 2)
bic = counted * np.log(num_rows) - 2 * em.attrs["log_likelihood"]
print(f"{counted:g} free numbers, BIC {bic:.3f}; the fit says {em.attrs['num_parameters']}", end="")
print(f" and {em.attrs['bic']:.3f}")
assert counted == em.attrs["num_parameters"] and abs(bic - em.attrs["bic"]) < 1e-8

# %% [markdown]
# ## 4. VB: a bound on the evidence, and components that die
#
# Give the parameters a prior and ask for more components than needed: here a Dirichlet process with
# concentration 1, truncated at $K = 12$ sticks. VB replaces the point estimate by a distribution $q$, and the
# log likelihood by a bound on the log evidence $\log p(x)$, which pays for every component that is used. EM
# with the same $K$ pays nothing and uses all of them.

# %% mystnb={"image": {"alt": "Left: expected rows of each component by size; EM uses all twelve, variational Bayes a few. Right: the bound of every start against iterations, the best in blue."}}
process = zoo.Mixture.from_data(x, num_components=12, weight_prior="stick_breaking")
em_large = fit(candidates[12], x, "em", init="random", num_restarts=settings["restarts"])
vb = fit(process, x, "vb", init="random", num_restarts=settings["restarts"])
rows_held = {}
for name, tree in {"EM": em_large, "VB": vb}.items():
    rows_held[name] = np.sort(tree["variational"]["responsibilities"].sum("observation").to_numpy())[::-1]
figure, axes = plt.subplots(1, 2, figsize=(10, 3.4))
for place, (name, expected) in enumerate(rows_held.items()):
    used = int((expected > 0.5).sum())
    axes[0].bar(
        np.arange(1, 13) + 0.4 * (place - 0.5),
        expected,
        0.4,
        color=COLOURS[1 - place],
        label=f"{name}: {used} used",
    )
axes[0].set(xlabel="component, by size", ylabel="expected rows", xticks=range(1, 13))
axes[0].legend()
bounds = vb["trace"]["objective_by_restart"].to_numpy().T
best = vb.attrs["best_restart"]
for restart in [i for i in range(len(bounds)) if i != best] + [best]:
    style = {"color": COLOURS[0], "lw": 2} if restart == best else {"color": "0.75", "lw": 0.8}
    axes[1].plot(np.arange(1, bounds.shape[1] + 1), bounds[restart], **style)
settled = vb["trace"]["objective_at_end"].to_numpy()
axes[1].set(
    xlabel="iteration",
    ylabel="bound (nats)",
    xscale="log",
    ylim=(settled.min() - 60, settled.max() + 15),
    title="VB: the bound of every start, the best in blue",
)
plt.show()
print(f"bounds at the end: best {settled.max():.1f}, worst {settled.min():.1f} nats")

# %% mystnb={"image": {"alt": "The rows with an ellipse for each component that variational Bayes keeps."}}
figure = plots.plot_mixture(vb)
figure

# %% [markdown]
# **Exercise 4.** Where is the bound exact? With $K = 1$ there are no labels to approximate: $q$ is the
# posterior, and the bound is the log evidence, which conjugacy gives in closed form. Compare. By how many
# nats is a mixture preferred to a single Gaussian, at least?

# %%
# Answer: they are equal; the difference of the bound with K = 12 and the exact evidence is a lower limit.
import jax

single = zoo.Mixture.from_data(x, num_components=1)
vb_single = fit(single, x, "vb")
with inference.precision.in_precision("float64"):
    summed = single.components.features(x).sum(axis=0)[None]
    log_evidence = float(jax.jit(single.components.log_evidence)(summed)[0])
bound_single = float(vb_single["trace"]["objective"][-1])
preferred = settled.max() - log_evidence
print(f"bound {bound_single:.6f}, log evidence {log_evidence:.6f} nats")
print(f"the mixture is preferred by at least {preferred:.1f} nats")
assert abs(bound_single - log_evidence) < 1e-6 * abs(log_evidence)

# %% [markdown]
# ## 5. Gibbs: the posterior itself
#
# Gibbs sampling draws labels, weights and parameters in turn, each given the others, and needs no bound. Two
# samplers of the same model, started from random labels:
#
# * **blocked**: all labels at once given weights and parameters, then these given the labels. The sticks have
#   an order, so a move that reorders the components goes with it; without it the chain hardly mixes;
# * **the Polya urn**: weights and parameters integrated out, one label at a time given all others, and moves
#   that split and merge clusters. It knows no truncation. (Left out at small size: it takes long to compile.)
#
# Labels mean nothing across draws, so R-hat is judged on what permutations cannot change.

# %%
from inference import diagnostics

gibbs = fit(process, x, "gibbs", seed=1, **settings["gibbs"])
samplers = {"blocked Gibbs": gibbs}
if "urn" in settings:
    samplers["Polya urn"] = fit(process, x, "collapsed_gibbs", seed=2, **settings["urn"])
invariant = ["num_occupied", "same_cluster", "mean_log_likelihood"]
agreement = pd.concat(
    {
        name: diagnostics.summary(tree, var_names=invariant)[["mean", "sd", "ess_bulk", "r_hat"]].astype(
            float
        )
        for name, tree in samplers.items()
    },
    axis=1,
)
agreement.round(3)

# %% mystnb={"image": {"alt": "Left: probability of each number of clusters under variational Bayes and the samplers. Right: matrix of co-clustering probabilities with the five true blocks."}}
numbers = np.arange(1, 13)
figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), width_ratios=[1.5, 1])
share_of = {}
for place, (name, tree) in enumerate({"VB": vb, **samplers}.items()):
    drawn = tree["posterior"]["num_occupied"].to_numpy().ravel()
    share_of[name] = np.array([(drawn == number).mean() for number in numbers])
    axes[0].bar(
        numbers + 0.27 * (place - 1), share_of[name], 0.27, color=COLOURS[(1, 0, 2)[place]], label=name
    )
axes[0].set(xlabel="clusters with at least one row", ylabel="probability", xticks=numbers)
axes[0].legend()
together = diagnostics.co_clustering(gibbs).to_numpy()
shades = axes[1].imshow(together, cmap="cividis", vmin=0, vmax=1, interpolation="nearest")
axes[1].set(xlabel="row", ylabel="row", title="blocked Gibbs: do two rows share a cluster?")
figure.colorbar(shades, ax=axes[1], label="probability")
plt.show()

# %% [markdown]
# The rows on the right stand in the order in which they were made, so the five blocks of the truth are
# visible, and how sure the posterior is of each. A number of clusters it does not settle.
#
# **Exercise 5.** How much of that number is prior? Before any data, row $i$ opens a new cluster with
# probability $\alpha / (\alpha + i - 1)$. How many clusters does the process expect among our rows? Check by
# simulation.

# %%
# Answer: the sum of these probabilities; the openings are independent of each other.
alpha = float(process.concentration)
opening = alpha / (alpha + np.arange(num_rows))
expected_before, sd_before = opening.sum(), np.sqrt((opening * (1 - opening)).sum())
seats = np.random.default_rng(3).random((20_000, num_rows)) < opening
occupied = samplers.get("Polya urn", gibbs)["posterior"]["num_occupied"]
print(f"before the data {expected_before:.2f} +- {sd_before:.2f} clusters (simulated", end=" ")
print(
    f"{seats.sum(axis=1).mean():.2f}), after them {float(occupied.mean()):.2f} +- {float(occupied.std()):.2f}"
)
assert abs(seats.sum(axis=1).mean() - expected_before) < 5 * sd_before / np.sqrt(len(seats))

# %% [markdown]
# ## 6. What each added
#
# First the responsibilities: how undecided is each row? Entropy in nats; 0 is certain, 0.69 is a coin between
# two components. The shares of Gibbs are averages over draws whose labels were aligned.

# %% mystnb={"image": {"alt": "The rows coloured by the entropy of their responsibilities under EM with 5 and 12 components, variational Bayes and Gibbs sampling."}}
shares_of = {
    "EM, K = 5": em["variational"]["responsibilities"].to_numpy(),
    "EM, K = 12": em_large["variational"]["responsibilities"].to_numpy(),
    "VB": vb["variational"]["responsibilities"].to_numpy(),
    "Gibbs": inference.transform(gibbs, x).to_numpy(),
}
entropy_of = {
    name: -(shares * np.log(np.maximum(shares, 1e-300))).sum(axis=1) for name, shares in shares_of.items()
}
figure, axes = plt.subplots(1, 4, figsize=(13, 3.2), sharex=True, sharey=True)
for axis, (name, entropy) in zip(axes, entropy_of.items(), strict=True):
    shades = axis.scatter(*x.T, c=entropy, s=22, cmap="cividis", vmin=0, vmax=1.1)
    axis.set_title(f"{name}: mean {entropy.mean():.3f}", fontsize=10)
figure.colorbar(shades, ax=axes, label="entropy of the shares (nats)", pad=0.01)
plt.show()

# %% [markdown]
# Then the test that counts: the density of the fresh rows, in nats per row. Differences to Gibbs are over the
# same rows, with standard errors.

# %%
score_of = {
    name: inference.log_density(tree, fresh).to_numpy()
    for name, tree in {
        "one Gaussian": vb_single,
        "EM, K = 5": em,
        "EM, K = 12": em_large,
        "VB": vb,
        "Gibbs": gibbs,
        **({"Polya urn": samplers["Polya urn"]} if "urn" in settings else {}),
    }.items()
}
lost = {name: score_of["Gibbs"] - score for name, score in score_of.items()}
added = pd.DataFrame(
    {
        "fresh rows": {name: score.mean() for name, score in score_of.items()},
        "lost to Gibbs": {name: gap.mean() for name, gap in lost.items()},
        "standard error": {name: gap.std(ddof=1) / np.sqrt(len(fresh)) for name, gap in lost.items()},
        "worst row": {name: score.min() for name, score in score_of.items()},
    }
)
added.round(3)

# %% [markdown]
# A point estimate that has too many components is overconfident: it gives some fresh rows next to no density.
# VB sits in one explanation of the data and loses little by it; averaging over the posterior loses least, and
# both samplers say the same.
#
# **Exercise 6.** Averaging *densities* over draws never does worse than the average *log density* of the
# draws. Why? Compute the gain on the fitted rows from the group `log_likelihood`.

# %%
# Answer: Jensen's inequality, row by row; equality only where all draws agree.
rows = gibbs["log_likelihood"]["log_likelihood"].to_numpy().reshape(-1, num_rows)
gain = np.logaddexp.reduce(rows, axis=0) - np.log(len(rows)) - rows.mean(axis=0)
print(f"gain per row: mean {gain.mean():.4f}, smallest {gain.min():.4f}, largest {gain.max():.4f} nats")
assert (gain >= 0).all() and gain.mean() > 0

# %% [markdown]
# ## 7. The same for binary data
#
# A hundred rows of ten zeros and ones from $K = 5$ components: $x_{ij} \sim \mathrm{Bernoulli}(p_{kj})$, the
# probabilities $\mathrm{Beta}(\frac12, \frac12)$ (mostly near 0 or 1) and weights Dirichlet(2, ..., 2). The
# program itself draws them, and so the truth is known.

# %%
from numpyro.infer import Predictive

half = {"concentration1": np.full(10, 0.5), "concentration0": np.full(10, 0.5)}
program = zoo.Mixture(components=zoo.conjugate.BernoulliBeta(**half), num_components=5, concentration=10.0)
draw_prior = jax.jit(lambda key: Predictive(program, num_samples=1)(key, num_observations=1100))
drawn = draw_prior(jax.random.key(4))
truth = {name: np.asarray(drawn[name][0]) for name in ("weights", "probs", "assignments")}
everything = np.asarray(drawn["x"][0], dtype=float)
bits, fresh_bits = everything[:100], everything[100:]

em_bits = fit(program, bits, "em", init="random", num_restarts=settings["restarts"])
vb_bits = fit(program, bits, "vb", init="random", num_restarts=settings["restarts"])

# %% [markdown]
# Components come in any order: we match them to the truth by the assignment with the least distance.

# %% mystnb={"image": {"alt": "Probabilities of a one, component by column, as in the truth, as estimated by EM and by variational Bayes; numbers of rows at the right."}}
vb_a, vb_b = (vb_bits["variational"][f"components_concentration{i}"].to_numpy() for i in (1, 0))
probs_of = {"EM": em_bits["variational"]["probs"].to_numpy(), "VB": vb_a / (vb_a + vb_b)}
order = np.argsort(-truth["weights"])
true_probs = truth["probs"][order]
figure, axes = plt.subplots(1, 3, figsize=(11, 2.9), sharey=True)
rows_by_truth = np.bincount(truth["assignments"][:100], minlength=5)[order]
matched = {"the truth": (true_probs, rows_by_truth)}
for name, tree in {"EM": em_bits, "VB": vb_bits}.items():
    distances = np.abs(true_probs[:, None] - probs_of[name]).mean(axis=-1)
    partner = linear_sum_assignment(distances)[1]
    held = tree["variational"]["responsibilities"].sum("observation").to_numpy()
    matched[name] = (probs_of[name][partner], held[partner])
for axis, (name, (probs, held)) in zip(axes, matched.items(), strict=True):
    shades = axis.imshow(probs, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    axis.set(title=name, xlabel="column", xticks=range(10))
    axis.set_yticks(range(5))
    for k in range(5):
        axis.text(9.6, k, f"{held[k]:.0f}", va="center", fontsize=8)
axes[0].set_ylabel("component (right: its rows)")
figure.colorbar(shades, ax=axes, label="probability of a one")
plt.show()
bits_table = pd.DataFrame(
    {
        name: {
            "mean absolute error of probs": np.abs(matched[name][0] - true_probs).mean(),
            "components with rows": float((matched[name][1] > 0.5).sum()),
            "fresh rows, nats per row": float(inference.log_density(tree, fresh_bits).mean()),
            "worst fresh row": float(inference.log_density(tree, fresh_bits).min()),
        }
        for name, tree in {"EM": em_bits, "VB": vb_bits}.items()
    }
)
bits_table.round(3)

# %% [markdown]
# How many survive if we do not know $K$? The same data with ten components and concentration 1, from every
# start (left out at small size, for it takes seconds to compile):

# %%
if SIZE == "full":
    ten = zoo.Mixture(components=program.components, num_components=10, concentration=1.0)
    many = {
        "EM, K = 10": fit(ten, bits, "em", init="random", num_restarts=settings["restarts"], seed=1),
        "VB, K = 10": fit(ten, bits, "vb", init="random", num_restarts=settings["restarts"], seed=1),
    }
    survivors = pd.DataFrame(
        {name: tree["trace"]["num_occupied_at_end"].to_numpy().astype(int) for name, tree in many.items()}
    )
    table = survivors.apply(pd.Series.value_counts).fillna(0).astype(int).rename_axis("components with rows")
    best_vb = int(survivors["VB, K = 10"].iloc[many["VB, K = 10"].attrs["best_restart"]])
    print(f"the VB start with the highest bound keeps {best_vb} components")
table.add_prefix("starts of ") if SIZE == "full" else None

# %% [markdown]
# **Exercise 7.** EM estimates a probability as a share of rows: where a component has seen no one, the
# estimate is 0 (the implementation holds it at $10^{-6}$ and says so). How many of the fifty estimates are
# that extreme? What does VB say of a cell with $n$ rows and no ones, and what does a single fresh one in such a
# cell cost under each?

# %%
# Answer: the mean of the beta posterior, 0.5 / (n + 1), never 0; a one costs about log(2 n + 2) nats, not 13.8.
extreme = (probs_of["EM"] < 1e-5) | (probs_of["EM"] > 1 - 1e-5)
k, j = np.unravel_index(np.argmin(vb_a / (vb_a + vb_b)), vb_a.shape)
seen = vb_a[k, j] + vb_b[k, j] - 1.0
print(f"{extreme.sum()} of {extreme.size} estimates of EM are 0 or 1 to within 1e-5")
print(f"VB's smallest probability is {probs_of['VB'][k, j]:.4f}, from {seen:.1f} rows: a one there", end=" ")
print(f"costs {-np.log(probs_of['VB'][k, j]):.1f} nats; under EM {-np.log(1e-6):.1f} nats")
assert extreme.sum() > 0 and probs_of["VB"].min() > 1e-3

# %% [markdown]
# ## What the text claims

# %%
full = SIZE == "full"

# k-means: the same steps; one cluster at a large variance; the sum of squares in the limit; the border
assert (apart["largest distance of centres"] < 1e-6).all() and (apart["rows labelled otherwise"] == 0).all()
assert np.ptp(places[-1]) < 0.05 and np.ptp(places[0]) > 3.0
assert abs(as_squares[0] / sum_of_squares - 1.0) < 0.02

# EM: neither line of the staircase falls, the bound lies below, the gap is a divergence; the likelihood rises in K
trace = em["trace"]
climbed = trace["objective"].to_numpy()
climbed = climbed[np.isfinite(climbed)]
assert (np.diff(climbed) > -1e-8 * np.abs(climbed[1:])).all()
assert (trace["bound"].to_numpy()[: len(climbed)] <= climbed + 1e-8 * np.abs(climbed)).all()
assert len(em_tops) > 1
assert validated["fitted"].is_monotonic_increasing
assert validated["heldout"].idxmax() < max(settings["numbers"])

# VB: components die, EM keeps them; the bound is exact for one component
assert (rows_held["EM"] > 0.5).sum() == 12 and 3 <= (rows_held["VB"] > 0.5).sum() <= 8
assert preferred > 0

# Gibbs: the two samplers agree (|z| > 4.5 for one of two normal quantities: a false alarm in 70 000 runs)
assert (agreement.xs("r_hat", axis=1, level=1) < (1.02 if full else 1.1)).all(axis=None)
if full:
    errors = {name: agreement[name]["sd"] / np.sqrt(agreement[name]["ess_bulk"]) for name in samplers}
    blocked, one_by_one = (agreement[name]["mean"] for name in samplers)
    z = (blocked - one_by_one) / np.hypot(*errors.values())
    assert (z.loc[["same_cluster", "mean_log_likelihood"]].abs() < 4.5).all()
    assert abs(added.loc["Polya urn", "lost to Gibbs"]) < 0.02

# What each added
assert added.loc["EM, K = 12", "lost to Gibbs"] > 5 * added.loc["EM, K = 12", "standard error"]
assert added["fresh rows"].idxmin() != "Gibbs" and added.loc["one Gaussian", "lost to Gibbs"] > 0

# Binary data
assert bits_table.loc["fresh rows, nats per row", "VB"] > bits_table.loc["fresh rows, nats per row", "EM"]
assert not full or survivors["VB, K = 10"].mean() < survivors["EM, K = 10"].mean()

# %% [markdown]
# ## References
#
# - Bishop, C. M. (2006). *Pattern Recognition and Machine Learning*. Springer.
# - Blei, D. M. and Jordan, M. I. (2006). Variational inference for Dirichlet process mixtures. *Bayesian Analysis* 1,
#   121-143.
# - Neal, R. M. (2000). Markov chain sampling methods for Dirichlet process mixture models. *Journal of Computational
#   and Graphical Statistics* 9, 249-265.
# - Schwarz, G. (1978). Estimating the dimension of a model. *Annals of Statistics* 6, 461-464.
# - Vehtari, A., Gelman, A., Simpson, D., Carpenter, B. and Bürkner, P.-C. (2021). Rank-normalization, folding, and
#   localization: an improved R-hat for assessing convergence of MCMC. *Bayesian Analysis* 16, 667-718.
# - Yu, S. (2006). *Advanced Probabilistic Models for Clustering and Projection*. Dissertation,
#   Ludwig-Maximilians-Universität München.

# %%
zoo.show_versions()
