"""Typed objects from JSON: a key in lowerCamelCase is the field in snake_case."""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Hashable
from typing import Any, TypeVar

T = TypeVar("T")


@functools.cache
def _fields(cls: Any) -> dict[str, tuple[str, Any]]:
    hints = typing.get_type_hints(cls)
    return {
        re.sub(r"_(\w)", lambda m: m.group(1).upper(), field.name): (field.name, hints[field.name])
        for field in dataclasses.fields(cls)
    }


def build(cls: type[T], data: dict[str, Any]) -> T:
    """A dataclass from an object. Every key is a field; a field without key has its default."""
    fields = _fields(typing.cast(Hashable, cls))
    return cls(**{fields[key][0]: _value(fields[key][1], value) for key, value in data.items()})


def _value(hint: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:  # X | None
        return None if value is None else _value(arguments[0], value)
    if origin is tuple and arguments[-1] is Ellipsis:
        return tuple(_value(arguments[0], item) for item in value)
    if origin is tuple:
        return tuple(_value(a, item) for a, item in zip(arguments, value, strict=True))
    if origin is dict:
        return {key: _value(arguments[1], item) for key, item in value.items()}
    if hasattr(hint, "_from_text"):
        return hint._from_text(value)
    if dataclasses.is_dataclass(hint):
        return build(typing.cast("type[Any]", hint), value)
    return hint(value)
