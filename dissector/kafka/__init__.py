"""Facts about Kafka as tables: they depend on layouts, and on nothing that decodes.

error_codes  error codes: their names of all releases, and what they mean
enums        names of the values of fields: enums, times, sets of operations
releases     the versions of each API that a Kafka release supports
varints      numbers of variable length
"""
