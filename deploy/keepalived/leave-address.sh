#!/bin/sh
# Closes this machine's connections at an address that has moved away. Their peers' packets go to the new holder, which
# resets the peers' side; here they would seem open until a timeout, and acknowledgements sent on them would be lost.
exec ss --kill --no-header state connected src "$1" >/dev/null
