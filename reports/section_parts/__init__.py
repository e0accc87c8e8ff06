"""What report sections over facts are made of.

section           `Section`: what a section declares, and `SectionInput`, from which it makes its tables
gathered          exchanges of several batches with their facts, as columns
matching          facts of the same exchange, topic and partition
event_rows        events: small rows that are put in time order over all connections
follower_waits    which follower each Produce with acks=all waited for
section_counts    `SectionCounts`: the counts and events of all wanted sections of a run, which can be merged
place_counts      `PlaceCounts`: the same for many captures and hours, each apart
registry          the sections by name

Each section is a module of `reports.sections` with a constant SECTION.
"""
