"""Projects that ``perfcollect plugin new`` writes."""
