"""The names in one folder as the file system gives them in; names that can be stored and shown out."""

from __future__ import annotations

from collections.abc import Iterable


def is_unicode(name: str) -> bool:
    """Whether the name has a UTF-8 form. Python stands in lone surrogates for bytes that do not decode."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown_names(names: Iterable[str]) -> dict[str, str]:
    """How to show those names of one folder that are not Unicode: real name -> shown name. Unicode names are shown as they are.

    Each byte that does not decode is shown as the four characters `\\xNN`. Should that be the name of another file of the folder, which
    is then that file's by right, `~2` (`~3` ...) is added.
    """
    all_names = list(names)
    odd = [name for name in all_names if not is_unicode(name)]
    if not odd:
        return {}
    taken = set(all_names)
    shown: dict[str, str] = {}
    for name in sorted(odd):
        plain = "".join(_shown_character(character) for character in name)
        candidate, number = plain, 1
        while candidate in taken:
            number += 1
            candidate = f"{plain}~{number}"
        taken.add(candidate)
        shown[name] = candidate
    return shown


def _shown_character(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return f"\\u{ord(character):04x}" if "\ud800" <= character <= "\udfff" else character
