"""Reading records beside WebDataset and litdata: from a slow store, and from the disk, in one run.

    python benchmarks/records_read.py [DATA] [--peers PYTHON] [--copies 5] [--repeats 5] [--quick]

DATA is a folder with `dali_extra` (photos) and `signdigits/signdigits_600.tar`. All contenders read the
same images, stripped of metadata, and decode them to the same size with the same decoder on the same two
cores; contenders take turns. The store is a server of byte ranges on loopback that gives out 20 MB/s in
all and waits 20 ms before each answer, in a process of its own; it also counts requests and bytes. PYTHON
has the peers; without it the script makes `.venv-loaders`. Bytes of every contender are what the store
sent, or what its files have on the disk. Writes `benchmarks/results/records_read.json`; takes about eight
minutes on two idle cores. `--quick` tries it out: three copies, one repeat, no result.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from measuring import Run, compared, limited, machine, run, summary

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "records_read.json"
STEPS = HERE / "records_read_steps.py"
PEERS = HERE / "records_read_peers.py"
SERVER = HERE.parent / "tests" / "data" / "records" / "range_server.py"
VENV = HERE.parent / ".venv-loaders"
LIBRARIES = {
    "webdataset": "webdataset==1.0.2",
    "litdata": "litdata==0.2.76",
}
NAMES = {"webdataset": "WebDataset", "litdata": "litdata"}
PUBLISHED = 1.86
"""LitData beside WebDataset, by LitData's own table: no row of ours is to be read without it."""
SHARD = 64
BYTES_PER_SECOND = 20e6
LATENCY_MS = 20
LARGEST = 100_000
"""Bytes of a sign: one of the 600 is a photo of 3024 x 3024 pixels."""
AT_LEAST = 256
"""Shorter side of the images that a training on crops of 224 pixels would ask for."""


@dataclass(frozen=True)
class Contender:
    """Who reads, what of it."""

    kind: str
    """`pcr` or a peer."""
    fidelity: str = "full"

    @property
    def name(self) -> str:
        """As the results call it."""
        return f"holdfast {self.fidelity}" if self.kind == "pcr" else NAMES[self.kind]


