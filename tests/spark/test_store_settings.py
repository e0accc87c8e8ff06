"""Stores as users of Spark name them: `s3a://`, `wasbs://`, `dbfs:/`, with keys in `spark.hadoop.fs.*`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkatap.captures import storage, stores
from kafkatap.captures.storage import find, without_credentials
from kafkatap.captures.store_settings import StoreSettings, azure_of, s3_of, use, used
from kafkatap.spark import exchanges
from kafkatap.spark.output.stores import delta_location
from kafkatap.spark.source import register
from tests.cli.running import ROOT, kafkatap
from tests.support.s3_server import ANONYMOUS, s3_endpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = ROOT / "samples" / "apache-0.8.2.pcap.zst"
S3 = "spark.hadoop.fs.s3a."
KEY, SECRET, TOKEN = "AKIAWORDS", "secret/of+words", "token-of-words"
AZURE = "spark.hadoop.fs.azure."
ACCOUNT = "name.dfs.core.windows.net"
PROVIDER = f"{S3}aws.credentials.provider"


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No environment variables of stores, and settings of each test alone."""
    for name in ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AZURE_STORAGE_ACCOUNT_KEY"):
        monkeypatch.delenv(name, raising=False)
    before = used()
    yield
    use(before)


def settings_of(endpoint: str, token: str = TOKEN) -> dict[str, str]:
    found = {"access.key": KEY, "secret.key": SECRET, "endpoint": endpoint, "connection.ssl.enabled": "false",
             "path.style.access": "true", "endpoint.region": "us-east-1"}  # fmt: skip
    if token:
        found |= {"session.token": token, "aws.credentials.provider": "a.b.TemporaryAWSCredentialsProvider"}
    return {f"{S3}{name}": value for name, value in found.items()}


# ---------------------------------------------------------------- settings


def test_a_uri_wins_over_settings_and_these_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "of-environment")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://environment:1")
    assert s3_of("bucket", "")[4:7] == ("of-environment", "environment:1", "http")
    use(StoreSettings.of({**settings_of("minio:9000"), f"{S3}bucket.other.access.key": "O"}))
    assert s3_of("bucket", "")[:7] == (KEY, SECRET, TOKEN, False, "us-east-1", "minio:9000", "http")
    assert s3_of("other", "").key == "O"
    assert s3_of("k:s%2F@bucket", "?region=x&endpoint_override=https://y")[:7] == (
        "k", "s/", "", False, "x", "y", "https",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({f"{S3}endpoint": "s3.eu-west-1.amazonaws.com"}, {"AWS_REGION": "eu-west-1"}),
        ({f"{S3}endpoint": "http://m:1", f"{S3}path.style.access": "false"}, {
            "AWS_ENDPOINT_URL": "http://m:1", "AWS_ALLOW_HTTP": "true", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
        }),
        ({f"{S3}endpoint": "https://m", PROVIDER: "a.AnonymousAWSCredentialsProvider"}, {
            "AWS_ENDPOINT_URL": "https://m", "AWS_SKIP_SIGNATURE": "true",
        }),
        ({f"{S3}endpoint": "m", f"{S3}access.key": "k", f"{S3}secret.key": "s", f"{S3}session.token": "t",
          PROVIDER: "a.SimpleAWSCredentialsProvider,b.DefaultCredentialsProvider", f"{S3}threads.max": "9"}, {
            "AWS_ENDPOINT_URL": "https://m", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s",
        }),
        ({f"{S3}endpoint": "m", f"{S3}access.key": "k", f"{S3}secret.key": "s",
          PROVIDER: "a.DefaultCredentialsProvider"}, {"AWS_ENDPOINT_URL": "https://m"}),
    ],
)  # fmt: skip
def test_settings_of_s3(settings: dict[str, str], wanted: dict[str, str]) -> None:
    use(StoreSettings.of(settings))
    assert delta_location("s3a://bucket/a", "t") == ("s3://bucket/a/t", wanted)


