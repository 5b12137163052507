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
# # Old Faithful: from a prior to a posterior one can trust
#
# **Goals.** After this notebook you can
#
# - state a mixture model, draw from its prior, and say what the prior allows;
# - fit it by variational Bayes and by Gibbs sampling, and judge from R-hat and effective sample sizes which fit to
#   believe;
# - explain why labelled parameters of a mixture are not to be averaged, and what to look at instead;
# - check a fit by replicated data, compare models by leave-one-out cross-validation, and say what the data do not
#   decide.
#
# **Duration.** Two hours with the exercise. The computer takes about 8 minutes at full size on two cores, under a
# minute with `ZOO_NOTEBOOK_SIZE=small`. Numbers quoted in the text are those of the full size.
#
# Old Faithful erupts for about two minutes or for about four, and after a long eruption one waits longer
# for the next. How many kinds of eruption are there? We state a model, ask what it believes before it has
# seen any data, fit it in three ways, find out which of the fits deserve belief, check the model against
# the data, and come back to the question at the end. The answer will be less simple than the picture
# suggests.
#
# The model is the Dirichlet-process mixture of Gaussians of Shipeng Yu, *Advanced Probabilistic Models for
# Clustering and Projection* (dissertation, LMU München, 2006), chapters 2 and 3; its section 3.4.1 uses the
# same data.
#
# The last section asserts what the text claims, with room for Monte Carlo error. At small size the runs are too
# short to be believed, and the assertions ask for less.

# %%
from inference.course import COLOURS, SIZE, at_size, inference, load, np, pd, plots, plt, zoo

# %% [markdown]
# ## 1. The data
#
# One row is one eruption: how long it lasted and how long one waited for the next, both in minutes. We hand
# over a `DataFrame`, so that every result carries the names of the columns.

# %%
dataset = load("faithful")
x = dataset.frame()
print(dataset.description, dataset.citation, sep="\n\n")
x.describe().round(2)

# %% mystnb={"image": {"alt": "Scatter plot of 272 eruptions, waiting time against duration: two clouds, and a nearly empty gap between 2.5 and 3.5 minutes, which is shaded."}}
figure, axis = plt.subplots(figsize=(5.5, 4))
axis.scatter(x["eruptions"], x["waiting"], s=12, color="0.3")
axis.set(xlabel="eruption (minutes)", ylabel="wait for the next (minutes)", title="272 eruptions")
axis.axvspan(2.5, 3.5, color="0.93", zorder=0)
plt.show()

# %% [markdown]
# Two clouds, with few eruptions of medium length between them. The shaded gap, 2.5 to 3.5 minutes, holds 4
# % of the rows. We will come back to that number, because it was not used to build the model and can
# therefore judge it.

# %% [markdown]
# ## 2. The model
#
# Each row belongs to one of $K$ components, and each component is a Gaussian with its own mean and
# covariance. In the thesis's letters:
#
# $$\pi \sim \mathrm{Dirichlet}(\alpha/K, \dots, \alpha/K), \quad
# \Lambda_k \sim \mathrm{Wishart}(W_0, \nu_0), \quad
# \mu_k \mid \Lambda_k \sim \mathrm{Normal}(m_0, (\beta_0 \Lambda_k)^{-1}),$$
#
# $$c_i \sim \mathrm{Categorical}(\pi), \quad x_i \mid c_i = k \sim \mathrm{Normal}(\mu_k, \Lambda_k^{-1}).$$
#
# The number $K$ is not the number of clusters but a ceiling. Because the concentration $\alpha$ is shared
# out among all components, a small $\alpha/K$ lets most of them stay empty. As $K$ grows this becomes the
# Dirichlet process (section 3.3.3, "Dirichlet-multinomial allocation"). We take $K = 10$ and $\alpha = 1$.
#
# A model of the zoo is a NumPyro program, and reading it is the quickest way to know what is assumed. On
# the command line `zoo show mixture` prints the same with the table of symbols and the departures from the
# thesis.

# %%
import inspect

model = zoo.Mixture.from_data(x, num_components=10, concentration=1.0)
print(inspect.getsource(zoo.Mixture.program))

# %% [markdown]
# `from_data` chose the prior of the components as the thesis does: centred at the mean of the data ($m_0$),
# worth a hundredth of a row ($\beta_0 = 0.01$), with $\nu_0 = 2$ degrees of freedom.

# %%
components = model.components
print(f"m0    = {components.loc.round(2)}")
print(f"beta0 = {components.mean_precision}")
print(f"nu0   = {components.degrees_of_freedom}")

