"""Archives that attack, lie or are broken; the store that verifies."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from ecoagent.crawlers.archives import MIB, Limits, read_members
from ecoagent.crawlers.artifacts import ArtifactStore, HashMismatchError, verify
from ecoagent.crawlers.client import FetchError
from ecoagent.settings import UserError

from .fixtures_crawl import entry_of, tarball, wheel


def everything(path: str) -> bool:
    return True


def tar_with(path: Path, info: tarfile.TarInfo, data: bytes = b"") -> Path:
    info.size = len(data)
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(info, io.BytesIO(data))
    return path


def test_members_of_both_kinds(tmp_path: Path) -> None:
    files = {"a/x.py": b"1", "a/y.txt": b"2"}
    assert read_members(wheel(tmp_path / "a.whl", files), lambda p: p.endswith(".py")) == {"a/x.py": b"1"}
    assert read_members(tarball(tmp_path / "a.tgz", files), everything) == files
    # npm's folder is not always called "package"
    assert read_members(tarball(tmp_path / "b.tgz", files, prefix="other/"), everything) == files


@pytest.mark.parametrize("name", ["../evil", "package/../../evil", "/etc/evil", "a\\..\\evil", "C:/evil"])
def test_paths_that_leave_the_archive(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="leaves the archive"):
        read_members(tar_with(tmp_path / "a.tgz", tarfile.TarInfo(name), b"x"), everything)
    with pytest.raises(UserError, match="leaves the archive"):
        read_members(wheel(tmp_path / "a.whl", {name: b"x"}), everything)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_links_in_tar(tmp_path: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("package/link")
    info.type, info.linkname = kind, "/etc/passwd"
    with pytest.raises(UserError, match="is a link"):
        read_members(tar_with(tmp_path / "a.tgz", info), everything)


def test_devices_in_tar(tmp_path: Path) -> None:
    info = tarfile.TarInfo("package/dev")
    info.type = tarfile.CHRTYPE
    with pytest.raises(UserError, match="neither a file nor a folder"):
        read_members(tar_with(tmp_path / "a.tgz", info), everything)


def test_link_in_wheel(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("link")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(UserError, match="is a link"):
        read_members(tmp_path / "a.whl", everything)


def test_an_attack_in_an_unwanted_member_is_refused_too(tmp_path: Path) -> None:
    info = tarfile.TarInfo("package/link")
    info.type, info.linkname = tarfile.SYMTYPE, "x"
    with pytest.raises(UserError, match="is a link"):
        read_members(tar_with(tmp_path / "a.tgz", info), lambda p: False)


@pytest.mark.parametrize("build", [wheel, tarball])
def test_oversize_member_fails_loudly(tmp_path: Path, build: object) -> None:
    name = "a.whl" if build is wheel else "a.tgz"
    path = build(tmp_path / name, {"dist/types/nodes.json": b"x" * 2000})  # type: ignore[operator]
    with pytest.raises(UserError, match=r"nodes\.json' has 2000 bytes.*max_member_mb"):
        read_members(path, everything, Limits(member_bytes=1999))
    assert read_members(path, everything, Limits(member_bytes=2000))


@pytest.mark.parametrize("build", [wheel, tarball])
def test_bombs(tmp_path: Path, build: object) -> None:
    name = "a.whl" if build is wheel else "a.tgz"
    path = build(tmp_path / name, {f"f{i}": b"\0" * (3 * MIB) for i in range(4)})  # type: ignore[operator]
    with pytest.raises(UserError, match="times its size"):
        read_members(path, lambda p: False)
    with pytest.raises(UserError, match="bytes unpacked"):
        read_members(path, everything, Limits(total_bytes=4 * MIB))
    with pytest.raises(UserError, match="more than 2 members"):
        read_members(path, everything, Limits(members=2))


def test_header_bomb_in_tar(tmp_path: Path) -> None:
    # A header of headers is no member: its size is told to nobody but the reader of the tar.
    for kind in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME):
        info = tarfile.TarInfo("package/a")
        info.type = kind
        path = tar_with(tmp_path / "a.tgz", info, b"\0" * (64 * MIB))
        with pytest.raises(UserError, match="times its size"):
            read_members(path, everything)


def test_one_huge_member_is_refused_by_its_size_alone(tmp_path: Path) -> None:
    # Claims 65 MiB and holds nothing: refused before anything is unpacked.
    info = tarfile.TarInfo("package/dist/types/nodes.json")
    info.size = 65 * MIB
    path = tmp_path / "a.tgz"
    with gzip.open(path, "wb") as handle:
        handle.write(info.tobuf())
    with pytest.raises(UserError, match=r"nodes\.json' has 68157440 bytes, over the limit of 67108864"):
        read_members(path, everything)


def test_wheel_that_lies_about_a_size(tmp_path: Path) -> None:
    path = wheel(tmp_path / "a.whl", {"a.py": b"x" * 5000})
    data = path.read_bytes()
    for said in (100, 9000):
        lying = data.replace((5000).to_bytes(4, "little"), said.to_bytes(4, "little"))
        (tmp_path / "b.whl").write_bytes(lying)
        with pytest.raises(UserError, match=r"cannot be read|not as long as"):
            read_members(tmp_path / "b.whl", everything)


def test_encrypted_member(tmp_path: Path) -> None:
    path = wheel(tmp_path / "a.whl", {"a.py": b"1"})
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(data))
    with pytest.raises(UserError, match="is encrypted"):
        read_members(path, everything)


def test_tar_member_that_occurs_twice(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as archive:
        for data in (b"1", b"2"):
            info = tarfile.TarInfo("package/a.js")
            info.size = 1
            archive.addfile(info, io.BytesIO(data))
    with pytest.raises(UserError, match="occurs twice"):
        read_members(tmp_path / "a.tgz", everything)


def test_broken_and_unknown_archives(tmp_path: Path) -> None:
    whole = tarball(tmp_path / "a.tgz", {"a": b"abc" * 1000}).read_bytes()
    (tmp_path / "cut.tgz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "no.whl").write_bytes(b"no zip")
    (tmp_path / "x.rar").write_bytes(b"")
    for name in ("cut.tgz", "no.whl"):
        with pytest.raises(UserError, match="cannot be read"):
            read_members(tmp_path / name, everything)
    with pytest.raises(UserError, match="neither a wheel"):
        read_members(tmp_path / "x.rar", everything)


def test_member_that_occurs_twice(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("a.py", "1")
        archive.writestr("a.py", "2")
    with pytest.raises(UserError, match="occurs twice"):
        read_members(tmp_path / "a.whl", everything)


def serving(path: Path, calls: list[str]) -> object:
    def download(name: str, version: str, folder: Path, *, timeout_s: float) -> Path:
        calls.append(f"{name} {version}")
        target = folder / path.name
        target.write_bytes(path.read_bytes())
        return target

    return download


def test_store_fetches_once_and_verifies(tmp_path: Path) -> None:
    path = wheel(tmp_path / "demo-1.0.0-py3-none-any.whl", {"a.py": b"1"})
    entry, calls = entry_of(path, "langchain"), []
    store = ArtifactStore(tmp_path / "store", clients={"pip": serving(path, calls)})  # type: ignore[arg-type]
    assert store.missing([entry]) == [entry]
    stored = store.fetch(entry)
    assert stored == tmp_path / "store" / entry.sha256 / path.name
    assert store.fetch(entry).read_bytes() == path.read_bytes()
    assert calls == ["demo 1.0.0"]
    assert store.missing([entry]) == []
    # A file that has been tampered with is fetched anew, never used.
    stored.write_bytes(b"x" * entry.size)
    assert store.fetch(entry).read_bytes() == path.read_bytes()
    assert len(calls) == 2


def test_wrong_hash_names_artifact_expected_and_got(tmp_path: Path) -> None:
    right = wheel(tmp_path / "demo.whl", {"a.py": b"1"})
    entry = entry_of(right, "langchain")
    other = wheel(tmp_path / "other.whl", {"a.py": b"2"})
    store = ArtifactStore(tmp_path / "store", clients={"pip": serving(other, [])})  # type: ignore[arg-type]
    with pytest.raises(HashMismatchError) as error:
        store.fetch(entry)
    assert "demo==1.0.0" in str(error.value)
    assert entry.sha256 in str(error.value)
    assert entry_of(other, "langchain").sha256 in str(error.value)
    assert error.value.remedy
    assert [p for p in (tmp_path / "store").rglob("*") if p.is_file()] == []


def test_wrong_integrity(tmp_path: Path) -> None:
    path = tarball(tmp_path / "a.tgz", {"a": b"1"})
    entry = entry_of(path, "n8n_community")
    verify(entry, path)
    with pytest.raises(HashMismatchError, match="integrity expected"):
        verify(entry.model_copy(update={"integrity": "sha512-AAAA"}), path)


def test_too_large_artifact_is_not_even_fetched(tmp_path: Path) -> None:
    path = wheel(tmp_path / "a.whl", {"a": b"1"})
    entry, calls = entry_of(path, "langchain").model_copy(update={"size": 3 * MIB}), []
    store = ArtifactStore(tmp_path / "s", max_artifact_mb=2, clients={"pip": serving(path, calls)})  # type: ignore[arg-type]
    with pytest.raises(UserError, match="over the limit of 2 MiB"):
        store.fetch(entry)
    assert calls == []


def test_failed_download_leaves_nothing(tmp_path: Path) -> None:
    path = wheel(tmp_path / "a.whl", {"a": b"1"})

    def fail(name: str, version: str, folder: Path, *, timeout_s: float) -> Path:
        (folder / "part").write_bytes(b"half")
        raise FetchError("gone")

    store = ArtifactStore(tmp_path / "s", clients={"pip": fail})
    with pytest.raises(FetchError):
        store.fetch(entry_of(path, "langchain"))
    assert list((tmp_path / "s").iterdir()) == []
