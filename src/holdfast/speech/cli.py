"""`holdfast speech`: recognizing speech; imported when used."""

from __future__ import annotations

from holdfast.command import room
from holdfast.speech.recognize import commands

app = room("speech", "Recognizing speech: train, decode, score.")

app.command(commands.train)
app.command(commands.recognize)
app.command(commands.score)
