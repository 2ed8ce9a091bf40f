"""The messages of BuildKit's API that a build needs, made without generated code.

Only the fields in use are declared; protobuf keeps what it does not know. Sources: moby/buildkit
`api/services/control/control.proto` and `session/auth/auth.proto`, tonistiigi/fsutil `types/{wire,stat}.proto`. The
numbers are the wire format: they never change.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TYPES = {
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "uint32": descriptor_pb2.FieldDescriptorProto.TYPE_UINT32,
}
_PACKAGE = "harbor_assets.buildkit"
# message -> field -> (number, type); `[]` after a type is repeated, a type of its own is a message, `map` has strings.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "SolveRequest": {
        "Ref": (1, "string"),
        "Exporter": (3, "string"),
        "ExporterAttrs": (4, "map"),
        "Session": (5, "string"),
        "Frontend": (6, "string"),
        "FrontendAttrs": (7, "map"),
        "Cache": (8, "CacheOptions"),
    },
    "CacheOptions": {"Exports": (4, "CacheEntry[]"), "Imports": (5, "CacheEntry[]")},
    "CacheEntry": {"Type": (1, "string"), "Attrs": (2, "map")},
    "SolveResponse": {"ExporterResponse": (1, "map")},
    "StatusRequest": {"Ref": (1, "string")},
    "StatusResponse": {"vertexes": (1, "Vertex[]"), "logs": (3, "VertexLog[]")},
    "Vertex": {
        "digest": (1, "string"),
        "name": (3, "string"),
        "cached": (4, "bool"),
        "started": (5, "Time"),
        "completed": (6, "Time"),
        "error": (7, "string"),
    },
    "VertexLog": {"vertex": (1, "string"), "msg": (4, "bytes")},
    "Time": {"seconds": (1, "int64")},
    "BytesMessage": {"data": (1, "bytes")},
    "Empty": {},
    "Packet": {"type": (1, "uint32"), "stat": (2, "Stat"), "ID": (3, "uint32"), "data": (4, "bytes")},
    "Stat": {
        "path": (1, "string"),
        "mode": (2, "uint32"),
        "uid": (3, "uint32"),
        "gid": (4, "uint32"),
        "size": (5, "int64"),
        "modTime": (6, "int64"),
        "linkname": (7, "string"),
    },
    "CredentialsRequest": {"Host": (1, "string")},
    "CredentialsResponse": {"Username": (1, "string"), "Secret": (2, "string")},
    "HealthCheckResponse": {"status": (1, "uint32")},
}


def _describe() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="harbor_assets/buildkit.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            added = message.field.add(name=field, number=number)
            repeated = kind.endswith("[]") or kind == "map"
            added.label = added.LABEL_REPEATED if repeated else added.LABEL_OPTIONAL
            kind = kind.removesuffix("[]")
            if kind in _TYPES:
                added.type = _TYPES[kind]
                continue
            added.type = added.TYPE_MESSAGE
            added.type_name = f".{_PACKAGE}.{kind}"
            if kind == "map":
                entry = message.nested_type.add(name=f"{field}Entry")
                entry.options.map_entry = True
                for at, part in enumerate(("key", "value"), 1):
                    entry.field.add(name=part, number=at, type=_TYPES["string"], label=added.LABEL_OPTIONAL)
                added.type_name = f".{_PACKAGE}.{name}.{field}Entry"
    return file


_POOL = descriptor_pool.DescriptorPool()  # of our own: another library may bring the real ones
_POOL.Add(_describe())  # pyright: ignore[reportAttributeAccessIssue] - the stubs lack it


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


SolveRequest, SolveResponse = _class("SolveRequest"), _class("SolveResponse")
CacheEntry = _class("CacheEntry")
StatusRequest, StatusResponse = _class("StatusRequest"), _class("StatusResponse")
BytesMessage, Empty = _class("BytesMessage"), _class("Empty")
Packet, Stat = _class("Packet"), _class("Stat")
CredentialsRequest, CredentialsResponse = _class("CredentialsRequest"), _class("CredentialsResponse")
HealthCheckResponse = _class("HealthCheckResponse")

# fsutil's Packet.PacketType
STAT, REQUEST, DATA, FIN, ERROR = range(5)
