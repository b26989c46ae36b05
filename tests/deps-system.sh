#!/usr/bin/env bash
# Install what Debian must provide for the complete tests: as root with apt-get, else print the exact command.
# The unit tests need none of it.
set -euo pipefail

# Packages that are missing. A part whose tests need a system package appends it here, after looking whether
# this machine has it already.
needed=()

JAVA_MAJOR_MIN=17
JAVA_PACKAGE=default-jre-headless

# Major version of the `java` that PySpark would start; 0 without one.
java_major() {
    local java="${JAVA_HOME:+${JAVA_HOME}/bin/}java" version=""
    if command -v "$java" >/dev/null 2>&1; then
        version=$("$java" -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -n 1)
    fi
    echo "${version:-0}"
}

# Only the Spark parts need Java: say it, install nothing.
major=$(java_major)
if [ "$major" -lt "$JAVA_MAJOR_MIN" ]; then
    echo "deps-system: no Java $JAVA_MAJOR_MIN or newer; test-spark needs it: apt-get install $JAVA_PACKAGE"
else
    echo "deps-system: Java $major found"
fi

# Only `make test-console` needs a browser: say it, install nothing.
command -v chromium >/dev/null 2>&1 || echo "deps-system: no chromium; test-console needs it: apt-get install chromium"

# `make test-chart` tests alert rules with promtool.
if command -v promtool >/dev/null 2>&1; then
    echo "deps-system: promtool found"
else
    echo "deps-system: no promtool; test-chart needs it: apt-get install prometheus"
fi

# It also asks systemd what the unit of a node may do.
if command -v systemd-analyze >/dev/null 2>&1; then
    echo "deps-system: systemd-analyze found"
else
    echo "deps-system: no systemd-analyze; test-chart needs it: apt-get install systemd"
fi

# `make test-hosts` starts the virtual IP's files on network namespaces.
for tool in keepalived haproxy nft; do
    if command -v "$tool" >/dev/null 2>&1 || [ -x "/usr/sbin/$tool" ]; then
        echo "deps-system: $tool found"
    else
        echo "deps-system: no $tool; test-hosts needs it: apt-get install keepalived haproxy nftables"
    fi
done

# `make test-kubernetes` also needs a cluster and helm, and says so itself; `make test-chart` tries parts of it.
if command -v kubectl >/dev/null 2>&1; then
    echo "deps-system: kubectl found"
else
    echo "deps-system: no kubectl; test-chart needs 1.31 or newer: https://kubernetes.io/docs/tasks/tools/"
fi

# `make drills` sets nodes' clocks with it; without it that scenario is refused.
if compgen -G "/usr/lib/*/faketime/libfaketimeMT.so.1" >/dev/null; then
    echo "deps-system: libfaketime found"
else
    echo "deps-system: no libfaketime; the drill clock-step needs it: apt-get install libfaketime"
fi

# `make test-image` builds the image without a registry.
for tool in buildah debootstrap; do
    if command -v "$tool" >/dev/null 2>&1 || [ -x "/usr/sbin/$tool" ]; then
        echo "deps-system: $tool found"
    else
        echo "deps-system: no $tool; test-image needs it: apt-get install --no-install-recommends $tool"
    fi
done

# `make bench` measures these beside us; without them it omits their figures.
for peer in rabbitmq-server nats-server; do
    if command -v "$peer" >/dev/null 2>&1 || [ -x "/usr/sbin/$peer" ]; then
        echo "deps-system: $peer found"
    else
        echo "deps-system: no $peer; bench leaves it out: apt-get install $peer"
    fi
done

# `make test-rpc` runs Samba's tests of RPC servers.
if /usr/bin/python3 -c "import samba.tests.dcerpc.raw_protocol" 2>/dev/null && command -v smbtorture >/dev/null 2>&1; then
    echo "deps-system: samba found"
else
    echo "deps-system: no samba; test-rpc needs it: apt-get install --no-install-recommends samba python3-samba samba-testsuite smbclient"
fi

# Where there is Wine, it runs programs on that, too.
missing=""
for tool in wine winegcc widl ntlm_auth gcc; do
    command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
done
[ -e /usr/include/wine/wine/windows/rpc.h ] || missing="$missing rpc.h"
if [ -z "$missing" ]; then
    echo "deps-system: wine found"
else
    echo "deps-system: no wine ($missing ); test-rpc leaves it out: apt-get install --no-install-recommends wine wine64 wine64-tools libwine-dev gcc libc6-dev winbind"
fi

# `make test-domain` logs on to a node by an Active Directory of Samba's; its client is built from source.
missing=""
for tool in samba-tool kinit ldbmodify krb5-config; do
    command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
done
if [ -z "$missing" ]; then
    echo "deps-system: a domain controller found"
else
    echo "deps-system: no domain controller ($missing ); test-domain needs it: apt-get install --no-install-recommends samba samba-ad-dc samba-ad-provision samba-dsdb-modules winbind ldb-tools python3-samba krb5-user libkrb5-dev gcc python3-dev"
fi

if [ "${#needed[@]}" -eq 0 ]; then
    echo "deps-system: make test needs nothing more"
elif [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "deps-system: installing ${needed[*]}"
    apt-get update --quiet
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${needed[@]}"
else
    echo "deps-system: the complete tests need ${needed[*]}; on Debian or Ubuntu:"
    echo "    sudo apt-get update && sudo apt-get install --yes --no-install-recommends ${needed[*]}"
fi
