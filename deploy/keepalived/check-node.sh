#!/bin/sh
# 0 if the node at this address serves MSMQ: it knows a leader and accepts connections.
exec curl --silent --fail --output /dev/null --max-time 0.8 "http://$1:1814/readyz"
