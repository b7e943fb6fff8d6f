# L3::l3, the shared library, and L3::l3_static, which is linked by the C++ compiler.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/L3Targets.cmake)
