from l3dali.dali.pipeline import *  # noqa: F403
