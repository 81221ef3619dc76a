"""A file of principals and a name in, the one principal that it means out; an unknown or ambiguous name is an error."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ragstore.access.attributes import ATTRIBUTE_PREFIX, parse_attributes, short_name
from ragstore.access.azure.documents import load_json
from ragstore.access.conditions.tree import AttributeValue
from ragstore.access.ids import ID_RULE, parse_id, shorten
from ragstore.access.watched import WatchedFile
from ragstore.errors import AccessError, ConfigError
from ragstore.models import Principal

LOCAL_PRINCIPAL: Final = Principal(id="local", name="local")
"""Who asks in mode `open` when nobody is named: the user of this machine."""

_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_KEYS: Final = ("id", "name", "groups", "attributes")
_HOW: Final = 'write who asks into the file of [access] principals: [{"id": "ada", "name": "Ada", "groups": ["staff"]}]'


class Principals:
    """The known principals, found by id or by name. A file is read again when it changes (`access.watched`)."""

    def __init__(self, source: Iterable[Principal] | WatchedFile[tuple[Principal, ...]] = ()) -> None:
        self._source = source if isinstance(source, WatchedFile) else tuple(source)

    @classmethod
    def load(cls, file: Path) -> Principals:
        """Those of a JSON file: a list of `{"id", "name", "groups", "attributes"}`, or an object with that list as `principals`.

        `name` is the id where it is missing; `groups` are ids and transitive; for `attributes` see `access.attributes.parse_attributes`.
        Raises `ConfigError` that names the entry: not JSON, no valid id, an id twice, a group that is no id, an attribute that is none,
        an environment, which is for the host to vouch for with each request.
        """
        return cls(WatchedFile(file, lambda data: parse_principals(data, file=file)))

    def all(self) -> tuple[Principal, ...]:
        """Every known principal in the order of the file. Raises `AccessError` where the file has become unreadable."""
        return self._source.current() if isinstance(self._source, WatchedFile) else self._source

    def get(self, name_or_id: str) -> Principal:
        """The principal with this id (a GUID in any case), or else with this name. Raises `ConfigError` for none, and for more than one.

        An id comes first, because people choose their names: a name must neither take over an id nor make it ambiguous.
        """
        known = self.all()
        wanted = parse_id(name_or_id)
        found = [principal for principal in known if wanted is not None and principal.id == wanted]
        found = found or [principal for principal in known if principal.name == name_or_id]
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(principal.id for principal in found)
            raise ConfigError(f"the principal {shorten(name_or_id)} is ambiguous: name it by its id ({ids})")
        if not known:
            raise ConfigError(f"the principal {shorten(name_or_id)} is unknown, because nobody is listed: {_HOW}")
        near = difflib.get_close_matches(name_or_id[:200], [principal.name for principal in known], n=1)
        hint = f"did you mean {shorten(near[0])}?" if near else "name one by its id or name in the file of [access] principals"
        raise ConfigError(f"the principal {shorten(name_or_id)} is unknown; {hint}")


def open_principals(settings: Mapping[str, object], base: Path) -> Principals:
    """The principals that the `[access]` table names (`principals = "FILE"`, from the folder `base`), or none."""
    file = settings.get("principals")
    if file is None:
        return Principals()
    if not isinstance(file, (str, Path)) or not str(file):
        raise ConfigError("[access] principals must be the name of a JSON file")
    return Principals.load(base / file)


def principal_for(mode: str, principals: Principals, name: str | None) -> Principal:
    """Who asks. In mode `open` any name will do, and None is the local principal; in every other mode the name must be known.

    Raises `ConfigError`: a missing or unknown principal is an error, never an empty or a full result.
    """
    if mode != "open":
        if name is None or not name.strip():
            raise ConfigError(f"access mode {mode!r} needs a principal: name who asks (`--as PRINCIPAL`)")
        return principals.get(name)
    if name is None:
        return LOCAL_PRINCIPAL
    if not name.strip():
        raise ConfigError("the name of the principal is blank: name who asks, or leave it out")
    everybody = principals.all()
    known = [principal for principal in everybody if principal.id == name] or [one for one in everybody if one.name == name]
    return known[0] if len(known) == 1 else Principal(id=parse_id(name) or name, name=name)


def condition_attributes(principal: Principal) -> dict[str, AttributeValue]:
    """The custom security attributes under the full names that conditions use; one value stands alone, several are a list.

    An attribute without values is left out: in the directory, an empty list is how an assignment is taken back. Raises `AccessError`
    where one attribute is there under two names (`SET_NAME` and the full one, or in another case), since nothing says which counts.
    """
    found: dict[str, AttributeValue] = {}
    seen: set[str] = set()
    for key, values in principal.attributes.items():
        name = short_name(key)
        if name.lower() in seen:
            raise AccessError(f"the attribute {shorten(name)} of the principal is there twice; give it once")
        seen.add(name.lower())
        if values:
            found[ATTRIBUTE_PREFIX + name] = values[0] if len(values) == 1 else values
    return found


def access_digest(principal: Principal) -> str:
    """32 hex digits for all of a principal that a decision may look at: id, groups, attributes, environment. For keys of caches.

    The same in every process, whatever the order of groups and keys. The name is left out, because it decides nothing.
    """
    groups = "\n".join(sorted(principal.groups))
    plain = groups.count("\n") == max(0, len(principal.groups) - 1)  # an id has no line break; JSON of some hundreds takes too long here
    facts = [principal.id, len(principal.groups), plain, dict(principal.attributes), dict(principal.environment)]
    text = f"{_CANONICAL.encode(facts)}\n{groups if plain else _CANONICAL.encode(sorted(principal.groups))}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def parse_principals(data: bytes, *, file: Path) -> tuple[Principal, ...]:
    """The principals in this JSON text. Raises `ConfigError` as `Principals.load` says."""
    try:
        document = load_json(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"principals {str(file)!r} cannot be read: {error}") from error
    entries = document.get("principals") if isinstance(document, dict) else document
    if not isinstance(entries, list):
        raise ConfigError(f"principals {str(file)!r} must hold a list, or an object with a list named 'principals'")
    found: dict[str, Principal] = {}
    for number, entry in enumerate(entries, start=1):
        place = f"principals {str(file)!r}, entry {number}"
        principal = _principal(entry, place)
        if principal.id in found:
            raise ConfigError(f"{place}: the id {principal.id!r} is there twice")
        found[principal.id] = principal
    return tuple(found.values())


def _principal(entry: object, place: str) -> Principal:
    if not isinstance(entry, dict):
        raise ConfigError(f'{place} must be an object: {{"id": "alice", "name": "Alice", "groups": ["staff"]}}')
    for key in entry:
        near = difflib.get_close_matches(key, _KEYS, n=1, cutoff=0.75) if key not in _KEYS else []
        if near:
            # A directory export may carry more than we read, but a misspelt key would silently grant nothing.
            raise ConfigError(f"{place}: unknown key {shorten(key)}; did you mean {near[0]!r}?")
    own = _id(entry.get("id"), f"{place}: id")
    name = entry.get("name", own)
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"{place}: name must be text")
    if "environment" in entry:
        raise ConfigError(f"{place}: an environment is what the host vouches for with each request (`Principal.environment`); take it out")
    groups = entry.get("groups", [])
    attributes = entry.get("attributes", {})
    if not isinstance(groups, list):
        raise ConfigError(f"{place}: groups must be a list of ids")
    if not isinstance(attributes, dict):
        raise ConfigError(f"{place}: attributes must be an object")
    try:
        known = parse_attributes(attributes)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from error
    return Principal(
        id=own,
        name=name,
        groups=frozenset(_id(group, f"{place}: group {index}") for index, group in enumerate(groups, start=1)),
        attributes=known,
    )


def _id(value: object, place: str) -> str:
    parsed = parse_id(value) if isinstance(value, str) else None
    if parsed is None:
        shown = shorten(value) if isinstance(value, str) else type(value).__name__
        raise ConfigError(f"{place} is {shown}, which is no id: {ID_RULE}")
    return parsed
