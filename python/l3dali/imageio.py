from l3dali.adapters.imageio import *  # noqa: F403
