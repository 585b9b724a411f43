"""Progressive compressed records: one dataset that serves every fidelity with sequential reads.

    from holdfast.data import records
    records.write("photos", "dataset")
    for item in records.Dataset("dataset", fidelity=3): ...

A record holds the images of a batch, cut into groups of progressive scans (`format/`, `jpeg/`), so that a
prefix of its file is the whole batch at a lower fidelity. `writing/` makes a dataset, `reading/` gets
prefixes of it from a disk or an object store, `loading/` feeds them to a training, `tuning/` chooses the
fidelity, `checking/` proves that nothing was lost. Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.data.records.checking.inspecting import Finding
    from holdfast.data.records.checking.repairing import Mended, Repaired, repair
    from holdfast.data.records.checking.verifying import Verified, verify
    from holdfast.data.records.describing import Description, Group, info
    from holdfast.data.records.export.exporting import Extracted, extract
    from holdfast.data.records.export.samples import Samples, image_bytes, samples
    from holdfast.data.records.format.layout import Contents, Index
    from holdfast.data.records.format.manifest import Manifest
    from holdfast.data.records.jpeg.decoding import DecodeError, decode
    from holdfast.data.records.loading.dataset import Dataset
    from holdfast.data.records.loading.indexed import Indexed
    from holdfast.data.records.loading.loader import Loader
    from holdfast.data.records.loading.resuming import merge_states
    from holdfast.data.records.loading.traffic import Traffic
    from holdfast.data.records.measuring.quality import GroupQuality, Quality, quality
    from holdfast.data.records.measuring.similarity import msssim
    from holdfast.data.records.measuring.speed import Bench, Speed, bench
    from holdfast.data.records.reading.caching import Cache
    from holdfast.data.records.reading.prefixes import Damaged, Fault, Prefix
    from holdfast.data.records.reading.records import Records, open_records
    from holdfast.data.records.reading.stores import Store, open_store
    from holdfast.data.records.sources import Example, Source, open_source
    from holdfast.data.records.tuning.fixed import FixedBatches
    from holdfast.data.records.tuning.gradients import Probe
    from holdfast.data.records.tuning.mixture import Mixture
    from holdfast.data.records.tuning.policies import Fixed, GradientCosine, LossPlateau, MsSsim
    from holdfast.data.records.tuning.scores import Score
    from holdfast.data.records.tuning.tuner import Choice, Tuner
    from holdfast.data.records.writing.settings import Settings
    from holdfast.data.records.writing.writer import Written, write

_HOMES = {
    name: module
    for module, names in {
        "checking.inspecting": "Finding",
        "checking.repairing": "Mended Repaired repair",
        "checking.verifying": "Verified verify",
        "describing": "Description Group info",
        "export.exporting": "Extracted extract",
        "export.samples": "Samples image_bytes samples",
        "format.layout": "Contents Index",
        "format.manifest": "Manifest",
        "jpeg.decoding": "DecodeError decode",
        "loading.dataset": "Dataset",
        "loading.indexed": "Indexed",
        "loading.loader": "Loader",
        "loading.resuming": "merge_states",
        "loading.traffic": "Traffic",
        "measuring.quality": "GroupQuality Quality quality",
        "measuring.similarity": "msssim",
        "measuring.speed": "Bench Speed bench",
        "reading.caching": "Cache",
        "reading.prefixes": "Damaged Fault Prefix",
        "reading.records": "Records open_records",
        "reading.stores": "Store open_store",
        "sources": "Example Source open_source",
        "tuning.fixed": "FixedBatches",
        "tuning.gradients": "Probe",
        "tuning.mixture": "Mixture",
        "tuning.policies": "Fixed GradientCosine LossPlateau MsSsim",
        "tuning.scores": "Score",
        "tuning.tuner": "Choice Tuner",
        "writing.settings": "Settings",
        "writing.writer": "Written write",
    }.items()
    for name in names.split()
}

__all__ = [
    "Bench",
    "Cache",
    "Choice",
    "Contents",
    "Damaged",
    "Dataset",
    "DecodeError",
    "Description",
    "Example",
    "Extracted",
    "Fault",
    "Finding",
    "Fixed",
    "FixedBatches",
    "GradientCosine",
    "Group",
    "GroupQuality",
    "Index",
    "Indexed",
    "Loader",
    "LossPlateau",
    "Manifest",
    "Mended",
    "Mixture",
    "MsSsim",
    "Prefix",
    "Probe",
    "Quality",
    "Records",
    "Repaired",
    "Samples",
    "Score",
    "Settings",
    "Source",
    "Speed",
    "Store",
    "Traffic",
    "Tuner",
    "Verified",
    "Written",
    "bench",
    "decode",
    "extract",
    "image_bytes",
    "info",
    "merge_states",
    "msssim",
    "open_records",
    "open_source",
    "open_store",
    "quality",
    "repair",
    "samples",
    "verify",
    "write",
]

__getattr__ = lazily(__name__, _HOMES)
