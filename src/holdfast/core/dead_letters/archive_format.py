"""How dead letters look in an archive: one file of records, and one manifest that says what is in it.

A record is a JSON object. What a person needs to recognise a letter is readable; what belongs to the users of the
application is encrypted. The file goes first and its manifest last, so a file that has a manifest is complete.

Any process that can write to the archive may have changed what is read back. The manifest is signed, and names the
size and the digest of its file; the encrypted part of a record holds the digest of the readable part. So nothing is
taken from an archive that the holder of its key did not write.
"""

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any

from holdfast.core.dead_letters.letter import LetterFilter
from holdfast.core.errors import ArchiveDamaged, ConfigError, PayloadInvalid
from holdfast.core.strict_json import decode

FORMAT = 2
RECORDS = ".jsonl.gz"
MANIFEST = ".manifest.json"
LARGEST_MANIFEST = 64_000_000
"""Bytes that a manifest has at most; it is read before its signature can be checked."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Packed:
    """Records as they are stored."""

    data: bytes
    sha256: str
    unpacked: int
    """Their size in bytes before compression."""


@dataclass(frozen=True, slots=True)
class LetterEntry:
    """What a manifest says of one letter."""

    job_id: str
    name: str
    fingerprint: str
    last_failure_at: datetime


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one file of records holds, its letters in the order of the records."""

    name: str
    sha256: str
    bytes: int
    unpacked: int
    letters: tuple[LetterEntry, ...]
    format: int = FORMAT


def ensure_name(name: str) -> str:
    """Return *name* if every archive can hold it. Raises `ValueError` for one that would lead out of the archive.

    >>> ensure_name("letters-1.jsonl.gz")
    'letters-1.jsonl.gz'
    """
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name in an archive; use letters, digits, '.', '-' and '_'")
    return name


def ensure_size(name: str, data: bytes, at_most: int) -> bytes:
    """Return *data* if it is no more than *at_most* bytes. Raises `ArchiveDamaged`."""
    if len(data) > at_most:
        raise _damaged(name, f"it has more than the {at_most:,} bytes that it may have")
    return data


def records_name(sha256: str, *, at: datetime) -> str:
    """Name a file of records, so that later ones sort after earlier ones, and other contents have another name.

    >>> records_name("0123456789abcdef", at=datetime(2026, 5, 1, 12, 30, tzinfo=UTC))
    'letters-20260501T123000000000Z-01234567.jsonl.gz'
    """
    return f"letters-{at.astimezone(UTC):%Y%m%dT%H%M%S%fZ}-{sha256[:8]}{RECORDS}"


def manifest_name(name: str) -> str:
    """Name the manifest of the file of records *name*.

    >>> manifest_name("letters-20260501T123000000000Z-01234567.jsonl.gz")
    'letters-20260501T123000000000Z-01234567.manifest.json'
    """
    return name.removesuffix(RECORDS) + MANIFEST


def is_manifest(name: str) -> bool:
    """Return whether *name* is that of a manifest."""
    return name.endswith(MANIFEST) and NAME.fullmatch(name) is not None


def encrypt_record(record: Mapping[str, Any], encrypt: Callable[[str], str]) -> dict[str, Any]:
    """Encrypt `private`, any JSON object, into the field `sealed`, together with the digest of the other fields.

    >>> sorted(encrypt_record({"letter": {"id": 1}, "private": {"n": 2}}, str.upper))
    ['letter', 'sealed']
    """
    readable = {key: value for key, value in record.items() if key != "private"}
    return readable | {"sealed": encrypt(_json({"clear": _digest(readable), "private": record["private"]}))}


def decrypt_record(record: Mapping[str, Any], decrypt: Callable[[str], str]) -> dict[str, Any]:
    """Decrypt the field `sealed`, and return the record with `private`. Raises `ArchiveDamaged`, or what *decrypt* raises.

    >>> decrypt_record(encrypt_record({"letter": {"id": 1}, "private": {"n": 2}}, str), str)
    {'letter': {'id': 1}, 'private': {'n': 2}}
    """
    encrypted = record.get("sealed")
    if not isinstance(encrypted, str):
        raise ArchiveDamaged("a record of the archive has no encrypted part; take it from a copy")
    readable = {key: value for key, value in record.items() if key != "sealed"}
    opened = _object(decrypt(encrypted), "an encrypted part of the archive")
    if opened.get("clear") != _digest(readable) or "private" not in opened:
        raise ArchiveDamaged(
            "the readable part of a record of the archive does not match its encrypted part; take it from a copy"
        )
    return readable | {"private": opened["private"]}


def pack(records: Sequence[Mapping[str, Any]]) -> Packed:
    """Write encrypted *records* as compressed lines of JSON: the same bytes for the same records.

    Raises `ValueError` for a record that is not encrypted.
    """
    if any("private" in record for record in records):
        raise ValueError("a record is not encrypted; pass it through encrypt_record() before it is packed")
    lines = "".join(_json(record) + "\n" for record in records).encode()
    data = gzip.compress(lines, mtime=0)
    return Packed(data, hashlib.sha256(data).hexdigest(), len(lines))


