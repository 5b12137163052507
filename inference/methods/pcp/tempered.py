"""Tempered sampling of PCP: the blocked Gibbs sampler, or NUTS."""

from inference.methods.documents.tempered import of_topics
from inference.methods.pcp import gibbs
from inference.methods.tempered.nuts import beside_nuts

METHOD = beside_nuts(of_topics(gibbs))
