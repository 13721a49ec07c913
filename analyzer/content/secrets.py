"""Secrets: keys of services, private keys, tokens, passwords in URLs and on command lines.

For ten services the patterns are those of `detect-secrets`. Those of others, and of values that are
secret by what stands before them, are here: formats as the services document them, read 2026-11.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Final

from analyzer.content.assignments import ASSIGNED, is_mixed, is_template
from analyzer.content.detectors import BEGIN, Cued, Detector, Haystack, Span

_PREFIXED: Final = {
    "sk-": r"(?=[\w-]{0,200}\d)[\w-]{16,}",
    "pk-lf-": r"[\w-]{20,}",
    "sk_": r"(?:live|test)_\w{16,}",
    "rk_": r"(?:live|test)_\w{16,}",
    "whsec_": r"[\w+/=-]{20,}",
    "ABSK": r"[A-Za-z0-9+/=]{40,}",
    "gh": r"[pousr]_[A-Za-z0-9]{20,}",
    "github_pat_": r"\w{22,}",
    "xox": r"[a-z]-[A-Za-z0-9-]{10,}",
    "xapp-": r"[A-Za-z0-9-]{20,}",
    "AIza": r"[\w-]{30,}",
    "ya29.": r"[\w-]{20,}",
    "GOCSPX-": r"[\w-]{20,}",
    "hf_": r"[A-Za-z0-9]{20,}",
    "r8_": r"[A-Za-z0-9]{30,}",
    "gsk_": r"[A-Za-z0-9]{40,}",
    "xai-": r"[A-Za-z0-9]{40,}",
    "pplx-": r"[A-Za-z0-9]{40,}",
    "tvly-": r"[A-Za-z0-9-]{20,}",
    "nvapi-": r"[\w-]{40,}",
    "fw_": r"[A-Za-z0-9]{22,}",
    "lsv2_": r"[a-z]{2}_[a-f0-9]{32}_[a-f0-9]{10}",
    "npm_": r"[A-Za-z0-9]{36,}",
    "pypi-AgE": r"[\w-]{50,}",
    "dop_v1_": r"[a-f0-9]{64}",
    "dckr_pat_": r"[\w-]{20,}",
    "shpat_": r"[a-fA-F0-9]{32}",
    "lin_api_": r"[A-Za-z0-9]{32,}",
    "ntn_": r"[A-Za-z0-9]{40,}",
    "figd_": r"[\w-]{30,}",
    "sntry": r"[su]_[\w+/=.-]{40,}",
    "ATATT3x": r"[\w=-]{40,}",
    "dapi": r"[a-f0-9]{32}(?!\w)",
    "hvs.": r"[\w-]{24,}",
    "AGE-SECRET-KEY-1": r"[A-Z0-9]{50,}",
}
"""How a key begins -> what follows."""

_LIBRARY: Final = (
    ("aws", "AWSKeyDetector", ("AKIA", "ASIA", "ABIA", "ACCA", "A3T", "aws", "AWS")),
    ("azure_storage_key", "AzureStorageKeyDetector", ("AccountKey=",)),
    ("discord", "DiscordBotTokenDetector", ("iscord", "ISCORD", "Bot ")),
    (
        "gitlab_token",
        "GitLabTokenDetector",
        ("glpat-", "gldt-", "glft-", "glsoat-", "glrt-", "glcbt-", "glimt-", "glptt-", "gloas-"),
    ),
    ("mailchimp", "MailchimpDetector", ("-us",)),
    ("sendgrid", "SendGridDetector", ("SG.",)),
    ("slack", "SlackDetector", ("xox", "hooks.slack.com")),
    ("square_oauth", "SquareOAuthDetector", ("sq0csp-",)),
    ("telegram_token", "TelegramBotTokenDetector", ("elegram", "ELEGRAM", "/bot")),
    ("twilio", "TwilioKeyDetector", ("wilio", "WILIO")),
)
"""Module and class in `detect_secrets.plugins`, and what stands in any text worth a search."""

_WEBHOOK = re.compile(
    r"(?:hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/"
    r"|hooks\.zapier\.com/hooks/catch/|[\w-]+\.webhook\.office\.com/webhookb2/"
    r"|outlook\.office\.com/webhook/|hook\.[\w.]*make\.com/|chat\.googleapis\.com/v1/spaces/"
    r"|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook/)"
    r"(?P<value>[^\s\"'`\\<>{}]{8,})"
)
_URL_PASSWORD = re.compile(
    r"://[^\s/:@\"'`<>\\]{0,80}:(?P<value>[^\s/@\"'`<>\\]{2,200})@(?=[\w\[$])"
)
_URL_TOKEN = re.compile(r"://(?P<value>[\w.~%-]{16,200})@(?=[\w.-]+[/:\s\"'\\]|[\w.-]+$)")
_BEARER = re.compile(r"\w{5,6}(?:\s|%20){1,3}(?P<value>[\w.~+/=-]{12,})")
_USER_OPTION = re.compile(
    r"curl\b[^\n|;]{0,300}?\s(?:-u|--user)[\s=]+(?:\\*[\"'])?[^\s:\"'\\]+:(?P<value>[^\s\"'\\@]{3,100})"
)
_PASSWORD_OPTION = re.compile(
    r"(?<=[\s\"'-])-(?:password|passwd|token|secret|api-?key|access-?key|auth-?token)[ \t]+(?:\\*[\"'])?"
    r"(?P<value>[^\s\"'`\\<>$-][^\s\"'`\\<>]{4,200})"
)
_SIGNED_URL = re.compile(r"[\w-]{2,40}=(?P<value>[\w%+/.=-]{16,2000})")
_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?P<label>[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?)-----"
    r"(?:(?:(?!-----)[\s\S]){0,20000}-----END (?P=label)-----|(?:[\w+/=:,. -]|\s|\\[nrt]){0,20000})"
)
_JWT = re.compile(
    BEGIN + r"eyJ[\w-]{8,4000}={0,2}\.[\w-]{8,20000}={0,2}(?:\.[\w-]*)?(?:\.[\w-]+){0,2}"
)


def _no_template(found: re.Match[str]) -> bool:
    return not is_template(found["value"])


def _is_credential(found: re.Match[str]) -> bool:
    value = found["value"]
    if found.string[found.start()] in "bB" and found.group()[:5].lower() == "basic":
        return _is_basic(value)
    return is_mixed(value) and not is_template(value)


def _is_basic(value: str) -> bool:
    """Whether a value is the user and password of HTTP's basic scheme."""
    try:
        return b":" in base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False


