"""Whole data sets: converted (`convert`), measured and planned (`liquid`)."""
