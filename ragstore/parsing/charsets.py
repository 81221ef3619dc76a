"""Bytes of an unknown legacy charset in, candidate codecs out, the one that reads most like a language first."""

from __future__ import annotations

import codecs
import contextlib
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import cache

_CANDIDATES = (
    "cp1252", "gb18030", "cp932", "big5hkscs", "euc_kr", "cp949", "euc_jp", "cp1251", "koi8_u", "cp1256", "cp1250", "cp1253", "cp1255",
    "cp1254", "cp1257", "cp874", "cp866", "iso8859_2", "iso8859_5", "iso8859_7", "cp437", "mac_roman",
)  # fmt: skip
"""In the order in which a tie is decided."""
_GLANCE = 600
_CLOSER = 8
"""All candidates are weighed by so many bytes, and so many of them by the whole sample."""
_EUROPEAN = {"cp1252", "cp1250", "iso8859_2", "cp1254", "cp1257"}
_PRIOR = {"cp1252": 0.4, "cp1254": 0.1, "iso8859_2": -0.1, "cp866": -0.4, "cp437": -1.4, "mac_roman": -1.4}
"""Advantage of what is common, in the unit of the score."""
_BEYOND_ASCII = bytes(range(0x80, 0x100))
_WIDE = {"gb18030", "cp932", "big5hkscs", "euc_kr", "cp949", "euc_jp"}
_WEB = {
    "ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932",
    "big5": "big5hkscs", "tis-620": "cp874",
}  # fmt: skip
"""What the WHATWG encoding standard reads these labels as: their supersets, which is what writers meant."""

_FREQUENT_HAN = frozenset(
    "的一是不了人在有我他这这中大来上个国到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可她里后小么心多天而能好都然没日于起还发成事只作当想看文无开手十用主行方又如前所本见经头面公同三已老从动两长知民样现分将外但身些与高意进把法此实回二理美点月明其种声全工己话儿者向情部正名定女问力机给等几很业最间新什打便位因重被走电四第门相次东政海口使教西再平真听世气信北少关并内加化由却代军产入先山五太水万市原期系程语言计算章社学法律條第"
    "這來個國說們為時會過學對後還發無開當經頭長從動樣現將與進實點種聲話兒問機給幾業間電門東關並內產萬語計書愛"
)
_FREQUENT_HANGUL = frozenset(
    "이다는을의에가고하지한로를기사리서도인대어자는을은으나정일시수보과아그스라만전부해제구여상장주원공안면것있니게동성들조와합"
)
_COMMON_LATIN = frozenset("éèêàâäöüßñçáíóúåøæãõôîïûùë")
_ALPHABETS = tuple(
    frozenset(letters)
    for letters in (
        "àâçèéêëîïôùûüÿœæ", "äöüß", "áéíóúüñ", "áâãàçéêíóôõú", "àèéìíîòóùú", "åäöé", "åæøéô", "áðéíóúýþæö", "ëéèïöüáó",  # western
        "áčďéěíňóřšťúůýž", "áäčďéíľĺňóôŕšťúýž", "ąćęłńóśźż", "áéíóöőúüű", "čćđšž", "ăâîșțşţ", "äëçš",  # central, and Albanian
        "çğıöşüâîû", "ąčęėįšųūž", "āčēģīķļņšūž", "äõöüšž", "əçğıöşü", "àáâãèéêìíòóôõùúýăđĩũơưạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ",
    )
)  # fmt: skip
"""Letters beyond ASCII of languages that are written in Latin script: a text uses those of one."""
_LATIN_SIGNS = frozenset("«»“”„‘’‚–—…°§€£©®·¡¿ºª•™´")
_COMMON_GREEK = frozenset("αοιετσνρκπυμληωάέίόςύήγδ")
_COMMON_THAI = frozenset("านรกอเงมยลวดทสตะปบคหแจพชขใไโผถซธศภฐณญ่้ีิาัุูึื็์ำ")
_COMMON_CYRILLIC = frozenset("оеаинтсрвлкмдпуяыьі")
_CYRILLIC = frozenset("гзбчйхжшюцщэфїєґўёђјљњћџѓќѕ")


def canonical(label: str | None) -> str | None:
    """The codec that a charset label means, or None where Python knows no text codec of that name."""
    if not label:
        return None
    try:
        info = codecs.lookup(label.strip().strip("\"'"))
        b"".decode(info.name)
    except (LookupError, ValueError, UnicodeError):
        return None
    return _WEB.get(info.name, info.name)


