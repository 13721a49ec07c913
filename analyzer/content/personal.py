"""Personal data: e-mail addresses, phone numbers, cards, accounts, public addresses, home folders.

Numbers are only taken where a checksum, a numbering plan or a word before them says what they are,
since code and logs are full of numbers.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

import phonenumbers
from stdnum import iban, luhn
from stdnum.us import ssn

from analyzer.content.detectors import BEGIN, Cued, Detector, Haystack, Scanned, Span

_DOMAIN = re.compile(r"@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})\.){1,8}[A-Za-z]{2,24}(?![\w-])")
_LOCAL = re.compile(BEGIN + r"[A-Za-z0-9](?:[\w.%+'-]{0,63})$")
_VERSION = re.compile(r"@v?\d+\.\d|@\dx\.")
_NO_PERSON: Final = frozenset({"git", "noreply", "no-reply"})
_USERINFO = re.compile(r"://[^\s/@]*$")

_ACCOUNTS: Final = """
    shared public default all root runner runneradmin ubuntu debian vagrant user users username you
    yourname your-username yourusername name node app vscode codespace circleci ec2-user jovyan
    linuxbrew git admin administrator sandbox agent openhands oai gitpod coder builder jenkins
    postgres www-data nobody me guest docker nonroot appuser linux mac windows
"""
"""Accounts that stand for no person."""
_NOT_HOME: Final = frozenset(_ACCOUNTS.split())
_HOME = re.compile(
    r"(?:(?<![\w.~)}\]-])|(?<=/mnt/[a-z])|(?<=[\s\"'=:(]/[a-z])|(?<=file://))"
    r"\\?/(?:Users|home)\\?/(?P<value>[A-Za-z0-9][\w.@+-]{0,63})"
)
_WINDOWS_HOME = re.compile(
    r":(?:\\{1,4}|/)Users(?:\\{1,4}|/)(?P<value>[A-Za-z0-9](?:[\w.@+-]|[ ](?=[\w.@ +-]{0,30}[\\/])){0,63})"
)
_ENCODED_HOME = re.compile(r"-(?:Users|home)-(?P<value>[A-Za-z0-9_]{2,64})(?=-)")

_CARD = re.compile(r"(?<![\w.+/=-])(?:\d[ -]?){12,18}\d(?![\w/=-]|\.\d)")
_ISSUER = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}"
    r"|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}|(?:6011|65\d\d|64[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}"
)
"""Lengths and first digits that card issuers use (ISO/IEC 7812, read 2026-11)."""
_GROUPED_CARD = re.compile(r"\d{4}([ -])\d{4}\1\d{4}\1\d{4}|\d{4}([ -])\d{6}\2\d{4,5}|\d+")
# The first letter stands before its look-behind: searches jump to letters that can begin a match.
_IBAN = re.compile(
    r"[A-Z](?<![A-Za-z0-9].)[A-Z]\d{2}(?:[ ]?[A-Z0-9]{4}){2,7}(?:[ ]?[A-Z0-9]{1,3})?(?![A-Za-z0-9])"
)
_SSN = re.compile(r"(?<![\w.-])\d{3}-\d{2}-\d{4}(?![\w-]|\.\d)")

_INTERNATIONAL = re.compile(r"(?<![\w.])\+[1-9][\d ().-]{6,20}\d(?![\w])")
_NATIONAL = re.compile(
    r"(?<![\w.+-])(?:1[ .-])?(?:\(\d{3}\) ?|\d{3}(?P<sep>[ .-]))\d{3}"
    r"(?(sep)(?P=sep)|[ .-])\d{4}(?![\w-]|\.\d)"
)
_NANP = re.compile(r"(?:1[ .-])?(?:\([2-9]\d\d\) ?|[2-9]\d\d-)\d{3}-\d{4}")
_SEPARATOR = re.compile(r"[ ().-]+")
_TOLD = re.compile(
    r"(?:(?:tel|phone|mobile|cell|fax|whatsapp|sms|telefon|handy)"
    r"(?:ephone)?(?:[ _-]?(?:number|nummer|no|nr))?|call(?:[ ]me)?(?:[ ](?:at|on))?)"
    r"\.?(?:\\*[\"'])?[ \t]*[:=]?[ \t]*(?:\\*[\"'])?(?P<value>\+?[0-9(][\d ()./-]{6,20}\d)(?!\w)",
    re.IGNORECASE,
)
_V4 = re.compile(r"(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)")
_V6 = re.compile(
    r"[23](?<![\w:.].)[0-9a-fA-F]{3}:(?:[0-9a-fA-F]{0,4}:){2,6}[0-9a-fA-F]{0,4}(?![\w:.])"
)
_LOCAL_NETS: Final = tuple(
    ipaddress.ip_network(net)
    for net in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "224.0.0.0/3",
    )
)
_BEFORE_VERSION = re.compile(
    r"(?:[A-Za-z_]/|\bv(?:ersion)?\.?[ :=\"']*|[=~^><]=?[ ]?|@)$", re.IGNORECASE
)


_RUN = re.compile(r"[+(]?\d[\d .()-]{5,}\d")
"""Digits close together: every pattern of a number lies inside such a run."""
_BEFORE, _BEHIND = 14, 3
"""Characters around a run that its patterns look at."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Several kinds of numbers, looked for only where digits stand close together."""

    kinds: tuple[Scanned, ...]

    def spans(self, hay: Haystack) -> Iterator[Span]:
        """See `Detector`."""
        text = hay.text
        for run in _RUN.finditer(text):
            begin = max(0, run.start() - _BEFORE)
            near = Haystack(text[begin : run.end() + _BEHIND], "")
            for kind in self.kinds:
                for start, stop, name in kind.spans(near):
                    yield Span(begin + start, begin + stop, name)


