from l3dali.adapters.numcodecs import *  # noqa: F403
