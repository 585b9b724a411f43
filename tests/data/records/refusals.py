"""What is refused is told by the code of the error, not by its sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.errors import InputError


@contextmanager
def refused(code: str) -> Iterator[pytest.ExceptionInfo[InputError]]:
    """The block must raise an `InputError` of this code."""
    with pytest.raises(InputError) as caught:
        yield caught
    assert caught.value.code == code
