"""[MS-DCOM]: object references, activation, reference counts, pings."""
