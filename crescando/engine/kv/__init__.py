"""The smallest complete engine: a dictionary per table, rows evaluated one at a time.

Rules of the package: nothing is clever, so that it can be believed. It serves
as a reference for faster engines, wherever storage is not what is measured or
tested, and as an example for authors of engines. With the scan it shares the
vocabulary and what is exact by construction (ring positions, aggregate
states, digests, validation), but no evaluation of terms.
"""

from crescando.engine.kv.engine import KvEngine

__all__ = ["KvEngine"]
