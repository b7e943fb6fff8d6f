from l3dali.adapters.litdata import *  # noqa: F403
