"""Only what a slice's last process said of its archive counts."""

from __future__ import annotations

from shoal_local.archived import ArchiveSayings, Lacks

BEFORE = "2026-01-01 00:00:00,000 slice s01 INFO shoal_slice_node.adapters.archiving: "


def test_only_the_last_word_of_the_last_process_counts() -> None:
    sayings = ArchiveSayings()
    assert sayings.of("s01", 5) is Lacks.IN_JOURNAL, "it said nothing"
    sayings.hear("s01", 5, BEFORE + "the archive /a b/s01/n01 has all records from LSN 1 to 40")
    assert sayings.of("s01", 5) == 1
    assert sayings.of("s01", 6) is Lacks.IN_JOURNAL, "a later process, which said nothing"
    assert sayings.of("s02", 5) is Lacks.IN_JOURNAL
    sayings.hear("s01", 6, BEFORE + "the archive /a takes segments again")
    assert sayings.of("s01", 6) is Lacks.IN_JOURNAL
    sayings.hear("s01", 6, BEFORE + "the archive /a lacks the records up to LSN 50, or has later ones, and the journal")
    assert sayings.of("s01", 6) is Lacks.ELSEWHERE
    sayings.hear("s01", 7, BEFORE + "the archive /a could not be looked at: [Errno 20] Not a directory")
    assert sayings.of("s01", 7) is Lacks.ELSEWHERE
    sayings.hear("s01", 7, BEFORE + "the archive /a has all records from LSN 30 to 40 and more")
    assert sayings.of("s01", 7) is Lacks.ELSEWHERE, "no line of a slice"
