"""Records: frozen dataclasses that are written as JSON and read back, by one converter (cattrs) that reads their annotations.

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Engine(records.Record):
        name: str
        coverage: float = records.field(digits=4)        # written rounded, also inside of mappings and sequences
        other: Outcome | None = records.field(key="other_batch_mode", default=None)
        document: typing.ClassVar = "engine"             # written first, as "kind": what document this is; not read back
        written_too: typing.ClassVar = ("compute_ops",)  # properties that readers of the file want; not read back
        written_digits: typing.ClassVar = {"share": 4}   # more of them, written rounded
    written_first: typing.ClassVar = ("name", "share")  # keys that come first, in this order; the others follow as they do without

If a file lacks a field, the field gets its default; a key that no field has is ignored. So files of another version stay readable. A
class with another form has its own `to_dict` and `from_dict`; they may call `super().to_dict()` and `super().from_dict(data)`. JSON has
no infinity and no NaN: they are written as "inf", "-inf" and "nan". Bytes are written in base64.
"""

import base64
import collections.abc
import dataclasses
import functools
import math
import pathlib
import types
import typing

if typing.TYPE_CHECKING:
    import cattrs
    from typing_extensions import Self

_KEY, _DIGITS, _FLAG = "tftrt_key", "tftrt_digits", "tftrt_flag"
# Keys of a field's metadata, as `field` sets them.
HELP, REPEATED = "tftrt_help", "tftrt_repeated"


class Record:
    """Base of the dataclasses that are written and read. Class variables say what is written besides the fields."""

    # What document this is, written first, as "kind"; "" for a part of one.
    document: typing.ClassVar[str] = ""
    # Properties that are written after the fields.
    written_too: typing.ClassVar[tuple[str, ...]] = ()
    # The same for numbers: {property: digits to which it is rounded}.
    written_digits: typing.ClassVar[collections.abc.Mapping[str, int]] = types.MappingProxyType({})
    # Keys that are written before all others, in this order.
    written_first: typing.ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, typing.Any]:
        """Plain values that JSON takes: dicts, lists, strings, numbers, booleans, None."""
        kind: typing.Any = type(self)
        return _by_fields_writer(kind)(self)

    @classmethod
    def from_dict(cls, data: collections.abc.Mapping[str, typing.Any]) -> "Self":
        """From what `to_dict` wrote, in this version or one before. Raises: KeyError, TypeError or ValueError for anything else."""
        kind: typing.Any = cls
        result: Self = _by_fields_reader(kind)(data)
        return result


def field(
    *,
    key: str | None = None,
    digits: int | None = None,
    help: str = "",
    flag: str = "",
    repeated: bool = False,
    **options: typing.Any,
) -> typing.Any:
    """A dataclass field whose written form differs, or that is a flag too.

    Args:
      key: its name in the file. digits: to which it is rounded there.
      help: what `--help` says of its flag; "" for no flag. flag: its flag's name, where that is another one. repeated: whether the flag
        of a list is given once for each value.
      options: of dataclasses.field.
    """
    return dataclasses.field(
        metadata={_KEY: key, _DIGITS: digits, HELP: help, _FLAG: flag, REPEATED: repeated}, **options
    )


def flag(field: dataclasses.Field[typing.Any]) -> str:
    """The name of a field's flag."""
    return field.metadata.get(_FLAG) or field.name


def plain(value: typing.Any) -> typing.Any:
    """`value` (records, mappings, sequences, numbers, …) as plain values that JSON takes."""
    return _copied(value) if _is_json(value) else _converter().unstructure(value)


def structured(value: typing.Any, kind: typing.Any) -> typing.Any:
    """The reverse of `plain`. Args: kind: the type to read: a record, or what JSON takes. Raises: as Record.from_dict."""
    read = _json_reader(kind)
    return read(value) if read else _converter().structure(value, kind)


def _is_json(value: object) -> bool:
    """Whether a value consists of lists, dicts, texts, numbers and None. Such values need no cattrs, which another environment may lack."""
    if type(value) is list:
        return all(map(_is_json, value))
    if type(value) is dict:
        return all(type(key) is str and _is_json(item) for key, item in value.items())
    return value is None or type(value) in _PLAIN


def _copied(value: typing.Any) -> typing.Any:
    if isinstance(value, list):
        return [_copied(item) for item in value]
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return _finite(value) if isinstance(value, float) else value


