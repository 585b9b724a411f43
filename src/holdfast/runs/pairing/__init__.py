"""The two-round pair test: which node is faulty, and what a test of pairs cannot tell."""
