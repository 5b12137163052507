"""Speed against peers, measured in one run: ratios, never timed unit tests."""