# %% [markdown]
# ## 3. Before the data: what does the prior allow?
#
# This prior is vaguer than it looks. The prior mean of a covariance matrix exists only for $\nu_0 > D + 1 =
# 3$, so with $\nu_0 = 2$ there is none. A single row has a Student-t distribution with $\nu_0 - D + 1 = 1$
# degree of freedom: a bivariate Cauchy, without a mean. It makes no sense to ask whether the prior
# *expects* our data; averages of prior draws will not settle down however many we take. We can ask whether
# it *allows* them, and look at medians.
#
# The program called without data draws from the prior predictive. NumPyro is used directly here; the
# precision matrices of so vague a prior are nearly singular, which is why we ask JAX for double precision.

# %% tags=["hide-input"]
import jax
from numpyro.infer import Predictive

settings = at_size(
    full={
        "prior_draws": 2000,
        "restarts": 20,
        "short": {"split_merge": 4, "num_warmup": 1000, "num_samples": 2000},
        "long": {"split_merge": 4, "num_warmup": 2000, "num_samples": 2000, "thinning": 100},
        "two": {"split_merge": 4, "num_warmup": 1000, "num_samples": 2000},
        "nuts": {"num_warmup": 500, "num_samples": 1000},
    },
    small={
        "prior_draws": 500,
        "restarts": 5,
        "short": {
            "split_merge": 4,
            "num_warmup": 200,
            "num_samples": 500,
        },  # as many as the others: programs are shared
        "long": {"split_merge": 4, "num_warmup": 300, "num_samples": 500, "thinning": 2},
        "two": {"split_merge": 4, "num_warmup": 300, "num_samples": 500},
    },
)

# %% mystnb={"image": {"alt": "Six data sets drawn from the prior, over the observed data in grey: each has a few clusters, spread far beyond the data, many at negative durations."}}
with jax.enable_x64(True):
    draw_prior = Predictive(model, num_samples=settings["prior_draws"])
    prior = draw_prior(jax.random.key(0), num_observations=len(x))
    prior = {name: np.asarray(value) for name, value in prior.items()}

figure, axes = plt.subplots(2, 3, figsize=(9, 5), sharex=True, sharey=True)
for axis, simulated in zip(axes.flat, prior["x"], strict=False):
    inside = ((simulated > [-10, -100]) & (simulated < [20, 250])).all(axis=1)
    axis.scatter(*x.to_numpy().T, s=4, color="0.8", label="data")
    axis.scatter(*simulated.T, s=6, color=COLOURS[0], label="a data set from the prior")
    axis.set(xlim=(-10, 20), ylim=(-100, 250), title=f"{len(x) - inside.sum()} rows outside the frame")
axes[0, 0].legend(fontsize=8)
figure.supxlabel("eruption (minutes)")
figure.supylabel("wait (minutes)")
plt.show()

# %% [markdown]
# Data sets from the prior have a few clusters of any width, anywhere in a region far larger than that of
# the data. Many of the rows have a negative duration. That is the price of Gaussian components, and the
# prior is vague enough for the data to correct it. Two robust statistics, the median and the interquartile
# range of each column, tell where the observed data set lies among the simulated ones.


