from l3dali.dali.plugin import *  # noqa: F403
