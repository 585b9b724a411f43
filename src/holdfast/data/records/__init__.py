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
    from holdfast.data.records.caching import Cache
    from holdfast.data.records.dataset import Dataset, Indexed
    from holdfast.data.records.decoding import DecodeError, decode
    from holdfast.data.records.describing import Description, Group, info
    from holdfast.data.records.exporting import Extracted, extract
    from holdfast.data.records.inspecting import Finding
    from holdfast.data.records.layout import Contents, Index
    from holdfast.data.records.loading import Loader
    from holdfast.data.records.manifest import Manifest
    from holdfast.data.records.prefixes import Damaged, Fault, Prefix
    from holdfast.data.records.quality import GroupQuality, Quality, quality
    from holdfast.data.records.reading import Records, open_records
    from holdfast.data.records.repairing import Mended, Repaired, repair
    from holdfast.data.records.samples import Samples, image_bytes, samples
    from holdfast.data.records.settings import Settings
    from holdfast.data.records.similarity import msssim, ssim
    from holdfast.data.records.sources import Example, Source, open_source
    from holdfast.data.records.speed import Bench, Speed, bench
    from holdfast.data.records.stores import Store, open_store
    from holdfast.data.records.traffic import Traffic
    from holdfast.data.records.tuning.gradients import Probe
    from holdfast.data.records.tuning.mixture import Mixture
    from holdfast.data.records.tuning.policies import Fixed, GradientCosine, LossPlateau, MsSsim
    from holdfast.data.records.tuning.tuned import Tuned, tune
    from holdfast.data.records.tuning.tuner import Choice, Tuner
    from holdfast.data.records.verifying import Verified, verify
    from holdfast.data.records.writing import Written, write

_HOMES = {
    "Bench": "speed",
    "Cache": "caching",
    "Choice": "tuning.tuner",
    "Contents": "layout",
    "Damaged": "prefixes",
    "Dataset": "dataset",
    "DecodeError": "decoding",
    "Description": "describing",
    "Example": "sources",
    "Extracted": "exporting",
    "Fault": "prefixes",
    "Finding": "inspecting",
    "Fixed": "tuning.policies",
    "GradientCosine": "tuning.policies",
    "Group": "describing",
    "GroupQuality": "quality",
    "Index": "layout",
    "Indexed": "dataset",
    "Loader": "loading",
    "LossPlateau": "tuning.policies",
    "Manifest": "manifest",
    "Mended": "repairing",
    "Mixture": "tuning.mixture",
    "MsSsim": "tuning.policies",
    "Prefix": "prefixes",
    "Probe": "tuning.gradients",
    "Quality": "quality",
    "Records": "reading",
    "Repaired": "repairing",
    "Samples": "samples",
    "Settings": "settings",
    "Source": "sources",
    "Speed": "speed",
    "Store": "stores",
    "Traffic": "traffic",
    "Tuned": "tuning.tuned",
    "Tuner": "tuning.tuner",
    "Verified": "verifying",
    "Written": "writing",
    "bench": "speed",
    "decode": "decoding",
    "extract": "exporting",
    "image_bytes": "samples",
    "info": "describing",
    "msssim": "similarity",
    "open_records": "reading",
    "open_source": "sources",
    "open_store": "stores",
    "quality": "quality",
    "repair": "repairing",
    "samples": "samples",
    "ssim": "similarity",
    "tune": "tuning.tuned",
    "verify": "verifying",
    "write": "writing",
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
