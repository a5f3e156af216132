"""Spares commands the price of turning texts into texts.

Typer converts every value, also the missing ones and those that are texts already, with Pydantic, which takes
a tenth of a second to load: a third of what a short command takes. Here such values pass as they are, and
plain numbers within their limits are made without it. Everything else (a path, a choice, whatever is wrong)
is left to Typer; and with a version of Typer that does it otherwise nothing is changed.
"""

from collections.abc import Callable
from typing import Any, get_args, get_origin

# More than any number here has, and few enough for int() to be cheap.
_DIGITS_MAX = 20


def spare(command: Any) -> Any:
    """The command, its parameters sped up when they are used; for a group, those of all its commands."""
    get_params = command.get_params

    def get_spared_params(context: Any) -> list[Any]:
        # Asked for again with every use; Typer makes some of them, like --help, only then.
        parameters: list[Any] = get_params(context)
        for parameter in parameters:
            annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
            if annotation is not None and "process_value" not in vars(parameter):
                parameter.process_value = _sparing(parameter, annotation, parameter.process_value)
        return parameters

    command.get_params = get_spared_params
    for each in getattr(command, "commands", {}).values():
        spare(each)
    return command


def _sparing(
    parameter: Any, annotation: Any, convert: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
    is_many = getattr(parameter, "multiple", False) or parameter.nargs != 1

    def process_value(context: Any, value: Any) -> Any:
        if value is None:
            if parameter.required:
                return convert(context, value)
            found: Any = () if is_many else None
        elif is_many:
            if not value or get_origin(annotation) is not list or get_args(annotation) != (str,):
                return convert(context, value)
            found = list(value)
        elif annotation is int and isinstance(value, str) and _is_within(value, parameter):
            found = int(value)
        elif _is_right(value, annotation, parameter):
            found = value
        else:
            return convert(context, value)
        return found if parameter.callback is None else parameter.callback(context, parameter, found)

    return process_value


def _is_right(value: Any, annotation: Any, parameter: Any) -> bool:
    """Whether it is a text that should be one, or a default."""
    if annotation is str:
        return isinstance(value, str)
    return value is parameter.default and type(value) is annotation


def _is_within(text: str, parameter: Any) -> bool:
    """Whether it is a plain number that the parameter allows."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
        return False
    least, most = getattr(parameter, "min", None), getattr(parameter, "max", None)
    return (least is None or int(text) >= least) and (most is None or int(text) <= most)
