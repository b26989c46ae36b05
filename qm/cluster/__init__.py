"""The faces that edge, API and archive speak to: propose, read, relay, membership. `qm.node`
implements them; may import `qm.store` and below.
"""
