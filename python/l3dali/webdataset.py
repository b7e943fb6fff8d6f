from l3dali.adapters.webdataset import *  # noqa: F403
