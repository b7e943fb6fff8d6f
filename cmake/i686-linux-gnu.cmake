# Compiles for 32-bit x86, where sizes have 32 bits. GCC needs its libraries for -m32, as Debian's
# g++-12-multilib has them; the kernel's headers are those of 64 bits.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR i686)
set(CMAKE_CXX_COMPILER g++)
set(CMAKE_CXX_FLAGS_INIT "-m32 -msse2 -mfpmath=sse -isystem /usr/include/x86_64-linux-gnu")
