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
for place, about in {
    "cli:attention": "Measure how far attention deviates from float64, and which step causes it.",
    "cli:compare": "Compare implementations of an operator with float64.",
    "cli:invariance": "Find what changes the bits of an operator: batch, tile, run, threads.",
    "spike_report:spikes": "Find loss spikes in a recorded curve.",
}.items():
    name = place.partition(":")[2]
    numerics.command(f"holdfast.profile.numerics.{place}", name=name, help=about)
track = room("track", "Weights of runs, tracked by a WeightTracker.")
numerics.command(track)
about = "Compare the weights of two runs, from their sketches or from two checkpoints."
track.command("holdfast.profile.numerics.weights:track_diff", name="diff", help=about)
