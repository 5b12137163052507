"""A film changes no number of a fit, shows its states, and bears the numbers of its tables."""

import html
import json
import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import chi2

import inference
import zoo
from inference.cli import main
from inference.convergence import psrf
from inference.convergence.identifiable import invariants
from inference.driver.frames import EARLY, MOST, Frames, filmed
from inference.plots import film as film_of
from inference.plots.films import _MOST_BYTES, _events
from inference.symmetry import relabel
from tests.support.interruptions import same
from zoo.exponential_family import Exponential

CHAINS = {"num_chains": 2, "num_warmup": 30, "num_samples": 45, "seed": 1}
CALLS = {
    "vb": {"num_restarts": 2, "num_samples": 30},
    "em": {"num_restarts": 2},
    "gibbs": CHAINS,
    "collapsed_gibbs": CHAINS,
}
pytestmark = pytest.mark.filterwarnings("ignore:mixture by .*")


def model_for(method, x):
    """A mixture that all four methods take."""
    return zoo.Mixture.from_data(x, num_components=3, concentration=1.0)


@pytest.fixture(scope="module")
def films(two_clusters):
    """A film by each method, made when it is first asked for."""
    made = {}

    def film(method):
        if method not in made:
            made[method] = film_of(
                model_for(method, two_clusters), two_clusters, method=method, **CALLS[method]
            )
        return made[method]

    return film


def payload(page):
    """What the script of a page is given."""
    return json.loads(re.search(r'<script type="application/json" id="film">(.*?)</script>', page)[1])


# Costly: a fit twice; the methods' loops are those of all others.
@pytest.mark.cases_by_default(3)
@pytest.mark.parametrize("method", ["vb", "gibbs", "collapsed_gibbs", "em"])
def test_a_film_changes_no_number_of_a_fit(method, films, two_clusters):
    same(
        films(method).tree,
        inference.fit(model_for(method, two_clusters), two_clusters, method=method, **CALLS[method]),
    )


def test_a_frame_is_where_a_run_of_so_many_iterations_ends(two_clusters):
    model, call = model_for("em", two_clusters), {"method": "em", "num_restarts": 1, "tolerance": 0}
    with filmed() as frames:
        inference.fit(model, two_clusters, max_iterations=60, **call)
    assert frames.numbers == [*range(1, 61)]
    for number in (1, 7, 60):
        short = inference.fit(model, two_clusters, max_iterations=number, **call)["posterior"]["locs"].values
        own = frames.trees[number - 1]["posterior"]["locs"].values
        np.testing.assert_array_equal(np.sort(own, axis=2), np.sort(short, axis=2))


def test_frames_of_chains_are_draws_of_the_fit(films, two_clusters):
    film = films("gibbs")
    drawn = film.tree["posterior"]["assignments"].values
    shown = relabel(film.tree)["posterior"]["assignments"].values
    assert film.numbers == (*range(1, 76),) and film.labels.shape == (2, 75, 60)
    for draw in range(45):
        np.testing.assert_array_equal(film.labels[:, 30 + draw], shown[:, draw])
    own = film.picture["chains"][0]["own"][-1]
    assert [own[k] for k in film.labels[0, -1]] == drawn[0, -1].tolist()


@pytest.mark.parametrize("method", ["vb", "em"])
def test_the_last_frame_has_the_numbers_of_the_tables(method, films):
    film = films(method)
    soft = film.tree["variational"]["responsibilities"].values
    np.testing.assert_array_equal(film.labels[0, -1], soft.argmax(1))
    sizes = {k: int(size) for k, size in re.findall(r"cluster (\d+) with (\d+)", film.sentences[0][-1])}
    assert sizes == {str(k): round(size) for k, size in enumerate(soft.sum(0)) if size > 0.5}
    assert film.numbers[-1] == film.tree.attrs["num_iterations"]


