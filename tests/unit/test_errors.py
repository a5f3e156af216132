import copy
import pickle

import pytest

from borzoi.model import errors
from borzoi.model.errors import (
    ERRORS,
    BorzoiError,
    ConnectionFailure,
    Error,
    InvalidCommand,
    InvalidFormat,
    LocalProtocolError,
    NotFound,
    RemoteProtocolError,
    StorageFailure,
    StreamIdNotFound,
    TransientNotAccepted,
    error_for,
)

# The protocol's complete list of codes and names; from 20000 on they are Borzoi's own.
PROTOCOL = """
1 Error, 2 InvalidConfiguration, 3 InvalidCommand, 4 InvalidFormat, 5 FeatureUnavailable
6 InvalidIdentifier, 7 InvalidVersion, 8 Disconnected, 9 CannotEstablishConnection
10 CannotCreateBaseDirectory, 11 CannotCreateRuntimeDirectory, 12 CannotRemoveRuntimeDirectory
13 CannotCreateStateDirectory, 14 StateFileNotFound, 15 StateFileCorrupted, 16 InvalidStateEntryChecksum
19 CannotOpenDatabase, 20 ResourceNotFound, 21 CannotCloseWebSocketConnection
30 StaleClient, 31 TcpError, 32 QuicError, 33 InvalidServerAddress, 34 InvalidClientAddress
35 InvalidIpAddress, 36 HttpError, 37 InvalidApiUrl, 40 Unauthenticated, 41 Unauthorized
42 InvalidCredentials, 43 InvalidUsername, 44 InvalidPassword, 45 InvalidUserStatus
46 UserAlreadyExists, 47 UserInactive, 48 CannotDeleteUser, 49 CannotChangePermissions
50 InvalidPersonalAccessTokenName, 51 PersonalAccessTokenAlreadyExists
52 PersonalAccessTokensLimitReached, 53 InvalidPersonalAccessToken, 54 PersonalAccessTokenExpired
55 UsersLimitReached, 56 InvalidPersonalAccessTokenExpiry, 57 TransientNotCommitted
58 TransientNotAccepted, 59 RequestAlreadyApplied
61 NotConnected, 63 ClientShutdown, 64 InvalidTlsDomain, 65 InvalidTlsCertificatePath
66 InvalidTlsCertificate, 67 FailedToAddCertificate, 70 InvalidEncryptionKey, 71 CannotEncryptData
72 CannotDecryptData, 73 InvalidJwtAlgorithm, 74 InvalidJwtSecret, 75 JwtMissing, 76 CannotGenerateJwt
77 AccessTokenMissing, 78 InvalidAccessToken, 79 CannotFetchJwks, 80 InvalidSizeBytes, 81 InvalidUtf8
82 InvalidNumberEncoding, 83 InvalidBooleanValue, 84 InvalidNumberValue, 100 ClientNotFound
101 InvalidClientId
206 ConnectionClosed, 209 CannotParseHeaderKind, 300 HttpResponseError, 301 InvalidHttpRequest
302 InvalidJsonResponse, 303 InvalidBytesResponse, 304 EmptyResponse, 305 CannotCreateEndpoint
306 CannotParseUrl, 400 WebSocketError, 401 WebSocketConnectionError, 402 WebSocketCloseError
403 WebSocketReceiveError, 404 WebSocketSendError
1000 CannotCreateStreamsDirectory, 1001 CannotCreateStreamDirectory, 1002 CannotCreateStreamInfo
1003 CannotUpdateStreamInfo, 1004 CannotOpenStreamInfo, 1005 CannotReadStreamInfo
1006 CannotCreateStream, 1007 CannotDeleteStream, 1008 CannotDeleteStreamDirectory
1009 StreamIdNotFound, 1010 StreamNameNotFound, 1011 StreamDirectoryNotFound
1012 StreamNameAlreadyExists, 1013 InvalidStreamName, 1014 InvalidStreamId, 1015 CannotReadStreams
1019 InvalidTopicSize, 1020 TooManyStreams
2000 CannotCreateTopicsDirectory, 2001 CannotCreateTopicDirectory, 2002 CannotCreateTopicInfo
2003 CannotUpdateTopicInfo, 2004 CannotOpenTopicInfo, 2005 CannotReadTopicInfo, 2006 CannotCreateTopic
2007 CannotDeleteTopic, 2008 CannotDeleteTopicDirectory, 2009 CannotPollTopic, 2010 TopicIdNotFound
2011 TopicNameNotFound, 2013 TopicNameAlreadyExists, 2014 InvalidTopicName, 2015 TooManyPartitions
2016 InvalidTopicId, 2017 CannotReadTopics, 2018 InvalidReplicationFactor, 2019 InvalidPartitionsCount
2020 TopicDirectoryNotFound, 2021 TooManyTopics
3000 CannotCreatePartition, 3001 CannotCreatePartitionsDirectory, 3002 CannotCreatePartitionDirectory
3003 CannotOpenPartitionLogFile, 3004 CannotReadPartitions, 3005 CannotDeletePartition
3006 CannotDeletePartitionDirectory, 3007 PartitionNotFound, 3008 NoPartitions, 3009 TopicFull
3010 CannotDeleteConsumerOffsetsDirectory, 3011 CannotDeleteConsumerOffsetFile
3012 CannotCreateConsumerOffsetsDirectory, 3013 PartitionIdSpaceExhausted
3020 CannotReadConsumerOffsets, 3021 ConsumerOffsetNotFound, 3022 NotResolvedConsumer
3023 CannotOpenConsumerOffsetsFile, 3024 TooManyConsumerOffsets
4000 SegmentNotFound, 4001 SegmentClosed, 4002 InvalidSegmentSize, 4003 CannotCreateSegmentLogFile
4004 CannotCreateSegmentIndexFile, 4005 CannotCreateSegmentTimeIndexFile
4006 CannotSaveMessagesToSegment, 4007 CannotSaveIndexToSegment, 4008 CannotSaveTimeIndexToSegment
4009 InvalidMessagesCount, 4010 CannotAppendMessage, 4011 CannotReadMessage, 4012 CannotReadMessageId
4013 CannotReadMessageState, 4014 CannotReadMessageTimestamp, 4015 CannotReadHeadersLength
4016 CannotReadHeadersPayload, 4017 TooBigUserHeaders, 4018 InvalidHeaderKey, 4019 InvalidHeaderValue
4020 CannotReadMessageLength, 4021 CannotReadMessagePayload, 4022 TooBigMessagePayload
4023 TooManyMessages, 4024 EmptyMessagePayload, 4025 InvalidMessagePayloadLength
4026 CannotReadMessageChecksum, 4027 InvalidMessageChecksum, 4028 InvalidKeyValueLength
4029 CommandLengthError, 4030 InvalidSegmentsCount, 4031 NonZeroOffset, 4032 NonZeroTimestamp
4033 MissingIndex, 4034 InvalidIndexesByteSize, 4035 InvalidIndexesCount, 4036 InvalidMessagesSize
4037 TooSmallMessage, 4038 InvalidMessageTimestampDelta, 4039 InvalidBatchChecksum
4040 InvalidHeaderKind, 4041 UnsupportedOptionKey, 4042 InvalidOptionValue, 4043 OptionsBlockTooLarge
4050 CannotSendMessagesDueToClientDisconnection, 4051 BackgroundSendError, 4052 BackgroundSendTimeout
4053 BackgroundSendBufferFull, 4054 BackgroundWorkerDisconnected, 4055 BackgroundSendBufferOverflow
4056 ProducerSendFailed, 4057 ProducerClosed, 4100 InvalidOffset, 4101 InvalidReservedField
4102 SegmentSizeMismatchAtOpen
5000 ConsumerGroupIdNotFound, 5002 InvalidConsumerGroupId, 5003 ConsumerGroupNameNotFound
5004 ConsumerGroupNameAlreadyExists, 5005 InvalidConsumerGroupName, 5006 ConsumerGroupMemberNotFound
5007 CannotCreateConsumerGroupInfo, 5008 CannotDeleteConsumerGroupInfo
5009 ConsumerGroupPartitionNotOwned
6000 MissingBaseOffsetRetainedMessageBatch, 6001 MissingLastOffsetDeltaRetainedMessageBatch
6002 MissingMaxTimestampRetainedMessageBatch, 6003 MissingLengthRetainedMessageBatch
6004 MissingPayloadRetainedMessageBatch, 7000 CannotReadBatchBaseOffset, 7001 CannotReadBatchLength
7002 CannotReadLastOffsetDelta, 7003 CannotReadMaxTimestamp, 7004 CannotReadBatchPayload
8000 InvalidConnectionString, 9000 SnapshotFileCompletionFailed, 10000 CannotSerializeResource
10001 CannotDeserializeResource, 10002 CannotReadFile, 10003 CannotReadFileMetadata
10004 CannotSeekFile, 10005 CannotAppendToFile, 10006 CannotWriteToFile, 10007 CannotOverwriteFile
10008 CannotDeleteFile, 10009 CannotSyncFile, 10010 CannotReadIndexOffset, 10011 CannotReadIndexPosition
10012 CannotReadIndexTimestamp, 10013 TimestampOutOfRange, 11000 ShardNotFound
11001 ShardCommunicationError, 12000 CannotBindToSocket, 12001 TaskTimeout, 13000 IoError
14000 AlreadyAuthenticated, 14001 InvalidSession, 14003 IncompatibleProtocolVersion
20000 EpochMismatch, 20001 StagedOutOfOrder, 20002 StagingFull, 20003 TooManyProducers
"""
CODES = [
    (int(code), name)
    for code, name in (entry.split() for entry in PROTOCOL.replace("\n", ",").split(",") if entry)
]

