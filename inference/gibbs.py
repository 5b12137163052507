"""The Gibbs samplers of the zoo as NumPyro kernels, to be run by ``numpyro.infer.MCMC``."""

from typing import Any, NamedTuple

import jax
from jax import Array
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key

from inference.algorithm import Algorithm, check_model, model_name
from inference.methods import method_of
from inference.numerics.programs import deterministics
from zoo.coordinates.of_models import is_stated
from zoo.model import Model, in_current_precision

__all__ = ["kernel"]


class KernelState(NamedTuple):
    """State of a chain, as ``numpyro.infer.MCMC`` carries it.

    Attributes:
        z: value of every latent site of ``model.explicit``, in constrained space.
        inner: the sampler's state.
        log_joint: in nats, labels summed out.
        rng_key: key of the next sweep.
    """

    z: dict[str, Array]
    inner: Any
    log_joint: Array
    rng_key: Array


class GibbsKernel(MCMCKernel):
    """A hand-written Gibbs sampler behind NumPyro's kernel interface; all chain methods work.

    The precision is whatever JAX is set to by the caller: call ``numpyro.enable_x64()`` first for the
    numbers of `inference.fit`.
    """

    sample_field = "z"

    def __init__(self, zoo_model: Model, algorithm: Algorithm) -> None:
        """Keep the model and its sampler.

        Args:
            zoo_model: a model with its sizes filled.
            algorithm: its Gibbs sampler, as `inference.gibbs` exports it.
        """
        self._zoo_model = zoo_model
        self._algorithm = algorithm

    @property
    def model(self) -> Model:
        """The program whose sites are drawn, from which ArviZ's converter reads dims and data.

        It is the explicit one, or for documents the one with the topics of words summed out.
        """
        return self._zoo_model if self._zoo_model.data[0].holds_documents else self._zoo_model.explicit

    @property
    def default_fields(self) -> tuple[str, ...]:
        """Fields to collect: the sites and nothing else."""
        return ("z",)

    def init(
        self, rng_key: Array, num_warmup: int, init_params: Any, model_args: tuple, model_kwargs: dict
    ) -> KernelState:
        """A start for each key; ``init_params`` is a dict of all sites, or None."""
        if is_prng_key(rng_key):
            return self._start(rng_key, init_params, model_args)
        return jax.vmap(lambda key, params: self._start(key, params, model_args))(rng_key, init_params)

    def sample(self, state: KernelState, model_args: tuple, model_kwargs: dict) -> KernelState:
        """One sweep of every chain."""

        def sweep(state: KernelState) -> KernelState:
            key, next_key = jax.random.split(state.rng_key)
            inner, info = self._algorithm.step(
                key, state.inner, in_current_precision(self._zoo_model), *model_args
            )
            return KernelState(inner.values, inner, info.objective, next_key)

        return sweep(state) if is_prng_key(state.rng_key) else jax.vmap(sweep)(state)

    def postprocess_fn(self, model_args: tuple, model_kwargs: dict) -> Any:
        """Add the deterministic sites of the program to the draws.

        Args:
            model_args: the data.
            model_kwargs: not used; NumPyro passes them.

        Returns:
            A function from the values of the latent sites to the same with the deterministic sites added.
        """
        return lambda values: values | deterministics(self.model, values, *model_args)

    def get_diagnostics_str(self, state: KernelState) -> str:
        """Text for the progress bar.

        Args:
            state: of one chain.

        Returns:
            The log joint density in nats, as text.
        """
        return f"log joint {state.log_joint:.6g}"

    def _start(self, key: Array, init_params: Any, model_args: tuple) -> KernelState:
        init_key, sweep_key, next_key = jax.random.split(key, 3)
        model = in_current_precision(self._zoo_model)
        inner = self._algorithm.init(init_key, model, *model_args)
        if init_params is not None:
            inner = inner._replace(values={**inner.values, **init_params})
        _, info = self._algorithm.step(sweep_key, inner, model, *model_args)
        return KernelState(inner.values, inner, info.objective, next_key)


def kernel(model: Model) -> GibbsKernel:
    """The model's Gibbs sampler as a kernel.

    ``numpyro.infer.MCMC(inference.gibbs.kernel(model), num_warmup=..., num_samples=...)``.

    Args:
        model: a (filled) zoo model with the method ``"gibbs"``.

    Returns:
        A kernel for ``numpyro.infer.MCMC``, of which each draw is one sweep.

    Raises:
        ValueError: the model has no Gibbs sampler.
    """
    check_model(model)
    if "gibbs" not in model.methods:
        raise ValueError(
            f"{model_name(model)} has no Gibbs sampler; its methods are {', '.join(model.methods)}"
        )
    if is_stated(model):
        raise ValueError(
            f"this {model_name(model)} measures its data in units, which NumPyro's driver does not know: use "
            "inference.fit, or zoo.coordinates.of_models.inside(model, model.own_coordinates) with data in "
            "these units"
        )
    method = method_of(model, "gibbs")
    algorithm = method.build(method.strategies[0], num_warmup=0, **method.options)
    return GibbsKernel(model, algorithm)
