"""Arrays that are not counted: the caller keeps them alive while the kernel works on them.

Numba counts the references to every array of a tuple that is handed to a function; for a small function
that costs more than its work.
"""

from __future__ import annotations

from typing import Any

from numba import njit
from numba.core import cgutils
from numba.extending import intrinsic

from holdfast.fleet.simulation.kernel.state import Simulation


@intrinsic
def _uncounted(_typing: Any, array: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=arguments[0])
        made.meminfo = cgutils.get_null_value(made.meminfo.type)
        return made._getvalue()

    return array(array), codegen


_borrow: Any = _uncounted  # called by Numba without its first argument


@njit(cache=True)
def borrowed(sim: Simulation) -> Simulation:
    """The same arrays, not counted."""
    return Simulation(
        _borrow(sim.rules),
        _borrow(sim.counters),
        _borrow(sim.nodes),
        _borrow(sim.on_node),
        _borrow(sim.lists),
        _borrow(sim.jobs),
        _borrow(sim.classes),
        _borrow(sim.slots),
        _borrow(sim.heap),
        _borrow(sim.out),
        _borrow(sim.node_rows),
        _borrow(sim.failures),
        _borrow(sim.components),
        _borrow(sim.blasts),
        _borrow(sim.sources),
        _borrow(sim.scratch),
    )
