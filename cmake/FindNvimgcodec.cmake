# nvimgcodec::headers: nvImageCodec's header, from the package that DALI brings along.

execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import nvidia; print(*nvidia.__path__, sep=';')"
  OUTPUT_VARIABLE nvidia_packages
  OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET)
list(TRANSFORM nvidia_packages APPEND /nvimgcodec/include)
find_path(L3_NVIMGCODEC_INCLUDE_DIR nvimgcodec.h HINTS ${nvidia_packages})
if(NOT L3_NVIMGCODEC_INCLUDE_DIR)
  message(FATAL_ERROR
    "${Python_EXECUTABLE} has no nvidia.nvimgcodec, whose header the nvImageCodec extension needs. "
    "Install nvidia-nvimgcodec-cu12, or configure with -DL3_NVIMGCODEC=OFF.")
endif()

add_library(nvimgcodec::headers INTERFACE IMPORTED)
# It includes a header of CUDA's. Nothing of CUDA is linked.
target_include_directories(nvimgcodec::headers INTERFACE
  ${L3_NVIMGCODEC_INCLUDE_DIR} ${L3_CUDART_INCLUDE_DIR})
