"""Plan a run, drive its workers, journal what they find."""
