"""How the vsr generation carries each command: the operation byte of a frame.

| operation | carries |
|---|---|
| 1 Register | a login; the shape of the body says whether with a password or with a token |
| 2 NonReplicated | every command that has no number of its own; its code stands in the header |
| 3 Logout | logout |
| 64..68 | between servers, never with a client |
| 128..149 | changes of metadata |
| 160..162 | messages and consumer offsets |

A reply to a *result-framed* operation starts with a result section (see `vsr.codec`), even when nothing
follows it; a reply to any other operation must not have one.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from borzoi.wire.commands import COMMANDS, Code, Generation


class Operation(IntEnum):
    REGISTER = 1
    NON_REPLICATED = 2
    LOGOUT = 3
    CREATE_STREAM = 128
    UPDATE_STREAM = 129
    DELETE_STREAM = 130
    PURGE_STREAM = 131
    CREATE_TOPIC = 132
    UPDATE_TOPIC = 133
    DELETE_TOPIC = 134
    PURGE_TOPIC = 135
    CREATE_PARTITIONS = 136
    DELETE_PARTITIONS = 137
    DELETE_SEGMENTS = 138
    CREATE_CONSUMER_GROUP = 139
    DELETE_CONSUMER_GROUP = 140
    CREATE_USER = 141
    UPDATE_USER = 142
    DELETE_USER = 143
    CHANGE_PASSWORD = 144
    UPDATE_PERMISSIONS = 145
    CREATE_PERSONAL_ACCESS_TOKEN = 146
    DELETE_PERSONAL_ACCESS_TOKEN = 147
    JOIN_CONSUMER_GROUP = 148
    LEAVE_CONSUMER_GROUP = 149
    SEND_MESSAGES = 160
    STORE_CONSUMER_OFFSET = 161
    DELETE_CONSUMER_OFFSET = 162


# An operation of one command is called like it. Register carries two and has no code; NonReplicated any.
CODE_BY_OPERATION: Mapping[int, Code] = MappingProxyType(
    {
        **{operation: Code[operation.name] for operation in Operation if operation.name in Code.__members__},
        Operation.LOGOUT: Code.LOGOUT_USER,
    }
)

OPERATION_BY_CODE: Mapping[Code, Operation] = MappingProxyType(
    {
        **{row.codes[Generation.VSR]: Operation.NON_REPLICATED for row in COMMANDS},
        **{code: Operation(operation) for operation, code in CODE_BY_OPERATION.items()},
        Code.LOGIN_REGISTER: Operation.REGISTER,
        Code.LOGIN_REGISTER_WITH_PERSONAL_ACCESS_TOKEN: Operation.REGISTER,
    }
)

# What operation 2 may carry. Any other known code belongs to another operation or another generation.
NON_REPLICATED_CODES: frozenset[Code] = frozenset(
    code for code, operation in OPERATION_BY_CODE.items() if operation is Operation.NON_REPLICATED
)

# Logins of the older generation; a vsr server answers them like a malformed login.
LEGACY_LOGIN_CODES = frozenset({Code.LOGIN_USER, Code.LOGIN_WITH_PERSONAL_ACCESS_TOKEN})

_INTERNAL = range(64, 69)
_METADATA = range(128, 150)
_RESULT_FRAMED: frozenset[int] = frozenset(
    {
        Operation.REGISTER,
        *_INTERNAL,
        *_METADATA,
        Operation.STORE_CONSUMER_OFFSET,
        Operation.DELETE_CONSUMER_OFFSET,
    }
    - {Operation.DELETE_SEGMENTS}
)


def is_result_framed(operation: int) -> bool:
    """Whether a reply's body, if there is one, starts with a result section."""
    return operation in _RESULT_FRAMED
