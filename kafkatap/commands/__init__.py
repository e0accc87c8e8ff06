"""The commands of `kafkatap`, a folder each, and what they share.

Every command has the same shape, so that its help imports nothing heavy:

NAME/arguments    `add_arguments(parser)`, DESCRIPTION, EXAMPLES
NAME/command      `run(options)`: does the work and returns the exit code

command_parser    `COMMANDS`, `parse`, and the parser of the whole command line
shared_options    options that several commands share: captures, selection, appearance
values            values of options: times, durations, sizes, APIs, brokers, ports
exit_codes        DONE, DAMAGED, WRONG, BREAKS, LEFT_OUT, INTERRUPTED, TERMINATED
console           what commands share on a terminal: readable captures, Ctrl-C, refusals, the progress bar
"""
