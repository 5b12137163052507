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
# # What does a determinantal point process prefer?
#
# **Goals.** After this notebook you can
#
# - compute probabilities of items, pairs and sizes of a determinantal point process;
# - say where the repulsion of a log determinant acts, and where it does not;
# - find out what a similarity of components really measures by transformations that should not matter.
#
# **Duration.** An hour and a half with the six exercises. The computer takes about a minute at full size on two
# cores, under a minute with `ZOO_NOTEBOOK_SIZE=small`. Numbers quoted in the text are those of the full size.
#
# A determinantal point process (DPP) draws subsets whose items are unlike each other. Qiao, Liu, Yu, Bian and
# Tao (2020, "Repulsive mixture models of exponential family PCA for clustering") use one as a prior that keeps the
# components of a mixture apart. This notebook looks at draws, at probabilities, and then at what their
# similarity of components really measures: **it changes when a column of a basis changes its sign, though the
# component does not.**
#
# For teaching: sections end with an exercise, and the cell after it holds an answer that checks itself.
# Source of sections 1 to 3: Kulesza and Taskar (2012), "Determinantal point processes for machine learning".
# The last section asserts what the text claims.

# %%
import jax
from inference.course import COLOURS, at_size, np, pd, plt, zoo

jax.config.update("jax_enable_x64", True)

# %% [markdown]
# ## 1. Draws
#
# Give every pair of $M$ items a similarity $L_{ij}$ such that $L$ is positive semi-definite. An *L-ensemble*
# draws the subset $S$ with probability
#
# $$P(S) = \frac{\det L_S}{\det(L + I)},$$
#
# where $L_S$ holds the rows and columns of $S$. A determinant is a squared volume: items that are alike point
# in one direction and span little. Given its size it is a *k-DPP*. Twelve points of a grid, drawn at random
# and drawn by a k-DPP whose $L$ is three times a Gaussian
# kernel (the factor makes larger subsets likelier and does not matter once the size is given). Of many draws each
# picture shows the median one, by the mean distance to the nearest neighbour:

# %% mystnb={"image": {"alt": "Twelve points of a grid: left drawn at random, some side by side, right by a k-DPP, further apart."}}
from scipy.spatial.distance import pdist
from scipy.spatial.distance import squareform
from zoo.dpp import KDPP
from zoo.kernels import RBF

settings = at_size(
    full={"side": 11, "draws": 400, "subsets": 4000, "bases": 100_000},
    small={"side": 9, "draws": 200, "subsets": 1000, "bases": 40_000},
)
side = settings["side"]
grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2).astype(float)
similarity = 3 * RBF(2.0).matrix(grid, grid)
num_points = 12
spread_out = np.asarray(KDPP(similarity, num_points).sample(jax.random.key(0), (settings["draws"],))) == 1
rng = np.random.default_rng(0)
at_random = np.zeros_like(spread_out)
for row in at_random:
    row[rng.choice(len(grid), num_points, replace=False)] = True


def nearest(draw):
    """Mean distance of the points of one draw to their nearest neighbours in it, in grid steps."""
    distance = squareform(pdist(grid[draw]))
    np.fill_diagonal(distance, np.inf)
    return distance.min(axis=1).mean()


