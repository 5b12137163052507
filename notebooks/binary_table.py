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
# # A binary table with missing cells
#
# **Goals.** After this notebook you can
#
# - cluster the rows of a binary table and describe the clusters by what tells them apart;
# - hide cells, ask for them back, and judge the answers by log score and calibration;
# - compare priors by leave-one-out cross-validation, and refit where its diagnostic says that it fails;
# - choose statistics of replicated tables that a wrong model cannot get right.
#
# **Duration.** Two hours with the exercise. The computer takes about 7 minutes at full size on two cores, under a
# minute with `ZOO_NOTEBOOK_SIZE=small`. Numbers quoted in the text are those of the full size.
#
# Which motifs occur at which sites? The table is of rock art of the western Pacific (M. Wilson, *Picturing
# Pacific Pre-History*, 2002): one row per site, one column per motif, 1 where it was found. We cluster the sites,
# hide some cells and ask for them back, choose among priors by leave-one-out cross-validation, and look at
# what the model gets wrong. A second, short part does the same for a table of numbers of which many are
# really missing.
#
# A workflow after Gelman and others (2020), as in the notebook on Old Faithful. Missing cells are NaN; they
# are integrated out exactly, since the cells of a row are independent given its component (Yu 2006, Table
# 2.1). At small size chains are short. The last section asserts what the text claims.

# %%
from inference.course import COLOURS, SIZE, at_size, inference, load, np, pd, plots, plt, quiet, zoo

pd.set_option("display.max_colwidth", 100)

# %% [markdown]
# ## 1. The table
#
# Most motifs were found at one site only and say nothing about how sites go together; a few hundred such
# columns would only make the posterior hard to explore. We keep the motifs found at eight sites or more, and
# the sites that have any of them. District and technique (engraved or painted) are set aside: no fit sees
# them.

# %% mystnb={"image": {"alt": "The table of motifs by sites, black where a motif was found, sorted so that rich sites and common motifs come first."}}
art = load("rock_art")
everything = art.frame()
x = everything.loc[:, everything.sum() >= 8]
kept = (x.sum(axis=1) > 0).to_numpy()
x, district, technique = x[kept], art["district"][kept], art["technique"][kept]
cells = x.to_numpy()
num_sites, num_motifs = cells.shape
print(f"{everything.shape[1]} motifs, {(everything.sum() == 1).sum()} of them at a single site")
print(f"kept: {num_motifs} motifs at {num_sites} sites, {cells.mean():.1%} of the cells are ones")

by_size = np.ix_(np.argsort(-cells.sum(axis=1), kind="stable"), np.argsort(-cells.sum(axis=0), kind="stable"))
figure, axis = plt.subplots(figsize=(11, 3.2))
axis.imshow(cells[by_size].T, cmap="gray_r", aspect="auto", interpolation="nearest")
axis.set(xlabel="sites, richest first", ylabel="motifs, commonest first", title="black: the motif was found")
plt.show()

# %% [markdown]
# ## 2. What is assumed
#
# A truncated Dirichlet process of Bernoulli components: each kind of site has its own probability for every
# motif. The prior of these probabilities matters more than it seems to. Uniform, Beta(1, 1), is often called
# uninformative; with it a new kind of site is expected to have half of all motifs. Beta(0.5, 4.5) says
# instead that a motif is absent from a kind of site more often than not. We let both speak before they see
# the table: how many motifs does a site have?

# %% tags=["hide-input"]
import jax
from numpyro.infer import Predictive
from inference.plots import LINES

settings = at_size(
    full={
        "sticks": 15,
        "states": "collapsed_gibbs",
        "gibbs": {"split_merge": 4, "num_warmup": 2000, "num_samples": 2000, "thinning": 5},
        "collapsed_gibbs": {"num_warmup": 1000, "num_samples": 2000},
        "prior_draws": 2000,
        "refits": 5,
    },
    small={
        "sticks": 13,
        "states": "vb",
        "gibbs": {"split_merge": 4, "num_warmup": 150, "num_samples": 200, "thinning": 2},
        "vb": {"num_samples": 500},
        "prior_draws": 500,
        "refits": 1,
    },
)

# %% mystnb={"image": {"alt": "Number of motifs at a site: bars of the table and outlines of two priors, one with too few rich sites, one with too few poor ones."}}
RARE, UNIFORM = (0.5, 4.5), (1.0, 1.0)


