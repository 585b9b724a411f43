"""What the graph of a machine is like: reachable states, components, orders; and trimming."""
