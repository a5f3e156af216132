"""The classic generation of the wire protocol, in the four dialects its clients speak.

`dialect` says what the dialects differ in and recognises a client's, `frames` cuts the byte stream, `codec`
turns bodies into requests and replies into bodies, `messages` takes sends apart and `translate` makes
batches of their messages and messages of batches. Nothing above this package knows a dialect.
"""
