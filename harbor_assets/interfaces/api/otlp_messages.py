"""OTLP's export request in protobuf, as the JSON form of the same: what standard exporters send, and what we read.

Only the fields that are read are declared, without generated code. Source: open-telemetry/opentelemetry-proto
`collector/trace/v1/trace_service.proto`, `trace/v1/trace.proto`, `common/v1/common.proto`. The numbers are the wire
format: they never change.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from harbor_assets.domain.errors import Malformed

_TYPES = {
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "fixed64": descriptor_pb2.FieldDescriptorProto.TYPE_FIXED64,
    "double": descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE,
}
_PACKAGE = "harbor_assets.otlp"
# message -> field -> (number, type); `[]` after a type is repeated, a type of its own is a message
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Export": {"resourceSpans": (1, "ResourceSpans[]")},
    "ResourceSpans": {"resource": (1, "Resource"), "scopeSpans": (2, "ScopeSpans[]")},
    "Resource": {"attributes": (1, "KeyValue[]")},
    "ScopeSpans": {"spans": (2, "Span[]")},
    "Span": {
        "traceId": (1, "bytes"),
        "spanId": (2, "bytes"),
        "parentSpanId": (4, "bytes"),
        "name": (5, "string"),
        "startTimeUnixNano": (7, "fixed64"),
        "endTimeUnixNano": (8, "fixed64"),
        "attributes": (9, "KeyValue[]"),
        "status": (15, "Status"),
    },
    "Status": {"message": (2, "string"), "code": (3, "int32")},
    "KeyValue": {"key": (1, "string"), "value": (2, "AnyValue")},
    "AnyValue": {
        "stringValue": (1, "string"),
        "boolValue": (2, "bool"),
        "intValue": (3, "int64"),
        "doubleValue": (4, "double"),
        "arrayValue": (5, "ArrayValue"),
        "kvlistValue": (6, "KeyValueList"),
        "bytesValue": (7, "bytes"),
    },
    "ArrayValue": {"values": (1, "AnyValue[]")},
    "KeyValueList": {"values": (1, "KeyValue[]")},
}


def _describe() -> descriptor_pb2.FileDescriptorProto:
    # proto2, which tells a value that is empty from one that is not there
    file = descriptor_pb2.FileDescriptorProto(name="harbor_assets/otlp.proto", package=_PACKAGE, syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            added = message.field.add(name=field, number=number)
            added.label = added.LABEL_REPEATED if kind.endswith("[]") else added.LABEL_OPTIONAL
            kind = kind.removesuffix("[]")
            if kind in _TYPES:
                added.type = _TYPES[kind]
            else:
                added.type, added.type_name = added.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    return file


_POOL = descriptor_pool.DescriptorPool()  # of our own: another library may bring the real ones
_POOL.Add(_describe())  # pyright: ignore[reportAttributeAccessIssue] - the stubs lack it
_EXPORT: Any = message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.Export"))


def read_export(data: bytes) -> dict[str, Any]:
    """An export request. Raises `Malformed` for what is none."""
    try:
        return _plain(_EXPORT.FromString(data))
    except (DecodeError, UnicodeDecodeError):
        raise Malformed("The body is no OTLP export request in protobuf; is its Content-Type right?") from None


def _plain(message: Any) -> dict[str, Any]:
    """A message as JSON has it: bytes in hexadecimal digits, as OTLP says of the ids of traces and spans."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is not None:
            found[field.name] = [_plain(each) for each in value] if _repeated(value) else _plain(value)
        else:
            found[field.name] = value.hex() if isinstance(value, bytes) else value
    return found


def _repeated(value: Any) -> bool:
    return not hasattr(value, "ListFields")
