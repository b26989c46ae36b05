"""NDR 2.0 [C706 14]: parameters of calls from and to bytes, by declared types. Pure."""
