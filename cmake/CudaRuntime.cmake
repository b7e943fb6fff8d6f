# l3_cudart: the CUDA runtime, headers and static library; with L3_CUDA also the CUDA language.
#
# CUDA comes from the nvcc that CMake finds or from L3_CUDA_ROOT, a folder laid out as the PyPI
# wheels lay it out. DALI's headers include CUDA's, so a build without L3_CUDA needs this too.

set(L3_CUDA_ROOT "" CACHE PATH "CUDA toolkit folder; empty: the toolkit of the nvcc on PATH")

if(L3_CUDA)
  if(L3_CUDA_ROOT)
    set(CMAKE_CUDA_COMPILER ${L3_CUDA_ROOT}/bin/nvcc)
    # nvcc looks for its libraries in lib64; the wheels have them in lib.
    set(CMAKE_CUDA_FLAGS_INIT -L${L3_CUDA_ROOT}/lib)
  endif()
  set(CMAKE_CUDA_STANDARD 17)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  # Machine code for each; PTX of 90 and of the newest for what is not listed.
  set(all_cuda_archs 75-real 80-real 86-real 89-real 90)
  set(CMAKE_CUDA_ARCHITECTURES 90)  # for CMake's check of the compiler
  if(L3_CUDA_ARCHS AND NOT L3_CUDA_ARCHS STREQUAL "all")
    set(CMAKE_CUDA_ARCHITECTURES ${L3_CUDA_ARCHS})
  endif()
  enable_language(CUDA)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12)
    message(FATAL_ERROR "L3 needs CUDA 12 or newer, found ${CMAKE_CUDA_COMPILER_VERSION}")
  endif()
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
    list(APPEND all_cuda_archs 100-real 120)
  endif()
  if(L3_CUDA_ARCHS STREQUAL "all")
    set(CMAKE_CUDA_ARCHITECTURES ${all_cuda_archs})
  elseif(NOT L3_CUDA_ARCHS)
    include(cmake/DefaultCudaArchs.cmake)
    l3_default_cuda_archs(CMAKE_CUDA_ARCHITECTURES "${all_cuda_archs}")
  endif()
  list(JOIN CMAKE_CUDA_ARCHITECTURES " " l3_cuda_archs)
endif()

find_path(L3_CUDART_INCLUDE_DIR cuda_runtime_api.h REQUIRED
  HINTS ${L3_CUDA_ROOT}/include ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES}
  PATHS /usr/local/cuda/include)
find_library(L3_CUDART_LIBRARY cudart_static REQUIRED
  HINTS ${L3_CUDA_ROOT}/lib ${CMAKE_CUDA_HOST_IMPLICIT_LINK_DIRECTORIES}
  PATHS /usr/local/cuda/lib64)

add_library(l3_cudart INTERFACE)
target_include_directories(l3_cudart SYSTEM INTERFACE ${L3_CUDART_INCLUDE_DIR})
target_link_libraries(l3_cudart INTERFACE
  ${L3_CUDART_LIBRARY} Threads::Threads ${CMAKE_DL_LIBS} rt)
