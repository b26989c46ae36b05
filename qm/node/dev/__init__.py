"""Three nodes on one machine, as child processes of one manager: `qm dev`. May
import every part of `qm.node` but `node` and `service`.
"""
