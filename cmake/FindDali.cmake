# L3_DALI_VERSIONS, and dali::<version> for each: the DALI that this Python imports, or those of
# L3_DALI_ROOTS. Packages of one version for CUDA 12 and 13 have the same headers and symbols.

set(L3_DALI_ROOTS "" CACHE STRING
  "Folders of DALIs, each made by pip install --no-deps --target; empty: the DALI that Python imports")

set(L3_DALI_VERSIONS)

function(l3_add_dali version include_dir lib_dir)
  if(version VERSION_LESS L3_MIN_DALI_VERSION)
    message(FATAL_ERROR
      "L3's operators need DALI ${L3_MIN_DALI_VERSION} or newer, found ${version}: install a newer "
      "one, or configure with -DL3_DALI=OFF for the encoder, the decoder and the command line alone.")
  endif()
  # Imported, and so a SYSTEM include: DALI's headers do not pass our warnings.
  add_library(dali::${version} INTERFACE IMPORTED GLOBAL)
  target_include_directories(dali::${version} INTERFACE ${include_dir})
  target_compile_options(dali::${version} INTERFACE -fmacro-prefix-map=${include_dir}/=)
  target_link_libraries(dali::${version} INTERFACE
    ${lib_dir}/libdali.so ${lib_dir}/libdali_core.so ${lib_dir}/libdali_operators.so l3_cudart)
  set(L3_DALI_VERSIONS ${L3_DALI_VERSIONS} ${version} PARENT_SCOPE)
endfunction()

foreach(dali_root IN LISTS L3_DALI_ROOTS)
  file(GLOB dali_version RELATIVE ${dali_root} ${dali_root}/nvidia_dali_cuda*-*.dist-info)
  if(NOT dali_version MATCHES "^nvidia_dali_cuda[0-9]+-([0-9.]+)\\.dist-info$")
    message(FATAL_ERROR "L3_DALI_ROOTS: ${dali_root} holds no DALI, or more than one")
  endif()
  l3_add_dali(${CMAKE_MATCH_1} ${dali_root}/nvidia/dali/include ${dali_root}/nvidia/dali)
endforeach()

if(NOT L3_DALI_ROOTS)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c [[
import nvidia.dali as dali
print(dali.__version__, dali.sysconfig.get_include_dir(), dali.sysconfig.get_lib_dir(), sep=";")
]]
    OUTPUT_VARIABLE dali
    OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR
      "${Python_EXECUTABLE} cannot import nvidia.dali. Install nvidia-dali-cuda120, or configure "
      "with -DL3_DALI=OFF for the encoder, the decoder and the command line alone.")
  endif()
  l3_add_dali(${dali})
endif()
