#!/bin/sh
# 0 while the node at this address serves MSMQ: it knows a leader and accepts connections.
# keepalived starts checks a second apart; asking four times in each finds a dead node within half a second.
# Two failures in a row count, so that one slow answer moves nothing.
failures=0
for _ in 1 2 3 4; do
    if curl --silent --fail --output /dev/null --max-time 0.3 "http://$1:1814/readyz"; then
        failures=0
    else
        failures=$((failures + 1))
    fi
    [ "$failures" -lt 2 ] || exit 1
    sleep 0.2
done
