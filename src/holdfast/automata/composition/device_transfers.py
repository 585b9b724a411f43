"""Arrays on their way to a device of torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.errors import MissingExtraError

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:
    raise MissingExtraError("torch", "torch") from error


def sent(array: npt.NDArray[Any], device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """An array as a tensor on the device, never to be written to: on the CPU it may share the memory."""
    here = np.ascontiguousarray(array)
    if not here.flags.writeable:  # torch warns of what could be written through the tensor
        here = here.copy()
    return torch.from_numpy(here).to(device=device, dtype=dtype)
