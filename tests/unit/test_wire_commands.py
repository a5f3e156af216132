"""The command table and how vsr carries its rows."""

from typing import get_args

import pytest

from borzoi.model.requests import LoginUser, LoginWithToken, Request
from borzoi.wire.commands import (
    COMMAND_BY_CODE,
    COMMAND_BY_NAME,
    COMMAND_BY_REQUEST,
    COMMANDS,
    Answer,
    Code,
    Generation,
)
from borzoi.wire.vsr import codec
from borzoi.wire.vsr.operations import (
    CODE_BY_OPERATION,
    LEGACY_LOGIN_CODES,
    NON_REPLICATED_CODES,
    OPERATION_BY_CODE,
    Operation,
    is_result_framed,
)

# The operation numbers as the protocol's table has them.
PROTOCOL_OPERATIONS = {
    3: 39,
    128: 202, 129: 204, 130: 203, 131: 205, 132: 302, 133: 304, 134: 303, 135: 305, 136: 402, 137: 403,
    138: 503, 139: 602, 140: 603, 141: 33, 142: 35, 143: 34, 144: 37, 145: 36, 146: 42, 147: 43, 148: 604,
    149: 605, 160: 101, 161: 121, 162: 122,
}  # fmt: skip
NON_REPLICATED = {1, 10, 11, 12, 13, 20, 21, 22, 31, 32, 41, 100, 102, 120, 200, 201, 300, 301, 600, 601, 606}
BORZOIS_OWN = {9001, 9010, 9011, 9012, 9013, 9014, 9015}


def test_every_request_of_the_model_has_exactly_one_row():
    assert sorted(row.request.__name__ for row in COMMANDS) == sorted(
        cls.__name__ for cls in get_args(Request)
    )
    assert len(COMMAND_BY_REQUEST) == len(COMMAND_BY_NAME) == len(COMMANDS)


def test_every_code_belongs_to_exactly_one_row():
    assert set(COMMAND_BY_CODE) == set(Code)
    for generation in Generation:
        codes = [row.codes[generation] for row in COMMANDS if generation in row.codes]
        assert len(codes) == len(set(codes))


def test_row_without_an_answer_has_no_reply_class_and_every_other_has_one():
    for row in COMMANDS:
        assert (row.reply is None) == (row.answer is Answer.NOTHING), row.name


def test_login_is_one_command_with_a_code_per_generation():
    assert COMMAND_BY_CODE[Code.LOGIN_USER] is COMMAND_BY_CODE[Code.LOGIN_REGISTER]
    assert COMMAND_BY_NAME["login_user"].codes[Generation.VSR] is Code.LOGIN_REGISTER
    assert COMMAND_BY_NAME["login_user"].codes[Generation.CLASSIC] is Code.LOGIN_USER


def test_every_vsr_command_but_the_logins_has_a_request_and_a_reply_layout():
    codes = {row.codes[Generation.VSR] for row in COMMANDS if Generation.VSR in row.codes}
    logins = {code for code in codes if OPERATION_BY_CODE[code] is Operation.REGISTER}
    assert {COMMAND_BY_CODE[code].request for code in logins} == {LoginUser, LoginWithToken}
    assert set(codec.LAYOUTS) == codes - logins


@pytest.mark.parametrize("code", codec.LAYOUTS)
def test_empty_reply_is_possible_exactly_where_the_answer_may_be_nothing(code):
    counted = {Code.DESCRIBE_OPTIONS}
    raw = {Code.SNAPSHOT}
    answer = COMMAND_BY_CODE[code].answer
    may_be_empty = (answer is not Answer.ONE or code in raw) and code not in counted
    assert (codec.LAYOUTS[code].reply.least_bytes == 0) == may_be_empty


def test_operation_numbers_are_those_of_the_protocol():
    assert dict(CODE_BY_OPERATION) == PROTOCOL_OPERATIONS
    assert NON_REPLICATED_CODES == NON_REPLICATED | BORZOIS_OWN
    assert {int(code) for code, op in OPERATION_BY_CODE.items() if op is Operation.REGISTER} == {40, 45}
    assert {int(code) for code in LEGACY_LOGIN_CODES} == {38, 44}
    assert not LEGACY_LOGIN_CODES & set(OPERATION_BY_CODE)


def test_result_section_belongs_to_metadata_offsets_and_logins_only():
    framed = {operation for operation in range(256) if is_result_framed(operation)}
    assert framed == {1, *range(64, 69), *range(128, 138), *range(139, 150), 161, 162}
