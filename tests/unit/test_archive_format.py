"""What is read from an archive is what was written to it, or it is refused."""

import gzip
import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.dead_letters.archive_format import (
    LetterEntry,
    Manifest,
    Packed,
    decrypt_record,
    dump_manifest,
    encrypt_record,
    ensure_name,
    ensure_size,
    is_manifest,
    load_manifest,
    manifest_name,
    manifest_of,
    pack,
    records_name,
    unpack,
)
from holdfast.core.errors import ArchiveDamaged

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
PLAIN = st.none() | st.booleans() | st.integers() | st.text()
OBJECTS = st.dictionaries(st.sampled_from("abcdé"), PLAIN | st.lists(PLAIN, max_size=3), max_size=3)


def an_entry(job_id: str = "job-1") -> LetterEntry:
    return LetterEntry(job_id, "review", "RATE_LIMITED:app.py:review", NOON)


def a_manifest(*job_ids: str, at: datetime = NOON) -> Manifest:
    records = [{"letter": {"job_id": job_id}} for job_id in job_ids]
    return manifest_of(pack(records), [an_entry(job_id) for job_id in job_ids], at=at)


def described(data: bytes, *, letters: int, unpacked: int = 3) -> Manifest:
    """Describe bytes that `pack` did not make."""
    packed = Packed(data, hashlib.sha256(data).hexdigest(), unpacked)
    return manifest_of(packed, [an_entry()] * letters, at=NOON)


def changed(manifest: Manifest, **changes: Any) -> bytes:
    """Give a manifest that was signed as it is, with *changes*."""
    fields = json.loads(dump_manifest(manifest, backwards)) | changes
    del fields["signature"]
    return json.dumps(fields | {"signature": backwards(digest(fields))}).encode()