def test_components_of_an_ascent_bear_one_number_throughout(films, two_clusters):
    """The one that the table gives them, whatever their sizes on the way."""
    with filmed() as frames:
        inference.fit(model_for("vb", two_clusters), two_clusters, method="vb", **CALLS["vb"])
    raw = np.stack([own["variational"]["responsibilities"].values.argmax(1) for own in frames.trees])
    pairs = set(zip(raw.ravel().tolist(), films("vb").labels[0].ravel().tolist(), strict=True))
    assert len(pairs) == len({first for first, _ in pairs}) == len({second for _, second in pairs})


def test_clusters_of_warm_up_are_those_of_the_fit_with_whom_they_share_their_rows(films):
    """Of two well separated clusters all later sweeps of the warm-up have the numbers of the draws."""
    for method in ("gibbs", "collapsed_gibbs"):
        labels = films(method).labels
        owner = [np.bincount(row).argmax() for row in labels[:, 30:].reshape(-1, 60).T]
        assert np.mean(labels[:, 10:30] == owner) > 0.8


def test_the_last_r_hat_is_that_of_the_fit(films):
    film = films("gibbs")
    largest = max(float(value.max()) for value in psrf(film.tree).data_vars.values())
    assert list(film.r_hats)[-1] == 45 and film.r_hats[45] == pytest.approx(largest, rel=1e-12)
    assert f"over 45 draws: {largest:.3f}" in film.sentences[1][-1]
    assert "R-hat" not in film.sentences[0][29] and "warm-up" in film.sentences[0][29]
    part = film.tree.map_over_datasets(
        lambda group: group.isel(draw=slice(20)) if "draw" in group.dims else group
    )
    seen = max(float(value.max()) for value in psrf(part).data_vars.values())
    assert film.r_hats[20] == pytest.approx(seen, rel=1e-12)


def test_the_objective_of_a_frame_is_that_of_the_trace(films):
    for method in ("em", "gibbs", "collapsed_gibbs"):  # none of which moves
        film = films(method)
        trace = film.tree["trace"]["objective"].values.reshape(len(film.sentences), -1)
        for chain, told in enumerate(film.sentences):
            for number, sentence in zip(film.numbers, told, strict=True):
                assert f" {trace[chain, number - 1]:.1f} nats" in sentence


def test_a_frame_after_a_move_has_the_bound_of_where_it_led(films):
    """Clusters that were merged were once shown beside the bound from before."""
    film = films("vb")
    trace = film.tree["trace"]["objective"].values
    told = np.array([float(re.search(r"bound (\S+) nats", own)[1]) for own in film.sentences[0]])
    steps = np.array(film.numbers) - 1
    moved = told > trace[steps] + 0.1
    assert any("last rows" in film.sentences[0][place] for place in np.flatnonzero(moved))
    following = trace[np.minimum(steps + 1, len(trace) - 1)]  # a step from there
    np.testing.assert_array_less(told[moved], following[moved] + 0.1)
    np.testing.assert_allclose(told[~moved], trace[steps][~moved], atol=0.051)


def test_what_happens_between_two_frames_is_told():
    told = _events({0: 2, 1: 0, 4: 1}, {0: 0, 1: 2, 3: 1})
    assert told == [
        "Cluster 4 has lost its last rows.",
        "Cluster 3 has its first rows.",
        "Labels of the sampler have switched: cluster 0 from 2 to 0, cluster 1 from 0 to 2.",
    ]
    assert _events({0: 1}, {0: 1}) == []
    assert _events(dict.fromkeys(range(13), 0), {0: 0, 20: 0, 21: 0}) == [
        "Clusters 1, 2, 3, 4, 5, 6, 7, 8 and 4 more have lost their last rows.",
        "Clusters 20 and 21 have their first rows.",
    ]


