"""An encrypted text can be read with one of the keys alone, and not after a change."""

import pytest

from holdfast.archives import FernetEncrypter
from holdfast.core.errors import ArchiveDamaged, ConfigError

KEY = b"0123456789abcdef0123456789abcdef"
OTHER_KEY = KEY[::-1]


@pytest.mark.parametrize("text", ["", "{}", "\u00e9\n" * 10_000])
def test_an_encrypted_text_comes_back_and_reveals_nothing(text: str) -> None:
    encrypter = FernetEncrypter(KEY)

    encrypted = encrypter.encrypt(text)

    assert encrypter.decrypt(encrypted) == text
    assert encrypted.isascii()
    assert encrypted != encrypter.encrypt(text)


def test_a_new_key_encrypts_and_the_old_one_still_decrypts() -> None:
    old = FernetEncrypter(KEY).encrypt("before")

    both = FernetEncrypter(OTHER_KEY, KEY)

    assert both.decrypt(old) == "before"
    assert FernetEncrypter(OTHER_KEY).decrypt(both.encrypt("after")) == "after"


@pytest.mark.parametrize("text", ["", "no token", "\u00e9"])
def test_what_was_never_encrypted_cannot_be_decrypted(text: str) -> None:
    with pytest.raises(ArchiveDamaged, match=r"^the archive cannot be decrypted"):
        FernetEncrypter(KEY).decrypt(text)


def test_an_encrypted_text_that_was_changed_cannot_be_decrypted() -> None:
    encrypted = FernetEncrypter(KEY).encrypt("secret")
    other = "A" if encrypted[40] != "A" else "B"

    with pytest.raises(ArchiveDamaged):
        FernetEncrypter(KEY).decrypt(encrypted[:40] + other + encrypted[41:])


def test_a_key_that_could_be_guessed_is_refused() -> None:
    with pytest.raises(ConfigError, match="has 31 bytes; give a secret of 32 or more"):
        FernetEncrypter(KEY, KEY[:31])
    with pytest.raises(ConfigError, match="needs a key"):
        FernetEncrypter()
