"""The targets of drills: processes, namespaces, machines, a release of the chart. The lowest layer
of `qm.drill`.
"""
