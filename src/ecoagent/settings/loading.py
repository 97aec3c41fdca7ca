"""Settings from a profile, the environment and flags, in rising order of precedence."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from ecoagent.settings.baselines import BaselineSettings
from ecoagent.settings.errors import UserError
from ecoagent.settings.feedback import FeedbackSettings
from ecoagent.settings.indexing import IndexSettings
from ecoagent.settings.sections import (
    AuditSettings,
    CrawlSettings,
    EvaluateSettings,
    FlowSettings,
    HttpSettings,
    LabelingSettings,
    LLMSettings,
    ModelSettings,
    PublishSettings,
    ReliabilitySettings,
    Section,
    SynthesisSettings,
)
from ecoagent.settings.training import TrainSettings

ENV_PREFIX = "ECOAGENT_"
ENV_RESERVED = frozenset({"ECOAGENT_API_KEY", "ECOAGENT_HOME", "ECOAGENT_PROFILE"})
"""Variables that are no settings; ``ECOAGENT_PROFILE`` is the command line's ``--profile``."""


class Settings(BaseSettings):
    """Every setting of a run. Unknown keys are errors that name the nearest right one."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, validate_default=True)

    profile: str = Field("paper", description="Profile the run started from.")
    profile_source: str = Field("", description="Profile name or file the values were read from.")
    run: str = Field(
        "", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$", description="Run name; empty = the profile's."
    )
    seed: int = Field(0, ge=0, description="Seed of everything random.")
    limit: int | None = Field(None, ge=1, description="Process at most this many items per stage.")
    outputs: Path = Field(Path("outputs"), description="Folder of runs and stores.")
    flow: FlowSettings = FlowSettings()
    crawl: CrawlSettings = CrawlSettings()
    http: HttpSettings = HttpSettings()
    models: ModelSettings = ModelSettings()
    reliability: ReliabilitySettings = ReliabilitySettings()
    llm: LLMSettings = LLMSettings()
    synthesis: SynthesisSettings = SynthesisSettings()
    labeling: LabelingSettings = LabelingSettings()
    train: TrainSettings = TrainSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    index: IndexSettings = IndexSettings()
    feedback: FeedbackSettings = FeedbackSettings()
    baselines: BaselineSettings = BaselineSettings()
    audit: AuditSettings = AuditSettings()
    publish: PublishSettings = PublishSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only explicit values: profile, environment and flags are merged by ``load_settings``."""
        return (init_settings,)

    @property
    def run_name(self) -> str:
        """Folder of the run under ``outputs/runs``."""
        return self.run or self.profile


def profile_names() -> list[str]:
    """Names of the shipped profiles."""
    return sorted(p.name.removesuffix(".toml") for p in _profiles().iterdir() if p.name.endswith(".toml"))


def _profiles() -> Any:
    return resources.files("ecoagent.settings").joinpath("profiles")


def read_profile(name: str) -> dict[str, Any]:
    """Values of a shipped profile, of a TOML file, or those recorded in a run's ``manifest.json``.

    Raises:
        UserError: no such profile, or the file is not TOML.
    """
    if name.endswith(".json"):
        return _recorded(Path(name))
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise UserError(f"profile file {name} does not exist", remedy="give a path to a TOML file")
        try:
            text, shown = path.read_text("utf-8"), name
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"profile file {name} cannot be read: {error}", remedy="save it as UTF-8"
            ) from error
    else:
        if name not in profile_names():
            raise UserError(
                f"unknown profile {name!r}",
                remedy=f"use one of {', '.join(profile_names())} or a path to a .toml",
            )
        text, shown = _profiles().joinpath(f"{name}.toml").read_text("utf-8"), f"profile {name}"
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{shown} is not valid TOML: {error}", remedy="mend the line named") from error


def _recorded(path: Path) -> dict[str, Any]:
    remedy = "name the profile with --profile"
    try:
        content: Any = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path} holds no recorded settings ({type(error).__name__}: {error})", remedy=remedy
        ) from error
    values = content.get("settings") if isinstance(content, dict) else None
    if not isinstance(values, dict):
        raise UserError(f"{path} holds no recorded settings (no section 'settings')", remedy=remedy)
    return values


