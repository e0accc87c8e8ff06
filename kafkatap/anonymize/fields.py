"""Which strings of messages stay: words of Kafka's protocol, known configurations and their plain values.

A string stays only if its field is one of these *and* its value is on the field's list. Texts for people, as error
messages, become filler, because they are public and would show how single words are mapped. Other strings are names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from kafkatap.dissector.layouts.secrets import is_secret_name

from .names import KEPT_PRINCIPALS, PUBLIC_NAMES, Names

FILLER = b"x"
#: Texts for people.
TEXTS = frozenset(
    {
        "ErrorMessage", "AcknowledgeErrorMessage", "BatchIndexErrorMessage", "Documentation", "StatusDetail",
    }
)  # fmt: skip
#: Texts of Kafka's brokers that stay, as they name nothing.
_PUBLIC_TEXTS = frozenset(
    {
        b"NONE", b"Authentication failed: Invalid username or password", b"The coordinator is not available.",
        b"The coordinator is loading and hence can't process requests.",
        *(
            b"Authentication failed during authentication due to invalid credentials with SASL mechanism " + mechanism
            for mechanism in (b"PLAIN", b"SCRAM-SHA-256", b"SCRAM-SHA-512", b"OAUTHBEARER", b"GSSAPI")
        ),
    }
)  # fmt: skip
_ASSIGNORS = (
    "range roundrobin sticky cooperative-sticky uniform simple default compatible sessioned stream homogeneous "
    "highly_available"
)
_LISTENERS = "PLAINTEXT SSL SASL_PLAINTEXT SASL_SSL CONTROLLER BROKER EXTERNAL INTERNAL CLIENT REPLICATION"
_FEATURES = (
    "metadata.version kraft.version group.version transaction.version streams.version share.version "
    "eligible.leader.replicas.version"
)
_TRANSACTIONS = "Empty Ongoing PrepareCommit PrepareAbort CompleteCommit CompleteAbort Dead PrepareEpochFence"
_GROUP_STATES = (
    "Unknown PreparingRebalance CompletingRebalance Stable Dead Empty Assigning Reconciling NotReady AwaitingSync"
)
_QUOTAS = (
    "producer_byte_rate consumer_byte_rate request_percentage controller_mutation_rate connection_creation_rate "
    "ip_connection_rate"
)
_TYPES = "classic consumer share streams"
_PRINCIPALS = "User Group"
#: Words by the name of a field, or by the name of its struct or array and its own.
_WORDS = {
    "Protocols.Name": _ASSIGNORS,
    "ProtocolName": _ASSIGNORS,
    "ProtocolData": _ASSIGNORS,
    "AssignorName": _ASSIGNORS,
    "ServerAssignor": _ASSIGNORS,
    "ProtocolType": "consumer connect sr share streams",
    "GroupType": _TYPES,
    "TypesFilter": _TYPES + " Classic Consumer Share Streams",
    "GroupState": _GROUP_STATES,
    "StatesFilter": _GROUP_STATES,
    "TransactionState": _TRANSACTIONS,
    "StateFilters": _TRANSACTIONS,
    "UnknownStateFilters": _TRANSACTIONS,
    "Mechanism": "PLAIN SCRAM-SHA-256 SCRAM-SHA-512 OAUTHBEARER GSSAPI AWS_MSK_IAM",
    "Mechanisms": "PLAIN SCRAM-SHA-256 SCRAM-SHA-512 OAUTHBEARER GSSAPI AWS_MSK_IAM",
    "EntityType": "user client-id ip",
    "Values.Key": _QUOTAS,
    "Ops.Key": _QUOTAS,
    "Feature": _FEATURES,
    "Features.Name": _FEATURES,
    "SupportedFeatures.Name": _FEATURES,
    "FinalizedFeatures.Name": _FEATURES,
    "Listener": _LISTENERS,
    "Listeners.Name": _LISTENERS,
    "LeaderEndpoints.Name": _LISTENERS,
    "Endpoints.Name": _LISTENERS,
    "OwnerPrincipalType": _PRINCIPALS,
    "PrincipalType": _PRINCIPALS,
    "TokenRequesterPrincipalType": _PRINCIPALS,
    "DefaultPrincipalData.Type": _PRINCIPALS,
    "RequestPrincipal.Type": _PRINCIPALS,
    "PrincipalName": "ANONYMOUS",
    "TokenRequesterPrincipalName": "ANONYMOUS",
    "RequestPrincipal.Name": "ANONYMOUS",
    "Host": "*",
    "HostFilter": "*",
    "ResourceName": "* kafka-cluster",
    "ResourceNameFilter": "* kafka-cluster",
    "ClientSoftwareName": (
        "apache-kafka-java librdkafka confluent-kafka-python confluent-kafka-dotnet confluent-kafka-go "
        "confluent-kafka-javascript rdkafka-ruby rust-rdkafka node-rdkafka php-rdkafka kafka-python aiokafka sarama "
        "franz-go kgo kafka-go segmentio kafkajs platformatic-kafka brod kafka_ex kafka-rust rskafka"
    ),
    "CompressionType": "none gzip snappy lz4 zstd",
}
_FIELDS = {field: frozenset(words.encode().split()) for field, words in _WORDS.items()}
_VERSION = re.compile(rb"v?[0-9]{1,4}(\.[0-9]{1,6}){0,3}(-(rc|beta|alpha|SNAPSHOT|rdkafka|librdkafka)[-.0-9]*)?")
#: The parts of the names of clients' metrics (KIP-714).
_METRIC_PREFIX = b"org.apache.kafka."
_METRIC_WORDS = frozenset(
    b"producer consumer client admin streams share connection connections creation rate total count node request "
    b"response latency avg max min produce throttle time record records queue coordinator assigned partitions commit "
    b"rebalance fetch manager poll idle ratio batch size bytes buffer thread state".split()
)
#: Fields whose value is a configuration's name, by their struct or array.
_CONFIG_NAMES = frozenset({"Configs.Name", "Synonyms.Name", "ConfigurationKeys", "TopicConfigs.Key"})
_CONFIG_VALUES = frozenset({"Configs.Value", "Synonyms.Value", "TopicConfigs.Value"})
#: Values of configurations that say nothing: plain numbers, and words of Kafka.
PLAIN_VALUE = re.compile(
    rb"-?[0-9]{1,19}|[0-9]{1,3}\.[0-9]{1,6}|true|false|delete|compact|compact,delete|delete,compact|"
    rb"producer|uncompressed|none|gzip|snappy|lz4|zstd|CreateTime|LogAppendTime|all|requested|required|"
    rb"classic|consumer|share|streams|earliest|latest|INFO|broker|controller|broker,controller|"
    rb"[0-9]\.[0-9]{1,2}(\.[0-9])?-IV[0-9]{1,2}"
)
#: The reasons that clients give for joining and leaving a group.
_REASONS = frozenset(
    {
        b"the consumer is being closed", b"the consumer unsubscribed from all topics",
        b"consumer poll timeout has expired.", b"member was removed by an admin call",
        b"member was removed by an admin",
        b"group is already rebalancing", b"need to revoke partitions and re-join", b"subscription has changed",
    }
)  # fmt: skip
#: How reasons begin that end with a member id, and with the name of an error of the client.
_REJOIN, _FAILED = b"need to re-join with the given member-id: ", b"rebalance failed due to "
_EXCEPTIONS = frozenset(
    word + b"Exception"
    for word in (
        b"Authentication CommitFailed CoordinatorLoadInProgress CoordinatorNotAvailable Disconnect FencedInstanceId "
        b"FencedMemberEpoch GroupAuthorization GroupMaxSizeReached IllegalGeneration InconsistentGroupProtocol "
        b"Interrupt InvalidGroupId InvalidSessionTimeout InvalidTopic Kafka MemberIdRequired Network NotCoordinator "
        b"RebalanceInProgress RetriableCommitFailed SaslAuthentication SslAuthentication StaleMemberEpoch Timeout "
        b"TopicAuthorization UnknownMemberId UnknownServer UnknownTopicOrPartition UnreleasedInstanceId "
        b"UnsupportedVersion Wakeup"
    ).split()
)
#: Types of resources whose name is a node id: brokers and their loggers.
_BROKERS = (4, 8)


@cache
def config_names() -> frozenset[bytes]:
    """The names of Kafka's own configurations, of brokers from 0.8 on."""
    return frozenset((Path(__file__).parent / "config_names.txt").read_bytes().split())


