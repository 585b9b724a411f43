"""Hangs: PyTorch Flight Recorder dumps of all ranks -> one verdict."""
