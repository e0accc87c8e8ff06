"""The modules with kernels. Their kernels are compiled together and kept in one folder."""

from __future__ import annotations

KERNEL_MODULES = (
    "kafkatap.dissector.framing.chunks",
    "kafkatap.dissector.connection_state",
    "kafkatap.dissector.expiry",
    "kafkatap.dissector.drain",
    "kafkatap.dissector.held_frames",
    "kafkatap.dissector.problems",
    "kafkatap.dissector.strings",
    "kafkatap.dissector.programs.machine",
    "kafkatap.dissector.records.batches",
    "kafkatap.dissector.records.record_reader",
    "kafkatap.reassembly.pcap",
    "kafkatap.reassembly.pcapng",
    "kafkatap.reassembly.pcap_writer",
    "kafkatap.reassembly.afpacket",
    "kafkatap.reassembly.boundaries",
    "kafkatap.reassembly.connection_state",
    "kafkatap.reassembly.flows",
    "kafkatap.reassembly.fragments",
    "kafkatap.reassembly.held_segments",
    "kafkatap.reassembly.listeners",
    "kafkatap.reassembly.one_pass",
    "kafkatap.reassembly.segments",
    "kafkatap.reassembly.streams",
    "kafkatap.reports.counting.count_table",
    "kafkatap.reports.counting.histogram",
    "kafkatap.reports.counting.tally",
    "kafkatap.splits.chains",
)
