"""How large a part is, in tokens: estimated from its text, then measured from recorded usage.

Owns `estimate` (cheap, from characters) and `measure` (recorded totals divided among parts). No
vocabulary is loaded: an estimate only has to divide a total that the provider reported exactly.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from analyzer.model import Lane, Part, Prompt, Range, Step
from analyzer.ranges import appended_ranges, common_parts, head, summed, tail_ranges

ASCII_CHARS_PER_TOKEN = 3.9
"""English prose is near 4.3, code near 3.3; the calibration of `measure` takes the rest out."""
OTHER_TOKENS_PER_CHAR = 0.9
"""CJK is 0.6 to 1.5 tokens a character with current vocabularies."""

MESSAGE_ENVELOPE = 4
CALL_ENVELOPE = 18
RESULT_ENVELOPE = 20
IMAGE_TOKENS = 1500
"""A full-size image is about width x height / 750 tokens; transcripts rarely say its size."""


def estimate(text: str) -> int:
    """Estimated tokens of a text, from its character classes. Never below 1 for a text that is not empty."""
    if not text:
        return 0
    if text.isascii():
        return max(1, round(len(text) / ASCII_CHARS_PER_TOKEN))
    wide = (len(text.encode("utf-8", "surrogatepass")) - len(text)) // 2
    wide = min(wide, len(text))
    return max(1, round((len(text) - wide) / ASCII_CHARS_PER_TOKEN + wide * OTHER_TOKENS_PER_CHAR))


LEAST_SHARE, MOST_SHARE = 0.2, 5.0
"""Measured sizes this far from the estimate say that something else changed as well."""
ANCHOR_SHARE = 0.25
"""An estimate may be off by this share and still say which breakpoint a read went up to."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Measured sizes of a lane's parts and prompts, in tokens."""

    parts: tuple[int, ...]
    """Tokens of each pool part, envelope included."""
    cumulative: tuple[int, ...]
    """`cumulative[i]` = tokens of pool parts 0..i-1, so that a range costs one subtraction."""
    hidden: tuple[int, ...]
    """Per step: prompt tokens that the visible parts do not explain. For a rebuilt prompt that is
    the system prompt and the tools, less what had been cut out of sight; it may be negative."""
    appended: tuple[int, ...]
    """Per step: tokens of the parts at the end of the prompt that the previous prompt had not."""
    ratio: float
    """Measured tokens per estimated token of this lane."""
    groups: tuple[tuple[int, int], ...]
    """(estimated, measured) of each appended group that was measured exactly."""

    def errors(self, *, calibrated: bool) -> list[float]:
        """|estimate / measured - 1| of each exact group; calibrated: on the scale of the others."""
        scale = 1.0
        ratios = sorted(measured / estimated for estimated, measured in self.groups)
        out = []
        for estimated, measured in self.groups:
            if calibrated:
                scale = _median_without(ratios, measured / estimated)
            out.append(abs(estimated * scale / measured - 1))
        return out

    def of(self, ranges: tuple[Range, ...]) -> int:
        """Tokens of the parts in some ranges."""
        return summed(ranges, self.cumulative)

    def envelope(self, part: Part) -> int:
        """Tokens around a part's content, on this lane's scale."""
        return round(part.envelope * self.ratio)

    def text(self, text: str) -> int:
        """Tokens of a text that a policy would put in, on this lane's scale."""
        return round(estimate(text) * self.ratio)


