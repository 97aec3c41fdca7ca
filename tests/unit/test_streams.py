"""Tables written and read by row groups, and lines of files of any size."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ecoagent.runs import (
    ROWS_PER_GROUP,
    count_rows,
    iter_lines,
    iter_rows,
    read_jsonl,
    read_rows,
    table_groups,
    table_writer,
    to_arrow,
    write_jsonl,
    write_table,
    write_table_stream,
)
from ecoagent.schema import RejectRow
from ecoagent.settings import UserError


def rows(count: int) -> list[RejectRow]:
    return [RejectRow(id=f"t{i:06d}", stage="s", reason="r" * (i % 7), detail=str(i)) for i in range(count)]


@pytest.mark.parametrize("count", [0, 1, ROWS_PER_GROUP, ROWS_PER_GROUP + 1, 2 * ROWS_PER_GROUP + 77])
@pytest.mark.parametrize("size", [333, 25_000])
def test_the_stream_gives_the_bytes_of_the_whole(tmp_path: Path, count: int, size: int) -> None:
    everything = rows(count)
    whole = write_table(tmp_path / "whole.parquet", everything, RejectRow)
    batches = (everything[i : i + size] for i in range(0, count, size))
    parts = write_table_stream(tmp_path / "parts.parquet", batches, RejectRow)
    one_by_one = tmp_path / "one.parquet"
    with table_writer(one_by_one, RejectRow) as writer:
        for row in everything:
            writer.append(row)
    assert writer.rows == count == count_rows(whole)
    assert whole.read_bytes() == parts.read_bytes() == one_by_one.read_bytes()


def test_rows_and_tables_keep_their_order(tmp_path: Path) -> None:
    everything = rows(10)
    path = tmp_path / "t.parquet"
    with table_writer(path, RejectRow) as writer:
        writer.append(everything[0])
        writer.write(to_arrow(everything[1:5], RejectRow))
        writer.append(everything[5].model_dump())
        writer.write(everything[6:])
    assert read_rows(path, RejectRow) == list(iter_rows(path, RejectRow)) == everything


def test_large_rows_make_small_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ecoagent.runs.streams.BYTES_PER_GROUP", 2_000)
    everything = rows(500)
    path = tmp_path / "t.parquet"
    with table_writer(path, RejectRow) as writer:
        for row in everything:
            writer.append(row)
    sizes = [g.num_rows for g in table_groups(path, RejectRow)]
    assert sum(sizes) == 500 and len(sizes) > 3 and min(sizes) > 0
    assert read_rows(path, RejectRow) == everything


def test_a_failed_block_leaves_what_was_there(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.parquet", rows(2), RejectRow)
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError), table_writer(path, RejectRow) as writer:
        writer.write(rows(ROWS_PER_GROUP + 5))
        raise ZeroDivisionError
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["t.parquet"]


@pytest.mark.parametrize(("start", "stop"), [(0, None), (0, 3), (2, 7), (3, 6), (5, 5), (8, 99)])
def test_a_range_of_rows(tmp_path: Path, start: int, stop: int | None) -> None:
    path = tmp_path / "t.parquet"
    everything = rows(9)
    pq.write_table(to_arrow(everything, RejectRow), path, row_group_size=3)
    found = [
        d for g in table_groups(path, RejectRow, ["id"], start=start, stop=stop) for d in g["id"].to_pylist()
    ]
    assert found == [r.id for r in everything[start:stop]]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.parquet cannot be read"):
        count_rows(tmp_path / "none.parquet")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and no more")
    with pytest.raises(UserError, match=r"broken\.parquet cannot be read"):
        list(table_groups(broken, RejectRow))
    narrow = tmp_path / "narrow.parquet"
    pq.write_table(pa.table({"id": ["a"], "stage": ["b"]}), narrow)
    with pytest.raises(UserError, match="lacks column 'reason'"):
        list(iter_rows(narrow, RejectRow))
    empty = tmp_path / "empty.parquet"
    pq.write_table(pa.table({n: pa.array(["a", None]) for n in RejectRow.model_fields}), empty)
    with pytest.raises(UserError, match="row 2, column 'id'"):
        list(iter_rows(empty, RejectRow))


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    odd = [{"a": "one\u2028two\x85three\u2029four\r\nfive"}, {"a": "x" * 200_000}, {"a": ""}]
    path = write_jsonl(tmp_path / "t.jsonl", odd)
    assert read_jsonl(path) == odd
    assert len(list(iter_lines(path))) == 3
    path.write_bytes(b'{"a": 1}\n\n{"a": 2}')
    assert read_jsonl(path) == [{"a": 1}, {"a": 2}]
    path.write_bytes(b"")
    assert list(iter_lines(path)) == []
