"""The access attributes of a blob in, what a condition may ask of it as `@Resource` out."""

from __future__ import annotations

from ragstore.access.conditions.tree import (
    ACCOUNT,
    CONTAINER,
    CURRENT_VERSION,
    ENCRYPTION_SCOPE,
    HIERARCHICAL,
    PATH,
    AttributeValue,
)
from ragstore.models import AccessAttributes


def resource_of(attributes: AccessAttributes) -> tuple[dict[str, AttributeValue], dict[str, str]]:
    """`Context.resource` and `Context.tags` of a blob.

    An account with a hierarchical namespace has ACLs and no index tags (Azure does not support them there), so that tags beside an ACL
    are not the service's and count as missing. Without an ACL it is not known whether the account has such a namespace: the attribute is
    missing, not false. Blob metadata is no part of conditions; the container's is not read.
    """
    resource: dict[str, AttributeValue] = {
        ACCOUNT: attributes.account,
        CONTAINER: attributes.container,
        PATH: attributes.path,
        CURRENT_VERSION: attributes.is_current_version,
    }
    if attributes.encryption_scope is not None:
        resource[ENCRYPTION_SCOPE] = attributes.encryption_scope
    if attributes.acl is not None:
        resource[HIERARCHICAL] = True
        return resource, {}
    return resource, dict(attributes.tags)
