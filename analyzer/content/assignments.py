"""Values that are secret by the name they are given to: `password = "…"`, `API_KEY=…`, `"token": "…"`.

Code is full of such names without any secret behind them (`max_tokens: 4096`, `token = next()`), so
the value decides as much as the name.
"""

from __future__ import annotations

import re
from typing import Final

from analyzer.content.detectors import Cued

_PASSWORDS: Final = ("password", "passwd", "passphrase", "pwd", "_pass")
_NAMES: Final = (
    "api_key",
    "api-key",
    "apikey",
    "access_key",
    "access-key",
    "accesskey",
    "account_key",
    "accountkey",
    "auth_key",
    "encryption_key",
    "private_key",
    "privatekey",
    "signing_key",
    "secret",
    "token",
    "credential",
    *_PASSWORDS,
)
_ASSIGNED = re.compile(
    r"""(?P<name>[\w-]{3,40})
    (?:\\*["'`])?\]?[ \t]*
    (?P<op>:=|=>|={1,3}|:|\bis\b)[ \t]*
    (?P<quote>\\*["'`])?
    (?P<value>(?(quote)[^\s"'`\\]{4,500}|[^\s"'`\\;&|<>(){}\[\],]{5,500}))
    (?(quote)(?P=quote)|(?=[\s"'`\\;&|,}\]#]|$))""",
    re.VERBOSE,
)
_SAYS_WHICH = re.compile(
    r"tokeni[sz]|(?:name|id|file|path|dir|url|uri|type|count|limit|length|len|size|field|env|version"
    r"|usage|budget|policy|ref|ttl|format|prefix|header|label|manager|provider|store|arn|regex"
    r"|pattern)s?$",
    re.IGNORECASE,
)
"""Names of what is said about a secret, and not of the secret."""
_TEMPLATE = re.compile(r"^[<\[{]|\$[{(]|\{\{|^\$[A-Za-z_]+$|^%|\*{3}|\.{3}|…|^(.)\1+$|^x{4,}", re.I)
_STAND_INS: Final = """
    password passwd passphrase secret token string str text number boolean bool none null true false
    undefined required optional hidden input field bearer basic type any object unknown value
"""
_WORDS: Final = frozenset(_STAND_INS.split())
_CODE = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|->)[A-Za-z_$][\w$]*)+")
_PATH = re.compile(r"(?:~|[A-Za-z]:)?[/\\]")
LONG_SECRET = 16
"""From this length on a value of letters and digits is hardly a name."""


def is_template(value: str) -> bool:
    """Whether a value stands for one that is put in elsewhere, or was taken out already."""
    return _TEMPLATE.search(value) is not None or value.strip("-_").lower() in _WORDS


def is_mixed(value: str) -> bool:
    """Whether letters and digits stand together, as in hardly any word of a language."""
    return any(c.isdigit() for c in value) and any(c.isalpha() for c in value)


def _is_secret(found: re.Match[str]) -> bool:
    name, value = found["name"], found["value"]
    if _SAYS_WHICH.search(name) or is_template(value):
        return False
    if name.lower() == "pwd" and _PATH.match(value):
        return False  # the working directory
    is_password = name.lower().startswith(_PASSWORDS)
    if found["quote"] is not None:
        return is_password or (is_mixed(value) and len(value) >= 6) or len(value) >= 2 * LONG_SECRET
    return _is_bare_secret(found, value, is_password=is_password)


def _is_bare_secret(found: re.Match[str], value: str, *, is_password: bool) -> bool:
    """Without quotes most values are code; what is left looks like no name and no call."""
    follows = found.string[found.end() : found.end() + 1]
    if _CODE.fullmatch(value) or follows == ",":
        return False
    if found["op"] == "=":
        in_capitals = found["name"].isupper() and is_password and not value.isdigit()
        return in_capitals or (is_mixed(value) and len(value) >= 6)
    # A colon also stands before types and in prose: only what no word looks like counts.
    odd = len(value) >= 8 and re.search(r"[^\w.-]", value) is not None
    return is_mixed(value) and (is_password or odd or len(value) >= LONG_SECRET)


def _is_key_of_environment(found: re.Match[str]) -> bool:
    name, value = found["name"], found["value"]
    return name.isupper() and is_mixed(value) and len(value) >= LONG_SECRET and _is_secret(found)


ASSIGNED: Final = (
    Cued("SECRET", _NAMES, _ASSIGNED, group="value", accept=_is_secret, any_case=True),
    Cued("SECRET", ("_KEY", "_AUTH"), _ASSIGNED, group="value", accept=_is_key_of_environment),
)
