"""A film of a fit: its states one after another, on a page that plays them.

Rows lie on the plane of two columns, or of two principal components; ellipses hold 90 % of a component, and
arrows are the loadings of latents. Clusters have the numbers that the fit's tables give them (`numbered`),
from the first frame on; the labels that a sampler gives them itself, which switch, can be shown instead.
Every frame has a sentence, which a screen reader reads. The page needs no other file and asks no host; its
style is that of the reports.
"""

import base64
import hashlib
import html
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.ticker import MaxNLocator
from scipy.special import chdtri

from inference.algorithm import Direct, check_model
from inference.convergence.identifiable import invariants, kind_of, scalars
from inference.convergence.numbering import cluster_dim, matched_numbers, numbered, stored_labels
from inference.convergence.partitions import cluster_sizes
from inference.convergence.r_hat import judgement, largest_psrf
from inference.driver.frames import Frames, filmed
from inference.fitting.front_door import fit
from inference.fitting.verdict import verdict
from inference.methods import method_of
from inference.numerics.atomic_files import check_writable, replacing
from inference.plots.mixtures import Plane, plane_of
from inference.results.files import model_of
from inference.results.groups import labels_of, responsibilities_of
from zoo.coordinates.of_models import noise_factors
from zoo.model import Model

_CONTENT = 0.9  # of a component, within its ellipse
_MOST_POINTS = 600
_MOST_ROWS = 10_000
_MOST_BYTES = 2_000_000
_MOST_CHAINS = 4  # that are shown
_MOST_R_HATS = 40
_MOST_OF_TRACE = 400  # points of a chain's line
_MOST_NAMED = 8  # clusters of a sentence
_OCCUPIED = 0.5  # rows, as everywhere
_NO_FILM = (
    "there is no film of {}: films show clusters of the rows of one table, or its loadings, on the plane of "
    "two columns; plot_objective(tree) shows how the fit went"
)
_SIGNS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"  # a cluster each, in the page