def bernoulli(beta, **fields):
    """A mixture of Bernoulli components with Beta(a, b) probabilities."""
    a, b = beta
    components = zoo.conjugate.BernoulliBeta.from_data(x, concentration1=a, concentration0=b)
    return zoo.Mixture(components=components, **fields)


process = {"num_components": settings["sticks"], "weight_prior": "stick_breaking"}
model = bernoulli(RARE, concentration=1.0, **process)
totals = cells.sum(axis=1)
prior_totals = {}
for name, beta in {"Beta(0.5, 4.5)": RARE, "uniform": UNIFORM}.items():
    drawn = Predictive(bernoulli(beta, concentration=1.0, **process), num_samples=settings["prior_draws"])(
        jax.random.key(0), num_observations=num_sites
    )
    prior_totals[name] = np.asarray(drawn["x"]).sum(axis=-1)

figure, axis = plt.subplots(figsize=(8, 3.2))
bins = np.arange(num_motifs + 2) - 0.5
axis.hist(totals, bins, density=True, color="0.8", label="the table")
for place, (name, drawn) in enumerate(prior_totals.items()):
    heights = np.histogram(drawn, bins, density=True)[0]
    axis.stairs(heights, bins, color=COLOURS[place], ls=LINES[place], lw=1.8, label=f"prior, {name}")
axis.set(xlabel="motifs at a site", ylabel="share of sites")
axis.legend()
plt.show()
for name, own in {"table": totals, **prior_totals}.items():
    print(f"{name}: {(own == 1).mean():.1%} of sites have one motif, {(own >= 8).mean():.1%} eight or more")

# %% [markdown]
# Neither prior expects what the table has: many sites with one or two motifs *and* a few with a third of them
# all. Under Beta(0.5, 4.5) rich sites hardly exist, under the uniform prior poor ones hardly do: with all
# motifs alike and independent before the data, the total of a kind of site is nearly fixed. We keep both, fit
# with the first, and let section 5 compare them.

# %% [markdown]
# ## 3. The clusters
#
# Blocked Gibbs, four chains from random labels. We look at invariants only: labels can be permuted.

# %%
from inference import diagnostics


def fit(model, x, method="gibbs", **keywords):
    """`inference.fit` without bars; whether the chains agree is shown in the text instead of warned of."""
    with quiet():
        chains = settings.get(method, {"num_samples": 2000})
        return inference.fit(model, x, method=method, **(chains | keywords))


# %%
tree = fit(model, x, seed=1)
verdict = diagnostics.summary(tree, var_names=["num_occupied", "same_cluster", "mean_log_likelihood", "lp"])
diagnostics.summary_cells(verdict)

# %% mystnb={"image": {"alt": "Matrix of the probabilities that two sites share a cluster, ordered by cluster."}}
figure = plots.plot_co_clustering(tree)
figure

# %% [markdown]
# The picture shows what is certain and what is not: how often two sites share a cluster. The partition with
# the least expected loss, and the motifs that tell its clusters apart from the rest:

# %%
partition = diagnostics.point_partition(tree).to_numpy()
kinds, sizes = np.unique(partition, return_counts=True)
large = kinds[np.argsort(-sizes, kind="stable")][: (sizes >= 5).sum()]
described = []
for kind in large:
    inside, outside = cells[partition == kind].mean(axis=0), cells[partition != kind].mean(axis=0)
    telling = np.argsort(-(inside - outside), kind="stable")[:4]
    described.append(
        {
            "sites": int((partition == kind).sum()),
            "motifs a site": totals[partition == kind].mean(),
            "painted": (technique[partition == kind] == "P").mean(),
            "most in": pd.Series(district[partition == kind]).value_counts().index[0],
            "told by (inside, elsewhere)": ", ".join(
                f"{x.columns[j]} ({inside[j]:.0%}, {outside[j]:.0%})" for j in telling
            ),
        }
    )
described = pd.DataFrame(described, index=pd.Index(large, name="cluster"))
described.round(2)

# %% [markdown]
# Do the clusters know where a site lies and how it was made? The model was told neither. We compare the
# probability of sharing a cluster for pairs of sites that have something in common with that of other pairs,
# and with the same after shuffling the names.

# %%
together = diagnostics.co_clustering(tree).to_numpy()
pairs = np.triu_indices(num_sites, 1)


