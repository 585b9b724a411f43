"""The words of the format: namespaces, terms and where each may stand, data types, formats, contexts.

Sources: the Croissant vocabulary and its RAI extension (their Turtle files), the format's versions 0.8, 1.0
and 1.1, GeoCroissant, schema.org.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from holdfast.data.croissant.document.model import Version
from holdfast.data.croissant.document.schema_org import (
    DATASET_TERMS,
    FILE_TERMS,
    SCHEMA_TERMS,
    THING_TERMS,
)

LEGACY_NAMESPACE = "http://mlcommons.org/schema/"  # Croissant's in version 0.8

# Every spelling of a namespace -> the prefix of canonical terms. A longer spelling stands before a shorter.
_SPELLINGS = {
    "schema.org/": "sc",
    "www.schema.org/": "sc",
    "mlcommons.org/croissant/RAI/1.0/": "rai",
    "mlcommons.org/croissant/RAI/1.0#": "rai",
    "mlcommons.org/croissant/RAI/": "rai",
    "mlcommons.org/croissant/geo/": "geocr",
    "mlcommons.org/croissant/": "cr",
    "mlcommons.org/schema/": "cr",
    "purl.org/dc/terms/": "dct",
    "www.wikidata.org/entity/": "wd",
    "www.wikidata.org/wiki/": "wd",
    "www.wikidata.org/prop/direct/": "wdt",
    "www.w3.org/ns/prov#": "prov",
    "www.w3.org/ns/odrl/2/": "odrl",
    "purl.obolibrary.org/obo/DUO_": "duo",
}
NAMESPACES: Mapping[str, str] = {
    f"{scheme}://{address}": prefix
    for address, prefix in _SPELLINGS.items()
    for scheme in ("http", "https")
}

# The namespace that each canonical prefix stands for, and prefixes that are understood undeclared.
PREFIXES: Mapping[str, str] = {
    "sc": "http://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "geocr": "http://mlcommons.org/croissant/geo/",
    "dct": "http://purl.org/dc/terms/",
    "wd": "http://www.wikidata.org/entity/",
    "wdt": "http://www.wikidata.org/prop/direct/",
    "prov": "http://www.w3.org/ns/prov#",
    "odrl": "http://www.w3.org/ns/odrl/2/",
    "duo": "http://purl.obolibrary.org/obo/DUO_",
}
OTHER_PREFIXES: Mapping[str, str] = {
    "schema": PREFIXES["sc"],
    "ml": LEGACY_NAMESPACE,
    "croissant": PREFIXES["cr"],
    "dcterms": PREFIXES["dct"],
}


def _terms(prefix: str, names: str) -> frozenset[str]:
    return frozenset(f"{prefix}:{name}" for name in names.split())


RAI_TERMS = _terms(
    "rai",
    "dataCollection dataCollectionType dataCollectionMissingData dataCollectionRawData"
    " dataCollectionTimeframe dataPreprocessingProtocol dataImputationProtocol dataManipulationProtocol"
    " dataReleaseMaintenancePlan personalSensitiveInformation dataAnnotationProtocol dataAnnotationPlatform"
    " dataAnnotationAnalysis annotationsPerItem annotatorDemographics machineAnnotationTools"
    " dataSocialImpact dataBiases dataLimitations dataUseCases",
)
GEO_TERMS = _terms(
    "geocr",
    "coordinateReferenceSystem spatialResolution bandConfiguration spectralBandMetadata recordEndpoint"
    " spatialIndex spatialBias samplingStrategy temporalResolution timeSeriesIndex"
    " multiWavelengthConfiguration solarInstrumentCharacteristics totalBands bandNamesList centerWavelength"
    " bandwidth channelList observatory instrument",
)
CLASSES = _terms(
    "cr",
    "FileObject FileSet RecordSet Field DataSource Extract Transform Format Split Label"
    " BoundingBox SegmentationMask TrainingSplit TrainSplit ValidationSplit TestSplit Enum SubField"
    " ParentField",
)

# Which terms may stand on which kind of node, beside those of `THING_TERMS` and of other vocabularies.
TERMS: Mapping[str, frozenset[str]] = {
    "dataset": DATASET_TERMS
    | RAI_TERMS
    | GEO_TERMS
    | _terms("cr", "citeAs isLiveDataset sdVersion recordSet")
    | {"dct:conformsTo"},
    "file_object": FILE_TERMS | _terms("cr", "containedIn md5"),
    "file_set": FILE_TERMS | _terms("cr", "containedIn includes excludes"),
    "record_set": _terms("cr", "field key data examples dataType annotation isEnumeration source"),
    "field": _terms(
        "cr",
        "source dataType value isArray arrayShape repeated references subField parentField"
        " equivalentProperty annotation isEnumeration format",
    ),
    "source": _terms(
        "cr", "fileObject fileSet recordSet field extract transform format samplingRate path data"
    )
    | {"sc:distribution"},
    "extract": _terms("cr", "column fileProperty jsonPath"),
    "transform": _terms(
        "cr", "regex separator replace jsonPath format samplingRate readLines unArchive delimiter"
    ),
}
PARENT_FIELD_TERMS = _terms("cr", "source references")
CROISSANT_TERMS = frozenset(
    term for terms in TERMS.values() for term in terms if term.startswith("cr:")
)
KNOWN_TERMS = (
    frozenset[str]().union(*TERMS.values())
    | THING_TERMS
    | SCHEMA_TERMS
    | CLASSES
    | PARENT_FIELD_TERMS
)

# Schema.org has these too: they are Croissant's only on nodes that are not of a type of schema.org.
SHARED_NAMES = frozenset({"value", "containedIn"})

# Name without prefix -> canonical term, for terms that a context leaves to schema.org or leaves out.
BY_NAME: Mapping[str, str] = {
    **{term.partition(":")[2]: term for term in (*RAI_TERMS, *CROISSANT_TERMS, *CLASSES)},
    "conformsTo": "dct:conformsTo",
}
JSON_TERMS = _terms("cr", "data examples value")  # their values are JSON: no term is read inside

# Canonical data type -> what values of it are made of.
ATOMIC_TYPES: Mapping[str, str] = {
    "sc:Text": "text",
    "sc:String": "text",
    "sc:URL": "text",
    "sc:Boolean": "boolean",
    "sc:Integer": "integer",
    "sc:Float": "float",
    "sc:Number": "float",
    "sc:Date": "date",
    "sc:DateTime": "datetime",
    "sc:Time": "time",
    **{f"cr:Int{bits}": "integer" for bits in (8, 16, 32, 64)},
    **{f"cr:UInt{bits}": "integer" for bits in (8, 16, 32, 64)},
    **{f"cr:Float{bits}": "float" for bits in (16, 32, 64)},
    "sc:ImageObject": "bytes",
    "sc:AudioObject": "bytes",
    "sc:VideoObject": "bytes",
    "cr:BoundingBox": "box",
}
SEMANTIC_TYPES = _terms(
    "sc",
    "Enumeration GeoCoordinates GeoShape MediaObject DataDownload CreativeWork Person Organization Place"
    " PostalAddress QuantitativeValue PropertyValue StructuredValue DefinedTerm Dataset Thing name url"
    " Duration Language",
) | _terms("cr", "Split Label SegmentationMask Enum RecordSet Field JSON")
DATA_TYPES: Mapping[str, str] = {
    **dict.fromkeys(sorted(SEMANTIC_TYPES), "semantic"),
    **ATOMIC_TYPES,
}

_FORMATS = {
    "parquet": "application/vnd.apache.parquet application/x-parquet application/parquet",
    "csv": "text/csv application/csv text/x-csv text/comma-separated-values",
    "tsv": "text/tab-separated-values text/tsv application/tab-separated-values",
    "json": "application/json text/json application/ld+json application/geo+json",
    "jsonl": "application/jsonlines application/x-jsonlines application/jsonl application/x-ndjson"
    " application/ndjson application/jsonlines+json text/jsonl application/json-lines",
    "arff": "https://ml.cms.waikato.ac.nz/weka/arff.html http://ml.cms.waikato.ac.nz/weka/arff.html"
    " text/x-arff application/x-arff application/arff",
    "arrow": "application/vnd.apache.arrow.file application/vnd.apache.arrow.stream"
    " application/x-feather",
    "avro": "application/avro application/vnd.apache.avro",
    "excel": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet application/vnd.ms-excel",
    "sqlite": "application/vnd.sqlite3 application/x-sqlite3",
    "text": "text/plain text/markdown",
    "html": "text/html",
    "xml": "application/xml text/xml",
    "yaml": "application/yaml application/x-yaml text/yaml",
    "pdf": "application/pdf",
    "zip": "application/zip application/x-zip-compressed application/x-zip",
    "tar": "application/x-tar application/tar application/x-gtar",
    "tar.gz": "application/x-gtar-compressed application/x-gziptar application/x-tgz"
    " application/x-compressed-tar application/tar+gzip",
    "gzip": "application/gzip application/x-gzip",
    "bzip2": "application/x-bzip2 application/x-bzip application/bzip2",
    "xz": "application/x-xz",
    "zstd": "application/zstd application/x-zstd",
    "7z": "application/x-7z-compressed",
    "rar": "application/vnd.rar application/x-rar-compressed",
    "git": "git+https git+http git+ssh",
    "hdf5": "application/x-hdf5 application/x-hdf application/hdf5 application/vnd.hdfgroup.hdf5",
    "netcdf": "application/netcdf application/x-netcdf",
    "zarr": "application/vnd.zarr application/x-zarr",
    "numpy": "application/x-npy application/x-npz",
    "pickle": "application/x-pickle application/python-pickle",
    "matlab": "application/x-matlab-data",
    "warc": "application/warc application/x-warc",
    "tfrecord": "application/x-tfrecord",
    "safetensors": "application/x-safetensors",
    "binary": "application/octet-stream",
    "jpeg": "image/jpeg image/jpg",
    "png": "image/png",
    "image": "image/tiff image/gif image/webp image/bmp image/svg+xml image/avif image/jp2 image/x-tga"
    " image/geotiff",
    "dicom": "application/dicom image/dicom",
    "nifti": "application/x-nifti image/nii",
    "audio": "audio/mpeg audio/wav audio/x-wav audio/wave audio/vnd.wave audio/flac audio/x-flac audio/ogg"
    " audio/aac audio/mp4 audio/webm audio/opus audio/mp3 audio/x-m4a audio/aiff audio/x-aiff audio/midi",
    "video": "video/mp4 video/mpeg video/webm video/quicktime video/x-msvideo video/x-matroska video/ogg"
    " video/avi video/x-ms-wmv",
}
# Media type (lower case, without parameters) -> the format it names, such as "parquet".
ENCODING_FORMATS: Mapping[str, str] = {
    media: name for name, medias in _FORMATS.items() for media in medias.split()
}


def format_of(media_type: str) -> str | None:
    """The format that a media type names, whichever of its spellings; None if it is not known here."""
    return ENCODING_FORMATS.get(media_type.partition(";")[0].strip().lower())


@lru_cache(maxsize=4096)
def canonical(iri: str) -> str:
    """An IRI with the prefix of its namespace, such as ``sc:name``; itself where none is known."""
    for namespace, prefix in NAMESPACES.items():
        if iri.startswith(namespace) and len(iri) > len(namespace):
            return f"{prefix}:{iri[len(namespace) :]}"
    return iri


def expanded(term: str) -> str:
    """The IRI of a canonical term."""
    prefix, colon, name = term.partition(":")
    return PREFIXES[prefix] + name if colon and prefix in PREFIXES else term


_BASE: dict[str, Any] = {
    "@language": "en",
    "@vocab": "http://schema.org/",
    "sc": PREFIXES["sc"],
    "cr": PREFIXES["cr"],
    "rai": PREFIXES["rai"],
    "dct": PREFIXES["dct"],
}
_TYPED: dict[str, Any] = {
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
}


def _context(base: Mapping[str, Any], names: str, prefix: str = "cr") -> Mapping[str, Any]:
    terms = {name: _TYPED.get(name, f"{prefix}:{name}") for name in names.split()}
    return {**base, **terms, **({"conformsTo": "dct:conformsTo"} if "dct" in base else {})}


# The context that the standard recommends: every term that it lists is Croissant's.
CONTEXTS: Mapping[Version, Mapping[str, Any]] = {
    "0.8": {
        **_context(
            {"@language": "en", "@vocab": "https://schema.org/"}
            | {"ml": LEGACY_NAMESPACE, "sc": "https://schema.org/"},
            "column dataBiases dataCollection extract field fileProperty format includes isEnumeration"
            " jsonPath parentField path personalSensitiveInformation recordSet references regex repeated"
            " replace separator source subField transform",
            "ml",
        ),
        "dct": PREFIXES["dct"],
        "data": {"@id": "ml:data", "@type": "@json"},
        "dataType": {"@id": "ml:dataType", "@type": "@vocab"},
    },
    "1.0": _context(
        {**_BASE, "@vocab": "https://schema.org/", "sc": "https://schema.org/"},
        "citeAs column data dataType examples extract field fileProperty fileObject fileSet format includes"
        " isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace"
        " separator source subField transform",
    ),
    "1.1": _context(
        _BASE,
        "annotation arrayShape citeAs column containedIn data dataType equivalentProperty examples"
        " excludes extract field fileProperty fileObject fileSet format includes isArray isLiveDataset"
        " jsonPath key md5 parentField recordSet references regex readLines sdVersion separator source"
        " subField transform unArchive value",
    ),
}
RECOMMENDED_CONTEXT = CONTEXTS["1.1"]
