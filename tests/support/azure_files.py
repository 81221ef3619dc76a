"""Role assignments as the Azure CLI and ARM write them, and policies over files of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ragstore.access.acl import acl_text
from ragstore.access.acl_table import AclTable
from ragstore.access.azure.policy import AzurePolicy
from ragstore.filters import matches
from ragstore.models import AccessAttributes, Principal

READER: Final = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
CONTRIBUTOR: Final = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
OWNER: Final = "b7e6dc6d-f1e8-4753-8033-0f276bb0955b"
EVERYONE: Final = "00000000-0000-0000-0000-000000000000"
BLOBS: Final = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
OPEN_FILE: Final = "user::rw-,user:alice:r--,group::---,mask::r--,other::---"
CLOSED_FILE: Final = "user::rw-,group::---,other::---"
SUBSCRIPTION: Final = "/subscriptions/11111111-0000-4000-8000-000000000001"
GROUP: Final = f"{SUBSCRIPTION}/resourceGroups/rg"


def account(name: str = "local") -> str:
    """The id of a storage account."""
    return f"{GROUP}/providers/Microsoft.Storage/storageAccounts/{name}"


def container(name: str, account_name: str = "local") -> str:
    """The scope of a container."""
    return f"{account(account_name)}/blobServices/default/containers/{name}"


def assigned(
    principal: str, role: str = READER, *, scope: str | None = None, condition: str | None = None, name: str | None = None
) -> dict[str, object]:
    """As `az role assignment list` writes it."""
    where = account() if scope is None else scope
    guid = name or "99999999-0000-4000-8000-000000000000"
    return {
        "canDelegate": None,
        "condition": condition,
        "conditionVersion": None if condition is None else "2.0",
        "id": f"{where}/providers/Microsoft.Authorization/roleAssignments/{guid}",
        "name": guid,
        "principalId": principal,
        "roleDefinitionId": f"{SUBSCRIPTION}/providers/Microsoft.Authorization/roleDefinitions/{role}",
        "scope": where,
    }


def denied(
    *principals: str,
    scope: str | None = None,
    excluded: Sequence[str] = (),
    actions: Sequence[str] = ("*",),
    condition: str | None = None,
) -> dict[str, object]:
    """As ARM's REST API writes it; without principals it denies everyone."""
    where = account() if scope is None else scope
    return {
        "id": f"{where}/providers/Microsoft.Authorization/denyAssignments/88888888-0000-4000-8000-000000000000",
        "properties": {
            "permissions": [{"actions": [], "notActions": [], "dataActions": list(actions), "notDataActions": []}],
            "principals": [{"id": own, "type": "User"} for own in principals or (EVERYONE,)],
            "excludePrincipals": [{"id": own, "type": "User"} for own in excluded],
            "scope": where,
            "doNotApplyToChildScopes": False,
            "condition": condition,
            "conditionVersion": None if condition is None else "2.0",
        },
    }


def policy_of(
    folder: Path,
    assignments: Sequence[object],
    *,
    deny: Sequence[object] | None = None,
    roles: Sequence[object] | None = None,
    accounts: Sequence[str] = (),
    acls: Callable[[], AclTable] | None = None,
    clock: Callable[[], int] | None = None,
) -> AzurePolicy:
    """The policy over files with these entries in a folder; None is no file."""
    contents = {"assignments": assignments, "deny": None if deny is None else {"value": deny}, "roles": roles}
    files: dict[str, Path | None] = {}
    for name, content in contents.items():
        file = folder / f"{name}.json"
        files[name] = None if content is None else file
        if content is not None:
            file.write_text(json.dumps(content), encoding="utf-8")
    given = files["assignments"]
    assert given is not None
    options = {} if clock is None else {"clock": clock}
    return AzurePolicy(
        assignments=given, deny_assignments=files["deny"], role_definitions=files["roles"], accounts=accounts, acls=acls, **options
    )


def reads(policy: AzurePolicy, principal: Principal, attributes: AccessAttributes) -> bool:
    """What `grants` says, after the filter was found to agree."""
    granted = policy.grants(principal, attributes)
    scope = policy.filter_for(principal)
    admitted = matches(scope.filter, policy.columns(attributes, media_type="text/plain"))
    assert admitted or not granted
    assert granted or not admitted or not scope.exact
    return granted


def acl(entries: str) -> str:
    """The ACL of a file or of a folder that belongs to none of the principals here."""
    return acl_text(owner="someone", group="somegroup", permissions=None, acl=entries)
