"""As much of HTTP/2 (RFC 9113) and gRPC as unary calls of one method over one connection need.

Rules of the file: headers are encoded once, without compression (RFC 7541
§6.2.2), and those of replies are never decoded: a call that succeeded sends a
message and then trailers; one that failed sends trailers only. The peer's flow
control is obeyed, our own is opened wide at the start.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Mapping, Sequence

from benchmarks.peers.lane import Lane, Listener

DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SETTING = 4
WINDOW_BYTES = 65_535
WINDOW_BYTES_MAX = (1 << 31) - 1
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME = struct.Struct(">HBBBI")
WORD = struct.Struct(">I")
SETTING = struct.Struct(">HI")
FRAME_BYTES = FRAME.size
FRAME_BODY_BYTES_MAX = 16_384
"""What every peer takes in one frame."""
MESSAGE_BYTES_MAX = WINDOW_BYTES - 5
"""What a fresh stream's window has room for, after gRPC's own five bytes."""


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    """Encode one frame."""
    return FRAME.pack(len(body) >> 8, len(body) & 0xFF, kind, flags, stream) + body


def header_block(fields: Mapping[str, str]) -> bytes:
    """Encode header fields, each a literal that enters no table; names and values below 127 bytes."""
    block = b""
    for name, value in fields.items():
        for_name, for_value = name.encode(), value.encode()
        block += b"\0" + bytes([len(for_name)]) + for_name + bytes([len(for_value)]) + for_value
    return block


class GrpcLane(Lane):
    """Unary calls of one method; replies come in any order.

    Parameters
    ----------
    payload, batch, listener
        As for any lane.
    path : str
        The method: ``/package.Service/Method``.
    authority : str
        Host and port.
    """

    def __init__(self, payload: bytes, batch: int, listener: Listener, path: str, authority: str) -> None:
        super().__init__(payload, batch, listener)
        self._headers = header_block(
            {
                ":method": "POST",
                ":scheme": "http",
                ":path": path,
                ":authority": authority,
                "content-type": "application/grpc",
                "te": "trailers",
            }
        )
        self._rest = b""
        self._stream = 1
        self._window = WINDOW_BYTES
        self._calls: dict[int, float] = {}
        self._with_message: set[int] = set()
        # Calls that the peer's window has no room for, with the time they were submitted.
        self._held: deque[tuple[float, bytes]] = deque()

    def greet(self) -> None:
        ours = SETTING.pack(INITIAL_WINDOW_SETTING, WINDOW_BYTES_MAX)
        wide = WORD.pack(WINDOW_BYTES_MAX - WINDOW_BYTES)
        self.transport.write(PREFACE + frame(SETTINGS, 0, 0, ours) + frame(WINDOW_UPDATE, 0, 0, wide))

    def submit(self, requests: Sequence[range]) -> None:
        now_s = time.monotonic()
        for writes in requests:
            message = self.request(writes)
            if len(message) > MESSAGE_BYTES_MAX:
                raise ValueError(f"a request of {len(message)} bytes does not fit a stream's window")
            self._held.append((now_s, b"\0" + WORD.pack(len(message)) + message))
        self._send_held()

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        position, end = 0, len(data)
        settled_s: list[float] = []
        while position + FRAME_BYTES <= end:
            high, low, kind, flags, stream = FRAME.unpack_from(data, position)
            after = position + FRAME_BYTES + (high << 8 | low)
            if after > end:
                break
            if kind == DATA:
                self._with_message.add(stream)
            elif kind == HEADERS:
                if flags & END_STREAM:
                    sent_s = self._calls.pop(stream)
                    if stream in self._with_message:
                        self._with_message.discard(stream)
                        settled_s.append(sent_s)
                    else:
                        self.listener.on_refused(self, "trailers without a message")
            else:
                self._on_control(kind, flags, stream, data[position + FRAME_BYTES : after])
            position = after
        self._rest = data[position:]
        if settled_s:
            self.listener.on_settled(self, settled_s)

    def _on_control(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == WINDOW_UPDATE and stream == 0:
            self._window += WORD.unpack(body)[0]
            self._send_held()
        elif kind == SETTINGS and not flags & ACK:
            self.transport.write(frame(SETTINGS, ACK, 0, b""))
            self.greeted()
        elif kind == PING and not flags & ACK:
            self.transport.write(frame(PING, ACK, 0, body))
        elif kind == RESET:
            self._calls.pop(stream, None)
            self.listener.on_refused(self, f"stream reset with error {WORD.unpack(body)[0]}")
        elif kind == GOAWAY:
            self.close()

    def _send_held(self) -> None:
        parts = []
        while self._held and len(self._held[0][1]) <= self._window:
            sent_s, message = self._held.popleft()
            self._window -= len(message)
            self._calls[self._stream] = sent_s
            parts.append(frame(HEADERS, END_HEADERS, self._stream, self._headers))
            for start in range(0, len(message), FRAME_BODY_BYTES_MAX):
                body = message[start : start + FRAME_BODY_BYTES_MAX]
                is_last = start + FRAME_BODY_BYTES_MAX >= len(message)
                parts.append(frame(DATA, END_STREAM if is_last else 0, self._stream, body))
            # Clients' streams have odd numbers.
            self._stream += 2
        if parts:
            self.transport.write(b"".join(parts))
