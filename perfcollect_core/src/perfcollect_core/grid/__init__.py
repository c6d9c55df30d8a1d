"""Theory rows: models, axes, budget, sampling, coverage and writing (``perfcollect grid``)."""
