"""Theory rows: axes, models, budget, sampling."""