@functools.cache
def _json_reader(kind: typing.Any) -> collections.abc.Callable[[typing.Any], typing.Any] | None:
    """What reads a kind that is made of sequences, mappings of texts, texts, numbers and None alone; None for other kinds."""
    if kind in (typing.Any, object):
        return lambda value: value
    if kind in (None, type(None)):
        return _nothing
    if kind in _READERS:
        return lambda value: _READERS[kind](value, kind)
    if _union_of_plain_kinds(kind):
        return lambda value: _either(value, kind)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    read_item = _json_reader(inner[-1]) if inner else None
    if read_item and origin in (list, collections.abc.Sequence):
        return functools.partial(_sequence, list if origin is list else tuple, read_item)
    if read_item and origin in (dict, collections.abc.Mapping) and inner[0] is str:
        return functools.partial(_texts_to, read_item)
    return None


def _nothing(value: typing.Any) -> None:
    if value is not None:
        raise TypeError(f"{value!r} is not null")


def _sequence(
    kind: type, read: collections.abc.Callable[[typing.Any], typing.Any], value: typing.Any
) -> collections.abc.Sequence[typing.Any]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{value!r} is no list")
    sequence: collections.abc.Sequence[typing.Any] = kind(map(read, value))
    return sequence


def _texts_to(read: collections.abc.Callable[[typing.Any], typing.Any], value: typing.Any) -> dict[str, typing.Any]:
    if not isinstance(value, collections.abc.Mapping):
        raise TypeError(f"{value!r} is no object of names and values")
    return {_text(key, str): read(one) for key, one in value.items()}


@functools.cache
def _converter() -> "cattrs.Converter":
    # cattrs is loaded only when a record is written or read, so every command's help stays fast.
    import cattrs

    converter = cattrs.Converter(
        detailed_validation=False,
        unstruct_collection_overrides={tuple: list, collections.abc.Sequence: list, collections.abc.Set: sorted},
    )
    for kind, read in _READERS.items():
        converter.register_structure_hook(kind, read)
    converter.register_structure_hook_func(lambda kind: kind is object, lambda value, _: value)
    converter.register_structure_hook(bytes, lambda value, _: base64.b64decode(_text(value, str), validate=True))
    converter.register_unstructure_hook(bytes, lambda value: base64.b64encode(value).decode())
    converter.register_structure_hook(pathlib.Path, lambda value, _: pathlib.Path(value))
    converter.register_unstructure_hook(pathlib.PurePath, str)
    converter.register_unstructure_hook(float, _finite)
    converter.register_unstructure_hook_func(lambda kind: kind is object, lambda value: converter.unstructure(value))
    converter.register_unstructure_hook_func(
        lambda kind: kind is tuple or kind is list, lambda values: [converter.unstructure(item) for item in values]
    )
    converter.register_structure_hook_func(_is_literal, _one_of)
    converter.register_structure_hook_func(_union_of_plain_kinds, _either)
    converter.register_unstructure_hook_factory(_is_mapping, lambda kind: functools.partial(_mapping, converter))
    converter.register_unstructure_hook_factory(_is_record, _writer)
    converter.register_structure_hook_factory(_is_record, _reader)
    return converter


def _is_literal(kind: typing.Any) -> bool:
    """A Literal, or a union of some."""
    origin: object = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return all(typing.get_origin(one) is typing.Literal for one in typing.get_args(kind))
    return origin is typing.Literal


def _values(kind: typing.Any) -> tuple[typing.Any, ...]:
    """The values of what `_is_literal` knows."""
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is typing.Literal:
        return inner
    return tuple(value for one in inner for value in typing.get_args(one))


def _is_record(kind: typing.Any) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _overrides(kind: type) -> dict[str, typing.Any]:
    from cattrs.gen import override

    return {one.name: override(rename=one.metadata[_KEY]) for one in dataclasses.fields(kind) if one.metadata.get(_KEY)}


def _writer(kind: type) -> collections.abc.Callable[[typing.Any], dict[str, typing.Any]]:
    own = getattr(kind, "to_dict", Record.to_dict)
    return _by_fields_writer(kind) if own is Record.to_dict else own


@functools.cache
def _by_fields_writer(kind: type) -> collections.abc.Callable[[typing.Any], dict[str, typing.Any]]:
    from cattrs.gen import make_dict_unstructure_fn

    converter = _converter()
    fields: collections.abc.Callable[[typing.Any], dict[str, typing.Any]] = make_dict_unstructure_fn(
        kind, converter, **_overrides(kind)
    )
    document, also, first = (
        getattr(kind, "document", ""),
        getattr(kind, "written_too", ()),
        getattr(kind, "written_first", ()),
    )
    rounded = {
        declared.metadata[_KEY] or declared.name: declared.metadata[_DIGITS]
        for declared in dataclasses.fields(kind)
        if declared.metadata.get(_DIGITS) is not None
    }
    rounded_too = dict(getattr(kind, "written_digits", ()))

    def write(record: typing.Any) -> dict[str, typing.Any]:
        written: dict[str, typing.Any] = {"kind": document} if document else {}
        written |= fields(record)
        written |= {name: converter.unstructure(getattr(record, name)) for name in (*also, *rounded_too)}
        written |= {name: _rounded(written[name], digits) for name, digits in (rounded | rounded_too).items()}
        return {name: written[name] for name in first} | written

    return write


