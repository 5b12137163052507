"""A catalogue of mistakes over all models: a message names culprit and remedy, and the remedy works.

A remedy is read out of the message itself: the words of a case must stand in it, and are then evaluated and
put in the place of the mistake. By default the mended call must pass every check up to the plan of its run,
with nothing compiled; the slow run fits it.
"""

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
from jax import monitoring

import inference
import zoo
from inference.fitting import front_door

PEOPLE = [f"p{i}" for i in range(12)]
RNG = np.random.default_rng(0)
REAL = pd.DataFrame(RNG.normal(size=(12, 3)), columns=["age", "income", "visits"], index=PEOPLE)
BITS = pd.DataFrame(RNG.integers(0, 2, size=(12, 3)), columns=["a", "b", "c"], index=PEOPLE)
OUTPUTS = pd.DataFrame(RNG.normal(size=(12, 2)), columns=["score", "height"], index=PEOPLE)
KINDS = pd.Series(["x", "y"] * 6, index=PEOPLE, name="kind")
SHOPS = [f"s{i}" for i in range(8)]
COUNTS = pd.DataFrame(
    RNG.poisson(3.0, size=(8, 4)) + 1, columns=["tea", "milk", "bread", "salt"], index=SHOPS
)


def with_cell(table, row, column, value):
    table = table.astype(object if isinstance(value, str) else float).copy()
    table.loc[row, column] = value
    return table


def without_row(table, row="p3"):
    table = table.astype(float).copy()
    table.loc[row] = np.nan
    return table


CONSTANT = REAL.assign(income=True)  # numbers would be left out, as would a column without cells
WORDS = REAL.assign(region=["north", "south"] * 6)
WORDS_AND_ID = REAL.assign(person=PEOPLE, region=["north", "south"] * 6)
NEARLY = with_cell(REAL, "p3", "age", "n.a.")
DATES = REAL.assign(day=pd.date_range("2020-01-01", periods=12))
GAP = with_cell(REAL, "p3", "income", np.nan)
INFINITE = with_cell(REAL, "p3", "income", np.inf)
NO_CELLS = REAL.assign(income=np.nan).to_numpy()
TWICE = REAL.set_axis(["a", "b", "a"], axis=1)
EMPTY = without_row(REAL)
HUGE = REAL.assign(income=REAL["income"] * 1e200)


@dataclass
class Mistake:
    """A call that is refused, and the words of its message that mend it.

    ``place`` says what the words are: an expression in the part of the data that it names, fields of the
    model, arguments of the call, or a whole model; or the mended value is given as ``mended``.
    """

    model: str
    fields: dict
    data: tuple
    culprit: str
    told: str
    place: str
    call: dict = field(default_factory=dict)
    mended: Any = None

    def run(self):
        model = getattr(zoo, self.model) if isinstance(self.model, str) else self.model
        return inference.fit(model(**self.fields), *self.data, **self.call)

    def remedied(self):
        """The call with the remedy in the place of the mistake."""
        fields, data, call = dict(self.fields), list(self.data), dict(self.call)
        names = dict(zip(NAMES[self.model], data, strict=False)) | {"np": np, "pd": pd, "zoo": zoo}
        if self.mended is not None:
            if self.place == "data":
                data = list(self.mended)
            else:
                (fields if self.place == "fields" else call).update(self.mended)
        elif self.place == "fields":
            fields |= eval(f"dict({self.told})")
        elif self.place == "call":
            call |= eval(f"dict({self.told})")
        elif self.place.startswith("no "):
            (fields if self.place[3:] in fields else call).pop(self.place[3:])
        elif self.place == "all":  # and likewise of the others
            first = NAMES[self.model][0]
            data = [eval(self.told, names | {first: part}) for part in data]
        else:
            data[NAMES[self.model].index(self.place)] = eval(self.told, names)
        fields = {name: value for name, value in fields.items() if value is not None}
        return Mistake(self.model, fields, tuple(data), "", "", "", call)


