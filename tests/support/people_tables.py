"""Tables as people have them, drawn with a seed: customers, a survey answered in words, sales counts.

Each is a DataFrame as ``pandas.read_csv`` gives it, with the truth that it was drawn from.
"""

import numpy as np
import pandas as pd

REGIONS = ("north", "south", "east", "west", "centre")
PLANS = ("basic", "family", "business")
FREQUENCIES = ("never", "rarely", "sometimes", "often", "always")
AGREEMENT = ("strongly disagree", "disagree", "neutral", "agree", "strongly agree")


def customers(num_rows=360, seed=0):
    """Three groups of customers, by words, categories, dates, counts, incomes and ages with missing cells.

    Returns:
        The table, and the group of each row, shape (num_rows,).
    """
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.arange(num_rows) % 3)

    def word(names, probs):
        return [names[rng.choice(len(names), p=probs[g])] for g in group]

    regions = [[0.7, 0.1, 0.1, 0.05, 0.05], [0.05, 0.1, 0.7, 0.1, 0.05], [0.05, 0.05, 0.1, 0.1, 0.7]]
    table = pd.DataFrame(
        {
            "customer_id": [f"C{number:05d}" for number in rng.permutation(10 * num_rows)[:num_rows]],
            "age": np.round(rng.normal(np.array([27.0, 45.0, 63.0])[group], 5.0), 1),
            "income": np.round(np.exp(rng.normal(np.array([10.0, 10.9, 10.3])[group], 0.3)), 2),
            "visits": rng.poisson(np.array([9.0, 2.0, 4.0])[group]),
            "smoker": np.where(rng.random(num_rows) < np.array([0.6, 0.1, 0.3])[group], "yes", "no"),
            "region": word(REGIONS, regions),
            "plan": word(PLANS, [[0.8, 0.1, 0.1], [0.1, 0.2, 0.7], [0.1, 0.8, 0.1]]),
            "exercise": word(
                FREQUENCIES,
                [[0.05, 0.05, 0.2, 0.3, 0.4], [0.3, 0.3, 0.2, 0.1, 0.1], [0.1, 0.2, 0.4, 0.2, 0.1]],
            ),
            "joined": (
                pd.Timestamp("2021-03-01")
                + pd.to_timedelta(
                    np.round(rng.normal(np.array([900.0, 500.0, 120.0])[group], 60.0)), unit="D"
                )
            ).strftime("%Y-%m-%d"),
            "comment": [f"note {number}" for number in rng.integers(0, 3 * num_rows, num_rows)],
        }
    )
    for column in ("age", "income", "visits", "smoker", "region", "joined"):
        table.loc[rng.random(num_rows) < 0.05, column] = None if table[column].dtype == object else np.nan
    return table, group


def survey(num_rows=300, num_questions=12, seed=0):
    """Answers in words to questions of two scales, driven by two latents of the persons.

    Returns:
        The table, and the latents, shape (num_rows, 2).
    """
    rng = np.random.default_rng(seed)
    latents = rng.normal(size=(num_rows, 2))
    half = num_questions // 2
    loadings = np.zeros((num_questions, 2))
    loadings[:half, 0] = rng.uniform(1.5, 2.5, half) * rng.choice([-1, 1], half)
    loadings[half:, 1] = rng.uniform(1.5, 2.5, num_questions - half) * rng.choice(
        [-1, 1], num_questions - half
    )
    score = latents @ loadings.T + rng.logistic(size=(num_rows, num_questions))
    level = np.digitize(score, [-2.5, -0.8, 0.8, 2.5])
    columns = {"respondent": np.arange(1001, 1001 + num_rows)}
    for question in range(num_questions):
        scale = FREQUENCIES if question < half else AGREEMENT
        words = np.array(scale, dtype=object)[level[:, question]]
        words[rng.random(num_rows) < 0.03] = None
        columns[f"q{question + 1}"] = words
    return pd.DataFrame(columns), latents


def sales(num_rows=150, num_products=30, num_topics=3, seed=0):
    """Numbers of products sold by shop, drawn from topics with separate favourite products.

    Returns:
        The table with a column of shops, and the topics, shape (num_topics, num_products).
    """
    rng = np.random.default_rng(seed)
    topics = np.full((num_topics, num_products), 0.2)
    for topic, products in enumerate(np.array_split(np.arange(num_products), num_topics)):
        topics[topic, products] = rng.uniform(3.0, 9.0, len(products))
    topics /= topics.sum(axis=1, keepdims=True)
    shares = rng.dirichlet(np.full(num_topics, 0.3), num_rows)
    counts = rng.multinomial(rng.poisson(150, num_rows), shares @ topics)
    names = [f"product {number + 1}" for number in range(num_products)]
    table = pd.DataFrame(counts, columns=names)
    table.insert(0, "shop", [f"shop {number:03d}" for number in range(num_rows)])
    return table, topics
