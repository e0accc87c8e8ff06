"""`StoreSettings`: settings of stores as Spark's users have them, `spark.hadoop.fs.*`, and what pyarrow and deltalake
make of them.

Options in a URI win over settings, and these over environment variables. A process has one set of settings (`use`).
Values are secrets: no text has any. ValueError, in one line, names a setting that a store of that kind cannot have.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote

_PREFIX = "spark.hadoop."
_S3, _AZURE = "fs.s3a.", "fs.azure."
#: Ends of settings that say how fast, not who, where or what.
_TUNING = (
    r"impl|impl\.disable\.cache|threads\..*|max\.total\.tasks|connection\.(maximum|timeout|ttl|acquisition.*|"
    r"establish.*|request.*|idle.*|keepalive.*|expect.*)|socket\..*|executor\.capacity|multipart\..*|fast\.upload.*|"
    r"block\.size|buffer\.dir|committer\..*|attempts\..*|retry\..*|readahead\..*|input\..*|experimental\..*|"
    r"change\.detection\..*|directory\..*|list\..*|paging\..*|performance\..*|optimized\..*|vectored\..*|audit\..*|"
    r"metadatastore\..*|bucket\.probe|aws\.credentials\.provider\.mapping|create\..*|user\.agent\.prefix|"
    r"fast\.upload|etag\..*|accesspoint\.required|classloader\..*|"
    r"io\..*|read\..*|write\..*|enable\..*|buffer.*|skipUserGroup.*|createRemote.*|always\..*|atomic.*"
)
_S3_KNOWN = {
    "access.key", "secret.key", "session.token", "endpoint", "endpoint.region", "path.style.access",
    "connection.ssl.enabled", "aws.credentials.provider",
}  # fmt: skip
#: Providers of credentials that look for them as pyarrow does by itself.
_CHAIN = {
    "DefaultCredentialsProvider", "DefaultAWSCredentialsProviderChain", "EnvironmentVariableCredentialsProvider",
    "IAMInstanceCredentialsProvider", "InstanceProfileCredentialsProvider", "ContainerCredentialsProvider",
    "EC2ContainerCredentialsProviderWrapper", "WebIdentityTokenFileCredentialsProvider",
    "WebIdentityTokenCredentialsProvider", "ProfileCredentialsProvider",
}  # fmt: skip
_LOGIN = r"https://[^/]+/([^/]+)/oauth2/(?:v2\.0/)?token"
_INSTEAD = {
    _S3: "leave it out, and use fs.s3a.access.key and .secret.key, or AWS's environment variables and files",
    _AZURE: "leave it out, and use fs.azure.account.key, .sas.fixed.token or .account.oauth2.client.*, or AZURE_* "
    "environment variables",
    "fs.gs.": "leave it out, and set the environment variable GOOGLE_APPLICATION_CREDENTIALS to a key file",
    "fs.": "leave it out, and use core-site.xml in HADOOP_CONF_DIR, and hdfs://HOST:PORT/ in paths",
}


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Settings by their names without `spark.hadoop.`, sorted."""

    values: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> StoreSettings:
        """Those of `settings` that are of stores: `spark.hadoop.fs.*`, and `fs.*`, which wins."""
        found = {name[len(_PREFIX) :]: value for name, value in settings.items() if name.startswith(f"{_PREFIX}fs.")}
        found |= {name: value for name, value in settings.items() if name.startswith("fs.")}
        return cls(tuple(sorted(found.items())))


#: Settings of S3 with credentials and endpoint.
S3_NAMES = tuple(
    f"{_S3}{name}" for name in ("access.key", "secret.key", "session.token", "endpoint", "endpoint.region")
)
_used = StoreSettings()


def use(settings: StoreSettings) -> None:
    """Settings of this process from now on."""
    global _used
    _used = settings


def used() -> StoreSettings:
    """Settings of this process."""
    return _used


