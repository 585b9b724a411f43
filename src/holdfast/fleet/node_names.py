"""One node, several names: monitors write ``n1.example.org`` or ``N1`` where Slurm writes ``n1``.

Two names are one node's if they have the first label in common, without regard to case, and no other node
of the cluster has it. A name that fits several nodes, or none, is nobody's: it is counted and said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence


def own_names(aliases: Iterable[str], known: Sequence[Collection[str]]) -> dict[str, str | None]:
    """The names of a log's own nodes behind other names.

    Args:
        aliases: names to look up; where the log has several clusters each with its own, ``alpha:n1``.
        known: the log's nodes, the group that counts first first.

    Returns:
        every name of `aliases` -> the node; None if no node, or more than one, has its first label.
    """
    groups = []
    for names in known:
        of_label = {}
        for name in names:
            of_label.setdefault(_label(name), []).append(name)
        groups.append(of_label)

    def own(name: str) -> str | None:
        for names, of_label in zip(known, groups, strict=True):
            if name in names:
                return name
            fits = of_label.get(_label(name), [])
            same = [each for each in fits if each.lower() == name.lower()] or fits
            if same:
                return same[0] if len(same) == 1 else None
        return None

    return {name: own(name) for name in aliases}


def _label(node: str) -> str:
    """The first label of a name: "alpha:n1" of "alpha:N1.example.org"; of an address all of it."""
    cluster, colon, host = node.rpartition(":")
    is_address = host.replace(".", "").isdigit()
    return cluster + colon + (host if is_address else host.partition(".")[0].lower())
