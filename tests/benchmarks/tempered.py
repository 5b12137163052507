"""Evidence by tempering: what it costs, how often states travel, and how far it is from what is known.

``python -m tests.benchmarks.tempered [--record] [PART ...]`` writes ``tests/reference/benchmark_tempered.json``,
part by part; each is recorded as soon as it is known. CPU seconds include compilation, which no cache spares.

``faithful``: Old Faithful, K = 20 and concentration 1, five runs. Wanted: 50 round trips, a standard error of
at most .15 and 40 CPU seconds in each, a range of at most 4.5 mean standard errors; without split-merge moves
the verdict refuses.

``ppca``: six columns, three latents, twenty seeds, against importance sampling by draws from the prior of what
the loadings leave. Wanted: within three standard errors, each at most .1.

``olive``: five continuous columns under the prior of Fraley and Raftery (2007), and a table drawn from nine
Gaussians of olive's sizes, means and covariances, plain. Wanted: convergence in 150 and in 30 CPU seconds.
"""

import argparse
import time
import warnings

import numpy as np

NAME = "benchmark_tempered"
FAITHFUL = {"num_samples": 600}
