#!/bin/sh
# 0 while the node at this address serves MSMQ: it knows a leader and accepts connections.
# keepalived starts checks a second apart; asking four times in each finds a dead node within half a second.
# A node that does not answer twice in a row is dead. One that answers that it does not serve may be waiting for an
# election: it has the whole second, or the address would leave the nodes that survive their leader.
failures=0
for _ in 1 2 3 4; do
    status=0
    curl --silent --fail --output /dev/null --max-time 0.3 "http://$1:1814/readyz" || status=$?
    case $status in
    0) failures=0 ;;
    22) failures=$((failures + 1)) ;;
    *) failures=$((failures + 2)) ;;
    esac
    [ "$failures" -lt 4 ] || exit 1
    sleep 0.2
done
