"""Makes text safe to read on a terminal or in a log: what would act on it is escaped. Not here: names (names.py)."""

from __future__ import annotations


def printable(sentence: str) -> str:
    """Returns text with the characters that are not printable escaped, as `names.show` does. Backslashes stay."""
    if sentence.isprintable():
        return sentence
    sentence = sentence.translate(_ESCAPES)
    if sentence.isprintable():
        return sentence
    return "".join(char if char.isprintable() else _escaped(ord(char)) for char in sentence)


def _escaped(code: int) -> str:
    # \x80 to \xff stand for bytes that are not UTF-8, so characters from \x80 on have four digits.
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_ESCAPES = {code: _escaped(code) if not chr(code).isprintable() else chr(code) for code in range(256)}
"""The escapes of the first 256 characters. Characters that stay unchanged are listed too: a failed look-up costs
more."""
