"""Decides which session gets which message now. In memory, only for consumed queues; everything here may be lost.

Events in (a session attached, a record was applied, an ack came, the transport has room), deliveries out.

What the rest of the node calls:
    dispatcher       offers in one place what is asked of dispatch; its parts are below
    pulling          takes messages without an attach; live gives chunks that are not stored
    presence         what watches hear of from here
What is kept:
    registry         what is consumed: feeds, and which streams each key wakes
    feeds            a queue, with its streams and those that compete for it; loading makes one from the tables
    streams          a binding: what of its log is done, out, given again, next; stretches are runs of offsets
    sessions         a client connection: its handles and what waits for it; parcels are chunks on their way, not_sent
                     lists those that did not leave; detached_handles says whose they are where a handle is used again
    range_room       the memory of done ranges; short_feeds: feeds that wait for some; relief ends the sessions with the
                     most where there is none
    resets           which of a session's handles stand for another life of their queue than its client knows
    nacks_taken      which of a session's nacks were looked at before a parcel was put on its way
    new_part         what a session is told of a part that one of its queues has here
    attachment       how a session consumes a queue: its window, and what it has out
    marks            what queues were given before they were forgotten
    shares           what all this takes of the process's memory; room_line: sessions that wait for some of it, and
                     turned_away: the feeds for which they do; out_of_turn: what they are given all the same,
                     and freed_looks, left_out, out_of_line: where, and for whom, that is looked for
Beginning and ending:
    attaching        attaches and detaches; asked_attaches and attach_room look before anything changes
    at_once          how much of that is done without a turn
    returning        takes back what those that left have out; bringing_back does it for one stream, leaving knows of it
    exclusive        which session consumes an exclusive queue; ended_handles are told of
    applying         takes in what records did; releases lets go in turns of what they ended
Giving:
    growing          a new chunk, to streams level with their key
    filling          what a log has, to streams that lag; recent_chunks keeps what was read last
    gaps             passes over what is gone, and tells of it
    pump             gives turns to all work that waits
    pausing          gives nothing to a session that does not read; unsent finds what never left
Done, or back:
    acks_in_flight   brings acks to the journal; pieces cuts what is very scattered
    returns          what came back rests, or is given again; releasing does what is due then
    leases           when what is out comes back; timeouts ends what is over
    undecided        what waits for its count; deciding says what becomes of it
    letters          dead letters for other slices; letter_lines are their lines, originals what they are copies of
When nothing consumes a queue:
    unconsumed       which feeds these are; left_clock since when: transients end then, farewells are said
Checks:
    served           that no binding is forgotten
Descriptions:
    unacked_counts   how much of a queue is out
"""