Told: TypeAlias = dict[str, list[dict[str, Any]]]
OURS = tuple(Contender("pcr", fidelity) for fidelity in ("1", "2", "3", "full"))
THEIRS = tuple(Contender(kind) for kind in LIBRARIES)


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    host = machine()
    told: Told = defaultdict(list)
    runs: dict[str, list[Run]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        python = options.peers or _environment()
        sets = _inputs(options.data, work, options.copies)
        writing = {name: _write(images, work / name, python) for name, images in sets.items()}
        # Store and disk take turns, so that neither is of another hour.
        for _ in range(options.repeats):
            _from_the_store(work, python, told, runs)
            _from_the_disk(work, python, told, runs)
    summaries = {name: summary(each) for name, each in runs.items()}
    result = _result(told, summaries, writing, host)
    if not options.quick:
        options.result.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    for row in result["comparisons"]:
        print(f"{row['ratio']:6.2f}  {row['what']}  (beside {row['peer']}; goal {row['target']})")
    for row in result["limits"]:
        print(f"{row['value']:10,.3f} {row['unit']:8} {row['what']}  (allowed {row['limit']})")


def _from_the_store(work: Path, python: Path, told: Told, runs: dict[str, list[Run]]) -> None:
    """Every contender reads the photos from the slow store; some decode them, too."""
    with _store(work) as url:
        for contender, at_least in (
            *((each, None) for each in (*OURS, *THEIRS)),
            *((each, AT_LEAST) for each in (OURS[2], OURS[-1], *THEIRS)),
        ):
            where = f"{url}/photos/{contender.kind}"
            _counters(url)
            one, said = _read(contender, where, work / "photos", python, at_least)
            counted = _counters(url)
            name = f"store{'' if at_least is None else ', decoded'}: {contender.name}"
            told[name].append(said | {"gets": counted["requests"], "sent": counted["bytes"]})
            runs[name].append(one)


def _from_the_disk(work: Path, python: Path, told: Told, runs: dict[str, list[Run]]) -> None:
    """Every contender reads and decodes what lies in the page cache."""
    for set_, at_least in (("photos", 0), ("photos", AT_LEAST), ("signs", 0)):
        for contender in (OURS[2], OURS[-1], *THEIRS):
            folder = work / set_ / contender.kind
            one, said = _read(contender, str(folder), work / set_, python, at_least)
            name = f"disk, {set_}{' scaled' if at_least else ''}: {contender.name}"
            # The peers read their shards whole; ours tells the prefixes that it read.
            read = said.get("planned_bytes") or _size_of(folder)
            told[name].append(said | {"sent": read})
            runs[name].append(one)


def _size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _inputs(data: Path, work: Path, copies: int) -> dict[str, Path]:
    """Folders of JPEGs without metadata: the photos so many times, the signs half as often."""
    photos, signs = work / "photos" / "images", work / "signs" / "images"
    photos.mkdir(parents=True)
    signs.mkdir(parents=True)
    for number, file in enumerate(sorted((data / "dali_extra").glob("*.jpg"))):
        stripped = without_metadata(file.read_bytes())
        for copy in range(copies):
            (photos / f"{copy:02d}-{number:03d}.jpg").write_bytes(stripped)
    with tarfile.open(data / "signdigits" / "signdigits_600.tar") as tar:
        for number, member in enumerate(one for one in tar if one.isfile()):
            content = tar.extractfile(member)
            assert content is not None
            image = content.read()
            if len(image) > LARGEST:
                continue
            for copy in range(max(1, copies // 2)):
                (signs / f"{copy:02d}-{number:03d}.jpg").write_bytes(image)
    return {"photos": photos, "signs": signs}


def without_metadata(data: bytes) -> bytes:
    """A JPEG without comments and application segments, all its scans as they were.

    `jpegtran -copy none` would write progressive files as baseline ones with standard tables: larger.
    APP0 (JFIF) and APP14 (Adobe) stay, for they say what the colors are.
    """
    kept, at = [data[:2]], 2
    while data[at + 1] != 0xDA:  # from the first scan on, everything stays
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] in (0xE0, 0xEE) or not (
            0xE0 <= data[at + 1] <= 0xEF or data[at + 1] == 0xFE
        ):
            kept.append(data[at:end])
        at = end
    return b"".join([*kept, data[at:]])


def _write(images: Path, out: Path, python: Path) -> dict[str, Any]:
    """The data set of each contender; how fast ours is written beside the bare transform."""
    for kind in LIBRARIES:
        run([python, PEERS, "write", kind, images, out / kind, "--shard", str(SHARD)])
    steps = [sys.executable, STEPS]
    bare = _told(run([*steps, "transform", images]))
    plain = _told(run([*steps, "write", images, out / "plain"]))
    measured = _told(run([*steps, "write", images, out / "pcr", "--quality-images", "32"]))
    return {
        "dataset": measured,
        "stripped": _size_of(images),
        "bare_s": bare["seconds"],
        "plain_s": plain["seconds"],
        "measured_s": measured["seconds"],
    }


def _read(
    contender: Contender, where: str, folder: Path, python: Path, at_least: int | None
) -> tuple[Run, dict[str, Any]]:
    """One pass in a fresh process."""
    size = [] if at_least is None else ["--at-least", str(at_least)]
    if contender.kind == "pcr":
        command = [sys.executable, STEPS, "read", where, "--fidelity", contender.fidelity, *size]
    else:
        if contender.kind == "webdataset":  # it is told its shards by name
            shards = sorted(file.name for file in (folder / "webdataset").glob("*.tar"))
            where = " ".join(f"{where}/{name}" for name in shards)
        command = [python, PEERS, "read", contender.kind, where, *size]
    one = run(command)
    return one, _told(one)


def _told(one: Run) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(one.output.strip().splitlines()[-1])
    return told


@contextmanager
def _store(folder: Path) -> Iterator[str]:
    """The URL of a slow store of a folder."""
    throttle = ["--bytes-per-second", f"{BYTES_PER_SECOND:.0f}", "--latency-ms", str(LATENCY_MS)]
    server = subprocess.Popen(
        [sys.executable, SERVER, folder, *throttle, "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.terminate()
        server.wait()


def _counters(url: str) -> dict[str, int]:
    """What the store gave out since it was last asked."""
    with urllib.request.urlopen(f"{url}/.counters?reset") as answer:
        counted: dict[str, int] = json.load(answer)
    return counted


def _result(
    told: Told,
    summaries: dict[str, Any],
    writing: dict[str, Any],
    host: dict[str, Any],
) -> dict[str, Any]:
    def median(name: str, what: str = "seconds") -> float:
        return statistics.median(one[what] for one in told[name])

    images = int(median("store: holdfast full", "images"))
    assert len({one["images"] for name in told if "store" in name for one in told[name]}) == 1
    for place in ("disk, photos", "disk, photos scaled", "store, decoded"):
        shown = {
            one["pixels"] for name in told if name.startswith(f"{place}:") for one in told[name]
        }
        assert len(shown) == 1, "every contender decodes to the same size"
    comparisons, limits = [], []
    for contender in OURS:
        for peer in THEIRS:
            target = 2.7 if contender.fidelity == "3" and peer.kind != "litdata" else None
            comparisons.append(
                compared(
                    f"{images} photos from the store, not decoded, fidelity {contender.fidelity}",
                    median(f"store: {contender.name}"),
                    peer.name,
                    median(f"store: {peer.name}"),
                    target,
                )
            )
    comparisons += [
        compared(
            f"{images} photos from the store, decoded, fidelity {contender.fidelity}",
            median(f"store, decoded: {contender.name}"),
            peer.name,
            median(f"store, decoded: {peer.name}"),
            2.7 if contender.fidelity == "3" and peer.kind != "litdata" else None,
        )
        for contender in (OURS[2], OURS[-1])
        for peer in THEIRS
    ]
    for place in ("photos", "photos scaled", "signs"):
        count = median(f"disk, {place}: {OURS[-1].name}", "images")
        for contender in (OURS[2], OURS[-1]):
            for peer in THEIRS:
                target = 0.9 if peer.kind == "webdataset" else None
                comparisons.append(
                    compared(
                        f"{count:.0f} {place} from the disk, fidelity {contender.fidelity}",
                        median(f"disk, {place}: {contender.name}"),
                        peer.name,
                        median(f"disk, {place}: {peer.name}"),
                        target,
                    )
                )
    for set_, wrote in writing.items():
        comparisons.append(
            compared(
                f"writing {set_}, one core, without MS-SSIM",
                wrote["plain_s"],
                "bare tjTransform",
                wrote["bare_s"],
                0.9,
            )
        )
        comparisons.append(
            compared(
                f"writing {set_}, one core, MS-SSIM of 32 images",
                wrote["measured_s"],
                "bare tjTransform",
                wrote["bare_s"],
            )
        )
        share = wrote["dataset"]["bytes_out"] / wrote["stripped"]
        limits.append(limited(f"size of all {set_} beside stripped JPEGs", share, "", 0.95))
    for contender in (*OURS, *THEIRS):
        name = f"store: {contender.name}"
        rate = images / median(name)
        limits.append(limited(f"photos a second from the store: {contender.name}", rate, "1/s"))
        limits.append(limited(f"megabytes: {contender.name}", median(name, "sent") / 1e6, "MB"))
        limits.append(limited(f"requests: {contender.name}", median(name, "gets"), ""))
        cpu = median(name, "cpu_s") / images * 1e3
        limits.append(limited(f"CPU for a photo: {contender.name}", cpu, "ms"))
    for place in ("photos", "signs"):
        for contender in (OURS[2], OURS[-1], *THEIRS):
            read = median(f"disk, {place}: {contender.name}", "sent") / 1e6
            limits.append(
                limited(f"megabytes of {place} from the disk: {contender.name}", read, "MB")
            )
    for contender in OURS:
        group = writing["photos"]["dataset"]["groups"][
            -1 if contender.fidelity == "full" else int(contender.fidelity) - 1
        ]
        planned = median(f"store: {contender.name}", "planned_bytes")
        sent = median(f"store: {contender.name}", "sent")
        limits.append(
            limited(
                f"bytes that the store sent beside the loader's count: {contender.name}",
                sent / planned,
                "",
                1.01,
            )
        )
        if group["msssim"] is not None:
            limits.append(
                limited(f"MS-SSIM of photos at fidelity {contender.fidelity}", group["msssim"], "")
            )
    return {
        "title": "Reading progressive records",
        "script": "benchmarks/records_read.py",
        "input": (
            "45 photos of about 1280 x 853 pixels and 599 of 100 x 100 pixels (`signs`), repeated up to "
            f"the number in each row, stripped of metadata, {SHARD} images a shard; "
            f"a store on loopback of {BYTES_PER_SECOND / 1e6:g} MB/s with {LATENCY_MS} ms before an answer"
        ),
        "comparisons": comparisons,
        "limits": limits,
        "figures": summaries
        | {f"{name} as told": each for name, each in told.items()}
        | {"writing": writing},
        "machine": host,
        "versions": {
            name: version(name) for name in ("holdfast", "simplejpeg", "obstore", "torch", "numpy")
        }
        | {name.partition("==")[0]: name.partition("==")[2] for name in LIBRARIES.values()},
        "notes": [
            "Seconds of the comparisons run from the opening of the dataset to its last decoded image; the "
            "steps below are whole processes, imports included. holdfast decodes on two threads, the peers "
            "in two DataLoader workers; all by simplejpeg, which is faster than the peers' own decoders.",
            f"`decoded` and `scaled` are at 1/2 (shorter side {AT_LEAST} or more); `photos` and `signs` at "
            "their full size. Where photos are decoded these two cores are about as slow as the store.",
            "Full fidelity shows the pixels of the source. Progressive JPEGs take more work to decode than "
            "baseline ones: coefficients are kept until the last scan. That is its price on a fast disk.",
            "Megabytes are what the store sent (its own count), and on the disk what the peers' shards "
            "have and the prefixes that holdfast read. Writing is timed once.",
            "mosaicml-streaming stood here before: it needed a downloader of this script and a stand-in "
            "for torchvision, so that it was not its own speed that was measured.",
            anchor(comparisons),
        ],
    }


def anchor(comparisons: Sequence[dict[str, Any]]) -> str:
    """What the peers do beside each other, against what one of them publishes."""
    seconds: dict[str, dict[str, float]] = defaultdict(dict)
    for one in comparisons:
        if one["peer"] in NAMES.values():
            seconds[one["what"].partition(", fidelity")[0]][one["peer"]] = one["peer_s"]
    ratios = "; ".join(
        f"{each['WebDataset'] / each['litdata']:.2f} ({what})" for what, each in seconds.items()
    )
    return (
        f"{PUBLISHED} times as fast as WebDataset, which is what LitData's own table says of it, was not "
        f"reproduced here: WebDataset's seconds divided by litdata's are {ratios}. Its rows above are "
        "what this store, these shards and two cores give, not the best that it can do."
    )


def _environment() -> Path:
    """The peers' own environment, made when it is missing."""
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        pip = [python, "-m", "pip", "-q", "--disable-pip-version-check", "install"]
        torch = f"torch=={version('torch').partition('+')[0]}"
        simplejpeg = f"simplejpeg=={version('simplejpeg')}"
        subprocess.run([*pip, torch, simplejpeg, *LIBRARIES.values()], check=True)
    return python


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, nargs="?", default=HERE.parents[1] / "shared/data/jpeg")
    parser.add_argument("--peers", type=Path, help="a Python that has the peers")
    parser.add_argument("--copies", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="three copies, one repeat, no result")
    parser.add_argument("--result", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    if options.quick:
        options.copies, options.repeats = 3, 1  # a shard for each worker of a peer
    return options


if __name__ == "__main__":
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "none")  # litdata's client wants some
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "none")
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    main()
