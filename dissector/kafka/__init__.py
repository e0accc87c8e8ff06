"""Facts about Kafka as tables: they depend on layouts, and on nothing that decodes.

error_codes  names of error codes
enums        names of the values of fields: enums, times, sets of operations
releases     the versions of each API that a Kafka release supports
varints      numbers of variable length
"""
