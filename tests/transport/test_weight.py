"""What messages weigh on their way: within a small factor of their encoding, whatever they are."""

from __future__ import annotations

from typing import Any

import pytest

from crescando import wire
from crescando.transport.base import MESSAGE_BYTES, weight_of
from tests.transport.test_wire import MESSAGES


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_no_message_weighs_much_less_than_its_bytes(message: Any) -> None:
    assert weight_of(message) >= len(wire.encode(message)) / 4


def test_payload_counts_in_full() -> None:
    assert weight_of(b"x" * 10_000) == 10_000 + MESSAGE_BYTES
    assert weight_of((b"x" * 10_000, b"y" * 5_000)) >= 15_000
