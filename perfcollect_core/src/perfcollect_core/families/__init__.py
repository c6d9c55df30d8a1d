"""Device-family plugins that come with core; each is found through its entry point."""
