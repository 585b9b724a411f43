"""Run a training without a change to its code, record it, and say at its end what to do."""
