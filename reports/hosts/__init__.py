"""Names for addresses.

host_entry    one span of time in which an address, or a network, has a name
host_table    names of addresses at times, for arrays
host_files    entries from files: CSV, hosts files, kubectl, AWS
named_tables  names beside the addresses in tables of reports

It does not know who reads captures. Names are as in their file, and renderers escape them as everything else.
"""