figure, axes = plt.subplots(1, 2, figsize=(8, 4.1), sharey=True)
distances = {}
for axis, (name, draws) in zip(axes, {"at random": at_random, "k-DPP": spread_out}.items(), strict=True):
    distances[name] = np.array([nearest(draw) for draw in draws])
    axis.scatter(*grid.T, s=4, color="0.8")
    typical = distances[name].argsort()[len(draws) // 2]
    axis.scatter(*grid[draws[typical]].T, s=45, color=COLOURS[0])
    axis.set(title=f"{name}: nearest neighbour at {distances[name][typical]:.2f}", xticks=[], yticks=[])
    axis.set_aspect("equal")
plt.show()
for name, own in distances.items():
    print(f"{name}: nearest neighbour at {own.mean():.2f} on average over {len(own)} draws")

# %% [markdown]
# **Exercise 1.** Two items with qualities $q_1, q_2$ and similarity $s$: $L = \begin{pmatrix} q_1^2 & q_1 q_2
# s\\ q_1 q_2 s & q_2^2\end{pmatrix}$. Write down the probabilities of the four subsets. For which $s$ are the
# two items independent? For which do they never come together?

# %%
# Answer: 1, q1^2, q2^2 and q1^2 q2^2 (1 - s^2), over their sum. Independent at s = 0, where the four factorise;
# never together at |s| = 1. The sign of s makes no difference: alike and opposite repel equally.
from itertools import product
from zoo.dpp import LEnsemble

q_1, q_2, s = 1.3, 0.7, 0.6
by_hand = np.array([1.0, q_2**2, q_1**2, q_1**2 * q_2**2 * (1 - s**2)])
by_hand /= by_hand.sum()
pair = np.array([[q_1**2, q_1 * q_2 * s], [q_1 * q_2 * s, q_2**2]])
subsets_of_two = np.array(list(product([0, 1], repeat=2)))
assert np.allclose(np.exp(LEnsemble(pair).log_prob(subsets_of_two)), by_hand)
assert np.allclose(
    LEnsemble(pair * (1 - 2 * (1 - np.eye(2)))).log_prob(subsets_of_two), np.log(by_hand)
)  # s turned to -s

# %% [markdown]
# ## 2. Probabilities of items and pairs
#
# No subset has to be enumerated to know how often an item comes: with the *marginal kernel*
# $K = L(L + I)^{-1}$ item $i$ is drawn with probability $K_{ii}$ and two with $K_{ii} K_{jj} - K_{ij}^2$,
# never more often than if they were independent. Given that one item (the star) is in the subset, the others
# have probability $K_{jj} - K_{ij}^2 / K_{ii}$: a hole around it, and no effect far away.

# %% mystnb={"image": {"alt": "Probability of each item of a grid; given that the middle one, a star, is drawn, by the formula and in draws: a hole around the star."}}
import jax.numpy as jnp
from zoo.dpp import marginal_kernel

ensemble = LEnsemble(similarity)
kernel = np.asarray(marginal_kernel(jnp.asarray(similarity)))
middle = len(grid) // 2
given = np.diag(kernel) - kernel[middle] ** 2 / kernel[middle, middle]
draws = np.asarray(ensemble.sample(jax.random.key(1), (settings["subsets"],)))
frequency = draws.mean(axis=0)
with_middle = draws[draws[:, middle] == 1].mean(axis=0)

figure, axes = plt.subplots(1, 3, figsize=(12, 3.7))
top = np.diag(kernel).max()
for axis, title, values in zip(
    axes,
    ("probability of each item", "given the star, by the formula", "given the star, in draws"),
    (np.diag(kernel), given, with_middle),
    strict=True,
):
    shown = values.copy()
    if axis is not axes[0]:
        shown[middle] = np.nan
        axis.plot(*grid[middle], "*", color=COLOURS[1], markersize=14)
    image = axis.imshow(shown.reshape(side, side), vmin=0, vmax=top, cmap="viridis")
    axis.set(title=title, xticks=[], yticks=[])
figure.colorbar(image, ax=axes)
plt.show()
error = np.sqrt(np.diag(kernel) * (1 - np.diag(kernel)) / len(draws))
z_items = (frequency - np.diag(kernel)) / error
print(f"largest |z| of the {len(grid)} frequencies in {len(draws)} draws: {np.abs(z_items).max():.1f}")

# %% [markdown]
# Items at the border are drawn more often: they have fewer neighbours to repel them.
#
# **Exercise 2.** The number of items is a sum of independent coin tosses, one for each eigenvalue $\lambda$ of
# $L$, with probability $\lambda / (1 + \lambda)$. What are its mean and variance? Check them on the draws. Why
# does the variance stay below the mean?

# %%
# Answer: mean sum l / (1 + l) = trace K, variance sum l / (1 + l)^2: each coin's variance p (1 - p) is below p.
eigenvalues = np.maximum(np.linalg.eigvalsh(similarity), 0.0)
mean_size, variance_of_size = (
    np.sum(eigenvalues / (1 + eigenvalues)),
    np.sum(eigenvalues / (1 + eigenvalues) ** 2),
)
sizes = draws.sum(axis=1)
print(
    f"mean {mean_size:.3f} (draws {sizes.mean():.3f}), variance {variance_of_size:.3f} (draws {sizes.var():.3f})"
)
assert np.isclose(mean_size, np.trace(kernel)) and variance_of_size < mean_size
assert abs(sizes.mean() - mean_size) < 5 * np.sqrt(variance_of_size / len(sizes))
assert abs(sizes.var() - variance_of_size) < 5 * variance_of_size * np.sqrt(3 / len(sizes))

# %% [markdown]
# ## 3. Quality against diversity, and the best subset
#
# Write $L_{ij} = q_i s_{ij} q_j$ with $s_{ii} = 1$. Then $\log\det L_S = \sum_{i \in S} 2 \log q_i +
# \log\det s_S$: qualities pull items in, similarity pushes them apart. Twelve items on a line, the better ones
# on the right. The best pair is not the two best items.

# %%
from itertools import combinations
from zoo.dpp import greedy_subset

line = np.arange(12.0)[:, None]
alike = RBF(2.0).matrix(line, line)
quality = np.exp(0.12 * np.arange(12))
both = quality[:, None] * alike * quality


def log_volume(chosen):
    """log det L_S."""
    return np.linalg.slogdet(both[np.ix_(chosen, chosen)])[1]


table = pd.DataFrame(
    {
        size: {
            "best items": list(range(12 - size, 12)),
            "greedy": sorted(greedy_subset(both, size)),
            "best subset": list(max(combinations(range(12), size), key=log_volume)),
        }
        for size in (2, 3, 4, 5)
    }
)
table.map(lambda chosen: f"{chosen}: {log_volume(chosen):.2f}")

# %% [markdown]
# To find the most probable subset is NP-hard; `greedy_subset` takes the best item again and again.
#
# **Exercise 3.** By how much does $\log\det s_S$ of two items fall when they become alike? Where does the
# repulsion act, if $\log\det$ is weighted by $\lambda$?

# %% mystnb={"image": {"alt": "Weighted log determinant of two items against their similarity for weights 1, 10 and 100: flat at zero, falling steeply near one."}}
# Answer: log(1 - s^2), which is flat at s = 0 (its slope is -2 s / (1 - s^2)) and falls to minus infinity at
# s = 1. A larger weight moves the barrier outwards, it never makes a slope where there is none.
from inference.plots import LINES

s_grid = np.linspace(0, 0.999, 400)
figure, axis = plt.subplots(figsize=(6, 3.4))
for number, weight in enumerate((1, 10, 100)):
    axis.plot(
        s_grid,
        weight * np.log1p(-(s_grid**2)),
        color=COLOURS[number],
        linestyle=LINES[number],
        label=f"{weight}",
    )
axis.set(xlabel="similarity of the two", ylabel="weighted log det, nats", ylim=(-60, 2))
axis.legend(title="weight")
plt.show()
two = np.linalg.slogdet(np.array([[1.0, 0.9], [0.9, 1.0]]))[1]
assert np.isclose(two, np.log1p(-(0.9**2)))

# %% [markdown]
# ## 4. From items to components: the paper's kernel
#
# A component of the mixture has a basis $U$, $D \times d$ with orthonormal columns, and scales $\phi$: its
# loadings are $W = U \mathrm{diag}(\phi)$. The paper compares two bases by the cosines of all pairs of columns.
# Since $\sum_{ij} \langle u_i, v_j\rangle = \langle s, t\rangle$ with $s = \sum_i u_i$, $t = \sum_j v_j$, its
# similarity is, up to a constant factor,
#
# $$\exp\{\varrho(\langle s, t\rangle - d)\} = \exp\{-\tfrac\varrho2 |s - t|^2\},$$
#
# a Gaussian kernel of **the sums of the columns** (`kernel="angular"`). The alternative here is a Gaussian
# kernel of the projections, $\exp\{-\frac\varrho2 \|UU' - VV'\|_F^2\}$ (`kernel="subspace"`). The paper's
# Figure 2 turns one basis against another in the plane:

# %% mystnb={"image": {"alt": "A pair of axes turned by 0, 45, 90 and 180 degrees, and the similarity to the original: the angular kernel falls, the subspace kernel stays at one."}}
from zoo.dpp import angular_similarity
from zoo.dpp import subspace_similarity

rho, angles = 0.5, np.linspace(0, np.pi, 181)
plane = np.eye(2)
turned = np.stack([[[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]] for a in angles])
likeness = {
    name: np.array([kernel_of(jnp.stack([plane, v]), rho)[0, 1] for v in turned])
    for name, kernel_of in {"angular": angular_similarity, "subspace": subspace_similarity}.items()
}
figure, axes = plt.subplots(1, 5, figsize=(13, 2.9), width_ratios=(1, 1, 1, 1, 2.2))
for axis, degrees in zip(axes, (0, 45, 90, 180), strict=False):
    for basis, colour, style in ((plane, COLOURS[0], "--"), (turned[degrees], COLOURS[1], "-")):
        for column in basis.T:
            axis.annotate(
                "", column, (0, 0), arrowprops={"arrowstyle": "->", "color": colour, "ls": style, "lw": 2}
            )
    axis.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), xticks=[], yticks=[], title=f"{degrees} degrees")
    axis.set_aspect("equal")
