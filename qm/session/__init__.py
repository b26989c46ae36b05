"""[MS-MQQB] section 3 as a sans-IO state machine: sessions, links, schedules. See design.md."""