def _reader(kind: type) -> collections.abc.Callable[[typing.Any, typing.Any], typing.Any]:
    own = getattr(kind, "from_dict", Record.from_dict)
    if getattr(own, "__func__", own) is Record.from_dict.__func__:  # type: ignore[attr-defined]
        own = _by_fields_reader(kind)
    return lambda data, _: own(data)


@functools.cache
def _by_fields_reader(kind: type) -> collections.abc.Callable[[typing.Any], typing.Any]:
    from cattrs.gen import make_dict_structure_fn

    read: collections.abc.Callable[[typing.Any, typing.Any], typing.Any] = make_dict_structure_fn(
        kind, _converter(), **_overrides(kind)
    )

    def checked(data: typing.Any) -> typing.Any:
        if not isinstance(data, collections.abc.Mapping):
            raise TypeError(f"{kind.__name__}: {data!r} is no object of names and values")
        try:
            return read(data, kind)
        except (TypeError, ValueError) as error:
            if type(error) not in (TypeError, ValueError):
                raise
            # A message without its place is of no use in a long file.
            raise type(error)(_place(kind, data) + str(error)) from error

    return checked


def _place(kind: type, data: collections.abc.Mapping[str, typing.Any]) -> str:
    """ "name: " of the field that cannot be read, "" if it is not a single field."""
    hints = typing.get_type_hints(kind)
    for declared in dataclasses.fields(kind):
        key = declared.metadata.get(_KEY) or declared.name
        try:
            if key in data:
                _converter().structure(data[key], hints[declared.name])
        except (TypeError, ValueError):
            return f"{key}: "
        except Exception:
            return ""
    return ""


def _is_mapping(kind: typing.Any) -> bool:
    origin = typing.get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, collections.abc.Mapping)


def _mapping(
    converter: "cattrs.Converter", mapping: collections.abc.Mapping[typing.Any, typing.Any]
) -> dict[str, typing.Any]:
    """JSON's keys are strings."""
    return {str(converter.unstructure(key)): converter.unstructure(value) for key, value in mapping.items()}


def _rounded(value: typing.Any, digits: int) -> typing.Any:
    if isinstance(value, dict):
        return {key: _rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item, digits) for item in value]
    return round(value, digits) if isinstance(value, float) else value


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _boolean(value: typing.Any, _: typing.Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _integer(value: typing.Any, _: typing.Any) -> int:
    try:
        # A large whole number loses its value as a float: 2**63 - 513 would become 2**63.
        if (
            isinstance(value, (int, str))
            and not isinstance(value, bool)
            or isinstance(value, float)
            and value.is_integer()
        ):
            return int(value)
    except ValueError:
        pass
    raise TypeError(f"{value!r} is no whole number")


def _number(value: typing.Any, _: typing.Any) -> float:
    try:
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            return float(value)
    except ValueError:
        pass
    raise TypeError(f"{value!r} is no number")


def _text(value: typing.Any, _: typing.Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _one_of(value: typing.Any, kind: typing.Any) -> typing.Any:
    known = _values(kind)
    if value not in known:
        raise ValueError(f"{value!r} is none of {', '.join(map(str, known))}")
    return value


_READERS: dict[type, collections.abc.Callable[[typing.Any, typing.Any], typing.Any]] = {
    bool: _boolean,
    int: _integer,
    float: _number,
    str: _text,
}
_PLAIN = tuple(_READERS)


def _union_of_plain_kinds(kind: typing.Any) -> bool:
    """`int | str`, also with None, and `int | None`: the value's JSON type decides."""
    return typing.get_origin(kind) in (typing.Union, types.UnionType) and set(typing.get_args(kind)) <= {
        *_PLAIN,
        type(None),
    }


def _either(value: typing.Any, kind: typing.Any) -> typing.Any:
    kinds = typing.get_args(kind)
    if value is None and type(None) in kinds:
        return None
    if type(value) in kinds:
        return value
    if float in kinds and not isinstance(value, bool):
        return _number(value, float)
    raise TypeError(f"{value!r} is none of {', '.join(plain_kind.__name__ for plain_kind in kinds)}")