for number, (name, values) in enumerate(likeness.items()):
    axes[-1].plot(np.degrees(angles), values, color=COLOURS[number], linestyle=LINES[number], label=name)
axes[-1].set(xlabel="angle, degrees", ylabel="similarity", ylim=(0, 1.05), xticks=(0, 90, 180))
axes[-1].legend()
plt.show()

# %% [markdown]
# All these bases span the same plane. At 90 degrees they are the same pair of axes, one with its sign turned;
# at 180 degrees $V = -U$, which gives the same loadings with $-\phi$, hence the same component, and the
# lowest similarity that there is.
#
# ## 5. The sign problem
#
# Take a model with three components in 16 dimensions and turn signs of the columns of its bases together with
# those of the scales. No loading changes, so neither does any density:

# %% mystnb={"image": {"alt": "Histogram of log det S over all choices of signs under the angular kernel, which spreads, and the one value under the subspace kernel."}}
num_components, num_features, num_latents = 3, 16, 4
model = zoo.DEPCAM(
    num_components=num_components, num_latents=num_latents, num_features=num_features, sparsity=1.0
)
rng = np.random.default_rng(1)
bases = np.linalg.qr(rng.normal(size=(num_components, num_features, num_latents)))[0]
values = {
    "bases": jnp.asarray(bases),
    "scales": jnp.asarray(rng.normal(size=(num_components, num_latents))),
    "offsets": jnp.zeros((num_components, num_features)),
    "weights": jnp.full(num_components, 1 / num_components),
}
x = jnp.asarray((rng.random((30, num_features)) < 0.5).astype(float))
signs = np.array(list(product([1.0, -1.0], repeat=num_components * num_latents)))
signs = signs.reshape(-1, num_components, num_latents)