# Causes that may pass: connection lost, server busy, disk trouble, a buffer that drains.
RETRYABLE = {
    *(8, 9, 30, 31, 32, 36, 57, 58, 61, 79, 206, 304, 400, 401, 403, 404),
    *(1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1015),
    *(2000, 2001, 2002, 2003, 2004, 2005, 2006, 2007, 2008, 2009, 2017),
    *(3000, 3001, 3002, 3003, 3004, 3005, 3006, 3010, 3011, 3012, 3020, 3023),
    *(4001, 4003, 4004, 4005, 4006, 4007, 4008, 4010, 4011, 4050, 4052, 4053),
    *(5007, 5008, 9000, 10002, 10003, 10004, 10005, 10006, 10007, 10008, 10009),
    *(11001, 12001, 13000, 20002),
}

# Codes that a person at a keyboard can cause or can do something about.
HINTED = {
    *(
        2,
        3,
        4,
        5,
        6,
        8,
        9,
        20,
        30,
        33,
        40,
        41,
        42,
        43,
        44,
        45,
        46,
        47,
        48,
        49,
        50,
        51,
        52,
        53,
        54,
        55,
        56,
        57,
        58,
    ),
    *(
        59,
        61,
        64,
        65,
        66,
        70,
        72,
        77,
        78,
        100,
        1009,
        1012,
        1013,
        1019,
        1020,
        2010,
        2013,
        2014,
        2015,
        2018,
        2019,
    ),
    *(
        2021,
        3007,
        3008,
        3009,
        3021,
        3024,
        4002,
        4006,
        4009,
        4010,
        4017,
        4018,
        4019,
        4022,
        4023,
        4025,
        4028,
        4041,
    ),
    *(4042, 4052, 4053, 4100, 5000, 5003, 5004, 5005, 5006, 5009, 8000, 12000, 12001, 13000, 14001, 14003),
    *(20000, 20001, 20002, 20003),
}


