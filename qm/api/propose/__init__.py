"""Proposes commands of calls to the leader and repeats them until their outcome is known. May
import `qm.api.gate`.
"""
