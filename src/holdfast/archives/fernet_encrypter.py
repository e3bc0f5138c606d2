"""Encryption of the secret parts of an archive, with Fernet: AES and an HMAC."""

import base64
import hashlib

from holdfast.core.errors import ArchiveDamaged, ConfigError

MIN_KEY_BYTES = 32


class FernetEncrypter:
    """Encrypts with the first of *keys* and decrypts with any: to rotate, put a new key in front and keep the old ones.

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
        self._fernet = MultiFernet([Fernet(_derive_key(key)) for key in keys])
        self._invalid_token = InvalidToken

    def encrypt(self, text: str) -> str:
        return self._fernet.encrypt(text.encode()).decode()

    def decrypt(self, text: str) -> str:
        try:
            return self._fernet.decrypt(text.encode()).decode()
        except self._invalid_token as error:
            raise ArchiveDamaged(
                "the archive cannot be decrypted: it was encrypted with another key, or changed; "
                "give the key that it was encrypted with, after the current one"
            ) from error


def _derive_key(key: bytes) -> bytes:
    if len(key) < MIN_KEY_BYTES:
        raise ConfigError(f"the archive's key has {len(key)} bytes; give a secret of {MIN_KEY_BYTES} or more")
    return base64.urlsafe_b64encode(hashlib.sha256(key).digest())