def manifest_of(packed: Packed, letters: Iterable[LetterEntry], *, at: datetime) -> Manifest:
    """Describe *packed*, whose records are those of *letters*, in this order."""
    name = records_name(packed.sha256, at=at)
    return Manifest(name, packed.sha256, len(packed.data), packed.unpacked, tuple(letters))


def unpack(data: bytes, manifest: Manifest) -> list[dict[str, Any]]:
    """Read records back. Raises `ArchiveDamaged` if they are not, byte for byte, what *manifest* describes."""
    if hashlib.sha256(data).hexdigest() != manifest.sha256:
        raise _damaged(
            manifest.name, f"its {len(data):,} bytes do not have the SHA-256 that its manifest names"
        )
    lines = _decompressed(data, manifest).splitlines()
    if len(lines) != len(manifest.letters):
        raise _damaged(
            manifest.name, f"it holds {len(lines):,} records, its manifest names {len(manifest.letters):,}"
        )
    return [_object(line, manifest.name) for line in lines]


def _decompressed(data: bytes, manifest: Manifest) -> bytes:
    """Decompress *data*, up to the size that the manifest names: a few kilobytes can become gigabytes."""
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        text = stream.decompress(data, manifest.unpacked + 1)
    except zlib.error as error:
        raise _damaged(manifest.name, f"it cannot be uncompressed: {error}") from error
    if not stream.eof or stream.unused_data or len(text) != manifest.unpacked:
        raise _damaged(
            manifest.name, f"its size is not the {manifest.unpacked:,} bytes that its manifest names"
        )
    return text


def dump_manifest(manifest: Manifest, encrypt: Callable[[str], str]) -> bytes:
    """Write *manifest* as JSON that a person can read, too, and sign it: *encrypt* gets its digest."""
    letters = [
        asdict(entry) | {"last_failure_at": entry.last_failure_at.isoformat()} for entry in manifest.letters
    ]
    fields = asdict(manifest) | {"letters": letters}
    return (json.dumps(fields | {"signature": encrypt(_digest(fields))}, indent=2) + "\n").encode()


def load_manifest(data: bytes, decrypt: Callable[[str], str]) -> Manifest:
    """Read a manifest back. Raises `ArchiveDamaged` if it is not a manifest, was changed, or has another format."""
    what = "a manifest of the archive"
    found = _object(data, what)
    if found.get("format") != FORMAT:
        raise ArchiveDamaged(
            f"{what} has the format {found.get('format')!r}, this version reads {FORMAT}; "
            "use the version of the library that wrote it"
        )
    signature = found.pop("signature", None)
    if not isinstance(signature, str) or not signature.isascii() or decrypt(signature) != _digest(found):
        raise _damaged(what, "its signature does not match its text")
    try:
        letters = tuple(_entry(letter) for letter in found["letters"])
        return Manifest(
            ensure_name(_text(found["name"])),
            _text(found["sha256"]),
            int(found["bytes"]),
            int(found["unpacked"]),
            letters,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(what, f"a field is missing or invalid: {error!r}") from error


KNOWN = ("job_ids", "name", "fingerprint", "limit")
"""The fields that an archive can filter by: a manifest holds no others of a letter."""


def ensure_known(letter_filter: LetterFilter) -> None:
    """Raise `ConfigError` if a filter uses a field that no manifest has."""
    asked = [field.name for field in fields(letter_filter) if getattr(letter_filter, field.name) is not None]
    unknown = [name for name in asked if name not in KNOWN]
    if unknown:
        raise ConfigError(
            f"the archive cannot filter letters by {', '.join(unknown)}; filter by {', '.join(KNOWN[:-1])}"
        )


def matching(letters: Iterable[LetterEntry], letter_filter: LetterFilter) -> list[LetterEntry]:
    """Return those of *letters* that match a filter; the caller applies its limit."""
    job_ids = None if letter_filter.job_ids is None else frozenset(letter_filter.job_ids)
    return [
        letter
        for letter in letters
        if (job_ids is None or letter.job_id in job_ids)
        and letter_filter.name in (None, letter.name)
        and letter_filter.fingerprint in (None, letter.fingerprint)
    ]


def _entry(letter: Mapping[str, Any]) -> LetterEntry:
    at = datetime.fromisoformat(letter["last_failure_at"])
    if at.tzinfo is None:
        raise ValueError("last_failure_at has no time zone")
    return LetterEntry(
        _text(letter["job_id"]), _text(letter["name"]), _text(letter["fingerprint"]), at.astimezone(UTC)
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _json(value: object) -> str:
    # ASCII, so that no text in it can end a line early, or fail to be written.
    return json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)


def _digest(value: object) -> str:
    try:
        return hashlib.sha256(_json(value).encode()).hexdigest()
    except (
        ValueError
    ) as error:  # a number beyond the range of floats reads as infinity, which is never written
        raise _damaged("what the archive holds", f"it is not strict JSON: {error}") from error


def _object(text: str | bytes, what: str) -> dict[str, Any]:
    try:
        found = decode(text, what="it")
    except PayloadInvalid as error:
        raise _damaged(what, str(error)) from error
    if not isinstance(found, dict):
        raise _damaged(what, "it is not a JSON object")
    return found


def _damaged(what: str, why: str) -> ArchiveDamaged:
    return ArchiveDamaged(f"{what} is damaged: {why}; take it from a copy of the archive")
