"""`qm directory manager|user` and `qm certificate`, against a real node."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import md5
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from qm.cli.lib.connection import EXIT_REFUSED
from qm.client.signing import Signer, new_signer
from tests.unit.cli.test_nouns import USAGE, Qm
from tests.unit.client.threaded import threaded_node

GUID = "11111111-2222-3333-4444-555555555555"
ALICE = "S-1-5-21-1-2-3-1001"
BOB = "S-1-5-21-1-2-3-1002"
CLERKS = "S-1-5-21-1-2-3-2001"


@pytest.fixture(scope="module")
def qm() -> Iterator[Qm]:
    with threaded_node() as (endpoint, tls):
        yield Qm(endpoint, tls)


@pytest.fixture(scope="module")
def signer() -> Signer:
    return new_signer("alice", 1024, 30)


def test_queue_managers_are_created_set_shown_and_removed(qm: Qm, tmp_path: Path) -> None:
    key = generate_private_key(65537, 1024).public_key()
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "key.pem").write_bytes(pem)
    keys = ("--encryption-key", f"enhanced={tmp_path}/key.pem")
    qm("directory", "manager", "create", GUID, "--name", "PEER", "--address", "127.0.0.9", *keys)
    shown = qm.json("directory", "manager", "show", GUID)
    assert (shown["name"], shown["addresses"]) == ("PEER", ["127.0.0.9"])
    assert shown["encryption_keys"][0]["key"] == pem.decode()
    qm("directory", "manager", "set", GUID, "--dns-name", "peer.example")
    (row,) = qm.json("directory", "manager", "list")
    assert (row["dns_name"], row["encryption_keys"]) == ("peer.example", shown["encryption_keys"])
    qm("directory", "manager", "create", GUID, "--encryption-key", "odd=x", exit_code=USAGE)
    qm("directory", "manager", "remove", GUID, "--yes")
    qm("directory", "manager", "show", GUID, exit_code=EXIT_REFUSED)


def test_documents_are_exported_compared_and_imported(
    qm: Qm, signer: Signer, tmp_path: Path
) -> None:
    (tmp_path / "alice.der").write_bytes(signer.certificate)
    options = ("--name", "alice", "--group", CLERKS, "--certificate", f"{tmp_path}/alice.der")
    qm("directory", "user", "create", ALICE, *options)
    file = tmp_path / "users.yaml"
    qm("directory", "user", "export", "--file", str(file))
    assert qm.json("directory", "user", "diff", str(file)) == []
    (alice,) = yaml.safe_load(file.read_text())
    assert (alice["sid"], alice["groups"]) == (ALICE, [CLERKS])
    file.write_text(yaml.safe_dump([alice | {"groups": []}, {"sid": CLERKS, "name": "clerks"}]))
    changes = qm.json("directory", "user", "diff", str(file), exit_code=1)
    assert [(each["change"], each["fields"]) for each in changes] == [
        ("set", ["groups"]),
        ("create", []),
    ]
    qm("directory", "user", "import", str(file), "--yes")
    qm("directory", "user", "diff", str(file))
    file.write_text(yaml.safe_dump([alice]))
    qm("directory", "user", "import", str(file), "--prune", "--yes")
    assert [each["sid"] for each in qm.json("directory", "user", "list")] == [ALICE]
    file.write_text("nonsense")
    qm("directory", "user", "import", str(file), exit_code=USAGE)
    qm("directory", "user", "remove", ALICE, "--yes")


def test_the_own_entry_is_written_for_others(qm: Qm) -> None:
    (own,) = yaml.safe_load(qm("directory", "manager", "own", "--address", "10.0.0.1").stdout)
    manager = qm.json("manager", "show")
    assert (own["identifier"], own["name"]) == (manager["identifier"], manager["computer_name"])
    assert own["addresses"] == ["10.0.0.1"]
    assert qm.json("directory", "manager", "list") == []


@pytest.mark.spec("DM-3.1.1.19-01")
def test_certificates_are_registered_listed_and_removed(
    qm: Qm, signer: Signer, tmp_path: Path
) -> None:
    (tmp_path / "alice.der").write_bytes(signer.certificate)
    made = qm.json("certificate", "register", f"{tmp_path}/alice.der")
    own = qm.json("certificate", "internal", f"{tmp_path}/own.pem", "--bits", "1024")
    assert own["sid"] == made["sid"]
    kept = qm.json(
        "certificate", "internal", f"{tmp_path}/more.pem", "--bits", "1024", "--if-not-exist"
    )
    assert kept["is_kept"]
    assert not (tmp_path / "more.pem").exists()
    certificate = Signer.load(tmp_path / "own.pem").certificate
    x509.load_der_x509_certificate(certificate)
    assert own["digest"] == md5(certificate).hexdigest()
    # The two are a pair: it is this user's, and no other's.
    shown = qm.json("certificate", "show", own["digest"])
    assert (shown["sid"], shown["is_internal"]) == (own["sid"], True)
    pem = x509.load_pem_x509_certificate(shown["pem"].encode())
    assert pem.public_bytes(Encoding.DER) == certificate
    assert qm.json("certificate", "list", "--sid", BOB) == []
    theirs = qm.json(
        "certificate", "internal", f"{tmp_path}/theirs.pem", "--bits", "1024", "--sid", BOB
    )
    assert (theirs["sid"], theirs["digest"] != own["digest"]) == (BOB, True)
    (row,) = qm.json("certificate", "list", "--sid", BOB)
    assert (row["digest"], row["is_internal"]) == (theirs["digest"], True)
    listed = qm.json("certificate", "list")
    assert [(each["digest"], each["is_internal"]) for each in listed] == [
        (made["digest"], False),
        (own["digest"], True),
    ]
    assert listed[0]["subject"] == "CN=alice"
    assert "BEGIN CERTIFICATE" in qm.json("certificate", "show", made["digest"])["pem"]
    qm("certificate", "remove", made["digest"], "--yes")
    qm("certificate", "remove", made["digest"], "--yes", exit_code=EXIT_REFUSED)
    (tmp_path / "junk").write_bytes(b"junk")
    qm("certificate", "register", f"{tmp_path}/junk", "--sid", ALICE, exit_code=USAGE)
    qm("certificate", "internal", f"{tmp_path}/own.pem", exit_code=USAGE)


def test_messages_are_signed_and_encrypted(qm: Qm, signer: Signer, tmp_path: Path) -> None:
    signer.write(tmp_path / "alice.pem")
    qm("queue", "create", ".\\private$\\signed")
    sign = ("--sign", f"{tmp_path}/alice.pem", "--sender-sid", ALICE, "--hash", "sha256")
    target = ".\\private$\\signed"
    qm("message", "send", target, "--body", "x", *sign, "--encrypt", "advanced")
    (found,) = qm.json("message", "receive", target)
    assert found["body"] == "x"
    qm("message", "send", target, "--body", "x", "--sign", f"{tmp_path}/junk", exit_code=USAGE)
    elsewhere = f"PRIVATE={GUID}\\00000001"
    refused = qm(
        "message", "send", elsewhere, "--body", "x", "--encrypt", "base", exit_code=EXIT_REFUSED
    )
    assert "MQ_ERROR_PUBLIC_KEY_NOT_FOUND" in refused.stderr


def test_access_lists_name_people_and_say_who_decides(qm: Qm) -> None:
    queue = ".\\private$\\guarded"
    qm("queue", "create", queue)
    qm("directory", "user", "create", ALICE, "--name", "alice.b", "--group", CLERKS)
    deny = f"deny:{CLERKS}:write_message"
    qm("acl", "set", "--queue", queue, "--add", deny, f"allow:{ALICE}:peek_message")
    rows = qm.json("acl", "get", queue)
    assert ("alice.b", ALICE) in [(row["who"], row["sid"]) for row in rows]
    rights = ("--right", "write_message", "--right", "peek_message")
    by_right = {
        row["right"]: (row["granted"], row["decided_by"].partition(" ")[0])
        for row in qm.json("acl", "explain", queue, "--sid", ALICE, *rights)
    }
    assert by_right["write_message"] == (False, f"deny:{CLERKS}")
    assert by_right["peek_message"] == (True, "allow:alice.b")
    qm("acl", "remove", "--queue", queue, f"deny:{CLERKS}", "allow:alice.b", "--yes")
    qm("acl", "remove", "--queue", queue, "allow:alice.b", "--yes", exit_code=USAGE)
    (found,) = qm.json("acl", "explain", queue, "--sid", ALICE, "--right", "write_message")
    assert (found["granted"], found["decided_by"].partition(" ")[0]) == (True, "allow:Everyone")
    qm("acl", "explain", queue, exit_code=USAGE)
    qm("directory", "user", "remove", ALICE, "--yes")
