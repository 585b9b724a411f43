"""Sketches of a model's weights while it trains, so that runs can be compared without their weights.

A folder holds one safetensors file per tracked step. Of every tensor it has 1,024 mid-quantiles (for
W1), 1,024 values at fixed places (for paired distances), and the size of the last update relative to the
weight. Tensors of up to 1,024 values are stored whole.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.arrays import read_tensors
from holdfast.files import write_whole
from holdfast.profile.numerics.distances import SKETCH, ascending, flat, positions
from holdfast.profile.ops.targets import refused

if TYPE_CHECKING:
    import torch

METADATA = "holdfast-weights"
VERSION = 1
STATISTICS = ("rms", "update_ratio", "non_finite")


class WeightTracker:
    """Writes sketches of a model's parameters every few steps, and watches its updates.

        tracker = WeightTracker(model, every=10, dir="tracks/run-a").attach(optimizer)

    Attached to an optimizer it needs no call in the training loop. Otherwise call `step` after each
    optimizer step. With a sharded model (FSDP, DTensor) each rank tracks its own shard and needs a
    separate folder.

    Args:
        model: the model whose floating-point parameters are tracked; tied ones once.
        every: optimizer steps between sketches.
        dir: folder of the sketches; created if missing.
        resume_from: step of the checkpoint that training resumes from: later sketches are removed, since
            their steps run again. Without it the folder must not contain sketches.

    Raises:
        InputError: ``output-exists``, ``no-data`` without a parameter to track.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        every: int = 10,
        dir: str | Path,
        resume_from: int | None = None,
    ) -> None:
        if every < 1:
            raise refused("invalid every", "out-of-range", "every", every, "1 or more")
        self.every = every
        self.folder = Path(dir)
        # Optimizer steps so far.
        self.number = resume_from or 0
        self._live = {n: p for n, p in model.named_parameters() if p.is_floating_point()}
        if not self._live:
            raise refused("the model has no floating-point parameters", "no-data", "model")
        self._places = {name: _places(_local(each)) for name, each in self._live.items()}
        self._samples = self._sampled()
        # Parameter -> RMS of its last update over its own RMS, of the last step, by the sample.
        self.update_ratios: dict[str, float] = {}
        self.folder.mkdir(parents=True, exist_ok=True)
        files = sketch_files(self.folder)
        if files and resume_from is None:
            problem = "the folder has sketches of another run"
            remedy = "name a new folder, or give resume_from, the step of the checkpoint"
            raise refused(problem, "output-exists", path=self.folder, remedy=remedy)
        for step in files:
            if step > self.number:
                files[step].unlink()

    def attach(self, optimizer: torch.optim.Optimizer) -> WeightTracker:
        """Call `step` after every step of an optimizer."""
        optimizer.register_step_post_hook(lambda *_: self.step())
        return self

    def step(self) -> None:
        """Count an optimizer step that was made; write sketches where they are due."""
        self.number += 1
        self._update_ratios()
        if self.number % self.every == 0:
            self.write()

    def write(self) -> None:
        """Write the sketches of this moment."""
        names = list(self._live)
        # float32 holds the values of every format but float64.
        wide = any(each.element_size() > 4 for each in self._live.values())
        quantiles = np.full((len(names), SKETCH), np.nan, np.float64 if wide else np.float32)
        paired = np.full_like(quantiles, np.nan)
        facts = np.zeros((len(names), len(STATISTICS)))
        sizes = [int(_local(parameter).numel()) for parameter in self._live.values()]
        for row, (name, sample) in enumerate(self._samples.items()):
            ranked, rms, non_finite = _quantiles(_local(self._live[name]))
            quantiles[row, : len(ranked)] = ranked
            paired[row, : len(sample)] = sample
            facts[row] = rms, self.update_ratios.get(name, math.nan), non_finite
        path = self.folder / f"step-{self.number:010d}.safetensors"
        save(path, Sketch(self.number, names, sizes, quantiles, paired, facts))

    def _sampled(self) -> dict[str, np.ndarray]:
        """The values at the fixed places of every parameter, up to 1,024 each; one copy from the device."""
        import torch

        pieces = []
        for name, parameter in self._live.items():
            local = _local(parameter).detach().reshape(-1)
            pieces.append(local.index_select(0, self._places[name]).double())
        together = torch.cat([piece.to(pieces[0].device) for piece in pieces]).cpu().numpy()
        ends = np.cumsum([len(piece) for piece in pieces])
        return dict(zip(self._live, np.split(together, ends[:-1]), strict=True))

    def _update_ratios(self) -> None:
        now = self._sampled()
        for name, values in now.items():
            with np.errstate(invalid="ignore", over="ignore"):
                size = float(np.linalg.norm(values))
                change = float(np.linalg.norm(values - self._samples[name]))
            # An update to NaN or infinity is larger than any other.
            known = math.isfinite(change) and size > 0
            self.update_ratios[name] = change / size if known else math.inf if change else 0.0
        self._samples = now


