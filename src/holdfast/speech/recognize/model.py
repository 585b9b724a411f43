"""A trained recognizer in a folder: model.json (settings, labels, normalization) and weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from torch import nn

from holdfast.config import read_config
from holdfast.errors import InputError
from holdfast.files import write_whole
from holdfast.speech.recognize.decoding import Decoder
from holdfast.speech.recognize.features import FeatureSettings
from holdfast.speech.recognize.labels import Alphabet
from holdfast.speech.recognize.network import Network, NetworkSettings

DESCRIPTION, WEIGHTS = "model.json", "weights.safetensors"


@dataclass(frozen=True)
class Description:
    """Content of model.json."""

    features: FeatureSettings
    network: NetworkSettings
    labels: tuple[str, ...]
    """Texts of outputs 1, 2, ...; output 0 is the blank."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """How it was trained: ``history``, the loss of each epoch, and the number of ``utterances``."""


class SpeechModel:
    """A network with what its inputs and outputs mean."""

    alphabet_type = Alphabet
    """What the outputs are."""

    def __init__(self, description: Description) -> None:
        self.description, self.features = description, description.features
        self.alphabet = self.alphabet_type(description.labels)
        self.network = Network(description.network, self.features.bins, self.alphabet.size)

    @property
    def frame_s(self) -> float:
        """Seconds from output to output."""
        return self.features.hop * self.network.stride / self.features.rate

    def decoder(self, **settings: Any) -> Decoder:
        """A decoder of the network's outputs, with settings of `Decoder` such as ``lm``."""
        return Decoder(self.alphabet.outputs, frame_s=self.frame_s, **settings)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a model.

        Raises:
            InputError: ``not-found``; what `read_config` and `load_weights` refuse.
        """
        folder = Path(folder)
        description = read_config(folder / DESCRIPTION, Description, "the description of the model")
        model = cls(description)
        load_weights(model.network, folder / WEIGHTS)
        return model


def write_model(folder: Path, description: Any, network: nn.Module) -> None:
    """Write a model; model.json last, so that a folder with it is complete.

    Args:
        folder: of the model.
        description: dataclass, the content of model.json.
        network: its weights are written.

    Raises:
        HoldfastError: if they cannot be written.
    """
    from safetensors.torch import save

    write_whole(folder / WEIGHTS, save(network.state_dict()))
    text = json.dumps(asdict(description), indent=1, ensure_ascii=False)
    write_whole(folder / DESCRIPTION, text.encode() + b"\n")


def load_weights(network: nn.Module, path: Path) -> None:
    """Read the weights of a network.

    Raises:
        InputError: ``damaged`` if they cannot be read or are not those of the network; ``not-finite``.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        network.load_state_dict(load_file(path))
    except (SafetensorError, OSError, RuntimeError) as error:
        raise InputError(
            "the weights cannot be read",
            code="damaged",
            path=path,
            found="; ".join(str(error).split("\n\t")[:2]),
            expected=f"the weights of the network in {DESCRIPTION}",
            remedy="copy the whole folder again, or train again",
        ) from error
    for name, tensor in network.state_dict().items():
        if not tensor.isfinite().all():
            raise InputError(
                "weights that are not finite",
                code="not-finite",
                path=path,
                place=name,
                remedy="copy the file again, or train with a lower learning rate",
            )
