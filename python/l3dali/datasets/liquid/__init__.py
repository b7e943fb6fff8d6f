"""Liquid: a data set of several formats and decode places, planned from a profile.

Named after Liquid (APSys 2023), whose idea this follows: store each image in the format, and decode
it in the place, that balances disk, cores, PCIe and GPU.
"""
