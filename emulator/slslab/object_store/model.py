"""Read S3's operations from botocore's model: find a request's operation and members, and write its answer."""

import email.utils
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat
from xml.sax.saxutils import escape

from botocore.model import ListShape, OperationModel, Shape, StructureShape

from slslab.aws.requests import service_model
from slslab.object_store.errors import failure, refusal

DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'
NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
# documented: the response syntax of each operation. The model doesn't name the root elements.
ROOTS = {
    "ListBuckets": "ListAllMyBucketsResult",
    "ListObjects": "ListBucketResult",
    "ListObjectsV2": "ListBucketResult",
    "ListObjectVersions": "ListVersionsResult",
    "CreateMultipartUpload": "InitiateMultipartUploadResult",
    "DeleteObjects": "DeleteResult",
    "GetObjectAttributes": "GetObjectAttributesResponse",
    "GetObjectTagging": "Tagging",
    "GetBucketTagging": "Tagging",
    "GetBucketVersioning": "VersioningConfiguration",
    "GetBucketAcl": "AccessControlPolicy",
    "GetObjectAcl": "AccessControlPolicy",
    "GetBucketCors": "CORSConfiguration",
    "GetBucketLogging": "BucketLoggingStatus",
    "GetBucketNotificationConfiguration": "NotificationConfiguration",
    "GetBucketAccelerateConfiguration": "AccelerateConfiguration",
    "GetBucketRequestPayment": "RequestPaymentConfiguration",
}
# Parameters that every request may have: for the signature, and for clients' own use.
ANY_PARAMETER = re.compile(r"[Xx]-.*|AWSAccessKeyId|Signature|Expires|content-type|content-md5")
# Characters that XML 1.0 can't contain, not even as references.
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
# assumed: 10,000 parts of an upload, with four elements of two tags each, stay below this.
MOST_TAGS = 100_000
INTEGER = re.compile(r"-?[0-9]{1,18}")


class Location(NamedTuple):
    """The location of a member in a request or an answer."""

    member: str
    shape: Shape
    location: str
    name: str


class Operation:
    """An operation: its name, and the locations of its input's and output's members.

    `payload` is the member in the body, and `streams` says whether the body is an object's bytes.
    """

    def __init__(self, model: OperationModel) -> None:
        shape = model.input_shape
        self.name = model.name
        self.model = model
        self.inputs = [at for at in _locations(shape) if at.location != "uri"]
        self.parameters = {at.name for at in self.inputs if at.location == "querystring"}
        self.payload_member: str = shape.serialization.get("payload", "") if shape else ""
        self.payload = shape.members[self.payload_member] if shape and self.payload_member else None
        self.streams = self.payload is not None and self.payload.type_name == "blob"
        self.outputs = {at.member: at for at in _locations(model.output_shape)}


Key = tuple[str, str, str]


@cache
def operations() -> tuple[dict[Key, Operation], frozenset[str]]:
    """Return the operations by method, level (service, bucket or object) and sub-resource, and all sub-resources."""
    model = service_model("s3")
    found: dict[Key, Operation] = {}
    for name in model.operation_names:
        operation = model.operation_model(name)
        path, _, query = operation.http["requestUri"].partition("?")
        level = "object" if "{Key+}" in path else "bucket" if "{Bucket}" in path else "service"
        key = (operation.http["method"], level, OWN.get(name, query.partition("&")[0].partition("=")[0]))
        if not operation.deprecated:
            # In the order of names: GetX takes precedence over ListXs, and both over operations of directory buckets.
            found.setdefault(key, Operation(operation))
    return found, frozenset(sub for _, _, sub in found if sub and not sub.startswith(":"))


# Operations that differ from others by more than their sub-resource.
OWN = {
    "CopyObject": ":copy",
    "UploadPart": ":part",
    "UploadPartCopy": ":part copy",
    "CompleteMultipartUpload": ":upload",
    "AbortMultipartUpload": ":upload",
    "ListParts": ":upload",
}


