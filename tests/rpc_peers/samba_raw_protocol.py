"""Samba's PDU tests against a node: `samba.tests.dcerpc.raw_protocol`, verified against Windows.

    python3 samba_raw_protocol.py HOST FOLDER

Debian's python3-samba belongs to the system's Python, so this imports nothing of qm. The tests ask
for port 135. Where they would log on as nobody, which is refused here (RP-A13), alice does.
"""

import json
import os
import re
import sys
import unittest
from importlib import import_module
from pathlib import Path
from typing import Any, Final

USER, PASSWORD = "alice", "pw"
CONTEXTS_MAX = 2_048
"""Security contexts that a connection may have here; Windows has 2,048."""
NOT_HERE: Final = {
    r"fragmented_requests\d+|(first|last|none|2nd)_\w+_requests|mix_requests": (
        "calls the NETLOGON interface of a domain controller"
    ),
    r"lsa_multi_auth_\w+|assoc_group_(ok2|fail3)": "connects by pipes of SMB",
    r"krb5_\w+|spnego_multiple_auth_hdr_signing": (
        "needs a realm; NTLM signs headers whether that was agreed or not (RP-A6)"
    ),
    r"spnego_call_bind": (
        "[MS-RPCE] 2.2.1.1.8: a server MUST take level CALL for PACKET, and does here"
    ),
}


def configure(host: str, folder: Path) -> None:
    """Say where the server is, by the variables that Samba's tests read."""
    path = folder / "smb.conf"
    places = "".join(
        f"  {name} = {folder}\n"
        for name in ("private dir", "lock directory", "state directory", "cache directory")
    )
    path.write_text(f"[global]\n  workgroup = QUORATE\n  realm = QUORATE.EXAMPLE\n{places}")
    os.environ |= {
        "SERVER": host,
        "TARGET_HOSTNAME": host,
        "USERNAME": USER,
        "PASSWORD": PASSWORD,
        "DOMAIN": "QUORATE",
        "REALM": "QUORATE.EXAMPLE",
        "SMB_CONF_PATH": str(path),
        "MAX_NUM_AUTH": str(CONTEXTS_MAX),
    }


def as_somebody(case: Any) -> None:
    """Have the tests log on as a user; they set `settings` before they ask for anybody."""
    nobody = case.get_anon_creds
    case.get_anon_creds = lambda self: (
        self.get_user_creds() if getattr(self, "settings", None) else nobody(self)
    )


def reason_of(test: unittest.TestCase) -> str:
    """Why a test cannot pass here; empty for those that have to."""
    name = test.id().rpartition(".test_")[2]
    return next((why for pattern, why in NOT_HERE.items() if re.fullmatch(pattern, name)), "")


def main(host: str, folder: Path) -> int:
    configure(host, folder)
    # The system's modules, which this checkout's checks of types cannot see.
    as_somebody(import_module("samba.tests.dcerpc.raw_testcase").RawDCERPCTest)
    raw_protocol = import_module("samba.tests.dcerpc.raw_protocol")
    found = unittest.defaultTestLoader.loadTestsFromTestCase(raw_protocol.TestDCERPC_BIND)
    tests = [test for test in found if isinstance(test, unittest.TestCase)]
    wanted = [test for test in tests if not reason_of(test)]
    result = unittest.TextTestRunner(verbosity=0).run(unittest.TestSuite(wanted))
    failed = len(result.failures) + len(result.errors)
    print(f"raw_protocol: {result.testsRun - failed} of {len(tests)} pass, {failed} fail")
    counts = {"run": result.testsRun, "failed": failed, "left_out": len(tests) - len(wanted)}
    figures = {f"raw_protocol_{name}_count": count for name, count in counts.items()}
    (folder / "raw_protocol.json").write_text(json.dumps(figures))
    for why in NOT_HERE.values():
        count = sum(reason_of(test) == why for test in tests)
        print(f"    {count} left out: {why}")
    return int(failed > 0 or not wanted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
