"""What ``python -m tests.benchmarks.topics`` measured of the topic models on newsgroups, against its bars."""

import json
from pathlib import Path

RECORD = Path(__file__).parents[1] / "reference" / "benchmark_topics.json"


def test_clusters_agree_with_the_newsgroups():
    """Bar 5, K = 10: the best bound of ten starts has NMI of at least 0.60, their mean of at least 0.52."""
    found = json.loads(RECORD.read_text(encoding="utf-8"))["NMI, news4_stemmed, K = 10"]
    assert found["best bound"] >= 0.60 and found["mean"] >= 0.52
    assert len(found["all"]) == 10 and found["best bound"] in found["all"]