@dataclass(frozen=True, eq=False)
class Film:
    """A film of a fit, which a notebook plays where it is the value of a cell.

    Attributes:
        tree: the fit, the same bit for bit as without a film.
        numbers: the iteration or sweep of each frame.
        sentences: of each chain (one where there are none) what each frame shows.
        labels: the number of each row's cluster in the tables of the fit, shape (num_chains, num_frames,
            num_observations); None where rows have no clusters.
        r_hats: draws per chain to the largest R-hat over so many, of the frames at which it was computed.
        picture: what the page draws.
    """

    tree: xr.DataTree
    numbers: tuple[int, ...]
    sentences: tuple[tuple[str, ...], ...]
    labels: np.ndarray | None
    r_hats: Mapping[int, float]
    picture: Mapping[str, Any]

    @property
    def title(self) -> str:
        """Model, method and, where a command named them, the data."""
        attrs = self.tree.attrs
        data = f", {attrs['data_name']}" if "data_name" in attrs else ""
        return f"Film: {attrs['model']} by {attrs['method']}{data}"

    def html(self, embedded: bool = False) -> str:
        """The page, one HTML file of at most 2 MB that needs no other.

        Args:
            embedded: whether it stands within another page: the heading and the facts are left out.

        Returns:
            The page; of a long film with every second frame, or fourth, that it be small enough.
        """
        step, page = 1, ""
        while not page or len(page.encode()) > _MOST_BYTES:
            page = self._page(step, embedded)
            step *= 2
        return page

    def save(self, path: str | os.PathLike) -> Path:
        """Write the page.

        Args:
            path: a name that ends in ``.html``.

        Returns:
            The path written.

        Raises:
            ValueError: another ending, or a place where nothing can be written.
        """
        path = Path(path)
        if path.suffix.lower() != ".html":
            raise ValueError(f"a film is written as .html, by the ending of its name; got {path.name!r}")
        check_writable(path)
        with replacing(path) as file:
            file.write(self.html().encode("utf-8"))
        return path

    def __repr__(self) -> str:
        """One line: a notebook stores it beside the page."""
        return f"<{self.title}: {len(self.numbers)} frames>"

    def _repr_html_(self) -> str:
        """The page in a frame of its own, whose script and style touch nothing outside."""
        return (
            f'<iframe title="{html.escape(self.title)}" width="100%" height="660" '
            f'sandbox="allow-scripts" style="border:0" srcdoc="{html.escape(self.html(embedded=True))}">'
            "</iframe>"
        )

    def _page(self, step: int, embedded: bool) -> str:
        picture = dict(self.picture)
        last = len(self.numbers) - 1
        kept = sorted({*range(0, last, step), last})
        picture["numbers"] = [self.numbers[at] for at in kept]
        picture["chains"] = [
            {name: [values[at] for at in kept] for name, values in chain.items()}
            for chain in self.picture["chains"]
        ]
        data = json.dumps(picture, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
        return _TEMPLATES.get_template("film.html.j2").render(
            picture=picture,
            title=self.title,
            verdict=verdict(self.tree),
            last=self.sentences[0][-1],
            data=data,
            embedded=embedded,
            style=packaged_text("report", "page.css") + "\n" + packaged_text("plots", "film.css"),
            script=packaged_text("plots", "film.js"),
        )


def film(model: Model, *data: Any, features: tuple | None = None, **call: Any) -> Film:
    """Fit a model and film it: its states from the first iteration or sweep to the last.

    The fit is that of `inference.fit` with the same arguments, bit for bit. Films are of models with clusters
    of rows or with loadings, by methods that go on step by step: EM, VB, Gibbs, the collapsed sampler,
    Hamiltonian Monte Carlo.

    Args:
        model: as for `inference.fit`.
        *data: as for `inference.fit`, at most 10 000 rows.
        features: two names or positions of columns whose plane is shown; by default both of two, else the
            first two principal components of the data.
        **call: the other arguments of `inference.fit`, but ``checkpoint`` and ``batch_size``.

    Returns:
        The film; ``film.save("film.html")`` writes its page, a notebook plays it, and its ``tree`` is the
        fit.

    Raises:
        ValueError: a model, a method or data of which there is no film, or as for `inference.fit`.

    Example:
        >>> import numpy as np, inference.plots, zoo
        >>> x = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0.0], [6.0]], 30, axis=0)
        >>> film = inference.plots.film(zoo.Mixture(num_components=2), x, method="em")
        >>> film.sentences[0][-1].endswith("2 clusters hold rows: cluster 0 with 30, cluster 1 with 30.")
        True
    """
    _check_call(model, call)
    keep = tuple(dict.fromkeys((*call.pop("keep", ()), "observed_data")))
    with filmed() as frames:
        tree = fit(model, *data, keep=keep, **call)
    if not frames.trees:
        others = [name for name in model.methods if not isinstance(method_of(model, name), Direct)]
        raise ValueError(
            f"method {tree.attrs['method']!r} computes its answer at once: there are no states to film; take "
            f"method={' or '.join(map(repr, others))}"
        )
    return _film_of(tree, frames, features)


def check_films(kind: type[Model]) -> None:
    """Raise ValueError for a kind of model without a table of rows by columns, of which there is no film."""
    if not any(own == ("observation", "feature") for own in kind.dims.values()):
        raise ValueError(_NO_FILM.format(kind.__name__))


def _check_call(model: Model, call: Mapping[str, Any]) -> None:
    """Raise ValueError, before anything is computed, for a call of which there is no film."""
    check_model(model)
    check_films(type(model))
    if not (model.roles.cluster or model.roles.loadings):
        raise ValueError(_NO_FILM.format(type(model).__name__))
    for name in ("checkpoint", "batch_size"):
        if call.get(name) is not None:
            raise ValueError(f"a film is of a run in memory, from its first step: leave {name} out")
    if jax.process_count() > 1:
        raise ValueError("a film is of a run in one process")


class _States(NamedTuple):
    """The frames as arrays, K components; None of what the model lacks.

    Attributes:
        labels: number of each row's cluster, (chains, frames, rows).
        numbers: of each component, (chains, frames, K), -1 of one without rows.
        own: the label that the sampler itself gives it, likewise.
        sizes: rows of each component, likewise.
        locs: (chains, frames, K, 2), on the plane.
        covariances: (chains, frames, K, 2, 2).
        loadings: arrows of the latents, (chains, frames, 2, L).
        centre: where they begin, (chains, frames, 2).
        spread: covariance of all rows, (chains, frames, 2, 2).
    """

    labels: np.ndarray | None = None
    numbers: np.ndarray | None = None
    own: np.ndarray | None = None
    sizes: np.ndarray | None = None
    locs: np.ndarray | None = None
    covariances: np.ndarray | None = None
    loadings: np.ndarray | None = None
    centre: np.ndarray | None = None
    spread: np.ndarray | None = None


def _film_of(tree: xr.DataTree, frames: Frames, features: tuple | None) -> Film:
    model = model_of(tree)
    observed = tree["observed_data"].to_dataset()
    if model.data_names[0] not in observed or "feature" not in observed[model.data_names[0]].dims:
        raise ValueError("there is no film of sparse rows: pass them as a dense table")
    x = observed[model.data_names[0]].transpose(..., "feature")
    if x.shape[0] > _MOST_ROWS:
        raise ValueError(f"films are of at most {_MOST_ROWS} rows, and these are {len(x)}: film a sample")
    if x.shape[1] < 2 or (features is not None and len(features) != 2):
        raise ValueError("a film is on the plane of two columns: give features=(ONE, OTHER)")
    plane = plane_of(x, features)
    is_sampling = kind_of(tree) == "sampling"
    states = (_of_chains if is_sampling else _of_ascent)(tree, frames, plane)
    if states.labels is None and states.locs is None and states.loadings is None:
        raise ValueError(
            f"there is no film of {tree.attrs['model']} by {tree.attrs['method']} with these cells: arrows "
            "are drawn where cells are numbers with noise, and nothing else of it lies on their plane"
        )
    r_hats = _r_hats(tree, frames.numbers) if is_sampling else {}
    trace = tree["trace"]["objective"].to_numpy()
    trace = np.array((trace if is_sampling else trace[None])[:_MOST_CHAINS])
    if frames.gains:
        trace[0, np.array(frames.numbers) - 1] += frames.gains  # a frame is where its step, and a move, led
    sentences = _sentences(tree, frames.numbers, states, trace, r_hats)
    picture = _picture(tree, frames.numbers, states, plane, x.to_numpy(), trace, r_hats)
    for chain, own in zip(picture["chains"], sentences, strict=True):
        chain["sentences"] = own
    return Film(tree, tuple(frames.numbers), tuple(map(tuple, sentences)), states.labels, r_hats, picture)


# The states


def _of_ascent(tree: xr.DataTree, frames: Frames, plane: Plane) -> _States:
    """The frames of an ascent; components keep one number throughout, which they have in the last."""
    trees = [numbered(own, like=frames.trees[-1]) for own in frames.trees]
    soft = [responsibilities_of(own) for own in trees]
    states = _States()
    if soft[0] is not None:
        r = np.stack([own.to_numpy() for own in soft if own is not None])[None]
        sizes = r.sum(2)
        numbers = np.where(sizes > _OCCUPIED, np.arange(r.shape[-1]), -1)
        states = _States(labels=r.argmax(-1), numbers=numbers, sizes=sizes)
    means = [own["posterior"].to_dataset().mean(("chain", "draw")) for own in trees]
    return _on_plane(states, xr.concat(means, "draw", coords="minimal").expand_dims("chain"), tree, plane)


def _of_chains(tree: xr.DataTree, frames: Frames, plane: Plane) -> _States:
    """The frames of chains, numbered as the draws of the fit."""
    (own,) = frames.trees
    posterior, drawn, states = own["posterior"].to_dataset(), labels_of(own), _States()
    dim = cluster_dim(model_of(tree))
    if drawn is not None and dim is not None and stored_labels(tree, dim) is not None:
        labels = drawn.to_numpy().astype(np.int64)
        shown = _shown(tree, dim, labels, frames.numbers)
        counts = cluster_sizes(labels, posterior.sizes[dim])

        def of_components(values: np.ndarray) -> np.ndarray:
            """What its rows share, of each component of each frame; -1 of one without rows."""
            found = np.full(counts.shape, -1)
            np.put_along_axis(found, labels, values, axis=-1)
            return found

        names = frames.labels if frames.labels is not None else labels
        states = _States(shown, of_components(shown), of_components(names.astype(np.int64)), counts)
    return _on_plane(states, posterior, tree, plane)


def _shown(tree: xr.DataTree, dim: str, labels: np.ndarray, numbers: Sequence[int]) -> np.ndarray:
    """The numbers that the rows' clusters have in the fit, of frames with other labels, of the same shape.

    A frame that is a draw of the fit has those that it has there. Any other is matched to the clusters in
    which the rows are most often, by the rows in common.
    """
    own = labels_of(tree)
    if own is None:
        raise ValueError("the fit left out the labels of the rows for their size: give keep=('assignments',)")
    of_draws = np.take_along_axis(stored_labels(tree, dim).to_numpy(), own.to_numpy().astype(np.int64), -1)
    of_draws = of_draws.astype(np.int64)
    most_often = cluster_sizes(of_draws.reshape(-1, of_draws.shape[-1]).T).argmax(1)
    size = int(max(labels.max(), most_often.max())) + 1
    flat = labels.reshape(-1, labels.shape[-1])
    matched = np.take_along_axis(matched_numbers(flat, most_often, size), flat, axis=1).reshape(labels.shape)
    options, num_warmup = json.loads(tree.attrs["options"]), int(tree["trace"].attrs["num_warmup"])
    for place, number in enumerate(numbers):
        draw, left = divmod(number - num_warmup, options["thinning"])
        if draw > 0 and not left:
            matched[:, place] = of_draws[:, draw - 1]
    return matched


def _on_plane(states: _States, means: xr.Dataset, tree: xr.DataTree, plane: Plane) -> _States:
    """The states with means and covariances of components and with loadings, where the model has them."""
    model = model_of(tree)
    roles = model.roles

    def values(name: str, *dims: str) -> np.ndarray:
        return means[name].transpose("chain", "draw", *dims).to_numpy()

    if roles.gaussian and set(roles.gaussian) <= set(means):
        _, locs, covariances = roles.gaussian
        dim = str(means[locs].dims[-2])
        states = states._replace(
            locs=(values(locs, dim, "feature") - plane.origin) @ plane.basis,
            covariances=plane.basis.T @ values(covariances, dim, "feature", "feature_2") @ plane.basis,
        )
    for name, suffix in roles.loadings.items():
        loc, noise = f"loc{suffix}", f"noise_variance{suffix}"  # of cells that are numbers alone
        if {name, loc, noise} <= set(means) and "feature" in means[name].dims:
            loadings = plane.basis.T @ values(name, "feature", "latent")
            own = values(noise, *means[noise].dims[2:]).reshape(*loadings.shape[:2], -1)
            own = own * noise_factors(model).get(suffix, 1.0)
            variance = np.broadcast_to(own, (*loadings.shape[:2], len(plane.basis)))
            return states._replace(
                loadings=loadings,
                centre=(values(loc, "feature") - plane.origin) @ plane.basis,
                spread=loadings @ loadings.swapaxes(-1, -2)
                + np.einsum("ji,cfj,jk->cfik", plane.basis, variance, plane.basis),
            )
    return states


def _r_hats(tree: xr.DataTree, numbers: Sequence[int]) -> dict[int, float]:
    """Draws to the largest R-hat of the fit's invariants over so many; of all draws that of the verdict."""
    sizes = tree["posterior"].sizes
    if sizes["chain"] < 2 or sizes["draw"] < 4:
        return {}
    options, num_warmup = json.loads(tree.attrs["options"]), int(tree["trace"].attrs["num_warmup"])
    ends = sorted({(number - num_warmup) // options["thinning"] for number in numbers})
    ends = [end for end in ends if 4 <= end < sizes["draw"]]
    places = np.unique(np.linspace(0, len(ends) - 1, min(len(ends), _MOST_R_HATS)).round().astype(int))
    found = [draws for _, draws in scalars(invariants(tree))]
    so_far = {ends[place]: largest_psrf(draws[:, : ends[place]] for draws in found) for place in places}
    return so_far | {sizes["draw"]: judgement(tree).r_hat}


# The words


def _sentences(
    tree: xr.DataTree, numbers: Sequence[int], states: _States, trace: np.ndarray, r_hats: Mapping[int, float]
) -> list[list[str]]:
    """What each frame of each chain shows, in words."""
    is_sampling = kind_of(tree) == "sampling"
    unit, total = ("Sweep" if is_sampling else "Iteration"), numbers[-1]
    objective = {"sampling": "log joint density", "variational": "bound"}.get(kind_of(tree), "objective")
    num_warmup = int(tree["trace"].attrs.get("num_warmup", 0))
    thinning = json.loads(tree.attrs["options"]).get("thinning", 1)
    told: list[list[str]] = []
    for chain, values in enumerate(trace):
        told.append([])
        before: dict[int, int] = {}
        for frame, number in enumerate(numbers):
            of_chain = f", chain {chain}" if len(trace) > 1 else ""
            warmup = ", warm-up" if is_sampling and number <= num_warmup else ""
            words = [
                f"{unit} {number} of {total}{warmup}{of_chain}: {objective} {values[number - 1]:.1f} nats."
            ]
            if states.numbers is not None:
                now = _clusters(states, chain, frame)
                words += [_of_clusters({k: size for k, (size, _) in now.items()})]
                words += _events(before, {k: own for k, (_, own) in now.items()}) if frame else []
                before = {k: own for k, (_, own) in now.items()}
            elif states.loadings is not None:
                words += [_of_latents(states.loadings[chain, frame], states.spread[chain, frame])]
            seen = [n for n in r_hats if n <= (number - num_warmup) // thinning]
            if seen:
                words += [f"Largest R-hat over {seen[-1]} draws: {r_hats[seen[-1]]:.3f}."]
            told[-1].append(" ".join(words))
    return told


def _clusters(states: _States, chain: int, frame: int) -> dict[int, tuple[float, int]]:
    """Number to rows and the sampler's own label, of the clusters that hold rows in a frame."""
    numbers, sizes = states.numbers[chain, frame], states.sizes[chain, frame]
    own = numbers if states.own is None else states.own[chain, frame]
    held = np.flatnonzero(numbers >= 0)
    held = held[np.argsort(numbers[held])]
    return {int(numbers[k]): (float(sizes[k]), int(own[k])) for k in held}


def _of_clusters(sizes: Mapping[int, float]) -> str:
    named = [f"cluster {number} with {size:.0f}" for number, size in list(sizes.items())[:_MOST_NAMED]]
    more = f" and {len(sizes) - _MOST_NAMED} more" if len(sizes) > _MOST_NAMED else ""
    many = "cluster holds" if len(sizes) == 1 else "clusters hold"
    return f"{len(sizes)} {many} rows: {', '.join(named)}{more}."


def _events(before: Mapping[int, int], now: Mapping[int, int]) -> list[str]:
    """What happened between two frames: clusters that died or came, and labels that switched."""
    gone, come = sorted(before.keys() - now.keys()), sorted(now.keys() - before.keys())
    switched = [k for k in now if k in before and now[k] != before[k]]
    told = [f"{_named(gone)} lost {'its' if len(gone) == 1 else 'their'} last rows."] if gone else []
    told += [f"{_named(come)} {'its' if len(come) == 1 else 'their'} first rows."] if come else []
    if switched:
        labels = ", ".join(f"cluster {k} from {before[k]} to {now[k]}" for k in switched[:_MOST_NAMED])
        told.append(f"Labels of the sampler have switched: {labels}.")
    return told


def _named(clusters: Sequence[int]) -> str:
    """Those that have gone or come, as the subject of a sentence."""
    if len(clusters) == 1:
        return f"Cluster {clusters[0]} has"
    names = list(map(str, clusters[:_MOST_NAMED]))
    rest = len(clusters) - len(names)
    *first, last = [*names, f"{rest} more"] if rest else names
    return f"Clusters {', '.join(first)} and {last} have"


def _of_latents(loadings: np.ndarray, spread: np.ndarray) -> str:
    shares = (loadings**2).sum(0) / max(np.trace(spread), np.finfo(float).tiny)
    named = [f"latent {k} {share:.0%}" for k, share in enumerate(shares[:_MOST_NAMED])]
    return f"Shares of the variance on this plane: {', '.join(named)}, noise {1 - shares.sum():.0%}."


# The picture


def _picture(
    tree: xr.DataTree,
    numbers: Sequence[int],
    states: _States,
    plane: Plane,
    x: np.ndarray,
    trace: np.ndarray,
    r_hats: Mapping[int, float],
) -> dict[str, Any]:
    """What the page draws, as numbers from 0 to 1000 along each axis."""
    used = np.abs(plane.basis).sum(1) > 0
    whole = ~np.isnan(x[:, used]).any(1) if used.sum() <= 2 else np.full(len(x), True)
    rows = np.flatnonzero(whole)
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _MOST_POINTS)).round().astype(int))]
    points = np.nan_to_num(x - plane.origin)[rows] @ plane.basis
    low, high = points.min(0), points.max(0)
    margin = np.where(high > low, 0.12 * (high - low), 1.0)
    scale = 1000 / (high - low + 2 * margin)
    low = low - margin
    radius = np.sqrt(chdtri(2, 1 - _CONTENT))

    def placed(at: np.ndarray) -> list[int]:
        return np.clip(np.round((at - low) * scale), -5000, 6000).astype(int).tolist()

    def ellipse(centre: np.ndarray, covariance: np.ndarray) -> list[int]:
        axes = np.linalg.cholesky(covariance * np.outer(scale, scale) + 1e-6 * np.eye(2)) * radius
        return [
            *placed(centre),
            *np.round(np.clip(axes[[0, 1, 1], [0, 0, 1]], -9999, 9999)).astype(int).tolist(),
        ]

    chains = []
    for chain in range(len(trace)):
        own: dict[str, list] = {}
        places = range(len(numbers))
        if states.labels is not None:
            found = [_clusters(states, chain, frame) for frame in places]
            own["labels"] = [
                "".join(_SIGNS[min(k, 61)] for k in states.labels[chain, f, rows]) for f in places
            ]
            own["sizes"] = [[[k, round(size)] for k, (size, _) in now.items()] for now in found]
            if states.own is not None:
                own["own"] = [{k: label for k, (_, label) in now.items()} for now in found]
        if states.locs is not None:
            own["ellipses"] = [
                [
                    [int(number), *ellipse(states.locs[chain, f, k], states.covariances[chain, f, k])]
                    for k, number in enumerate(_numbers(states, chain, f))
                    if number >= 0
                ]
                for f in places
            ]
        if states.loadings is not None:
            own["spread"] = [ellipse(states.centre[chain, f], states.spread[chain, f]) for f in places]
            own["arrows"] = [
                [placed(states.centre[chain, f] + arrow) for arrow in states.loadings[chain, f].T]
                for f in places
            ]
        chains.append(own)
    unit = "sweep" if kind_of(tree) == "sampling" else "iteration"
    facts = {
        "Rows": f"{len(x)}" + (f", {len(rows)} shown" if len(rows) < len(x) else ""),
        "Frames": f"{len(numbers)}, of {numbers[-1]} {unit}s",
        "Seed": str(tree.attrs["seed"]),
    }
    ticks = [_ticks(low[i], low[i] + 1000 / scale[i]) for i in range(2)]
    return {
        "facts": facts,
        "note": " ".join(plane.note.split()),
        "content": round(100 * _CONTENT),
        "axes": [{"label": name, "ticks": marks} for name, marks in zip(plane.labels, ticks, strict=True)],
        "unit": unit,
        "warmup": int(tree["trace"].attrs.get("num_warmup", 0)),
        "points": [placed(point) for point in points],
        "trace": _lines(trace),
        "rhat": _r_hat_line(tree, r_hats),
        "chains": chains,
    }