def contrast(names):
    """Mean probability of sharing a cluster: pairs with the same name less pairs with different ones."""
    same = (names[:, None] == names)[pairs]
    return together[pairs][same].mean() - together[pairs][~same].mean()


rng = np.random.default_rng(2)
known = {}
for name, values in {"technique": technique, "district": district}.items():
    shuffled = np.array([contrast(rng.permutation(values)) for _ in range(999)])
    observed = contrast(values)
    known[name] = {
        "difference": observed,
        "shuffled: largest of 999": shuffled.max(),
        "p": (1 + (shuffled >= observed).sum()) / 1000,
    }
known = pd.DataFrame(known).T
known.round(3)

# %% [markdown]
# ## 4. Missing cells
#
# Now we hide one cell in five and fit again. NaN means missing: such cells are left out of every sum, and the
# rest of the row still says which kind of site it is. The imputation of a cell is the posterior expectation
# of its probability, the mean over draws of the probability in the component that the site belongs to. A
# single component, which can only answer with the motif's frequency, is the thing to beat. Errors are over
# sites.

# %%
from scipy.stats import rankdata

hidden = np.random.default_rng(3).random(cells.shape) < 0.2
masked = x.mask(hidden)
print(f"{hidden.sum()} cells hidden, {int(cells[hidden].sum())} of them ones")


def imputed(tree, site):
    """Posterior expectation of every cell's parameter given the observed cells, shape (rows, columns)."""
    posterior = tree["posterior"]
    values = posterior[site].transpose("chain", "draw", "component", "feature").to_numpy()
    labels = posterior["assignments"].transpose("chain", "draw", "observation").to_numpy()
    values, labels = values.reshape(-1, *values.shape[2:]), labels.reshape(-1, labels.shape[-1])
    return sum(value[own] for value, own in zip(values, labels, strict=True)) / len(values)


answers = {
    "one component": imputed(
        fit(bernoulli(RARE, num_components=1, concentration=1.0), masked, method="vb"), "probs"
    ),
    "mixture": imputed(fit(model, masked, seed=4), "probs"),
    "mixture, uniform": imputed(
        fit(bernoulli(UNIFORM, concentration=1.0, **process), masked, seed=4), "probs"
    ),
}


def log_score(probability):
    """Log probability of what the hidden cells hold, in nats, NaN elsewhere."""
    return np.where(hidden, np.where(cells == 1, np.log(probability), np.log1p(-probability)), np.nan)


def area(probability):
    """Chance that a hidden one gets a higher probability than a hidden zero (area under the ROC curve)."""
    ranks, ones = rankdata(probability[hidden]), cells[hidden] == 1
    return (ranks[ones].sum() - ones.sum() * (ones.sum() + 1) / 2) / (ones.sum() * (~ones).sum())


scores = pd.DataFrame(
    {
        name: {
            "log score a cell": np.nanmean(log_score(answer)),
            "Brier score": ((answer - cells)[hidden] ** 2).mean(),
            "area under ROC": area(answer),
        }
        for name, answer in answers.items()
    }
).T
gains = {}
for better, worse in (("mixture", "one component"), ("mixture, uniform", "mixture")):
    by_site = np.nansum(log_score(answers[better]) - log_score(answers[worse]), axis=1)
    gains[better, worse] = by_site.sum(), by_site.std(ddof=1) * np.sqrt(num_sites)
    print(f"{better} against {worse}: ", end="")
    print("{:+.1f} +- {:.1f} nats over all hidden cells".format(*gains[better, worse]))
scores.round(4)

# %% [markdown]
# Better on average does not yet mean honest. Of the cells to which a model gives about 30 per cent, do about
# 30 per cent hold a one? Bars are two binomial standard errors.

# %% mystnb={"image": {"alt": "Three calibration plots: share of ones against the probability given to a one, with two standard errors, for one component and for mixtures under two priors."}}
edges = np.array([0.0, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.45, 1.0])
calibration = {}
figure, axes = plt.subplots(1, 3, figsize=(10, 3.5), sharex=True, sharey=True)
for place, (axis, (name, answer)) in enumerate(zip(axes, answers.items(), strict=True)):
    which = np.digitize(answer[hidden], edges) - 1
    groups = [which == g for g in range(len(edges) - 1) if (which == g).sum() >= 10]
    said = np.array([answer[hidden][g].mean() for g in groups])
    held = np.array([cells[hidden][g].mean() for g in groups])
    error = np.sqrt(said * (1 - said) / [g.sum() for g in groups])
    calibration[name] = np.abs(held - said) / error
    axis.plot([0, 1], [0, 1], color="0.6", lw=1, zorder=0)
    axis.errorbar(said, held, 2 * error, fmt="o", ms=5, capsize=2, color=COLOURS[(1, 0, 2)[place]])
    axis.set(title=name, xlabel="probability given to a one", xlim=(0, 0.95), ylim=(0, 0.95))