def _local(parameter: Any) -> Any:
    """A parameter, or this rank's shard of a distributed one."""
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter


def _places(tensor: torch.Tensor) -> torch.Tensor:
    """`positions` on the device of a tensor."""
    import torch

    return torch.from_numpy(positions(tensor.numel())).to(tensor.device)


def _quantiles(tensor: torch.Tensor) -> tuple[np.ndarray, float, int]:
    """Mid-quantiles of the finite values, root mean square, and the number of other values."""
    import torch

    values = tensor.detach().reshape(-1)
    total = float(torch.linalg.vector_norm(values, dtype=torch.float64))
    non_finite = 0
    if not math.isfinite(total):  # a sum of finite squares may overflow too
        finite = torch.isfinite(values)
        non_finite = int((~finite).sum())
        values = values[finite]
        total = float(torch.linalg.vector_norm(values, dtype=torch.float64))
    n = values.numel()
    if values.device.type == "cpu":
        ranked = ascending(flat(values))[positions(n)]
    else:  # sorted on the device: only the quantiles are copied
        ranked = flat(torch.sort(values)[0][_places(values)])
    return ranked, total / math.sqrt(max(n, 1)), non_finite


# --- Files ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sketch:
    """One tracked step.

    Attributes:
        sizes: Elements of each tensor.
        quantiles: [tensors, 1024] ascending; NaN behind the values of smaller tensors.
        paired: [tensors, 1024] values at `positions`; NaN behind them.
        statistics: [tensors, 3]: `STATISTICS`.
    """

    step: int
    names: list[str]
    sizes: list[int]
    quantiles: np.ndarray
    paired: np.ndarray
    statistics: np.ndarray


def save(path: Path, sketch: Sketch) -> None:
    """Write a sketch, whole or not at all."""
    from safetensors.numpy import save as to_bytes

    facts = dict(vars(sketch))
    parts = {name: facts.pop(name) for name in ("quantiles", "paired", "statistics")}
    write_whole(path, to_bytes(parts, {METADATA: json.dumps(facts | {"version": VERSION})}))


def load(path: Path) -> Sketch:
    """Read a sketch.

    Raises:
        InputError: ``damaged`` where it is cut off or changed, ``unknown-format`` for another file.
    """
    remedy = "remove the file: other steps can still be compared"
    parts, facts = read_tensors(path, METADATA, remedy)
    if facts is None or facts.pop("version", None) != VERSION:
        raise refused("not a sketch of weights", "unknown-format", path=path)
    return Sketch(**facts, **{name: part.astype(np.float64) for name, part in parts.items()})


def sketch_files(folder: Path) -> dict[int, Path]:
    """Step -> file, ascending."""
    found = {path.stem.removeprefix("step-"): path for path in folder.glob("step-*.safetensors")}
    return {int(step): found[step] for step in sorted(found) if step.isdecimal()}
