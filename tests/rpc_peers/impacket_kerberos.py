"""impacket asks a node's mgmt interface by Kerberos; it imports nothing of qm.

python impacket_kerberos.py HOST PORT
"""

import sys

from impacket.dcerpc.v5 import mgmt, transport
from impacket.dcerpc.v5.rpcrt import (
    RPC_C_AUTHN_GSS_NEGOTIATE,
    RPC_C_AUTHN_LEVEL_PKT_INTEGRITY,
    RPC_C_AUTHN_LEVEL_PKT_PRIVACY,
)

HOST, PORT = sys.argv[1], sys.argv[2]

for level in (RPC_C_AUTHN_LEVEL_PKT_INTEGRITY, RPC_C_AUTHN_LEVEL_PKT_PRIVACY):
    made = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{HOST}[{PORT}]")
    made.set_credentials("alice", "", "QUORATE.TEST", "", "")
    made.set_kerberos(True, "127.0.0.1")
    dce = made.get_dce_rpc()
    dce.set_auth_type(RPC_C_AUTHN_GSS_NEGOTIATE)
    dce.set_auth_level(level)
    dce.connect()
    dce.bind(mgmt.MSRPC_UUID_MGMT)
    count = mgmt.hinq_if_ids(dce)["if_id_vector"]["count"]
    assert count >= 4, count
    print(f"impacket, level {level}: {count} interfaces")