def refuse_unknown(scheme: str) -> None:
    """ValueError if there are settings for this kind of store, and none of them can be used: of gs and hdfs."""
    prefix = {"gs": "fs.gs.", "gcs": "fs.gs.", "hdfs": "fs.", "viewfs": "fs."}.get(scheme)
    for name, _ in used().values if prefix else ():
        is_other = prefix == "fs." and name.startswith(("fs.s3", "fs.azure.", "fs.gs.", "fs.abfs", "fs.wasb"))
        if prefix and name.startswith(prefix) and not is_other and not _is_tuning(name, prefix):
            raise _refused(name, prefix)


def _refused(name: str, prefix: str) -> ValueError:
    return ValueError(f"{_PREFIX}{name} has no equivalent here; {_INSTEAD[prefix]}")


def _is_tuning(name: str, prefix: str) -> bool:
    return re.fullmatch(_TUNING, name.removeprefix(prefix)) is not None or name.endswith(".impl")


# ---------------------------------------------------------------- S3


class S3(NamedTuple):
    """How to reach a bucket. `region` "": the bucket's own, or any with an `endpoint`. `is_virtual` None: as usual.
    `others`: options of its URI that only pyarrow knows."""

    key: str
    secret: str
    token: str
    is_anonymous: bool
    region: str
    endpoint: str
    scheme: str
    is_virtual: bool
    others: Mapping[str, str]

    @property
    def query(self) -> str:
        """Its options for a URI of pyarrow, without credentials."""
        options = dict(self.others)
        if self.endpoint:
            options |= {"endpoint_override": self.endpoint, "scheme": self.scheme}
        if self.region:
            options["region"] = self.region
        if self.is_virtual:
            options["force_virtual_addressing"] = "true"
        return "&".join(f"{name}={quote(value, safe='')}" for name, value in options.items())

    @property
    def delta_options(self) -> dict[str, str]:
        """The storage options of deltalake; the region is another matter."""
        found = {}
        if self.scheme == "http":
            found["AWS_ALLOW_HTTP"] = "true"
        if self.endpoint:
            found["AWS_ENDPOINT_URL"] = f"{self.scheme}://{self.endpoint}"
        if self.is_virtual:
            found["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "true"
        if self.is_anonymous:
            found["AWS_SKIP_SIGNATURE"] = "true"
        if self.key:
            found |= {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret}
        if self.token:
            found["AWS_SESSION_TOKEN"] = self.token
        return found


def s3_of(host: str, query: str) -> S3:
    """How to reach a bucket. `host`: of its URI, which may have credentials."""
    user, _, bucket = host.rpartition("@")
    key, _, secret = (unquote(part) for part in user.partition(":"))
    options = dict(parse_qsl(query.lstrip("?"), keep_blank_values=True))
    mine = _s3_settings(bucket)
    token, is_anonymous = "", False
    if not key:
        key, secret, token, is_anonymous = _s3_credentials(mine)
    is_encrypted = _is_true(mine, "connection.ssl.enabled", True)
    endpoint = options.pop("endpoint_override", "") or mine.get("endpoint", "").strip()
    named = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    scheme, _, place = named.rpartition("://")
    scheme = options.pop("scheme", "") or scheme or ("https" if is_encrypted else "http")
    place = place.rstrip("/")
    region = options.pop("region", "") or mine.get("endpoint.region", "").strip()
    amazon = re.fullmatch(r"s3(?:[.-]([a-z0-9-]+))?\.amazonaws\.com(?:\.cn)?", place)
    if amazon:
        place, region = "", region or amazon[1] or ""
    region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
    is_virtual = options.pop("force_virtual_addressing", "") in ("true", "1")
    if "path.style.access" in mine and place and not re.match(r"[\d.:]+$|localhost\b|\[", place):
        is_virtual = is_virtual or not _is_true(mine, "path.style.access", True)
    return S3(key, secret, token, is_anonymous, region, place, scheme, is_virtual, options)


def _s3_settings(bucket: str) -> dict[str, str]:
    """The settings of a bucket: its own (`fs.s3a.bucket.NAME.`) and those of all, without the beginning of their
    names."""
    found, own = {}, {}
    for name, value in used().values:
        if not name.startswith(_S3):
            continue
        short = name.removeprefix(_S3)
        if short.startswith("bucket.") and short != "bucket.probe":
            if not short.startswith(f"bucket.{bucket}."):
                continue
            short = short.removeprefix(f"bucket.{bucket}.")
            own[short] = value
        else:
            found[short] = value
        if short not in _S3_KNOWN and not _is_tuning(short, ""):
            raise _refused(name, _S3)
    return found | own


def _s3_credentials(mine: Mapping[str, str]) -> tuple[str, str, str, bool]:
    """Key, secret, token, and whether there are none on purpose. All empty: pyarrow and deltalake look for them."""
    key, secret, token = (mine.get(name, "").strip() for name in ("access.key", "secret.key", "session.token"))
    if bool(key) != bool(secret) or (token and not key):
        missing = "secret.key" if key else "access.key"
        raise ValueError(f"{_PREFIX}{_S3}{missing} is missing; {_S3}access.key and {_S3}secret.key belong together")
    named = re.split(r"[\s,]+", mine.get("aws.credentials.provider", "").strip())
    for provider in filter(None, named):
        kind = re.split(r"[.$]", provider)[-1]
        if kind in ("AnonymousAWSCredentialsProvider", "AnonymousCredentialsProvider"):
            return "", "", "", True
        if kind in _CHAIN:
            return "", "", "", False
        if kind not in ("SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider"):
            raise ValueError(
                f"{_PREFIX}{_S3}aws.credentials.provider: {kind} cannot be used here; use "
                "SimpleAWSCredentialsProvider, TemporaryAWSCredentialsProvider, AnonymousAWSCredentialsProvider or "
                "DefaultCredentialsProvider"
            )
        if kind.startswith("Simple") and key:
            return key, secret, "", False
        if kind.startswith("Temporary") and token:
            return key, secret, token, False
    if any(named):
        raise ValueError(
            f"{_PREFIX}{_S3}aws.credentials.provider needs {_S3}access.key and {_S3}secret.key, and {_S3}session.token "
            "for TemporaryAWSCredentialsProvider"
        )
    return key, secret, token, False


def _is_true(mine: Mapping[str, str], name: str, usual: bool) -> bool:
    text = mine.get(name, "").strip().lower()
    return text == "true" if text in ("true", "false") else usual


# ---------------------------------------------------------------- Azure


class Azure(NamedTuple):
    """How to reach a container. All empty: pyarrow and deltalake look for credentials."""

    key: str = ""
    sas: str = ""
    client: str = ""
    secret: str = ""
    tenant: str = ""

    @property
    def pyarrow_options(self) -> dict[str, str]:
        """Arguments of pyarrow's AzureFileSystem."""
        named = {
            "account_key": self.key, "sas_token": self.sas, "client_id": self.client, "client_secret": self.secret,
            "tenant_id": self.tenant,
        }  # fmt: skip
        return {name: value for name, value in named.items() if value}

    @property
    def delta_options(self) -> dict[str, str]:
        """The storage options of deltalake."""
        named = {
            "AZURE_STORAGE_ACCOUNT_KEY": self.key, "AZURE_STORAGE_SAS_TOKEN": self.sas,
            "AZURE_STORAGE_CLIENT_ID": self.client, "AZURE_STORAGE_CLIENT_SECRET": self.secret,
            "AZURE_STORAGE_TENANT_ID": self.tenant,
        }  # fmt: skip
        return {name: value for name, value in named.items() if value}


#: Settings of an account, without `fs.azure.` and `.ACCOUNT.dfs.core.windows.net`.
_AZURE_KNOWN = {
    "account.key", "account.auth.type", "account.oauth.provider.type", "account.oauth2.client.id",
    "account.oauth2.client.secret", "account.oauth2.client.endpoint", "account.oauth2.msi.tenant",
    "sas.fixed.token", "sas.token.provider.type", "account.hns.enabled", "secure.mode",
}  # fmt: skip
_DOMAIN = r"[\w-]+\.(?:dfs|blob)\.[\w.]+"


def azure_of(container: str, account: str) -> Azure:
    """How to reach a container of an account (`ACCOUNT.dfs.core.windows.net`)."""
    mine = _azure_settings(container, account)
    kind = mine.get("account.auth.type", "").strip()
    key, sas = mine.get("account.key", "").strip(), mine.get("sas.fixed.token", "").strip().lstrip("?")
    if kind.lower() in ("oauth", ""):
        found = _azure_oauth(mine, is_chosen=bool(kind))
        if found is not None:
            return found
    elif kind.lower() == "sharedkey":
        sas = ""
        if not key:
            raise ValueError(f"{_PREFIX}fs.azure.account.key.{account} is missing, which auth.type SharedKey needs")
    elif kind.lower() == "sas":
        key = ""
        provider = mine.get("sas.token.provider.type", "FixedSASTokenProvider")
        if not sas or not provider.endswith("FixedSASTokenProvider"):
            raise ValueError(f"{_PREFIX}fs.azure.sas.fixed.token is missing, which alone serves auth.type SAS here")
    else:
        raise ValueError(
            f"{_PREFIX}fs.azure.account.auth.type: {kind} cannot be used here; use SharedKey, SAS or OAuth"
        )
    if key or sas:
        return Azure(key=key) if key else Azure(sas=sas)
    environment = os.environ.get
    key = environment("AZURE_STORAGE_ACCOUNT_KEY") or environment("AZURE_STORAGE_ACCESS_KEY") or ""
    return Azure(key=key) if key else Azure(sas=environment("AZURE_STORAGE_SAS_TOKEN") or "")


def _azure_oauth(mine: Mapping[str, str], is_chosen: bool) -> Azure | None:
    provider = mine.get("account.oauth.provider.type", "").strip().rpartition(".")[2]
    client = mine.get("account.oauth2.client.id", "").strip()
    secret = mine.get("account.oauth2.client.secret", "").strip()
    if not is_chosen and not client:
        return None
    if provider == "MsiTokenProvider":
        return Azure(client=client, tenant=mine.get("account.oauth2.msi.tenant", "").strip())
    if provider not in ("ClientCredsTokenProvider", ""):
        raise ValueError(
            f"{_PREFIX}fs.azure.account.oauth.provider.type: {provider} cannot be used here; use "
            "ClientCredsTokenProvider or MsiTokenProvider"
        )
    endpoint = re.match(_LOGIN, mine.get("account.oauth2.client.endpoint", "").strip())
    if not client or not secret or endpoint is None:
        raise ValueError(
            f"{_PREFIX}fs.azure.account.oauth2.client.id, .secret and .endpoint "
            "(https://login.microsoftonline.com/TENANT/oauth2/token) belong together"
        )
    return Azure(client=client, secret=secret, tenant=endpoint[1])


def _azure_settings(container: str, account: str) -> dict[str, str]:
    """The settings of a container: those of all, then those of its account, then its own."""
    name_of_account = account.partition(".")[0]
    ranked: list[tuple[int, str, str]] = []
    for name, value in used().values:
        if not name.startswith(_AZURE):
            continue
        short, rank = name.removeprefix(_AZURE), 0
        old = re.fullmatch(rf"sas\.([\w-]+)\.({_DOMAIN})", short)  # of wasbs://
        if old and old[1] != "fixed":
            if (old[1], old[2].partition(".")[0]) != (container, name_of_account):
                continue
            short, rank = "sas.fixed.token", 2
        elif of_account := re.fullmatch(rf"(.+?)\.({_DOMAIN})", short):
            if of_account[2].partition(".")[0] != name_of_account:
                continue
            short, rank = of_account[1], 1
        if short not in _AZURE_KNOWN and not _is_tuning(short, ""):
            raise _refused(name, _AZURE)
        ranked.append((rank, short, value))
    return {short: value for _, short, value in sorted(ranked, key=lambda one: one[0])}