NAMES = {
    "Mixture": ("x",), "PPCA": ("x",), "KernelPCA": ("x",), "EPCA": ("x",), "DEPCAM": ("x",), "MCFA": ("x",),
    "SPPCA": ("x", "y"), "Paired": ("y_0", "y_1"),
    "LDA": ("counts",), "PLSI": ("counts",), "PCP": ("counts",),
}  # fmt: skip
P, S = {"num_latents": 1}, {"num_latents": 1}
K = {"num_latents": 1, "noise_variance": 0.1}
E = {"num_latents": 1, "family": "gaussian"}
M = {"num_latents": 1, "num_components": 2}
D = {"num_components": 2, "num_latents": 1, "family": "gaussian", "sparsity": 1.0}
V = {"num_shared": 1, "families": ("gaussian", "gaussian")}
T, C = {"num_topics": 2}, {"num_topics": 2, "num_clusters": 2}
PROBIT = {"num_latents": 1, "output_likelihood": "probit", "loading_prior": "gaussian"}
DROP, WHICH = "x.drop(columns='income')", "column 'income'"
DELETE, LEAVE_REGION = "np.delete(x, 1, axis=1)", "families={'region': 'leave_out'}"
SPLIT = zoo.conjugate.Product(
    (zoo.conjugate.NormalGamma(), zoo.conjugate.NormalGamma()), (("age", "income"), ("visits",))
)
FINITE = "x.replace([np.inf, -np.inf], np.nan)"

