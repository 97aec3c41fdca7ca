"""Profiles, environment, flags, and the errors for unknown keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoagent.settings import Settings, UserError, known_keys, load_settings, read_profile, result_settings


def test_defaults_are_the_papers_constants() -> None:
    settings = Settings()
    assert settings.reliability.weights == (0.5, 0.3, 0.2)
    assert settings.evaluate.fusion == (0.75, 0.15, 0.10)
    assert (settings.train.batch_size, settings.train.learning_rate, settings.train.temperature) == (
        8,
        1e-5,
        0.05,
    )
    assert (settings.labeling.min_cosine, settings.labeling.verifier_threshold) == (0.7, 0.85)
    assert (settings.evaluate.alpha, settings.evaluate.gamma, settings.evaluate.top_k) == (0.1, 0.95, 10)


def test_paper_profile_states_the_defaults_and_nothing_else() -> None:
    stated = load_settings("paper", env={})
    defaults = Settings(profile="paper")
    changed = {
        key
        for key in known_keys()
        if _at(stated, key) != _at(defaults, key)
        and key not in {"synthesis.queries_per_tool", "profile_source"}
    }
    assert not changed
    for section in ("synthesis", "labeling", "train", "evaluate", "reliability"):
        assert read_profile("paper")[section], section


def _at(settings: Settings, dotted: str) -> object:
    value: object = settings
    for part in dotted.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("name", ["local", "smoke", "paper"])
def test_profiles_load(name: str) -> None:
    settings = load_settings(name, env={})
    assert settings.profile == name
    assert settings.run_name == name


def test_precedence_is_profile_environment_override_flag() -> None:
    env = {"ECOAGENT_SYNTHESIS__QUERIES_PER_TOOL": "15", "ECOAGENT_SEED": "3"}
    assert load_settings("local", env=env).synthesis.queries_per_tool == 15
    settings = load_settings("local", env=env, overrides=["synthesis.queries_per_tool=18", "seed=4"], seed=5)
    assert settings.synthesis.queries_per_tool == 18
    assert settings.seed == 5


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("synthesis.tools_per_catalogue=3", "synthesis.tools_per_catalog"),
        ("evaluate.gama=0.9", "evaluate.gamma"),
        ("sed=3", "seed"),
        ("train.siamese.batchsize=3", "train.siamese.batch_size"),
        ("train.siames.epochs=3", "train.siamese.epochs"),
    ],
)
def test_unknown_key_names_the_nearest(override: str, named: str) -> None:
    with pytest.raises(UserError, match=named):
        load_settings("local", overrides=[override], env={})


def test_unknown_environment_variable_is_an_error() -> None:
    with pytest.raises(UserError, match=r"llm\.store"):
        load_settings("local", env={"ECOAGENT_LLM__STOR": "x"})


def test_a_section_within_a_section_is_set_like_any_other(tmp_path: Path) -> None:
    env = {"ECOAGENT_TRAIN__SIAMESE__EPOCHS": "2.5", "ECOAGENT_TRAIN__SIAMESE__POOLING": "cls"}
    settings = load_settings("local", env=env, overrides=["train.siamese.epochs=4"])
    assert (settings.train.siamese.epochs, settings.train.siamese.pooling) == (4.0, "cls")
    mine = tmp_path / "mine.toml"
    mine.write_text("[train.siamese]\nbatch_size = 4\n")
    assert load_settings(str(mine), env={}).train.siamese.batch_size == 4
    mine.write_text("[train.siamese]\nbatchsize = 4\n")
    with pytest.raises(
        UserError, match=r"train\.siamese\.batchsize.*did you mean 'train.siamese.batch_size'"
    ):
        load_settings(str(mine), env={})
    assert "train.siamese.expansion_weight" in known_keys() and "train.siamese" not in known_keys()


def test_the_siamese_encoder_takes_what_it_does_not_name_from_train() -> None:
    own = ["train.siamese.encoder=m", "train.siamese.batch_size=4", "train.siamese.warmup_ratio=0.2"]
    shared = ["train.validate_every=2", "train.symmetric_weight=0.5", "train.cpu_bfloat16=false"]
    train = load_settings("local", env={}, overrides=[*own, *shared, "train.batch_size=6"]).train
    one = train.as_siamese
    assert (one.towers, one.query_encoder, one.tool_encoder) == ("one", "m", "m")
    assert (one.batch_size, one.warmup_ratio, one.warmup_steps) == (4, 0.2, None)
    assert (one.validate_every, one.symmetric_weight, one.cpu_bfloat16) == (2, 0.5, False)
    assert (train.towers, train.batch_size, train.query_encoder) == ("two", 6, "all-MiniLM-L6-v2")
    section = set(type(train.siamese).model_fields) - {"encoder", "expansion_weight"}
    assert section <= set(type(train).model_fields), "each names a setting of train"
    assert {name: getattr(one, name) for name in section} == train.siamese.model_dump(include=section)


def test_one_tower_takes_one_model() -> None:
    with pytest.raises(UserError, match=r"train\.query_encoder and train\.tool_encoder alike"):
        load_settings("local", env={}, overrides=["train.towers=one", "train.tool_encoder=other"])
    assert load_settings("local", env={}, overrides=["train.towers=one"]).train.towers == "one"


def test_bad_values_name_the_setting() -> None:
    with pytest.raises(UserError, match=r"train\.siamese\.batch_size"):
        load_settings("local", overrides=["train.siamese.batch_size=0"], env={})
    with pytest.raises(UserError, match=r"train\.batch_size"):
        load_settings("local", overrides=["train.batch_size=0"], env={})
    with pytest.raises(UserError, match="no '='"):
        load_settings("local", overrides=["train.batch_size"], env={})
    with pytest.raises(UserError, match="unknown profile"):
        load_settings("lokal", env={})


def test_profile_from_a_file(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text("[train]\nepochs = 2.0\n")
    settings = load_settings(str(mine), env={})
    assert (settings.profile, settings.train.epochs) == ("mine", 2.0)
    mine.write_text("[train\n")
    with pytest.raises(UserError, match="not valid TOML"):
        load_settings(str(mine), env={})


def test_knobs_take_no_part_in_stage_keys() -> None:
    one = load_settings("local", env={})
    two = load_settings("local", overrides=["llm.concurrency=9", "flow.workers=7"], env={})
    assert result_settings(one, ["llm", "flow"]) == result_settings(two, ["llm", "flow"])
    three = load_settings("local", overrides=["synthesis.jaccard=0.6"], env={})
    assert result_settings(one, ["synthesis"]) != result_settings(three, ["synthesis"])


def test_stores_follow_the_outputs_folder() -> None:
    settings = load_settings("local", overrides=['outputs="elsewhere"'], env={})
    assert settings.llm.store == Path("elsewhere/store/responses.sqlite")
    assert settings.crawl.artifact_dir == Path("elsewhere/store/artifacts")
    kept = load_settings("local", overrides=['llm.store="mine.sqlite"', 'outputs="elsewhere"'], env={})
    assert kept.llm.store == Path("mine.sqlite")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("synthesis.intents=[]", r"synthesis\.intents.*at least one"),
        ('synthesis.intents=["direct", "direct"]', r"synthesis\.intents.*listed twice"),
        ("evaluate.policies=[]", r"evaluate\.policies.*at least one"),
        ("synthesis.splits=[nan, 0.5, 0.5]", r"synthesis\.splits.*finite"),
        ("synthesis.splits=[5, 5, 5]", r"synthesis\.splits.*sum to 1"),
        ("synthesis.splits=[-0.5, 1, 0.5]", r"synthesis\.splits.*negative"),
        ("reliability.weights=[1, 1, 1]", r"reliability\.weights.*sum to 1"),
        ("train.epochs=inf", r"train\.epochs.*finite"),
        ("train.siamese.expansion_weight=nan", r"train\.siamese\.expansion_weight.*finite"),
        (
            "train.siamese.expansion_weight=-1",
            r"train\.siamese\.expansion_weight.*greater than or equal to 0",
        ),
        ("llm.timeout_s=inf", r"llm\.timeout_s.*finite"),
        ("llm.timeout_s=1e300", r"llm\.timeout_s.*at most 1,000,000"),
        ("synthesis.temperature=inf", r"synthesis\.temperature.*finite"),
        ("evaluate.rates=[nan]", r"evaluate\.rates.*finite"),
        ("synthesis.min_queries_per_tool=30", r"max_queries_per_tool.*min_queries_per_tool, which is 30"),
        ("synthesis.min_words=200", r"max_words.*min_words, which is 200"),
        ("labeling.top_k=99999999999999999999", r"labeling\.top_k.*at most 10,000,000"),
        ("flow.workers=99999", r"flow\.workers.*1024"),
    ],
)
def test_values_that_would_crash_later_are_refused(override: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        load_settings("local", overrides=[override], env={})
