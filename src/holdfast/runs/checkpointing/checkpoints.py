"""`Checkpoints`: saves in the background, published at once or not at all, loaded only if undamaged."""

from __future__ import annotations

import logging
import secrets
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol, Self

from holdfast.errors import HoldfastError, InputError, MissingExtraError, StoreError
from holdfast.files import Lock
from holdfast.runs.checkpointing import publication
from holdfast.runs.checkpointing.causes import could_not_save
from holdfast.runs.checkpointing.folder import (
    Checkpoint,
    CheckpointFolder,
    look,
    verify,
)
from holdfast.runs.checkpointing.manifest import MANIFEST, read_manifest

if TYPE_CHECKING:
    from holdfast.runs.checkpointing.ranks import Ranks
    from holdfast.runs.checkpointing.staging import Staging
    from holdfast.runs.checkpointing.writing import PublishingWriter

_log = logging.getLogger(__name__)


class Recorder(Protocol):
    """What a save reports to: `holdfast.runs.RunRecorder` has these."""

    def checkpoint(self, step: int, /) -> AbstractContextManager[Any]:
        """Around what stops the training."""

    def published(self, step: int, /, *, background_s: float, size_bytes: int) -> None:
        """Called in the background when the checkpoint is complete."""


@dataclass
class _Save:
    """A save whose second stage may still be under way."""

    step: int
    over: Event = field(default_factory=Event)
    error: HoldfastError | None = None


