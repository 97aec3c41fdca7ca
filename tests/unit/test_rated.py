"""The bandit and the fusion: golden trajectories, properties, validation, state on disk."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoagent.rated import BanditError, DiscountedLinUCB, fuse

GOLDEN = Path(__file__).parents[1] / "golden"


def close(actual, expected, rtol=1e-6):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "covariance"), [("linucb_diag_x0_rsqrt", "diagonal"), ("linucb_full_x0_rsqrt", "full")]
)
def test_golden_closed_loop(name, covariance):
    """Eq. 6-9 in a closed loop give the golden trajectory to 1e-6 at float64."""
    golden = json.loads((GOLDEN / f"{name}.json").read_text())
    params, prior = golden["params"], golden["r_static"]
    bandit = DiscountedLinUCB(
        params["arms"],
        params["d"],
        alpha=params["alpha"],
        gamma=params["gamma"],
        ridge=params["ridge"],
        covariance=covariance,
        prior=prior,
        dtype="float64",
    )
    arms = range(params["arms"])
    for x, semantic, rewards, step in zip(
        golden["X"], golden["S_sem"], golden["Y"], golden["trajectory"], strict=True
    ):
        mean, width = bandit.components(x, arms)
        scores = bandit.scores(x, arms)
        final = fuse(semantic, scores, prior, params["w"])
        close(mean, step["mu"])
        close(width, step["sigma"])
        close(scores, step["s_bandit"])
        close(final, step["s_final"])
        action = int(final.argmax())
        assert action == step["action"]
        assert rewards[action] == step["y"]
        bandit.update(action, x, rewards[action])
    close(bandit.A, golden["final_A"])
    close(bandit.b, golden["final_b"])
    assert bandit.pulls.sum() == len(golden["X"])


def test_cold_start_scales():
    assert DiscountedLinUCB(1, 16, prior=[0.8]).b[0, 0] == pytest.approx(0.8 / 4)
    assert DiscountedLinUCB(1, 16, prior=[0.8], x0="recip").b[0, 0] == pytest.approx(0.8 / 16)
    assert not DiscountedLinUCB(2, 4).b.any()
    assert (DiscountedLinUCB(2, 4, ridge=2.5).A == 2.5).all()


@st.composite
def histories(draw, max_arms=4, max_dim=5, max_steps=30, one_hot=False):
    arms, dim = draw(st.integers(1, max_arms)), draw(st.integers(1, max_dim))
    steps = draw(st.integers(0, max_steps))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = np.eye(dim)[generator.integers(dim, size=steps)] if one_hot else generator.normal(size=(steps, dim))
    return (
        generator.random(arms),
        X,
        generator.integers(arms, size=steps),
        generator.random(steps),
        generator.normal(size=dim),
    )


@settings(max_examples=60, deadline=None)
@given(histories())
def test_without_discount_equals_plain_linucb(history):
    prior, X, pulled, rewards, query = history
    dim = len(query)
    bandit = DiscountedLinUCB(len(prior), dim, gamma=1.0, covariance="full", prior=prior, dtype="float64")
    for x, arm, y in zip(X, pulled, rewards, strict=True):
        bandit.update(arm, x, y)
    expected = []
    for arm, r in enumerate(prior):
        seen = X[pulled == arm]
        A = np.eye(dim) + seen.T @ seen
        b = np.full(dim, r / np.sqrt(dim)) + seen.T @ rewards[pulled == arm]
        solved = np.linalg.solve(A, np.stack([b, query], axis=1))
        expected.append(query @ solved[:, 0] + 0.1 * np.sqrt(query @ solved[:, 1]))
    np.testing.assert_allclose(bandit.scores(query, range(len(prior))), expected, rtol=1e-8, atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(histories(one_hot=True), st.floats(0.8, 1.0))
def test_diagonal_of_a_one_hot_stream_equals_full(history, gamma):
    prior, X, pulled, rewards, query = history
    pair = [
        DiscountedLinUCB(len(prior), len(query), gamma=gamma, covariance=kind, prior=prior, dtype="float64")
        for kind in ("diagonal", "full")
    ]
    for x, arm, y in zip(X, pulled, rewards, strict=True):
        for bandit in pair:
            bandit.update(int(arm), x, y)
    arms = range(len(prior))
    np.testing.assert_allclose(
        pair[0].scores(query, arms), pair[1].scores(query, arms), rtol=1e-8, atol=1e-10
    )


@settings(max_examples=40, deadline=None)
@given(histories(), st.sampled_from(["diagonal", "full"]))
def test_only_the_executed_arm_changes(history, covariance):
    prior, X, pulled, rewards, query = history
    bandit = DiscountedLinUCB(len(prior), len(query), covariance=covariance, prior=prior)
    for x, arm, y in zip(X, pulled, rewards, strict=True):
        A, b = bandit.A.copy(), bandit.b.copy()
        before = bandit.scores(query, range(len(prior)))
        bandit.update(int(arm), x, y)
        after = bandit.scores(query, range(len(prior)))
        others = np.arange(len(prior)) != arm
        assert (bandit.A[others] == A[others]).all()
        assert (bandit.b[others] == b[others]).all()
        assert (after[others] == before[others]).all()


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_long_one_sided_streams_stay_finite(covariance, dtype):
    """Directions that are never seen decay for 4,000 pulls; scores must not become NaN."""
    bandit = DiscountedLinUCB(1, 4, covariance=covariance, prior=[0.9], dtype=dtype)
    x, unseen = np.array([1.0, 0, 0, 0]), np.array([0.5, 0.5, 0.5, 0.5])
    for _ in range(4_000):
        bandit.update(0, x, 1.0)
    mean, width = bandit.components(x, [0])
    assert mean[0] == pytest.approx(1.0, abs=0.01)
    assert width[0] == pytest.approx(np.sqrt(0.05), rel=0.01)
    mean, width = bandit.components(unseen, [0])
    assert np.isfinite(mean).all()
    assert width[0] > 100  # the bonus of an unseen direction grows: A is not re-regularised
    assert not np.isnan(bandit.A).any()


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
@pytest.mark.parametrize(
    ("arm", "x", "reward", "words"),
    [
        (0, [0.1, np.nan, 0.2], 1, "NaN"),
        (0, [0.1, np.inf, 0.2], 1, "infinity"),
        (0, [0.1, 0.2], 1, "shape"),
        (0, [[0.1, 0.2, 0.3]], 1, "shape"),
        (0, ["a", "b", "c"], 1, "numbers"),
        (2, [0.1, 0.2, 0.3], 1, "arm 2 is unknown"),
        (-1, [0.1, 0.2, 0.3], 1, "arm -1 is unknown"),
        (0.5, [0.1, 0.2, 0.3], 1, "not a number"),
        (0, [0.1, 0.2, 0.3], 1.01, "outside"),
        (0, [0.1, 0.2, 0.3], -2, "outside"),
        (0, [0.1, 0.2, 0.3], float("nan"), "outside"),
        (0, [0.1, 0.2, 0.3], None, "not a number"),
    ],
)
def test_bad_updates_are_named_and_change_nothing(covariance, arm, x, reward, words):
    bandit = DiscountedLinUCB(2, 3, covariance=covariance, prior=[0.4, 0.9])
    A, b = bandit.A.copy(), bandit.b.copy()
    with pytest.raises(BanditError, match=words):
        bandit.update(arm, x, reward)
    assert (bandit.A == A).all()
    assert (bandit.b == b).all()
    assert not bandit.pulls.any()


@pytest.mark.parametrize("arms", [[0, 2], [-1], [[0]], [0.5], 0])
def test_scores_of_unknown_arms(arms):
    with pytest.raises(BanditError, match="arm"):
        DiscountedLinUCB(2, 3).scores([1, 0, 0], arms)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_arms": -1},
        {"dim": 0},
        {"alpha": -0.1},
        {"gamma": 0},
        {"gamma": 1.1},
        {"ridge": 0},
        {"covariance": "dense"},
        {"x0": "one"},
        {"dtype": "float16"},
        {"prior": [0.5]},
        {"prior": [0.5, 1.5]},
        {"prior": [0.5, float("nan")]},
    ],
)
def test_bad_constants(wrong):
    with pytest.raises(BanditError):
        DiscountedLinUCB(**{"n_arms": 2, "dim": 3} | wrong)


def test_state_views_are_read_only():
    bandit = DiscountedLinUCB(1, 2)
    for view in (bandit.A, bandit.b, bandit.pulls):
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 7


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_added_arms_start_cold_and_leave_the_others(covariance):
    bandit = DiscountedLinUCB(2, 3, covariance=covariance, prior=[0.5, 0.6])
    bandit.update(1, [0.1, 0.2, 0.3], 1)
    before = bandit.scores([1, 0, 0], [0, 1])
    assert list(bandit.add_arms([0.5, 0.7])) == [2, 3]
    scores = bandit.scores([1, 0, 0], [0, 1, 2, 3])
    assert (scores[:2] == before).all()
    assert scores[2] == scores[0]
    bandit.update(3, [0.1, 0.2, 0.3], 1)
    assert bandit.pulls.tolist() == [0, 1, 0, 1]
    with pytest.raises(BanditError, match="outside"):
        bandit.add_arms([2.0])
    assert bandit.n_arms == 4


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_save_and_load_go_on_alike(tmp_path, covariance, dtype):
    generator = np.random.default_rng(1)
    bandit = DiscountedLinUCB(
        3,
        4,
        alpha=0.3,
        gamma=0.9,
        ridge=2,
        covariance=covariance,
        prior=[0.1, 0.5, 1],
        x0="recip",
        dtype=dtype,
    )
    for _ in range(20):
        bandit.update(int(generator.integers(3)), generator.normal(size=4), generator.random())
    path = tmp_path / "state" / "bandit.npz"
    bandit.save(path)
    first = path.read_bytes()
    loaded = DiscountedLinUCB.load(path)
    for one in (bandit, loaded):
        one.add_arms([0.3])
        one.update(2, [0.1, 0.2, 0.3, 0.4], 1)
        one.update(3, [0.4, 0.3, 0.2, 0.1], 0)
    x = generator.normal(size=4)
    assert (loaded.scores(x, range(4)) == bandit.scores(x, range(4))).all()
    assert (loaded.pulls == bandit.pulls).all()
    assert loaded.dtype == np.dtype(dtype)
    DiscountedLinUCB.load(path).save(path)
    assert path.read_bytes() == first
    assert [p.name for p in path.parent.iterdir()] == ["bandit.npz"]


def test_damaged_and_foreign_state_files(tmp_path):
    path = tmp_path / "bandit.npz"
    with pytest.raises(BanditError, match="does not exist"):
        DiscountedLinUCB.load(path)
    DiscountedLinUCB(3, 4).save(path)
    whole = path.read_bytes()
    for part in (b"", whole[: len(whole) // 2], b"\x00" * 64, b"[1, 2]"):
        path.write_bytes(part)
        with pytest.raises(BanditError, match="cannot be read"):
            DiscountedLinUCB.load(path)
    np.savez(path, A=np.ones(3))
    with pytest.raises(BanditError, match="cannot be read"):
        DiscountedLinUCB.load(path)
    np.savez(path, header=np.array([object()], dtype=object), allow_pickle=True)
    with pytest.raises(BanditError, match="cannot be read"):
        DiscountedLinUCB.load(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "version 2"),
        ({"format": "other"}, "not of kind"),
        ({"n_arms": 5}, "does not fit"),
        ({"dtype": "float64"}, "does not fit"),
        ({"gamma": 3}, "gamma"),
        ({"alpha": None}, "malformed"),
    ],
)
def test_headers_are_checked(tmp_path, change, words):
    path = tmp_path / "bandit.npz"
    DiscountedLinUCB(3, 4).save(path)
    with np.load(path) as members:
        arrays = dict(members)
    header = json.loads(arrays.pop("header").tobytes()) | change
    np.savez(path, header=np.frombuffer(json.dumps(header).encode(), dtype=np.uint8), **arrays)
    with pytest.raises(BanditError, match=words):
        DiscountedLinUCB.load(path)


def test_concurrent_updates_lose_nothing():
    threads, each = 8, 200
    bandit = DiscountedLinUCB(2, 8, gamma=1.0, dtype="float64")
    x = np.linspace(0.1, 0.8, 8)

    def work():
        for turn in range(each):
            bandit.update(turn % 2, x, 1)
            bandit.scores(x, [0, 1])

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    pulls = threads * each // 2
    assert bandit.pulls.tolist() == [pulls, pulls]
    close(bandit.A[0], 1 + pulls * x * x)
    close(bandit.b[1], pulls * x)


def test_fuse():
    close(fuse([1.0, 0.0], [0.0, 1.0], [0.5, 0.5]), [0.8, 0.2])
    close(fuse([1.0], [2.0], [3.0], weights=(0.5, 0.25, 0.25)), [1.75])
    with pytest.raises(BanditError, match="three weights"):
        fuse([1], [1], [1], weights=(1, 0))
    with pytest.raises(BanditError, match="shapes"):
        fuse([1, 2], [1, 2], [1])
