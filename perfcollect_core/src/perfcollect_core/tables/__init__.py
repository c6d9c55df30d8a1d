"""The database on disk: where it lies, what it holds, how it is read and patched."""
