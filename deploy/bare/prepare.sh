#!/bin/sh
# On the operator's machine: prepares what each node of a cluster needs below /etc/quorate, without the others' files.
#
#   prepare.sh FOLDER n1=10.0.0.1 n2=10.0.0.2 n3=10.0.0.3
#
# Leaves FOLDER/pki (keep both authorities' authority.key away from nodes), FOLDER/admin (for `qm` on this machine) and for each node
# FOLDER/NAME.tar. A second run goes on where the first one stopped; it gives no node another certificate.
# COMPUTER_NAME (QUORATE if unset): what MSMQ peers call the cluster, at most 15 characters.
set -eu
umask 077

folder=${1:?usage: prepare.sh FOLDER NAME=ADDRESS...}
shift
[ $# -ge 3 ] || { echo "prepare.sh: three or five nodes, NAME=ADDRESS each, not $#" >&2; exit 64; }
pki=$folder/pki
mkdir -p "$folder"
test -f "$pki/authority.pem" || qm pki init --folder "$pki"
# A folder of an older release has no authority of the nodes' own; docs/operations.md says how a cluster gets one.
peers=
test ! -f "$pki/peers/authority.pem" || peers=$pki/peers
# Empty nodes found a cluster with those alone that have the same text.
test -f "$folder/cluster" || od -An -N16 -tx1 /dev/urandom | tr -d ' \n' > "$folder/cluster"

members=
for node in "$@"; do
    name=${node%%=*}
    address=${node#*=}
    members="$members
[[members]]
name = \"$name\"
host = \"$address\"
"
done

for node in "$@"; do
    name=${node%%=*}
    address=${node#*=}
    test -f "$pki/$name.pem" || qm pki issue "$name" --folder "$pki" --role node --host "$address"
    mkdir -p "$folder/$name"
    cp "$pki/authority.pem" "$pki/$name.pem" "$pki/$name.key" "$folder/$name/"
    # systemd sets STATE_DIRECTORY; relative paths start at the file's own folder.
    own=
    if [ -n "$peers" ]; then
        mkdir -p "$folder/$name/peers"
        cp "$peers/authority.pem" "$peers/revoked.pem" "$peers/$name.pem" "$peers/$name.key" "$folder/$name/peers/"
        cp "$pki/revoked.pem" "$folder/$name/"
        own="revoked = \"revoked.pem\"
peer_authority = \"peers/authority.pem\"
peer_certificate = \"peers/$name.pem\"
peer_key = \"peers/$name.key\"
peer_revoked = \"peers/revoked.pem\"
"
    fi
    cat > "$folder/$name/node.toml" << EOF
name = "$name"
host = "$address"
data = "\${STATE_DIRECTORY}"

[tls]
authority = "authority.pem"
certificate = "$name.pem"
key = "$name.key"
$own
[birth]
automatic = true
cluster = "$(cat "$folder/cluster")"
computer_name = "${COMPUTER_NAME:-QUORATE}"
$members
EOF
    tar -C "$folder/$name" -cf "$folder/$name.tar" .
done

mkdir -p "$folder/admin"
test -f "$pki/admin.pem" || qm pki issue admin --folder "$pki" --role admin
cp "$pki/authority.pem" "$pki/admin.pem" "$pki/admin.key" "$folder/admin/"
echo "copy FOLDER/NAME.tar to its machine and run install.sh there"
