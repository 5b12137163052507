r"""What latents and loadings say together: natural parameters and their spectrum.

:math:`\Theta = U V^T + 1\mu^T` is what the data see; U and V alone turn, swap and change signs from draw to
draw. Reported are a few fixed cells of every table, means included, and the singular values of
:math:`U V^T`, of shared latents also by themselves, :math:`\Theta_S = U_S V_S^T` with the loadings of all
views one above the other (Virtanen 2010, section 6.2.2; the singular values themselves, not their squares,
belong to orthonormal factors, and only as many as there are latents are not zero).

Topics are known only up to their order; what the documents see are their word probabilities
:math:`\theta_d^T \beta`, of which a few fixed cells are reported too: of documents that have shares of their
own, else (clusters of documents) of a document whose cluster is not known.
"""

import numpy as np
import xarray as xr

from inference.results.files import model_of
from inference.results.groups import group_of, loadings_of

__all__ = ["factors_of", "natural_invariants", "shared_latents", "word_probs"]

_FIXED_CELLS = 3  # rows and columns of each table that are summarised


def factors_of(tree: xr.DataTree) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Draws of the latents (chain, draw, observation, latent), and of each table's loadings by suffix."""
    latents = group_of(tree, "posterior")[model_of(tree).latent_site]
    u = latents.transpose("chain", "draw", "observation", "latent").values
    return u, {suffix: value.values for suffix, value in loadings_of(tree).items()}


def shared_latents(loadings: dict[str, np.ndarray]) -> np.ndarray:
    """Places of the latents that no table has zero loadings for."""
    seen = [~(value == 0).all((0, 1, 2)) for value in loadings.values()]
    return np.flatnonzero(np.all(seen, axis=0))


def natural_invariants(tree: xr.DataTree) -> dict[str, xr.DataArray]:
    """The quantities above, draw by draw."""
    posterior = group_of(tree, "posterior")
    u, loadings = factors_of(tree)
    found = {"theta_singular_values": _spectrum(u, np.concatenate(list(loadings.values()), axis=2))}
    shared = shared_latents(loadings)
    if 0 < len(shared) < u.shape[-1]:
        tall = np.concatenate([value[..., shared] for value in loadings.values()], axis=2)
        found["theta_shared_singular_values"] = _spectrum(u[..., shared], tall).rename(rank="shared_rank")
    rows = _spread(u.shape[2])
    for suffix, value in loadings.items():
        columns = _spread(value.shape[2])
        if f"natural_params{suffix}" in posterior:  # noisy ones, drawn
            cells = posterior[f"natural_params{suffix}"].values[:, :, rows[:, None], columns]
            found[f"natural_params{suffix}"] = _cells(cells, suffix, rows, columns)
            continue
        cells = u[..., rows, :] @ np.swapaxes(value[..., columns, :], -1, -2)
        if f"loc{suffix}" in posterior:
            cells = cells + posterior[f"loc{suffix}"].values[..., None, columns]
        found[f"natural_params{suffix}"] = _cells(cells, suffix, rows, columns)
    return found


def word_probs(tree: xr.DataTree) -> dict[str, xr.DataArray]:
    """A few cells of the word probabilities of documents, draw by draw; empty without topics."""
    model, posterior = model_of(tree), group_of(tree, "posterior")
    if model.topic_site not in posterior or any(site not in posterior for site in model.share_sites):
        return {}
    values = {
        site: posterior[site].transpose("chain", "draw", *model.variable_dims[site]).values
        for site in (model.topic_site, *model.share_sites)
    }
    topics = values[model.topic_site]
    columns = _spread(topics.shape[3])
    if model.document_topic_site is not None:
        shares = values[model.document_topic_site]
        rows = _spread(shares.shape[2])
        cells = shares[:, :, rows] @ topics[..., columns]
        return {"word_probs": _cells(cells, "", rows, columns).rename(row="document", column="word")}
    centres = model.centres(values)
    centres = np.broadcast_to(centres, (*topics.shape[:2], *centres.shape[-2:]))
    weights = values[model.weight_site]
    cells = np.einsum("cdm,cdmk,cdkw->cdw", weights, centres, topics[..., columns], optimize=True)
    return {"word_probs": xr.DataArray(cells, dims=("chain", "draw", "word"), coords={"word": columns})}


def _cells(values: np.ndarray, suffix: str, rows: np.ndarray, columns: np.ndarray) -> xr.DataArray:
    coords = {"row": rows, f"column{suffix}": columns}
    return xr.DataArray(values, dims=("chain", "draw", "row", f"column{suffix}"), coords=coords)


def _spectrum(u: np.ndarray, v: np.ndarray) -> xr.DataArray:
    """Singular values of U V' of every draw, largest first."""
    if u.shape[2] > u.shape[3]:
        u = np.linalg.qr(u, mode="r")
    if v.shape[2] > v.shape[3]:
        v = np.linalg.qr(v, mode="r")
    spectrum = np.linalg.svd(u @ np.swapaxes(v, -1, -2), compute_uv=False)
    return xr.DataArray(spectrum, dims=("chain", "draw", "rank"))


def _spread(size: int) -> np.ndarray:
    return np.unique(np.linspace(0, size - 1, _FIXED_CELLS).astype(int))