def log_repulsion(bases, similarity_of):
    """log det S for a stack of sets of bases, rho = 0.1."""
    matrices = jax.vmap(lambda one: similarity_of(one, 0.1))(jnp.asarray(bases))
    return np.linalg.slogdet(np.asarray(matrices))[1]


all_signs = bases * signs[:, :, None, :]
repulsions = {
    "angular": log_repulsion(all_signs, angular_similarity),
    "subspace": log_repulsion(all_signs, subspace_similarity),
}
most, least = repulsions["angular"].argmax(), repulsions["angular"].argmin()
likelihoods = [
    float(
        model.log_likelihood(
            values | {"bases": values["bases"] * signs[i][:, None], "scales": values["scales"] * signs[i]}, x
        ).sum()
    )
    for i in (0, most, least)
]
figure, axis = plt.subplots(figsize=(7, 3.3))
axis.hist(repulsions["angular"], bins=60, color=COLOURS[0], label="angular")
axis.axvline(repulsions["subspace"][0], color=COLOURS[1], linestyle="--", label="subspace, for all signs")
axis.set(xlabel="log det S", ylabel=f"of {len(signs)} choices of signs")
axis.legend()
plt.show()
print(f"angular: log det S from {repulsions['angular'].min():.2f} to {repulsions['angular'].max():.2f}")
print(
    f"subspace: differs by {np.ptp(repulsions['subspace']):.1e}; the likelihoods by {np.ptp(likelihoods):.1e} nats"
)

