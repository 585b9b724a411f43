"""Speech: recognizing it.

from holdfast.speech import recognize
"""

from holdfast.speech import recognize

__all__ = ["recognize"]
