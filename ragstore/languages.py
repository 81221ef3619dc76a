"""The words of a text in Latin letters in, the language that they are in out, told by its function words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

_FUNCTION_WORDS: Final = {
    "german": """
        aber als am an auch auf aus bei bis das dass dem den denen der des die diese dieser dieses durch ein eine einem einen einer
        eines er es fur haben hat im in ist kann mit nach nicht noch nur oder sich sie sind so uber um und vom von vor wann war was
        welche welcher welches wer werden wie wird wo wurde wurden zu zum zur""",
    "french": """
        au aussi aux avec ce ces cette comme dans de des dont du elle en entre est et etre il la le les leur ne ont ou par pas plus pour
        qu que quel quelle quelles quels qui sa se ses sont sur un une""",
    "spanish": """
        al como con cual cuales cuando cuanto cuantos de del desde donde el en entre es esta este fue ha hay la las lo los mas muy no
        para pero por que quien se ser si sin son su sus tambien un una""",
    "italian": """
        al alla anche che chi come con da dal degli dei del dell della delle di ed gli ha il in la le lo ma nel nella non per piu quale
        quella quello questa questo si sono su tra un una""",
    "portuguese": """
        ao aos as com como da das de do dos ele em entre foi ja mais mas muito na nao no nos ou para pela pelo por qual quando que quem
        se sem ser seu sua tambem tem um uma""",
    "dutch": """
        aan als bij dan dat de deze die dit door een en er geen heeft het hij hun in is maar met naar niet nog of om ook op te tot uit
        van voor was wat welke werd werden wie worden wordt ze zijn""",
    "swedish": """
        ar att av blev de den denna det detta du efter eller en ett for fran ha hade han har inte jag kan med men nar och ocksa om pa
        sig som till under vad var vem vid vilken""",
    "danish": """
        af at blev de den der det efter eller en er et for fra ham han har havde hun hvad hvem hvor ikke kan med meget mellem men nar
        nogle og ogsa om pa sig som til var ved vi være""",
    "norwegian": """
        at av ble de den det en er et etter for fra ha hadde han har hun hva hvem hvor ikke jeg kan med mellom men mye nar noen og ogsa
        om pa seg som til var ved vi være""",
    "finnish": """
        ei etta ettei han hanen ja joka jossa jotka kanssa kuin kuka kun mika missa mukaan mutta myos niin ole oli olivat olla ollut on
        ovat se seka sen siita sita tai vuonna""",
    "turkish": """
        ama ancak arasında ayrıca bir bu bunun cok da daha de degil diger en gibi gore hangi her icin icinde ile ise kadar kendi ki kim
        nasıl ne nedir nin nın olan olarak oldugu onun sonra tarafından tum uzerinde ve veya ya yani""",
    "romanian": """
        aceasta acest al ale au care ce cine cu dar de din dupa este fost in intre la lui mai nu pe pentru prin sa sau sunt un unde""",
    "hungarian": """
        altal amely az azt csak de egy el es ez ezt ha hogy illetve is ki kozott lehet mar meg mely mi milyen mint nem pedig utan vagy
        valamint van volt""",
    "polish": """
        ale był była co czy dla do ich jak jako jego jest kto ktora ktore ktory ktorych lub na nie od oraz po przez przy sa sie tak tego
        to tylko tym za ze""",
}  # fmt: skip
"""As they look when folded. No single letters, which are as often the names of things (vitamin D)."""
_ENGLISH_WORDS: Final = """
    a about after all also an and are as at be been between but by can did do does each for from had has have he her him his how i if in
    into is it its may me more my no not of on one only or other our out over per she so such than that the their then there these they
    this those to under up was we were what when where which who will with would you your"""
_ENGLISH: Final = frozenset(_ENGLISH_WORDS.split())
LANGUAGES: Final[Mapping[str, str]] = {
    "german": "de",
    "french": "fr",
    "spanish": "es",
    "italian": "it",
    "portuguese": "pt",
    "dutch": "nl",
    "swedish": "sv",
    "danish": "da",
    "norwegian": "no",
    "finnish": "fi",
    "turkish": "tr",
    "romanian": "ro",
    "hungarian": "hu",
    "polish": "pl",
}
"""The languages that are told from English, by the names of their Snowball algorithms, with their codes of ISO 639."""
FUNCTION_WORDS: Final[Mapping[str, frozenset[str]]] = {name: frozenset(_FUNCTION_WORDS[name].split()) for name in LANGUAGES}

_TELLING: Final = {name: own - _ENGLISH for name, own in FUNCTION_WORDS.items()}
_AGAINST: Final = {name: _ENGLISH - own for name, own in FUNCTION_WORDS.items()}
_FOREIGN: Final = frozenset[str]().union(*_TELLING.values())
_SHORT: Final = 32
_SHARE: Final = 16


def told(words: Sequence[str]) -> str | None:
    """The name of the language that these folded words are in, None where it is English or cannot be told.

    It is the one that most different function words are of (first those that English lacks count, then all): at least 3, or 2 where there
    are at most 32 words; more than there are of English; and every 16th word is one, which they are not in a list of people named `de la`.
    """
    found = _FOREIGN.intersection(words)
    least = 2 if len(words) <= _SHORT else 3
    if len(found) < least:
        return None
    counts = {name: len(found & telling) for name, telling in _TELLING.items()}
    most = max(counts.values())
    if most < least:
        return None
    # Of those alike, such as Danish and Norwegian, the first of `LANGUAGES`: the same text has the same language in every process.
    best = max((name for name in LANGUAGES if counts[name] == most), key=lambda name: len(FUNCTION_WORDS[name].intersection(words)))
    if most <= len(_AGAINST[best].intersection(words)) or not _often(FUNCTION_WORDS[best], words):
        return None
    return best


def _often(function_words: Collection[str], words: Sequence[str]) -> bool:
    return sum(word in function_words for word in words) * _SHARE >= len(words)
