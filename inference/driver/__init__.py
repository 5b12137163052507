"""The loops that repeat a step: ascents, chains of samplers, batches."""
