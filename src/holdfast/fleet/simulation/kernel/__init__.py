"""The event kernel, compiled by Numba: arrays in, arrays out, one thread, no Python objects.

`advance` plays the events; the other modules are the verbs that it uses. Time is whole milliseconds.
"""
