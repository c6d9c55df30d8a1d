"""Executors decide where workers live; each is found through its entry point."""
