"""What each fidelity shows, and how fast it is read."""