def _numbers(states: _States, chain: int, frame: int) -> np.ndarray:
    return np.arange(states.locs.shape[2]) if states.numbers is None else states.numbers[chain, frame]


def _ticks(low: float, high: float) -> list[list]:
    """Positions from 0 to 1000 and their numbers."""
    marks = MaxNLocator(5).tick_values(low, high)
    return [[round(1000 * (m - low) / (high - low)), f"{m:.6g}"] for m in marks if low <= m <= high]


def _lines(trace: np.ndarray) -> dict[str, Any]:
    """The objective of each chain; what is steep at first lies along the lower edge."""
    late = trace[:, min(max(3, trace.shape[1] // 10), trace.shape[1] - 1) :]
    low, high = np.nanmin(late), np.nanmax(trace)
    margin = max(0.15 * (high - low), 0.5)
    low, high = low - margin, high + margin / 2
    places = np.unique(
        np.linspace(0, trace.shape[1] - 1, min(trace.shape[1], _MOST_OF_TRACE)).round().astype(int)
    )
    y = np.round(1000 * (np.clip(trace[:, places], low, high) - low) / (high - low))
    lines = [[[int(n) + 1, int(v)] for n, v in zip(places, own, strict=True) if np.isfinite(v)] for own in y]
    return {"lines": lines, "ticks": _ticks(low, high)}


def _r_hat_line(tree: xr.DataTree, r_hats: Mapping[int, float]) -> dict[str, Any] | None:
    """R-hat by sweep, on a logarithmic scale of what it exceeds 1 by."""
    if not r_hats:
        return None
    thinning, num_warmup = (
        json.loads(tree.attrs["options"])["thinning"],
        int(tree["trace"].attrs["num_warmup"]),
    )

    def place(value: float) -> int:
        return int(np.round(1000 * np.clip((np.log10(max(value - 1, 1e-3)) + 3) / 3, 0, 1)))

    line = [[num_warmup + n * thinning, place(value)] for n, value in r_hats.items() if not np.isnan(value)]
    ticks = [[place(value), f"{value:g}"] for value in (1.001, 1.01, 1.1)] + [[1000, "\u2265 2"]]
    return {"lines": [line], "ticks": ticks, "wanted": place(1.01)}


# The page


def packaged_text(*place: str) -> str:
    """A file of this package, with the line ends that its hash is taken of."""
    return "\n".join(files("inference").joinpath(*place).read_text(encoding="utf-8").splitlines())


def inline_hash(text: str) -> str:
    """The hash of an inline style or script, as a Content-Security-Policy names it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"


def templates_beside(package: str, **options: Any) -> Environment:
    """The templates of a package, in which a name without a value is an error."""
    found = Environment(
        loader=PackageLoader(package, ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **options,
    )
    found.filters["sha256"] = inline_hash
    return found


_TEMPLATES = templates_beside("inference.plots", autoescape=True)
