"""Clients that are the cluster's own brokers and controllers: replica fetchers, Raft, the controller's channels.

They are known by what only a broker sends: requests of some APIs, and Fetch requests with a replica id. The names that
Kafka gives its own clients count only for addresses of brokers, since any client may have any name.
"""

from __future__ import annotations

from collections.abc import Collection

from kafkatap.dissector.layouts.catalog import key_of

from ..parties import has_own_name

#: APIs that only brokers and controllers send.
_APIS = (
    "LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown", "WriteTxnMarkers", "Vote",
    "BeginQuorumEpoch", "EndQuorumEpoch", "AlterPartition", "Envelope", "FetchSnapshot", "BrokerRegistration",
    "BrokerHeartbeat", "AllocateProducerIds", "ControllerRegistration", "AssignReplicasToDirs", "UpdateRaftVoter",
)  # fmt: skip
BROKER_APIS = frozenset(key for key in map(key_of, _APIS) if key is not None)


def own_by(
    client_id: str | None, address: str | None, apis: Collection[int], replicates: bool, brokers: Collection[str]
) -> str:
    """What shows that a client is a broker's own; "" for another client.

    `apis`: those that it used. `replicates`: its Fetch requests have a replica id. `brokers`: addresses of brokers.
    Programs without a client id on a host are one client: it is a broker's only if nothing else uses it.
    """
    from ..counting.rollup import api_label

    found = sorted(BROKER_APIS.intersection(apis))
    if found and (client_id or len(found) == len(set(apis))):
        return f"sends {', '.join(map(api_label, found[:3]))}"
    if replicates:
        return "its Fetch requests have a replica id"
    if has_own_name(client_id) and address in brokers:
        return "has the name and the address of a broker"
    return ""
