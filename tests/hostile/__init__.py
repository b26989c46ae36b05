"""Hostile peers and clients against three nodes on network namespaces: `make hostile`.

An attacker is a process on a host of its own with many addresses; what it does is seeded. Honest
senders and receivers work beside it, and what they wrote down is judged as a drill's is
(`qm.load`). Attackers do what a peer, a client or anybody on the network can do; nothing here
asks a node for a favour.
"""