# %%
def robust_statistics(values):
    """Median and interquartile range over the rows, (..., rows, columns) -> (..., 2 * columns)."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=-2)
    return np.concatenate([middle, high - low], axis=-1)


observed, simulated = robust_statistics(x.to_numpy()), robust_statistics(prior["x"])
names = ["median of eruptions", "median of waiting", "IQR of eruptions", "IQR of waiting"]
quantiles = np.quantile(simulated, [0.05, 0.5, 0.95], axis=0)
prior_check = pd.DataFrame(
    {"observed": observed, "prior 5 %": quantiles[0], "prior 50 %": quantiles[1]}, names
)
prior_check["prior 95 %"] = quantiles[2]
prior_check["share of simulated data below"] = (simulated < observed).mean(axis=0)
negative_rows = (prior["x"][..., 0] < 0).mean()
print(f"rows with a negative duration: {negative_rows:.0%} of the prior predictive")
prior_check.round(2)

# %% [markdown]
# The observed values lie in the middle of what the prior allows, and the prior allows far more. So the
# prior neither excludes the data nor says much about them, which is what we wanted. A vague prior has a
# cost that shows later: in a mixture it penalises every component that is not needed, and the posterior of
# their number depends on it.
#
# ## 4. Variational Bayes: fast, and only an approximation
#
# Variational Bayes (thesis, sections 2.2.2 and 3.3.3, "VBDMA") looks for the factorised distribution $q$
# that comes nearest to the posterior. Its objective is a lower bound on the log evidence, which rises with
# every step and ends in a local optimum. Which one depends on the start, so we make several and keep the
# best. Here it runs as the thesis has it, from random starts; by default `vb` also merges and deletes
# components where the bound rises (`moves`), and starts from clusters of k-means.

# %% mystnb={"image": {"alt": "The bound against iterations for every start, with the number of occupied components: the bound rises in steps, at each of which a component dies."}}
starts = {"init": "random", "moves": (), "num_restarts": settings["restarts"]}
vb = inference.fit(model, x, method="vb", seed=0, **starts)
plots.plot_objective(vb)

# %% [markdown]
# The steps in the upper panel are components that die: the bound waits on a plateau, a component loses its
# last rows, and the bound jumps. The thesis shows the same in its figure 3.6. The restarts end in very
# different places.

# %%
final_bounds = vb["trace"]["objective_at_end"].to_numpy()
final_counts = vb["trace"]["num_occupied_at_end"].to_numpy().astype(int)
restarts = pd.DataFrame({"occupied components": final_counts, "bound (nats)": final_bounds})
restarts.groupby("occupied components")["bound (nats)"].agg(restarts="count", best="max", worst="min").round(
    1
)

# %% [markdown]
# Single starts differ by more than twenty nats and end with four to seven occupied components. One run of
# VB would have reported any of these as *the* number of clusters. Here is the best.

# %% mystnb={"image": {"alt": "Eruptions with an ellipse for each occupied component of the best fit by variational Bayes."}}
from inference import diagnostics

print(diagnostics.summary_text(vb, details=True))
plots.plot_mixture(vb)

# %% [markdown]
# The table ends without an R-hat, and says why: draws from $q$ are independent by construction, so they
# always agree with each other, whether or not $q$ is near the posterior. To learn that we need a method
# that is exact in the limit.

# %% [markdown]
# ## 5. Gibbs sampling: exact in the limit, but has it got there?
#
# The blocked Gibbs sampler (thesis, sections 2.2.1 and 3.3.3) draws the labels given the parameters and the
# parameters given the labels. Four chains start from labels drawn at random over a random number of
# components, from one to ten, so that they begin far apart. First a run of a length that looks generous.

# %% tags=["warns"]
short = inference.fit(model, x, method="gibbs", seed=1, **settings["short"])
print(diagnostics.summary_text(short, details=True))

# %% [markdown]
# `fit` warned, and it is right. R-hat compares the variation between chains with that within them; it
# should be below 1.01 and is above 1.02. Note which rows fail. The number of occupied components and the log
# joint, which one would look at first, are nearly fine. The *third largest weight* is not, nor the probability
# that two rows share a cluster: the cloud of short eruptions can be one component or two, and a chain stays
# with either explanation for dozens of sweeps, so that 8000 draws are worth 300.
#
# ### Why there is no R-hat for component 3
#
# The rows of the table are *invariants*: they do not depend on how components are numbered. The posterior
# is the same for all $10!$ numberings, so "the weight of component 3" has no meaning that survives from one
# draw to the next. Its R-hat measures how often labels were exchanged and not whether the sampler works.
# Compare:

# %%
from inference.symmetry import relabel

raw = diagnostics.psrf(short, ["weights"])["weights"].to_numpy()
short_aligned = relabel(short)
print("R-hat of the weights as they are numbered:", raw.round(2))
print("largest R-hat of labelled parameters, before and after relabelling:")
print(
    f"  {short_aligned.attrs['relabel_rhat_before']:.2f} -> {short_aligned.attrs['relabel_rhat_after']:.2f}"
)

# %% [markdown]
# `relabel` gives the components one numbering for all draws, by matching who shares a cluster with whom
# (Stephens 2000). What remains after it is real disagreement between the chains. So we run longer, at
# full size a hundred times as many sweeps, of which every hundredth is kept.

# %%
import warnings


def long_run(model, seed):
    """A run of Gibbs sampling that is long enough at full size; at small size it is cut short, and a line says so."""
    with warnings.catch_warnings():
        if SIZE == "small":
            warnings.filterwarnings("ignore", message=".*has not converged")
            print("small size: this run is cut short; the text is about the full one")
        return inference.fit(model, x, method="gibbs", seed=seed, **settings["long"])


# %%
gibbs = long_run(model, seed=2)
print(diagnostics.judge(gibbs)[1])
diagnostics.summary_cells(diagnostics.summary(gibbs))

# %% [markdown]
# The path of R-hat shows whether agreement has come to stay. The short run comes first, then the long one.
# The bar used to be 1.1; today it is 1.01 (Vehtari and others 2021).

# %% mystnb={"image": {"alt": "R-hat of the invariants against the number of draws in the short run: several lines stay far above 1.01."}}
plots.plot_psrf_path(short)

# %% mystnb={"image": {"alt": "R-hat of the invariants against the number of draws in the long run."}}
plots.plot_psrf_path(gibbs)

# %%
aligned = relabel(gibbs)
print(f"labelled R-hat before relabelling {aligned.attrs['relabel_rhat_before']:.2f}, ", end="")
print(f"after {aligned.attrs['relabel_rhat_after']:.3f}")
component_table = diagnostics.summary_cells(diagnostics.summary(aligned, var_names=["weights", "locs"]))
component_table.filter(regex=r"\[[012][\],]", axis=0)

# %% [markdown]
# Even in the long run, which converges at full size, the labelled R-hat was bad before relabelling. It would have condemned a
# good sampler. (The reverse happens too: four chains stuck in one place with one numbering have a perfect
# R-hat.)
#
# Do not read component 2 as you read the others, which are the two clouds. In some draws it is empty, and then
# its location is a draw from the prior, which has no mean. The table takes its location over those draws in
# which it holds rows, tells their number, and gives no R-hat.
#
# ## 6. The posterior of a clustering
#
# How many components have at least one row, before the data, under $q$ and in the posterior?

# %% mystnb={"image": {"alt": "Bars: probability of each number of occupied components under the prior, under variational Bayes and in the posterior."}}
counts = np.arange(1, model.num_components + 1)
prior_counts = np.array([len(np.unique(labels)) for labels in prior["assignments"]])
probabilities = pd.DataFrame(
    {
        "prior": [(prior_counts == k).mean() for k in counts],
        "VB": diagnostics.occupied(vb).to_series().reindex(counts, fill_value=0.0),
        "posterior (Gibbs)": diagnostics.occupied(gibbs).to_series().reindex(counts, fill_value=0.0),
    },
    index=counts,
)
figure, axis = plt.subplots(figsize=(7, 3.4))
probabilities.plot.bar(ax=axis, rot=0, color=["0.75", COLOURS[1], COLOURS[0]], width=0.8)
axis.set(xlabel="number of occupied components", ylabel="probability")
plt.show()

# %% [markdown]
# VB puts nearly all its probability on one number. The posterior spreads over three to six, because
# components with two or three rows come and go. And it is hardly different from the prior: 272 eruptions
# have taught the model little about how many components there are. Two it needs; about the rest it says
# what it was told.
#
# A better summary asks of each pair of rows how probable it is that they belong together. This
# *co-clustering* matrix needs no labels and no numbers of components.

# %% mystnb={"image": {"alt": "Matrix of the probabilities that two eruptions share a component, rows ordered by cluster: two blocks that never mix."}}
plots.plot_co_clustering(gibbs)

# %% [markdown]
# Two blocks that never mix, and between them a few rows that go with either or neither. Within the smaller
# block one sees the two explanations that the chains had trouble with. One partition that stands for the
# whole posterior is that with the smallest expected number of misplaced pairs (Binder 1978), on the left.
# It looks more certain than it is; on the right, each row has the probability of sharing a component with a
# row of the largest cluster.

# %% mystnb={"image": {"alt": "Two scatter plots of the eruptions: left the partition of least expected loss, right each eruption's probability of sharing a component with the largest cluster."}}
together = diagnostics.co_clustering(gibbs)
partition = diagnostics.point_partition(gibbs)
largest = partition.to_numpy() == 0
others = largest[None, :] & ~np.eye(
    len(x), dtype=bool
)  # a row's certainty of being with itself tells nothing
with_largest = (together.to_numpy() * others).sum(axis=1) / others.sum(axis=1)

figure, axes = plt.subplots(1, 2, figsize=(10, 4), width_ratios=[1, 1.15])
for k in range(partition.attrs["num_clusters"]):
    mine = partition.to_numpy() == k
    label = f"cluster {k}: {mine.sum()} rows"
    axes[0].scatter(*x[mine].to_numpy().T, s=18, color=COLOURS[k % 8], marker="os^Dv"[k % 5], label=label)
axes[0].legend(fontsize=8)
axes[0].set_title("the partition with the least expected loss")
shades = axes[1].scatter(*x.to_numpy().T, c=with_largest, s=18, cmap="cividis", vmin=0, vmax=1)
figure.colorbar(shades, ax=axes[1], label="probability")
axes[1].set_title("together with a row of cluster 0?")
for axis in axes:
    axis.set(xlabel="eruption (minutes)", ylabel="wait (minutes)")
plt.show()

# %% [markdown]
# The fit can be asked about rows it has not seen. An eruption of three minutes, in the gap, is undecided
# (what is missing to one belongs to smaller components); one of two minutes is not. `log_density`, in nats,
# says that the row in the gap would be the most surprising.

# %%
new_rows = pd.DataFrame({"eruptions": [2.0, 3.0, 4.4], "waiting": [55.0, 65.0, 80.0]})
answers = inference.transform(aligned, new_rows).to_pandas().iloc[:, :3].add_prefix("share of component ")
answers["log density"] = inference.log_density(aligned, new_rows).to_numpy()
pd.concat([new_rows, answers.reset_index(drop=True)], axis=1).round(2)

# %% [markdown]
# ## 7. What VB missed
#
# Now the approximation can be compared with the posterior. The largest weights are about right. Their
# spread is not: $q$ sits in one of the explanations and reports the uncertainty within it only.

# %% mystnb={"image": {"alt": "Histograms of the second and third largest weight under variational Bayes and Gibbs sampling: the sampler's are wider, and that of the second weight has another hump."}}
spreads = pd.DataFrame(
    {"VB": diagnostics.summary(vb)["sd"], "Gibbs": diagnostics.summary(gibbs)["sd"]}
).dropna()
spreads["ratio"] = spreads["VB"] / spreads["Gibbs"]
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2))
for axis, rank, most in ((axes[0], 2, 0.5), (axes[1], 3, 0.2)):
    for name, tree, colour in (("VB", vb, COLOURS[1]), ("Gibbs", gibbs, COLOURS[0])):
        weight = np.sort(tree["posterior"]["weights"].to_numpy(), axis=-1)[..., -rank].ravel()
        axis.hist(weight, bins=np.linspace(0, most, 61), density=True, alpha=0.6, color=colour, label=name)
    axis.set(
        xlabel=f"weight of rank {rank}", ylabel="density", xlim=(0, most), xticks=np.linspace(0, most, 6)
    )
axes[0].legend()
plt.show()
second_weight = diagnostics.invariants(gibbs)["sorted_weights"].sel(weight_rank=2)
print(f"draws in which the second weight is below 0.25: {float((second_weight < 0.25).mean()):.0%}")
spreads.round(4)

# %% [markdown]
# The second weight has a second hump in the posterior: in about one draw of seven a third component takes
# half of the short eruptions, some fifteen per cent of all rows, away from the second. VB knows nothing of
# it. This is the mode that the chains found hard to enter and leave.
#
# ## 8. A small model on which everything must agree
#
# Before we trust a sampler on a hard posterior we want to see it agree with another method on an easy one.
# With $K = 2$ and $\alpha = 2$ the weights have a uniform prior and the posterior has one mode, up to the
# two numberings. NUTS runs on the same program, with the labels summed out; it shares no code with the
# Gibbs sampler beyond the model. NUTS starts from draws of the VB posterior, Gibbs from random labels. (At small
# size NUTS is left out: it takes long to compile.)

# %%
two = zoo.Mixture.from_data(x, num_components=2, concentration=2.0)
two_by = {"VB": inference.fit(two, x, method="vb", seed=3, **starts)}
two_by["Gibbs"] = inference.fit(two, x, method="gibbs", seed=4, **settings["two"])
print(f"Gibbs: {diagnostics.judge(two_by['Gibbs'])[1]}")
if "nuts" in settings:
    two_by["NUTS"] = inference.fit(two, x, method="nuts", seed=5, init=two_by["VB"], **settings["nuts"])
    nuts_stats = two_by["NUTS"]["sample_stats"]
    print(f"NUTS: {diagnostics.judge(two_by['NUTS'])[1]}")
    print(f"NUTS: {int(nuts_stats['diverging'].sum())} divergences, ", end="")
    print(f"{float(nuts_stats['n_steps'].mean()):.1f} leapfrog steps a draw")


# %%
def monte_carlo_errors(tree, var_names=None):
    """Posterior means with their Monte Carlo standard errors, sd / sqrt(ESS); constant quantities are left out."""
    table = diagnostics.summary(tree, var_names=var_names)
    size = (
        table["ess_bulk"] if "ess_bulk" in table else pd.Series(tree["posterior"].sizes["draw"], table.index)
    )
    varying = (size != "constant") & (table["sd"] > 0)
    return table["mean"][varying], table["sd"][varying] / np.sqrt(size[varying].astype(float))


gibbs_means, gibbs_errors = monte_carlo_errors(two_by["Gibbs"])
agreement = pd.DataFrame({"Gibbs": gibbs_means})
if "NUTS" in two_by:
    nuts_means, nuts_errors = monte_carlo_errors(two_by["NUTS"])
    agreement = agreement.assign(NUTS=nuts_means).dropna()
    agreement["difference / its error"] = (agreement["Gibbs"] - agreement["NUTS"]) / np.hypot(
        gibbs_errors[agreement.index], nuts_errors[agreement.index]
    )
agreement.round(4)

# %% [markdown]
# The two samplers agree within their Monte Carlo errors. And VB? With one mode, and clouds so far apart
# that the labels are nearly known, the factorised $q$ can hardly be told from the posterior:

# %%
labelled = {
    name: diagnostics.summary(relabel(tree), var_names=["weights", "locs"]) for name, tree in two_by.items()
}
pd.concat({name: table[["mean", "sd"]].astype(float) for name, table in labelled.items()}, axis=1).round(4)

# %% [markdown]
# So would NUTS do for everything? It can be run on the model with ten components in the same way. But most
# of those are empty, and their parameters follow a prior with Cauchy tails, beside others that the data
# hold to a tenth of a minute. A step size that suits these is far too small for those, so each draw takes
# hundreds of steps. The run below is kept short, and `fit` says so. (It is left out at small size.)

# %%
if SIZE == "full":
    hard = inference.fit(
        model, x, method="nuts", seed=6, num_chains=2, num_warmup=100, num_samples=100, init=gibbs
    )
    print(f"{float(hard['sample_stats']['n_steps'].mean()):.0f} leapfrog steps a draw, ", end="")
    print(f"{hard.attrs['sampling_time']:.0f} s for 400 draws in all, warm-up included; ", end="")
    print(f"the long Gibbs run took {gibbs.attrs['sampling_time']:.0f} s")

# %% [markdown]
# ### A word on sticks
#
# The Dirichlet process has a second truncation, by stick-breaking (section 3.3.2). It approaches the same
# process as $K$ grows, but its components come in order, large weights first on average, and a sampler that
# redraws labels one at a time can hardly exchange two whole sticks. By default `gibbs` also splits and merges
# components and puts the sticks in a new order in every sweep. Two runs as long as our short one, without these
# moves and with them (left out at small size, too):

# %%
if SIZE == "full":
    sticks = zoo.Mixture.from_data(x, num_components=10, concentration=1.0, weight_prior="stick_breaking")
    plain = settings["short"] | {"split_merge": 0, "label_moves": False}
    stick_runs = {
        "one label at a time": inference.fit(sticks, x, method="gibbs", seed=7, **plain),
        "with moves of sticks": inference.fit(sticks, x, method="gibbs", seed=7, **settings["short"]),
    }
    for name, tree in stick_runs.items():
        print(f"{name}: {diagnostics.judge(tree)[1]}")

# %% [markdown]
# ## 9. After the data: does the model reproduce what we see?
#
# We draw replicated data sets from the posterior predictive, one per posterior draw, and compare. A check
# that nothing can fail teaches nothing, so a single Gaussian ($K = 1$) is checked beside the mixture. For
# it $q$ is the exact posterior: there are no labels to approximate.

# %% mystnb={"image": {"alt": "Left to right: the data, a replicated data set of the mixture, one of a single Gaussian, and histograms of the share of eruptions in the gap, with the observed share as a line."}}
one = inference.fit(zoo.Mixture.from_data(x, num_components=1), x, method="vb", seed=8)
replicated = {
    "mixture": inference.extend(gibbs, "posterior_predictive", seed=9)["posterior_predictive"]["x"],
    "one Gaussian": inference.extend(one, "posterior_predictive", seed=10)["posterior_predictive"]["x"],
}


def gap_share(eruptions):
    """Share of the rows whose eruption lasts between 2.5 and 3.5 minutes; rows on the last axis."""
    return ((eruptions > 2.5) & (eruptions < 3.5)).mean(axis=-1)


observed_gap = gap_share(x["eruptions"].to_numpy())
gaps = {
    name: gap_share(rows.sel(feature="eruptions").transpose("chain", "draw", ...).to_numpy()).ravel()
    for name, rows in replicated.items()
}
gap_p = {name: (values >= observed_gap).mean() for name, values in gaps.items()}

figure, axes = plt.subplots(1, 4, figsize=(13, 3.3), width_ratios=[1, 1, 1, 1.3])
pictures = [("the data", x.to_numpy(), "0.3")]
for name, colour in (("mixture", COLOURS[0]), ("one Gaussian", COLOURS[1])):
    pictures.append((f"{name}, replicated", replicated[name].isel(chain=0, draw=-1).to_numpy(), colour))
    axes[3].hist(gaps[name], bins=np.arange(0, 0.45, 0.01), density=True, color=colour, alpha=0.6, label=name)
for axis, (title, rows, colour) in zip(axes, pictures, strict=False):
    axis.scatter(*rows.T, s=6, color=colour)
    axis.set(title=title, xlabel="eruption (minutes)", xlim=(-0.5, 7.5), ylim=(25, 120))
axes[0].set_ylabel("wait (minutes)")
axes[3].axvline(observed_gap, color="black", label="data")
axes[3].set(xlabel="share of eruptions in the gap", ylabel="density")
axes[3].legend(fontsize=8)
for name, p in gap_p.items():
    print(f"{name}: P(replicated share >= observed {observed_gap:.3f}) = {p:.3f}")

# %% [markdown]
# The mixture puts the right share of eruptions into the gap, the single Gaussian seven times too many.
# Means and standard deviations would not have told them apart: both models reproduce those. The extremes
# are worth a look too.

# %%
from inference.diagnostics import check_features

checks = {
    name: check_features(gibbs["observed_data"]["x"], rows).rename(columns={"p": "P(larger)"})
    for name, rows in replicated.items()
}
pd.concat(checks, axis=1).round(2)

# %% [markdown]
# One thing the mixture does not quite get: no eruption lasted longer than 5.1 minutes, and in 97 % of the
# replicated data sets one does. The geyser seems to have a limit where a Gaussian has a tail.
#
# ## 10. Which concentration?
#
# The concentration $\alpha$ decides how many components there are before the data, and the thesis tunes the
# number of clusters with it. Can the data choose it? We compare by leave-one-out cross-validation,
# estimated from the draws (Vehtari, Gelman and Gabry 2017). Labels are summed out: what counts is the
# density of the row that was left out.

# %%
candidates = {"alpha = 1": gibbs, "two components": two_by["Gibbs"], "one Gaussian": one}
for number, alpha in enumerate((0.1, 10.0)):
    other = zoo.Mixture.from_data(x, num_components=10, concentration=alpha)
    candidates[f"alpha = {alpha:g}"] = long_run(other, seed=11 + number)

comparison = diagnostics.compare(candidates)
comparison["occupied"] = [
    f"{diagnostics.occupied(candidates[name]).attrs['mean']:.1f}" for name in comparison.index
]
print(comparison.attrs["note"])
columns = ["elpd", "se", "elpd_diff", "dse", "p", "weight", "pareto_k_bad", "pareto_k_max", "occupied"]
comparison[columns].round(2)

# %% [markdown]
# (For one Gaussian the note is a matter of form: there the "approximation" is exact.) The Pareto shapes $k$
# tell whether the estimates can be trusted. All are below the threshold of 0.7 but for two rows at $\alpha = 10$,
# just above it. What do the estimates say?
#
# * One Gaussian loses by more than a hundred nats. LOO does tell good models from bad ones.
# * The mixtures lie within about one nat of each other, less than the standard error of the differences.
#   With $\alpha = 0.1$ there are two or three occupied components on average, with $\alpha = 10$ almost
#   nine. *The data cannot tell these apart by prediction.*
#
# That is the answer to the question we began with. Two groups are certain: in every fit nearly all rows of
# the two clouds are held apart. Whether a third or a ninth Gaussian is used to shape the edges of the
# clouds is decided by the prior. A number of clusters from a mixture is a statement about $\alpha$,
# $\beta_0$ and $\nu_0$ as much as about the geyser, and should never be quoted without them.

# %%
clouds = [x.index[x["eruptions"] < 2.5].to_numpy(), x.index[x["eruptions"] > 3.5].to_numpy()]
apart = {
    name: 1.0 - diagnostics.co_clustering(tree).to_numpy()[np.ix_(*clouds)].mean()
    for name, tree in candidates.items()
}
pd.Series(apart, name="probability that a short and a long eruption are held apart").round(4).to_frame()

# %% [markdown]
# ## Exercise
#
# Draws from the prior showed how many components $\alpha$ asks for. Seat 272 rows one after another in a
# Chinese restaurant: row $i$ opens a table with probability $\alpha / (\alpha + i - 1)$, whatever happened
# before. What are the mean and the variance of the number of tables at $\alpha = 1$?

# %%
# Answer: sums of the means and the variances of independent coins: 6.19 and 4.54.
opens = 1.0 / (1.0 + np.arange(272))
mean_tables, variance_tables = opens.sum(), (opens * (1 - opens)).sum()
tables = (np.random.default_rng(0).random((4000, 272)) < opens).sum(axis=1)
print(f"{mean_tables:.3f} and {variance_tables:.3f}; simulated {tables.mean():.3f} and {tables.var():.3f}")
# |z| > 5 for a mean of 4000 draws: a false alarm in two million runs
assert abs(tables.mean() - mean_tables) < 5 * (variance_tables / 4000) ** 0.5

# %% [markdown]
# ## 11. What this notebook claims
#
# The assertions have room for Monte Carlo error. Where a run is too short at small size, they ask for less.

# %%
full = SIZE == "full"

# The prior allows the data, and allows much else
assert prior_check["share of simulated data below"].between(0.05, 0.95).all()
assert negative_rows > 0.05

# VB: the bound never falls; its optima are local; it is too sure
bounds = vb["trace"]["objective_by_restart"].to_numpy().T
rises = np.diff(bounds, axis=1)
assert np.nanmin(rises) > -1e-8 * np.nanmax(np.abs(bounds))
assert np.ptp(final_bounds) > 1.0
assert vb.attrs["converged"] and one.attrs["converged"]
if full:
    assert spreads.loc["sorted_weights[2]", "ratio"] < 0.8
    assert spreads.loc["same_cluster", "ratio"] < 0.3

# Gibbs: the short run is not to be believed and the long one is; raw labels say nothing either way


def largest_psrf(tree):
    """The largest R-hat over the invariants of a sampler's fit; quantities that never changed have none."""
    return max(
        float(factor.max()) for factor in diagnostics.psrf(tree).data_vars.values() if factor.notnull().any()
    )


