"""The nouns of the cluster and its nodes: members, configuration, certificates, backups, logs. May
import `qm.cli.lib`, `qm.cli.packets` and `qm.cli.queues`.
"""