LOGIN = {
    f"{AZURE}account.auth.type.{ACCOUNT}": "OAuth",
    f"{AZURE}account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
    f"{AZURE}account.oauth2.client.id": "me", f"{AZURE}account.oauth2.client.secret": "s",
    f"{AZURE}account.oauth2.client.endpoint": "https://login.microsoftonline.com/tenant/oauth2/token",
}  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({f"{AZURE}account.key.{ACCOUNT}": "k", f"{AZURE}account.key.other.dfs.core.windows.net": "o"},
         {"account_key": "k"}),
        ({f"{AZURE}account.key.name.blob.core.windows.net": "k"}, {"account_key": "k"}),
        ({f"{AZURE}sas.box.name.blob.core.windows.net": "?sv=1", f"{AZURE}sas.more.{ACCOUNT}": "x"},
         {"sas_token": "sv=1"}),
        ({f"{AZURE}account.auth.type": "SAS", f"{AZURE}sas.fixed.token.{ACCOUNT}": "t", f"{AZURE}account.key": "k"},
         {"sas_token": "t"}),
        (LOGIN, {"client_id": "me", "client_secret": "s", "tenant_id": "tenant"}),
        ({}, {}),
    ],
)  # fmt: skip
def test_settings_of_azure(settings: dict[str, str], wanted: dict[str, str]) -> None:
    use(StoreSettings.of(settings))
    assert azure_of("box", ACCOUNT).pyarrow_options == wanted
    for uri in (f"abfss://box@{ACCOUNT}/a", "wasbs://box@name.blob.core.windows.net/a"):
        found, options = delta_location(uri, "t")
        assert (found, len(options)) == (f"abfss://box@{ACCOUNT}/a/t", len(wanted))
        if "sas_token" not in wanted and "account_key" not in wanted:  # those are decoded
            system, path = storage.system_of(uri)
            assert (system.type_name, path) == ("abfs", "box/a")


