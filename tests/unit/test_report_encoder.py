"""The encoder ablation in the report: its tables, its figures, and the result a release ships."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ecoagent.report import measured
from ecoagent.report.encoder_ablation import (
    BUILD_SETS,
    ENCODER_ABLATION,
    EncoderSection,
    encoder_figures,
    encoder_section,
    holds_zero,
    read_encoder_ablation,
)
from ecoagent.report.encoder_ablation_figures import _wrapped, differences_figure
from ecoagent.report.measured import shipped_encoder_ablation
from ecoagent.report.render import _template
from ecoagent.report.stage import read_files
from ecoagent.runs import RunContext, read_json, write_json
from ecoagent.settings import Settings, UserError
from tests.unit.fixture_encoder import ENCODER, encoder_ablation
from tests.unit.test_report import built

NOTHING = "Not measured"


def section(content: dict[str, Any] | None = None, *, shipped: bool = False) -> EncoderSection:
    found = encoder_section(content or encoder_ablation(), shipped=shipped)
    assert found is not None
    return found


def shown(found: EncoderSection | None) -> tuple[str, str]:
    """The page's part, and its words alone."""
    part = _template().environment.from_string(
        "{% macro figure(name) %}[{{ name }}]{% endmacro %}{% include 'encoder_ablation.html.jinja' %}"
    )
    html = part.render(ablated=found, settings=Settings())
    return html, re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_build_and_independent_sets_have_tables_of_their_own() -> None:
    build, sets = section().groups
    assert [c.name for c in build.columns] == ["syn val", "syn test+cold", "real test"]
    assert [c.name for c in sets.columns] == ["restbench"]
    for group in (build, sets):
        assert [r.arm for r in group.arms] == ["untrained", "siamese", "no_mask"]
        assert all(len(r.cells) == len(group.columns) for r in group.arms)
    untrained, siamese, no_mask = build.arms
    assert untrained.seconds is None and siamese.seconds == 131.2 and siamese.steps == 111
    cell, real = siamese.cells[0], no_mask.cells[2]
    assert cell is not None and real is not None and untrained.cells[0] is not None
    assert cell.best and cell.difference is not None and cell.difference["difference"] == 0.2
    assert not cell.like_chosen and real.like_chosen, "the chosen arm is not compared with itself"
    assert real.best and untrained.cells[0].difference is None and not untrained.cells[0].like_chosen
    assert [(label, [c and c.mrr for c in cells]) for label, cells in build.baselines] == [
        ("BM25", [None, None, 0.401])
    ]
    assert sets.baselines == []


def test_page_part_says_it_in_words() -> None:
    html, text = shown(section())
    assert "What the training does" in text and "Siamese, &lt;no&gt; masking" in html
    assert "syn test+cold 1,234 queries 56 tools" in text
    assert "0.700 0.660–0.740 +0.200 +0.160 to +0.240 p 0.0123" in text
    assert "0.440 0.400–0.480 −0.060 −0.100 to −0.020 p 0.0123" in text
    assert "0.550 ≈ 0.510–0.590 +0.050 +0.010 to +0.090" in text
    assert "22.7 131 111 steps" in text and "22.7 – " in text
    assert "Other rankers, for comparison BM25 – – 0.401 0.350–0.450 – –" in text
    assert "3 seeds; seconds are their mean." in text and "A note of the ablation." in text
    assert "[encoder_ablation_build]" in text and "[encoder_ablation_sets]" in text
    assert "Measured once for the release" not in text
    for tag in ("td", "tr", "table", "p"):
        assert html.count(f"<{tag}>") + html.count(f"<{tag} ") == html.count(f"</{tag}>"), tag


def test_shipped_and_absent_results_say_so() -> None:
    _, text = shown(section(shipped=True))
    command = f"ecoagent ablate encoder --run {Settings().run_name}"
    assert "Measured once for the release on the reference build" in text and command in text
    _, text = shown(None)
    assert NOTHING in text and command in text
    assert encoder_section(None) is None and encoder_section({**encoder_ablation(), "rows": []}) is None
    assert encoder_figures(None) == {}


def test_an_arm_without_a_split_has_a_dash_there() -> None:
    content = encoder_ablation()
    content["rows"] = [r for r in content["rows"] if (r["arm"], r["set"]) != ("no_mask", "real")]
    content["baselines"] = []
    build = section(content).groups[0]
    assert [c is None for c in build.arms[2].cells] == [False, False, True] and build.baselines == []
    _, text = shown(section(content))
    assert "p 0.0123 – 22.7 131" in text and "Other rankers" not in text
    assert encoder_figures(section(content))["encoder_ablation_build"].png.startswith(b"\x89PNG")


def test_a_set_alone_is_one_table() -> None:
    content = encoder_ablation()
    content["rows"] = [r for r in content["rows"] if r["set"] not in BUILD_SETS]
    (only,) = section(content).groups
    html, _ = shown(section(content))
    assert only.title == "Independent collections" and "What no_mask is." in html


def test_figures_say_what_they_show_and_are_equal_for_equal_data() -> None:
    one, two = encoder_figures(section()), encoder_figures(section())
    assert list(one) == ["encoder_ablation_build", "encoder_ablation_sets"]
    for name, figure in one.items():
        assert figure.file == f"{name}.png" and figure.png == two[name].png
        assert "2 encoders" in figure.alt
    assert (
        "Siamese: syn val +0.200; syn test+cold +0.200; real test +0.030" in one["encoder_ablation_build"].alt
    )
    assert "restbench -0.060" in one["encoder_ablation_sets"].alt
    content = encoder_ablation()
    for row in content["rows"]:
        if "against_untrained" in row:
            row["against_untrained"]["interval"] = [0.0, 0.3]
    other = encoder_figures(section(content))
    assert other["encoder_ablation_build"].png != one["encoder_ablation_build"].png