assert not short.attrs["converged"] and largest_psrf(short) > 1.01
assert short_aligned.attrs["relabel_rhat_after"] < short_aligned.attrs["relabel_rhat_before"]
assert aligned.attrs["relabel_rhat_before"] > 1.2
if full:
    assert largest_psrf(gibbs) < 1.02
    assert aligned.attrs["relabel_rhat_after"] < 1.03
    assert (
        largest_psrf(stick_runs["one label at a time"])
        > 1.05
        > largest_psrf(stick_runs["with moves of sticks"])
    )

# Two components: Gibbs and NUTS agree within their errors, and VB is near both
assert largest_psrf(two_by["Gibbs"]) < (1.02 if full else 1.1)
if full:
    assert largest_psrf(two_by["NUTS"]) < 1.02
    assert float(nuts_stats["diverging"].mean()) < 0.01
    # |z| > 4 for one of five normal quantities: a false alarm in 3000 runs
    assert (agreement["difference / its error"].abs() < 4.0).all()
off = (labelled["VB"]["mean"] - labelled["Gibbs"]["mean"]).abs() / labelled["Gibbs"]["sd"]
assert (off < 0.3).all()

# The mixture reproduces the gap, one Gaussian does not; the longest eruptions are too long
assert 0.05 < gap_p["mixture"] < 0.95
assert gap_p["one Gaussian"] > 0.999
assert checks["mixture"].loc["eruptions: largest", "P(larger)"] > 0.9

