"""What happens to a cluster in a drill: one module per kind of fault; `catalogue` lists all. May
import `qm.drill.targets`.
"""