@cache
def _boundary() -> re.Pattern[str]:
    return re.compile(BEGIN)


@dataclass(frozen=True, slots=True)
class Library:
    """The patterns of one plug-in of `detect-secrets`; nothing of it opens a connection."""

    module: str
    name: str
    cues: tuple[str, ...]

    def spans(self, hay: Haystack) -> Iterator[Span]:
        """See `Detector`."""
        if not any(cue in hay.text for cue in self.cues):
            return
        for pattern in _library_patterns(self.module, self.name):
            for found in pattern.finditer(hay.text):
                # Patterns with a group name the value by it; others are the value.
                group = 1 if pattern.groups == 1 and found.end(1) - found.start(1) > 8 else 0
                if group or _boundary().match(hay.text, found.start()):
                    yield Span(*found.span(group), "API_KEY")


@cache
def _library_patterns(module: str, name: str) -> tuple[re.Pattern[str], ...]:
    plugin = getattr(import_module(f"detect_secrets.plugins.{module}"), name)
    return tuple(plugin.denylist)


def _keys() -> Iterator[Detector]:
    for prefix, rest in _PREFIXED.items():
        yield Cued("API_KEY", (prefix,), re.compile(BEGIN + re.escape(prefix) + rest))


SECRETS: Final[tuple[Detector, ...]] = (
    Cued("PRIVATE_KEY", ("-----BEGIN ",), _PRIVATE_KEY),
    Cued("JWT", ("eyJ",), _JWT),
    *_keys(),
    *(Library(*plugin) for plugin in _LIBRARY),
    Cued(
        "WEBHOOK",
        ("hooks.", "discord", "outlook.office", "hook.", "chat.googleapis", "open.", "webhook"),
        _WEBHOOK,
        group="value",
    ),
    Cued("PASSWORD", ("://",), _URL_PASSWORD, group="value", accept=_no_template),
    Cued("SECRET", ("://",), _URL_TOKEN, group="value", accept=_is_credential),
    Cued("SECRET", ("bearer", "basic"), _BEARER, "value", _is_credential, any_case=True),
    Cued("PASSWORD", ("curl",), _USER_OPTION, group="value", accept=_no_template),
    Cued(
        "SECRET",
        ("-password", "-passwd", "-token", "-secret", "-api", "-access", "-auth"),
        _PASSWORD_OPTION,
        group="value",
        accept=_no_template,
    ),
    Cued("SECRET", ("sig=", "signature=", "security-token="), _SIGNED_URL, "value", any_case=True),
    *ASSIGNED,
)
"""Specific kinds first: where two overlap, the first names the kind."""