MISTAKES = [
    # what tables hold
    Mistake("PPCA", P, (CONSTANT,), WHICH, DROP, "x"),
    Mistake("PPCA", P, (REAL.assign(income=1.0).to_numpy(),), "column 1", "np.delete(x, 1, axis=1)", "x"),
    Mistake("SPPCA", S, (CONSTANT, OUTPUTS), WHICH, DROP, "x"),
    Mistake("SPPCA", S, (REAL, OUTPUTS.assign(score=2.0)), "column 'score'", "y.drop(columns='score')", "y"),
    Mistake("MCFA", M, (CONSTANT,), WHICH, DROP, "x"),
    Mistake("PPCA", P, (WORDS,), "categories: region", LEAVE_REGION, "call"),
    Mistake("PPCA", P, (WORDS_AND_ID,), "categories: region", LEAVE_REGION, "call"),
    Mistake("KernelPCA", K, (WORDS,), "categories: region", LEAVE_REGION, "call"),
    Mistake("SPPCA", S, (WORDS, OUTPUTS), "categories: region", LEAVE_REGION, "call"),
    Mistake("PPCA", P, (NEARLY,), "row 'p3' has 'n.a.'", "families={'age': 'leave_out'}", "call"),
    Mistake(
        "SPPCA",
        S,
        (NEARLY, OUTPUTS),
        "row 'p3' has 'n.a.'",
        "write missing cells as NaN",
        "data",
        mended=(with_cell(REAL, "p3", "age", np.nan), OUTPUTS),
    ),
    Mistake("SPPCA", S, (REAL, WORDS), "column 'region' of y", "y.drop(columns='region')", "y"),
    Mistake(
        "SPPCA",
        S,
        (REAL, DATES[["day", "age"]]),
        "column 'day' of y",
        "y.assign(**{'day': (y['day'] - y['day'].min()).dt.days})",
        "y",
    ),
    # what is said of columns
    Mistake(
        "Mixture",
        {"num_components": 2},
        (WORDS,),
        "families names no column: 'agee'",
        "there are age, income",
        "call",
        {"families": {"agee": "gaussian"}},
        {"families": {"age": "gaussian"}},
    ),
    Mistake(
        "Mixture",
        {"num_components": 2},
        (WORDS,),
        "families gives 'age' the kind 'normal'",
        "there are gaussian",
        "call",
        {"families": {"age": "normal"}},
        {"families": {"age": "gaussian"}},
    ),
    Mistake(
        "EPCA",
        P,
        (WORDS,),
        "column 'region' has 'south' in row 'p1'",
        "none of its levels north, west",
        "call",
        {"levels": {"region": ["north", "west"]}},
        {"levels": {"region": ["north", "south"]}},
    ),
    Mistake(
        "EPCA",
        P,
        (WORDS,),
        "levels of 'region' must be a list of at least two names",
        "got ['north']",
        "call",
        {"levels": {"region": ["north"]}},
        {"levels": {"region": ["north", "south"]}},
    ),
    Mistake(
        "PPCA", P, (REAL,), "id names no column: 'person'", "there are age, income", "no id", {"id": "person"}
    ),
    Mistake(
        "PPCA",
        P,
        (REAL.to_numpy(),),
        "families names columns, and there is no DataFrame",
        "pass one",
        "no families",
        {"families": {"age": "gaussian"}},
    ),
    Mistake(
        "Mixture",
        {"num_components": 2, "components": zoo.conjugate.PoissonGamma()},
        (COUNTS.assign(milk=0).to_numpy(),),
        "column 1 of x has mean 0",
        "np.delete(x, 1, axis=1)",
        "x",
    ),
    Mistake(
        "Mixture",
        {"num_components": 2, "components": SPLIT},
        (NEARLY.assign(age=REAL["age"], visits=CONSTANT["income"]),),
        "column 'visits' of x is constant",
        "leave it out",
        "data",
        mended=(REAL,),
    ),
    Mistake("KernelPCA", K, (GAP,), "row 'p3', column 'income' is nan", "x.dropna()", "x"),
    Mistake(
        "KernelPCA", K, (GAP.to_numpy(),), "row 3, column 1 is nan", "x[np.isfinite(x).all(axis=1)]", "x"
    ),
    Mistake("KernelPCA", K, (NO_CELLS,), "column 1", DELETE, "x"),
    Mistake(
        "KernelPCA",
        K,
        (INFINITE,),
        "row 'p3', column 'income' is inf",
        "x.loc[~np.isinf(x).any(axis=1)]",
        "x",
    ),
    Mistake("PPCA", P, (INFINITE,), "row 'p3', column 'income' is inf", FINITE, "x"),
    Mistake(
        "PPCA", P, (INFINITE.to_numpy(),), "row 3, column 1 is inf", "np.where(np.isinf(x), np.nan, x)", "x"
    ),
    Mistake("EPCA", E, (INFINITE,), "row 'p3', column 'income' is inf", FINITE, "x"),
    Mistake("DEPCAM", D, (INFINITE,), "row 'p3', column 'income' is inf", FINITE, "x"),
    Mistake("Mixture", {"num_components": 2}, (REAL.assign(income=1.0).to_numpy(),), "column 1", DELETE, "x"),
    Mistake(
        "Paired",
        V,
        (INFINITE, OUTPUTS),
        "row 'p3', column 'income' is inf",
        "y_0.replace([np.inf, -np.inf], np.nan)",
        "y_0",
    ),
    Mistake("PPCA", P, (NO_CELLS,), "column 1", DELETE, "x"),
    Mistake("EPCA", E, (NO_CELLS,), "column 1", DELETE, "x"),
    Mistake("DEPCAM", D, (NO_CELLS,), "column 1", DELETE, "x"),
    Mistake("SPPCA", S, (NO_CELLS, OUTPUTS.to_numpy()), "column 1", DELETE, "x"),
    Mistake("Paired", V, (NO_CELLS, OUTPUTS.to_numpy()), "column 1", "np.delete(y_0, 1, axis=1)", "y_0"),
    Mistake("PPCA", P, (EMPTY,), "row 'p3'", "x.dropna(how='all')", "x"),
    Mistake("EPCA", E, (EMPTY,), "row 'p3'", "x.dropna(how='all')", "x"),
    Mistake("DEPCAM", D, (EMPTY.to_numpy(),), "row 3", "np.delete(x, 3, axis=0)", "x"),
    Mistake("SPPCA", S, (EMPTY, without_row(OUTPUTS)), "row 'p3'", "x.drop(index='p3')", "all"),
    Mistake("Paired", V, (EMPTY, without_row(OUTPUTS)), "row 'p3'", "y_0.drop(index='p3')", "all"),
    Mistake("PPCA", P, (TWICE,), "2 columns of the name 'a'", "x.set_axis(['a', 'b', 'a_2'], axis=1)", "x"),
    Mistake(
        "PPCA",
        P,
        (REAL["age"],),
        "got (12,)",
        "x.to_frame()",
        "data",
        mended=(pd.concat([REAL["age"].to_frame(), REAL["income"]], axis=1),),
    ),
    Mistake(
        "PPCA",
        P,
        (HUGE,),
        WHICH,
        "rescale the column",
        "data",
        mended=(HUGE.assign(income=HUGE["income"] * 1e-200),),
    ),
    Mistake(
        "LDA",
        T,
        (with_cell(COUNTS, "s2", "milk", np.nan),),
        "row 's2', column 'milk' is nan",
        "counts.fillna(0)",
        "counts",
    ),
    Mistake(
        "PCP",
        C,
        (with_cell(COUNTS, "s2", "milk", 1.5),),
        "row 's2', column 'milk' is 1.5",
        "counts.round()",
        "counts",
    ),
    Mistake(
        "LDA",
        T,
        (with_cell(COUNTS, "s2", "milk", -1),),
        "row 's2', column 'milk' is -1",
        "a count is not negative",
        "data",
        mended=(COUNTS,),
    ),
    Mistake(
        "PLSI",
        T,
        (COUNTS[["tea"]],),
        "a vocabulary of one word",
        "at least 2 columns",
        "data",
        mended=(COUNTS[["tea", "milk"]],),
    ),
    Mistake(
        "LDA", T, (COUNTS * 0,), "holds no word at all", "every document is empty", "data", mended=(COUNTS,)
    ),
    # families of cells
    Mistake(
        "EPCA", P | {"family": "bernoulli"}, (REAL,), "row 'p0', column 'age'", "family='gaussian'", "fields"
    ),
    Mistake(
        "EPCA", P | {"family": "bernoulli"}, (COUNTS,), "row 's0', column 'tea'", "family='poisson'", "fields"
    ),
    Mistake(
        "DEPCAM",
        D | {"family": "bernoulli"},
        (REAL,),
        "row 'p0', column 'age'",
        "family='gaussian'",
        "fields",
    ),
    Mistake("DEPCAM", D | {"family": "poisson"}, (REAL,), "column 'age'", "family='gaussian'", "fields"),
    Mistake(
        "Paired",
        V | {"families": ("bernoulli", "bernoulli")},
        (BITS, OUTPUTS),
        "y_1 must hold 0 or 1; row 'p0', column 'score'",
        "'gaussian' in families",
        "fields",
        mended={"families": ("bernoulli", "gaussian")},
    ),
    # sizes
    Mistake("PPCA", {"num_latents": 20}, (REAL,), "num_latents", "num_latents=2", "fields"),
    Mistake(
        "SPPCA",
        {"num_latents": 20},
        (REAL, OUTPUTS),
        "num_latents",
        "num_latents=11",
        "fields",
        mended={"num_latents": 2},
    ),
    Mistake("EPCA", E | {"num_latents": 20}, (REAL,), "num_latents", "num_latents=3", "fields"),
    Mistake("DEPCAM", D | {"num_latents": 20}, (REAL,), "num_latents", "num_latents=3", "fields"),
    Mistake("DEPCAM", D | {"num_components": 50}, (REAL,), "num_components", "num_components=12", "fields"),
    Mistake(
        "KernelPCA",
        K | {"num_latents": 20},
        (REAL,),
        "number of rows, 12; got 20",
        "num_latents=11",
        "fields",
    ),
    Mistake(
        "Paired",
        V | {"num_shared": 50},
        (REAL, OUTPUTS),
        "50 shared",
        "lower num_shared",
        "fields",
        mended={"num_shared": 1},
    ),
    # parts of the data
    Mistake(
        "SPPCA",
        S,
        (REAL.to_numpy(), OUTPUTS.to_numpy()[:5]),
        "x has 12 and y has 5",
        "a row that one lacks is NaN in it",
        "data",
        mended=(REAL.to_numpy(), np.vstack([OUTPUTS.to_numpy()[:5], np.full((7, 2), np.nan)])),
    ),
    Mistake(
        "SPPCA",
        S,
        (REAL,),
        "y is missing",
        "SPPCA takes 2 parts of data, x and y",
        "data",
        mended=(REAL, OUTPUTS),
    ),
    Mistake(
        "SPPCA",
        S,
        (REAL, OUTPUTS.rename(index={"p3": "q"})),
        "x has a row 'p3', which y lacks",
        "y.to_numpy()",
        "y",
    ),
    Mistake(
        "SPPCA",
        S,
        (REAL, pd.concat([OUTPUTS, OUTPUTS.tail(1).rename(index={"p11": "q"})])),
        "y has a row 'q'",
        "y.loc[x.index]",
        "y",
    ),
    Mistake(
        "PPCA",
        P,
        (REAL, KINDS),
        "PPCA takes 1 part of data, x; got 2",
        "class labels and outputs go with zoo.SPPCA",
        "data",
        mended=(REAL,),
    ),
    Mistake(
        "Paired", V, (REAL, OUTPUTS, BITS), "got 3", "leave the others out", "data", mended=(REAL, OUTPUTS)
    ),
    Mistake(
        "Paired",
        V,
        (REAL.to_numpy(), OUTPUTS.to_numpy()[:5]),
        "y_0 has 12 and y_1 has 5",
        "a row that one lacks is NaN in it",
        "data",
        mended=(REAL.to_numpy(), np.vstack([OUTPUTS.to_numpy()[:5], np.full((7, 2), np.nan)])),
    ),
    # outputs
    Mistake(
        "SPPCA",
        PROBIT,
        (REAL, pd.Series(["x", "y"] * 5 + ["x", "z"], index=PEOPLE)),
        "class 'z' of y has one example, row p11",
        "y.where(y != 'z')",
        "y",
    ),
    Mistake(
        "SPPCA",
        S,
        (REAL, pd.Series(["x"] * 12, index=PEOPLE)),
        "every label is 'x'",
        "give rows of another class",
        "data",
        mended=(REAL, KINDS),
    ),
    Mistake(
        "SPPCA",
        PROBIT,
        (REAL, OUTPUTS),
        "row 'p0', column 'score' of y",
        "output_likelihood='gaussian'",
        "fields",
    ),
    Mistake(
        "SPPCA",
        S | {"kernel": "linear"},
        (GAP, OUTPUTS),
        "row 'p3', column 'income'",
        "kernel=None",
        "fields",
    ),
    # methods and their options
    Mistake(
        "Mixture",
        {"num_components": 2},
        (REAL,),
        "no method 'gibs'",
        "did you mean gibbs",
        "call",
        {"method": "gibs"},
        {"method": "gibbs"},
    ),
    Mistake(
        "PCP", C, (COUNTS,), "no method 'vbb'", "did you mean vb", "call", {"method": "vbb"}, {"method": "vb"}
    ),
    Mistake(
        "PPCA",
        P,
        (REAL,),
        "no option 'num_sample'",
        "did you mean num_samples",
        "no num_sample",
        {"num_sample": 5},
    ),
    Mistake(
        "LDA",
        T,
        (COUNTS,),
        "no option 'inner_step'",
        "did you mean inner_steps",
        "no inner_step",
        {"inner_step": 5},
    ),
    Mistake("PPCA", P, (REAL,), "vb needs a proper prior", "loading_prior='ard'", "fields", {"method": "vb"}),
    Mistake(
        "SPPCA",
        S,
        (REAL, OUTPUTS),
        "'ep'",
        "output_likelihood='probit'",
        "call",
        {"method": "ep"},
        {"method": "em"},
    ),
    Mistake("EPCA", E, (REAL,), "batch_size", "leave it out", "no batch_size", {"batch_size": 4}),
    Mistake(
        "PLSI",
        T,
        (COUNTS,),
        "sample_weight",
        "leave it out",
        "no sample_weight",
        {"sample_weight": np.ones(8)},
    ),
    Mistake(
        "PPCA",
        P,
        (REAL,),
        "row p0 has -1.0",
        "0 leaves a row out",
        "call",
        {"method": "em", "sample_weight": pd.Series([-1.0] + [1.0] * 11, index=PEOPLE)},
        {"sample_weight": pd.Series([0.0] + [1.0] * 11, index=PEOPLE)},
    ),
    Mistake(
        "KernelPCA",
        K,
        (REAL,),
        "has no start",
        "leave init out",
        "no init",
        {"method": "closed_form", "init": "random"},
    ),
    Mistake(
        "Mixture",
        {"num_components": 2},
        (REAL,),
        "got 'kmeanss'",
        "kmeans",
        "call",
        {"init": "kmeanss"},
        {"init": "kmeans"},
    ),
    Mistake(
        "KernelPCA",
        K,
        (REAL,),
        "nuts needs a prior of the latents",
        "give latent_variance",
        "fields",
        {"method": "nuts"},
        {"latent_variance": 1.0},
    ),
    Mistake(
        "Paired",
        V | {"families": ("bernoulli", "bernoulli")},
        (BITS, BITS),
        "closed_form is for Gaussian views",
        "method='map'",
        "call",
        {"method": "closed_form"},
    ),
    # fields
    Mistake(
        "PPCA",
        {"num_latent": 1},
        (REAL,),
        "PPCA has no field 'num_latent'",
        "did you mean num_latents",
        "no num_latent",
    ),
    Mistake(
        "EPCA",
        {"families": "gaussian", "num_latents": 1},
        (REAL,),
        "EPCA has no field 'families'",
        "did you mean family",
        "fields",
        mended={"families": None, "family": "gaussian"},
    ),
    Mistake(
        "PPCA",
        {"loading_prior": "ridge"},
        (REAL,),
        "loading_prior must be one of",
        "gaussian",
        "fields",
        mended={"loading_prior": "gaussian"},
    ),
    Mistake(
        "Mixture",
        {"concentration": -1.0},
        (REAL,),
        "concentration must be a positive number",
        "got -1",
        "fields",
        mended={"concentration": 1.0},
    ),
    Mistake(
        "EPCA",
        P | {"family": "normal"},
        (REAL,),
        "no family is called 'normal'",
        "gaussian",
        "fields",
        mended={"family": "gaussian"},
    ),
    Mistake(
        "KernelPCA",
        {"kernel": "gauss", "noise_variance": 0.1},
        (REAL,),
        "no kernel is called 'gauss'",
        "rbf",
        "fields",
        mended={"kernel": "rbf"},
    ),
    Mistake(
        "KernelPCA",
        {"kernel": "rbf"},
        (REAL,),
        "noise_variance must be given with the kernel RBF",
        "noise_variance=0.01",
        "fields",
    ),
    Mistake("EPCA", E | {"ard": True, "beta": 1.0}, (REAL,), "ard=True goes with", "beta=0", "fields"),
    Mistake(
        "SPPCA",
        S | {"kernel": "linear", "standardize": True},
        (REAL, OUTPUTS),
        "standardize=True goes with",
        "kernel=None",
        "fields",
    ),
    Mistake(
        "Paired",
        V | {"specific": "full"},
        (REAL, OUTPUTS),
        "specific must be one of low_rank",
        "low_rank",
        "fields",
        mended={"specific": "low_rank"},
    ),
    Mistake(
        "PPCA",
        P | {"num_features": 5},
        (REAL,),
        "x must have 5 columns",
        "leave num_features out",
        "no num_features",
    ),
]
IDS = [f"{place}-{mistake.model}-{mistake.culprit[:24]}" for place, mistake in enumerate(MISTAKES)]


