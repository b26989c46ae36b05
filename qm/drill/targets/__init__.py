"""What a drill acts on: processes, namespaces, machines, a release of the chart. The lowest part of
`qm.drill`.
"""