# %% [markdown]
# The same model has 4096 log determinants. A prior that is meant to keep components apart can therefore be
# satisfied without moving any of them. It even calls three **identical** subspaces more diverse than most
# random triples, once their signs are chosen well:

# %%
identical = np.broadcast_to(bases[:1], bases.shape) * signs[:, :, None, :]
best_identical = log_repulsion(identical, angular_similarity).max()
triples = np.linalg.qr(rng.normal(size=(4000, num_components, num_features, num_latents)))[0]
random_triples = log_repulsion(triples, angular_similarity)
beaten = np.mean(random_triples < best_identical)
print(
    f"three identical subspaces, best signs: log det S = {best_identical:.2f}; more than {beaten:.0%} of random triples"
)

# %% [markdown]
# **Exercise 4.** Show that the lowest value of the paper's similarity is $e^{-2 \varrho d}$, attained by
# $V = -U$, and give it for $d = 4$, $\varrho = 0.1$. The paper's equation (9) has unit diagonals beside
# off-diagonals of another normalisation, $e^{\varrho \langle s, t\rangle}$: what is its determinant for two
# identical components?

# %%
# Answer: |s|^2 = |t|^2 = d because columns are orthonormal, so <s, t> >= -d, with equality at t = -s. Equation
# (9) gives 1 - exp(2 rho d) < 0 for identical components: it is the determinant of no similarity.
opposite = float(angular_similarity(jnp.stack([bases[0], -bases[0]]), 0.1)[0, 1])
as_printed = 1 - np.exp(2 * 0.1 * num_latents)
print(f"similarity of U and -U {opposite:.3f}; equation (9) for identical components {as_printed:.2f}")
assert np.isclose(opposite, np.exp(-2 * 0.1 * num_latents)) and np.isclose(as_printed, -1.23, atol=0.005)
normalised, fifth, sixth = (
    angular_similarity(jnp.asarray(bases), 0.1, form) for form in ("normalised", "equation_5", "equation_6")
)
assert np.allclose(fifth, normalised * np.exp(-0.1 * num_latents * (num_latents - 1)), rtol=1e-12)
assert np.allclose(sixth, normalised * np.exp(0.1 * num_latents), rtol=1e-12)

# %% [markdown]
# ## 6. What the prior prefers
#
# Weigh random pairs of bases by $\det(S)^\lambda$, the prior of two components, and look at how much their
# *subspaces* share: $\|U'V\|_F^2$, the sum of the squared cosines of the principal angles, $d^2/D = 1$ on
# average for random pairs, 0 for orthogonal ones, 4 for equal ones.

# %%
pairs = np.linalg.qr(rng.normal(size=(settings["bases"], 2, num_features, num_latents)))[0]
cosines = np.einsum("nfi,nfj->nij", pairs[:, 0], pairs[:, 1])
shared = np.sum(cosines**2, axis=(1, 2))
exponents = {"angular": cosines.sum(axis=(1, 2)) - num_latents, "subspace": shared - num_latents}
rows = {}
for name, exponent in exponents.items():
    log_det = np.log1p(-np.exp(2 * 0.1 * exponent))
    for weight in (0, 10, 30):
        share = np.exp(weight * (log_det - log_det.max()))
        share /= share.sum()
        mean = share @ shared
        rows[name, weight] = {
            "shared, mean": mean,
            "standard error": np.sqrt(share**2 @ (shared - mean) ** 2),
            "effective draws": 1 / np.sum(share**2),
        }
preferred = pd.DataFrame(rows).T.rename_axis(["kernel", "weight"])
preferred.round(4).astype({"effective draws": int})

# %% [markdown]
# The subspace kernel does what one asks for: the larger the weight, the less two components share. **The
# paper's kernel does the opposite.** Its best pair has $t = -s$, and two bases whose sums are opposite have at
# least that direction in common.
#
# **Exercise 5.** Prove it: if $\langle s, t\rangle = c$, then $\|U'V\|_F^2 \ge c^2 / d^2$.

