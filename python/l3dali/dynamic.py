from l3dali.dali.dynamic import *  # noqa: F403
