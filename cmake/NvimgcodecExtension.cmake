# The extension of nvImageCodec. Included by CMakeLists.txt.
include(cmake/FindNvimgcodec.cmake)
# All but where the GPU comes from.
add_library(l3_nvimgcodec_plugins STATIC
  src/nvimgcodec/cpu_decoder.cc
  src/nvimgcodec/encoder.cc
  src/nvimgcodec/extension.cc
  src/nvimgcodec/gpu_decoder.cc
  src/nvimgcodec/image_job.cc
  src/nvimgcodec/image_request.cc
  src/nvimgcodec/parser.cc)
# As nvImageCodec counts versions, to tell which of two extensions is newer.
math(EXPR l3_version_number
  "${PROJECT_VERSION_MAJOR} * 1000 + ${PROJECT_VERSION_MINOR} * 100 + ${PROJECT_VERSION_PATCH}")
target_compile_definitions(l3_nvimgcodec_plugins PRIVATE L3_VERSION=${l3_version_number})
target_link_libraries(l3_nvimgcodec_plugins
  PUBLIC l3_batch l3_files nvimgcodec::headers PRIVATE l3_cpu l3_encoder)
add_library(l3_nvimgcodec MODULE src/nvimgcodec/gpu_library.cc)
set_target_properties(l3_nvimgcodec PROPERTIES OUTPUT_NAME l3dali_ext)
target_link_libraries(l3_nvimgcodec PRIVATE l3_nvimgcodec_plugins ${CMAKE_DL_LIBS})
# Its one symbol is asked for by name, and lies in a static library.
target_link_options(l3_nvimgcodec PRIVATE
  LINKER:--undefined=nvimgcodecExtensionModuleEntry
  LINKER:--version-script=${PROJECT_SOURCE_DIR}/src/nvimgcodec/exports.map LINKER:-z,defs)
# Where nvImageCodec looks, beside its own extensions.
install(TARGETS l3_nvimgcodec LIBRARY DESTINATION nvidia/nvimgcodec/extensions)
