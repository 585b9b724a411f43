"""What a run did: its events, the recorder that writes them, and the reader."""
