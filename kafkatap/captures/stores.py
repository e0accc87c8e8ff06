"""`file_system`: the pyarrow file system of a URI. This module alone knows the schemes of stores.

`s3a` and `s3n` are `s3`; `wasb` and `wasbs` are `abfs` and `abfss`. `store_settings` has the credentials. `naming`
raises the failures of stores as one line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, quote

from ..installation import without_arrow
from .store_settings import StoreSettings, azure_of, refuse_unknown, s3_of, used

#: Hadoop's names of stores, and pyarrow's names of the same stores.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "wasb": "abfs", "wasbs": "abfss"}
_KNOWN = ("s3", "gs", "abfs", "abfss", "hdfs", "viewfs", "file")
_TRUE = ("true", "1")
_NO_ANSWER = "nothing answers at the store's address (endpoint or network)"
#: What stores say, and what is wrong.
_REASONS = (
    (r"NO_SUCH_BUCKET|NoSuchBucket|The specified bucket does not exist", "there is no such bucket"),
    (r"ContainerNotFound|container does not exist", "there is no such container"),
    (r"INVALID_ACCESS_KEY_ID|InvalidAccessKeyId", "the store does not know the access key"),
    (r"INVALID_CLIENT_TOKEN_ID|InvalidToken|ExpiredToken|EXPIRED_TOKEN", "the session token is wrong or has expired"),
    (r"SIGNATURE_DOES_NOT_MATCH|SignatureDoesNotMatch|AuthenticationFailed", "the secret key is wrong"),
    (r"ACCESS_DENIED|AccessDenied|Forbidden|(?i:status)\W+(?:code\W+)?403\b|AuthorizationFailure|AuthorizationPermissionMismatch",
     "the store refuses access (credentials or permission)"),
    (r"PermanentRedirect|HTTP status 301|301 Moved", "the bucket is in another region (?region=...)"),
    (r"[Cc]ould not (?:resolve|connect)|[Cc]onnection refused|Failed to connect|Couldn.t resolve|NETWORK_CONNECTION|"
     r"error sending request|dns error|ConnectError",
     _NO_ANSWER),
    (r"NoCredentials|no credentials|credential was not found|CredentialUnavailable|DefaultAzureCredential",
     "there are no credentials for the store"),
    (r"[Uu]nable to load libhdfs|libhdfs",
     "hdfs needs Hadoop's libhdfs.so (ARROW_LIBHDFS_DIR, and CLASSPATH from `hadoop classpath --glob`)"),
    (r"[Uu]nable to load libjvm|libjvm", "hdfs needs Java's libjvm.so (JAVA_HOME)"),
)  # fmt: skip


def scheme_of(scheme: str) -> str:
    """pyarrow's name of a scheme in lower case."""
    return _SCHEMES.get(scheme, scheme)


def reason_of_store(text: str) -> str | None:
    """What is wrong, from the text of a failure of pyarrow or deltalake. None if that is not known."""
    return next((reason for expression, reason in _REASONS if re.search(expression, text)), None)


@contextmanager
def naming(uri: str, probe: Callable[[], object] | None = None) -> Iterator[None]:
    """Raise failures of pyarrow for a URI as OSErrors of one line. `probe`: another request, which fails for the same
    reason: answers to HEAD have no text."""
    try:
        yield
    except FileNotFoundError as error:
        text = reason_of_store(str(error))
        raise FileNotFoundError(f"{uri}: {text or 'there is no such file'}") from None
    except OSError as error:
        if error.errno is not None:
            raise
        text = reason_of_store(str(error))
        if probe is not None and "during Head" in str(error) and text is not _NO_ANSWER:
            try:
                probe()
            except OSError as other:
                text = reason_of_store(str(other)) or text
        raise OSError(f"{uri}: {text or ' '.join(str(error).split())}") from None


def file_system(scheme: str, host: str, options: str) -> tuple[Any, str]:
    """A pyarrow file system, and the prefix of its paths. Each process keeps one per store, with its connections.

    `scheme`, `host` and `options` (with its `?`): parts of a URI.
    """
    return _file_system(scheme, host, options, used(), _environment())


