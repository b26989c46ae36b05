#!/bin/sh
# On each machine, as root, from a copy of the source tree: sets up user, program, configuration and unit.
#
#   deploy/bare/install.sh /path/to/n1.tar
#
# Needs Python 3.11 or newer with its module venv. A second run upgrades the program and leaves the rest; then restart
# nodes one at a time, each when `qm cluster can-stop NAME` says yes.
set -eu

archive=${1:?usage: install.sh NAME.tar}
source=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3}
"$python" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' || {
    echo "install.sh: Python 3.11 or newer with venv is needed: set PYTHON" >&2
    exit 69
}

getent passwd quorate > /dev/null ||
    useradd --system --user-group --home-dir /var/lib/quorate --shell /usr/sbin/nologin quorate
test -x /opt/quorate/bin/python || "$python" -m venv /opt/quorate
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"$python" -m venv "$tools/venv"
"$tools/venv/bin/python" -m pip install --quiet --require-hashes -r "$source/requirements-build.lock"
"$tools/venv/bin/python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$tools" "$source"
/opt/quorate/bin/python -m pip install --quiet --require-hashes -r "$source/requirements.lock"
/opt/quorate/bin/python -m pip install --quiet --no-deps --force-reinstall "$tools"/quorate-*.whl

install -d -o root -g quorate -m 0750 /etc/quorate
if ! test -f /etc/quorate/node.toml; then
    tar -C /etc/quorate --no-same-owner -xf "$archive"
    chown -R root:quorate /etc/quorate
    chmod -R u=rwX,g=rX,o= /etc/quorate
fi
STATE_DIRECTORY=/var/lib/quorate /opt/quorate/bin/qm config check /etc/quorate/node.toml

install -d /etc/systemd/system
install -m 0644 "$source/deploy/systemd/quorate.service" /etc/systemd/system/quorate.service
if command -v systemctl > /dev/null; then
    systemctl daemon-reload
    systemctl enable quorate.service
    echo "start it with: systemctl start quorate"
fi
