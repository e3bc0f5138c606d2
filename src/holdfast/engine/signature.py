"""A function's arguments and result as JSON, checked against its annotations."""

import inspect
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from inspect import Parameter
from itertools import chain, combinations, islice
from types import SimpleNamespace
from typing import Any, NotRequired, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError
from typing_extensions import TypedDict

from holdfast.core.envelope import ensure_open
from holdfast.core.errors import ConfigError, PayloadInvalid, PayloadTooLarge
from holdfast.core.providers.provider import checked_key
from holdfast.core.strict_json import DEFAULT_LIMIT, encode

_PLAIN = (int, str, float, bool, type(None))
MOST_FORMS = 1_000
"""Most forms of one call to compare: all of them up to nine parameters at their default."""

_BY_NAME = {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}


class Signature:
    """The arguments and the result of one function as JSON. *what* names it in errors: "job 'review'"."""

    def __init__(self, function: Callable[..., Any], *, what: str, limit: int = DEFAULT_LIMIT) -> None:
        self.what = what
        self._an_argument, self._the_result = f"{what}: an argument", f"{what}: the result"
        self._limit = limit
        self._signature = inspect.signature(function)
        self._parameters = self._signature.parameters
        self._named_only = all(parameter.kind in _BY_NAME for parameter in self._parameters.values())
        self._names = tuple(self._parameters)
        self._hints = hints = _hints(function)
        self._args = _Codec(
            _arguments_type(self._parameters, hints), [hints.get(name) for name in self._names]
        )
        self._result = _Codec(hints.get("return", Any), [hints.get("return")])

    def dump_args(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Write the arguments of a call. Raises `PayloadInvalid` if the function does not accept them."""
        checked = self._checked(self._args, self._bound(args, kwargs), "argument")
        try:
            return encode(checked, what=self._an_argument, limit=self._limit)
        except PayloadInvalid:
            for name, value in checked.items():
                encode(value, what=f"{self.what}: argument {name!r}", limit=self._limit)
            raise

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if self._named_only and not kwargs and len(args) == len(self._names):
            return dict(zip(self._names, args, strict=True))
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise PayloadInvalid(f"{self.what}: {error}") from None
        # Stored with the call: a job runs with the defaults of the code that submitted it.
        bound.apply_defaults()
        return bound.arguments

    def load_args(self, text: str) -> tuple[list[Any], dict[str, Any]]:
        """Read arguments back, as positional and named ones."""
        values: dict[str, Any] = self._args.read(text)
        if self._named_only:
            return [], values
        return _spread(self._parameters, values)

    def args_by_name(self, text: str) -> dict[str, Any]:
        """Read arguments back by the names of the parameters. Raises `PayloadEncrypted`, `PayloadInvalid`."""
        ensure_open(text, self._an_argument)
        try:
            return dict(self._args.read(text))
        except ValidationError as error:
            raise self._refused(error, "argument") from None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return self._names

    def checked_args(self, text: str) -> str:
        """Return stored arguments as the function accepts them now. Raises `PayloadInvalid` if it does not."""
        ensure_open(text, self._an_argument)
        try:
            args, kwargs = self.load_args(text)
        except ValidationError as error:
            raise self._refused(error, "argument") from None
        return self.dump_args(tuple(args), kwargs)

    def without_defaults(self, text: str) -> str:
        """Return written arguments without those at their default: the form of the call before they were parameters."""
        if not self._defaults:
            return text
        values = json.loads(text)
        at_default = self._at_default(values)
        return _without(values, at_default) if at_default else text

    def earlier_forms(self, text: str) -> Iterator[str]:
        """Yield written arguments as they may have been before some parameters existed that are at their default now."""
        values = json.loads(text)
        at_default = self._at_default(values)
        sizes = range(1, len(at_default) + 1)
        gone = chain.from_iterable(combinations(at_default, size) for size in sizes)
        return (_without(values, names) for names in islice(gone, MOST_FORMS))

    def _at_default(self, values: Mapping[str, Any]) -> list[str]:
        return [name for name, default in self._defaults.items() if _canonical(values.get(name)) == default]

    @cached_property
    def _defaults(self) -> dict[str, str]:
        """The defaults as they are written, by the names of the parameters that have one."""
        written: dict[str, str] = {}
        for name, parameter in self._parameters.items():
            match parameter.kind:
                case Parameter.VAR_POSITIONAL:
                    written[name] = "[]"
                case Parameter.VAR_KEYWORD:
                    written[name] = "{}"
                case _ if parameter.default is not Parameter.empty:
                    with suppress(
                        PayloadInvalid, PayloadTooLarge
                    ):  # no call could be made with such a default
                        kind = self._hints.get(name, Any)
                        plain = self._checked(_Codec(kind, [kind]), parameter.default, "default")
                        written[name] = _canonical(json.loads(encode(plain, what=self._an_argument)))
        return written

    def key_of(self, key: Callable[[Any], str], text: str) -> str:
        """Return the provider key of a call: what *key* makes of the arguments, given as attributes by name."""
        args, kwargs = self.load_args(text)
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            return checked_key(key(SimpleNamespace(**bound.arguments)))
        except Exception as error:
            raise ConfigError(
                f"{self.what}: its provider's key= finds none in the arguments: {type(error).__name__}: {error}"
            ) from error

    def dump_result(self, value: Any) -> str:
        """Write what the function returned. Raises `PayloadInvalid` if it does not fit the annotation."""
        checked = self._checked(self._result, value, "result")
        return encode(checked, what=self._the_result, limit=self._limit)

    def load_result(self, text: str) -> Any:
        """Read a result back, with the type that the function declares. Raises `PayloadEncrypted`."""
        ensure_open(text, self._the_result)
        return self._result.read(text)

    def _checked(self, codec: "_Codec", value: Any, what: str) -> Any:
        try:
            return codec.plain(value)
        except ValidationError as error:
            raise self._refused(error, what) from None
        except (PydanticSerializationError, ValueError) as error:
            raise PayloadInvalid(f"{self.what}: cannot be written as strict JSON: {error}") from None

    def _refused(self, error: ValidationError, what: str) -> PayloadInvalid:
        first = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(str(part) for part in first["loc"])
        return PayloadInvalid(f"{self.what}: {what} {location}: {first['msg']}".replace(" : ", ": "))


class _Codec:
    """Converts values of a type to plain JSON values and back; skips the serializer where all parts are plain."""

    def __init__(self, kind: Any, parts: list[Any]) -> None:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        self.read = adapter.validator.validate_json
        self._check = adapter.validator.validate_python
        self._dump = adapter.serializer.to_python
        self.plain: Callable[[Any], Any] = (
            self._check if all(part in _PLAIN for part in parts) else self._to_plain
        )
        """Validates a value, and converts it to plain JSON values."""

    def _to_plain(self, value: Any) -> Any:
        return self._dump(self._check(value), warnings=False)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{function.__qualname__}: an annotation cannot be resolved ({error}); "
            "import the name at run time, not only for type checking"
        ) from None


def _arguments_type(parameters: Mapping[str, Parameter], hints: dict[str, Any]) -> Any:
    fields: dict[str, Any] = {}
    for name, parameter in parameters.items():
        hint = hints.get(name, Any)
        match parameter.kind:
            case Parameter.VAR_POSITIONAL:
                fields[name] = NotRequired[list[hint]]  # type: ignore[valid-type]  # made at run time
            case Parameter.VAR_KEYWORD:
                fields[name] = NotRequired[dict[str, hint]]  # type: ignore[valid-type]  # made at run time
            case _:
                fields[name] = hint if parameter.default is Parameter.empty else NotRequired[hint]
    return TypedDict("Arguments", fields)  # type: ignore[operator]  # made at run time


def _without(values: Mapping[str, Any], names: Collection[str]) -> str:
    return json.dumps({name: value for name, value in values.items() if name not in names})


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _spread(parameters: Mapping[str, Parameter], values: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if name not in values:
            continue
        match parameter.kind:
            case Parameter.VAR_POSITIONAL:
                positional += values[name]
            case Parameter.VAR_KEYWORD:
                named |= values[name]
            case Parameter.KEYWORD_ONLY:
                named[name] = values[name]
            case _:
                positional.append(values[name])
    return positional, named
