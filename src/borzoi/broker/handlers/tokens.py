"""Personal access tokens of the caller."""

from borzoi.broker import events as ev
from borzoi.broker.handlers.context import Context, Handler
from borzoi.broker.users import hash_token, new_token
from borzoi.model.errors import (
    InvalidPersonalAccessTokenName,
    PersonalAccessTokenAlreadyExists,
    PersonalAccessTokensLimitReached,
    ResourceNotFound,
)
from borzoi.model.limits import TOKEN_NAME_BYTES_MAX, TOKEN_NAME_BYTES_MIN, U64_MAX
from borzoi.model.replies import RawToken, TokenInfo
from borzoi.model.requests import CreateToken, DeleteToken, GetTokens


def get_tokens(context: Context, _request: GetTokens) -> tuple[TokenInfo, ...]:
    tokens = context.broker.user_of(context.session).tokens
    return tuple(TokenInfo(name, tokens[name].expires_at_us) for name in sorted(tokens))


def create_token(context: Context, request: CreateToken) -> RawToken:
    broker = context.broker
    user = broker.user_of(context.session)
    if not TOKEN_NAME_BYTES_MIN <= len(request.name.encode()) <= TOKEN_NAME_BYTES_MAX:
        raise InvalidPersonalAccessTokenName(
            f"between {TOKEN_NAME_BYTES_MIN} and {TOKEN_NAME_BYTES_MAX} bytes are allowed"
        )
    if request.name in user.tokens:
        raise PersonalAccessTokenAlreadyExists(request.name)
    if len(user.tokens) >= broker.settings.tokens_per_user_max:
        raise PersonalAccessTokensLimitReached(f"{user.username} has {len(user.tokens)}")
    raw = new_token()
    never = request.expiry_us in (0, U64_MAX)
    expires_at_us = 0 if never else min(context.now_us + request.expiry_us, U64_MAX)
    broker.record(
        ev.TokenCreated(
            user_id=user.id, name=request.name, token_hash=hash_token(raw), expires_at_us=expires_at_us
        )
    )
    return RawToken(raw)


def delete_token(context: Context, request: DeleteToken) -> None:
    user = context.broker.user_of(context.session)
    if request.name not in user.tokens:
        raise ResourceNotFound(f"token {request.name}")
    context.broker.record(ev.TokenDeleted(user_id=user.id, name=request.name))


HANDLERS: dict[type, Handler] = {
    GetTokens: get_tokens,
    CreateToken: create_token,
    DeleteToken: delete_token,
}
