r"""Tempered sampling: a model's own sampler at several temperatures, and the log evidence.

Replica t of T moves under prior times likelihood to a power,

.. math::
    \pi_t(v) \propto p(v)\, p(x \mid v)^{\beta_t}, \qquad 0 = \beta_1 < \dots < \beta_T = 1,

by its *kernel*, an ordinary sampler of the model; the one at power 0 is a fresh draw from the prior in every
sweep. Then neighbours exchange their states: even pairs after even sweeps, odd pairs after odd ones, which
carries states through all temperatures in steps of one direction (non-reversible parallel tempering; Syed,
Bouchard-Cote, Deligiannidis and Doucet 2022). The draws at power 1 are those of the posterior.

`inference.methods.tempered.sampler` has the sweep, the schedule of powers and what is concluded,
`inference.methods.tempered.evidence` the estimates and when they are told. A kernel is a
`inference.methods.tempered.sampler.TemperedKernel`, beside the sampler that it is made of.
"""
