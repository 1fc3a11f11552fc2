"""The pump: feeds a core and carries out its output, in the promised order.

The one driver of every core. What differs between an embedded store, a network
and the simulator is handed in: a transport, a clock, a way to call back later
and a way to execute slow work.
"""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from crescando.errors import CrescandoError, RemoteProtocolError
from crescando.process import Output, ProcessCore
from crescando.transport.base import Channel, Transport
from crescando.types import ProcessId

logger = logging.getLogger(__name__)


class Handle(Protocol):
    """Something scheduled that can be called off."""

    def cancel(self) -> None:
        """Call it off."""
        ...


class Scheduler(Protocol):
    """A clock, and callbacks on it, all in one thread of control."""

    def now_s(self) -> float:
        """Give monotonic seconds."""
        ...

    def call_soon(self, callback: Callable[[], None]) -> object:
        """Call back after what is due now."""
        ...

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Handle:
        """Call back at a time."""
        ...


class Pump:
    """One running process: a core, its sessions and its turns.

    Parameters
    ----------
    core : ProcessCore
        May have an attribute `is_quiet`: whether the last message leaves it
        nothing to do in a turn. Time's own consequences are not meant; its
        last output said when it wishes to be called for those.
    transport : Transport
    scheduler : Scheduler
    execute : callable, optional
        Called with `Output.execute`; calls `executed` when the work is done.
    after_turn : callable, optional
        Called with the core after each turn, to collect what users wait for.
    stopped : callable, optional
        Called once with the reason when the core stops itself or fails.
    """

    def __init__(
        self,
        core: ProcessCore,
        transport: Transport,
        scheduler: Scheduler,
        *,
        execute: Callable[[Any], None] | None = None,
        after_turn: Callable[[], None] | None = None,
        stopped: Callable[[str], None] | None = None,
    ) -> None:
        self.core = core
        self.is_running = False
        self._transport = transport
        self._scheduler = scheduler
        self._execute = execute
        self._after_turn = after_turn
        self._stopped = stopped
        self._may_be_quiet = hasattr(core, "is_quiet")
        self._now_s = scheduler.now_s
        self._call_soon = scheduler.call_soon
        self._channels: dict[ProcessId, Channel] = {}
        self._has_turn = False
        self._wake: Handle | None = None
        self._wake_at_s: float | None = None
        self._armed_s = math.inf

    def start(self) -> None:
        """Attach to the transport and begin."""
        self.is_running = True
        self._transport.attach(self.core.me, self)
        self.core.on_start(self._scheduler.now_s())
        self.need_turn()

    def stop(self) -> None:
        """Detach; no input reaches the core any more."""
        if not self.is_running:
            return
        self.is_running = False
        self._transport.detach(self.core.me)
        if self._wake is not None:
            self._wake.cancel()
        self._channels.clear()

    def need_turn(self) -> None:
        """See to it that a turn comes soon; many inputs share one."""
        if not self._has_turn and self.is_running:
            self._has_turn = True
            self._call_soon(self._take_turn)

    def executed(self, result: Any) -> None:
        """Take the completion of slow work."""
        if self.is_running:
            self._guard(lambda now_s: self.core.on_executed(result, now_s))

    # Endpoint of the transport.

    def opened(self, channel: Channel) -> None:
        # The end of an old session may be noticed after the begin of the next;
        # the core must hear of them in the other order.
        old = self._channels.get(channel.peer)
        if old is not None:
            self.closed(old)
        self._channels[channel.peer] = channel
        self._guard(lambda now_s: self.core.on_connected(channel.peer, now_s))

    def received(self, channel: Channel, message: Any) -> None:
        if not self.is_running or self._channels.get(channel.peer) is not channel:
            return
        try:
            self.core.on_message(channel.peer, message, self._now_s())
        except RemoteProtocolError as error:
            self._cut_off(channel, error)
            return
        except Exception as error:  # noqa: BLE001  # Whatever it is, this process stops.
            self.fail(error)
            return
        # Most confirmations, say, are only counted: a turn for each would double a router's work.
        if not self._has_turn and not (self._may_be_quiet and self.core.is_quiet):  # type: ignore[attr-defined]
            self._has_turn = True
            self._call_soon(self._take_turn)

    def received_all(self, arrived: Iterable[tuple[Channel, Any]]) -> None:
        if not self.is_running:
            return
        core, now_s = self.core, self._now_s()
        needs_turn = not self._may_be_quiet
        arriving = iter(arrived)
        try:
            # What comes after a message that is no good is taken all the same, if it is another's.
            while True:
                try:
                    for channel, message in arriving:
                        core.on_message(channel.peer, message, now_s)
                        needs_turn = needs_turn or not core.is_quiet  # type: ignore[attr-defined]
                    break
                except RemoteProtocolError as error:
                    self._cut_off(channel, error)
        except Exception as error:  # noqa: BLE001  # Whatever it is, this process stops.
            self.fail(error)
            return
        # A turn that is to come anyway will do; else nothing more would gather until it came.
        if needs_turn and not self._has_turn:
            self._take_turn()

    def _cut_off(self, channel: Channel, error: RemoteProtocolError) -> None:
        """End the session of a peer whose message makes no sense; this process goes on."""
        logger.warning("process %s ends its session with %s: %s", self.core.me, channel.peer, error)
        channel.close()

    def closed(self, channel: Channel) -> None:
        if self._channels.get(channel.peer) is channel:
            del self._channels[channel.peer]
            self._guard(lambda now_s: self.core.on_disconnected(channel.peer, now_s))

    def refused(self, peer: ProcessId) -> None:
        self._guard(lambda now_s: self.core.on_refused(peer, now_s))

    # Turns.

    def _guard(self, take: Callable[[float], object]) -> None:
        """Give the core an input; one that it cannot bear stops this process and no other."""
        if not self.is_running:
            return
        try:
            take(self._scheduler.now_s())
        except Exception as error:  # noqa: BLE001  # Whatever it is, this process stops.
            self.fail(error)
            return
        self.need_turn()

    def _take_turn(self) -> None:
        self._has_turn = False
        if not self.is_running:
            return
        try:
            self._carry_out(self.core.flush(self._now_s()))
            if self._after_turn is not None:
                self._after_turn()
        except Exception as error:  # noqa: BLE001  # Whatever it is, this process stops.
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Stop this process, if it runs, because of an error that it must not survive."""
        if not self.is_running:
            return
        # The words of an error that is not our own may be a row's values; where it happened never is.
        said = str(error) if isinstance(error, CrescandoError) else ""
        stack = "".join(traceback.format_tb(error.__traceback__))
        logger.error("process %s stops: %s: %s\n%s", self.core.me, type(error).__name__, said, stack)
        self.stop()
        if self._stopped is not None:
            self._stopped(f"{type(error).__name__}: {error}")

    def _carry_out(self, output: Output) -> None:
        channels = self._channels
        for peer in output.reset:
            channel = channels.get(peer)
            if channel is not None:
                channel.close()
        for peer in output.connect:
            self._transport.connect(self.core.me, peer)
        if output.send:
            for peer, message in output.send:
                channel = channels.get(peer)
                if channel is not None:
                    channel.send(message)
            self._transport.flush()
        if output.execute is not None and self._execute is not None:
            self._execute(output.execute)
        if output.stop:
            logger.warning("process %s stops itself: %s", self.core.me, output.stop)
            self.stop()
            if self._stopped is not None:
                self._stopped(output.stop)
            return
        self._wake_at_s = wake_at_s = output.wake_at_s
        # A follower puts its doubt off with each message; the timer that is set
        # finds out when it comes, which is cheaper than setting it anew.
        if wake_at_s is not None and wake_at_s < self._armed_s:
            self._arm(wake_at_s)

    def _arm(self, wake_at_s: float) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._armed_s = wake_at_s
        self._wake = self._scheduler.call_at(wake_at_s, self._woken)

    def _woken(self) -> None:
        self._wake, self._armed_s = None, math.inf
        if self._wake_at_s is None:
            return
        if self._now_s() < self._wake_at_s:
            self._arm(self._wake_at_s)
        else:
            self.need_turn()
