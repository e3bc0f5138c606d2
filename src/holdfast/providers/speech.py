"""Speech to text behind an OpenAI-compatible API."""

import asyncio
import os
from pathlib import Path
from typing import Any, Unpack, overload

from pydantic import BaseModel

from holdfast.core.errors import MediaInvalid, Permanent
from holdfast.core.failures.failure import ErrorClass
from holdfast.providers.answers import Shape, validate
from holdfast.providers.http import HttpClient, Options

MAX_UPLOAD = 25_000_000
Audio = bytes | os.PathLike[str]


class Transcript(BaseModel):
    """The text of a recording, with its language and duration if the service returns them."""

    text: str
    language: str | None = None
    duration: float | None = None


class SpeechClient(HttpClient):
    """Transcribes recordings, at an address such as `https://stt.example/v1`.

    A recording of more than *max_upload* bytes is not sent. The other options are those of `HttpClient`.
    """

    def __init__(
        self, url: str, *, model: str, max_upload: int = MAX_UPLOAD, **options: Unpack[Options]
    ) -> None:
        super().__init__(url, **options)
        self._model = model
        self._max_upload = max_upload

    @overload
    async def transcribe(
        self,
        audio: Audio,
        *,
        answer: type[Transcript] = Transcript,
        name: str | None = None,
        idempotency_key: str | None = None,
        **options: str,
    ) -> Transcript: ...
    @overload
    async def transcribe(
        self,
        audio: Audio,
        *,
        answer: type[Shape],
        name: str | None = None,
        idempotency_key: str | None = None,
        **options: str,
    ) -> Shape: ...
    async def transcribe(
        self,
        audio: Audio,
        *,
        answer: type[BaseModel] = Transcript,
        name: str | None = None,
        idempotency_key: str | None = None,
        **options: str,
    ) -> Any:
        """Upload a recording, once, and return its transcript, or *answer* if the service returns more.

        *audio* is the content or the path of a file. Many services derive its format from the extension of *name*,
        which defaults to that of the file, or `audio.wav`. *options* are added to the form (`language="de"`). Raises
        `MediaInvalid` for an empty recording and `Permanent` for one that is too large, both unsent; `BadResponse`
        for an answer that does not match; and the errors of the network and the service.
        """
        content = await self._read_audio(audio)
        file_name = name or ("audio.wav" if isinstance(audio, bytes) else Path(audio).name)
        text = await self._request(
            "POST",
            "audio/transcriptions",
            files={"file": (file_name, content)},
            data={"model": self._model, **options},
            idempotency_key=idempotency_key,
        )
        return validate(answer, text, what="the transcript")

    async def _read_audio(self, audio: Audio) -> bytes:
        limit = self._max_upload
        content = audio if isinstance(audio, bytes) else await asyncio.to_thread(_read_file, audio, limit + 1)
        if not content:
            raise MediaInvalid("the recording is empty")
        if len(content) > limit:
            raise Permanent(
                f"the recording has more than {limit:,} bytes, and was not sent",
                error_class=ErrorClass.TOO_LARGE,
            )
        return content


def _read_file(path: os.PathLike[str], limit: int) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(limit)
