"""Text generation by early exit: draft with the first layers, verify with the rest."""