def test_without_differences_there_is_no_figure() -> None:
    content = encoder_ablation()
    content["rows"] = [r for r in content["rows"] if r["arm"] == "untrained"]
    assert encoder_figures(section(content)) == {}
    assert "≈" in shown(section(content))[0]


@pytest.mark.parametrize("panels", [1, 2, 3, 4, 5, 7])
def test_any_number_of_panels_is_drawn(panels: int) -> None:
    test = {"difference": 0.1, "interval": [-0.1, 0.2]}
    titles = [f"a-collection-with-a-rather-long-name-{n} (1,234 queries)" for n in range(panels)]
    tests = [test, *[None] * (panels - 1)]
    assert differences_figure(titles, [("One", True, tests), ("Two " * 30, False, tests)]).startswith(
        b"\x89PNG"
    )


def test_long_labels_go_on_in_the_next_line() -> None:
    label = "Siamese, queries in tool vectors of some-long-model-name-en-v1.5"
    lines = _wrapped(label, 24).split("\n")
    assert len(lines) > 1 and "".join(lines).replace(" ", "") == label.replace(" ", ""), "nothing is cut off"
    assert max(map(len, lines)) <= 24
    assert _wrapped("Siamese", 24) == "Siamese"


def test_intervals_that_hold_zero() -> None:
    assert holds_zero({"interval": [-0.1, 0.1]}) and holds_zero({"interval": [0.0, 0.1]})
    assert not holds_zero({"interval": [0.01, 0.1]}) and not holds_zero({"interval": [-0.2, -0.1]})
    assert not holds_zero(None)


def damaged(part: str, number: int, **values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content[part][number].update(values)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda c: c.pop("chosen"), "'chosen'"),
        (lambda c: c.update(rows={}), "'rows'"),
        (damaged("arms", 1, parameters="many"), r"arms\.1\.parameters"),
        (damaged("rows", 2, MRR=None), r"rows\.2\.MRR"),
        (damaged("rows", 2, interval=[0.1]), r"rows\.2\.interval"),
        (damaged("rows", 1, against_untrained={"difference": 0.1}), r"rows\.1\.against_untrained\.interval"),
        (
            damaged("rows", 1, against_chosen={"difference": 0.1, "interval": [None, 1], "p": 1}),
            r"rows\.1\.against_chosen\.interval",
        ),
        (damaged("baselines", 0, label=None), r"baselines\.0\.label"),
    ],
)
def test_damaged_results_are_named(
    tmp_path: Path, damage: Callable[[dict[str, Any]], None], says: str
) -> None:
    path, content = tmp_path / ENCODER_ABLATION, encoder_ablation()
    write_json(path, content)
    assert read_encoder_ablation(path) == content
    damage(content)
    write_json(path, content)
    with pytest.raises(
        UserError, match=rf"encoder_ablation\.json is damaged: .*{says}.*ablate encoder --force"
    ):
        read_encoder_ablation(path)


def test_an_absent_result_is_none(tmp_path: Path) -> None:
    assert read_encoder_ablation(tmp_path / ENCODER_ABLATION) is None


@pytest.fixture
def ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the release's result is looked for; nothing is there yet."""
    path = tmp_path / "shipped.json"
    # Joined to the package's folder, an absolute path stands for itself.
    monkeypatch.setattr(measured, "SHIPPED_ENCODER_ABLATION", str(path))
    return path


def test_the_shipped_result_is_of_the_runs_model_or_none(ship: Path) -> None:
    assert shipped_encoder_ablation(ENCODER) is None, "a release need not have one"
    write_json(ship, encoder_ablation())
    assert shipped_encoder_ablation(ENCODER) == encoder_ablation()
    assert shipped_encoder_ablation("another") is None
    content = encoder_ablation()
    content["arms"] = [a for a in content["arms"] if a["arm"] != "siamese"]
    write_json(ship, content)
    assert shipped_encoder_ablation(ENCODER) is None, "without its chosen arm the model is not known"


def test_a_run_shows_its_own_result_before_the_shipped_one(ship: Path, tmp_path: Path) -> None:
    ctx: RunContext = built(tmp_path / "outputs")
    files = read_files(ctx)
    assert files.encoder_ablation is None
    write_json(ship, encoder_ablation(ctx.settings.train.siamese.encoder))
    files = read_files(ctx)
    assert files.encoder_ablation is not None and files.encoder_ablation_shipped
    own = {**encoder_ablation("another-model"), "notes": ["Its own."]}
    write_json(ctx.paths.out / "results" / ENCODER_ABLATION, own)
    files = read_files(ctx)
    assert files.encoder_ablation == own and not files.encoder_ablation_shipped


def test_what_the_release_ships_can_be_shown() -> None:
    """Either the release has no result, or all its numbers are on the page."""
    from importlib import resources

    path = Path(str(resources.files("ecoagent.evaluation").joinpath(measured.SHIPPED_ENCODER_ABLATION)))
    content = read_encoder_ablation(path)
    html, _ = shown(encoder_section(content, shipped=True))
    assert (content is None) == (NOTHING in html) == (not path.is_file())
    rows = content["rows"] if content is not None else []
    assert all(f"{row['MRR']:.3f}" in html for row in rows)
    assert content is None or read_json(path) == content
