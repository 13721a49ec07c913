"""What a replay gives: columns per lane, and sums over all lanes. Open-loop: recorded outputs and
times stay as they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from analyzer.errors import LawError
from analyzer.model import Usage
from analyzer.policies.base import RedLines
from analyzer.replay.base import LaneKey


@dataclass
class LaneReplay:
    """One lane under a policy, column by column; entry n belongs to step n. Tokens, USD."""

    key: LaneKey
    prompt: list[int] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    write_5m: list[int] = field(default_factory=list)
    write_1h: list[int] = field(default_factory=list)
    input: list[int] = field(default_factory=list)
    output: list[int] = field(default_factory=list)
    cost: list[float | None] = field(default_factory=list)
    """USD of the request with its summary calls; None where the model has no known price."""
    edits: list[int] = field(default_factory=list)
    breaks: list[bool] = field(default_factory=list)
    same: list[bool] = field(default_factory=list)
    """The prompt equals the recorded one."""
    summary_calls: int = 0
    summary_input: int = 0
    summary_read: int = 0
    summary_write: int = 0
    summary_output: int = 0
    red_lines: RedLines = field(default_factory=RedLines)
    unrecovered: int = 0

    def add_call(self, step: int, usage: Usage, paid: float | None) -> None:
        """Bill a model call that the policy made before a step."""
        self.summary_calls += 1
        self.summary_input += usage.input or 0
        self.summary_read += usage.cache_read or 0
        self.summary_write += usage.cache_write or 0
        self.summary_output += usage.output or 0
        cost = self.cost[step]
        self.cost[step] = None if paid is None or cost is None else cost + paid

    def check(self, step: int, sent: int) -> None:
        """Every token of the prompt that was sent is billed once. Raises `LawError`."""
        read, rest = self.read[step], self.input[step]
        written = self.write_5m[step] + self.write_1h[step]
        if not 0 <= read <= sent or read + written + rest != sent or rest < 0:
            raise LawError(
                f"expected 0 <= read <= prompt and read + write + input = prompt, got read {read}, "
                f"write {written}, input {rest}, prompt {sent} at step {step} of lane "
                f"{self.key.lane!r} in session {self.key.session.session_id!r}"
            )


@dataclass(frozen=True)
class ReplayResult:
    """All lanes under one policy. Open-loop: recorded outputs and times stay."""

    policy: str
    """Spec of the policy."""
    cache: str
    placement: str
    """Spec of the placement."""
    carried: bool
    lanes: tuple[LaneReplay, ...]

    def _sum(self, name: str) -> int:
        return sum(sum(getattr(lane, name)) for lane in self.lanes)

    @cached_property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts, without summary calls."""
        return self._sum("prompt")

    @cached_property
    def read_tokens(self) -> int:
        """Tokens read from the cache, summary calls included."""
        return self._sum("read") + sum(lane.summary_read for lane in self.lanes)

    @cached_property
    def write_tokens(self) -> int:
        """Tokens written to the cache, summary calls included."""
        written = self._sum("write_5m") + self._sum("write_1h")
        return written + sum(lane.summary_write for lane in self.lanes)

    @cached_property
    def input_tokens(self) -> int:
        """Uncached tokens, summary calls included."""
        return self._sum("input") + sum(lane.summary_input for lane in self.lanes)

    @cached_property
    def output_tokens(self) -> int:
        """Generated tokens, summaries included."""
        return self._sum("output") + sum(lane.summary_output for lane in self.lanes)

    @property
    def steps(self) -> int:
        """Requests of the agent."""
        return sum(len(lane.prompt) for lane in self.lanes)

    @property
    def summary_calls(self) -> int:
        """Model calls that the policy makes itself."""
        return sum(lane.summary_calls for lane in self.lanes)

    @property
    def breaks(self) -> int:
        """Steps that read much less than the cache could have held."""
        return self._sum("breaks")

    @property
    def peak_window(self) -> int:
        """Tokens of the largest prompt."""
        return max((max(lane.prompt, default=0) for lane in self.lanes), default=0)

    @cached_property
    def cost_usd(self) -> float | None:
        """USD of everything; None if any step has no known price."""
        costs = [cost for lane in self.lanes for cost in lane.cost]
        return None if any(c is None for c in costs) else sum(c for c in costs if c is not None)

    @cached_property
    def red_lines(self) -> RedLines:
        """Red lines crossed in all lanes."""
        total = RedLines()
        for lane in self.lanes:
            total.add(lane.red_lines)
        return total

    @property
    def unrecovered(self) -> int:
        """Placeholders whose original the recordings never showed."""
        return sum(lane.unrecovered for lane in self.lanes)