def test_the_table_holds_every_code_of_the_protocol_exactly_once_under_its_name():
    assert len([code for code, _ in CODES if code < 20000]) == 240
    assert sorted(ERRORS) == [code for code, _ in CODES]
    assert {code: cls.__name__ for code, cls in ERRORS.items()} == dict(CODES)


@pytest.mark.parametrize(("code", "name"), CODES)
def test_a_code_leads_to_the_class_that_can_be_imported_by_name(code, name):
    cls = getattr(errors, name)
    assert error_for(code) is cls
    assert cls.code == code
    assert issubclass(cls, BorzoiError)


@pytest.mark.parametrize("code", [0, -1, 17, 60, 999_999])
def test_an_unknown_code_is_the_generic_error(code):
    assert error_for(code) is Error
    assert Error.code == 1


@pytest.mark.parametrize(
    ("code", "slug"),
    [
        (1, "error"),
        (20, "resource_not_found"),
        (21, "cannot_close_web_socket_connection"),
        (53, "invalid_personal_access_token"),
        (81, "invalid_utf8"),
        (1009, "stream_id_not_found"),
        (5003, "consumer_group_name_not_found"),
        (13000, "io_error"),
    ],
)
def test_the_slug_is_the_name_in_snake_case(code, slug):
    assert error_for(code).slug == slug