def test_the_ellipse_of_a_projection_is_its_marginal_covariance(faithful):
    """In the units of the data, though noise of standardised columns is in those of the columns."""
    film = film_of(zoo.PPCA(num_latents=1, standardize=True), faithful, method="em", init="random")
    covariance = invariants(film.tree)["marginal_covariance"].values[0, 0]
    scale = 1000 / (1.24 * np.ptp(faithful.to_numpy(), axis=0))
    axes = np.linalg.cholesky(covariance * np.outer(scale, scale)) * np.sqrt(chi2.ppf(0.9, 2))
    np.testing.assert_allclose(
        film.picture["chains"][0]["spread"][-1][2:], axes[[0, 1, 1], [0, 0, 1]], atol=1
    )
    assert len(film.picture["chains"][0]["arrows"][-1]) == 1 and film.labels is None
    assert "Shares of the variance on this plane: latent 0 " in film.sentences[0][-1]


# Frames


def test_states_are_all_kept_at_first_then_evenly_and_the_last_always():
    frames = Frames()
    for done in range(1, 1001):
        frames.save({"at": np.array([done])}, {"done": np.asarray(done)})
        assert len(frames.states) <= MOST
    kept = list(frames.states)
    assert kept[:EARLY] == [*range(1, EARLY + 1)] and kept[-1] == 1000
    late = np.diff(kept[EARLY:-1])
    assert set(late) == {8} and [own["at"][0] for own, *_ in frames.states.values()] == kept
    assert frames.until_next(10) == 1 and frames.until_next(41) == 7 and frames.until_next(48) == 8


def test_a_run_after_the_film_is_not_filmed(two_clusters, films):
    films("em")
    with filmed() as frames:
        pass
    inference.fit(model_for("em", two_clusters), two_clusters, method="em", **CALLS["em"])
    assert not frames.states


# The page


