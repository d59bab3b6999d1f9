"""Layers: their versions, and the functions that have them."""

import base64
import hashlib
import io
import re
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.emulator.lambda_.client_answers import answer, invalid, missing
from tests.emulator.lambda_.registry import make_functions

from slslab.aws.clients import HTTP, signed_headers
from slslab.aws.errors import ServiceError
from slslab.aws.limits import lambda_limits
from slslab.lambda_.emulator import Emulator
from slslab.lambda_.layers import LayerVersions
from slslab.lambda_.packages import Code
from slslab.testing import packaged

pytestmark = pytest.mark.server

Deploy = Callable[..., str]
ARN = "arn:aws:lambda:us-east-1:000000000000:layer"
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+0000")


def archive(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as package:
        for name, text in files.items():
            package.writestr(f"python/{name}.py", text)
    return buffer.getvalue()


CONTENT = archive(shared="X = 1")
SHA256 = base64.b64encode(hashlib.sha256(CONTENT).digest()).decode()


def version(number: int, name: str = "shared", **more: Any) -> dict[str, Any]:
    """What AWS lists of a version; its date is checked apart."""
    return {"LayerVersionArn": f"{ARN}:{name}:{number}", "Version": number, "Description": "", **more}


def undated(document: dict[str, Any]) -> dict[str, Any]:
    assert DATE.fullmatch(document.pop("CreatedDate"))
    return document


def unlocated(document: dict[str, Any]) -> dict[str, Any]:
    assert document["Content"].pop("Location").startswith("http://127.0.0.1:")
    return undated(document)


@pytest.mark.parametrize(
    "described",
    [
        {},
        {"Description": "what all need", "LicenseInfo": "MIT", "CompatibleRuntimes": ["python3.11", "python3.12"]},
        {"CompatibleRuntimes": [], "CompatibleArchitectures": ["x86_64"]},
        {"CompatibleRuntimes": ["python3.14", "nodejs24.x", "java25", "dotnet10"]},
    ],
)
def test_a_published_version_is_answered_read_and_listed(lambda_client: Any, described: dict[str, Any]) -> None:
    whole = {
        **version(1, **described),
        "LayerArn": f"{ARN}:shared",
        "Content": {"CodeSha256": SHA256, "CodeSize": len(CONTENT)},
    }
    status, published = answer(
        lambda_client.publish_layer_version, LayerName="shared", Content={"ZipFile": CONTENT}, **described
    )
    # A registry of the session counts on: other tests have published versions of this name.
    number = published["Version"]
    whole |= version(number, **described)
    assert (status, unlocated(published)) == (201, whole)
    for call, members in (
        (lambda_client.get_layer_version, {"LayerName": "shared", "VersionNumber": number}),
        (lambda_client.get_layer_version, {"LayerName": f"{ARN}:shared", "VersionNumber": number}),
    ):
        status, found = answer(call, **members)
        assert (status, unlocated(found)) == (200, whole)
    listed = lambda_client.list_layer_versions(LayerName="shared")["LayerVersions"]
    assert [undated(each) for each in listed] == [version(number, **described)]
    (layer,) = lambda_client.list_layers()["Layers"]
    assert (layer["LayerName"], layer["LayerArn"]) == ("shared", f"{ARN}:shared")
    assert undated(layer["LatestMatchingVersion"]) == version(number, **described)


def test_numbers_are_not_used_again_and_lists_begin_with_the_newest(lambda_client: Any) -> None:
    def publish(**more: Any) -> int:
        published = lambda_client.publish_layer_version(LayerName="counted", Content={"ZipFile": CONTENT}, **more)
        return int(published["Version"])

    first = publish(CompatibleRuntimes=["python3.11"])
    assert [publish(), publish(CompatibleArchitectures=["arm64"])] == [first + 1, first + 2]
    listed = lambda_client.get_paginator("list_layer_versions").paginate(
        LayerName="counted", PaginationConfig={"PageSize": 2}
    )
    assert [[each["Version"] for each in page["LayerVersions"]] for page in listed] == [[first + 2, first + 1], [first]]

    def newest(**filters: str) -> list[int]:
        return [layer["LatestMatchingVersion"]["Version"] for layer in lambda_client.list_layers(**filters)["Layers"]]

    assert newest() == [first + 2]
    assert newest(CompatibleRuntime="python3.11") == [first]
    assert newest(CompatibleArchitecture="arm64") == [first + 2]
    assert newest(CompatibleRuntime="python3.12") == []
    for number in (first + 2, first + 2, first, first + 7):
        assert answer(lambda_client.delete_layer_version, LayerName="counted", VersionNumber=number) == (204, {})
    assert newest() == [first + 1]
    assert publish() == first + 3


GONE = missing("The resource you requested does not exist.")
LESS = invalid("Layer Version Cannot be less than 1")


@pytest.mark.parametrize(
    ("operation", "members", "expected"),
    [
        ("get_layer_version", {"LayerName": "none", "VersionNumber": 1}, GONE),
        ("get_layer_version", {"LayerName": "none", "VersionNumber": 0}, LESS),
        ("get_layer_version", {"LayerName": "none", "VersionNumber": -1}, LESS),
        ("delete_layer_version", {"LayerName": "none", "VersionNumber": 1}, (204, {})),
        ("delete_layer_version", {"LayerName": "none", "VersionNumber": -1}, LESS),
        ("list_layer_versions", {"LayerName": "none"}, (200, {"LayerVersions": []})),
        (
            "publish_layer_version",
            {"LayerName": "none", "Content": {"ZipFile": b"no archive"}},
            (
                400,
                (
                    "InvalidParameterValueException",
                    "Could not unzip uploaded file. Please check your file, then try to upload again.",
                ),
            ),
        ),
    ],
)
def test_what_is_not_there_has_aws_errors(
    lambda_client: Any, operation: str, members: dict[str, Any], expected: tuple[int, Any]
) -> None:
    assert answer(getattr(lambda_client, operation), **members) == expected
    assert lambda_client.list_layers()["Layers"] == []


def test_a_functions_layers_are_checked_and_answered(lambda_client: Any, deploy: Deploy, emulator: Emulator) -> None:
    arns = [
        lambda_client.publish_layer_version(LayerName=name, Content={"ZipFile": CONTENT})["LayerVersionArn"]
        for name in ("one", "two", "one")
    ]
    name = deploy("def handler(event, context): pass", Layers=arns[:2])
    layers = [{"Arn": arn, "CodeSize": len(CONTENT)} for arn in arns[:2]]
    assert lambda_client.get_function_configuration(FunctionName=name)["Layers"] == layers

    def refusal(*chosen: str) -> tuple[int, Any]:
        return answer(lambda_client.update_function_configuration, FunctionName=name, Layers=chosen)

    same = "Two different versions of the same layer are not allowed to be referenced in the same function. "
    assert refusal(arns[0], arns[2]) == invalid(same + f"{arns[0]} and {arns[2]} are versions of the same layer.")
    assert refusal(arns[1], arns[1]) == invalid(same + f"{arns[1]} and {arns[1]} are versions of the same layer.")
    assert refusal(f"{ARN}:none:1") == invalid(f"Layer version {ARN}:none:1 does not exist.")
    assert refusal(f"{ARN}:one:99") == invalid(f"Layer version {ARN}:one:99 does not exist.")
    assert refusal(*arns * 2) == invalid("Cannot reference more than 5 layers.")
    assert refusal(arns[0].replace("us-east-1", "eu-west-1")) == invalid(
        "Layers are not in the same region as the function. Layers are expected to be in region us-east-1."
    )
    elsewhere = "arn:aws:lambda:us-east-1:123456789012:layer:theirs:1"
    assert refusal(elsewhere) == (
        403,
        (
            "AccessDeniedException",
            "User: arn:aws:iam::000000000000:root is not authorized to perform: lambda:GetLayerVersion on "
            f"resource: {elsewhere} because no resource-based policy allows the lambda:GetLayerVersion action",
        ),
    )
    assert refusal(f"{ARN}:one")[1][0] == "ValidationException"
    assert lambda_client.get_function_configuration(FunctionName=name)["Layers"] == layers
    # A version that is deleted stays with the functions that have it.
    lambda_client.delete_layer_version(LayerName="one", VersionNumber=int(arns[0].rpartition(":")[2]))
    emulator.packages.settle()
    assert lambda_client.get_function_configuration(FunctionName=name)["Layers"] == layers
    assert lambda_client.invoke(FunctionName=name)["StatusCode"] == 200
    updated = lambda_client.update_function_configuration(FunctionName=name, Layers=[])
    assert "Layers" not in updated


def stored(packages: Any, content: bytes) -> Code:
    code: Code = packages.store("layer", {"ZipFile": base64.b64encode(content).decode()})
    packages.release(code)
    return code


def test_content_stays_as_long_as_a_layer_or_a_function_has_it(emulator: Emulator, lambda_client: Any) -> None:
    functions, service = emulator.service._functions, emulator.service
    code = stored(emulator.packages, CONTENT)
    layer = functions.layers.publish("kept", {}, code)
    assert code.directory is not None
    assert code.archive is not None

    def there() -> list[bool]:
        service.remove_unused_packages()
        emulator.packages.settle()
        assert code.directory is not None
        assert code.archive is not None
        return [code.directory.exists(), code.archive.exists()]

    assert there() == [True, True]
    assert (code.directory / "python/shared.py").read_text() == "X = 1"
    lambda_client.create_function(
        FunctionName="has-it",
        Runtime="python3.11",
        Role="arn:aws:iam::000000000000:role/test",
        Handler="app.handler",
        Code={"ZipFile": packaged("def handler(event, context): pass")},
        Layers=[layer.arn],
    )
    assert functions.entry("has-it").latest.layer_directories == (code.directory,)
    lambda_client.delete_layer_version(LayerName="kept", VersionNumber=layer.version)
    assert there() == [True, True]
    lambda_client.delete_function(FunctionName="has-it")
    assert there() == [False, False]


def test_layers_count_in_the_unzipped_size() -> None:
    limits = lambda_limits().changed(unzipped_bytes=1000)
    functions = make_functions("f", limits=limits)
    layers = [functions.layers.publish(name, {}, Code(Path(name), 0, "", unzipped=400)) for name in ("one", "two")]
    functions.update_configuration("f", {"Layers": [layer.arn for layer in layers]})
    with pytest.raises(ServiceError) as refused:
        functions.update_code("f", {}, Code(Path("code"), 0, "", unzipped=201))
    assert (refused.value.status, refused.value.error_type, refused.value.message) == (
        400,
        "InvalidParameterValueException",
        "Function code combined with layers exceeds the maximum allowed size of 1000 bytes. "
        "The actual size is 1001 bytes.",
    )
    functions.update_code("f", {}, Code(Path("code"), 0, "", unzipped=200))
    functions.layers.publish("three", {}, Code(Path("three"), 0, "", unzipped=1))
    with pytest.raises(ServiceError, match="The actual size is 1001 bytes"):
        functions.update_configuration("f", {"Layers": [f"{ARN}:{name}:1" for name in ("one", "two", "three")]})
    assert [layer.name for layer in functions.entry("f").latest.layers] == ["one", "two"]


@pytest.mark.parametrize(
    ("place", "refusal"),
    [
        ("eu-west-1:000000000000", "The resource you requested does not exist"),
        ("us-east-1:999999999999", "is not authorized to perform"),
    ],
)
def test_a_layer_of_another_region_or_account_is_not_there(place: str, refusal: str) -> None:
    layers, arn = LayerVersions(), f"arn:aws:lambda:{place}:layer:mine"
    layers.publish("mine", {}, Code(None, 0, ""))
    calls: list[Callable[[], object]] = [
        lambda: layers.get(arn, 1),
        lambda: layers.delete(arn, 1),
        lambda: layers.matching({"LayerName": arn}),
        lambda: layers.publish(arn, {}, Code(None, 0, "")),
    ]
    for call in calls:
        with pytest.raises(ServiceError, match=refusal):
            call()
    assert [layer.version for layer in layers.matching({"LayerName": "mine"})] == [1]


def test_a_directory_of_the_host_is_no_layer(lambda_client: Any, emulator: Emulator, tmp_path: Path) -> None:
    emulator.packages.allow(tmp_path)
    content = {"S3Bucket": "hot-reload", "S3Key": str(tmp_path)}
    assert answer(lambda_client.publish_layer_version, LayerName="local", Content=content) == invalid(
        "A layer is an archive: only a function's code can be a directory that is used in place."
    )


def test_archives_are_downloaded_from_their_location(lambda_client: Any, deploy: Deploy, emulator: Emulator) -> None:
    published = lambda_client.publish_layer_version(LayerName="down", Content={"ZipFile": CONTENT})
    name = deploy("def handler(event, context): pass")
    function = lambda_client.get_function(FunctionName=name)
    assert function["Code"]["RepositoryType"] == "S3"
    with HTTP.open(published["Content"]["Location"]) as download:
        assert download.read() == CONTENT
    with HTTP.open(function["Code"]["Location"]) as download:
        digest = hashlib.sha256(download.read()).digest()
    assert base64.b64encode(digest).decode() == function["Configuration"]["CodeSha256"]
    location = published["Content"]["Location"]
    unsigned, other, forged = location.partition("?")[0], location.replace("layer-", "other-"), location[:-1] + "g"
    for wrong, status in ((unsigned, 403), (other, 403), (forged, 400)):
        with pytest.raises(urllib.error.HTTPError) as refused:
            HTTP.open(wrong)
        with refused.value:
            assert refused.value.code == status
    # A function can sign, too, and may not do what the owner may.
    path = location.partition("?")[0]
    with HTTP.open(urllib.request.Request(path, headers=signed_headers(emulator.keys.owner, "GET", path))) as download:
        assert download.read() == CONTENT
    function = signed_headers(emulator.keys.function("f"), "GET", path)
    with pytest.raises(urllib.error.HTTPError) as denied:
        HTTP.open(urllib.request.Request(path, headers=function))
    with denied.value:
        assert (denied.value.code, denied.value.headers["x-amzn-errortype"]) == (403, "AccessDeniedException")
    lambda_client.delete_layer_version(LayerName="down", VersionNumber=published["Version"])
    emulator.packages.settle()
    with pytest.raises(urllib.error.HTTPError) as gone:
        HTTP.open(location)
    with gone.value:
        assert gone.value.code == 404


def test_a_directory_that_is_used_in_place_has_no_archive(lambda_client: Any, deploy: Deploy, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("def handler(event, context): pass")
    name = deploy(tmp_path)
    assert lambda_client.get_function(FunctionName=name)["Code"] == {
        "RepositoryType": "Local",
        "Location": tmp_path.as_uri(),
    }


def test_a_layers_content_may_be_in_s3(lambda_client: Any, s3_client: Any) -> None:
    s3_client.create_bucket(Bucket="layers")
    s3_client.put_object(Bucket="layers", Key="shared.zip", Body=CONTENT)
    content = {"S3Bucket": "layers", "S3Key": "shared.zip"}
    published = lambda_client.publish_layer_version(LayerName="of-s3", Content=content)
    assert published["Content"]["CodeSha256"] == SHA256


def test_layers_count_in_the_accounts_storage(lambda_client: Any, deploy: Deploy) -> None:
    def used() -> int:
        return int(lambda_client.get_account_settings()["AccountUsage"]["TotalCodeSize"])

    before = used()
    published = lambda_client.publish_layer_version(LayerName="counts", Content={"ZipFile": CONTENT})
    assert used() == before + len(CONTENT)
    name = deploy("def handler(event, context): pass")
    of_function = used()
    lambda_client.update_function_configuration(FunctionName=name, Layers=[published["LayerVersionArn"]])
    assert used() == of_function, "a function that has a layer stores no copy"
    lambda_client.delete_layer_version(LayerName="counts", VersionNumber=published["Version"])
    assert used() == of_function - len(CONTENT)


def test_a_function_imports_from_its_layers(lambda_client: Any, deploy: Deploy, invoke: Callable[..., Any]) -> None:
    def publish(name: str, text: str) -> str:
        content = {"ZipFile": archive(shared=text)}
        return str(lambda_client.publish_layer_version(LayerName=name, Content=content)["LayerVersionArn"])

    first, second = publish("first", "X = 'first'"), publish("second", "X = 'second'")
    name = deploy("import shared\n\ndef handler(event, context): return shared.X", Layers=[first, second])
    assert invoke(name).payload == "second", "a later layer's files replace an earlier one's"
    lambda_client.update_function_configuration(FunctionName=name, Layers=[second, first])
    assert invoke(name).payload == "first"
    lambda_client.update_function_configuration(FunctionName=name, Layers=[])
    assert invoke(name, check=False).payload["errorType"] == "Runtime.ImportModuleError"
