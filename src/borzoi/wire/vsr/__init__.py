"""The vsr generation of the wire protocol (protocol version 0.11): frames, operations and bodies.

`frames` cuts the byte stream, `operations` says how a command travels, `codec` turns bodies into requests
and replies into bodies, `login` is the one body that is not a plain command.
"""
