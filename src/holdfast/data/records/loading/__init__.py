"""Feeding a training: the order of an epoch, what is read ahead, what a resumed run begins with."""
