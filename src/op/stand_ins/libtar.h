// In place of libtar's header, which DALI's wheel does not have: the size of a block of a tar.
#pragma once

#define T_BLOCKSIZE 512
