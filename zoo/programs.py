"""How a program runs: on data with latents of rows summed out, on data with all drawn, or from the prior.

An author writes ``program(*parts, rows=plate)`` once. `local` draws a latent of each row, or returns None
where it is summed out; the distribution of the rows takes the value or None. What a program need not know is
done here: which rows there are, what is refused without data, sizes that the data tell, and the coordinates
in which the model is stated (`zoo.coordinates`).
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro import handlers
from numpyro.distributions.transforms import AffineTransform
from numpyro.primitives import Messenger

from zoo.coordinates import free_log_scales, is_improper
from zoo.coordinates.of_models import inside, part_weights
from zoo.fields import facts_of, require, size_fields, sizes_of
from zoo.shapes import Values

if TYPE_CHECKING:
    from zoo.model import Model

_FORM = ContextVar("form", default="drawn")  # or "given", "explicit"


def in_current_precision(tree: Any) -> Any:
    """Convert NumPy leaves of a pytree to JAX arrays in the caller's precision; traced leaves stay.

    Programs and guides call this on what they hold. A NumPy array is copied on purpose: JAX remembers the
    converted constant by the identity of the array, and would hand 64-bit numbers out of a 64-bit context
    into a 32-bit one. The copy has the precision wanted, so that a large table is not copied twice.

    Args:
        tree: any pytree.

    Returns:
        The same pytree; shapes are as they were.
    """

    def converted(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            # device_put, since asarray copies a second time
            return jax.device_put(leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype)))
        return jnp.asarray(leaf)

    return jax.tree.map(converted, tree)


LOG_ROWS = "a function log_rows with them summed out (zoo.answers.Answers)"  # remedy


def local(
    name: str,
    distribution: dist.Distribution | Callable[[], dist.Distribution],
    *,
    sums_out: bool = True,
    draws_rows: bool = True,
    **infer: Any,
) -> Any:
    """Draw a latent of each row, or return None: it is summed out.

    Args:
        name: of the site.
        distribution: of the latent of a row, or what makes it where it is drawn.
        sums_out: whether the distribution of the rows has the latent summed out if it is given None.
        draws_rows: whether rows are drawn by way of the latent; else only the explicit program has it.
        **infer: as for ``numpyro.sample``.

    Returns:
        A value for every row of the plate, or None.
    """
    if sums_out and _FORM.get() in (("given",) if draws_rows else ("given", "drawn")):
        return None
    own = distribution if isinstance(distribution, dist.Distribution) else distribution()
    return numpyro.sample(name, own, infer=infer or None)


def run(model: "Model", data: tuple, num_observations: int | None) -> Any:
    """Run the program of a model.

    Args:
        model: the model, in the current precision.
        data: parts to condition on; those that are left out, or None, are drawn, the first with all others.
        num_observations: how many rows to draw.

    Returns:
        The data, or what is drawn; of several parts a tuple.

    Raises:
        TypeError: there are more parts of data than the model has.
        ValueError: a size is not set, there is nothing to draw from, or other parts than the first are given
            without it.
    """
    names = model.data_names
    if len(data) > len(names):
        raise TypeError(f"the program takes {', '.join(names)}; got {len(data)} parts of data")
    parts = (*data, *(None for _ in names[len(data) :]))
    is_given = parts[0] is not None
    sizes = size_fields(model)
    if is_given:
        num_observations = parts[0].shape[0]
        read = sizes_of(model, parts)
        model = model.replaced(**{size: read[size] for size in read if getattr(model, size, 0) is None})
        require(model, *(size for size in sizes if hasattr(model, size)))
    elif any(part is not None for part in parts):
        raise ValueError(f"give {names[0]} along with {' and '.join(names[1:])}")
    else:
        if model.prior != "proper":
            raise ValueError(why_nothing_is_drawn(model))
        if num_observations is None:
            raise ValueError(f"give {' and '.join(names)} to condition on, or num_observations to draw")
        require(model, *sizes)
    rows = numpyro.plate(f"{model.variable_dims[names[0]][0]}s", num_observations)
    own = model.own_coordinates
    token = _FORM.set("explicit" if model.draw_locals else "given" if is_given else "drawn")
    try:
        if own is None:
            return model.program(*parts, rows=rows)
        units = model.units
        changes = {name: (own.factor(unit), own.shift(unit)) for name, unit in units.items()}
        within = own.parts_inward(parts, names, units)
        with InCoordinates(changes=changes, data=dict(zip(names, parts, strict=True))):
            found = inside(model, own).program(*within, rows=rows)
        drawn = found if isinstance(found, tuple) else (found,)
        outside = tuple(
            part if part is not None else own.outward(own_part, units[name]) if name in units else own_part
            for name, part, own_part in zip(names, parts, drawn, strict=True)
        )
        return outside if isinstance(found, tuple) else outside[0]
    finally:
        _FORM.reset(token)


def why_nothing_is_drawn(model: "Model") -> str:
    """Why a prior that is not proper draws no data, and what to do."""
    choose = to_be_proper(model, ", or")
    sampled = "; inference.extend(tree, 'prior') samples it" if model.prior == "unnormalised" else ""
    return (
        f"the prior of {type(model).__name__} is {model.prior} and draws nothing: "
        f"give {' and '.join(model.data_names)} to condition on{choose}{sampled}"
    )


def to_be_proper(model: "Model", then: str = ";") -> str:
    """The end of a refusal of a prior that is not proper: the fields with which it is, if any."""
    fields = " and ".join(f"{name}{value}" for name, value in facts_of(model, "proper_with").items())
    return f"{then} choose {fields}" if fields else ""


def log_rows(model: "Model", values: Values, data: tuple) -> Array:
    """Log density of each row by the program, which has all latents of rows summed out or given.

    Args:
        model: the model, in the current precision.
        values: of the sites.
        data: the parts.

    Returns:
        Shape (num_observations,), in nats; a part's term times its weight.

    Raises:
        ValueError: the program draws a site that ``values`` lack, or has no density of rows.
    """
    program = handlers.substitute(handlers.seed(partial(run, model), 0), dict(values))
    sites = handlers.trace(program).get_trace(data, None)
    drawn = [s["name"] for s in sites.values() if s["type"] == "sample" and not s["is_observed"]]
    missing = [name for name in drawn if name not in values]
    if missing or not all(name in sites for name in model.data_names):
        reason = (
            f"its program draws {', '.join(missing)}; give its answers {LOG_ROWS}"
            if missing
            else "its program scores them by a factor"
        )
        raise ValueError(f"{type(model).__name__} has no log density of a row: {reason}")
    parts = zip(map(sites.__getitem__, model.data_names), part_weights(model), strict=True)
    return sum(weight * site["fn"].log_prob(site["value"]) for site, weight in parts)


class InCoordinates(Messenger):
    """Sites in the coordinates of the data outside, and in a program's own inside.

    Args:
        program: as of NumPyro's handlers.
        changes: of sites and parts of the data, factor and shift on the way outward.
        data: parts of the data by name, None of those that are drawn.
    """

    def __init__(
        self,
        program: Callable | None = None,
        *,
        changes: Mapping[str, tuple[Any, Any]],
        data: Mapping[str, Any] | None = None,
    ) -> None:
        self.changes, self.data = changes, data or {}
        super().__init__(program)

    def process_message(self, message: dict[str, Any]) -> None:
        """Replace the distribution of a site, or its value, by that in the coordinates of the data.

        Args:
            message: of NumPyro.
        """
        name = message.get("name")
        if message["type"] not in ("sample", "deterministic") or name not in self.changes:
            return
        factor, shift = map(jnp.asarray, self.changes[name])
        if message["type"] == "deterministic":
            message["value"] = message["value"] * factor + shift
        elif name in self.data:
            message["fn"] = _Rows(message["fn"], factor, shift)
            if message["is_observed"]:
                message["value"] = self.data[name]
        elif not is_improper(own := message["fn"]):
            message["fn"] = dist.TransformedDistribution(own, _ChangeOfUnit(shift, factor, own.support))

    def postprocess_message(self, message: dict[str, Any]) -> None:
        """Hand the program the value in its own coordinates, after all others have seen it.

        Args:
            message: of NumPyro.
        """
        name = message.get("name")
        if message["type"] in ("sample", "deterministic") and name in self.changes:
            factor, shift = self.changes[name]
            message["value"] = (message["value"] - shift) / factor


class _Rows(dist.Distribution):
    """Rows in the coordinates of the data; a missing cell has no unit."""

    pytree_data_fields = ("inner", "factor", "shift")

    def __init__(self, inner: dist.Distribution, factor: Array, shift: Array) -> None:
        self.inner, self.factor, self.shift = inner, factor, shift
        super().__init__(inner.batch_shape, inner.event_shape, validate_args=False)

    @property
    def support(self) -> dist.constraints.Constraint:
        return self.inner.support

    def log_prob(self, value: Array) -> Array:
        lost = jnp.where(jnp.isnan(value), 0.0, jnp.log(self.factor))
        return self.inner.log_prob((value - self.shift) / self.factor) - jnp.sum(lost, axis=-1)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        return self.inner.sample(key, sample_shape) * self.factor + self.shift


class _ChangeOfUnit(AffineTransform):
    """Values times a positive scale, plus a shift: of a support, onto itself."""

    @property
    def codomain(self) -> dist.constraints.Constraint:
        """That of the values before the change."""
        return self.domain

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: Any = None) -> Array:
        """Sum of the log scales of what varies freely in a value of the support.

        Args:
            x: values before the change.
            y: values after it.
            intermediates: not read; NumPyro passes it.

        Returns:
            The shape of ``x`` without the dims of a value.
        """
        each = free_log_scales(self.domain, self.scale, jnp.shape(x))
        return jnp.sum(each, axis=tuple(range(-self.domain.event_dim, 0)))
