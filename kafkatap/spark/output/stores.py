"""The names of stores and their options for deltalake, from paths and URIs as `captures.storage` knows them."""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qsl, unquote, urlsplit

from ...captures.storage import is_uri

#: Hadoop's names of stores, and deltalake's names of the same stores.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss"}
#: Options that pyarrow reads and that mean nothing to deltalake.
_IGNORED = {"allow_bucket_creation", "allow_bucket_deletion", "check_directory_existence_before_creation", "user"}
_ENVIRONMENT = ("AWS_REGION", "AWS_DEFAULT_REGION")


def delta_location(path: str, name: str = "") -> tuple[str, dict[str, str]]:
    """The URI and the storage options of a folder, or of the folder `name` in it, for deltalake.

    ValueError if it has options that deltalake does not know.
    """
    below = f"/{name}" if name else ""
    if not is_uri(path):
        return os.path.abspath(path) + below, {}
    uri = urlsplit(re.sub(r"^\w+", lambda found: _SCHEMES.get(found[0].lower(), found[0].lower()), path))
    if uri.scheme == "file":
        return unquote(uri.path).rstrip("/") + below, {}
    host = uri.netloc.rpartition("@")[2] if uri.scheme == "s3" else uri.netloc
    options = dict(parse_qsl(uri.query, keep_blank_values=True))
    found = _s3(path, uri.username, uri.password, options) if uri.scheme == "s3" else {}
    unknown = sorted(set(options) - _IGNORED)
    if unknown:
        raise ValueError(f"{path}: {unknown[0]} is no option of Delta tables")
    return f"{uri.scheme}://{host}{uri.path.rstrip('/')}{below}", found


def _s3(path: str, key: str | None, secret: str | None, options: dict[str, str]) -> dict[str, str]:
    """Storage options of S3. Those that are known are removed from `options`."""
    found = {}
    scheme = options.pop("scheme", "https")
    if scheme == "http":
        found["AWS_ALLOW_HTTP"] = "true"
    endpoint = options.pop("endpoint_override", "")
    if endpoint:
        found["AWS_ENDPOINT_URL"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    if options.pop("force_virtual_addressing", "") == "true":
        found["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "true"
    region = options.pop("region", "")
    if region:
        found["AWS_REGION"] = region
    elif not endpoint and not any(name in os.environ for name in _ENVIRONMENT):
        found["AWS_REGION"] = _region_of(path)
    if key and secret:
        found |= {"AWS_ACCESS_KEY_ID": unquote(key), "AWS_SECRET_ACCESS_KEY": unquote(secret)}
    return found


def _region_of(path: str) -> str:
    """The region of a bucket, as pyarrow finds it out."""
    from ...captures.storage import system_of

    return str(system_of(path)[0].region)