axes[0].set_ylabel("share of ones")
plt.show()

# %% mystnb={"image": {"alt": "Probabilities that the mixture gives to the hidden cells, in shades; circles mark the cells where a one was hidden."}}
shown = np.where(hidden, answers["mixture"], np.nan)[by_size].T
figure, axis = plt.subplots(figsize=(11, 3.4))
shades = axis.imshow(shown, cmap="cividis", vmin=0, vmax=0.6, aspect="auto", interpolation="nearest")
motifs, sites = np.nonzero((hidden & (cells == 1))[by_size].T)
axis.scatter(sites, motifs, s=26, facecolors="none", edgecolors=COLOURS[1], linewidths=1.3)
axis.set(
    xlabel="sites, richest first",
    ylabel="motifs, commonest first",
    title="what the mixture says of the hidden cells; circles: a one was hidden here",
    yticks=range(0, num_motifs, 5),
)
figure.colorbar(shades, ax=axis, label="probability of a one", extend="max", pad=0.01)
plt.show()

# %% [markdown]
# ## 5. Which prior, which K?
#
# Leave-one-out cross-validation asks another question: how well is a whole new site predicted? It is
# estimated from the draws by Pareto-smoothed importance sampling (Vehtari, Gelman and Gabry 2017), labels
# summed out. Where the shape $k$ of a site is too large the estimate fails for that site, and says so.

# %%
import numpyro.distributions as dist

candidates = {
    "one component": bernoulli(RARE, num_components=1, concentration=1.0),
    "process, alpha 1": model,
    "process, alpha 2": bernoulli(RARE, concentration=2.0, **process),
    "process, alpha 1, uniform": bernoulli(UNIFORM, concentration=1.0, **process),
}
if SIZE == "full":
    candidates |= {
        "process, alpha 5": bernoulli(RARE, concentration=5.0, **(process | {"num_components": 40})),
        "process, alpha ~ Gamma(2, 1)": bernoulli(RARE, concentration=dist.Gamma(2.0, 1.0), **process),
        "Dirichlet, K = 2": bernoulli(RARE, num_components=2, concentration=2.0),
        "Dirichlet, K = 4": bernoulli(RARE, num_components=4, concentration=4.0),
        "Dirichlet, K = 15, alpha 1": bernoulli(RARE, num_components=15, concentration=1.0),
    }
fits = {
    name: tree if own is model else fit(own, x, method="vb" if own.num_components == 1 else "gibbs", seed=5)
    for name, own in candidates.items()
}
comparison = diagnostics.compare(fits)
comparison["clusters"] = [diagnostics.occupied(fits[name]).attrs["mean"] for name in comparison.index]
print(comparison.attrs["note"])
columns = ["elpd", "se", "elpd_diff", "dse", "p", "weight", "pareto_k_bad", "pareto_k_max", "clusters"]
comparison[columns].round(2)

# %% [markdown]
# (For one component $q$ is the exact posterior, so that note does not matter.) Differences are to be read
# beside `dse`, their standard error. Where $k$ is bad, an unusual site changes the posterior by its absence;
# the remedy is not to believe the estimate but to do what it stands for: fit without the site, and score it.
# We do so for the sites with the largest $k$ of the best model. Leaving a site out is hiding all of its cells.

# %%
from inference.diagnostics import leave_one_out

best = next(name for name in comparison.index if name != "one component")
loo = leave_one_out(fits[best])
refits = []
for row in np.argsort(-loo.pareto_k.to_numpy())[: settings["refits"]]:
    without = fit(candidates[best], x.mask(np.arange(num_sites)[:, None] == np.full(num_motifs, row)), seed=6)
    refits.append(
        {
            "site": x.index[row],
            "motifs": int(totals[row]),
            "Pareto k": float(loo.pareto_k[row]),
            "estimated": float(loo.elpd_i[row]),
            "refitted": float(inference.log_density(without, x.iloc[[row]])[0]),
        }
    )
