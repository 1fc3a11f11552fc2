"""Members compare the digests of their state machines; one that differs from a majority stops.

A router plug-in that is not deterministic makes its router route differently
from all others. Nothing in the order itself would show that; the digest after
each change of the state does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from crescando.consensus.multipaxos.messages import Attestation
from crescando.consensus.quorum import Membership
from crescando.types import ProcessId

REMEMBERED = 64
"""Own digests kept: members report their newest, and lag behind each other a little."""


@dataclass(slots=True)
class Attestations:
    """This member's own digests, and what it has been told of others'."""

    own: dict[int, bytes] = field(default_factory=dict)
    reported: dict[ProcessId, Attestation] = field(default_factory=dict)

    @property
    def newest(self) -> Attestation | None:
        """The last one stated by this member."""
        if not self.own:
            return None
        instance = next(reversed(self.own))
        return Attestation(instance, self.own[instance])

    def state(self, instance: int, digest: bytes) -> None:
        """Remember an own digest."""
        self.own[instance] = digest
        while len(self.own) > REMEMBERED:
            del self.own[next(iter(self.own))]

    def report(self, peer: ProcessId, attestation: Attestation | None) -> None:
        """Remember the newest of another member."""
        if attestation is not None:
            self.reported[peer] = attestation

    def keep(self, peers: Collection[ProcessId]) -> None:
        """Forget what others than these have reported."""
        self.reported = {peer: attested for peer, attested in self.reported.items() if peer in peers}

    def agreed(self, membership: Membership) -> Attestation | None:
        """Give the newest that a majority of the members attest to, this one counted as one voice."""
        counts: Counter[tuple[int, bytes]] = Counter()
        for member, attestation in self.reported.items():
            if member in membership.members:
                counts[attestation.instance, attestation.digest] += 1
        for instance, digest in self.own.items():
            if (instance, digest) in counts:
                counts[instance, digest] += 1
        found = [key for key, count in counts.items() if count >= membership.majority]
        return Attestation(*max(found)) if found else None

    def differs(self, agreed: Attestation | None) -> bool:
        """Say whether this member's own digest is not the one agreed upon."""
        if agreed is None:
            return False
        mine = self.own.get(agreed.instance)
        return mine is not None and mine != agreed.digest