def _median_without(ratios: list[float], own: float) -> float:
    """The median of sorted ratios but one; 1 where no other is left."""
    rest = len(ratios) - 1
    if not rest:
        return 1.0
    place = bisect_left(ratios, own)

    def other(n: int) -> float:
        return ratios[n + (n >= place)]

    return (other((rest - 1) // 2) + other(rest // 2)) / 2


def weight(part: Part) -> int:
    """Estimated tokens of a part with its envelope."""
    return part.estimate + part.envelope


def measure(lane: Lane) -> Sizes:
    """Divide the recorded prompt totals of a lane among its parts.

    When a step only appends, the difference of two totals is exactly the size of what was
    appended. Where the previous content changed out of sight, estimates on the lane's own scale
    stand in, and the difference goes to `hidden`.
    """
    return _Measurement(lane).run()


def confirmed(step: Step, previous: Step) -> bool | None:
    """Whether the cache itself shows that a prompt kept the previous one as its prefix.

    None where usage cannot tell (no cache counts on one of the two).
    """
    now, before = step.usage, previous.usage
    if now is None or before is None or not now.knows_cache or not before.knows_cache:
        return None
    stored = (before.cache_read or 0) + (before.cache_write or 0)
    if stored == 0:
        return None
    return (now.cache_read or 0) + max(64, stored // 100) >= stored


class _Measurement:
    """State of one pass over a lane: cumulative sizes grow with the pool, in order."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.weights = [weight(part) for part in lane.pool]
        total = 0
        self.weight_sums = [0]
        for w in self.weights:
            total += w
            self.weight_sums.append(total)
        self.sums = [0]
        self.groups: list[tuple[int, int]] = []
        self.ratio = self._calibrate()
        self.anchors = self._anchors()

    def _weight(self, ranges: tuple[Range, ...]) -> int:
        return summed(ranges, self.weight_sums)

    def _steps(self) -> list[tuple[Step | None, Step]]:
        before: list[Step | None] = [self.lane.previous, *self.lane.steps[:-1]]
        return list(zip(before, self.lane.steps, strict=True)) if self.lane.steps else []

    def _calibrate(self) -> float:
        ratios = []
        for before, step in self._steps():
            group = self._exact_group(before, step)
            if group is None:
                continue
            measured, ranges = group
            estimated = self._weight(ranges)
            if estimated >= 50 and measured > 0:
                self.groups.append((estimated, measured))
                ratios.append(measured / estimated)
        sane = [r for r in ratios if 0.25 <= r <= 4]
        if sane:
            return median(sane)
        first = next((s for s in self.lane.steps if s.usage and s.usage.prompt and s.prompt), None)
        if first and first.prompt and first.prompt.recorded and first.usage:
            guess = (first.usage.prompt or 0) / max(1, self._weight(first.prompt.ranges))
            if 0.25 <= guess <= 4:
                return guess
        return 1.0

    def _exact_group(self, before: Step | None, step: Step) -> tuple[int, tuple[Range, ...]] | None:
        """Measured tokens and ranges of what a purely appending step appended."""
        if before is None or before.prompt is None or step.prompt is None:
            return None
        if before.usage is None or step.usage is None:
            return None
        was, now = before.usage.prompt, step.usage.prompt
        if was is None or now is None:
            return None
        added = appended_ranges(before.prompt, step.prompt)
        if added is None:
            return None
        if not step.prompt.recorded and confirmed(step, before) is False:
            return None
        return now - was, added

    def _anchors(self) -> list[tuple[int, int]]:
        """Prefixes of the first prompt whose size a recorded read tells: (parts, tokens), growing.

        A cache can only give back a prefix that ends at a breakpoint. When a later step keeps no
        more of the first prompt than its first parts, and reads about as much as these up to a
        breakpoint are estimated to hold, then what it read is their exact size.
        """
        first = next(iter(self.lane.steps), None)
        total = first.usage.prompt if first and first.usage else None
        if first is None or total is None or first.prompt is None or not first.prompt.recorded:
            return []
        scale = total / max(1, self._weight(first.prompt.ranges))
        whole = len(first.prompt)
        found: dict[int, int] = {}
        for step in self.lane.steps:
            read = step.usage.cache_read if step.usage else None
            if not read or step.prompt is None or read >= total:
                continue
            common = common_parts(first.prompt, step.prompt)
            marks = (b.position + 1 for p in (first.prompt, step.prompt) for b in p.breakpoints)
            guesses = {n: self._weight(head(first.prompt, n)) * scale for n in (*marks, whole)}
            parts = min(guesses, key=lambda n: abs(guesses[n] - read))
            near = abs(guesses[parts] - read) <= ANCHOR_SHARE * read
            if near and parts <= common and parts < whole:
                found.setdefault(parts, read)
        ordered = sorted(found.items())
        return [a for a, b in pairwise([*ordered, (0, total)]) if a[1] < b[1]]

    def run(self) -> Sizes:
        hidden: list[int] = []
        appended: list[int] = []
        for before, step in self._steps():
            if step.prompt is None:
                hidden.append(0)
                appended.append(0)
                continue
            top = max((r.stop for r in step.prompt.ranges), default=0)
            self._size_up_to(top, before, step)
            visible = self._tokens(step.prompt.ranges)
            total = step.usage.prompt if step.usage else None
            hidden.append(total - visible if total is not None else (hidden[-1] if hidden else 0))
            appended.append(self._appended(before, step))
        self._extend(len(self.lane.pool), {})
        sums = tuple(self.sums)
        parts = tuple(b - a for a, b in pairwise(sums))
        return Sizes(parts, sums, tuple(hidden), tuple(appended), self.ratio, tuple(self.groups))

    def _tokens(self, ranges: tuple[Range, ...]) -> int:
        return summed(ranges, self.sums)

    def _size_up_to(self, top: int, before: Step | None, step: Step) -> None:
        start = len(self.sums) - 1
        if top <= start or step.prompt is None:
            return
        ranges = step.prompt.ranges
        fresh = [i for r in ranges if r.stop > start for i in range(max(r.start, start), r.stop)]
        exact: dict[int, int] = {}
        total = step.usage.prompt if step.usage else None
        known = self._tokens(
            tuple(
                r if r.stop <= start else Range(r.start, start) for r in ranges if r.start < start
            )
        )
        if total is not None and start == 0 and self.anchors:
            exact = self._between_anchors(step.prompt, total)
        elif total is not None and fresh:
            budget = self._budget(total, known, before, step)
            if budget is not None:
                # A transcript may show far more than was sent (an output that went to a file); what
                # the cache confirms as appended is as large as the totals say.
                least = LEAST_SHARE if step.prompt.recorded else 0.0
                exact = self._divide(budget, fresh, before, least)
        self._extend(top, exact)

    def _between_anchors(self, prompt: Prompt, total: int) -> dict[int, int]:
        """Divide the first prompt's total segment by segment between its anchors."""
        indices = list(prompt.indices())
        exact: dict[int, int] = {}
        at = given = 0
        for parts, tokens in (*self.anchors, (len(indices), total)):
            exact |= self._divide(tokens - given, indices[at:parts], None)
            at, given = parts, tokens
        return exact

    def _budget(self, total: int, known: int, before: Step | None, step: Step) -> int | None:
        """Tokens to divide among the parts that are new in this prompt; None to estimate them."""
        assert step.prompt is not None
        if step.prompt.recorded:
            return total - known
        group = self._exact_group(before, step)
        return group[0] if group else None

    def _divide(
        self, budget: int, fresh: list[int], before: Step | None, least: float = LEAST_SHARE
    ) -> dict[int, int]:
        weights = {i: max(1, self.weights[i]) for i in dict.fromkeys(fresh)}
        whole = sum(weights.values())
        if budget <= 0 or not least <= budget / (whole * self.ratio) <= MOST_SHARE:
            return {}
        answered = self._answered(before, weights)
        if answered is not None:
            share, output = answered
            rest = {i: w for i, w in weights.items() if i not in share}
            if (rest and budget > output) or (not rest and budget == output):
                return _apportion(output, share) | _apportion(budget - output, rest)
        return _apportion(budget, weights)

    def _answered(
        self, before: Step | None, weights: dict[int, int]
    ) -> tuple[dict[int, int], int] | None:
        """The previous response among the new parts, with its recorded output size."""
        if before is None or before.usage is None or not before.usage.output:
            return None
        share = {
            i: weights[i] for r in before.response for i in range(r.start, r.stop) if i in weights
        }
        if not share or before.usage.reasoning:
            return None
        if any(self.lane.pool[i].kind == "thinking" for i in share):
            return None
        output = before.usage.output
        if not 0.5 <= output / (sum(share.values()) * self.ratio) <= 2:
            return None
        return share, output

    def _extend(self, top: int, exact: dict[int, int]) -> None:
        for i in range(len(self.sums) - 1, top):
            size = exact.get(i)
            if size is None:
                size = max(1, round(self.weights[i] * self.ratio))
            self.sums.append(self.sums[-1] + size)

    def _appended(self, before: Step | None, step: Step) -> int:
        assert step.prompt is not None
        if before is None or before.prompt is None:
            return self._tokens(step.prompt.ranges)
        added = appended_ranges(before.prompt, step.prompt)
        if added is None:
            added = tail_ranges(before.prompt, step.prompt)
        if not step.prompt.recorded and confirmed(step, before) is False:
            # The response was really sent, so its recorded size beats an estimate from its text.
            output = before.usage.output if before.usage else None
            answered = {i for r in before.response for i in range(r.start, r.stop)}
            own = self._tokens(
                tuple(
                    Range(i, i + 1) for r in added for i in range(r.start, r.stop) if i in answered
                )
            )
            return self._tokens(added) - own + (output if output and own else own)
        return self._tokens(added)


def _apportion(total: int, weights: dict[int, int]) -> dict[int, int]:
    """Divide a whole number in proportion to weights so that the shares add up exactly."""
    if not weights:
        return {}
    whole = sum(weights.values())
    shares: dict[int, int] = {}
    given = seen = 0
    for i, w in weights.items():
        seen += w
        upto = total * seen // whole
        shares[i] = upto - given
        given = upto
    return shares
