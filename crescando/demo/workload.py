"""What the demo's agents ask for: a seeded stream of mixed operations each.

Rules of the file: all chance comes from the seed, and nothing depends on an
answer, so that a stream is the same whatever the store does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from crescando.demo.flights import NAMES, Flights, Row, Value
from crescando.demo.operations import (
    CancelEvening,
    DelayKey,
    DelayTail,
    Divide,
    Insert,
    Key,
    Magnify,
    Operation,
    Purge,
    ReadCancelled,
    ReadDelays,
    ReadDepartures,
    ReadHours,
    ReadKey,
    ReadLate,
    ReadTail,
    ReadUnknown,
    SwapAircraft,
    Upsert,
    Withdraw,
)

WEIGHTS: dict[type[Operation], int] = {
    ReadTail: 30,
    ReadKey: 15,
    ReadHours: 8,
    ReadDepartures: 6,
    ReadLate: 5,
    ReadCancelled: 5,
    ReadUnknown: 3,
    ReadDelays: 4,
    DelayKey: 6,
    DelayTail: 4,
    CancelEvening: 2,
    Magnify: 1,
    Divide: 1,
    SwapAircraft: 2,
    Withdraw: 2,
    Purge: 1,
    Insert: 3,
    Upsert: 2,
}
"""How often each is asked for, in percent: three quarters of the stream are reads."""

N_HOT_DAYS = 10
N_HOT_TAILS = 40
HOT_SHARE = 0.5
"""Half of all choices fall on a few days and aircraft, so that operations meet on the same rows."""

INSTANT = "%Y-%m-%dT%H:%M:%SZ"


class Workload:
    """Streams of operations over some flights.

    Parameters
    ----------
    flights : Flights
        What is in the table at the start.
    seed : int
    """

    def __init__(self, flights: Flights, seed: int) -> None:
        self._seed = seed
        self._keys = flights.keys()
        self._tails = sorted({str(tail) for tail in flights.columns["tailnum"] if tail is not None})
        self._origins = sorted({str(value) for value in flights.columns["origin"]})
        self._dests = sorted({str(value) for value in flights.columns["dest"]})
        self._carriers = sorted({str(value) for value in flights.columns["carrier"]})
        chance = random.Random(f"{seed}/hot")
        # Hot days and tails are taken from one flight each, so that they meet.
        hot = [chance.randrange(len(flights)) for _ in range(4 * N_HOT_TAILS)]
        tails = [flights.columns["tailnum"][index] for index in hot]
        self._hot_tails = [str(tail) for tail in tails if tail is not None][:N_HOT_TAILS]
        self._hot_days = [str(flights.columns["time_hour"][index])[:10] for index in hot[:N_HOT_DAYS]]
        days = set(self._hot_days)
        self._hot_keys = [key for key in self._keys if key[0][:10] in days]

    def stream(self, agent: int, n_operations: int) -> Iterator[Operation]:
        """Give one agent's operations, the same for the same seed.

        Parameters
        ----------
        agent : int
            Its number, from 0.
        n_operations : int
        """
        chance = random.Random(f"{self._seed}/{agent}")
        maker = _Maker(self, chance, agent)
        kinds = chance.choices(list(WEIGHTS), weights=list(WEIGHTS.values()), k=n_operations)
        for kind in kinds:
            yield maker.make(kind)

    def tail(self, chance: random.Random) -> str:
        """Give a tail number."""
        return chance.choice(self._hot_tails if chance.random() < HOT_SHARE else self._tails)

    def key(self, chance: random.Random) -> Key:
        """Give the key of a flight of the file."""
        return chance.choice(self._hot_keys if chance.random() < HOT_SHARE else self._keys)

    def midnight(self, chance: random.Random) -> datetime:
        """Give the beginning of a day with flights."""
        if chance.random() < HOT_SHARE:
            return datetime.strptime(chance.choice(self._hot_days), "%Y-%m-%d")
        return datetime(2013, 1, 1) + timedelta(days=chance.randrange(365))

    def origin(self, chance: random.Random) -> str:
        """Give an airport of New York."""
        return chance.choice(self._origins)

    def dest(self, chance: random.Random) -> str:
        """Give an airport elsewhere."""
        return chance.choice(self._dests)

    def carrier(self, chance: random.Random) -> str:
        """Give a carrier."""
        return chance.choice(self._carriers)


class _Maker:
    """Makes one agent's operations."""

    def __init__(self, workload: Workload, chance: random.Random, agent: int) -> None:
        self._of = workload
        self._chance = chance
        self._agent = agent
        self._n_made = 0
        self._makers: dict[type[Operation], Callable[[], Operation]] = {
            ReadKey: lambda: ReadKey(self._key()),
            ReadTail: lambda: ReadTail(self._tail()),
            ReadHours: lambda: ReadHours(self._origin(), *self._hours(3)),
            ReadDepartures: lambda: ReadDepartures(*self._minutes(40)),
            ReadLate: lambda: ReadLate(self._dest(), self._chance.randrange(200, 400)),
            ReadCancelled: lambda: ReadCancelled(self._origin(), *self._minutes(24 * 60)),
            ReadUnknown: lambda: ReadUnknown(self._some_carriers(), *self._minutes(12 * 60)),
            ReadDelays: lambda: ReadDelays(self._carrier(), *self._minutes(24 * 60)),
            DelayKey: lambda: DelayKey(self._key(), self._chance.randrange(-30, 90)),
            DelayTail: lambda: DelayTail(self._tail(), *self._hours(48), self._chance.randrange(5, 60)),
            CancelEvening: lambda: CancelEvening(self._origin(), *self._evening()),
            Magnify: lambda: Magnify(
                self._origin(), *self._minutes(90), factor=self._chance.choice((2, 30, -300, 900))
            ),
            Divide: lambda: Divide(self._carrier(), *self._minutes(6 * 60)),
            SwapAircraft: lambda: SwapAircraft(self._tail(), self._tail(), *self._hours(72)),
            Withdraw: lambda: Withdraw(*self._key()[1:], *self._hours(96)),
            Purge: lambda: Purge(self._origin(), *self._minutes(8 * 60)),
            Insert: lambda: Insert(self._rows()),
            Upsert: lambda: Upsert(self._rows()),
        }

    def make(self, kind: type[Operation]) -> Operation:
        return self._makers[kind]()

    def _key(self) -> Key:
        return self._of.key(self._chance)

    def _tail(self) -> str:
        return self._of.tail(self._chance)

    def _origin(self) -> str:
        return self._of.origin(self._chance)

    def _dest(self) -> str:
        return self._of.dest(self._chance)

    def _carrier(self) -> str:
        return self._of.carrier(self._chance)

    def _some_carriers(self) -> tuple[str, ...]:
        return tuple(self._carrier() for _ in range(self._chance.randrange(1, 4)))

    def _minutes(self, n_minutes_max: int) -> tuple[str, str]:
        """Give a closed range of instants to the minute, beginning somewhere in a day."""
        low = self._of.midnight(self._chance) + timedelta(minutes=self._chance.randrange(24 * 60))
        high = low + timedelta(minutes=self._chance.randrange(1, n_minutes_max + 1))
        return low.strftime(INSTANT), high.strftime(INSTANT)

    def _hours(self, n_hours_max: int) -> tuple[str, str]:
        """Give a closed range of full hours."""
        low = self._of.midnight(self._chance) + timedelta(hours=self._chance.randrange(24))
        high = low + timedelta(hours=self._chance.randrange(n_hours_max))
        return low.strftime(INSTANT), high.strftime(INSTANT)

    def _evening(self) -> tuple[str, str]:
        """Give New York's evening, 18:00 to 22:00 in winter, which begins at 23:00 UTC."""
        low = self._of.midnight(self._chance) + timedelta(hours=23)
        return low.strftime(INSTANT), (low + timedelta(hours=4)).strftime(INSTANT)

    def _rows(self) -> tuple[Row, ...]:
        """Give one to four flights with different keys, some of flights that are or were there."""
        rows = [self._row() for _ in range(self._chance.randrange(1, 5))]
        return tuple({row[:3]: row for row in rows}.values())

    def _row(self) -> Row:
        chance = self._chance
        self._n_made += 1
        if chance.random() < 0.3:
            time_hour, carrier, flight = self._key()
        else:
            # Charter flights, whose numbers tell agents apart.
            hour = self._of.midnight(chance) + timedelta(hours=chance.randrange(24))
            time_hour, carrier = hour.strftime(INSTANT), "XX"
            flight = 100_000 * (self._agent + 1) + self._n_made
        minute = chance.randrange(60)
        delay = None if chance.random() < 0.2 else chance.randrange(-20, 200)
        values: dict[str, Value] = {
            "time_hour": time_hour,
            "carrier": carrier,
            "flight": flight,
            "tailnum": None if chance.random() < 0.1 else self._tail(),
            "origin": self._origin(),
            "dest": self._dest(),
            "departs": f"{time_hour[:14]}{minute:02d}:00Z",
            "dep_time": None,
            "sched_dep_time": int(time_hour[11:13]) * 100 + minute,
            "dep_delay": delay,
            "arr_time": None,
            "sched_arr_time": chance.randrange(2400),
            "arr_delay": None if delay is None else delay - chance.randrange(15),
            "air_time": chance.randrange(30, 400),
            "distance": chance.randrange(80, 5000),
            "year": int(time_hour[:4]),
            "month": int(time_hour[5:7]),
            "day": int(time_hour[8:10]),
            "hour": int(time_hour[11:13]),
            "minute": minute,
            "cancelled": delay is None,
            "status": "planned",
        }
        return tuple(values[name] for name in NAMES)
