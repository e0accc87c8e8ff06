"""Captures in splits, each read by a process of its own: survey, plan, decode and prove. Nothing here knows Spark.

survey             first pass: the flows of a split and their heads
surveys            the surveys of all splits, repeated until they fit together
packet_ranges      reads only the blocks of a split with packets of some ranges
plan               which split decodes which packets of each flow, and what its task has to know
chains             the splits of each flow in order: the part of the plan that works on all flows
points_of_run      where the captures of a run were made, and how far each point was read
flow_rows          flows, histories and states as rows of arrays
decode             second pass: the rows of a split, and the claims and arrivals that prove them
capture_ledgers    the ledger of each capture that a split reads
split_engine       the engine over the packets of a split
flow_state         the state of a flow's connection: a digest to compare, and a history to resume with
seam_reader        reads the packets that one split decodes from itself and from later splits
proof              run a plan and correct it until all claims hold
open_flows         the flows that are open at the end of a split
checkpoint         what the batches of a stream leave to the next one
seams              packets of flows, cut out of a split
located_split      a split and where it begins
two_passes         the run: survey, plan and decode all splits, with any executor; run_options: what it makes
tasks              the two tasks of a split, and their results; task_rows: their inputs
executor           what runs tasks
kept_counts        the counts of each capture and hour of a split, on their way to a lake
split_counts       the counts of one split, and their sum over all splits; the rows of connections that splits share
"""