@dataclass(frozen=True, slots=True)
class Emails:
    """Addresses, found by their domain and read backwards from it."""

    def spans(self, hay: Haystack) -> Iterator[Span]:
        """See `Detector`."""
        text = hay.text
        at = text.find("@")
        while at >= 0:
            domain = _DOMAIN.match(text, at)
            if domain is not None and not _VERSION.match(text, at):
                begin = max(0, at - 70)
                local = _LOCAL.search(text[begin:at])
                if local is not None:
                    start = begin + local.start()
                    if _is_address(text, start, at):
                        yield Span(start, domain.end(), "EMAIL")
            at = text.find("@", at + 1)


def _is_address(text: str, start: int, at: int) -> bool:
    """Whether it is no login of a service, and no user and password before a host."""
    if text[start:at].lower() in _NO_PERSON:
        return False
    return _USERINFO.search(text[max(0, start - 80) : start]) is None


def _is_name(found: re.Match[str]) -> bool:
    return found["value"].lower().rstrip(".") not in _NOT_HOME


def _is_card(found: re.Match[str]) -> bool:
    written = found.group()
    digits = re.sub(r"\D", "", written)
    whole = _ISSUER.fullmatch(digits) is not None and _GROUPED_CARD.fullmatch(written) is not None
    return whole and len(set(digits)) > 1 and bool(luhn.is_valid(digits))


def _is_account(found: re.Match[str]) -> bool:
    return bool(iban.is_valid(found.group()))


def _is_ssn(found: re.Match[str]) -> bool:
    return bool(ssn.is_valid(found.group()))


@cache
def _dialled(number: str, region: str | None, *, strict: bool) -> bool:
    """Whether a number is in a country's numbering plan; else, whether it has the right length."""
    try:
        parsed = phonenumbers.parse(number, region)
    except phonenumbers.NumberParseException:
        return False
    check = phonenumbers.is_valid_number if strict else phonenumbers.is_possible_number
    return bool(check(parsed))


def _is_international(found: re.Match[str]) -> bool:
    # Diffs are full of lines that begin with a plus and a number; people group theirs.
    grouped = len(_SEPARATOR.findall(found.group())) >= 2
    return _dialled(found.group(), None, strict=not grouped)


def _is_national(found: re.Match[str]) -> bool:
    """In the form of North America; others need a word before them."""
    return _dialled(found.group(), "US", strict=_NANP.fullmatch(found.group()) is None)


def _is_told(found: re.Match[str]) -> bool:
    digits = re.sub(r"\D", "", found["value"])
    return 7 <= len(digits) <= 15 and len(set(digits)) > 2


def _is_public(found: re.Match[str]) -> bool:
    try:
        address = ipaddress.ip_address(found.group())
    except ValueError:
        return False
    if any(address in net for net in _LOCAL_NETS if net.version == address.version):
        return False
    if address.version == 4 and found.group().endswith(".0"):
        return False
    return _BEFORE_VERSION.search(found.string[max(0, found.start() - 12) : found.start()]) is None


PERSONAL: Final[tuple[Detector, ...]] = (
    Emails(),
    Cued("USER", ("/Users", "/home", "\\/Users", "\\/home"), _HOME, group="value", accept=_is_name),
    Cued("USER", (":\\", ":/Users"), _WINDOWS_HOME, group="value", accept=_is_name),
    Cued("USER", ("-Users-", "-home-"), _ENCODED_HOME, group="value", accept=_is_name),
    Numbers(
        (
            Scanned("CARD", _CARD, accept=_is_card),
            Scanned("SSN", _SSN, accept=_is_ssn),
            Scanned("PHONE", _NATIONAL, accept=_is_national),
            Scanned("IP", _V4, accept=_is_public),
        )
    ),
    Scanned("IBAN", _IBAN, accept=_is_account),
    Cued("PHONE", ("+",), _INTERNATIONAL, accept=_is_international),
    Cued(
        "PHONE",
        ("tel", "phone", "mobile", "cell", "call", "fax", "whatsapp", "sms", "telefon", "handy"),
        _TOLD,
        group="value",
        accept=_is_told,
        any_case=True,
    ),
    Scanned("IP", _V6, accept=_is_public),
)
"""Specific kinds first, as in `SECRETS`."""
