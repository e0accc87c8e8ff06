"""The commands of `kafkatap`: from options to output and an exit code.

report, show, records, apis, live, spark  one module for each command; its function returns the exit code
options         the parsers and help of all commands
live_options    the options of `kafkatap live`
command_parser  the class of these parsers
values          parse the values of options: times, durations, APIs, brokers, ports
console         what commands share on a terminal: Ctrl-C, the progress bar, exit codes, complaints about captures
progress        the progress bar

No other package imports from here. `options` and `values` import nothing heavy, so that help appears at once.
"""
