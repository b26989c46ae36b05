"""What happens to a cluster in a drill: one module per kind of fault, `catalogue` names all. May
import `qm.drill.targets`.
"""