refits = pd.DataFrame(refits).set_index("site")
corrected = float(loo.elpd) + (refits["refitted"] - refits["estimated"]).sum()
print(f"{best}: {loo.elpd:.1f} by LOO, {corrected:.1f} with {len(refits)} of {num_sites} sites refitted")
refits.round(2)

# %% [markdown]
# The concentration changes the number of clusters and hardly the prediction of new sites. The two priors of the
# probabilities, of which one looked so much better before the data, cannot be told apart either. That there
# are kinds of sites at all matters much.
#
# ## 6. Does it reproduce the table?
#
# Replicated tables, one per posterior draw. A single component gets every motif's frequency right, so only
# what joins motifs can tell: how unequal the sites are, and how many pairs of motifs are often found together.


# %% mystnb={"image": {"alt": "Four statistics of replicated tables as outlines for three models, with the value of the observed table as a black line."}}
def statistics(tables):
    """Sites by richness and motifs by company, for tables of shape (..., sites, motifs)."""
    sums = tables.sum(axis=-1)
    centred = tables - tables.mean(axis=-2, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=-2)) + 1e-12
    correlation = np.einsum("...ij,...ik->...jk", centred, centred) / tables.shape[-2]
    correlation = correlation / (spread[..., :, None] * spread[..., None, :])
    upper = np.triu_indices(num_motifs, 1)
    return {
        "sd of the motifs at a site": sums.std(axis=-1),
        "most motifs at a site": sums.max(axis=-1),
        "sites with one motif or none": (sums <= 1).sum(axis=-1),
        "pairs of motifs with correlation > 0.3": (correlation[..., *upper] > 0.3).sum(axis=-1),
    }


