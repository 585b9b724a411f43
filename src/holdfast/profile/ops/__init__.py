"""Operator-level characterization of models: FLOPs, bytes, attention calls, roofline, time."""
