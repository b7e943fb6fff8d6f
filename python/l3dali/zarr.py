from l3dali.adapters.zarr import *  # noqa: F403
