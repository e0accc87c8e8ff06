"""Fuzzing: damaged and hostile inputs for every part that reads bytes that others made.

target              `Target`: makes inputs from a seed, and checks one input; limits of time and memory
targets             `TARGETS`: all targets by name
capture_inputs      captures with damaged files, headers, segments or frames
capture_targets     reassembly, framing and correlation over such captures
decoder_targets     message bodies, record batches, filter expressions, definitions
command_target      the outputs of the commands
smaller             shorter inputs with the same finding
worker              a process that checks inputs and writes down each one first
guided              the same targets under atheris, which is guided by coverage

`python benchmarks/fuzz.py` runs them for longer. The invariants: no error but declared ones, bounded time and memory,
the ledger adds up, every way through the code gives the same rows, and every exchange is in the bytes.
"""
