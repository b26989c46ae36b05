"""What was signed, by whom, and what no longer is."""

import pytest

from qm.store.signing import SignatureError, Signer, check, public_key, verify

SIGNER, OTHER = Signer(bytes(32)), Signer(bytes(31) + b"\1")
NAME, DATA = "manifest.json", b'{"first": 1}'
SIGNATURE = SIGNER.sign(NAME, DATA)


def test_a_key_follows_from_its_secret_for_good() -> None:
    """Operators have pinned the public key."""
    assert SIGNER.public == Signer(bytes(32)).public != OTHER.public
    assert SIGNER.public == PINNED


PINNED = "9f73b6e0c9de30016b39d4c0d7ef92ace74591e9f82dffb778a4a8e73bc3bf31"


def test_a_signature_names_its_signer() -> None:
    assert verify(NAME, DATA, SIGNATURE) == SIGNER.public
    assert check(NAME, DATA, SIGNATURE, {SIGNER.public, OTHER.public}) == SIGNER.public
    assert check(NAME, DATA, SIGNATURE, None) == SIGNER.public
    assert check(NAME, DATA, None, None) == ""


@pytest.mark.parametrize(
    ("name", "data", "signature", "reason"),
    [
        (NAME, DATA + b" ", SIGNATURE, "was changed"),
        ("backup.json", DATA, SIGNATURE, "was changed"),
        (NAME, DATA, SIGNATURE.replace(SIGNER.public.encode(), OTHER.public.encode()), "changed"),
        (NAME, DATA, OTHER.sign(NAME, DATA), f"signed by {OTHER.public}"),
        (NAME, DATA, None, "has no signature"),
        (NAME, DATA, b"", "is damaged"),
        (NAME, DATA, b"\xff\xff", "is damaged"),
        (NAME, DATA, SIGNATURE.replace(b"ed25519", b"ed448"), "is damaged"),
        (NAME, DATA, SIGNATURE[:-3], "is damaged"),
    ],
)
def test_nothing_else_passes(name: str, data: bytes, signature: bytes | None, reason: str) -> None:
    with pytest.raises(SignatureError, match=reason):
        check(name, data, signature, {SIGNER.public})


def test_a_public_key_is_read_as_it_was_printed() -> None:
    assert public_key(f" {SIGNER.public.upper()}\n") == SIGNER.public
    for text in ("", "00", "x" * 64, SIGNER.public + "00"):
        with pytest.raises(ValueError, match=r"hexadecimal|public key"):
            public_key(text)
