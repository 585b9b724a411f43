"""Speech: recognizing it (`recognize`)."""