def test_slugs_are_unique():
    assert len({cls.slug for cls in ERRORS.values()}) == len(ERRORS)


def test_only_passing_causes_are_retryable():
    assert {code for code, cls in ERRORS.items() if cls.retryable} == RETRYABLE


def test_errors_that_people_meet_have_a_hint():
    assert [code for code in sorted(HINTED) if not error_for(code).hint] == []


@pytest.mark.parametrize("cls", ERRORS.values(), ids=lambda cls: cls.__name__)
def test_texts_are_phrases_and_hints_are_sentences(cls):
    assert cls.text[0].isupper()
    assert not cls.text.endswith(".")
    assert "_" not in cls.text
    if cls.hint:
        assert cls.hint[0].isupper()
        assert cls.hint.endswith(".")
        assert cls.hint != cls.text


def test_a_subclass_without_a_code_is_sent_as_its_parent():
    class SpecialError(StreamIdNotFound):
        pass

    assert SpecialError.hint == StreamIdNotFound.hint
    assert (SpecialError.code, SpecialError.slug) == (1009, "stream_id_not_found")
    assert error_for(1009) is StreamIdNotFound


def test_a_code_cannot_be_given_twice():
    with pytest.raises(TypeError, match="StreamIdNotFound"):

        class AgainError(BorzoiError, code=1009):
            pass

    assert error_for(1009) is StreamIdNotFound


def test_the_text_of_an_error_names_the_case_if_there_is_a_detail():
    assert str(StreamIdNotFound()) == "Stream not found"
    assert str(StreamIdNotFound("orders")) == "Stream not found: orders"
    assert StreamIdNotFound("orders").detail == "orders"
    assert StreamIdNotFound().detail == ""


def test_families_can_be_caught():
    assert issubclass(StreamIdNotFound, NotFound)
    assert {cls.code for cls in ERRORS.values() if issubclass(cls, NotFound)} >= {
        *(20, 100, 1009, 2010, 3007, 3021, 4000, 5000, 5003, 5006),
    }
    for family in (StorageFailure, ConnectionFailure):
        assert all(cls.retryable for cls in ERRORS.values() if issubclass(cls, family))
        assert family not in ERRORS.values()


@pytest.mark.parametrize("clone", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize(
    "error",
    [
        StreamIdNotFound("orders"),
        StreamIdNotFound(detail="orders"),
        TransientNotAccepted(),
        RemoteProtocolError("no such command", InvalidFormat.code),
    ],
)
def test_an_error_survives_pickling_and_copying(error, clone):
    other = clone(error)
    assert type(other) is type(error)
    assert (str(other), other.detail, other.code, other.slug) == (
        str(error),
        error.detail,
        error.code,
        error.slug,
    )


def test_a_broken_protocol_carries_the_code_it_is_answered_with():
    error = RemoteProtocolError("length 0")
    assert (error.code, error.slug) == (InvalidCommand.code, "invalid_command")
    assert str(error) == "The peer broke the protocol: length 0"
    assert not error.retryable
    other = RemoteProtocolError("length 0", 4)
    assert (other.code, other.slug) == (4, "invalid_format")
    assert RemoteProtocolError("length 0", 77_777).slug == "error"
    assert RemoteProtocolError not in ERRORS.values()


def test_a_mistake_of_our_own_is_no_protocol_error_code():
    assert not issubclass(LocalProtocolError, BorzoiError)
    assert str(LocalProtocolError("name too long")) == "name too long"
