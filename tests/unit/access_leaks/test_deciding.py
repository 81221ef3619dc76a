"""Leaks by how it is decided who reads what: rows 4, 8 to 11, 22 to 24 of the catalogue of leaks (access reference, section 12)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragstore.errors import AccessError
from ragstore.index import AsyncIndex
from ragstore.models import Principal
from ragstore.retrieval.candidates import Candidates
from tests.support.azure_files import BLOBS, EVERYONE, assigned, container
from tests.support.vault import CANARY, HIDDEN, OPEN, PATH, PROJECT, Vault, asked, blobs, readable, with_all_indexes

KEYS = f"@Resource[{BLOBS}/tags&$keys$&]"
OTHER = f"@Resource[{BLOBS}/tags:Other<$key_case_sensitive$>]"
SCOPE = "@Resource[Microsoft.Storage/storageAccounts/encryptionScopes:name]"
MINE = "@Principal[Microsoft.Directory/CustomSecurityAttributes/Id:Engineering_Project]"
PRIVATE = "@Environment[isPrivateLink]"
READ = f"ActionMatches{{'{BLOBS}/read'}}"

TAGS = {"a": {"Project": "Cascade"}, "b": {"Project": "Baker"}, "c": {}, "d": {"Other": "Cascade"}, "e": {"Project": ""}}
"""The documents of the tests on what is missing; `c` has no tags at all."""

CONDITIONS = [
    (f"{PROJECT} StringEquals 'Cascade'", "a"),
    (f"{PROJECT} StringNotEquals 'Cascade'", "be"),
    (f"{PROJECT} StringNotEqualsIgnoreCase 'CASCADE'", "be"),
    (f"NOT ({PROJECT} StringEquals 'Cascade')", "be"),
    (f"NOT (NOT ({PROJECT} StringNotEquals 'Cascade'))", "be"),
    (f"{PROJECT} StringNotLike 'Cas*'", "be"),
    (f"{PROJECT} StringNotStartsWith 'Cas'", "be"),
    (f"NOT ({PROJECT} StringLike '*')", ""),
    (f"{PROJECT} ForAllOfAnyValues:StringEquals {{'Baker', 'x'}}", "b"),
    (f"{PROJECT} ForAllOfAllValues:StringNotEquals {{'Cascade', 'x'}}", "be"),
    (f"NOT ({PROJECT} ForAnyOfAnyValues:StringEquals {{'Cascade', 'x'}})", "be"),
    (f"{KEYS} ForAllOfAnyValues:StringEquals {{'Project'}}", "abe"),
    (f"{KEYS} ForAllOfAllValues:StringNotEquals {{'Secret'}}", "abde"),
    (f"NOT ({KEYS} ForAnyOfAnyValues:StringEquals {{'Secret'}})", "abde"),
    (f"{PROJECT} NumericNotEquals 5", ""),
    (f"NOT ({PROJECT} NumericGreaterThan 5)", ""),
    (f"NOT ({PROJECT} BoolEquals true)", ""),
    (f"{SCOPE} StringNotEquals 'x'", ""),
    (f"NOT ({PRIVATE} BoolEquals true)", ""),
    (f"{MINE} StringEquals {PROJECT}", ""),
    (f"{MINE} StringNotEquals {PROJECT}", ""),
    (f"NOT ({MINE} StringEquals {PROJECT})", ""),
    (f"{OTHER} StringEquals {PROJECT}", ""),
    (f"{OTHER} StringNotEquals {PROJECT}", ""),
    (f"Exists {PROJECT}", "abe"),
    (f"NOT Exists {PROJECT}", "cd"),
    (f"NOT Exists {PROJECT} OR {PROJECT} StringNotEquals 'Cascade'", "bcde"),
    (f"(Exists {MINE} OR Exists {SCOPE}) OR Exists {PRIVATE}", ""),
]


def missing(base: Path, store: str) -> Vault:
    """The vault with the documents of `TAGS`."""
    vault = Vault(base, mode="azure", store=store)
    for name, tags in TAGS.items():
        vault.write(name, f"The merger of {name}", allow=None)
        vault.tags[name] = dict(tags)
    vault.save_tags()
    return vault


async def proposed(index: AsyncIndex, vault: Vault, who: str, legs: str) -> tuple[set[str], bool]:
    """What the store alone answers under the filter of this person, before any check, and whether the filter is exact."""
    assembly = index._assembly
    scope = assembly.policy.filter_for(index.principal(who))
    embedder, store = assembly.reading()
    query = Candidates(store=store, embedder=embedder, query="merger", filter=scope.filter, legs=legs, fusion="rrf")  # type: ignore[arg-type]  # one of the legs
    committed = assembly.ledger.documents.committed([chunk for chunk, _ in await query.best(50)])
    return {chunk.blob.name for chunk in committed.values()}, scope.exact


# 4. Access control that is switched on and lets everybody in by a word.


async def test_no_word_stands_for_everybody(store: str, tmp_path: Path) -> None:
    words = ["*", "everyone", "Everyone", "all", "any", "public", "anonymous", "authenticated", "null", "none", "[]", "true", EVERYONE]
    vault = Vault(tmp_path, mode="groups", store=store)
    for number, word in enumerate(words):
        vault.write(f"{number}.md", f"The merger {number}", allow=word)
    async with vault.open() as index:
        await index.sync()
        for who in ("Ada", "Bob", "Eve"):
            assert await readable(index, vault, who) == set()


async def test_no_assignment_stands_for_everybody(store: str, tmp_path: Path) -> None:
    vault = Vault(tmp_path, mode="azure", store=store)
    vault.fill()
    vault.assign(*(assigned(word) for word in ("*", "all", "", " ", "null", EVERYONE)), {}, {"principalId": None}, [], "staff")
    async with vault.open() as index:
        await index.sync()
        for who in ("Ada", "Bob", "Eve"):
            assert await readable(index, vault, who) == set()


# 8. What is missing counts as allowed.


async def test_a_blob_without_attributes_is_nobodys(vault: Vault) -> None:
    vault.put("bare.md", f"The merger of the {CANARY}", readers="nobody")
    async with vault.open() as index:
        await index.sync()
        assert await readable(index, vault, "Bob") == OPEN
        everything = await readable(index, vault, "Ada")
        assert ("docs/bare.md" in everything) is (vault.mode != "groups")  # there Ada's assignment has no condition


# 9. A negation is true of what is missing. Asked of the store itself, too, with and without indexes.


@pytest.mark.parametrize("kind", ["memory", "lancedb", "lancedb with all indexes"])
async def test_neither_a_comparison_nor_its_negation_is_true_of_what_is_missing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _, indexed = kind.partition(" ")
    if indexed:
        with_all_indexes(monkeypatch)
    vault = missing(tmp_path, store)
    async with vault.open() as index:
        await index.sync()
        if indexed:
            assert {"labels", "label_keys", "path", "terms"} <= set(str((await vault.watched.stats()).detail["indexes"]).split(", "))
        for condition, names in CONDITIONS:
            vault.assign(assigned("staff", condition=condition))
            expected = {f"docs/{name}" for name in names}
            assert await readable(index, vault, "Bob") == expected, condition
            for legs in ("vector", "text"):
                answer, exact = await proposed(index, vault, "Bob", legs)
                assert answer == expected if exact else answer >= expected, (condition, legs)


@pytest.mark.parametrize(
    ("narrowed", "names"),
    [
        ("tag.Project != 'Cascade'", "be"),
        ("not tag.Project = 'Cascade'", "be"),
        ("tag.Project not in ('Cascade', 'x')", "be"),
        ("not tag.Project starts with 'Cas'", "be"),
        ("not tag.Project > 5", ""),
        ("tag.Project exists", "abe"),
        ("not tag.Project exists", "cd"),
        ("metadata.x != 'y'", ""),
    ],
)
async def test_a_filter_of_the_caller_takes_nothing_missing_for_different(store: str, tmp_path: Path, narrowed: str, names: str) -> None:
    vault = missing(tmp_path, store)
    vault.assign(assigned("staff"))
    async with vault.open() as index:
        await index.sync()
        assert await blobs(index, "merger", "Bob", filter=narrowed) == {f"docs/{name}" for name in names}


# 10. An index that does not cover new rows lets them through.


async def test_rows_that_came_after_the_indexes_are_filtered_as_all_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_all_indexes(monkeypatch)
    vault = Vault(tmp_path, mode="azure", store="lancedb")
    vault.fill()
    async with vault.open() as index:
        await index.sync()
        vault.put("late/open.md", "The merger of late", readers="staff")
        vault.put(f"late/{CANARY}.md", f"The merger of the late {CANARY}", readers="board")
        vault.put("late/bare.md", "The merger without a tag", readers="nobody")
        vault.tag("open/rooms.md", readers="board")
        await index.sync()
        detail = (await vault.watched.stats()).detail
        assert int(detail["unindexed_rows"]) > 0
        assert "labels" in str(detail["indexes"])
        expected = {"docs/open/food.md", "docs/late/open.md"}
        for condition in (f"{PROJECT} StringEquals 'Open'", f"{PROJECT} StringNotEquals '{CANARY} project'"):
            vault.assign(assigned("staff", condition=condition))
            for legs in ("vector", "text"):
                assert await proposed(index, vault, "Bob", legs) == (expected, True)
                assert {hit.blob for hit in await asked(index, f"merger {CANARY}", "Bob", legs=legs)} == expected


# 11. The filter grants more than the policy.


async def test_an_attribute_that_the_principal_lacks_makes_no_filter_that_grants(store: str, tmp_path: Path) -> None:
    vault = missing(tmp_path, store)
    bob = Principal(id="bob", name="Bob", groups=frozenset({"staff"}))
    cases: list[tuple[str, dict[str, tuple[str | int | bool, ...]], str]] = [
        (f"{PROJECT} ForAnyOfAnyValues:StringEquals {MINE}", {}, ""),
        (f"{PROJECT} ForAnyOfAnyValues:StringEquals {MINE}", {"Engineering_Project": ()}, ""),
        (f"{PROJECT} ForAnyOfAnyValues:StringEquals {MINE}", {"Engineering_Project": ("Cascade", "Baker")}, "ab"),
        (f"{PROJECT} ForAllOfAllValues:StringNotEquals {MINE}", {"Engineering_Project": ()}, ""),
        (f"{PROJECT} ForAllOfAllValues:StringNotEquals {MINE}", {"Engineering_Project": ("Cascade",)}, "be"),
        (f"{PROJECT} StringEquals {MINE}", {"Engineering_Project": ("Cascade", "Baker")}, ""),
        (f"{PROJECT} StringEquals {MINE}", {"Engineering_Project": (5,)}, ""),
    ]
    async with vault.open() as index:
        await index.sync()
        for condition, attributes, names in cases:
            vault.assign(assigned("staff", condition=condition))
            asking = Principal(id=bob.id, name=bob.name, groups=bob.groups, attributes=attributes)
            hits = await index.search("merger", principal=asking, limit=50)
            assert {hit.blob for hit in hits} == {f"docs/{name}" for name in names}, (condition, attributes)


# 22. Case.


async def test_case_is_the_operators_and_never_the_stores(store: str, tmp_path: Path) -> None:
    vault = Vault(tmp_path, mode="azure", store=store)
    names = {"hr/1": "Cascade", "HR/2": "cascade", "Hr/3": "\u212aelvin", "hR/4": "kelvin", "x/5": "stra\u00dfe", "x/6": "STRASSE"}
    for path, project in names.items():
        vault.write(path, f"The merger of {path}", allow=None)
        vault.tags[path] = {"Project": project}
    vault.tags["x/6"]["project"] = "Cascade"  # another key: keys have case
    vault.save_tags()
    cases = [
        (f"{PROJECT} StringEquals 'Cascade'", ["hr/1"]),
        (f"{PROJECT} StringEquals 'CASCADE'", []),
        (f"{PROJECT} StringEqualsIgnoreCase 'CASCADE'", ["hr/1", "HR/2"]),
        (f"{PROJECT} StringEqualsIgnoreCase 'KELVIN'", ["hR/4"]),
        (f"{PROJECT} StringEqualsIgnoreCase '\u212aELVIN'", ["Hr/3"]),
        (f"{PROJECT} StringEqualsIgnoreCase 'strasse'", ["x/6"]),
        (f"{PROJECT} StringEqualsIgnoreCase 'STRA\u00dfE'", ["x/5"]),
        (f"{PROJECT} StringLikeIgnoreCase 'k*'", ["hR/4"]),
        (f"{PATH} StringStartsWith 'hr/'", ["hr/1"]),
        (f"{PATH} StringLike 'HR/*'", ["HR/2"]),
        (f"{PATH} StringStartsWithIgnoreCase 'hr/'", ["hr/1", "HR/2", "Hr/3", "hR/4"]),
        (f"@Resource[{BLOBS.rpartition('/')[0]}:name] StringEquals 'DOCS'", []),
    ]
    async with vault.open() as index:
        await index.sync()
        for condition, paths in cases:
            vault.assign(assigned("staff", condition=condition))
            assert await readable(index, vault, "Bob") == {f"docs/{path}" for path in paths}, condition
        vault.assign(assigned("staff"))
        for narrowed, paths in (
            ("path starts with 'hr/'", ["hr/1"]),
            ("tag.Project = 'cascade'", ["HR/2"]),
            ("tag.project exists", ["x/6"]),
        ):
            assert await blobs(index, "merger", "Bob", filter=narrowed) == {f"docs/{path}" for path in paths}, narrowed


async def test_a_list_of_ids_and_its_key_have_case(store: str, tmp_path: Path) -> None:
    vault = Vault(tmp_path, mode="groups", store=store)
    for number, tags in enumerate(
        ({"allow": "Staff"}, {"allow": "STAFF"}, {"Allow": "staff"}, {"allow": "\u017ftaff"}, {"allow": "staff"})
    ):
        vault.write(f"{number}.md", f"The merger {number}", allow=None)
        vault.tags[f"{number}.md"] = tags
    vault.save_tags()
    async with vault.open() as index:
        await index.sync()
        assert await readable(index, vault, "Bob") == {"docs/4.md"}


# 23. Groups that did not fit into the token.


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"hasgroups": True},
        {"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"endpoint": "https://graph.example/"}}},
        {"groups": ["5a1b2c3d-0000-4000-8000-00000000000a"], "hasgroups": "true"},
        {"groups": None},
        {"groups": "staff"},
        {"groups": ["Staff"]},
    ],
)
async def test_a_token_that_does_not_say_all_groups_is_no_principal(vault: Vault, claims: dict[str, object]) -> None:
    async with vault.open() as index:
        with pytest.raises(AccessError):
            await index.principal_of_claims({"oid": "0a1b2c3d-0000-4000-8000-00000000000f", "name": "Ada", **claims})


# 24. Traps of the language of policies.


@pytest.mark.parametrize(
    "guard",
    [
        f"!({READ} AND NOT SubOperationMatches{{'Blob.List'}})",
        f"!({READ} AND SubOperationMatches{{'Blob.Read.WithTagConditions'}})",
        f"!({READ} AND @Request[subOperation] ForAnyOfAnyValues:StringEqualsIgnoreCase {{'Blob.Read.WithTagConditions'}})",
        f"!({READ})",
        "!(ActionMatches{'Microsoft.Storage/*/READ'})",
        "!(ActionMatches{'*'})",
    ],
)
async def test_a_guard_in_any_form_binds_the_reading_of_content(store: str, tmp_path: Path, guard: str) -> None:
    vault = Vault(tmp_path, mode="azure", store=store)
    vault.fill()
    vault.assign(assigned("staff", condition=f"({guard} OR {PROJECT} StringEquals 'Open')"))
    async with vault.open() as index:
        await index.sync()
        assert await readable(index, vault, "Bob") == OPEN


async def test_an_assignment_that_undoes_the_condition_of_another_is_named(store: str, tmp_path: Path) -> None:
    vault = Vault(tmp_path, mode="azure", store=store)
    vault.fill()
    vault.assign(assigned("staff", condition=f"{PROJECT} StringEquals 'Open'"), assigned("bob", scope=container("docs")))
    async with vault.open() as index:
        await index.sync()
        assert await blobs(index, "merger", "Bob") == OPEN | HIDDEN  # as Azure has it: assignments add up
        standing = await index.explain(min(HIDDEN), principal=index.principal("Bob"))
        [grants] = [reason for reason in standing.explanation.reasons if reason.outcome == "grants"]
        assert (grants.via, grants.condition) == ("the principal itself", None)


# A condition that cannot be used.


@pytest.mark.parametrize(
    "change",
    [
        {"condition": "x"},
        {"condition": ""},
        {"condition": " "},
        {"condition": f"{PROJECT} StringEquals \u2018Open\u2019"},
        {"condition": f"{PROJECT} StringEquals 'Open' OR"},
        {"condition": f"{PROJECT} StringEquals 'Open' AND {PATH} StringLike '*' OR {PATH} StringLike '*'"},
        {"condition": f"{PROJECT} Equals 'Open'"},
        {"condition": "@Anything[x] StringNotEquals 'Open'"},
        {"condition": f"@Resource[{BLOBS}:unknown] StringNotEquals 'Open'"},
        {"condition": "(" * 200 + f"{PATH} StringLike '*'" + ")" * 200},
        {"condition": f"{PATH} StringLike '*' OR {PATH} StringLike '{'x' * 9_000}'"},
        {"condition": 5},
        {"condition": [f"{PATH} StringLike '*'"]},
        {"conditionVersion": "1.0"},
        {"conditionVersion": None},
        {"conditon": None},
        {"scope": None},
        {"roleDefinitionId": None},
        {"roleDefinitionId": "Storage Blob Data Reader"},
        {"principalId": ["staff"]},
    ],
)
async def test_an_assignment_that_cannot_be_used_grants_nothing_and_the_others_count(tmp_path: Path, change: dict[str, object]) -> None:
    vault = Vault(tmp_path, mode="azure")
    vault.fill()
    broken = {**assigned("staff", condition=f"{PATH} StringLike '*'"), **change}
    vault.assign(broken, assigned("staff", condition=f"{PATH} StringEquals 'open/food.md'"))
    async with vault.open() as index:
        await index.sync()
        assert await readable(index, vault, "Bob") == {"docs/open/food.md"}
