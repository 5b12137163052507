"""The groups of a fit, and the variables in them by their role in its model."""

import xarray as xr

from inference.results.files import model_of

__all__ = ["group_of", "labels_of", "loadings_of", "responsibilities_of", "thinned"]

_REMEDIES = {
    "observed_data": "the data were left out for their size: fit again with keep=('observed_data',)",
    "log_likelihood": "inference.extend(tree, 'log_likelihood') makes it",
}


def group_of(tree: xr.DataTree, name: str) -> xr.Dataset:
    """A group of a fit.

    Args:
        tree: a fit.
        name: of the group.

    Returns:
        The group's variables.

    Raises:
        ValueError: the fit lacks the group.
    """
    if name not in tree.children:
        remedy = _REMEDIES.get(name, "take the whole tree that inference.fit or inference.load gave")
        held = ", ".join(sorted(tree.children)) or "no groups at all"
        raise ValueError(f"this needs the group {name!r} of the fit, which holds {held}; {remedy}")
    return tree[name].to_dataset()


def labels_of(tree: xr.DataTree) -> xr.DataArray | None:
    """Draws of each row's cluster.

    Args:
        tree: a fit.

    Returns:
        Dims (chain, draw, observation) or (chain, draw, document); None where the fit holds none.
    """
    site, posterior = model_of(tree).cluster_site, group_of(tree, "posterior")
    return posterior[site].transpose("chain", "draw", ...) if site in posterior else None


def responsibilities_of(tree: xr.DataTree) -> xr.DataArray | None:
    """Stored probabilities of each row's clusters.

    Args:
        tree: a fit.

    Returns:
        Dims (observation, component) or (document, cluster); None where the fit holds none.
    """
    if "variational" not in tree.children:
        return None
    model, stored = model_of(tree), tree["variational"].to_dataset()
    site = model.responsibility_site
    return stored[site].transpose(*model.variable_dims[site]) if site in stored else None


def loadings_of(tree: xr.DataTree) -> dict[str, xr.DataArray]:
    """Draws of the loadings of each view.

    Args:
        tree: a fit.

    Returns:
        Suffix of the view to loadings, dims (chain, draw, feature, latent), in the order of the posterior.
    """
    sites = model_of(tree).loading_sites
    return {
        sites[str(name)]: variable.transpose("chain", "draw", ..., "latent")
        for name, variable in group_of(tree, "posterior").data_vars.items()
        if name in sites
    }


def thinned(tree: xr.DataTree, most: int) -> xr.DataTree:
    """The fit with at most so many draws, evenly spaced, in all groups that have them.

    Args:
        tree: a fit.
        most: draws of all chains together.

    Returns:
        A new tree with the same root attributes, or the same one where it has no more.
    """
    sizes = group_of(tree, "posterior").sizes
    step = -(-sizes["chain"] * sizes["draw"] // most)
    if step <= 1:
        return tree
    groups = {}
    for name, child in tree.children.items():
        group = child.to_dataset()
        groups[name] = group.isel(draw=slice(None, None, step)) if "draw" in group.dims else group
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=dict(tree.attrs))} | groups)