@cache
def kept_words() -> frozenset[bytes]:
    """All strings that stay by rule."""
    values = PLAIN_VALUE.pattern.split(b"|")
    texts = (_PUBLIC_TEXTS, _REASONS, _EXCEPTIONS, {_REJOIN, _FAILED})
    return frozenset().union(*_FIELDS.values(), config_names(), PUBLIC_NAMES, KEPT_PRINCIPALS, values, *texts)


def rewritten_string(names: Names, field: str, value: bytes, siblings: Mapping[str, object]) -> bytes:
    """What a string becomes, in as many bytes. `field`: its name behind that of its struct or array ("Configs.Value").
    `siblings`: the values of the fields before it in its struct."""
    made = _rewritten(names, field, value, siblings)
    return names.keep(value) if made == value else made


def _rewritten(names: Names, field: str, value: bytes, siblings: Mapping[str, object]) -> bytes:
    name = field.rpartition(".")[2]
    if not value:
        return value
    words = _FIELDS.get(field) or _FIELDS.get(name)
    if words is not None and value in words:
        return value
    if name in TEXTS:
        return value if value in _PUBLIC_TEXTS else forgotten(names, value)
    special = _SPECIAL.get(field) or _SPECIAL.get(name)
    found = special(names, value, siblings) if special is not None else None
    return names.name(value) if found is None else found


