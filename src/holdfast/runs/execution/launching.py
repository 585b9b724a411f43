"""Run a command as it would run by itself, with the recording of its ranks, and judge how it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from holdfast.errors import InputError
from holdfast.files import write_whole
from holdfast.plain import plain
from holdfast.runs.execution import injected
from holdfast.runs.execution.verdict import Executed, Past, judged
from holdfast.runs.recording.identity import checked_run_id
from holdfast.runs.watching.notices import Notice
from holdfast.runs.watching.thresholds import DEFAULTS
from holdfast.runs.watching.watcher import SystemClock, watch

SITE = Path(__file__).parent / "startup"
"""What stands first on PYTHONPATH below the command: it holds our `sitecustomize`."""
PAST = "verdicts.jsonl"
"""In the run's folder: one line per command that has ended."""
POLL_S = 1.0
GRACE_S = 40.0
"""Time for a launcher to end its ranks (torchrun takes up to 30 s) before it is killed."""
FORWARDED = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
    *(signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
)
STOPPING = ("hang", "silence")
"""Alarms for which ``stop_on_hang`` ends the command."""
ENTRIES = "2000"
"""Operations that the Flight Recorder keeps per rank."""


def execute(
    command: Sequence[str],
    folder: str | Path = "holdfast-run",
    run_id: str = "run",
    *,
    watched: bool = False,
    stop_on_hang: bool = False,
    hang_after_s: float = DEFAULTS.hang_s,
) -> Executed:
    """Run a training, record each of its ranks without a change to its code, and judge its end.

    The command inherits the terminal; signals go to it. Processes of Python below it record themselves
    (`execution.injected`) where they train with torch.

    Args:
        command: program and arguments, such as ``["torchrun", "--nproc-per-node=8", "train.py"]``.
        folder: where runs are recorded, the same for all nodes and all attempts of a job.
        run_id: the run, the same for all attempts of a job.
        watched: print alarms on stderr as they open and close, as `watch`.
        stop_on_hang: end the command when it hangs, or when a rank is gone and the others wait for it.
        hang_after_s: time without progress that is a hang; its flight records are written before.

    Returns:
        The verdict; ``exit_code`` is the command's, 128 + N if signal N ended it.

    Raises:
        InputError: no such program, an invalid run id.
    """
    own = Path(folder).absolute() / checked_run_id(run_id)
    own.mkdir(parents=True, exist_ok=True)
    launched_s, kills = time.time(), _oom_kills()
    child = _Child()
    with child.forwarding():
        child.start(command, _environment(own, hang_after_s))
        clock = SystemClock()
        watching = threading.Thread(
            target=_watch, args=(own, clock, child, watched, stop_on_hang, hang_after_s)
        )
        if watched or stop_on_hang:
            watching.start()
        code = child.wait()
        clock.ended = True
    if watching.ident is not None:
        watching.join()
    past = _past(own)
    verdict = judged(
        own,
        tuple(command),
        code if code >= 0 else 128 - code,
        launched_s,
        past,
        stopped=child.stopped,
        signals=tuple(signal.Signals(each).name for each in dict.fromkeys(child.received)),
        out_of_memory=_oom_kills() > kills,
        job={name: os.environ[key] for key, name in injected.LABELS.items() if key in os.environ},
    )
    if (
        os.environ.get("SLURM_PROCID", "0") == "0"
    ):  # of several tasks the first one keeps the verdict
        lines = [json.dumps(plain(each)) for each in (*past, verdict.past)]
        write_whole(own / PAST, "".join(f"{line}\n" for line in lines).encode())
    return verdict


class _Child:
    """The command, and the signals that it gets."""

    def __init__(self) -> None:
        self.received: list[int] = []
        """Signals to this process, which are passed on."""
        self.stopped = False
        """Whether it was ended because it hung."""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        try:
            self._process = subprocess.Popen(command, env=environment)
        except OSError as error:
            raise InputError(
                "the command cannot be run",
                code="not-found",
                found=f"{command[0]}: {error.strerror}",
                expected="a program and its arguments after --",
            ) from None
        for number in self.received:  # those that came before it was there
            self._process.send_signal(number)

    @contextmanager
    def forwarding(self) -> Iterator[None]:
        """Pass signals on until the block ends."""
        here = threading.current_thread() is threading.main_thread()
        before = {each: signal.signal(each, self._take) for each in FORWARDED if here}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
        # The command has got a signal from the terminal itself.
        typed = number == signal.SIGINT and _in_foreground()
        if self._process is not None and not typed:
            self._process.send_signal(number)

    def stop(self) -> None:
        """End it; what does not end by itself is killed."""
        if self.stopped or self._process is None:
            return
        self.stopped = True
        self._process.terminate()
        killer = threading.Timer(GRACE_S, self._process.kill)
        killer.daemon = True
        killer.start()

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait()


def _in_foreground() -> bool:
    with suppress(OSError):
        return os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
    return False


def _environment(own: Path, hang_after_s: float) -> dict[str, str]:
    """The command's: ours, the recording's, and the Flight Recorder's where the user sets none."""
    paths = [str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    recorders = {
        "TORCH_FR_BUFFER_SIZE": ENTRIES,
        "TORCH_NCCL_TRACE_BUFFER_SIZE": ENTRIES,
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(own / "flight" / "nccl_trace_rank_"),
    }
    (own / "flight").mkdir(exist_ok=True)
    return {
        **recorders,
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        injected.FOLDER: str(own.parent),
        injected.RUN_ID: own.name,
        injected.PARENT: str(os.getpid()),
        # Before the watcher calls it a hang: it may end the ranks.
        injected.HANG: str(0.8 * hang_after_s),
    }


def _watch(
    own: Path,
    clock: SystemClock,
    child: _Child,
    watched: bool,
    stop_on_hang: bool,
    hang_after_s: float,
) -> None:
    def tell(told: Notice) -> None:
        if watched:
            print(f"holdfast: {told.line()}", file=sys.stderr, flush=True)
        if stop_on_hang and told.change.event == "opened" and told.change.alarm.kind in STOPPING:
            child.stop()

    silent_s = max(DEFAULTS.silence_s, hang_after_s)
    limits = DEFAULTS.changed([f"hang_s={hang_after_s}s", f"silence_s={silent_s}s"])
    try:
        watch(own, limits=limits, poll_s=min(POLL_S, hang_after_s / 4), on_notice=tell, clock=clock)
    except Exception as error:  # the training goes on
        print(f"holdfast: the run is not watched any more: {error}", file=sys.stderr)


def _past(own: Path) -> tuple[Past, ...]:
    """The verdicts on earlier commands of the job; a line of another version is left out."""
    found = []
    with suppress(OSError):
        for line in (own / PAST).read_text(encoding="utf-8").splitlines():
            with suppress(ValueError, TypeError):
                found.append(Past(**json.loads(line)))
    return tuple(found)


def _oom_kills() -> int:
    """Processes of this control group that the kernel killed for lack of memory; 0: it does not say."""
    with suppress(OSError, ValueError):
        group = (
            Path("/proc/self/cgroup").read_text(encoding="ascii").partition("::")[2].split("\n")[0]
        )
        events = Path(f"/sys/fs/cgroup{group}", "memory.events").read_text(encoding="ascii")
        counts = dict(line.split() for line in events.splitlines())
        return int(counts.get("oom_kill", 0))
    return 0
