"""An error of the Azure SDK in; the ragstore error that says what to do about it out."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Callable, Mapping
from datetime import UTC
from enum import Enum
from http import HTTPStatus
from typing import Final

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

from ragstore.errors import ConfigError, PoisonError, RagstoreError, TransientError

READER_ROLE: Final = "Storage Blob Data Reader"
TAGS_ROLE: Final = (
    "'Storage Blob Data Owner', or a custom role with the data action "
    "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/tags/read (a SAS: the permission `t`)"
)
_THROTTLED_OR_DOWN: Final = frozenset({408, 429, 500, 502, 503, 504})
_NO_SUCH_BLOB: Final = frozenset({"BlobNotFound", "PathNotFound", "InvalidUri", "InvalidResourceName", "OutOfRangeInput"})
"""Names that the service cannot hold are the names of no blob."""
_CHANGED: Final = frozenset({"ConditionNotMet", "InvalidRange"})


class BlobMissingError(RagstoreError):
    """The service says that there is no such blob."""


class BlobChangedError(RagstoreError):
    """The blob is not the one any more whose ETag was given."""


def translate(error: AzureError, *, container: str, doing: str) -> RagstoreError:
    """What the error means for the caller. `container` is `account/container`, `doing` completes "while ..." for the message.

    Codes: https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes and `common-rest-api-error-codes`. A 404 without
    a storage code is no proof that a blob is gone: something between us and the service may have answered.
    """
    status, code = status_of(error), code_of(error)
    where = f"{container}, while {doing}"
    if status is None:
        return _without_response(error, where)
    if status < HTTPStatus.BAD_REQUEST:
        return TransientError(f"{where}: the answer cannot be understood: {_first_line(error)}; does a proxy or firewall answer?")
    if status in _THROTTLED_OR_DOWN:
        return TransientError(f"{where}: the service answered {status} {code}".rstrip(), retry_after=retry_after(error))
    if code in _NO_SUCH_BLOB:
        return BlobMissingError(f"{where}: {code}")
    if status == HTTPStatus.PRECONDITION_FAILED or code in _CHANGED:
        return BlobChangedError(f"{where}: {code}")
    if code == "AuthorizationFailure" and "failed to authenticate" in str(error):
        return _BAD_CREDENTIAL(where)
    if code in _ADVICE:
        return _ADVICE[code](where)
    if status == HTTPStatus.NOT_FOUND:
        return TransientError(f"{where}: 404 without a code of the storage service ({code or 'none'}); does a proxy or firewall answer?")
    return ConfigError(f"{where}: the service refused with {status} {code or 'and no code'}: {_first_line(error)}")


def status_of(error: AzureError) -> int | None:
    """The HTTP status, or None where there was no response."""
    return error.status_code if isinstance(error, HttpResponseError) and error.response is not None else None


def code_of(error: AzureError) -> str:
    """The service's error code, or nothing. HEAD responses have it in a header only."""
    code = getattr(error, "error_code", None)
    code = code or _headers(error).get("x-ms-error-code")
    return str(code.value if isinstance(code, Enum) else code or "")


def _headers(error: AzureError) -> Mapping[str, str]:
    response = error.response if isinstance(error, HttpResponseError) else None
    headers: Mapping[str, str] = getattr(response, "headers", {})
    return headers


def _without_response(error: AzureError, where: str) -> RagstoreError:
    if isinstance(error, ClientAuthenticationError):
        return ConfigError(
            f"{where}: no usable credential: {_first_line(error)}. Run `az login`, give the machine a managed identity, "
            "or name an environment variable: sas_env, account_key_env or connection_string_env"
        )
    return TransientError(f"{where}: the service cannot be reached: {_first_line(error)}; check the url and the network")


def _first_line(error: AzureError) -> str:
    """The message without what the SDK appends to it: headers, links, request ids."""
    return (str(error.message or error).strip().splitlines() or [""])[0]


