"""Party 0 has customers, party 1 a model; only party 0 learns the scores."""

from holdfast.private.mpc.functions import sigmoid


def main(party):
    """What every party runs."""
    customers = party.secret([[0.5, -1.2, 3.0], [2.0, 0.1, -0.4]], owner=0)
    weights = party.secret([[0.8], [-0.5], [0.3]], owner=1)
    bias = party.secret([-1.0], owner=1)
    scores = sigmoid(customers @ weights + bias)
    return scores.reveal(to=0)
