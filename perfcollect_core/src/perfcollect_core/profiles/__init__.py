"""Profiler output, read and turned into tables."""
