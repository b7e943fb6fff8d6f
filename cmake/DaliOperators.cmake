# The operators and readers of DALI. Included by CMakeLists.txt.
include(cmake/FindDali.cmake)
# Host code alone: kernels live in l3_cuda, and DALI's headers compile faster without nvcc.
# GCC 12 sees a free of the stack in DALI's SmallVector where there is none.
set_source_files_properties(src/l3_op.cu src/l3_readers.cc PROPERTIES
  LANGUAGE CXX COMPILE_OPTIONS "-Wno-free-nonheap-object;${l3_adapter_options}")
# A DALI loads operators that were built for its own version alone: one library for each.
foreach(dali_version IN LISTS L3_DALI_VERSIONS)
  set(operators l3_dali-${dali_version})
  set(readers l3_dali_readers-${dali_version})
  add_library(${operators} SHARED src/l3_op.cu)
  add_library(${readers} SHARED src/l3_readers.cc)
  target_compile_definitions(${operators} PRIVATE L3_HAVE_CUDA=$<BOOL:${L3_CUDA}>)
  target_include_directories(${readers} PRIVATE src/op/stand_ins)
  target_link_libraries(${operators} PRIVATE
    l3_batch l3_cpu l3_files l3_cudart $<TARGET_NAME_IF_EXISTS:l3_cuda_library> dali::${dali_version})
  target_link_libraries(${readers} PRIVATE l3_files dali::${dali_version})
  # DALI's headers are C++20.
  set_target_properties(${operators} ${readers} PROPERTIES CXX_STANDARD 20 INSTALL_RPATH $ORIGIN)
  foreach(library ${operators} ${readers})
    target_compile_options(${library} PRIVATE ${l3_short_file_names})
    target_link_options(${library} PRIVATE LINKER:--exclude-libs,ALL LINKER:-z,defs)
  endforeach()
  install(TARGETS ${operators} ${readers} LIBRARY DESTINATION l3dali)
endforeach()