# Prediction tells one Gaussian from a mixture and does not tell the concentrations apart, though the counts differ
mixtures = comparison.drop(index="one Gaussian")
assert (mixtures["elpd"].max() - mixtures["elpd"] < 4.0).all()
assert mixtures["elpd"].min() - comparison.loc["one Gaussian", "elpd"] > 100.0
assert (comparison["pareto_k_bad"] <= 2).all()
mean_occupied = [diagnostics.occupied(candidates[f"alpha = {a}"]).attrs["mean"] for a in ("0.1", "1", "10")]
assert mean_occupied[0] + 1.0 < mean_occupied[1] < mean_occupied[2] - 2.0

# Whatever the prior, the two clouds are two
assert all(probability > 0.99 for name, probability in apart.items() if name != "one Gaussian")

# %% [markdown]
# ## References
#
# - Azzalini, A. and Bowman, A. W. (1990). A look at some data on the Old Faithful geyser. *Applied Statistics* 39,
#   357-365.
# - Binder, D. A. (1978). Bayesian cluster analysis. *Biometrika* 65, 31-38.
# - Hoffman, M. D. and Gelman, A. (2014). The No-U-Turn sampler: adaptively setting path lengths in Hamiltonian Monte
#   Carlo. *Journal of Machine Learning Research* 15, 1593-1623.
# - Stephens, M. (2000). Dealing with label switching in mixture models. *Journal of the Royal Statistical Society B*
#   62, 795-809.
# - Vehtari, A., Gelman, A. and Gabry, J. (2017). Practical Bayesian model evaluation using leave-one-out
#   cross-validation and WAIC. *Statistics and Computing* 27, 1413-1432.
# - Vehtari, A., Gelman, A., Simpson, D., Carpenter, B. and Bürkner, P.-C. (2021). Rank-normalization, folding, and
#   localization: an improved R-hat for assessing convergence of MCMC. *Bayesian Analysis* 16, 667-718.
# - Yu, S. (2006). *Advanced Probabilistic Models for Clustering and Projection*. Dissertation,
#   Ludwig-Maximilians-Universität München.

# %%
zoo.show_versions()
