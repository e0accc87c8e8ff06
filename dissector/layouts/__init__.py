"""Message layouts: the model, its notation, and Kafka's own definitions. No bytes, arrays or programs.

schema       the model: a message of one direction, its structs and fields, with their versions
notation     the parser and the renderer of `messages/*.kmsg`
catalog      the built-in layouts by api_key, and the names of APIs
plain_names  names as people write them, looked up
vendors      the keys and names of vendors' own APIs
definitions  Kafka's .json definitions, parsed into the same model
overlay      a folder of definitions laid over the built-in layouts
history      the fields that a version of a message added, removed or changed
secrets      the fields that hold secrets
"""