def digest(value: object) -> str:
    text = json.dumps(value, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def backwards(text: str) -> str:
    return text[::-1]


@given(st.lists(OBJECTS, max_size=5))
def test_records_come_back_as_they_were_and_in_their_order(records: list[dict[str, Any]]) -> None:
    packed = pack(records)

    manifest = manifest_of(packed, [an_entry() for _ in records], at=NOON)

    assert unpack(packed.data, manifest) == records


@given(OBJECTS)
def test_the_same_records_are_the_same_bytes(record: dict[str, Any]) -> None:
    turned = dict(reversed(record.items()))

    assert pack([record]) == pack([turned])


def test_the_bytes_say_nothing_of_when_they_were_packed() -> None:
    packed = pack([{"letter": {}}])

    assert packed.data[4:8] == bytes(4)
    assert packed.sha256 == hashlib.sha256(packed.data).hexdigest()


def test_a_record_that_is_not_encrypted_is_not_packed() -> None:
    with pytest.raises(ValueError, match=r"is not encrypted; pass it through encrypt_record\(\)"):
        pack([{"letter": {}, "sealed": "x"}, {"letter": {}, "private": {"password": "hunter2"}}])


@pytest.mark.parametrize("place", [0, 12, -1])
def test_one_changed_byte_is_noticed(place: int) -> None:
    packed = pack([{"letter": {"n": 1}}])
    manifest = manifest_of(packed, [an_entry()], at=NOON)
    spoiled = bytearray(packed.data)
    spoiled[place] ^= 1

    with pytest.raises(
        ArchiveDamaged, match=r"^letters-\S+ is damaged: .* SHA-256 .*; take it from a copy of the archive$"
    ):
        unpack(bytes(spoiled), manifest)


@pytest.mark.parametrize("letters", [0, 2])
def test_a_record_too_many_or_too_few_is_noticed(letters: int) -> None:
    packed = pack([{"letter": {}}])

    with pytest.raises(ArchiveDamaged, match=f"holds 1 records, its manifest names {letters};"):
        unpack(packed.data, manifest_of(packed, [an_entry()] * letters, at=NOON))


@pytest.mark.parametrize(
    "data",
    [
        b"no gzip",
        b"",
        gzip.compress(b"{}\n", mtime=0)[:-4],
        gzip.compress(b"{}\n", mtime=0)[:12] + b"\xff" * 20,
    ],
)
def test_what_cannot_be_uncompressed_is_damaged(data: bytes) -> None:
    with pytest.raises(ArchiveDamaged, match=r"is damaged"):
        unpack(data, described(data, letters=1))


@pytest.mark.parametrize("line", [b"{", b"\xff\xfe\xfd", b"[]", b"1", b"[" * 100_000])
def test_a_line_that_is_no_json_object_is_damaged(line: bytes) -> None:
    data = gzip.compress(line + b"\n")

    with pytest.raises(ArchiveDamaged, match=r"^letters-\S+ is damaged: it is (not (a )?JSON|nested)"):
        unpack(data, described(data, letters=1, unpacked=len(line) + 1))


@pytest.mark.parametrize("unpacked", [0, 9_999_999, 10_000_001])
def test_no_more_is_uncompressed_than_there_was(unpacked: int) -> None:
    bomb = gzip.compress(bytes(10_000_000))

    with pytest.raises(
        ArchiveDamaged, match=f"its size is not the {unpacked:,} bytes that its manifest names"
    ):
        unpack(bomb, described(bomb, letters=1, unpacked=unpacked))


def test_what_stands_behind_the_records_is_noticed() -> None:
    data = gzip.compress(b"{}\n") + b"more"

    with pytest.raises(ArchiveDamaged, match="its size is not the 3 bytes"):
        unpack(data, described(data, letters=1))


def test_a_key_that_is_there_twice_is_damage_wherever_it_is() -> None:
    twice = '{"letter":{"id":1,"id":2},"sealed":""}'
    data = gzip.compress(f"{twice}\n".encode())

    with pytest.raises(ArchiveDamaged, match=r"^letters-\S+ is damaged: it has the key 'id' twice"):
        unpack(data, described(data, letters=1, unpacked=len(twice) + 1))
    with pytest.raises(
        ArchiveDamaged, match="an encrypted part of the archive is damaged: it has the key 'n' twice"
    ):
        decrypt_record({"sealed": '{"n":1,"n":2}'}, str)
    with pytest.raises(
        ArchiveDamaged, match="a manifest of the archive is damaged: it has the key 'format' twice"
    ):
        load_manifest(b'{"format":1,"format":1}', backwards)


@given(OBJECTS)
def test_what_was_encrypted_comes_back(private: dict[str, Any]) -> None:
    record = {"letter": {"n": 1}, "job": {}, "steps": [], "events": [], "private": private}

    encrypted = encrypt_record(record, backwards)

    assert set(encrypted) == {"letter", "job", "steps", "events", "sealed"}
    assert decrypt_record(encrypted, backwards) == record


def test_nothing_private_stays_readable() -> None:
    record = {"letter": {"error": "refused"}, "private": {"arguments": {"password": "hunter2"}}}

    encrypted = encrypt_record(record, lambda text: hashlib.sha256(text.encode()).hexdigest())

    assert "hunter2" not in repr(encrypted)
    assert encrypted["letter"] == {"error": "refused"}
    assert "private" in record


@pytest.mark.parametrize("record", [{}, {"sealed": None}, {"sealed": {}}])
def test_a_record_without_an_encrypted_part_is_damaged(record: dict[str, Any]) -> None:
    with pytest.raises(ArchiveDamaged, match=r"has no encrypted part; take it from a copy"):
        decrypt_record(record, backwards)


@pytest.mark.parametrize(
    "changes", [{"letter": {"n": 2}}, {"job": {}}, {"sealed": backwards('{"private":{}}')}]
)
def test_a_readable_part_that_is_not_the_one_it_was_encrypted_with_is_damaged(
    changes: dict[str, Any],
) -> None:
    encrypted = encrypt_record({"letter": {"n": 1}, "private": {"n": 2}}, backwards)

    with pytest.raises(ArchiveDamaged, match="does not match its encrypted part"):
        decrypt_record(encrypted | changes, backwards)


@pytest.mark.parametrize("text", ["", "[]", "null"])
def test_an_encrypted_part_that_is_no_object_is_damaged(text: str) -> None:
    with pytest.raises(ArchiveDamaged, match=r"^an encrypted part of the archive is damaged"):
        decrypt_record({"sealed": text}, str)


def test_a_name_contains_the_instant_and_the_contents() -> None:
    east = NOON.astimezone(timezone(timedelta(hours=9)))

    assert records_name("0123456789abcdef", at=east) == "letters-20260501T120000000000Z-01234567.jsonl.gz"


@given(st.datetimes(min_value=datetime(2000, 1, 1)), st.datetimes(min_value=datetime(2000, 1, 1)))
def test_names_sort_by_their_instants(one: datetime, other: datetime) -> None:
    earlier, later = sorted([one.replace(tzinfo=UTC), other.replace(tzinfo=UTC)])

    assert records_name("f" * 64, at=earlier) <= records_name("f" * 64, at=later)


def test_a_manifest_has_the_name_of_its_records() -> None:
    name = a_manifest("job-1").name

    assert ensure_name(manifest_name(name)) == name.removesuffix(".jsonl.gz") + ".manifest.json"
    assert is_manifest(manifest_name(name))
    assert not is_manifest(name)
    assert not is_manifest("a b.manifest.json"), "an archive holds no such name"


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "/etc/passwd", "../a", "a\n", "a\\b", "é"])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no name in an archive; use letters"):
        ensure_name(name)


