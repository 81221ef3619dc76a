from __future__ import annotations

import time
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragstore.errors import ConfigError
from ragstore.globs import Globs, compile_glob


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("**", "", True),
        ("**", "a/b/c.md", True),
        ("*.md", "a.md", True),
        ("*.md", "docs/a.md", False),
        ("**/*.md", "a.md", True),
        ("**/*.md", "x/y/a.md", True),
        ("**/*.md", "x/y/a.mdx", False),
        ("docs/**", "docs/a", True),
        ("docs/**", "docs/a/b", True),
        ("docs/**", "docs", False),
        ("docs/**", "mydocs/a", False),
        ("docs/**/x", "docs/x", True),
        ("docs/**/x", "docs/a/b/x", True),
        ("docs/**/x", "docs/ax", False),
        ("**/a/**/b/**", "a/b/c", True),
        ("**/a/**/b/**", "x/a/y/b/c/d", True),
        ("**/a/**/b/**", "x/b/y/a/c", False),
        ("**/**/x", "x", True),
        ("a*b*c", "aXbYbc", True),
        ("a*b*c", "aXbYb", False),
        ("a*b", "a/b", False),
        ("a**b", "aXXb", True),
        ("a**b", "a/b", False),
        ("?.md", "é.md", True),
        ("?.md", "/.md", False),
        ("a/*/b", "a//b", True),
        ("[a-c]x", "bx", True),
        ("[!a-c]x", "bx", False),
        ("[^a-c]x", "dx", True),
        ("[!a-c]x", "/x", False),
        ("[+-9]x", "/x", False),
        ("[]]x", "]x", True),
        ("[a-]x", "-x", True),
        ("[[]x", "[x", True),
        ("[*]", "*", True),
        ("[*]", "a", False),
        ("a\\b", "a\\b", True),
        ("a.b+c(d)|e$", "a.b+c(d)|e$", True),
        ("a.b", "aXb", False),
        ("*.MD", "a.md", False),
        ("*", "line\nbreak", True),
        ("**/*.md", "line\nbreak/a.md", True),
        ("a", "a\n", False),
        ("é", "e\u0301", False),
    ],
)
def test_a_pattern_matches_what_it_says(pattern: str, path: str, *, expected: bool) -> None:
    assert (compile_glob(pattern).fullmatch(path) is not None) is expected


@pytest.mark.parametrize(
    ("pattern", "remedy"),
    [
        ("", "leave it out"),
        ("/docs/**", "'docs/**'"),
        ("docs/", "'docs/**'"),
        ("a[bc", "without its ']'"),
        ("a[b/c]", "]"),
        ("[z-a]", "z-a"),
    ],
)
def test_a_pattern_that_cannot_mean_what_it_says_is_refused_with_a_remedy(pattern: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compile_glob(pattern)
    assert remedy in str(caught.value)


def test_no_include_admits_everything() -> None:
    assert Globs().admits("any/thing")


def test_an_include_admits_only_what_matches() -> None:
    globs = Globs(include=("docs/**", "*.md"))
    assert [path for path in ("docs/a", "b.md", "src/c.md") if globs.admits(path)] == ["docs/a", "b.md"]


def test_an_exclude_wins_over_an_include() -> None:
    assert not Globs(include=("docs/**",), exclude=("**/*.tmp",)).admits("docs/a.tmp")


def test_a_folder_is_pruned_only_where_everything_below_it_is_excluded() -> None:
    globs = Globs(exclude=("**/node_modules/**", "drafts/*"))
    assert globs.prunes("web/node_modules")
    assert globs.prunes("node_modules")
    assert not globs.prunes("drafts")
    assert not globs.prunes("web")


def test_globs_with_the_same_patterns_are_equal_values() -> None:
    assert Globs(include=("a",)) == Globs(include=("a",))
    assert hash(Globs(include=("a",))) == hash(Globs(include=("a",)))
    assert Globs(include=("a",)) != Globs(exclude=("a",))


@pytest.mark.parametrize("pattern", ["*a" * 30 + "b", "**/*a*/" * 12 + "b", "**/a/" * 20 + "b", "[a-z]*" * 30 + "B"])
def test_no_pattern_is_slow_on_a_hostile_name(pattern: str) -> None:
    compiled = compile_glob(pattern)
    started = time.perf_counter()
    for path in ("a" * 1024, "a/" * 512, "aa/" * 340 + "c"):
        compiled.fullmatch(path)
    assert time.perf_counter() - started < 1.0


def test_a_hundred_thousand_paths_take_well_under_a_second() -> None:
    globs = Globs(include=("**/*.md", "docs/**"), exclude=("**/node_modules/**", "**/.*"))
    paths = [f"docs/section-{n % 97}/page-{n}/file-{n}.md" for n in range(100_000)]
    started = time.perf_counter()
    assert sum(map(globs.admits, paths)) == 100_000
    assert time.perf_counter() - started < 2.0  # about 0.2 s on an idle machine


segments = st.lists(st.sampled_from(["*", "?", "a", "b", "[ab]", "[!a]"]), max_size=5).map("".join)
patterns = st.lists(st.one_of(segments, st.just("**")), min_size=1, max_size=5).map("/".join)
paths = st.text("ab/", max_size=9)


@given(patterns.filter(lambda text: text and not text.startswith("/") and not text.endswith("/")), paths)
def test_the_expression_agrees_with_the_plain_recursive_meaning(pattern: str, path: str) -> None:
    assert (compile_glob(pattern).fullmatch(path) is not None) is plainly_matches(pattern, path)


def plainly_matches(pattern: str, path: str) -> bool:
    """The definition, written down without regard to speed."""
    globs, names = tuple(pattern.split("/")), tuple(path.split("/"))

    @cache
    def from_here(g: int, n: int) -> bool:
        if g == len(globs):
            return n == len(names)
        if globs[g] == "**":
            # At the end it is everything below, which is at least one segment, though that may be empty.
            if g == len(globs) - 1:
                return n < len(names)
            return any(from_here(g + 1, k) for k in range(n, len(names)))
        return n < len(names) and segment_matches(globs[g], names[n]) and from_here(g + 1, n + 1)

    return from_here(0, 0)


def segment_matches(glob: str, name: str) -> bool:
    if not glob:
        return not name
    if glob[0] == "*":
        return any(segment_matches(glob[1:], name[at:]) for at in range(len(name) + 1))
    if glob.startswith("["):
        inside, rest = glob[1 : glob.index("]")], glob[glob.index("]") + 1 :]
        wanted = {"ab": "ab", "!a": "b"}[inside]
        return bool(name) and name[0] in wanted and segment_matches(rest, name[1:])
    return bool(name) and (glob[0] == "?" or glob[0] == name[0]) and segment_matches(glob[1:], name[1:])
