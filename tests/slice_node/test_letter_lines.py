"""Lines of letters: keys take turns, one that takes none pauses, and nothing is kept for keys without letters."""

from __future__ import annotations

from shoal_slice_node.core.dispatch.letter_lines import LetterLines
from shoal_slice_node.core.limits import LETTER_AGAIN_MS, LETTER_AGAIN_MS_MAX, LETTERS_PER_LINE


def taken(lines: LetterLines[str], now_ms: int) -> list[str]:
    found = list(iter(lambda: lines.take(now_ms), None))
    assert not lines.ready(now_ms)
    return [item for item in found if item is not None]


def test_keys_take_turns_and_each_has_a_bounded_number_under_way() -> None:
    lines = LetterLines[str]()
    for number in range(LETTERS_PER_LINE + 2):
        lines.add(b"a", f"a{number}")
    lines.add(b"b", "b0")
    assert lines.ready(0) and lines.items == LETTERS_PER_LINE + 3
    first = taken(lines, 0)
    assert first[:3] == ["a0", "b0", "a1"] and len(first) == LETTERS_PER_LINE + 1
    lines.succeeded(b"a")
    assert taken(lines, 0) == [f"a{LETTERS_PER_LINE}"]


def test_a_line_that_fails_pauses_longer_each_time_and_is_tried_with_one_letter() -> None:
    lines = LetterLines[str]()
    for number in range(3):
        lines.add(b"full", str(number))
    now_ms = 0
    for item in taken(lines, now_ms):
        lines.failed(b"full", item, now_ms)
    pause_ms, tried = LETTER_AGAIN_MS, []
    for _ in range(9):
        assert not lines.ready(now_ms + pause_ms - 1) and lines.take(now_ms + pause_ms - 1) is None
        now_ms += pause_ms
        assert lines.ready(now_ms)
        (item,) = taken(lines, now_ms)
        tried.append(item)
        lines.failed(b"full", item, now_ms)
        pause_ms = min(2 * pause_ms, LETTER_AGAIN_MS_MAX)
    assert tried == ["0", "1", "2"] * 3, "each has its turn: one may fit where another does not"
    now_ms += pause_ms
    assert taken(lines, now_ms) == ["0"]
    lines.succeeded(b"full")
    assert taken(lines, now_ms) == ["1", "2"], "it takes letters again: several at a time"
    lines.failed(b"full", "1", now_ms)
    assert not lines.ready(now_ms + LETTER_AGAIN_MS - 1) and lines.ready(now_ms + LETTER_AGAIN_MS)


def test_a_line_without_letters_is_forgotten() -> None:
    lines = LetterLines[str]()
    lines.add(b"a", "1")
    lines.add(b"b", "2")
    assert taken(lines, 0) == ["1", "2"]
    lines.ended(b"a")
    lines.failed(b"b", "2", 0)
    assert taken(lines, LETTER_AGAIN_MS) == ["2"]
    lines.succeeded(b"b")
    assert not lines.items and not lines._lines and not lines._open and not lines._pauses