def test_what_is_larger_than_it_may_be_is_damaged() -> None:
    assert ensure_size("one", b"1234", 4) == b"1234"
    with pytest.raises(
        ArchiveDamaged, match=r"^one is damaged: it has more than the 3 bytes that it may have"
    ):
        ensure_size("one", b"1234", 3)


def test_a_manifest_comes_back_as_it_was() -> None:
    manifest = a_manifest("job-1", "job-2")

    again = load_manifest(dump_manifest(manifest, backwards), backwards)

    assert again == manifest
    assert again.bytes == len(pack([{"letter": {"job_id": job}} for job in ("job-1", "job-2")]).data)


def test_a_manifest_can_be_read_by_a_person() -> None:
    text = dump_manifest(a_manifest("job-1"), backwards).decode()

    assert '"last_failure_at": "2026-05-01T12:00:00+00:00"' in text.split("\n")[10]
    assert text.endswith("}\n")


@pytest.mark.parametrize("format_", [1, 3, None, "2"])
def test_a_manifest_of_another_format_asks_for_another_version(format_: object) -> None:
    with pytest.raises(
        ArchiveDamaged, match=r"this version reads 2; use the version of the library that wrote it"
    ):
        load_manifest(changed(a_manifest("job-1"), format=format_), backwards)


@pytest.mark.parametrize(
    "changes",
    [
        {"letters": None},
        {"letters": ["job-1"]},
        {"letters": [{"job_id": "job-1"}]},
        {"letters": [{"job_id": 1, "name": "", "fingerprint": "", "last_failure_at": NOON.isoformat()}]},
        {"letters": [{"job_id": "", "name": "", "fingerprint": "", "last_failure_at": "2026-05-01T12:00"}]},
        {"letters": [{"job_id": "", "name": "", "fingerprint": "", "last_failure_at": "yesterday"}]},
        {"name": "../../etc/passwd"},
        {"sha256": None},
        {"bytes": "many"},
        {"unpacked": None},
    ],
)
def test_a_manifest_that_lacks_something_is_damaged(changes: dict[str, Any]) -> None:
    with pytest.raises(
        ArchiveDamaged, match=r"^a manifest of the archive is damaged: a field is missing or invalid"
    ):
        load_manifest(changed(a_manifest("job-1"), **changes), backwards)


@pytest.mark.parametrize(
    "changes", [{"sha256": "0" * 64}, {"letters": []}, {"signature": None}, {"signature": "x"}, {"more": 1}]
)
def test_a_manifest_that_was_changed_after_it_was_signed_is_damaged(changes: dict[str, Any]) -> None:
    fields = json.loads(dump_manifest(a_manifest("job-1"), backwards)) | changes

    with pytest.raises(ArchiveDamaged, match="its signature does not match its text"):
        load_manifest(json.dumps(fields).encode(), backwards)


@pytest.mark.parametrize(
    "data", [b'{"format": 2, "signature": "\\ud800"}', b'{"format": 2, "signature": "x", "bytes": 1e999}']
)
def test_a_manifest_that_nothing_can_be_signed_of_is_damaged(data: bytes) -> None:
    with pytest.raises(ArchiveDamaged):
        load_manifest(data, backwards)


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_manifest_is_damaged(data: bytes) -> None:
    with pytest.raises(
        ArchiveDamaged, match=r"^a manifest of the archive is damaged: it is (not (a )?JSON|nested)"
    ):
        load_manifest(data, backwards)


def test_what_a_manifest_says_of_its_size_is_for_people() -> None:
    packed = pack([{"letter": {}}])
    manifest = replace(manifest_of(packed, [an_entry()], at=NOON), bytes=0)

    assert unpack(packed.data, manifest) == [{"letter": {}}]
