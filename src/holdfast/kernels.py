"""How Numba compiles the rooms' kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(**options: Any) -> Callable[[Function], Function]:
    """Compile a function with Numba at its first call, or load it from Numba's cache.

    Numba takes the 0 and the 1 of `f(x, 0)` and `f(x, 1)`, where one kernel calls another, for two types,
    and compiles `f` and all that it calls for each; likewise where `row = 0` is what a loop begins with.
    Here numbers are of the types of their variables, which takes a third off the time to compile. LLVM
    still knows the constants where it inlines.

    Args:
        options: of `numba.njit`.
    """
    from numba import njit
    from numba.core.types import BooleanLiteral, IntegerLiteral, unliteral

    def typed(kind: Any) -> Any:
        return unliteral(kind) if isinstance(kind, IntegerLiteral | BooleanLiteral) else kind

    def compiled(function: Function) -> Function:
        dispatcher = njit(cache=True, **options)(function)
        template = dispatcher.get_call_template

        def of_variables(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
            by_name = {name: typed(kind) for name, kind in named.items()}
            return template(tuple(map(typed, arguments)), by_name)

        dispatcher.get_call_template = of_variables
        return cast(Function, dispatcher)

    return compiled
