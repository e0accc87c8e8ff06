"""Consumer groups: what their requests, and the offsets of Fetch and Produce, say of them.

group_events        read exchanges as counts and events
group_requests      the events with their strings
group_generations, group_epochs, group_rebalances
                    the history of a group: members, and rebalances with their causes
group_lag           committed offsets and positions beside the ends of partitions
lag_in_time         how long ago, and since when, a reader fell behind
group               `groups_of`: groups with all of this

The section `groups` shows them, and advice names those that fall behind.
"""
