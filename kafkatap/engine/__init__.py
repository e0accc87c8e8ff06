"""The engine: packets in, finished exchanges out.

engine             assembly, then the dissector; a batch of exchanges and results at a time
assembly           packets to chunks of TCP streams
tls/               encrypted chunks to plain ones, or what can be told without keys
selection          which exchanges the user selected
ended_connections  rows of connections that have ended
endpoints          addresses by number
watched_packets    packets of the exchanges that a recording keeps
host_names         names of addresses, from files
read_options       how captures are decoded: the same for every command
limits             how much a run keeps in memory
"""
