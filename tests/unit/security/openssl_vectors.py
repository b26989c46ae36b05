"""Makes signatures.json and bodies.json with the openssl command line, no code of the product.

Run it in a folder of its own with OpenSSL 3 and its legacy provider: `python openssl_vectors.py`.
What is signed is concatenated here by hand, field for field as [MS-MQMQ] 2.5 lists it.
"""

import json
import struct
import subprocess
from pathlib import Path

PROVENANCE = "made: openssl 3 and concatenation by hand (tests/unit/security/openssl_vectors.py)"
SOURCE = bytes(range(16))
BODY = b"Pay 100 to Bob."
LABEL = "Pay".encode("utf-16-le") + b"\0\0"
RESPONSE = "OS:here\\answers".encode("utf-16-le") + b"\0\0"
ADMIN = bytes(range(16, 32)) + struct.pack("<I", 7)
DESTINATION = struct.pack("<I", 5)
CORRELATION = bytes(range(40, 60))
CONNECTOR = bytes(range(64, 80))
EXTENSION = b"extension"
LIST = struct.pack("<H", 3) + "OS:a\\q".encode("utf-16-le") + b"\0\0"
OPTIONS = SOURCE + struct.pack("<BBBBHI", 1, 3, 1 << 1 | 1, 0x0D, 0, 8)
V1 = CORRELATION + struct.pack("<I", 9) + BODY + LABEL + RESPONSE + ADMIN
V2 = V1 + OPTIONS + CONNECTOR + DESTINATION
V3 = V1 + EXTENSION + LIST + OPTIONS + CONNECTOR
HASHES = {"md5": 0x8003, "sha1": 0x8004, "sha256": 0x800C, "sha512": 0x800E}
ZERO_IV = {"rc2": "0" * 16, "aes": "0" * 32, "rc4": ""}
CLEAR = b"attack at dawn, queue 7"
CIPHERS = [
    ("base rc2 without salt", 1, 0x6602, "rc2-40-cbc", "0102030405"),
    ("enhanced rc2", 3, 0x6602, "rc2-cbc", bytes(range(1, 17)).hex()),
    ("base rc4 with salt", 1, 0x6801, "rc4", "0102030405" + "00" * 11),
    ("enhanced rc4", 3, 0x6801, "rc4", bytes(range(1, 17)).hex()),
    ("aes 128", 5, 0x660E, "aes-128-cbc", bytes(range(16)).hex()),
    ("aes 192", 5, 0x660F, "aes-192-cbc", bytes(range(24)).hex()),
    ("aes 256", 5, 0x6610, "aes-256-cbc", bytes(range(32)).hex()),
]


def openssl(*argv: str, data: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *argv], input=data, capture_output=True, check=True).stdout


def signatures() -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for bits in (1024, 2048):
        openssl("genrsa", "-out", f"key{bits}.pem", str(bits))
        for version, text in ((1, V1), (3, V2), (5, V3)):
            for name, number in HASHES.items():
                made = openssl("dgst", f"-{name}", "-sign", f"key{bits}.pem", data=text)
                found.append(
                    {
                        "key_bits": bits,
                        "version": version,
                        "hash_algorithm": number,
                        "input_hex": text.hex(),
                        "signature_hex": made[::-1].hex(),
                    }
                )
    return found


def bodies() -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for name, level, algorithm, cipher, key in CIPHERS:
        argv = ["enc", f"-{cipher}", "-K", key, "-provider", "legacy", "-provider", "default"]
        iv = ZERO_IV[cipher[:3]]
        made = openssl(*argv, *(("-iv", iv) if iv else ()), data=CLEAR)
        found.append(
            {
                "name": name,
                "privacy_level": level,
                "algorithm": algorithm,
                "key_hex": key[:10] if level == 1 else key,
                "has_salt": level == 1 and len(key) > 10,
                "clear_hex": CLEAR.hex(),
                "encrypted_hex": made.hex(),
            }
        )
    return found


def write(name: str, **contents: object) -> None:
    text = json.dumps({"provenance": PROVENANCE, **contents}, indent=1)
    Path(name).write_text(text + "\n")


signed = signatures()
keys = {bits: Path(f"key{bits}.pem").read_text() for bits in (1024, 2048)}
write("signatures.json", keys=keys, cases=signed)
write("bodies.json", cases=bodies())