def find(method: str, bucket: str, key: str, parameters: Mapping[str, str], copies: bool) -> Operation:
    """Return the operation of a request; NotImplemented if it is unknown, or has an unknown parameter."""
    known, sub_resources = operations()
    level = "object" if key else "bucket" if bucket else "service"
    subs = [name for name in parameters if name in sub_resources]
    sub = subs[0] if subs else ""
    if level == "object" and not sub and "uploadId" in parameters:
        sub = ":upload"
        if method == "PUT":
            sub = ":part copy" if copies else ":part"
    elif level == "object" and method == "PUT" and not sub and copies:
        sub = ":copy"
    found = known.get((method, level, sub))
    if found is None or len(subs) > 1:
        if not subs and method not in ("GET", "HEAD", "PUT", "POST", "DELETE"):
            raise failure("MethodNotAllowed")
        what = f"{method} of {'a bucket' if level == 'bucket' else 'an object' if key else 'the service'}"
        raise refusal(f"{what}{' with ' * bool(subs)}{' and '.join(subs)}", "docs/services.md lists what S3 does here.")
    for name in parameters:
        if name not in found.parameters and name != sub and not ANY_PARAMETER.fullmatch(name):
            raise refusal(f"the parameter {name[:100]} of {found.name}", "leave it out.")
    return found


