"""Opt-in hook wrappers that come with core."""