def ranked(sample: bytes, declared: str | None = None) -> list[tuple[str, float]]:
    """Codecs that can read the sample, best first, with how much their text reads like a language: well above 0.5 where it does.

    A cut-off character at the end is no fault; the declared codec has an advantage.
    """
    trust = 0.5 + 4 / max(len(sample) - len(sample.translate(None, _BEYOND_ASCII)), 1)
    advantage = _PRIOR if declared is None else {**_PRIOR, declared: _PRIOR.get(declared, 0.0) + trust}
    candidates = _CANDIDATES if declared is None or declared in _CANDIDATES else (declared, *_CANDIDATES)
    texts = _decoded(sample, candidates)
    if len(sample) > 2 * _GLANCE:
        first = _decoded(sample[:_GLANCE], tuple(texts))
        best = sorted(first, key=lambda encoding: -_score(first[encoding], encoding in _WIDE) - advantage.get(encoding, 0.0))[:_CLOSER]
        texts = {encoding: texts[encoding] for encoding in texts if encoding in best}
    scores = {encoding: _score(text, encoding in _WIDE) + advantage.get(encoding, 0.0) for encoding, text in texts.items()}
    order = sorted(scores, key=lambda encoding: -scores[encoding])
    if order and order[0] in _EUROPEAN:  # they differ in a few letters only: which language is it?
        family = {encoding: scores[encoding] + 6 * _alphabet_share(texts[encoding]) for encoding in order if encoding in _EUROPEAN}
        order.sort(key=lambda encoding: -family.get(encoding, -100.0))
    return [(encoding, scores[encoding]) for encoding in order]


def _decoded(sample: bytes, candidates: tuple[str, ...]) -> dict[str, str]:
    """What the sample says in each of the codecs that can read it."""
    texts = {}
    for encoding in candidates:
        with contextlib.suppress(UnicodeError, ValueError):
            texts[encoding] = codecs.getincrementaldecoder(encoding)().decode(sample)
    return texts


def _score(text: str, wide: bool) -> float:  # noqa: FBT001 - private, one call
    """How much the text reads like a language: the mean weight of what the bytes beyond ASCII became, per byte."""
    total, size = 0.0, 0
    previous, before = " ", " "
    padded = text + " "
    for index, char in enumerate(text):
        if char > "\x7f":
            bytes_used = 2 if wide and not "\uff61" <= char <= "\uff9f" else 1
            total += _kind(char)(char, previous, padded[index + 1], before) * bytes_used
            size += bytes_used
        before, previous = previous, char
    return total / size if size else 0.0


def _alphabet_share(text: str) -> float:
    """The share of characters beyond ASCII, common signs left out, that the best fitting language's alphabet has."""
    letters = Counter(char for char in text.lower() if char > "\x7f" and char not in _LATIN_SIGNS)
    best = max(sum(count for letter, count in letters.items() if letter in alphabet) for alphabet in _ALPHABETS)
    return best / letters.total() if letters else 1.0


Weigher = Callable[[str, str, str, str], float]


@cache
def _kind(char: str) -> Weigher:
    """The rule for a character's script."""
    point = ord(char)
    for last, rule in _RANGES:
        if point <= last:
            return rule
    return _han if point < 0x30000 else _never  # noqa: PLR2004 - planes 2: rare Han


def _never(_char: str, _previous: str, _following: str, _before: str) -> float:
    return -8.0


def _sign(char: str, previous: str, following: str, _before: str) -> float:
    """Signs stand between words; one inside a word is a letter of another charset."""
    if previous.isalpha() and following.isalpha():
        return 1.6 if char in "’·´" else -3.0
    return 0.6 if char in _LATIN_SIGNS else -0.5


def _latin(char: str, previous: str, following: str, before: str) -> float:
    if char.isupper() and previous.islower():
        return -3.0
    beside = (previous.isascii() and previous.isalpha()) or (following.isascii() and following.isalpha())
    weight = 1.0 if beside else -0.2
    if previous > "\x7f" and before > "\x7f" and previous.isalpha() and before.isalpha():
        weight -= 1.5
    return weight + (0.6 if char in _COMMON_LATIN or char.lower() in _COMMON_LATIN else 0.0)


