# nvcomp::nvcomp, if this Python has the wheel of nvCOMP 5: DALI brings it along.

execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import nvidia.libnvcomp as n; print(*n.__path__)"
  OUTPUT_VARIABLE nvcomp_root
  OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET)
find_package(nvcomp 5...<6 CONFIG QUIET HINTS ${nvcomp_root}/lib64/cmake/nvcomp)
if(NOT TARGET nvcomp::nvcomp)
  message(STATUS "nvCOMP 5 not found: its benchmark is not built")
endif()
