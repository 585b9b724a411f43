"""Train the model for `holdfast speech phonemes` on CMUdict.

    python phonemes.py DICTIONARY MODEL        # DICTIONARY: plain or compressed; it becomes part of MODEL

A tenth of the words are tested on. The dictionary is https://github.com/cmusphinx/cmudict (BSD).
"""

from __future__ import annotations

import sys

from holdfast.speech.speak import train_phonemizer

if __name__ == "__main__":
    print(train_phonemizer(sys.argv[1], sys.argv[2]))