def forgotten(names: Names, value: bytes) -> bytes:
    """Filler for a string."""
    names.forget(value)
    return FILLER * len(value)


def _config_name(names: Names, value: bytes, siblings: Mapping[str, object]) -> bytes | None:
    return value if value in config_names() else None


def _config_value(names: Names, value: bytes, siblings: Mapping[str, object]) -> bytes | None:
    name = siblings.get("Name", siblings.get("Key"))
    if not isinstance(name, str) or is_secret_name(name):
        return FILLER * len(value) if PLAIN_VALUE.fullmatch(value) else forgotten(names, value)
    known = name.encode("utf-8", "surrogateescape") in config_names()
    return value if known and PLAIN_VALUE.fullmatch(value) else None


def _version(names: Names, value: bytes, siblings: Mapping[str, object]) -> bytes | None:
    name = siblings.get("ClientSoftwareName")
    known = isinstance(name, str) and name.encode("utf-8", "surrogateescape") in _FIELDS["ClientSoftwareName"]
    return value if known and _VERSION.fullmatch(value) else None


def _reason(names: Names, value: bytes, siblings: Mapping[str, object]) -> bytes:
    if value in _REASONS:
        return value
    if value.startswith(_REJOIN):
        return _REJOIN + names.name(value[len(_REJOIN) :])
    if value.startswith(_FAILED):
        error = value[len(_FAILED) :]
        return _FAILED + (error if error in _EXCEPTIONS else forgotten(names, error))
    return forgotten(names, value)


def _metrics(names: Names, value: bytes, siblings: Mapping[str, object]) -> bytes | None:
    if value == b"*":
        return value
    words = value.removeprefix(_METRIC_PREFIX).rstrip(b".").split(b".")
    return value if value.startswith(_METRIC_PREFIX) and _METRIC_WORDS.issuperset(filter(None, words)) else None


def _resource(names: Names, value: bytes, siblings: Mapping[str, object]) -> bytes | None:
    return value if siblings.get("ResourceType") in _BROKERS and value.isdigit() and len(value) < 6 else None


_Special = Callable[[Names, bytes, Mapping[str, object]], bytes | None]
_SPECIAL: dict[str, _Special] = {
    **dict.fromkeys(_CONFIG_NAMES, _config_name),
    **dict.fromkeys(_CONFIG_VALUES, _config_value),
    "ClientSoftwareVersion": _version,
    "Reason": _reason,
    "RequestedMetrics": _metrics,
    "ResourceName": _resource,
}
#: Fields, by name or by name behind that of their struct, whose rule depends on the fields before them.
WITH_SIBLINGS = frozenset(name for name, rule in _SPECIAL.items() if rule in (_config_value, _version, _resource))
