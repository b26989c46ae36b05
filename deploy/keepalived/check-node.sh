#!/bin/sh
# 0 while the node at this address serves MSMQ: it knows a leader and accepts connections.
# The node delays its response for most of the second between two checks, so that the connection breaks at once when it
# dies; if it hangs, the response is late. It says no only if it was not ready at any time: an election is no reason to
# move the address, or it would leave nodes that survive their leader.
exec curl --silent --fail --output /dev/null --max-time 1.25 "http://$1:1814/readyz?hold=0.85&no_leader_max_s=0"