def _cased(letters: frozenset[str], first: int, last: int) -> Weigher:
    """Rules for an alphabet with case, from `first` to `last`: small letters are common, and the alphabets do not mix in a word."""

    def weigh(char: str, previous: str, following: str, _before: str) -> float:
        if (previous.isalpha() and not first <= ord(previous) <= last) or (following.isalpha() and not first <= ord(following) <= last):
            return -4.0
        if char.isupper():
            return -2.0 if previous.islower() else 0.8
        return 1.6 if char in letters else 0.8 if char in _CYRILLIC else 0.2

    return weigh


def _caseless(first: int, last: int) -> Weigher:
    """Rules for an alphabet without case: letters stand beside their like."""

    def weigh(_char: str, previous: str, following: str, _before: str) -> float:
        beside = (previous, following)
        like = sum(first <= ord(neighbour) <= last for neighbour in beside)
        foreign = sum(neighbour.isalpha() and not first <= ord(neighbour) <= last for neighbour in beside)
        return 0.8 + 0.5 * like - 2.0 * foreign

    return weigh


def _thai(char: str, previous: str, following: str, _before: str) -> float:
    """Vowel signs and tone marks stand on a consonant; the rare letters are rare."""
    if "\u0e31" <= char <= "\u0e4e" and unicodedata.category(char) == "Mn" and not "\u0e01" <= previous <= "\u0e4e":
        return -4.0
    if (previous.isalpha() and not "\u0e00" <= previous <= "\u0e7f") or (following.isalpha() and not "\u0e00" <= following <= "\u0e7f"):
        return -2.0
    return 1.6 if char in _COMMON_THAI else -1.5


def _kana(_char: str, _previous: str, _following: str, _before: str) -> float:
    return 1.8


def _half_kana(_char: str, previous: str, following: str, _before: str) -> float:
    return 0.3 if "\uff61" <= previous <= "\uff9f" and "\uff61" <= following <= "\uff9f" else -1.5


def _han(char: str, previous: str, following: str, _before: str) -> float:
    if previous.isascii() and previous.isalpha() and following.isascii():
        return -1.5
    if char in _FREQUENT_HAN:
        return 2.4
    return 0.6 if _is_plain_han(char) else -1.2


@cache
def _is_plain_han(char: str) -> bool:
    """Whether a national standard has it in its first, everyday level."""
    levels = (("gb2312", 0xB0, 0xD7), ("big5", 0xA4, 0xC6), ("euc_jp", 0xB0, 0xCF))
    return any(_in_level(char, encoding, first, last) for encoding, first, last in levels)


def _in_level(char: str, encoding: str, first: int, last: int) -> bool:
    try:
        data = char.encode(encoding)
    except UnicodeError:
        return False
    return len(data) == 2 and first <= data[0] <= last  # noqa: PLR2004 - two bytes per character


def _hangul(char: str, _previous: str, _following: str, _before: str) -> float:
    return 2.0 if char in _FREQUENT_HANGUL else 0.8


def _cjk_sign(_char: str, _previous: str, _following: str, _before: str) -> float:
    return 0.8


def _rare(_char: str, _previous: str, _following: str, _before: str) -> float:
    return -1.5


_RANGES: tuple[tuple[int, Weigher], ...] = (
    (0x9F, _never),
    (0xA9, _sign), (0xAA, _latin), (0xB4, _sign), (0xB5, _latin), (0xB9, _sign), (0xBA, _latin), (0xBF, _sign),
    (0xD6, _latin), (0xD7, _sign), (0xF6, _latin), (0xF7, _sign), (0x24F, _latin), (0x36F, _sign),
    (0x3FF, _cased(_COMMON_GREEK, 0x370, 0x3FF)),
    (0x4FF, _cased(_COMMON_CYRILLIC, 0x400, 0x4FF)),
    (0x58F, _rare), (0x5FF, _caseless(0x590, 0x5FF)), (0x6FF, _caseless(0x600, 0x6FF)), (0xDFF, _rare),
    (0xE7F, _thai),
    (0x1FFF, _rare), (0x206F, _sign), (0x20CF, _sign), (0x2FFF, _rare), (0x303F, _cjk_sign), (0x30FF, _kana), (0x33FF, _rare),
    (0x4DBF, _rare), (0x9FFF, _han), (0xABFF, _rare), (0xD7AF, _hangul), (0xDFFF, _never), (0xF8FF, _never), (0xFAFF, _rare),
    (0xFEFF, _rare), (0xFF60, _cjk_sign), (0xFF9F, _half_kana), (0xFFEF, _cjk_sign), (0x1FFFF, _rare),
)  # fmt: skip
"""The last code point of each range and its rule."""