def load_settings(
    profile: str = "local",
    *,
    overrides: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    **flags: Any,
) -> Settings:
    """Settings of a profile, then ``ECOAGENT_<SECTION>__<KEY>`` variables, then overrides, then flags.

    Args:
        profile: shipped profile or path to a TOML file.
        overrides: ``section.key=value`` texts; values are TOML, else taken as text.
        env: environment; ``os.environ`` if none.
        flags: top-level values such as ``run`` or ``seed``; ``None`` = not given.

    Raises:
        UserError: unknown key (the nearest right one is named) or a bad value.
    """
    values = read_profile(profile)
    for name, text in sorted((os.environ if env is None else env).items()):
        if name.startswith(ENV_PREFIX) and name not in ENV_RESERVED:
            dotted = name.removeprefix(ENV_PREFIX).lower().replace("__", ".")
            _assign(values, dotted, _parse(text), where=f"environment variable {name}")
    for item in overrides:
        key, sep, text = item.partition("=")
        if not sep:
            raise UserError(f"--set {item!r} has no '='", remedy="write --set section.key=value")
        _assign(values, key.strip(), _parse(text.strip()), where=f"--set {item}")
    for name, value in flags.items():
        if value is not None:
            values[name] = value
    values.setdefault("profile", Path(profile).stem)
    values["profile_source"] = profile
    # The stores lie in the outputs folder unless they are said to lie elsewhere.
    stores = Path(str(values.get("outputs", "outputs"))) / "store"
    for section, key, name in (
        ("crawl", "artifact_dir", "artifacts"),
        ("llm", "store", "responses.sqlite"),
        ("baselines", "store", "embeddings.sqlite"),
    ):
        table = values.setdefault(section, {})
        if isinstance(table, dict):  # anything else is reported below, by name
            table.setdefault(key, str(stores / name))
    try:
        return Settings(**values)
    except ValidationError as error:
        raise UserError(_explain(error), remedy="all settings are listed in ecoagent/settings") from error


def _parse(text: str) -> Any:
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def _assign(values: dict[str, Any], dotted: str, value: Any, *, where: str) -> None:
    parts = dotted.split(".")
    if parts[0] in ("profile", "profile_source"):
        raise UserError(f"{where}: the profile is not a setting", remedy="use --profile or ECOAGENT_PROFILE")
    known = known_keys()
    if dotted not in known and not any(dotted.startswith(f"{key}.") for key in known):
        raise UserError(f"{where}: unknown setting {dotted!r}", remedy=nearest(dotted))
    node = values
    for part in parts[:-1]:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise UserError(f"{where}: {part!r} is not a section", remedy=nearest(dotted))
    node[parts[-1]] = value


def known_keys() -> list[str]:
    """Dotted names of all settings, those of sections within sections too."""
    return _keys(Settings)


def _keys(model: type[BaseModel]) -> list[str]:
    keys = []
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            keys += [f"{name}.{sub}" for sub in _keys(field.annotation)]
        else:
            keys.append(name)
    return keys


def nearest(dotted: str) -> str:
    """A remedy that names the known key nearest to ``dotted``."""
    known = known_keys()
    if "." not in dotted:
        known += sorted({key.partition(".")[0] for key in known if "." in key})
    close = difflib.get_close_matches(dotted, known, n=1, cutoff=0.0)
    return f"did you mean {close[0]!r}?"


def _explain(error: ValidationError) -> str:
    lines = []
    for item in error.errors():
        dotted = ".".join(str(p) for p in item["loc"])
        if item["type"] == "extra_forbidden":
            lines.append(f"unknown setting {dotted!r}; {nearest(dotted)}")
        else:
            lines.append(f"setting {dotted!r} = {item.get('input')!r}: {item['msg']}")
    return "; ".join(lines)


def result_settings(settings: Settings, sections: Sequence[str]) -> dict[str, Any]:
    """The part of the settings that may change what a stage writes: named sections without knobs."""
    chosen: dict[str, Any] = {"seed": settings.seed, "limit": settings.limit}
    for name in sections:
        section = getattr(settings, name)
        knobs = {
            key
            for key, field in type(section).model_fields.items()
            if isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("knob")
        }
        chosen[name] = section.model_dump(mode="json", exclude=knobs)
    return chosen
