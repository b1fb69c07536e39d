"""Pulls and peeks over a queue's slices without attaching, and acks what was pulled.

Slices are asked one after the other, so that no more is taken than was asked for. Each pull begins with a slice that is
chosen by chance. By turns, queues that are pulled one after the other could begin with the same slice each time; what
the others have would wait for as long as that one has enough. Slices that answer come before those that are away; a
slice that is silent for PULL_PATIENCE_S is skipped.

A pull may take messages that it cannot return: it was cancelled, or the answer came too late. They are given back at
once, and this was no delivery. A nack means all that its slice has given to this connection, and that may be more than
one answer brought: a lease was over, and a later pull got the same. So what comes while a nack of it is unanswered, or
of a lower offset of its key, is given back, too, and asked for again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from random import random
from typing import NamedTuple

from shoal.ack_sender import AckSender
from shoal.core.ack_errors import AckErrors
from shoal.core.acks import PulledLife
from shoal.core.delivered import chunk_of
from shoal.core.frames import PullFrame
from shoal.core.refusals import no_such_queue
from shoal.gaps import OnGap, tell_gap
from shoal.homes import Homes
from shoal.limits import PULL_AGAIN_MAX, PULL_BYTES_MAX, PULL_PATIENCE_S
from shoal.messages import Delivery, Message, PartLife
from shoal.nack_sender import NackSender
from shoal.own_loop import OwnLoop
from shoal.routing import Routing
from shoal.slice_session import SliceSession
from shoal_contract.errors import NoSuchQueue, ShoalError, Unavailable
from shoal_contract.wire import slice_pb2 as wire

_log = logging.getLogger("shoal")


class PullAcker:
    """Acks what was pulled from one slice; its consumers are queues, each with the life that its messages came from.
    `on_error`: is told of acks that the slice refused, and of those that a lost stream left without an answer; the next
    flush raises that error, too."""

    def __init__(self, session: SliceSession, on_error: Callable[[Exception], None], loop: OwnLoop) -> None:
        self.closed = False
        self._loop = loop
        self._session = session
        self._on_error = on_error
        self._errors = AckErrors()
        self._acks = AckSender(session, self._failed, of_stream=True)
        self._nacks = NackSender(session, self._failed)
        session.on_stream_end(self._stream_ended)

    @property
    def slice_name(self) -> str:
        """Returns the slice from which it was pulled."""
        return self._session.slice_name

    def holds(self, stream: int) -> bool:
        """Returns whether the slice holds for this connection what came on a stream, as far as known."""
        return self._session.streaming and self._session.stream_number == stream

    def ack(self, stream: int, key: bytes, first: int, end: int, part: PulledLife) -> None:
        """Acks what came on a stream. Raises Unavailable once the connection is closed."""
        self._check_open()
        if self.holds(stream):
            self._acks.add(key, first, end, (part,))
        else:
            self._came_to_nothing(end - first)

    def nack(self, stream: int, key: bytes, first: int, end: int, part: PulledLife, delay_ms: int) -> None:
        """Gives back what was not acked before. Raises Unavailable once the connection is closed."""
        self._check_open()
        self._nack(stream, key, first, end, part, delay_ms)

    def give_back(self, stream: int, key: bytes, first: int, end: int, part: PulledLife) -> None:
        """Gives back what no program was given, as if it had not been pulled. Does nothing once the connection is
        closed: the slice gives it again."""
        if not self.closed:
            self._loop.check()
            self._nack(stream, key, first, end, part, None)

    def goes_back(self, key: bytes, first: int, end: int, part: PulledLife) -> bool:
        """Returns whether an unanswered nack names some of first <= offset < end of a key, or offsets below, which no
        program was given."""
        lowest = self._nacks.pending_unseen.lowest(key, part)
        if lowest is not None and lowest < end:
            return True
        return bool(self._nacks.pending_nacks.within(key, part, first, end))

    def send_nacks(self) -> None:
        """Sends the nacks given so far, so that frames sent from now on come after them."""
        self._nacks.send()

    def _nack(self, stream: int, key: bytes, first: int, end: int, part: PulledLife, delay_ms: int | None) -> None:
        if self.holds(stream):
            self._acks.send()  # An ack, perhaps of when it was pulled before, takes effect first, if it has one.
            self._nacks.add(key, first, end, (part,), delay_ms)

    @property
    def awaited(self) -> bool:
        """Returns whether a flush waits for answers to acks or nacks."""
        return bool(self._acks or self._nacks)

    async def flush(self) -> None:
        """Waits until the slice has every ack. Raises the error with which it refused one meanwhile, or since the last
        flush; Unavailable if a lost stream left some without an answer."""
        begun = self._errors.begin()
        await self._nacks.flush()
        await self._acks.flush()
        error = self._errors.end(begun)
        if error is not None:
            raise error

    def check_call(self) -> None:
        """Raises BadCall from another event loop."""
        self._loop.check()

    def _check_open(self) -> None:
        if self.closed:
            raise Unavailable("the connection is closed; what it pulled and had unacked is given again")
        self._loop.check()

    def _stream_ended(self) -> None:
        self._nacks.stream_ended()
        lost = self._acks.stream_ended()
        if lost:
            self._came_to_nothing(sum((end - first) * len(consumers) for _, first, end, consumers in lost))

    def _came_to_nothing(self, messages: int) -> None:
        name = self._session.slice_name
        self._failed(
            Unavailable(
                f"the connection to slice {name} was lost after messages were pulled from it, and before the acks of"
                f" {messages} of them were answered: those that it had not taken come again",
                subject=f"slice {name}",
                value=messages,
            )
        )

    def _failed(self, error: ShoalError) -> None:
        self._errors.add(error)
        self._on_error(error)


class PullStream:
    """Acks what one pull brought on a stream. When that is lost, the slice gives again what it has no ack of. `part`:
    the queue, in the life that it had then."""

    __slots__ = ("_acker", "_part", "_stream")

    def __init__(self, acker: PullAcker, stream: int, part: PulledLife) -> None:
        self._acker = acker
        self._stream = stream
        self._part = part

    def ack(self, delivery: Delivery, first: int, end: int, consumers: Sequence[int | bytes]) -> None:
        """Raises Unavailable once the connection is closed."""
        self._acker.ack(self._stream, delivery.key_bytes, first, end, self._part)

    def nack(self, delivery: Delivery, first: int, end: int, consumers: Sequence[int | bytes], delay_ms: int) -> None:
        """Gives back what was not acked before. Raises Unavailable once the connection is closed."""
        self._acker.nack(self._stream, delivery.key_bytes, first, end, self._part, delay_ms)

    def give_back(self, delivery: Delivery, first: int, end: int, consumers: Sequence[int | bytes]) -> None:
        """Gives back what no program was given, as if it had not been pulled."""
        self._acker.give_back(self._stream, delivery.key_bytes, first, end, self._part)

    def check_call(self) -> None:
        """Raises BadCall from another event loop."""
        self._acker.check_call()

    def queue_of(self, consumer: int | bytes) -> bytes:
        """Returns the queue, which is the consumer itself."""
        assert isinstance(consumer, bytes), "pulled messages have no handles"
        return consumer

    def part_of(self, consumer: int | bytes) -> PartLife:
        """Returns the life that the queue had when it was pulled."""
        return PartLife(self._acker.slice_name, self._part.life)


class Wanted(NamedTuple):
    """Says what one pull, or peek, asks for."""

    queue: bytes
    messages: int
    lease_ms: int
    peek: bool
    deadline: float
    on_gap: OnGap | None = None


class Brought(NamedTuple):
    """Keeps what an answer brought. `only_gaps`, `gave_back`: it brought only gaps, or what was given back. Then there
    may be more."""

    deliveries: list[Delivery]
    only_gaps: bool = False
    gave_back: bool = False


class Pulling:
    """Pulls and peeks for one connection, and gives back what pulls took too late."""

    def __init__(self, routing: Routing, homes: Homes) -> None:
        self._routing = routing
        self._homes = homes
        self._ackers: dict[str, PullAcker] = {}
        """Slice -> its acker."""

    async def pull(self, wanted: Wanted) -> list[Message]:
        """Returns messages. Raises NoSuchQueue; if no slice gave any, the error of one that failed (DeadlineExceeded in
        the end)."""
        asking = _Asking(wanted, self._homes.home_of(wanted.queue))
        try:
            for name in self._order():
                if self._routing.closed and asking.failure is not None:
                    break
                if asking.enough or (asking.found and self._routing.session(name).away):
                    break
                await self._ask_once(name, asking)
                while name in asking.ask_again and not asking.enough:
                    await self._ask_once(name, asking)
            while asking.answers and not asking.found:
                await asking.wait(list(asking.answers.values()), None)
                self._collect(asking)
            if not asking.found and asking.failure is not None:
                raise asking.failure
        except BaseException:
            _give_back(wanted, asking.found)
            raise
        finally:
            for answer in asking.answers.values():
                _abandon(wanted, answer)
        _give_back(wanted, asking.found[wanted.messages :])
        return asking.found[: wanted.messages]

    @property
    def awaited(self) -> set[str]:
        """Returns the slices for whose answers a flush waits."""
        return {name for name, acker in self._ackers.items() if acker.awaited}

    async def flush(self) -> None:
        """Waits until the slices have every ack of what was pulled."""
        await asyncio.gather(*(acker.flush() for acker in list(self._ackers.values())))

    def close(self) -> None:
        """Makes later acks of pulled messages raise Unavailable: their slices give the messages again."""
        for acker in self._ackers.values():
            acker.closed = True

    def _order(self) -> list[str]:
        names = self._routing.map.current.slices
        first = int(random() * len(names))
        turned = [*names[first:], *names[:first]]
        return sorted(turned, key=lambda name: bool(self._routing.session(name).away))

    async def _ask_once(self, slice_name: str, asking: _Asking) -> None:
        asking.ask_again.discard(slice_name)
        answer = asking.answers[slice_name] = await self._ask(slice_name, asking)
        await asking.wait([answer], PULL_PATIENCE_S)
        self._collect(asking)

    async def _ask(self, slice_name: str, asking: _Asking) -> asyncio.Future[Brought]:
        wanted = asking.wanted
        pull = wire.Pull(
            queue=wanted.queue,
            messages_max=wanted.messages - len(asking.found),
            bytes_max=PULL_BYTES_MAX,
            lease_ms=wanted.lease_ms,
            peek=wanted.peek,
        )
        if wanted.peek:
            return asyncio.ensure_future(self._peek(slice_name, pull, wanted))
        acker, session = self._acker(slice_name), self._routing.session(slice_name)
        answered: asyncio.Future[Brought] = asyncio.get_running_loop().create_future()

        def on_answer(answer: wire.Answer) -> None:
            stream = session.stream_number
            if answered.done():
                _give_back(wanted, _deliveries(answer.pulled, wanted, acker, stream))
            else:
                answered.set_result(_brought(answer.pulled, wanted, acker, stream))

        acker.send_nacks()  # What they give back is there for this pull.
        frame = PullFrame(pull, wanted.deadline, answered, on_answer)
        await session.asked(frame)
        answered.add_done_callback(lambda _: session.caller_left(frame))
        return answered

    async def _peek(self, slice_name: str, pull: wire.Pull, wanted: Wanted) -> Brought:
        found = await self._routing.looks.peek(slice_name, pull, wanted.deadline)
        pulled = wire.Deliveries(deliveries=found.deliveries)
        return Brought(_deliveries(pulled, wanted, self._acker(slice_name), 0))

    def _collect(self, asking: _Asking) -> None:
        """Takes the messages that came. Keeps a slice's error for the end: others may have messages."""
        for name, answer in list(asking.answers.items()):
            if not answer.done():
                continue
            del asking.answers[name]
            try:
                brought = answer.result()
                asking.gave_back[name] += brought.gave_back
                if brought.only_gaps or (brought.gave_back and asking.gave_back[name] <= PULL_AGAIN_MAX):
                    asking.ask_again.add(name)
                asking.found += [message for delivery in brought.deliveries for message in delivery.messages()]
            except NoSuchQueue:
                if name == asking.home and not asking.found:
                    raise no_such_queue(asking.wanted.queue) from None
            except ShoalError as error:
                asking.failure = error

    def _acker(self, slice_name: str) -> PullAcker:
        acker = self._ackers.get(slice_name)
        if acker is None:
            session, on_error = self._routing.session(slice_name), self._routing.telling.error
            acker = self._ackers[slice_name] = PullAcker(session, on_error, self._routing.map.loop)
        return acker


