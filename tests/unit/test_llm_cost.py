"""What --dry-run says of tokens, minutes and money."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoagent.llm import ResponseStore, write_reference
from ecoagent.llm.cost import (
    CHARACTERS_PER_TOKEN,
    SPEEDS,
    TOKENS_PER_MESSAGE,
    EngineSpeed,
    _shared,
    estimate_cost,
    speed_of,
)
from ecoagent.settings import Settings, load_settings
from tests.unit.llm_scripted import answer, ask


def settings_of(tmp_path: Path, *overrides: str) -> Settings:
    base = [f"llm.store={tmp_path / 'r.sqlite'}", "llm.reference=none", "llm.threads=2"]
    return load_settings("local", overrides=[*base, *overrides], env={})


def test_tokens_by_length_minutes_by_speed_and_nothing_created(tmp_path: Path) -> None:
    requests = [ask("x" * 4100, max_tokens=100), ask("y" * 410, max_tokens=1)]
    estimate = estimate_cost(requests, settings_of(tmp_path))
    assert (estimate.requests, estimate.answered, estimate.dollars) == (2, 0, None)
    assert estimate.tokens_in == round(4510 / CHARACTERS_PER_TOKEN + 2 * TOKENS_PER_MESSAGE)
    assert estimate.tokens_out == 49
    speed = SPEEDS["embedded"]
    assert estimate.minutes == round((1100 / speed.prefill + 49 / speed.decode) / 60, 3)
    assert not (tmp_path / "r.sqlite").exists() and "dollars" not in estimate.as_record()
    assert estimate.basis.startswith("measured")


def test_a_shared_beginning_is_read_once(tmp_path: Path) -> None:
    same = [ask("x" * 41_000 + str(i), max_tokens=1) for i in range(10)]
    other = [ask(str(i) + "x" * 41_000, max_tokens=1) for i in range(10)]
    shared, apart = (estimate_cost(r, settings_of(tmp_path)) for r in (same, other))
    assert shared.tokens_in == apart.tokens_in
    assert apart.minutes == pytest.approx(10 * shared.minutes, rel=0.1)


def test_what_is_stored_or_published_or_asked_twice_is_not_counted(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    model = settings.llm.model
    requests = [ask(t) for t in ("stored", "failed", "published", "new", "new")]
    store = ResponseStore(settings.llm.store)
    store.put(answer(model, requests[0], "a"), requests[0])
    store.put(answer(model, requests[1], "").model_copy(update={"status": "error:timeout"}), requests[1])
    store.close()
    other = ResponseStore(tmp_path / "other.sqlite")
    other.put(answer(model, requests[2], "a"), requests[2])
    published = write_reference(tmp_path / "published.parquet", other.dump())
    other.close()
    estimate = estimate_cost(requests, settings)
    assert (estimate.requests, estimate.answered) == (3, 2)
    estimate = estimate_cost(requests, settings_of(tmp_path, f"llm.reference={published}"))
    assert (estimate.requests, estimate.answered) == (2, 3)
    live = [r.model_copy(update={"live": True}) for r in requests]
    assert estimate_cost(live, settings_of(tmp_path, f"llm.reference={published}")).requests == 3
    nothing = estimate_cost(requests[:1], settings)
    assert (nothing.requests, nothing.tokens_in, nothing.tokens_out, nothing.minutes) == (0, 0, 0, 0.0)


def test_money_where_there_is_a_price(tmp_path: Path) -> None:
    requests = [ask("x" * 4_100_000, max_tokens=1000)]
    priced = settings_of(tmp_path, "llm.price_in=0.5", "llm.price_out=2.0")
    estimate = estimate_cost(requests, priced, expected=lambda r: r.sampling.max_tokens)
    assert estimate.tokens_out == 1000
    assert estimate.dollars == pytest.approx(0.5 + 0.002, abs=1e-4)
    assert estimate.as_record()["dollars"] == estimate.dollars
    only_in = estimate_cost(requests, settings_of(tmp_path, "llm.price_in=0.5"))
    assert only_in.dollars == pytest.approx(0.5, abs=1e-4)


def test_a_samples_cost_scaled_to_the_whole(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "llm.price_in=0.5")
    sample = estimate_cost([ask(f"{i}" * 4100, max_tokens=100) for i in range(5)], settings)
    whole = estimate_cost([ask(f"{i:03d}" + "x" * 4097, max_tokens=100) for i in range(50)], settings)
    scaled = sample.scaled(10)
    assert (scaled.requests, scaled.tokens_out) == (whole.requests, whole.tokens_out)
    assert scaled.tokens_in == pytest.approx(whole.tokens_in, rel=0.01)
    assert scaled.dollars == pytest.approx(whole.dollars, rel=0.01)
    assert scaled.as_record()["minutes"] == round(scaled.minutes, 1)


def test_speed_grows_with_servers_replicas_cores_and_smaller_models(tmp_path: Path) -> None:
    def decode(*overrides: str) -> float:
        return speed_of(settings_of(tmp_path, *overrides).llm).decode

    assert decode("llm.threads=4") == 2 * decode()
    assert decode("llm.model=Qwen2.5-Coder-0.5B-Instruct-Q4_K_M") == pytest.approx(3 * decode())
    server = ["llm.engine=server", "llm.concurrency=4"]
    two = 'llm.base_urls=["http://a:1/v1", "http://b:1/v1"]'
    assert decode(*server, two) == 2 * decode(*server)
    assert decode(*server, two, "llm.base_url=http://a:1/v1") == decode(*server, two)
    assert decode("llm.engine=vllm", "llm.data_parallel=3") == 3 * decode("llm.engine=vllm")


def test_a_server_on_this_machine_is_as_fast_as_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def speed(*overrides: str) -> EngineSpeed:
        return speed_of(settings_of(tmp_path, *overrides).llm)

    own = speed()
    here = ["llm.engine=server", "llm.base_url=http://127.0.0.1:8080/v1"]
    monkeypatch.setattr("ecoagent.llm.cost.has_gpu", lambda: False)
    found = speed(*here)
    assert (found.prefill, found.decode) == (own.prefill, own.decode) and "has no GPU" in found.source
    assert speed(*here, 'llm.base_urls=["http://localhost:8081/v1"]') == found, "they share the cores"
    mixed = speed(*here, 'llm.base_urls=["http://elsewhere:1/v1"]')
    assert "assumed" in mixed.source
    monkeypatch.setattr("ecoagent.llm.cost.has_gpu", lambda: True)
    assert "assumed" in speed(*here).source


@given(st.text("ab", max_size=12), st.text("ab", max_size=12))
def test_the_shared_beginning_is_exact(one: str, other: str) -> None:
    slow = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    assert _shared(one, other) == (min(len(one), len(other)) if slow is None else slow)
