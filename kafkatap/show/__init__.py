"""Messages for people: lines, trees, hexadecimal dumps, JSON.

printing      the printers for each form of output, onto a file or terminal
lines         one line a message
viewing       the tree of a message, with the names of its cluster
tree_text     trees as lines of text
text_rows     the kernel that writes these lines
hexdump       the bytes of a frame
message_json  a message as a JSON object
tree_json     its tree as JSON
"""