@pytest.mark.parametrize(
    ("uri", "settings", "said"),
    [
        ("s3a://b/", {f"{S3}assumed.role.arn": "x"}, "s3a.assumed.role.arn has no equivalent here; leave it out"),
        ("s3a://b/", {PROVIDER: "a.AssumedRoleCredentialProvider"}, "AssumedRoleCredentialProvider cannot be used"),
        ("s3a://b/", {PROVIDER: "a.TemporaryAWSCredentialsProvider"}, "needs fs.s3a.access.key"),
        ("s3a://b/", {f"{S3}access.key": "x"}, "fs.s3a.secret.key is missing"),
        (f"abfss://b@{ACCOUNT}/", {f"{AZURE}account.auth.type": "Custom"}, "Custom cannot be used here"),
        (f"abfss://b@{ACCOUNT}/", {f"{AZURE}account.oauth2.client.id": "x"}, "belong together"),
        (f"abfss://b@{ACCOUNT}/", {f"{AZURE}encryption.key": "x"}, "fs.azure.encryption.key has no equivalent"),
        ("gs://b/", {"spark.hadoop.fs.gs.auth.type": "x"}, "GOOGLE_APPLICATION_CREDENTIALS"),
        ("hdfs://b/", {"spark.hadoop.fs.defaultFS": "x"}, "fs.defaultFS has no equivalent here"),
        ("oss://b/", {}, "oss:// is no store of kafkatap"),
        ("dbfs:/b", {}, "has no folder /dbfs"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named(uri: str, settings: dict[str, str], said: str) -> None:
    use(StoreSettings.of(settings))
    with pytest.raises(OSError, match="b") as error:
        find(uri)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_dbfs_is_a_folder_where_it_is_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage.os.path, "isdir", lambda path: path == "/dbfs")
    assert storage.absolute("dbfs:/a/*.pcap") == storage.absolute("dbfs:///a/*.pcap") == "/dbfs/a/*.pcap"


def test_containers_of_azure_are_no_credentials() -> None:
    texts = f"abfss://box:password@{ACCOUNT}/a wasbs://box@name.blob.core.windows.net s3a://key:secret@bucket/a"
    assert without_credentials(texts) == (
        f"abfss://box@{ACCOUNT}/a wasbs://box@name.blob.core.windows.net s3a://bucket/a"
    )


def test_settings_show_no_secret() -> None:
    assert SECRET not in repr(StoreSettings.of(settings_of("m")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Got GCS URI but Arrow compiled without libgs", None),
        ("Unable to load libhdfs: ./libhdfs.so: cannot open shared object file", "libhdfs.so"),
        ("When listing ...: AWS Error NO_SUCH_BUCKET during ListObjectsV2", "there is no such bucket"),
        ("AWS Error UNKNOWN (HTTP status 403)", "refuses access"),
        ("<Code>SignatureDoesNotMatch</Code>", "secret key is wrong"),
    ],
)
def test_reasons_of_stores(text: str, said: str | None) -> None:
    found = stores.reason_of_store(text)
    assert (found is None) if said is None else (said in (found or ""))


# ---------------------------------------------------------------- a store


def put_sample(endpoint: str) -> None:
    use(StoreSettings.of(settings_of(endpoint)))
    system, path = storage.system_of("s3a://bucket/in/a.pcap.zst")
    with system.open_output_stream(path, compression=None) as stream:
        stream.write(SAMPLE.read_bytes())


def test_failures_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_endpoint(KEY, TOKEN) as endpoint:
        good = settings_of(endpoint)
        for uri, other, said in (
            ("s3a://bucket/in/*", {f"{S3}access.key": "AKIAOTHER"}, "the store does not know the access key"),
            ("s3a://bucket/in/*", {f"{S3}session.token": "x"}, "the session token is wrong or has expired"),
            ("s3a://none/in/*", {}, "there is no such bucket"),
            ("s3a://bucket/in/*", {}, "no file matches"),
            ("s3a://bucket/in/*", {f"{S3}endpoint": "127.0.0.1:9"}, "nothing answers at the store's address"),
        ):
            use(StoreSettings.of(good | other))
            with pytest.raises(OSError, match=f"^{uri.replace('*', '[*]')}: {said}"):
                find(uri)
        use(StoreSettings())
        for name, value in {"ACCESS_KEY_ID": "AKIAOTHER", "SECRET_ACCESS_KEY": "x", "REGION": "us-east-1",
                            "ENDPOINT_URL": f"http://{endpoint}"}.items():  # fmt: skip
            monkeypatch.setenv(f"AWS_{name}", value)
        done = kafkatap("lake", "verify", "s3a://bucket/lake")
        assert done.code == 2
        assert done.err.splitlines() == ["kafkatap: s3a://bucket/lake/files: the store does not know the access key"]


def test_a_public_bucket() -> None:
    with s3_endpoint(ANONYMOUS) as endpoint:
        use(StoreSettings.of({f"{S3}endpoint": f"http://{endpoint}", PROVIDER: "a.AnonymousAWSCredentialsProvider"}))
        with pytest.raises(FileNotFoundError, match="no file matches"):
            find("s3a://bucket/in/*")


@pytest.mark.usefixtures("java")
def test_a_job_with_keys_in_settings_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads and writes s3a://; its secrets are in no file of Spark and no output. Other commands read the lake with
    environment variables."""
    with s3_endpoint(KEY, TOKEN) as endpoint:
        put_sample(endpoint)
        logged = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{tmp_path}"}
        logged |= {"spark.eventLog.compress": "false", f"{AZURE}account.key.{ACCOUNT}": "another-secret"}
        confs = [f"--conf={name}={value}" for name, value in (settings_of(endpoint) | logged).items()]
        command = [sys.executable, "-m", "kafkatap", "spark", "s3a://bucket/in/*", "-o", "s3a://bucket/lake",
                   "--master", "local[2]", "--log", str(tmp_path / "log"), *confs]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        written = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
        assert any("SparkListenerTaskEnd" in text for text in written)
        for secret in (KEY, SECRET, TOKEN, "another-secret"):
            assert not [text for text in [*written, done.stdout, done.stderr] if secret in text], secret

        use(StoreSettings())
        for name, value in {"ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET, "SESSION_TOKEN": TOKEN,
                            "REGION": "us-east-1", "ENDPOINT_URL": f"http://{endpoint}"}.items():  # fmt: skip
            monkeypatch.setenv(f"AWS_{name}", value)
        assert "Produce" in kafkatap("report", "s3a://bucket/lake").out
        for words in (["verify"], ["compact"], ["forget", "s3a://bucket/in/a.pcap.zst"]):
            ended = kafkatap("lake", words[0], "s3a://bucket/lake", *words[1:])
            assert ended.code == 0, ended.err


def test_a_session_that_exists(spark: SparkSession) -> None:
    with s3_endpoint(KEY, TOKEN) as endpoint:
        put_sample(endpoint)
        use(StoreSettings())
        settings = {name.removeprefix("spark.hadoop."): value for name, value in settings_of(endpoint).items()}
        for name, value in settings.items():
            spark.conf.set(name, value)
        try:
            rows = exchanges(spark, "s3a://bucket/in/*").count()
            register(spark)
            assert spark.read.format("kafkatap").load("s3a://bucket/in/*").count() == rows > 0
        finally:
            for name in settings:
                spark.conf.unset(name)
            use(StoreSettings())
            register(spark)
