"""Output of drills: results and rounds on disk. May import `qm.drill.runner`."""
