from l3dali.adapters.pillow import *  # noqa: F403
