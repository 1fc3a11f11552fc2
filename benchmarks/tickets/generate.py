"""Airline tickets: 47 columns, some 350 bytes of values a row, the same for the same seed.

Rules of the file: every column is drawn for all rows at once. A booking has a
record locator (``rloc``) and 3.5 tickets on average, lying anywhere; long texts are mostly
distinct, as they are in bookings; a few columns have NULL. Money is in cents.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.tickets.texts import (
    DIGITS,
    HEX,
    LOCATOR,
    U64,
    fixed,
    joined,
    mixed,
    picked,
    spelled,
    words,
)

ROWS_PER_LOCATOR = 3.5
N_AIRPORTS = 320
FIRST_DAY, N_DAYS = 19_700, 670
"""Days since 1970-01-01: flights of some 22 months."""

FIRST_TICKET = 2_200_000_000_000
_DAY_US = 86_400_000_000

CABINS, CLASSES = "YWJF", "YBMHKLQTESWJCDFA"
STATUSES = ("OPEN", "USED", "VOID", "RFND", "EXCH", "SUSP")
CURRENCIES = ("EUR", "USD", "GBP", "CHF", "JPY", "SEK", "AUD", "CAD")
PAYMENTS = ("CASH", "CARD", "MISC", "CHEQ", "VCHR")
MEALS = ("VGML", "KSML", "MOML", "CHML", "DBML")
TITLES = ("MR", "MRS", "MS", "DR", "MSTR", "MISS")
HOSTS = ("mail.example", "post.example", "inbox.example", "firm.example")
REMARKS = (
    "WHEELCHAIR TO GATE REQUESTED FOR LOCATOR ",
    "PAX WILL CONTACT AGENT ABOUT CHANGE UNDER FILE ",
    "REISSUED IN EXCHANGE FOR DOCUMENT NUMBER ",
    "SEATED TOGETHER WITH PARTY OF BOOKING ",
    "CONNECTS FROM TRAIN, VOUCHER ",
    "UNACCOMPANIED MINOR, GUARDIAN TELEPHONE ",
)
RESTRICTIONS = (
    "NON REF/NON END/PENALTY APPLIES/SEE FARE NOTES",
    "VALID ON ISSUING CARRIER ONLY/SEE FARE NOTES",
    "CHANGE FEE 75 PLUS FARE DIFFERENCE/SEE FARE NOTES",
    "REFUNDABLE LESS 50 BEFORE DEPARTURE/SEE FARE NOTES",
    "FULLY FLEXIBLE/SEE FARE NOTES",
)


def tickets(n_rows: int, seed: int = 1, first: int = 0) -> pa.Table:
    """Give a table of tickets.

    Parameters
    ----------
    n_rows : int
    seed : int
    first : int
        Number of the first ticket; pieces of one large table have seeds and numbers of their own.

    Returns
    -------
    pyarrow.Table
        47 columns in one chunk; `ticket_id` is unique, and `document` too.
    """
    return pa.table(_Draw(n_rows, seed, first).columns())


class _Draw:
    """The columns of one table, drawn in a fixed sequence from one generator."""

    def __init__(self, n_rows: int, seed: int, first: int) -> None:
        self._n = n_rows
        self._first = first
        self._seed = seed
        self._chance = np.random.Generator(np.random.PCG64(seed))

    def columns(self) -> dict[str, pa.Array]:
        """Give all columns by name, in the table's order."""
        columns = {**self._identity(), **self._person(), **self._journey(), **self._money(), **self._notes()}
        order = ("ticket_id", "rloc", "document")
        return {name: columns[name] for name in (*order, *(c for c in columns if c not in order))}

    def _codes(self, high: int) -> Any:
        return self._chance.integers(0, high, self._n)

    def _skewed(self, high: int) -> Any:
        """Codes of which low ones are more frequent, by a factor of some five."""
        return (high * self._chance.random(self._n) ** 1.6).astype(np.int64)

    def _unique(self, salt: int) -> U64:
        return mixed(np.arange(self._n, dtype=np.uint64), self._seed * 64 + salt)

    def _nullable(self, values: pa.Array, share: float) -> pa.Array:
        """Take out a share of the values."""
        return pc.if_else(
            pa.array(self._chance.random(self._n) >= share), values, pa.scalar(None, values.type)
        )

    def _identity(self) -> dict[str, pa.Array]:
        n_locators = max(int(self._n / ROWS_PER_LOCATOR), 1)
        booking = self._codes(n_locators).astype(np.uint64)
        # An odd factor makes the low bits of distinct numbers distinct.
        locator = booking * np.uint64(0x2545F491) + np.uint64(self._seed)
        first, second = self._unique(1), self._unique(2)
        document = np.concatenate([spelled(first, 16, HEX), spelled(second, 16, HEX)], axis=1)
        customer = self._codes(n_locators)
        return {
            "ticket_id": pa.array(FIRST_TICKET + self._first + np.arange(self._n, dtype=np.int64)),
            "rloc": fixed(spelled(locator, 6, LOCATOR)),
            "document": fixed(document),
            "passenger_id": pa.array(
                (mixed(customer.astype(np.uint64), 3) >> np.uint64(16)).astype(np.int64)
            ),
            "customer_no": pa.array(customer.astype(np.int32)),
        }

    def _person(self) -> dict[str, pa.Array]:
        last_names, first_names = words(20_000, 3, 5), words(3_000, 2, 6)
        last, first = self._skewed(len(last_names)), self._skewed(len(first_names))
        number = self._codes(10_000)
        tail = fixed(spelled(number.astype(np.uint64), 4, DIGITS))
        card = joined("**** ", fixed(spelled(self._unique(7), 4, DIGITS)))
        flyer = joined("FF", fixed(spelled(self._unique(8), 8, DIGITS)))
        passport = joined("P", fixed(spelled(self._unique(9), 8, DIGITS)))
        return {
            "last_name": picked(last, last_names),
            "first_name": picked(first, first_names),
            "title": picked(self._codes(len(TITLES)), TITLES),
            "birth_date": pa.array((-15_000 + self._codes(30_000)).astype(np.int32)).cast(pa.date32()),
            "nationality": picked(
                self._skewed(26 * 8), [a + b for a in LOCATOR[:26].decode() for b in "AEIORSTU"]
            ),
            "passport": self._nullable(passport, 0.25),
            "email": joined(
                picked(first, first_names),
                ".",
                picked(last, last_names),
                tail,
                "@",
                picked(self._codes(4), HOSTS),
            ),
            "phone": joined("+", fixed(spelled(self._unique(10), 12, DIGITS))),
            "frequent_flyer": self._nullable(flyer, 0.5),
            "tier": pa.array(self._skewed(5).astype(np.int8)),
            "card": self._nullable(card, 0.2),
        }

    def _journey(self) -> dict[str, pa.Array]:
        airports = _airports()
        origin = self._codes(N_AIRPORTS)
        destination = (origin + 1 + self._codes(N_AIRPORTS - 1)) % N_AIRPORTS
        day = FIRST_DAY + self._codes(N_DAYS)
        minute = 300 + 5 * self._codes(216)
        departure = day * _DAY_US + minute * 60_000_000
        flying = 45 + self._codes(800)
        cabin = self._skewed(len(CABINS))
        booking_class = picked(self._skewed(len(CLASSES)), list(CLASSES))
        basis = joined(booking_class, picked(self._codes(200), words(200, 2, 11)))
        seat_row = 1 + self._codes(60)
        letters = list("ABCDEFGHJK")
        n_coupons = 1 + self._skewed(4)
        return {
            "airline": picked(self._skewed(100), [a + b for a in "ABCDEFGHIJ" for b in "ACDFGKLQSX"]),
            "flight_no": pa.array((1 + self._codes(9_000)).astype(np.int16)),
            "origin": picked(origin, airports),
            "destination": picked(destination, airports),
            "dep_date": pa.array(day.astype(np.int32)).cast(pa.date32()),
            "departure": _instants(departure),
            "arrival": _instants(departure + flying * 60_000_000),
            "cabin": picked(cabin, list(CABINS)),
            "booking_class": booking_class,
            "fare_basis": basis,
            "seat": self._nullable(picked(seat_row * 10 + self._codes(10), _seats(letters)), 0.1),
            "coupon": pa.array((1 + self._codes(4) % n_coupons).astype(np.int8)),
            "n_coupons": pa.array(n_coupons.astype(np.int8)),
            "status": picked(self._skewed(len(STATUSES)), STATUSES),
            "baggage_kg": pa.array(self._skewed(40).astype(np.int16)),
            "bags": pa.array(self._skewed(4).astype(np.int8)),
            "meal": self._nullable(picked(self._codes(len(MEALS)), MEALS), 0.8),
            "miles": pa.array((100 + self._skewed(9_000)).astype(np.int32)),
        }

    def _money(self) -> dict[str, pa.Array]:
        fare = 2_000 + self._skewed(400_000)
        return {
            "fare_cents": pa.array(fare.astype(np.int32)),
            "tax_cents": pa.array((fare * (5 + self._codes(30)) // 100).astype(np.int32)),
            "fee_cents": pa.array((50 * self._skewed(200)).astype(np.int32)),
            "total_local": pa.array(np.round(fare * (0.5 + self._chance.random(self._n)) / 100, 2)),
            "currency": picked(self._skewed(len(CURRENCIES)), CURRENCIES),
            "payment": picked(self._skewed(len(PAYMENTS)), PAYMENTS),
            "is_refundable": pa.array(self._chance.random(self._n) < 0.3),
        }

    def _notes(self) -> dict[str, pa.Array]:
        issued = (FIRST_DAY - 60 + self._codes(N_DAYS)) * _DAY_US + self._codes(86_400) * 1_000_000
        reference = fixed(spelled(self._unique(12), 14, DIGITS))
        return {
            "issued": _instants(issued),
            "agent": picked(self._skewed(10_000), [f"AG{number:06d}" for number in range(10_000)]),
            "office": picked(self._skewed(2_000), [f"OFC{number:06d}" for number in range(2_000)]),
            "iata_code": pa.array((10_000_000 + self._skewed(30_000)).astype(np.int32)),
            "restrictions": picked(self._skewed(len(RESTRICTIONS)), RESTRICTIONS),
            "remarks": self._nullable(joined(picked(self._codes(len(REMARKS)), REMARKS), reference), 0.05),
        }


def _airports() -> list[str]:
    consonants, vowels = "BCDFGHJKLMNPRSTVWXZ", "AEIOU"
    codes = [a + b + c for a in consonants for b in vowels for c in consonants]
    return codes[: len(codes) : len(codes) // N_AIRPORTS][:N_AIRPORTS]


def _seats(letters: list[str]) -> list[str]:
    return [f"{row}{letter}" for row in range(61) for letter in letters]


def _instants(microseconds: Any) -> pa.Array:
    return pa.array(microseconds).cast(pa.timestamp("us", tz="UTC"))


def value_bytes(table: pa.Table) -> int:
    """Sum the lengths of all values: UTF-8 bytes of texts, natural widths of the rest, nothing for NULL."""
    total = 0
    for column in table.columns:
        if pa.types.is_string(column.type):
            total += pc.sum(pc.binary_length(column)).as_py() or 0
        else:
            width = max(column.type.bit_width // 8, 1)
            total += width * (len(column) - column.null_count)
    return int(total)
