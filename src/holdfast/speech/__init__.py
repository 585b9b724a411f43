"""Speech: recognizing it, speaking.

from holdfast.speech import recognize, speak
"""

from holdfast.speech import recognize, speak

__all__ = ["recognize", "speak"]
