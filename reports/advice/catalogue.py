"""The catalogue: every signature, in the order of docs/findings.md."""

from __future__ import annotations

from .aborted_transactions import ABORTED_TRANSACTIONS
from .advertised import ADVERTISED
from .black_hole import BLACK_HOLE
from .buffers import BUFFERS
from .connection_limit import CONNECTION_LIMIT
from .dying_members import DYING_MEMBERS
from .expired_sessions import EXPIRED_SESSIONS
from .expulsions import EXPULSIONS
from .fetch_sessions import FETCH_SESSIONS
from .fetch_waits import FETCH_WAITS
from .floods import FLOODS_OF_REQUESTS
from .held_rebalances import HELD_REBALANCES
from .hot_leaders import HOT_LEADERS
from .idle_drops import IDLE_DROPS
from .idle_resets import IDLE_RESETS
from .lagging_groups import LAGGING_GROUPS
from .lifetime_limits import LIFETIME_LIMITS
from .nagle import NAGLE
from .offsets_set import OFFSETS_SET
from .one_connection import ONE_CONNECTION
from .open_transactions import OPEN_TRANSACTIONS
from .position_resets import POSITION_RESET
from .reconnects import CONNECTION_EACH, RECONNECT_STORM
from .refused_produce import REFUSED_PRODUCE
from .repeated_reads import POISON_RECORD, REFETCH
from .request_timeouts import REQUEST_TIMEOUTS
from .same_address import SAME_ADDRESS
from .same_instance import SAME_INSTANCE
from .signature import Signature
from .single_records import SINGLE_RECORDS
from .slow_followers import SLOW_FOLLOWERS
from .unread_partitions import UNREAD_PARTITIONS
from .unstable_offsets import UNSTABLE_OFFSETS

#: All signatures. A new one is a module beside this one, and a line here.
CATALOGUE: tuple[Signature, ...] = (
    NAGLE,
    ADVERTISED,
    SAME_ADDRESS,
    ONE_CONNECTION,
    SINGLE_RECORDS,
    BUFFERS,
    BLACK_HOLE,
    IDLE_DROPS,
    IDLE_RESETS,
    LIFETIME_LIMITS,
    EXPIRED_SESSIONS,
    FETCH_WAITS,
    FETCH_SESSIONS,
    REQUEST_TIMEOUTS,
    REFUSED_PRODUCE,
    CONNECTION_LIMIT,
    EXPULSIONS,
    DYING_MEMBERS,
    HELD_REBALANCES,
    SAME_INSTANCE,
    OPEN_TRANSACTIONS,
    UNSTABLE_OFFSETS,
    ABORTED_TRANSACTIONS,
    LAGGING_GROUPS,
    UNREAD_PARTITIONS,
    POSITION_RESET,
    OFFSETS_SET,
    POISON_RECORD,
    REFETCH,
    CONNECTION_EACH,
    RECONNECT_STORM,
    FLOODS_OF_REQUESTS,
    SLOW_FOLLOWERS,
    HOT_LEADERS,
)
USUAL = tuple(signature for signature in CATALOGUE if not signature.on_request)
ON_REQUEST = tuple(signature for signature in CATALOGUE if signature.on_request)
