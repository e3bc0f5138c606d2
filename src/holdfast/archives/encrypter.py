"""What is secret in an archive is encrypted with Fernet: AES and an HMAC, with a key of yours."""

import base64
import hashlib

from holdfast.core.errors import ArchiveDamaged, ConfigError

LEAST_BYTES = 32


class FernetEncrypter:
    """Encrypts with the first of *keys* and decrypts with any: a new key goes in front, the old ones stay.

    A key is any secret of 32 bytes or more; its SHA-256 is the Fernet key. Raises `ConfigError` for less.
    """

    def __init__(self, *keys: bytes) -> None:
        try:
            from cryptography.fernet import Fernet, InvalidToken, MultiFernet  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise ConfigError(
                "encrypting an archive needs cryptography; install it with: pip install 'holdfast[archive]'"
            ) from error
        if not keys:
            raise ConfigError("encrypting an archive needs a key; give a secret of 32 bytes or more")
        self._fernet = MultiFernet([Fernet(_derived(key)) for key in keys])
        self._refusal = InvalidToken

    def encrypt(self, text: str) -> str:
        return self._fernet.encrypt(text.encode()).decode()

    def decrypt(self, text: str) -> str:
        try:
            return self._fernet.decrypt(text.encode()).decode()
        except self._refusal as error:
            raise ArchiveDamaged(
                "what is encrypted in the archive cannot be decrypted: it was encrypted with another key, or changed; "
                "give the key that it was encrypted with, after the present one"
            ) from error


def _derived(key: bytes) -> bytes:
    if len(key) < LEAST_BYTES:
        raise ConfigError(f"the archive's key has {len(key)} bytes; give a secret of {LEAST_BYTES} or more")
    return base64.urlsafe_b64encode(hashlib.sha256(key).digest())
