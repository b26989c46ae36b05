"""What drills leave behind: results and rounds on disk. May import `qm.drill.runner`."""
