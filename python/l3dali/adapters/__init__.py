"""Libraries that read and write L3: one module each, imported by nobody else."""
