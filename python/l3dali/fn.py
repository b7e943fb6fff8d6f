from l3dali.dali.fn import *  # noqa: F403
