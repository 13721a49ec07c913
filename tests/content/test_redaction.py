from __future__ import annotations

import json
import re
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.content.redaction import KINDS, Redactor
from tests.content.secrets import LETTERS, ORDINARY, PEM, PLANTED

KEY = b"k" * 32
STAND_IN = re.compile(r"<([A-Z_]+):[0-9a-f]{12}>")
plants = pytest.mark.parametrize("planted", PLANTED, ids=lambda p: f"{p.kind}: {p.text[:24]!r}")


def redacted(text: str, key: bytes = KEY) -> str:
    return Redactor(key).text(text)


@plants
def test_a_planted_value_is_replaced_and_what_stands_around_it_stays(planted) -> None:
    text = redacted(f"before {planted.text} behind")
    assert planted.value not in text
    assert text.startswith("before ")
    assert text.endswith(" behind")
    assert planted.kind in STAND_IN.findall(text)


@plants
@pytest.mark.parametrize("depth", [1, 2])
def test_a_value_is_found_inside_escaped_json(planted, depth: int) -> None:
    body = f"x\n{planted.text}\n\ty"
    for _ in range(depth):
        body = json.dumps({"command": body})
    text = redacted(body)
    assert planted.value not in text
    for _ in range(depth):
        text = json.loads(text)["command"]
    assert STAND_IN.search(text)


@plants
def test_equal_values_give_equal_stand_ins_under_one_key_alone(planted) -> None:
    one, again = redacted(planted.text), redacted(planted.text + "\n")
    elsewhere = redacted(planted.text, b"o" * 32)
    assert first_stand_in(one) == first_stand_in(again)
    assert first_stand_in(one) != first_stand_in(elsewhere)


def first_stand_in(text: str) -> str:
    found = STAND_IN.search(text)
    assert found is not None, text
    return found[0]


def test_a_private_key_is_the_same_as_text_and_as_json() -> None:
    assert redacted(PEM) == json.loads(redacted(json.dumps(PEM)))


def test_a_private_key_that_is_cut_off_is_replaced_as_far_as_it_goes() -> None:
    assert STAND_IN.fullmatch(redacted(PEM[: len(PEM) // 2]))


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_and_code_stay_as_they_are(text: str) -> None:
    assert redacted(text) == text


def test_every_kind_is_planted() -> None:
    assert {planted.kind for planted in PLANTED} == set(KINDS)


values = st.sampled_from([p.text for p in PLANTED])
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(max_examples=60, deadline=None)
@given(st.lists(words | values, max_size=6))
def test_a_second_pass_finds_nothing_more(pieces: list[str]) -> None:
    once = redacted(" | ".join(pieces))
    assert redacted(once) == once


@settings(max_examples=60, deadline=None)
@given(words, st.sampled_from(PLANTED), words)
def test_a_value_is_found_whatever_stands_around_it(before: str, planted, behind: str) -> None:
    assert planted.value not in redacted(f"{before}\n{planted.text}\n{behind}")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.from_regex(r"[a-z]{3,9}[0-9]{1,3}", fullmatch=True), min_size=2, unique=True))
def test_different_values_give_different_stand_ins(names: list[str]) -> None:
    text = redacted(" ".join(f"{name}@corp-mail.example" for name in names))
    assert len(set(STAND_IN.findall(text))) == 1
    assert len({m[0] for m in STAND_IN.finditer(text)}) == len(names)


@pytest.mark.parametrize(
    "piece",
    [
        "-----BEGIN RSA " + "PRIVATE KEY-----",
        "://a:",
        "@a.",
        "a@",
        "password",
        "1 ",
        "eyJ",
        "curl ",
        "+1 2",
        "2a00:",
        "/home/",
        "token=",
        "DE89 ",
        LETTERS,
        "\\n",
        "sk-",
        "aws key ",
        "glpat-",
        "AKIA",
        "Bot M",
        "telegram 123456789:",
        "[a](",
        "Authorization: Basic ",
    ],
)
def test_hostile_text_takes_no_longer_than_its_length(piece: str) -> None:
    text = piece * (400_000 // len(piece))
    began = time.process_time()
    redacted(text)
    assert time.process_time() - began < 8


def test_other_modes_load_no_detector() -> None:
    code = (
        "import sys; from analyzer.content import keeping; keeping('none', b'k'); keeping('full', b'');"
        "sys.exit(any(m.startswith(('phonenumbers', 'detect_secrets', 'stdnum')) for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
