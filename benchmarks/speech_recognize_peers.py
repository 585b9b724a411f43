"""Decode with pyctcdecode or flashlight-text, where they are installed; print CPU seconds and texts.

PYTHON benchmarks/speech_recognize_peers.py FOLDER pyctcdecode|flashlight LM HOTWORDS TIMED

The first TIMED utterances are decoded five times for the CPU seconds (median); then all, for the texts.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path

import numpy as np

BEAM, ALPHA, BETA, UNKNOWN, LEAST, MARGIN = 100, 0.5, 1.5, -10.0, -5.0, 10.0


def read_words(arpa: Path) -> list[str]:
    """The words of a language model."""
    section = arpa.read_text().split("\\1-grams:\n")[1].split("\n\n")[0]
    words = [line.split("\t")[1] for line in section.splitlines()]
    return [word for word in words if word not in ("<s>", "</s>", "<unk>")]


def pyctcdecode(folder: Path, arrays: dict, with_lm: bool, hotwords: list[str]):
    """Its decoder at its defaults, which are ours."""
    from pyctcdecode import build_ctcdecoder

    logging.disable(logging.WARNING)
    labels = list(json.loads((folder / "labels.json").read_text()))
    decoder = build_ctcdecoder(
        labels,
        str(folder / "words.arpa") if with_lm else None,
        read_words(folder / "words.arpa") if with_lm else None,
        alpha=ALPHA,
        beta=BETA,
        unk_score_offset=UNKNOWN,
    )

    def run() -> list[str]:
        return [
            decoder.decode(
                array,
                beam_width=BEAM,
                beam_prune_logp=-MARGIN,
                token_min_logp=LEAST,
                hotwords=hotwords or None,
            )
            for array in arrays.values()
        ]

    return run


def flashlight(folder: Path, arrays: dict, with_lm: bool, hotwords: list[str]):
    """Its lexicon decoder with KenLM, or its lexicon-free one without; it has no hotwords."""
    from flashlight.lib.text import decoder as fl
    from flashlight.lib.text.dictionary import Dictionary

    labels = list(json.loads((folder / "labels.json").read_text()))
    blank, space = labels.index("<pad>"), labels.index("|")
    if with_lm:
        from flashlight.lib.text.decoder.kenlm import KenLM

        words = read_words(folder / "words.arpa")
        dictionary = Dictionary()
        for word in [*words, "<unk>"]:
            dictionary.add_entry(word)
        lm = KenLM(str(folder / "words.arpa"), dictionary)
        trie = fl.Trie(len(labels), space)
        start = lm.start(False)
        for word in words:
            index = dictionary.get_index(word)
            _, score = lm.score(start, index)
            trie.insert([*map(labels.index, word), space], index, score)
        trie.smear(fl.SmearingMode.MAX)
        options = fl.LexiconDecoderOptions(
            beam_size=BEAM,
            beam_size_token=len(labels),
            beam_threshold=MARGIN,
            lm_weight=ALPHA * np.log(10),  # its KenLM scores are base 10
            word_score=BETA,
            unk_score=-np.inf,
            sil_score=0,
            log_add=True,
            criterion_type=fl.CriterionType.CTC,
        )
        decoder = fl.LexiconDecoder(
            options, trie, lm, space, blank, dictionary.get_index("<unk>"), [], False
        )
    else:
        options = fl.LexiconFreeDecoderOptions(
            beam_size=BEAM,
            beam_size_token=len(labels),
            beam_threshold=MARGIN,
            lm_weight=0,
            sil_score=0,
            log_add=True,
            criterion_type=fl.CriterionType.CTC,
        )
        decoder = fl.LexiconFreeDecoder(options, fl.ZeroLM(), space, blank, [])

    def text(result) -> str:
        if with_lm:
            return " ".join(dictionary.get_entry(k) for k in result.words if k >= 0)
        kept, last = [], -1
        for token in result.tokens:
            if token not in (last, blank):
                kept.append(labels[token])
            last = token
        return " ".join("".join(kept).replace("|", " ").split())

    def run() -> list[str]:
        texts = []
        for array in arrays.values():
            top = array.max(1, keepdims=True)
            log_probs = array - top - np.log(np.exp(array - top).sum(1, keepdims=True))
            log_probs = np.ascontiguousarray(log_probs, np.float32)
            results = decoder.decode(log_probs.ctypes.data, *log_probs.shape)
            texts.append(text(results[0]) if results else "")
        return texts

    return run


def main() -> None:
    """Print the CPU seconds of the first utterances, and the texts of all."""
    folder, peer, with_lm, with_hotwords, timed = Path(sys.argv[1]), *sys.argv[2:6]
    with np.load(folder / "logits.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    hotwords = (folder / "hotwords.txt").read_text().split() if with_hotwords == "yes" else []
    make = {"pyctcdecode": pyctcdecode, "flashlight": flashlight}[peer]
    first = make(folder, dict(list(arrays.items())[: int(timed)]), with_lm == "yes", hotwords)
    seconds = []
    for _ in range(5):
        begin = time.process_time()
        first()
        seconds.append(time.process_time() - begin)
    texts = make(folder, arrays, with_lm == "yes", hotwords)()
    print(json.dumps({"cpu_s": sorted(seconds)[2], "texts": texts}))


if __name__ == "__main__":
    main()
