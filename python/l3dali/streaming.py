from l3dali.adapters.streaming import *  # noqa: F403
