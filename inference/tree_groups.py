"""The groups of a fit, with one message for a missing group."""

import xarray as xr

__all__ = ["group_of", "thinned"]

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
