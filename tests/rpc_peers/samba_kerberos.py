"""Samba's client asks a node's mgmt interface by Kerberos: with the system's Python, of its own.

python3 samba_kerberos.py HOST PORT
"""

import sys

from samba.credentials import MUST_USE_KERBEROS, Credentials
from samba.dcerpc import mgmt
from samba.param import LoadParm

HOST, PORT = sys.argv[1], sys.argv[2]


def check(options: str) -> None:
    settings = LoadParm()
    credentials = Credentials()
    credentials.guess(settings)
    credentials.set_kerberos_state(MUST_USE_KERBEROS)
    binding = f"ncacn_ip_tcp:{HOST}[{PORT},{options}]"
    client = mgmt.mgmt(binding, settings, credentials)
    found = client.inq_if_ids()
    print(f"samba, {options}: {found}")


for each in ("spnego,seal", "spnego,sign", "krb5,seal", "krb5,sign"):
    check(each)