observed = statistics(cells)
replicated = {}
for name in ("one component", "process, alpha 1", "process, alpha 1, uniform"):
    rows = inference.extend(fits[name], "posterior_predictive", seed=7)["posterior_predictive"]["x"]
    drawn = rows.to_numpy().reshape(-1, num_sites, num_motifs)
    replicated[name] = statistics(drawn[:: max(1, len(drawn) // 1000)])
figure, axes = plt.subplots(1, 4, figsize=(13, 2.9))
for axis, statistic in zip(axes, observed, strict=True):
    ends = [values[statistic] for values in replicated.values()] + [np.atleast_1d(observed[statistic])]
    low, high = min(end.min() for end in ends), max(end.max() for end in ends)
    whole = statistic != "sd of the motifs at a site"
    step = max(1, round((high - low) / 25)) if whole else (high - low) / 25
    bins = np.arange(low - 0.5 * step, high + 1.5 * step, step)
    for place, (name, values) in enumerate(replicated.items()):
        heights = np.histogram(values[statistic], bins, density=True)[0]
        axis.stairs(heights, bins, color=COLOURS[(1, 0, 2)[place]], ls=LINES[place], lw=1.6, label=name)
    axis.axvline(observed[statistic], color="black", lw=1.8, label="the table")
    axis.set(title=statistic, yticks=[])
    axis.title.set_fontsize(9)
    axis.spines["left"].set_visible(False)
figure.legend(*axes[0].get_legend_handles_labels(), ncols=4, loc="outside lower center")
plt.show()
p_values = pd.DataFrame(
    {
        name: {
            statistic: (drawn > observed[statistic]).mean() + 0.5 * (drawn == observed[statistic]).mean()
            for statistic, drawn in values.items()
        }
        for name, values in replicated.items()
    }
)
p_values.rename_axis("P(replicated larger)").round(3)

# %% [markdown]
# One component makes all sites alike. The process with Beta(0.5, 4.5) goes half of the way: it holds every
# kind of site to be poor, and the few rich ones cannot persuade it. With uniform probabilities a rich kind
# may exist, and the table looks like one of its replications. So here is a reason to choose, which neither
# the prior check nor LOO gave: LOO adds up sites, and the rich ones are few. The hidden cells had said the
# same, for that is where motifs have to be told from motifs. It is the uniform prior that we would keep, and
# not the one that seemed to know the table.

# %% [markdown]
# ## 7. A table of numbers with holes of its own
#
# The Republican share of the vote in fifty states at thirty-one presidential elections. States that did not
# exist yet, or held no vote, have no number. `NormalGamma` components, a mean and a variance for every
# election, honour NaN as well. The prior says that a kind of state varies about half as much as all states
# do. We hide one in ten of the numbers that there are.

# %%
votes = load("votes_repub").frame()
present = votes.notna().to_numpy()
hidden_votes = present & (np.random.default_rng(8).random(votes.shape) < 0.1)
shown_votes = votes.mask(hidden_votes)
variances = shown_votes.var().to_numpy()
components = zoo.conjugate.NormalGamma.from_data(
    shown_votes, mean_precision=0.25, shape=2.0, rate=2.0 * 0.25 * variances
)
states = zoo.Mixture(components=components, num_components=15, weight_prior="stick_breaking")
states_tree = fit(states, shown_votes, settings["states"], seed=9)
print(f"{int((~present).sum())} of {votes.size} numbers missing, {hidden_votes.sum()} more hidden")
states_verdict = diagnostics.summary(
    states_tree, var_names=["num_occupied", "same_cluster", "mean_log_likelihood"]
)
diagnostics.summary_cells(states_verdict)

# %% [markdown]
# These are draws of the Polya urn, with moves that split and merge clusters. Thirty numbers tie a state so
# firmly to its cluster that the blocked sampler without such moves, which takes one state at a time, hardly gets
# from one explanation to the next: its chains stay apart for thousands of sweeps. (At small size both are left
# out, and variational Bayes stands in.)

# %%
if SIZE == "full":
    blocked = fit(states, shown_votes, "gibbs", seed=10, split_merge=0)
    blocked_rhat = diagnostics.summary(blocked, var_names=["same_cluster"])["r_hat"].max()
    print(f"blocked Gibbs, one state at a time: R-hat up to {blocked_rhat:.2f}")

# %% mystnb={"image": {"alt": "Republican share of the vote by state and election: left as given, with missing and hidden cells white, right filled in; lines part the clusters of states."}}
by_election = np.broadcast_to(shown_votes.mean().to_numpy(), votes.shape)
by_state = shown_votes.sub(shown_votes.mean()).mean(axis=1).to_numpy()
guesses = {
    "mean of the election": by_election,
    "election and state, additive": by_election + np.nan_to_num(by_state)[:, None],
    "mixture": imputed(states_tree, "locs"),
}
votes_errors = pd.Series(
    {
        name: np.sqrt(((guess - votes.to_numpy())[hidden_votes] ** 2).mean())
        for name, guess in guesses.items()
    },
    name="root mean squared error (per cent of the vote)",
)
state_partition = diagnostics.point_partition(states_tree).to_numpy()
order = np.lexsort((-np.nanmean(votes.to_numpy(), axis=1), state_partition))
filled = np.where(shown_votes.isna(), guesses["mixture"], votes)
figure, axes = plt.subplots(1, 2, figsize=(12, 7.2), sharey=True)
for axis, (title, values) in zip(
    axes,
    {"as given (white: missing or hidden)": shown_votes.to_numpy(), "filled in": filled}.items(),
    strict=True,
):
    shades = axis.imshow(
        values[order], cmap="cividis", vmin=0, vmax=80, aspect="auto", interpolation="nearest"
    )
    axis.set_title(title, fontsize=10)
    axis.set_xticks(range(0, votes.shape[1], 4), votes.columns[::4], fontsize=8)
    for end in np.flatnonzero(np.diff(state_partition[order])) + 0.5:
        axis.axhline(end, color="white", lw=2.5)
        axis.axhline(end, color="black", lw=0.8)
axes[0].set_yticks(range(len(votes)), votes.index[order], fontsize=7)
figure.colorbar(shades, ax=axes, label="Republican share of the vote (per cent)", pad=0.01)
plt.show()
votes_errors.round(2).to_frame()

# %% [markdown]
# A state that did not exist has no vote to be right about: the filled-in picture says what its kind voted. The
# hidden numbers are another matter, and the table above scores them.
#
# ## Exercise
#
# A motif is found at $s$ of a cluster's $n$ sites, its probability has a Beta(a, b) prior. Show that predicting
# the sites one after another gives the same probability of the column in whatever order, and that it is
# $B(a + s, b + n - s) / B(a, b)$.


# %%
# Answer: numerators and denominators of the predictive probabilities are the same numbers in another order.
def log_probability_in_turn(column, a, b):
    """Log probability of a column, each site predicted from those before it."""
    total, ones = 0.0, 0
    for place, value in enumerate(column):
        probability = (a + ones) / (a + b + place)
        total += np.log(probability if value else 1 - probability)
        ones += value
    return total


def log_beta(a, b):
    """Log of the beta function of whole numbers: a sum of logarithms."""
    return np.log(np.arange(1, a)).sum() + np.log(np.arange(1, b)).sum() - np.log(np.arange(1, a + b)).sum()


found_at = np.array([1, 0, 0, 1, 1, 0, 0, 0])
in_orders = [log_probability_in_turn(found_at[order], 2, 3) for order in (np.arange(8), np.arange(8)[::-1])]
closed = log_beta(2 + 3, 3 + 5) - log_beta(2, 3)
print(np.round([*in_orders, closed], 6))
assert np.allclose(in_orders, closed, rtol=1e-12)

# %% [markdown]
# ## What the text claims

# %%
full = SIZE == "full"


def largest_rhat(table):
    """The largest R-hat of a summary, quantities that never changed left out."""
    return pd.to_numeric(table["r_hat"], errors="coerce").max()


rich = {name: (own >= 8).mean() for name, own in prior_totals.items()}
poor = {name: (own == 1).mean() for name, own in prior_totals.items()}
assert rich["Beta(0.5, 4.5)"] < 0.1 * (totals >= 8).mean() and poor["uniform"] < 0.1 * (totals == 1).mean()
assert largest_rhat(verdict) < (1.02 if full else 1.2)
assert known.loc["district", "p"] <= 0.05
for gained, gain_error in gains.values():
    assert gained > 1.5 * gain_error
assert scores.loc["mixture", "area under ROC"] > scores.loc["one component", "area under ROC"]
assert calibration["mixture"].max() < 4.0
lost = comparison.loc["one component"]
assert (
    abs(comparison.loc["process, alpha 1", "elpd"] - comparison.loc["process, alpha 1, uniform", "elpd"])
    < 12.0
)
assert -lost["elpd_diff"] > 2 * lost["dse"]
near = comparison.loc[["process, alpha 1", "process, alpha 2"]]
assert abs(near["elpd"].diff().iloc[1]) < 10.0 and near["clusters"].iloc[1] > near["clusters"].iloc[0] + 1
assert (comparison["pareto_k_bad"] <= 0.1 * num_sites).all()
assert ((refits["refitted"] - refits["estimated"]).abs() < 2.0).all()
assert p_values.loc["sd of the motifs at a site", "one component"] < 0.01
spread = p_values.loc["sd of the motifs at a site"]
assert spread["process, alpha 1"] < 0.05 < spread["process, alpha 1, uniform"] < 0.95
assert p_values.loc["pairs of motifs with correlation > 0.3", "one component"] < 0.01
assert p_values.loc["pairs of motifs with correlation > 0.3", "process, alpha 1, uniform"] > 0.05
if full:
    assert largest_rhat(states_verdict) < 1.02
    assert float(blocked_rhat) > 1.1
assert (votes_errors["mixture"] < votes_errors.drop("mixture")).all()

# %% [markdown]
# ## References
#
# - Brier, G. W. (1950). Verification of forecasts expressed in terms of probability. *Monthly Weather Review* 78,
#   1-3.
# - Gelman, A., Vehtari, A., Simpson, D. and others (2020). Bayesian workflow. arXiv:2011.01808.
# - Peterson, S. (1973). *A Statistical History of the American Presidential Elections*. Frederick Ungar, New York.
# - Vehtari, A., Gelman, A. and Gabry, J. (2017). Practical Bayesian model evaluation using leave-one-out
#   cross-validation and WAIC. *Statistics and Computing* 27, 1413-1432.
# - Vehtari, A., Gelman, A., Simpson, D., Carpenter, B. and Bürkner, P.-C. (2021). Rank-normalization, folding, and
#   localization: an improved R-hat for assessing convergence of MCMC. *Bayesian Analysis* 16, 667-718.
# - Wilson, M. (2002). *Picturing Pacific Pre-History*. PhD thesis, Australian National University.
# - Yu, S. (2006). *Advanced Probabilistic Models for Clustering and Projection*. Dissertation,
#   Ludwig-Maximilians-Universität München.

# %%
zoo.show_versions()
