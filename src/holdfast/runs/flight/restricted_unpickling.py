"""Pickles of strangers, read as data: plain containers or an error, never a call.

What a pickle can do, and what stops it here:

- call something: every way to a callable leads through `find_class`, `persistent_load`, or an
  extension code of `copyreg`; the first two refuse, and the process that reads has no extensions;
- change an object's state (BUILD): containers of Python have no state to set, so it fails;
- claim huge sizes (a memo index, a byte array): the allocation fails at the address space limit of
  the process that reads, see `reading_process`;
- nest deeply or refer to itself: the unpickler does not recurse, and `compact` looks only as deep as
  a dump goes.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn


class RefusedPickleError(ValueError):
    """A pickle that is not plain data: it references code, is damaged, or exceeds a limit."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise RefusedPickleError(f"it asks for {module}.{name}; only plain data is read")

    def persistent_load(self, pid: object) -> NoReturn:
        raise RefusedPickleError("it refers to an object outside itself; only plain data is read")


def load_plain(content: bytes) -> Any:
    """The dictionaries, lists, tuples, texts and numbers in a pickle.

    Args:
        content: the whole pickle.

    Returns:
        What it holds. Containers may be shared or contain themselves.

    Raises:
        RefusedPickleError: if it names a class or function, is truncated or damaged, or is too large.
    """
    # A buffered reader can be peeked at; without that the unpickler reads byte by byte.
    source = io.BufferedReader(io.BytesIO(content), len(content) + 1)
    try:
        return _PlainUnpickler(source).load()
    except RefusedPickleError:
        raise
    except MemoryError:
        raise RefusedPickleError("it asks for more memory than a dump needs") from None
    except EOFError:
        raise RefusedPickleError("it ends before its end: truncated") from None
    except Exception as error:  # a damaged pickle raises nearly anything
        raise RefusedPickleError(f"damaged: {type(error).__name__}: {error}"[:200]) from None