def _deliveries(pulled: wire.Deliveries, wanted: Wanted, acker: PullAcker, stream: int) -> list[Delivery]:
    """Returns what an answer brought on a stream, and tells its gaps."""
    for gap in pulled.gaps:
        tell_gap(wanted.on_gap, gap, (wanted.queue,))
    of_pull = PullStream(acker, stream, PulledLife(wanted.queue, pulled.life))
    return [Delivery(item, item.low, item.to, chunk_of(item), (wanted.queue,), of_pull) for item in pulled.deliveries]


def _brought(pulled: wire.Deliveries, wanted: Wanted, acker: PullAcker, stream: int) -> Brought:
    """Does the same with an answer that came in time, and gives back what an unanswered nack names, or is behind that,
    of the same key: it comes again in order, also where another answer brought what comes first."""
    found: list[Delivery] = []
    part = PulledLife(wanted.queue, pulled.life)
    for delivery in _deliveries(pulled, wanted, acker, stream):
        if acker.goes_back(delivery.key_bytes, delivery.first, delivery.end, part):
            delivery.give_back()
        else:
            found.append(delivery)
    return Brought(found, not found and bool(pulled.gaps), not found and bool(pulled.deliveries))


def _abandon(wanted: Wanted, answer: asyncio.Future[Brought]) -> None:
    """Gives up a question that nothing waits for any more. Messages that it takes all the same are given back."""
    if answer.cancel() or answer.cancelled():
        return  # It was not sent, or what it takes is given back when the answer comes.
    with suppress(ShoalError):  # The pull has its outcome, and does not need this answer.
        _give_back(wanted, answer.result().deliveries)


def _give_back(wanted: Wanted, found: Iterable[Message | Delivery]) -> None:
    for one in () if wanted.peek else found:
        one.give_back()


class _Asking:
    """Keeps one pull under way: the messages found, and the answers to come."""

    def __init__(self, wanted: Wanted, home: str) -> None:
        self.wanted = wanted
        self.home = home
        self.found: list[Message] = []
        self.answers: dict[str, asyncio.Future[Brought]] = {}
        """Slice -> its answer, which has not been looked at."""
        self.ask_again: set[str] = set()
        """Slices whose last answer brought no message, though there may be some (`Brought`)."""
        self.gave_back = Counter[str]()
        """How often all that a slice brought was given back."""
        self.failure: ShoalError | None = None

    @property
    def enough(self) -> bool:
        return len(self.found) >= self.wanted.messages

    async def wait(self, answers: Sequence[asyncio.Future[Brought]], patience_s: float | None) -> None:
        """Waits until one of them came, or `patience_s` is over (None: no bound). At the deadline each fails by
        itself (deadlines.py)."""
        left_s = self.wanted.deadline - asyncio.get_running_loop().time()
        wait_s = None if patience_s is None or patience_s >= left_s else patience_s
        await asyncio.wait(answers, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