def retry_after(error: AzureError) -> float | None:
    """Seconds that the service asks to wait."""
    return seconds_to_wait(_headers(error))


def seconds_to_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds that an answer with these headers asks to wait, in any of the forms that Azure uses."""
    for name in ("x-ms-retry-after-ms", "retry-after-ms"):
        if str(headers.get(name, "")).isdigit():
            return int(headers[name]) / 1000
    value = str(headers.get("Retry-After", "")).strip()
    if value.isdigit():
        return float(value)
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    # A date without a zone is in GMT, as RFC 9110 has it.
    return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - time.time())


def _config(advice: str) -> Callable[[str], RagstoreError]:
    return lambda where: ConfigError(f"{where}: {advice}")


def _poison(kind: str, reason: str) -> Callable[[str], RagstoreError]:
    return lambda _where: PoisonError(kind, reason)


_MISSING_RIGHT: Final = _config(
    f"access refused (403): the identity lacks the role {READER_ROLE!r} on this container; a SAS needs the permissions `r` and `l`, "
    "and `t` for tags. A new role assignment takes up to 10 minutes to work"
)
_BAD_CREDENTIAL: Final = _config(
    "the credential was not accepted: check that the key or SAS belongs to this account and has not expired or been rotated, and that this "
    "machine's clock is right (15 minutes are tolerated)"
)
_NETWORK: Final = _config(
    "access refused (403) by the account's network rules or firewall: allow this machine's address or network, use a private endpoint, "
    "or run inside the allowed network"
)
_DISABLED: Final = _config("the storage account is disabled: look at its subscription and state in the Azure portal")
_NO_CONTAINER: Final = _config("the container does not exist: correct the url, or create the container")
_OWN_KEY: Final = _poison(
    "encrypted", "encrypted with a key that its writer keeps (customer-provided key); write it again without, or exclude it"
)
_ARCHIVED: Final = _poison("unsupported", "in the archive tier, whose content cannot be read: rehydrate it to the hot, cool or cold tier")

_ADVICE: Final = {
    "AuthorizationPermissionMismatch": _MISSING_RIGHT,
    "InsufficientAccountPermissions": _MISSING_RIGHT,
    "AuthorizationResourceTypeMismatch": _config(
        "the SAS does not cover this type of resource: an account SAS needs srt=co (container, object)"
    ),
    "AuthorizationServiceMismatch": _config("the SAS is for another service: an account SAS needs ss=b (blob)"),
    "AuthorizationProtocolMismatch": _config("the SAS is for https only: write https:// in the url"),
    "AuthorizationSourceIPMismatch": _config("the SAS does not allow this machine's address: make one with another address range (sip)"),
    "AuthorizationFailure": _NETWORK,
    "IpAuthorizationError": _NETWORK,
    "AuthenticationFailed": _BAD_CREDENTIAL,
    "InvalidAuthenticationInfo": _BAD_CREDENTIAL,
    "KeyBasedAuthenticationNotPermitted": _config(
        f"the account does not permit keys: leave the *_env options out and give the identity the role {READER_ROLE!r}"
    ),
    "NoAuthenticationInformation": _config("no credential was sent and the container is not public: see the credential options"),
    "PublicAccessNotPermitted": _config("no credential was sent and the account forbids public access: see the credential options"),
    "AccountIsDisabled": _DISABLED,
    "ContainerDisabled": _DISABLED,
    "ContainerNotFound": _NO_CONTAINER,
    "ContainerBeingDeleted": _NO_CONTAINER,
    "FilesystemNotFound": _NO_CONTAINER,
    "BlobUsesCustomerSpecifiedEncryption": _OWN_KEY,
    "BlobDoesNotUseCustomerSpecifiedEncryption": _OWN_KEY,
    "BlobArchived": _ARCHIVED,
    "BlobBeingRehydrated": _ARCHIVED,
}
