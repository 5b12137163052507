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
# # From a table to a report
#
# **Goals.** After this notebook you can
#
# - read a table of mixed columns from a file, and see and overrule how each column was taken;
# - fit a mixture to it, a projection to survey answers in words, and topics to counts;
# - write a report of each, and find names of columns and levels again in the draws.
#
# **Duration.** Three quarters of an hour with the exercise. The computer takes about a minute at full size on two
# cores, under a minute with `ZOO_NOTEBOOK_SIZE=small`. Numbers quoted in the text are those of the full size.
#
# Three tables as people have them: customers with words, dates, ids and missing cells; a survey answered in words; sales counts of shops. Each is read from a CSV file, fitted and reported, with nothing said of its columns. A table (a DataFrame, or a file on the command line) is read by what its columns hold; an array is numbers and stays as it is.
#
# The tables are drawn here from a known truth, so that the answers can be checked; the last section does. On the command line the same is `zoo fit mixture customers.csv`, then `zoo report mixture-customers.nc`.

# %%
from inference.course import SIZE, inference, np, pd, plt, quiet, show_page, zoo

# %% [markdown]
# ## Customers: a mixture of whatever the columns hold
#
# Three kinds of customers differ in age, income, visits, habits, region and the date on which they joined; a twentieth of the cells is missing, and there is an id and a column of comments.

# %%
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
group = rng.permutation(np.arange(150 if SIZE == "small" else 360) % 3)
regions, moods = np.array(["north", "south", "east"]), np.array(["never", "sometimes", "often", "always"])
probs = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
drawn = pd.DataFrame(
    {
        "customer_id": [f"C{number:04d}" for number in rng.permutation(len(group))],
        "age": rng.normal(np.array([27.0, 45.0, 63.0])[group], 5.0).round(1),
        "income": np.exp(rng.normal(np.array([10.0, 10.9, 10.3])[group], 0.3)).round(2),
        "visits": rng.poisson(np.array([9.0, 2.0, 4.0])[group]),
        "smoker": np.where(rng.random(len(group)) < np.array([0.7, 0.1, 0.3])[group], "yes", "no"),
        "region": [regions[rng.choice(3, p=probs[g])] for g in group],
        "exercise": [moods[min(rng.poisson(rate), 3)] for rate in np.array([2.5, 0.4, 1.2])[group]],
        "joined": pd.Timestamp("2021-03-01")
        + pd.to_timedelta(rng.normal(np.array([900.0, 500.0, 120.0])[group], 60.0).round(), unit="D"),
        "comment": [f"note {number}" for number in rng.integers(0, 10**6, len(group))],
    }
).astype({"smoker": object})
for column in ("age", "income", "smoker", "region"):
    drawn.loc[rng.random(len(group)) < 0.05, column] = np.nan
drawn.loc[0, "comment"] = drawn.loc[1, "comment"]  # people repeat themselves
drawn.to_csv(folder / "customers.csv", index=False)

# %% [markdown]
# What the file holds, and why it is taken so. The comments are left out, and named.

# %%
from zoo.intake import read_columns

table = pd.read_csv(folder / "customers.csv")
read_columns(table).table()

# %% [markdown]
# From the file to the report in four lines. Kinds differ, so that the components are a product of families, independent given the cluster: a joint Gaussian of the real columns (of the logarithms where one is skewed), Poisson, Bernoulli and categorical ones. Missing cells are integrated out.

# %%
from inference.report import report

with quiet("columns left out: comment"):
    table = pd.read_csv(folder / "customers.csv")
    customers = inference.fit(zoo.Mixture(num_components=6), table, num_samples=200)
    report(customers, folder / "customers.html")

found = inference.predict(customers, table)
crossed = pd.crosstab(found.to_series().to_numpy(), group, rownames=["cluster"], colnames=["truth"])
crossed

# %% [markdown]
# This is the report, whole, as a browser shows it: scroll in it, fold its parts open. It is one file that asks for nothing from
# the network, so that it can be sent to the person who asked.

# %%
show_page(folder / "customers.html", "The report of the mixture of customers")

# %% [markdown]
# Levels and columns keep their names in the draws: where do the clusters live?

# %%
posterior = customers["posterior"]
place = next(name[-1] for name in posterior.dims if name.startswith("level") and "north" in posterior[name])
where = posterior[f"probs_{place}"].mean(("chain", "draw")).squeeze(f"feature_{place}").to_pandas()
where.loc[crossed.index].round(2)

# %% [markdown]
# ## A survey in words: ordinal projections
#
# Words of a common scale, such as never to always, are ordered levels. `zoo.EPCA` then takes ordinal cells; the two latents that drove the answers come back, up to a rotation.

