# dali::dali and L3_DALI_VERSION: the DALI that this Python imports.

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
list(GET dali 0 L3_DALI_VERSION)
if(L3_DALI_VERSION VERSION_LESS L3_MIN_DALI_VERSION)
  message(FATAL_ERROR
    "L3's operators need DALI ${L3_MIN_DALI_VERSION} or newer, found ${L3_DALI_VERSION}: install a newer "
    "one, or configure with -DL3_DALI=OFF for the encoder, the decoder and the command line alone.")
endif()
list(GET dali 1 dali_include_dir)
list(GET dali 2 dali_lib_dir)

# Imported, and so a SYSTEM include: DALI's headers do not pass our warnings.
add_library(dali::dali INTERFACE IMPORTED)
target_include_directories(dali::dali INTERFACE ${dali_include_dir})
target_link_libraries(dali::dali INTERFACE
  ${dali_lib_dir}/libdali.so ${dali_lib_dir}/libdali_core.so ${dali_lib_dir}/libdali_operators.so
  l3_cudart)
