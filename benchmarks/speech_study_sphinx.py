"""PocketSphinx on strings of digits, for `speech_study.py`; run by a Python that has it.

    python speech_study_sphinx.py MANIFEST

Prints JSON: the text of each utterance, and CPU seconds per hour of audio. Audio of 8 kHz is resampled to
the 16 kHz of its English model; a grammar allows any number of digits.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import soundfile
from pocketsphinx import Decoder
from scipy.signal import resample_poly

RATE = 16_000
GRAMMAR = """#JSGF V1.0;
grammar digits;
public <digits> = (zero | one | two | three | four | five | six | seven | eight | nine)+;
"""


def main() -> None:
    """Recognize the manifest."""
    manifest = Path(sys.argv[1])
    decoder = Decoder(samprate=RATE, lm=None, loglevel="FATAL")
    decoder.add_jsgf_string("digits", GRAMMAR)
    decoder.activate_search("digits")
    texts, seconds, begin = [], 0.0, time.process_time()
    for line in manifest.read_text().splitlines():
        sound, rate = soundfile.read(manifest.parent / json.loads(line)["audio_filepath"])
        seconds += len(sound) / rate
        sound = resample_poly(sound, RATE // 1000, rate // 1000)
        decoder.start_utt()
        decoder.process_raw((sound * 32767).astype(np.int16).tobytes(), full_utt=True)
        decoder.end_utt()
        found = decoder.hyp()
        texts.append(found.hypstr if found else "")
    hour = 3600 * (time.process_time() - begin) / seconds
    print(json.dumps({"texts": texts, "CPU s per hour": hour}))


if __name__ == "__main__":
    main()
