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
    from holdfast.data.records.extracting.exporting import Extracted, extract
    from holdfast.data.records.extracting.samples import Samples, image_bytes, samples
    from holdfast.data.records.format.layout import Contents, Index
    from holdfast.data.records.format.manifest import Manifest
    from holdfast.data.records.jpeg.decoding import DecodeError, decode
    from holdfast.data.records.loading.dataset import Dataset
    from holdfast.data.records.loading.indexed import Indexed
    from holdfast.data.records.loading.loader import Loader
    from holdfast.data.records.loading.resuming import merge_states
    from holdfast.data.records.loading.traffic import Traffic
    from holdfast.data.records.measuring.quality import GroupQuality, Quality, quality
    from holdfast.data.records.measuring.similarity import msssim, ssim
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
    from holdfast.data.records.tuning.tuned import Tuned, tune
    from holdfast.data.records.tuning.tuner import Choice, Tuner
    from holdfast.data.records.writing.settings import Settings
    from holdfast.data.records.writing.writer import Written, write

_HOMES = {
    "Bench": "measuring.speed",
    "Cache": "reading.caching",
    "Choice": "tuning.tuner",
    "Contents": "format.layout",
    "Damaged": "reading.prefixes",
    "Dataset": "loading.dataset",
    "DecodeError": "jpeg.decoding",
    "Description": "describing",
    "Example": "sources",
    "Extracted": "extracting.exporting",
    "Fault": "reading.prefixes",
    "Finding": "checking.inspecting",
    "Fixed": "tuning.policies",
    "FixedBatches": "tuning.fixed",
    "GradientCosine": "tuning.policies",
    "Group": "describing",
    "GroupQuality": "measuring.quality",
    "Index": "format.layout",
    "Indexed": "loading.indexed",
    "Loader": "loading.loader",
    "LossPlateau": "tuning.policies",
    "Manifest": "format.manifest",
    "Mended": "checking.repairing",
    "Mixture": "tuning.mixture",
    "MsSsim": "tuning.policies",
    "Prefix": "reading.prefixes",
    "Probe": "tuning.gradients",
    "Quality": "measuring.quality",
    "Records": "reading.records",
    "Repaired": "checking.repairing",
    "Samples": "extracting.samples",
    "Score": "tuning.scores",
    "Settings": "writing.settings",
    "Source": "sources",
    "Speed": "measuring.speed",
    "Store": "reading.stores",
    "Traffic": "loading.traffic",
    "Tuned": "tuning.tuned",
    "Tuner": "tuning.tuner",
    "Verified": "checking.verifying",
    "Written": "writing.writer",
    "bench": "measuring.speed",
    "decode": "jpeg.decoding",
    "extract": "extracting.exporting",
    "image_bytes": "extracting.samples",
    "info": "describing",
    "merge_states": "loading.resuming",
    "msssim": "measuring.similarity",
    "open_records": "reading.records",
    "open_source": "sources",
    "open_store": "reading.stores",
    "quality": "measuring.quality",
    "repair": "checking.repairing",
    "samples": "extracting.samples",
    "ssim": "measuring.similarity",
    "tune": "tuning.tuned",
    "verify": "checking.verifying",
    "write": "writing.writer",
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
    "Tuned",
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
    "ssim",
    "tune",
    "verify",
    "write",
]

__getattr__ = lazily(__name__, _HOMES)
