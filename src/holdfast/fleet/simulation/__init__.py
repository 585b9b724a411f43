"""What a cluster would do: scenarios, the event simulator, calibration from a log, and what-if."""
