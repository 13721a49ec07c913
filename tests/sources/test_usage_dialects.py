"""One truth, told in the dialect of every sender: what is read back is the truth, or says it is not.

The truth is what the provider billed; a dialect is how a sender writes it down (inclusive, half
inclusive, clamped, under several names, with totals that a server summed). Where a dialect loses
information, the reading must say so and still be a possible one.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import assume, given
from hypothesis import strategies as st

from analyzer.model import Usage
from analyzer.sources.anthropic_usage import anthropic_usage
from analyzer.sources.bedrock import bedrock_usage
from analyzer.sources.openai_usage import openai_usage
from analyzer.sources.spans.usage import normalise_usage

COUNTS = st.integers(0, 400_000)
READ_NAMES = ("cache_read_input_tokens", "input_cached_tokens", "input_cache_read")
WRITE_NAMES = ("cache_creation_input_tokens", "input_cache_creation", "input_cache_write")
SPLIT_NAMES = (
    ("input_cache_creation_5m", "input_cache_creation_1h"),
    ("input_ephemeral_5m_input_tokens", "input_ephemeral_1h_input_tokens"),
    ("cache_creation_ephemeral_5m_input_tokens", "cache_creation_ephemeral_1h_input_tokens"),
)


@dataclass(frozen=True)
class Truth:
    """What was billed, tokens."""

    uncached: int
    read: int
    short: int
    long: int
    output: int
    reasoning: int

    @property
    def write(self) -> int:
        return self.short + self.long

    @property
    def cached(self) -> int:
        return self.read + self.write

    @property
    def prompt(self) -> int:
        return self.uncached + self.cached


@st.composite
def truths(draw: st.DrawFn) -> Truth:
    output = draw(COUNTS)
    return Truth(
        draw(COUNTS), draw(COUNTS), draw(COUNTS), draw(COUNTS), output, draw(st.integers(0, output))
    )


def tells(usage: Usage, truth: Truth) -> bool:
    """Whether the counts are the truth, and the split too where there is one."""
    split = usage.cache_write_5m is None or (
        (usage.cache_write_5m, usage.cache_write_1h) == (truth.short, truth.long)
    )
    counts = (usage.input, usage.cache_read, usage.cache_write, usage.output)
    return split and counts == (truth.uncached, truth.read, truth.write, truth.output)


def is_lawful(usage: Usage) -> bool:
    """The laws of disjoint counts."""
    counts = [usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning]
    split = (usage.cache_write_5m or 0) + (usage.cache_write_1h or 0)
    parts = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    return (
        all(c is None or c >= 0 for c in counts)
        and split <= (usage.cache_write or 0)
        and (usage.reasoning or 0) <= (usage.output or 0)
        and usage.prompt in (None, parts)
    )


@given(truth=truths(), read=st.sampled_from(READ_NAMES), write=st.sampled_from(WRITE_NAMES))
def test_disjoint_buckets_are_taken_as_they_stand(truth: Truth, read: str, write: str) -> None:
    given_ = {"input": truth.uncached, read: truth.read, write: truth.write, "output": truth.output}
    found = normalise_usage({**given_, "total_tokens": truth.prompt + truth.output}).usage
    assert tells(found, truth)
    assert is_lawful(found)
    assert not found.doubts


@given(truth=truths(), read=st.sampled_from(READ_NAMES), split=st.sampled_from(SPLIT_NAMES))
def test_writes_by_lifetime_are_kept_apart(truth: Truth, read: str, split: tuple[str, str]) -> None:
    assume(truth.write)
    given_ = {
        "input": truth.uncached,
        read: truth.read,
        split[0]: truth.short,
        split[1]: truth.long,
        "output": truth.output,
    }
    found = normalise_usage(given_).usage
    assert (found.cache_write_5m, found.cache_write_1h) == (truth.short, truth.long)
    assert found.cache_write == truth.write
    assert is_lawful(found)


@given(truth=truths(), read=st.sampled_from(READ_NAMES), write=st.sampled_from(WRITE_NAMES))
def test_an_inclusive_input_is_seen_by_the_senders_total(
    truth: Truth, read: str, write: str
) -> None:
    assume(truth.cached)
    given_ = {"input": truth.prompt, read: truth.read, write: truth.write, "output": truth.output}
    found = normalise_usage({**given_, "total_tokens": truth.prompt + truth.output}).usage
    assert tells(found, truth)
    (doubt,) = found.doubts
    assert doubt == ("input_inclusive", truth.prompt + truth.cached, truth.prompt)


@given(truth=truths())
def test_writes_inside_the_input_are_seen_by_the_senders_total(truth: Truth) -> None:
    assume(truth.read and truth.write)
    given_ = {
        "input": truth.uncached + truth.write,
        "cache_read_input_tokens": truth.read,
        "cache_creation_input_tokens": truth.write,
        "output": truth.output,
        "total_tokens": truth.prompt + truth.output,
    }
    # Equal reads and writes cannot be told from an input that holds the reads.
    assume(truth.uncached + truth.write < truth.cached or truth.read != truth.write)
    found = normalise_usage(given_).usage
    assert tells(found, truth)
    assert [d.name for d in found.doubts] == ["write_inside_input"]


@given(truth=truths(), total=st.sampled_from(["total", "total_tokens"]))
def test_a_clamped_input_is_restored_from_the_total(truth: Truth, total: str) -> None:
    assume(truth.cached and truth.uncached)
    given_ = {
        "input": 0,
        "input_cached_tokens": truth.read,
        "input_cache_creation": truth.write,
        "output": truth.output,
        total: truth.prompt + truth.output,
    }
    found = normalise_usage(given_).usage
    if any(d.name == "clamped_input" for d in found.doubts):
        assert tells(found, truth)
    assert is_lawful(found)
    assert found.doubts


@given(truth=truths(), names=st.permutations(READ_NAMES))
def test_one_count_under_several_names_counts_once(truth: Truth, names: list[str]) -> None:
    assume(truth.read)
    given_ = {"input": truth.uncached, **dict.fromkeys(names, truth.read), "output": truth.output}
    summed = sum(given_.values())
    found = normalise_usage({**given_, "total": summed}).usage
    assert (found.input, found.cache_read, found.output) == (
        truth.uncached,
        truth.read,
        truth.output,
    )
    whole = truth.uncached + truth.read + truth.output
    assert found.doubts == (("total_inflated", summed, whole),)


@given(truth=truths())
def test_what_a_servers_sum_hides_is_flagged(truth: Truth) -> None:
    """An inclusive input whose total the server made: both readings are possible."""
    assume(truth.cached)
    given_ = {
        "input": truth.prompt,
        "input_cached_tokens": truth.read,
        "input_cache_creation": truth.write,
        "output": truth.output,
    }
    found = normalise_usage({**given_, "total": sum(given_.values())})
    assert "maybe_inclusive" in found.flags
    assert is_lawful(found.usage)


@given(truth=truths(), chat=st.booleans())
def test_openais_counts_include_the_cache(truth: Truth, chat: bool) -> None:
    names = ("prompt_tokens", "completion_tokens") if chat else ("input_tokens", "output_tokens")
    details = ("prompt_tokens_details", "completion_tokens_details")
    if not chat:
        details = ("input_tokens_details", "output_tokens_details")
    found = openai_usage(
        {
            names[0]: truth.prompt,
            names[1]: truth.output,
            "total_tokens": truth.prompt + truth.output,
            details[0]: {
                "cached_tokens": truth.read,
                "cache_write_tokens": truth.write,
                "cache_write_tokens_details": {
                    "ttl_30m_tokens": truth.short,
                    "ttl_12h_tokens": truth.long,
                },
            },
            details[1]: {"reasoning_tokens": truth.reasoning},
        }
    )
    assert tells(found, truth)
    assert found.reasoning == truth.reasoning
    assert is_lawful(found)
    assert not found.doubts


@given(whole=COUNTS, read=COUNTS, written=COUNTS, output=COUNTS, total=st.none() | COUNTS)
def test_no_openai_record_gives_an_unlawful_reading(
    whole: int, read: int, written: int, output: int, total: int | None
) -> None:
    found = openai_usage(
        {
            "prompt_tokens": whole,
            "completion_tokens": output,
            "total_tokens": total,
            "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        }
    )
    assert is_lawful(found)
    # More cached tokens than input is a contradiction, unless the total shows what was meant.
    if read + written > whole and total != whole + read + written + output:
        assert [d.name for d in found.doubts] == ["cached_over_input"]


@given(truth=truths(), flat=st.booleans())
def test_anthropics_counts_leave_the_cache_out(truth: Truth, flat: bool) -> None:
    obj = {
        "input_tokens": truth.uncached,
        "output_tokens": truth.output,
        "cache_read_input_tokens": truth.read,
        "cache_creation_input_tokens": truth.write,
        "output_tokens_details": {"thinking_tokens": truth.reasoning},
    }
    if not flat:
        obj["cache_creation"] = {
            "ephemeral_5m_input_tokens": truth.short,
            "ephemeral_1h_input_tokens": truth.long,
        }
    found = anthropic_usage(obj).usage
    split = (found.cache_write_5m, found.cache_write_1h)
    assert tells(found, truth) if not (flat and truth.write) else split == (None, None)
    assert is_lawful(found)
    assert not found.doubts


@given(truth=truths())
def test_bedrocks_counts_leave_the_cache_out(truth: Truth) -> None:
    found = bedrock_usage(
        {
            "inputTokens": truth.uncached,
            "outputTokens": truth.output,
            "cacheReadInputTokens": truth.read,
            "cacheWriteInputTokens": truth.write,
            "cacheDetails": [
                {"ttl": "5m", "inputTokens": truth.short},
                {"ttl": "1h", "inputTokens": truth.long},
            ],
        }
    )
    assert tells(found, truth)
    assert is_lawful(found)
