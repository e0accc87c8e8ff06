"""One split of a capture: survey, plan, decode and prove. Nothing here knows Spark.

survey             first pass: the head of each flow, and the packets before it (its seam)
surveys            the surveys of all splits, repeated until they fit together
plan               which split decodes which packets of each flow
decode             second pass: the rows of a split, and the claims and arrivals that prove them
split_engine       the engine over the packets of a split
flow_state         the state of a flow's connection: a digest to compare, and a history to resume with
proof              run a plan and correct it until all claims hold
open_flows         the flows that are open at the end of a split
checkpoint         what the batches of a stream leave to the next one
seams              packets that one split sends to another
located_split      a split and where it begins
task_rows          the rows that splits exchange through Spark
"""