# %%
# Answer: <s, t> = 1'U'V 1, and |1'A1| <= |1|^2 ||A|| <= d ||A||_F for the d x d matrix A = U'V.
assert np.all(shared >= (exponents["angular"] + num_latents) ** 2 / num_latents**2 - 1e-12)

# %% [markdown]
# How much is at stake? In a mixture of three components with $d = 4$ and $\varrho = 0.1$ the whole range of
# $\log\det S$ over all signs is a nat or two, so that the paper's weight $\lambda = 10$ moves its objective by
# some ten nats out of thousands. The next notebook, `repulsive_mixtures`, looks at what that does to a fit.
#
# **Exercise 6.** Is the sign problem cured by taking the best similarity over all signs? Which condition on a
# kernel may be lost?

# %%
# Answer: the largest similarity over signs sees components again, but a maximum of kernels need not be positive
# semi-definite, and then it has no determinantal process. A search among random planes with a large rho:
columns = np.linalg.qr(rng.normal(size=(2000, 6, 3, 2)))[0]  # six planes in three dimensions
inner = np.einsum("nkfi,nlfj->nklij", columns, columns)
four = np.array(list(product([1.0, -1.0], repeat=2)))
signed = np.einsum("ai,nklij,bj->nklab", four, inner, four).max(axis=(-2, -1))
smallest = np.linalg.eigvalsh(np.exp(4.0 * (signed - 2.0)))[:, 0]
print(
    f"smallest eigenvalue among 2000 sets of six planes: {smallest.min():.3f}; negative in {np.mean(smallest < 0):.0%}"
)
assert smallest.min() < -1e-3

# %% [markdown]
# ## What the text claims

# %%
# 1: a k-DPP spreads its points; draws of a known size
gain = distances["k-DPP"].mean() - distances["at random"].mean()
assert gain > 5 * np.hypot(*(own.std() for own in distances.values())) / np.sqrt(settings["draws"])
assert (spread_out.sum(axis=1) == num_points).all()

# 2: frequencies are the marginals (|z| > 5.5 for one of 121 items: a false alarm in 200 000 runs), a hole
# around the star, the border more often than the middle, pairs never more often than if independent
assert np.abs(z_items).max() < 5.5
neighbours = np.flatnonzero(np.abs(grid - grid[middle]).sum(axis=1) == 1)
assert given[neighbours].max() < 0.7 * np.diag(kernel)[neighbours].min()
far = np.abs(grid - grid[middle]).max(axis=1) >= 4
assert np.abs(given - np.diag(kernel))[far].max() < 0.01
border = (grid.min(axis=1) == 0) | (grid.max(axis=1) == side - 1)
assert np.diag(kernel)[border].min() > np.diag(kernel)[~border].mean()

# 3: neither the best items nor always the greedy ones are the best subset
for size in table:
    assert log_volume(table[size]["best items"]) < log_volume(table[size]["greedy"])
    assert log_volume(table[size]["greedy"]) <= log_volume(table[size]["best subset"]) + 1e-12

# 4, 5: signs change the paper's similarity and nothing else
assert np.allclose(likeness["subspace"], 1.0) and likeness["angular"].argmin() == 180
assert np.isclose(likeness["angular"][90], np.exp(-2 * rho))
assert np.ptp(repulsions["angular"]) > 0.8 and np.ptp(repulsions["subspace"]) < 1e-10
assert np.ptp(likelihoods) < 1e-9
assert beaten > 0.5

# 6: with the paper's kernel components share more, with the other less, than at random
error = preferred["standard error"]
for kernel_name, sign in (("angular", 1), ("subspace", -1)):
    moved = sign * (preferred["shared, mean"][kernel_name] - 1.0)
    assert moved[10] > 4 * error[kernel_name][10] and moved[30] > moved[10]
assert (preferred["effective draws"] > 500).all()

# %% [markdown]
# ## References
#
# - Kulesza, A. and Taskar, B. (2012). Determinantal point processes for machine learning. *Foundations and Trends in
#   Machine Learning* 5, 123-286.
# - Qiao, M., Liu, T., Yu, J., Bian, W. and Tao, D. (2020). Repulsive mixture models of exponential family PCA for
#   clustering. arXiv:2004.03112.

# %%
zoo.show_versions()