class Checkpoints:
    """The checkpoints of a run in one folder.

        with Checkpoints("checkpoints", recorder=recorder) as checkpoints:
            done = checkpoints.load(state)              # None: nothing there, from scratch
            for step in range((done or 0) + 1, last + 1):
                ...
                if step % 100 == 0:
                    checkpoints.save(step, state)

    Every rank makes one and calls `save` and `load` with the others. A save has two stages: the state
    is copied into host memory, which the training waits for, and `torch.distributed.checkpoint` writes
    it in the background. When the files of all ranks are complete and synced, the checkpoint gets its
    name by one rename: it exists or it does not. Killed at any moment, the job finds the last published
    one whole.

    A folder belongs to one run: a second living writer is refused. Reading and `holdfast runs
    checkpoints` are free to all.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        keep: int | None = 3,
        keep_every: int | None = None,
        recorder: Recorder | None = None,
        process_group: Any = None,
    ) -> None:
        """Create the object; the first save creates the folder.

        Args:
            folder: folder on a file system that all ranks share.
            keep: number of recent published checkpoints to keep, at least 1; None: all. The last complete
                one is always kept, and one that is being loaded.
            keep_every: checkpoints of steps that are a multiple of it are never deleted.
            recorder: records how long saves block the training and run in the background.
            process_group: the ranks that save together; None: all ranks of the job.

        Raises:
            InputError: if `keep` or `keep_every` is below 1.
        """
        for name, value in (("keep", keep), ("keep_every", keep_every)):
            if value is not None and value < 1:
                raise InputError(
                    f"{name} must be at least 1",
                    code="invalid-value",
                    found=str(value),
                    remedy="None switches it off",
                )
        self.folder = Path(folder)
        self._keep, self._keep_every = keep, keep_every
        self._recorder = recorder
        self._process_group = process_group
        self._pending: _Save | None = None
        self._lock: Lock | None = None
        self._token: str | None = None
        self._made_ranks: Ranks | None = None
        self._made_staging: Staging | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            self.close()
        except HoldfastError:
            if error is None:  # else the error under way is the one to see; this one is in the log
                raise

    # --- Saving ------------------------------------------------------------------------------------

    def save(self, step: int, state_dict: Mapping[str, Any]) -> None:
        """Save the state after a step; returns once it is copied and may change again.

        If the previous save is still being written, waits for it first. Both waits are recorded as
        blocking.

        Args:
            step: the last step included in the state.
            state_dict: tensors (`DTensor` too), numbers, strings, bytes, and dicts, lists and tuples of
                them; at the top level also objects with ``state_dict`` and ``load_state_dict``.

        Raises:
            StoreError: if the *previous* save failed in the background; this one is not started.
            InputError: if the state contains anything else, or another process writes to the folder.
        """
        _require_torch()
        if step < 0:
            raise InputError("a step is a number from 0 on", code="invalid-value", found=str(step))
        blocking = self._recorder.checkpoint(step) if self._recorder else nullcontext()
        with blocking:
            self.wait()
            self._begin(step, dict(state_dict))

    def _begin(self, step: int, state_dict: dict[str, Any]) -> None:
        import torch.distributed as dist
        from torch.distributed.checkpoint import async_save

        from holdfast.runs.checkpointing.loading import ALONE
        from holdfast.runs.checkpointing.writing import PublishingWriter

        ranks = self._ranks()
        if self._token is None:
            self._token = ranks.first(self._open_folder)
        draft = publication.Draft(self.folder, step, self._token)
        save = _Save(step)
        writer = PublishingWriter(draft, self._staging(), ranks.size)
        if not dist.is_initialized():
            # Process-wide filter, as the save continues in another thread; the warning is expected.
            warnings.filterwarnings("ignore", message=ALONE)
        upload = async_save(state_dict, storage_writer=writer, process_group=ranks.group)
        self._pending = save
        upload.add_done_callback(lambda done: self._settle(save, writer, done))

    def _open_folder(self) -> str:
        """Take the folder, on the first rank; gives the token of this writer's drafts."""
        self._lock = publication.claim(self.folder)
        if self._lock.excludes:
            publication.sweep(self.folder)
        return secrets.token_hex(8)

    def _settle(self, save: _Save, writer: PublishingWriter, done: Any) -> None:
        """The end of a save, in the background: tell the recorder and make room, or keep the error."""
        try:
            error = done.exception()
            if error is None and self._recorder is not None:
                self._recorder.published(
                    save.step, background_s=writer.background_s, size_bytes=writer.size_bytes
                )
            if self._ranks().is_first:
                self._tidy(writer, failed=error is not None)
        except Exception as unforeseen:
            error = unforeseen
        try:
            if error is not None:
                save.error = could_not_save(self.folder, save.step, error)
                _log.error("%s", save.error)
        finally:
            save.over.set()

    def _tidy(self, writer: PublishingWriter, failed: bool) -> None:
        if failed and writer.published is None:
            writer.draft.discard()
        else:
            publication.retain(
                self.folder, self._keep, self._keep_every, writer.draft.token, _log.warning
            )

    def wait(self) -> None:
        """Wait for the save under way, if any; to be called before the process group is destroyed.

        Raises:
            StoreError: if it failed.
        """
        if self._pending is None:
            return
        self._pending.over.wait()
        save, self._pending = self._pending, None
        if save.error is not None:
            raise save.error

    def close(self) -> None:
        """Wait for the save under way and let others write in the folder.

        Raises:
            StoreError: if the save failed.
        """
        try:
            self.wait()
        finally:
            if self._lock is not None:
                self._lock.close()
            self._lock = self._token = None

    # --- Loading -----------------------------------------------------------------------------------

    def load(
        self,
        state_dict: dict[str, Any],
        step: int | None = None,
        *,
        replicas: Any = None,
        strict: bool = True,
    ) -> int | None:
        """Load a checkpoint into a state dict, in place, after its checksums were compared.

        The ranks share the reading of the checksums. A checkpoint that turns out damaged is passed
        over with a remark, for the one published before it.

        Args:
            state_dict: as given to `save`, of this run; tensors may be split over other ranks than
                when they were saved.
            step: which one; None: the one published last.
            replicas: a process group whose ranks hold the same state (the data-parallel group): its
                first rank reads, the others get the state over the network. None: every rank reads
                what it needs.
            strict: whether the state dict must ask for all that is in the checkpoint.

        Returns:
            the step that was loaded; None if there is no checkpoint at all and none was asked for.

        Raises:
            StoreError: if all checkpoints are damaged, or the one that was asked for.
            InputError: if there is none of this step, it does not fit the state dict, or a newer
                holdfast wrote it.
        """
        _require_torch()
        from holdfast.runs.checkpointing.loading import Loading

        self.wait()
        ranks = self._ranks()
        candidates = ranks.first(lambda: self._candidates(step))
        for candidate in candidates:
            with ExitStack() as held:
                loading = Loading(candidate, ranks, replicas, held)
                damage = loading.damage()
                if not damage:
                    loading.into(state_dict, strict)
                    return candidate.step
            if ranks.is_first:
                listed = "; ".join(map(str, damage))
                _log.warning("%s is damaged and passed over: %s", candidate.path, listed)
        if not candidates:
            return None
        raise StoreError(
            f"{self.folder}: every checkpoint{'' if step is None else f' of step {step}'} is damaged\n"
            f"  found: {', '.join(each.path.name for each in candidates)}\n"
            f"  remedy: holdfast runs checkpoints {self.folder} --verify says what is damaged"
        )

    def _candidates(self, step: int | None) -> Sequence[Checkpoint]:
        """What may be loaded, the best first; damaged ones too, to be named."""
        if step is None:
            listed = self.look()
            _refuse_newer(listed.checkpoints)
            return listed.checkpoints[::-1]
        there = self._of_step(step)
        _refuse_newer(there)
        return there[::-1]

    # --- Looking and removing ------------------------------------------------------------------------

    def look(self) -> CheckpointFolder:
        """What is in the folder now, in the order of publication; nothing where it is not yet made."""
        if not self.folder.exists():
            return CheckpointFolder(self.folder, time.time(), (), (), ())
        return look(self.folder)

    def latest_complete(self) -> int | None:
        """The step of the checkpoint published last that is complete; None: there is none.

        Files are held against the manifest by their sizes; `load` and `verify` compare checksums.
        """
        complete = self.look().complete
        return complete[-1].step if complete else None

    def verify(self, step: int) -> Checkpoint:
        """The checkpoint of a step with every file read and summed; its last publication.

        Raises:
            InputError: if there is none.
        """
        return verify(self._of_step(step)[-1])

    def remove(self, step: int) -> None:
        """Remove the checkpoint of a step, all its publications.

        Raises:
            InputError: if there is none, no complete one would be left, or it is being loaded.
        """
        there = self._of_step(step)
        if not [each for each in self.look().complete if each.step != step]:
            raise InputError(
                f"step {step} has the last complete checkpoint",
                code="conflict",
                path=self.folder,
                remedy="remove the folder if the run is not to continue",
            )
        for each in there:
            publication.remove(each, self._token or secrets.token_hex(8))

    def _of_step(self, step: int) -> Sequence[Checkpoint]:
        listed = self.look()
        there = [each for each in listed.checkpoints if each.step == step]
        if not there:
            steps = ", ".join(dict.fromkeys(str(each.step) for each in listed.checkpoints))
            raise InputError(
                f"no checkpoint of step {step}",
                code="not-found",
                path=self.folder,
                found=f"steps {steps}" if steps else "no checkpoint",
            )
        return there

    def _ranks(self) -> Ranks:
        if self._made_ranks is None:
            from holdfast.runs.checkpointing.ranks import Ranks

            self._made_ranks = Ranks(self._process_group)
        return self._made_ranks

    def _staging(self) -> Staging:
        if self._made_staging is None:
            from holdfast.runs.checkpointing.staging import Staging

            self._made_staging = Staging()
        return self._made_staging


def _require_torch() -> None:
    try:
        import torch.distributed  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("torch", "torch") from error


def _refuse_newer(checkpoints: Sequence[Checkpoint]) -> None:
    """Raise if one is of a newer holdfast: to pass it over would lose steps without a word."""
    for each in checkpoints:
        if each.status == "newer":
            read_manifest(each.path / MANIFEST)
