"""What ``perfcollect doctor`` checks: each module gives a function from a scope to findings."""
