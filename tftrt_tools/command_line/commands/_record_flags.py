"""Flags of the fields of a record: a field with `help` (records.field) is a flag of its name, default and type."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Collection
from typing import Any, TypeVar

from absl import flags

from tftrt_tools.base import records

# Attribute of a flag: the default of the record's field.
_DEFAULT = "tftrt_record_default"

Kind = TypeVar("Kind", bound=records.Record)


def _fields(kind: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(kind)


def names(kind: type[records.Record]) -> tuple[str, ...]:
    """Names of the record's flags."""
    return tuple(records.flag(one) for one in _fields(kind) if one.metadata.get(records.HELP))


def define(values: flags.FlagValues, kind: type[records.Record], only: Collection[str] | None = None) -> None:
    """Define the record's flags on FlagValues `values`; one that is there already stays as it is. Args: only: names of those to define;
    None for all."""
    hints = typing.get_type_hints(kind)
    for field in _fields(kind):
        text, name = field.metadata.get(records.HELP), records.flag(field)
        if text and name not in values and (only is None or name in only):
            _define(values, field, hints[field.name], text)
            setattr(values[name], _DEFAULT, field.default)


def _define(values: flags.FlagValues, field: dataclasses.Field[Any], hint: Any, text: str) -> None:
    name, default, kinds = records.flag(field), field.default, _kinds(hint)
    if tuple in kinds:
        make = flags.DEFINE_multi_string if field.metadata.get(records.REPEATED) else flags.DEFINE_list
        make(name, list(typing.cast("tuple[str, ...]", default)), text, flag_values=values)
    elif bool in kinds:
        flags.DEFINE_boolean(name, default, text, flag_values=values)
    elif int in kinds:
        flags.DEFINE_integer(name, default, text, flag_values=values)
    elif float in kinds:
        flags.DEFINE_float(name, default, text, flag_values=values)
    else:  # words of a closed set too: their record's check is not strict about capitals
        flags.DEFINE_string(name, default, text, flag_values=values)


def _kinds(hint: Any) -> set[Any]:
    """The types of an annotation, without None: {bool} of `bool | None`, {tuple} of `tuple[str, ...]`."""
    parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return {typing.get_origin(one) or one for one in parts}


def read(values: flags.FlagValues, kind: type[Kind]) -> Kind:
    """The record of the flags. A field keeps its default where it has no flag, and where the flag has the default of the record that it
    was defined for, which may be another one."""
    given: dict[str, Any] = {}
    for one in _fields(kind):
        name = records.flag(one)
        if name in values and not _untouched(values[name]):
            value = values[name].value
            given[one.name] = tuple(filter(None, value)) if isinstance(value, list) else value
    return kind(**given)


def _untouched(flag: flags.Flag) -> bool:
    default = getattr(flag, _DEFAULT, None)
    value = tuple(flag.value) if isinstance(flag.value, list) else flag.value
    return value is None or not flag.present and value == default


def given(values: flags.FlagValues) -> list[str]:
    """Names of the flags that the user gave, in the order of `values`."""
    return [name for name in values if values[name].present and values[name].name == name]