class Planned(Exception):
    """The call has passed every check."""


@pytest.fixture
def planned(monkeypatch):
    """Runs end where they would be planned, and nothing is compiled before."""

    def stop(request):
        raise Planned

    monkeypatch.setattr(front_door, "plan", stop)


def message_of(mistake):
    """The message of a refusal, in one line, before anything is traced or compiled."""
    seen = []

    def note(event, duration, **details):
        if "/jax/core/compile" in event:
            seen.append(event)

    monitoring.register_event_duration_secs_listener(note)
    try:
        with pytest.raises((TypeError, ValueError)) as caught:
            mistake.run()
    finally:
        monitoring.unregister_event_duration_listener(note)
    assert not seen
    return str(caught.value)


def test_the_catalogue_is_of_every_model():
    assert len(MISTAKES) >= 60
    assert {mistake.model for mistake in MISTAKES} == {entry["class"] for entry in zoo.MODELS.values()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mistake", MISTAKES, ids=IDS)
def test_the_message_names_culprit_and_remedy_and_the_remedy_is_accepted(mistake, planned):
    message = message_of(mistake)
    assert "\n" not in message
    assert mistake.culprit in message, message
    assert mistake.told in message, message
    with pytest.raises(Planned):
        mistake.remedied().run()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mistake", MISTAKES, ids=IDS)
def test_the_remedy_is_a_fit(mistake):
    mended = mistake.remedied()
    small = {"max_iterations": 3, "num_samples": 3, "num_warmup": 3, "num_chains": 2, "num_restarts": 1}
    mended.call = small | mended.call
    tree = mended.run()
    assert np.isfinite(tree["trace"]["objective"].values[..., -1:]).all()


@pytest.mark.parametrize("table", [REAL, REAL.to_numpy()], ids=["names", "places"])
def test_labels_last_as_long_as_their_array(table):
    """The labels are kept beside the array, and an array at the same address later has none of them."""
    from zoo import checks

    array = checks.as_matrix(table)
    named = isinstance(table, pd.DataFrame)
    assert checks.column_of(array, 1) == ("column 'income'" if named else "column 1")
    assert checks.row_of(array, 3) == ("row 'p3'" if named else "row 3")
    key = id(array)
    assert (key in checks._LABELS) == named
    del array
    assert key not in checks._LABELS
    assert checks.column_of(np.zeros((12, 3)), 1) == "column 1"


def test_a_planted_message_without_its_remedy_fails(planned, monkeypatch):
    """The catalogue can fail: a constant column named by its place, and without a remedy, is found."""
    from zoo import checks

    mistake = MISTAKES[0]
    monkeypatch.setattr(checks, "kept_labels", lambda array: None)
    assert mistake.culprit not in message_of(mistake)
    monkeypatch.undo()
    monkeypatch.setattr(checks, "without_columns", lambda *_: "")
    assert mistake.told not in message_of(mistake)


def test_a_class_or_a_name_is_not_a_model():
    for given in (zoo.PPCA, "ppca"):
        with pytest.raises(TypeError, match=r"make one, zoo\.PPCA\(\)"):
            inference.fit(given, REAL)


def test_warnings_are_not_needed_to_see_a_mistake():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="column 'income' of x is constant"):
            inference.fit(zoo.PPCA(num_latents=1), CONSTANT)
