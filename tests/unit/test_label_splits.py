"""Shares of EcoAgent-Real: settings, the option for them, and no split that stays empty unsaid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ecoagent.cli import building, labeling
from ecoagent.cli.app import app
from ecoagent.cli.options import real_split_overrides
from ecoagent.labeling.splits import NAMES, deal_splits, splits_wanted
from ecoagent.settings import UserError, load_settings

Shares = tuple[float, float, float]


def _cut(parts: tuple[int, int, int]) -> Shares:
    a, b, c = (part / sum(parts) for part in parts)
    return a, b, c


part = st.integers(0, 1000) | st.just(0) | st.just(1)
shares_strategy = st.tuples(part, part, part).filter(lambda parts: sum(parts) > 0).map(_cut)


@settings(deadline=None, max_examples=80)
@given(shares_strategy, st.integers(0, 40), st.integers(0, 3))
def test_every_split_with_a_share_is_served(shares: Shares, size: int, seed: int) -> None:
    strata = {f"q{i:02d}": ("single", "several")[i % 2] for i in range(size)}
    dealt = deal_splits(strata, shares, seed)
    assert set(dealt) == set(strata)
    counts = {name: list(dealt.values()).count(name) for name in NAMES}
    assert all(share > 0 or counts[name] == 0 for name, share in zip(NAMES, shares, strict=True))
    if size >= splits_wanted(shares):
        assert all(share == 0 or counts[name] > 0 for name, share in zip(NAMES, shares, strict=True))
    # A split that takes one to have any aside, each is within a query or so of its share.
    for name, share in zip(NAMES, shares, strict=True):
        assert abs(counts[name] - share * size) < 3


@pytest.mark.parametrize(
    ("shares", "size", "counts"),
    [
        ((0.8, 0.1, 0.1), 3, (1, 1, 1)),
        ((0.8, 0.1, 0.1), 20, (16, 2, 2)),
        ((0.0, 0.9, 0.1), 3, (0, 2, 1)),
        ((0.0, 0.5, 0.5), 3, (0, 2, 1)),
        ((0.0, 0.0, 1.0), 1, (0, 0, 1)),
    ],
)
def test_small_sets(shares: Shares, size: int, counts: tuple[int, int, int]) -> None:
    dealt = list(deal_splits({f"q{i}": "single" for i in range(size)}, shares, 0).values())
    assert tuple(dealt.count(name) for name in NAMES) == counts


def test_default_shares_deal_as_they_did() -> None:
    strata = {f"q{i}": ("single" if i % 3 else "several") for i in range(8)}
    assert "".join(deal_splits(strata, (0.0, 0.5, 0.5), 0)[q][0] for q in sorted(strata)) == "tvtvttvv"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[0, 0, 0]", r"labeling\.splits.*must sum to 1; these sum to 0"),
        ("[0.5, 0.5, 0.5]", r"labeling\.splits.*must sum to 1; these sum to 1\.5"),
        ("[1.5, -0.5, 0]", r"labeling\.splits\.0.*less than or equal to 1"),
        ("[80, 10, 10]", r"labeling\.splits\.0.*less than or equal to 1"),
        ("[nan, 0.5, 0.5]", r"labeling\.splits\.0"),
        ("[0.5, 0.5]", r"labeling\.splits"),
    ],
)
def test_shares_that_are_none_are_a_settings_error(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        load_settings("local", env={}, overrides=[f"labeling.splits={text}"])


def test_shares_may_be_rounded() -> None:
    found = load_settings("local", env={}, overrides=["labeling.splits=[0.33333, 0.33333, 0.33333]"])
    assert sum(found.labeling.splits) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("given", "shares"),
    [
        ("80/10/10", (0.8, 0.1, 0.1)),
        (" 0 / 50 / 50 ", (0.0, 0.5, 0.5)),
        ("33.3/33.3/33.4", (0.333, 0.333, 0.334)),
        ("100/0/0", (1.0, 0.0, 0.0)),
    ],
)
def test_percentages_become_shares(given: str, shares: Shares) -> None:
    found = load_settings("local", env={}, overrides=real_split_overrides(given))
    assert found.labeling.splits == shares


@pytest.mark.parametrize(
    "wrong", ["", "80/10", "80/10/10/0", "80/10/20", "a/b/c", "-10/60/50", "80-10-10", "1e2/0/0"]
)
def test_other_percentages_are_refused(wrong: str) -> None:
    with pytest.raises(UserError, match="write --real-split 80/10/10"):
        real_split_overrides(wrong)


@pytest.mark.parametrize(("command", "module"), [("label", labeling), ("build", building)])
def test_commands_take_the_option(command: str, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Shares, list[str]]] = []

    def run_flow(names: object, chosen: Any, overrides: list[str], **rest: object) -> int:
        seen.append((chosen.labeling.splits, overrides))
        return 0

    monkeypatch.setattr(module, "run_flow", run_flow)
    invoke: Callable[..., Any] = CliRunner().invoke
    done = invoke(app, [command, "--profile", "local", "--real-split", "80/10/10"])
    assert done.exit_code == 0, done.output
    # The flow reads the settings anew, from the overrides.
    assert seen == [((0.8, 0.1, 0.1), ["labeling.splits=[0.8, 0.1, 0.1]"])]
    wrong = invoke(app, [command, "--real-split", "80/10"])
    assert wrong.exit_code == 2 and "not three percentages" in wrong.output
