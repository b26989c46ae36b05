"""What a node does for itself and its operators: disk, metrics, backups, certificates, archive. May
import every part of `qm.node` but `leader`.
"""
