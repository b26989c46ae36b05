"""The control plane: one service per module, registered together by `register`. May import every
other part of `qm.api`, and what those import.
"""
