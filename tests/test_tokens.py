"""The estimator is held against the sizes that recorded totals tell exactly."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from analyzer.model import Lane, Usage
from analyzer.tokens import Sizes, measure
from tests.replay.recordings import agent


def scaled(lane: Lane, factor: float) -> Lane:
    """The lane in a model whose tokens are that much shorter."""

    def larger(usage: Usage | None) -> Usage | None:
        whole = usage.prompt if usage else None
        return usage and replace(usage, input=round((whole or 0) * factor), cache_write=0)

    steps = tuple(replace(s, usage=larger(s.usage)) for s in lane.steps)
    return replace(lane, steps=steps)


@pytest.mark.parametrize("factor", [1.0, 1.5, 0.7])
def test_calibration_takes_the_scale_of_a_model_out(factor: float) -> None:
    sizes = measure(scaled(agent(30), factor))
    assert len(sizes.groups) == 29
    assert median(sizes.errors(calibrated=False)) == pytest.approx(abs(1 / factor - 1), abs=0.02)
    assert median(sizes.errors(calibrated=True)) < 0.02


def test_a_group_does_not_calibrate_itself() -> None:
    def sizes(*groups: tuple[int, int]) -> Sizes:
        return Sizes((), (0,), (), (), 1.0, groups)

    assert sizes((100, 150)).errors(calibrated=True) == [pytest.approx(1 / 3)]
    two = sizes((100, 150), (100, 100)).errors(calibrated=True)
    assert two == [pytest.approx(1 / 3), pytest.approx(0.5)]
    many = sizes((100, 200), (100, 100), (100, 100), (100, 100)).errors(calibrated=True)
    assert many == [pytest.approx(0.5), 0.0, 0.0, 0.0]