def members(operation: Operation, parameters: Mapping[str, str], headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the members of a request except those in the body; InvalidArgument for a value of the wrong type."""
    found: dict[str, Any] = {}
    for member, shape, location, name in operation.inputs:
        if location == "headers":
            value: Any = {
                header.removeprefix(name): text for header, text in headers.items() if header.startswith(name)
            }
            if value:
                found[member] = value
            continue
        text = (parameters if location == "querystring" else headers).get(name)
        if text is not None and (text or location == "querystring" or shape.type_name == "string"):
            found[member] = _parsed(shape, text, name)
    return found


def body_members(operation: Operation, document: bytes) -> dict[str, Any]:
    """Return the members in a document; MalformedXML if it isn't a document of this operation."""
    assert operation.payload is not None
    if document.count(b"<") > MOST_TAGS:
        raise failure("MalformedXML")
    try:
        return {operation.payload_member: _from_xml(operation.payload, _parse(document))}
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise failure("MalformedXML") from error


def document(operation: Operation, output: Mapping[str, Any]) -> bytes:
    """Return the document of an answer; empty if the operation doesn't have one."""
    shape = operation.model.output_shape
    if not isinstance(shape, StructureShape):
        return b""
    payload = shape.serialization.get("payload")
    if operation.name == "GetBucketLocation":
        # documented: API_GetBucketLocation.html: the Region is in the root itself. The model doesn't say so.
        region = text_of(output["LocationConstraint"] or "")
        return f'{DECLARATION}<LocationConstraint xmlns="{NAMESPACE}">{region}</LocationConstraint>'.encode()
    if payload is not None:
        shape, output = shape.members[payload], output.get(payload)  # type: ignore[assignment]
        if output is None or not isinstance(shape, StructureShape):
            return (output or "").encode()  # a policy
    elif all(member in operation.outputs for member in shape.members):
        return b""
    root = ROOTS.get(operation.name) or shape.serialization.get("name") or shape.name.replace("Output", "Result")
    inner = "".join(_to_xml(shape, output, operation.outputs))
    return f'{DECLARATION}<{root} xmlns="{NAMESPACE}">{inner}</{root}>'.encode()


def header_fields(operation: Operation, output: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the headers of an answer."""
    for member, value in output.items():
        at = operation.outputs.get(member)
        if at is None or value is None:
            continue
        if at.location == "headers":
            for name, text in value.items():
                yield at.name + name, text
        elif at.location == "header":
            is_time = isinstance(value, datetime)
            yield at.name, email.utils.format_datetime(value, usegmt=True) if is_time else _xml_text(value)


def parse_date(text: str) -> datetime | None:
    """Return the time in a text in HTTP's format or ISO 8601; None for another text."""
    for parse in (email.utils.parsedate_to_datetime, datetime.fromisoformat):
        try:
            time = parse(text)
        except (ValueError, TypeError, OverflowError):
            continue
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    return None


def text_of(value: str) -> str:
    """Return a text as XML. Characters that XML can't contain become references, which some parsers accept."""
    return NOT_XML.sub(lambda found: f"&#{ord(found[0])};", escape(value).replace("\r", "&#13;"))


def _locations(shape: Shape | None) -> Iterator[Location]:
    if not isinstance(shape, StructureShape):
        return
    for member, of in shape.members.items():
        location = of.serialization.get("location")
        if location is not None:
            name = of.serialization.get("name", member)
            yield Location(member, of, location, name if location in ("querystring", "uri") else name.lower())


def _parsed(shape: Shape, text: str, name: str) -> Any:
    if isinstance(shape, ListShape):
        return [entry.strip() for entry in text.split(",")]
    if name == "expires":
        return text
    try:
        return _value(shape, text)
    except ValueError as error:
        raise failure("InvalidArgument", f"Provided {name} not an integer or within integer range") from error


def _value(shape: Shape, text: str) -> Any:
    """Return a text as its shape's type; ValueError if it should be an integer and isn't."""
    if shape.type_name in ("integer", "long"):
        if not INTEGER.fullmatch(text):
            raise ValueError(text)
        return int(text)
    if shape.type_name == "boolean":
        return text.lower() == "true"
    # A condition with an invalid date is ignored (RFC 9110, 13.1.3).
    return parse_date(text) if shape.type_name == "timestamp" else text


def _parse(document: bytes) -> Element:
    """Return the root of a document. Namespaces are dropped: the parser would copy them for every element."""
    builder, parser = TreeBuilder(), expat.ParserCreate()

    def refuse(*_: object) -> None:
        # It could define entities that multiply.
        raise ValueError("a document type")

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = lambda name, _: builder.start(name.rpartition(":")[2], {})
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.Parse(document, True)
    return builder.close()


def _from_xml(shape: Shape, element: Element) -> Any:
    if isinstance(shape, StructureShape):
        found: dict[str, Any] = {}
        members = _elements(shape)
        for child in element:
            entry = members.get(child.tag)
            if entry is None:
                continue
            member, of = entry
            if isinstance(of, ListShape) and of.serialization.get("flattened"):
                found.setdefault(member, []).append(_from_xml(of.member, child))
            else:
                found[member] = _from_xml(of, child)
        if not set(shape.required_members) <= found.keys():
            raise failure("MalformedXML")
        return found
    if isinstance(shape, ListShape):
        return [_from_xml(shape.member, child) for child in element]
    text = element.text or ""
    return _value(shape, text if shape.type_name == "string" else text.strip())


@cache
def _elements(shape: StructureShape) -> Mapping[str, tuple[str, Shape]]:
    return {of.serialization.get("name", member): (member, of) for member, of in shape.members.items()}


def _to_xml(shape: StructureShape, value: Mapping[str, Any], elsewhere: Mapping[str, Location]) -> Iterator[str]:
    attribute = {member for member, of in shape.members.items() if of.serialization.get("xmlAttribute")}
    for member, of in shape.members.items():
        given = value.get(member)
        if given is None or member in elsewhere or member in attribute:
            continue
        name = of.serialization.get("name", member)
        if isinstance(of, ListShape):
            inner = name if of.serialization.get("flattened") else of.member.serialization.get("name", "member")
            entries = "".join(_element(of.member, inner, entry) for entry in given)
            yield entries if of.serialization.get("flattened") else f"<{name}>{entries}</{name}>"
        else:
            yield _element(of, name, given)


def _element(shape: Shape, name: str, value: Any) -> str:
    if isinstance(shape, StructureShape):
        kind = value.get("Type") if name == "Grantee" else None
        attribute = f' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="{kind}"' if kind else ""
        return f"<{name}{attribute}>{''.join(_to_xml(shape, value, {}))}</{name}>"
    return f"<{name}>{text_of(_xml_text(value))}</{name}>"


def _xml_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S.000Z}"
    return str(value)
