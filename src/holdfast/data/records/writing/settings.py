"""What decides the bytes of a dataset besides its source, and how that is noted in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal, cast, get_args

from holdfast.data.records.arguments import check_choice, check_number
from holdfast.data.records.format import layout
from holdfast.data.records.jpeg import scans
from holdfast.errors import InputError

OrientationPolicy = Literal["keep", "bake"]
MetadataPolicy = Literal["orientation", "all"]


@dataclass(frozen=True)
class Settings:
    """How a dataset is written.

    Raises:
        InputError: if a value cannot be.
    """

    record_size: int = 64
    """Images per record; the last one may have fewer."""
    scans_end: tuple[int, ...] = scans.DEFAULT_GROUPS
    """[G] the last scan of each group."""
    orientation: OrientationPolicy = "keep"
    """Whether an EXIF orientation stays a tag, or is baked into the picture where that loses nothing."""
    metadata: MetadataPolicy = "orientation"
    """Source metadata kept in the first piece: only the orientation, or all."""
    quality_images: int = 32
    """Number of images measured for the quality of each group."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "scans_end", scans.check_groups(self.scans_end))
        check_number("record_size", self.record_size, 1, layout.MAX_IMAGES)
        check_number("quality_images", self.quality_images, 0)
        check_choice("orientation", self.orientation, get_args(OrientationPolicy))
        check_choice("metadata", self.metadata, get_args(MetadataPolicy))

    def to_texts(self) -> dict[str, str]:
        """As each record notes it."""
        texts = {name: str(value) for name, value in asdict(self).items()}
        return texts | {"scans_end": ",".join(map(str, self.scans_end))}

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> Settings:
        """What `to_texts` noted, among other notes.

        Raises:
            InputError: if it is not all there.
        """
        try:
            return cls(
                record_size=int(texts["record_size"]),
                scans_end=tuple(int(end) for end in texts["scans_end"].split(",")),
                orientation=cast("OrientationPolicy", texts["orientation"]),
                metadata=cast("MetadataPolicy", texts["metadata"]),
                quality_images=int(texts["quality_images"]),
            )
        except (KeyError, ValueError) as error:
            raise InputError(
                "a record does not say how it was written",
                code="invalid-value",
                found=", ".join(f"{name}={text}" for name, text in texts.items()) or "no settings",
                expected="the settings of holdfast's writer",
            ) from error