# %%
scale = np.array(["strongly disagree", "disagree", "neutral", "agree", "strongly agree"], dtype=object)
latents = rng.normal(size=(100 if SIZE == "small" else 300, 2))
loadings = np.zeros((10, 2))
loadings[:5, 0], loadings[5:, 1] = rng.uniform(1.5, 2.5, 5), -rng.uniform(1.5, 2.5, 5)
score = latents @ loadings.T + rng.logistic(size=(len(latents), 10))
answers = pd.DataFrame(
    scale[np.digitize(score, [-2.5, -0.8, 0.8, 2.5])], columns=[f"q{i + 1}" for i in range(10)]
)
answers = answers.mask(rng.random(answers.shape) < 0.03)
answers.insert(0, "respondent", np.arange(1001, 1001 + len(answers)))
answers.to_csv(folder / "survey.csv", index=False)

# %%
table = pd.read_csv(folder / "survey.csv")
survey = inference.fit(zoo.EPCA(num_latents=2), table)
report(survey, folder / "survey.html")
print(read_columns(table))

# %% mystnb={"image": {"alt": "Two scatter plots, one for each latent: what was recovered from the survey's answers against the latent as it was drawn."}}
scores = np.column_stack([inference.transform(survey, table), np.ones(len(latents))])
rest = latents - scores @ np.linalg.lstsq(scores, latents, rcond=None)[0]
explained = 1 - rest.var(axis=0) / latents.var(axis=0)
figure, axes = plt.subplots(1, 2, figsize=(7, 3.2), sharex=True, sharey=True)
for latent, axis in enumerate(axes):
    axis.scatter(latents[:, latent], latents[:, latent] - rest[:, latent], s=9)
    axis.set(xlabel=f"latent {latent}, as drawn", title=f"{explained[latent]:.0%} explained")
axes[0].set_ylabel("from the answers")
plt.show()

# %% [markdown]
# ## Sales: topics of shops
#
# Counts of products by shop are documents: products are words. The column of shops labels the rows.

# %%
topics = np.full((3, 24), 0.2)
for topic in range(3):
    topics[topic, 8 * topic : 8 * topic + 8] = rng.uniform(3.0, 9.0, 8)
topics /= topics.sum(axis=1, keepdims=True)
shops = 60 if SIZE == "small" else 150
counts = rng.multinomial(rng.poisson(150, shops), rng.dirichlet(np.full(3, 0.3), shops) @ topics)
drawn = pd.DataFrame(counts, columns=[f"product {number + 1}" for number in range(24)])
drawn.insert(0, "shop", [f"shop {number:03d}" for number in range(shops)])
drawn.to_csv(folder / "sales.csv", index=False)

# %%
table = pd.read_csv(folder / "sales.csv")
sales = inference.fit(zoo.LDA(num_topics=3), table, num_samples=200)
report(sales, folder / "sales.html")
words = sales["posterior"]["topic_word_probs"].mean(("chain", "draw"))
words.to_pandas().T.round(3).head(10)

# %% [markdown]
# ## Exercise
#
# 1. Visits are counts, and were taken as such. Say that they are real numbers instead. Which family do they get?
# 2. Every decision can be overruled by name. Make `exercise` plain categories, and leave the region out.

# %%
# Answer
overruled = read_columns(
    pd.read_csv(folder / "customers.csv"),
    families={"visits": "gaussian", "exercise": "categorical", "region": "leave_out"},
)
kinds = {column.name: column.kind for column in overruled.columns}
assert (kinds["visits"], kinds["exercise"]) == ("real", "category")
assert "region" in [column.name for column in overruled.left_out]

# %% [markdown]
# ## What was claimed

# %%
from itertools import permutations

assert crossed.max(axis=1).sum() > 0.95 * len(group), crossed
assert len(crossed) <= 4
large = crossed.index[crossed.sum(axis=1) > 0.1 * len(group)]  # two rows say little of a region
assert len(large) == 3 and (where.loc[large].max(axis=1) > 0.5).all()
kinds = {type(family).__name__ for family in inference.model_of(customers).components.families}
assert {"GaussianWishart", "PoissonGamma", "BernoulliBeta", "CategoricalDirichlet"} <= kinds
assert type(inference.model_of(survey).family).__name__ == "Ordinal"
assert (explained > 0.7).all(), explained
distance = min(
    np.abs(words.values[list(order)] - topics).sum(axis=1).max() / 2 for order in permutations(range(3))
)
assert distance < 0.15, distance
for name in ("customers", "survey", "sales"):
    assert (folder / f"{name}.html").stat().st_size > 10_000

# %% [markdown]
# ## References
#
# - Blei, D. M., Ng, A. Y. and Jordan, M. I. (2003). Latent Dirichlet allocation. *Journal of Machine Learning
#   Research* 3, 993-1022.
# - McCullagh, P. (1980). Regression models for ordinal data. *Journal of the Royal Statistical Society B* 42,
#   109-142.
# - Virtanen, S. (2010). *Bayesian exponential family projections*. Master's thesis, Aalto University School of
#   Science and Technology, Espoo.
# - Yu, S. (2006). *Advanced Probabilistic Models for Clustering and Projection*. Dissertation,
#   Ludwig-Maximilians-Universität München.

# %%
zoo.show_versions()
