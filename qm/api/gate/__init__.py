"""What every call passes: identity, role, limits, errors, events. The lowest part of `qm.api`; may
import only the layers below it.
"""
