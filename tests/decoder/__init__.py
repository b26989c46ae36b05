"""The second decoder: written from the tables alone, to disagree with qm.wire when it is wrong."""
