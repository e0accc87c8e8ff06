"""Layouts compiled to programs, the machine that runs them over message bodies, and the tape that it writes.

fields       all fields of all messages by number
roles        the meanings of fields that reports need
profiles     which fields reach the tape
compiler     layouts to programs
program      programs as arrays, and their index by API, version and direction
loading      programs by profile: read from a file (`program_files`) that was made with the package (`make_programs`)
             or kept by an earlier run (`kept_programs`), or else compiled
disassembly  programs as text
machine      the kernel that decodes bodies
tape         running it: over many bodies, or over one
error_paths  the field and the reason where a body is malformed

This room knows layouts. It does not know frames, connections, exchanges or trees.
"""
