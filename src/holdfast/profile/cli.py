"""`holdfast profile`: each command calls the function of the same name and returns its result."""

from __future__ import annotations

from holdfast.command import room

app = room(
    "profile", "Where the FLOPs, bytes and time of a model go, and how far its numbers deviate."
)

numerics = room(
    "numerics", "Numeric deviation: attention, any operator, invariance, weights, loss spikes."
)
app.command(numerics)
for name, about in {
    "attention": "Measure how far attention deviates from float64, and which step causes it.",
    "compare": "Compare implementations of an operator with float64.",
    "invariance": "Find what changes the bits of an operator: batch, tile, run, threads.",
    "spikes": "Find loss spikes in a recorded curve.",
}.items():
    numerics.command(f"holdfast.profile.numerics.cli:{name}", name=name, help=about)
track = room("track", "Weights of runs, tracked by `WeightTracker`.")
numerics.command(track)
track.command(
    "holdfast.profile.numerics.cli:track_diff", name="diff", help="Compare the weights of two runs."
)
