"""Communication libraries, each found through the entry-point group ``perfcollect.comm_backends``."""