def test_the_page_needs_no_other_and_is_small(films, tmp_path):
    path = films("gibbs").save(tmp_path / "film.html")
    page = path.read_text(encoding="utf-8")
    assert path.stat().st_size <= _MOST_BYTES
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\b(src|href)=|url\(|@import|fetch\(", page)
    picture = payload(page)
    assert [len(chain["sentences"]) for chain in picture["chains"]] == [75, 75]
    assert page.count('aria-live="polite"') == 1 and films("gibbs").sentences[0][-1] in page


def test_a_long_film_loses_frames_and_not_its_last(films, monkeypatch):
    film = films("gibbs")
    monkeypatch.setattr("inference.plots.films._MOST_BYTES", int(0.6 * len(film.html())))
    picture = payload(film.html())
    assert 10 < len(picture["numbers"]) < 75 and picture["numbers"][-1] == film.numbers[-1]
    assert picture["chains"][1]["sentences"][-1] == film.sentences[1][-1]
    assert {len(values) for chain in picture["chains"] for values in chain.values()} == {
        len(picture["numbers"])
    }


def test_names_of_the_data_are_text(two_clusters):
    hostile = two_clusters.set_axis(["</script><b id=x>", "$width & more"], axis=1)
    page = film_of(zoo.Mixture(num_components=2), hostile, method="em", num_restarts=1).html()
    assert "<b id=x>" not in page and payload(page)["axes"][0]["label"] == "</script><b id=x>"
    assert payload(page)["axes"][1]["label"] == "$width & more"


def test_a_notebook_plays_it_in_a_frame_of_its_own(films):
    shown = films("em")._repr_html_()
    assert repr(films("em")) == f"<Film: mixture by em: {len(films('em').numbers)} frames>"
    assert shown.startswith("<iframe title=") and 'sandbox="allow-scripts"' in shown
    inner = html.unescape(re.search(r'srcdoc="(.*)"></iframe>', shown, re.DOTALL)[1])
    assert payload(inner)["numbers"] == list(films("em").numbers) and "<h1>" not in inner


def test_rows_with_missing_cells_are_left_out_of_two_columns_only(two_clusters):
    holes = two_clusters.copy()
    holes.iloc[3, 1] = np.nan
    film = film_of(zoo.Mixture(num_components=2, components=zoo.conjugate.NormalGamma()), holes, method="em")
    assert len(film.picture["points"]) == 59 and film.labels.shape[2] == 60
    three = holes.assign(height=holes["length"] ** 2)
    film = film_of(zoo.Mixture(num_components=2, components=zoo.conjugate.NormalGamma()), three, method="em")
    assert len(film.picture["points"]) == 60 and "principal component 1" in film.picture["axes"][0]["label"]


@pytest.mark.parametrize(
    ("model", "call", "said"),
    [
        (zoo.LDA(num_topics=2), {}, "there is no film of LDA"),
        (zoo.KernelPCA(), {}, "there is no film of KernelPCA"),
        (zoo.Paired(num_shared=1), {}, "there is no film of Paired"),
        (zoo.Mixture(num_components=2), {"checkpoint": "run.ckpt"}, "leave checkpoint out"),
        (zoo.Mixture(num_components=2), {"batch_size": 10}, "leave batch_size out"),
        (zoo.PPCA(num_latents=1), {"method": "closed_form"}, "take method='em' or 'vb' or "),
        (
            zoo.Mixture(num_components=2),
            {"method": "em", "features": ("length",)},
            "the plane of two columns",
        ),
        (zoo.Mixture(num_components=2), {"method": "em", "features": ("length", "x")}, "no feature 'x'"),
    ],
)
def test_what_has_no_film_is_refused(model, call, said, two_clusters):
    with pytest.raises(ValueError, match=re.escape(said)):
        film_of(model, two_clusters, **call)


@pytest.mark.filterwarnings("ignore:epca by map")
def test_loadings_of_natural_parameters_do_not_lie_on_the_plane_of_the_cells(two_clusters):
    model, call = zoo.EPCA(num_latents=1, family=Exponential()), {"method": "map", "max_iterations": 2}
    with pytest.raises(ValueError, match="no film of epca by map with these cells"):
        film_of(model, np.exp(two_clusters), num_restarts=1, **call)


def test_a_film_is_written_as_html(films, tmp_path):
    with pytest.raises(ValueError, match=re.escape("a film is written as .html")):
        films("em").save(tmp_path / "film.gif")
    with pytest.raises(ValueError, match="does not exist"):
        films("em").save(tmp_path / "nowhere" / "film.html")


# The command


def test_the_command_writes_the_film_of_the_same_fit(two_clusters, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    two_clusters.to_csv("rows.csv", index=False)
    call = [
        "film",
        "mixture",
        "rows.csv",
        "--method",
        "em",
        "--set",
        "num_components=2",
        "--num-restarts",
        "1",
    ]
    assert main([*call, "--features", "width,length", "--no-progress"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    table = pd.read_csv("rows.csv")
    tree = inference.fit(zoo.Mixture(num_components=2), table, method="em", num_restarts=1)
    picture = payload((tmp_path / "mixture-rows-film.html").read_text(encoding="utf-8"))
    assert [axis["label"] for axis in picture["axes"]] == ["width", "length"]
    assert f"{tree['trace']['objective'].values[-1]:.1f} nats" in picture["chains"][0]["sentences"][-1]
    assert f"last frame {picture['chains'][0]['sentences'][-1]}" in told
    assert "saved to mixture-rows-film.html" in told
    assert (
        main([*call, "--features", "width"]) == 2
        and "--features takes two columns" in capsys.readouterr().err
    )
    assert main([*call, "--out", "film.png"]) == 2 and ".html" in capsys.readouterr().err


def test_the_command_refuses_before_it_asks_for_columns(capsys):
    """Views were once asked for, and then refused."""
    assert main(["film", "paired", "faithful"]) == 2
    assert "there is no film of Paired" in capsys.readouterr().err


def test_nothing_of_a_tree_changes_by_being_shown(films):
    film = films("vb")
    before = film.tree.copy(deep=True)
    film.html()
    assert isinstance(film.tree, xr.DataTree) and film.tree.identical(before)
