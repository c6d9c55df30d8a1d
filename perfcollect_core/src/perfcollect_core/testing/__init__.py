"""The conformance kit for plugin authors; opt-in, nothing here is loaded by the program itself."""