def _environment() -> tuple[str | None, ...]:
    """The environment variables that `store_settings` reads."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION",
             "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_SAS_TOKEN")  # fmt: skip
    return tuple(map(os.environ.get, names))


@cache
def _file_system(
    scheme: str, host: str, options: str, settings: StoreSettings, environment: tuple[str | None, ...]
) -> tuple[Any, str]:
    """`settings`, `environment`: what the result depends on besides, for the cache."""
    place = f"{scheme}://{host}"
    try:
        from pyarrow import fs
    except ModuleNotFoundError:
        raise OSError(f"{place}: {without_arrow('stores need')}") from None

    kind = scheme_of(scheme)
    if kind not in _KNOWN:
        raise OSError(f"{place}: {scheme}:// is no store of kafkatap (s3a, abfss, wasbs, gs, hdfs, dbfs:/, or a path)")
    try:
        refuse_unknown(kind)
        if kind == "s3":
            return _s3(fs, host, options)
        if kind in ("abfs", "abfss"):
            return _azure(fs, kind, host, options)
        system, root = fs.FileSystem.from_uri(f"{kind}://{host}/{options}")
    except NotImplementedError:
        raise OSError(f"{place}: this pyarrow has no file system for {scheme}:// (pip install pyarrow)") from None
    except ValueError as error:
        raise OSError(f"{place}: {' '.join(str(error).split())}") from None
    except OSError as error:
        raise OSError(f"{place}: {reason_of_store(str(error)) or ' '.join(str(error).split())}") from None
    return system, root.rstrip("/") + "/"


def _s3(fs: Any, host: str, options: str) -> tuple[Any, str]:
    bucket = host.rpartition("@")[2]
    store = s3_of(host, options)
    if not store.token and not store.is_anonymous:
        user = f"{quote(store.key, safe='')}:{quote(store.secret, safe='')}@" if store.key else ""
        system, root = fs.FileSystem.from_uri(f"s3://{user}{bucket}/?{store.query}".rstrip("?"))
        return system, root.rstrip("/") + "/"
    region = store.region or (None if store.endpoint else fs.resolve_s3_region(bucket))
    named = {"access_key": store.key, "secret_key": store.secret, "session_token": store.token}
    system = fs.S3FileSystem(
        **({"anonymous": True} if store.is_anonymous else named), region=region, scheme=store.scheme,
        endpoint_override=store.endpoint or None, force_virtual_addressing=store.is_virtual,
        **_arguments(store.others),
    )  # fmt: skip
    return system, f"{bucket}/"


def _arguments(options: Mapping[str, str]) -> dict[str, Any]:
    """Options of a URI of S3 as arguments. ValueError for one that is none."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name == "tls_ca_file_path":
            found[name] = value
        elif re.fullmatch(r"allow_(delayed_open|bucket_\w+)|check_directory_existence_before_creation", name):
            found[name] = value in _TRUE
        else:
            raise ValueError(f"{name} is no option of S3")
    return found


def _azure(fs: Any, kind: str, host: str, options: str) -> tuple[Any, str]:
    container, found, account = host.rpartition("@")
    where = re.fullmatch(r"([\w-]+)\.(?:dfs|blob)\.([\w.]+)", account)
    if not found or ":" in container or where is None:  # other spellings, which pyarrow may know
        system, root = fs.FileSystem.from_uri(f"{kind}://{host}/{options}")
        return system, root.rstrip("/") + "/"
    given = azure_of(container, account).pyarrow_options
    named = dict(parse_qsl(options.lstrip("?"), keep_blank_values=True))
    if not given:
        system, root = fs.FileSystem.from_uri(f"{kind}://{container}@{where[1]}.dfs.{where[2]}/{options}")
        return system, root.rstrip("/") + "/"
    allowed = {"blob_storage_authority", "dfs_storage_authority", "enable_tls"}
    if named.keys() - allowed:
        raise ValueError(f"{min(named.keys() - allowed)} is no option beside credentials of Azure")
    protocol = "http" if named.pop("enable_tls", "true") == "false" else "https"
    named = {"blob_storage_authority": f".blob.{where[2]}", "dfs_storage_authority": f".dfs.{where[2]}"} | named
    system = fs.AzureFileSystem(where[1], **given, **named, blob_storage_scheme=protocol, dfs_storage_scheme=protocol)
    return system, f"{container}/"
