r"""Text of others made fit for a terminal: names, bodies and messages may hold anything, control sequences too.

What a terminal would act on (C0 and C1 controls, ESC among them), what reorders or hides text (bidirectional controls
and other format characters, line separators), unassigned code points and lone surrogates are shown as \x1b, \u202e and
so on. Spaces of other scripts and the two joiners that Persian, Indic scripts and emoji are written with stay. A
backslash stays one: the result is for people; --json is exact.
"""

from __future__ import annotations

import sys
import unicodedata
from typing import Final

_JOINERS: Final = "\u200c\u200d"


def printable(text: str) -> str:
    """Returns `text` on one line, with everything escaped that is no letter, mark, number, sign or space."""
    if text.isprintable():
        return text
    return "".join(one if _is_harmless(one) else _escaped(one) for one in text)


def printable_bytes(data: bytes) -> str:
    """Returns bytes as text; what is not UTF-8 is escaped too."""
    return printable(data.decode("utf-8", "backslashreplace"))


def for_stdout(body: bytes) -> str:
    """Returns a body as it may be written to stdout: as it is to a pipe or file, printable to a terminal."""
    return printable_bytes(body) if sys.stdout.isatty() else body.decode("utf-8", "backslashreplace")


def _is_harmless(character: str) -> bool:
    return character.isprintable() or character in _JOINERS or unicodedata.category(character) == "Zs"


def _escaped(character: str) -> str:
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
