"""Three nodes on one machine, as child processes of one manager: `qm dev`."""
