"""The programs that look for mistakes in Spindle: simulation, fuzzing and rehearsals."""
