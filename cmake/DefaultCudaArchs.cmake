# What GPUs a build with L3_CUDA=ON is for that names none: those of this machine, or else a short
# list. `pip install` has L3_CUDA=OFF then (build_backend).

# Sets `result`. `all`: the architectures that this compiler can build L3 for.
function(l3_default_cuda_archs result all)
  # Machine code of 80 serves 86 and 89 too, and PTX of 90 what comes later.
  set(${result} 75-real 80-real 90 PARENT_SCOPE)
  find_program(L3_NVIDIA_SMI nvidia-smi)
  if(NOT L3_NVIDIA_SMI)
    return()
  endif()
  execute_process(
    COMMAND ${L3_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE capabilities
    RESULT_VARIABLE failed
    OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_QUIET)
  if(failed OR NOT capabilities MATCHES "^[0-9]+\\.[0-9]+(\n[0-9]+\\.[0-9]+)*$")
    return()
  endif()
  string(REPLACE "." "" capabilities "${capabilities}")
  string(REPLACE "\n" ";" capabilities "${capabilities}")
  list(REMOVE_DUPLICATES capabilities)
  foreach(capability IN LISTS capabilities)
    # One that is not listed: the compiler may not know it.
    if(NOT capability IN_LIST all AND NOT "${capability}-real" IN_LIST all)
      return()
    endif()
  endforeach()
  list(TRANSFORM capabilities APPEND "-real")
  set(${result} ${capabilities} PARENT_SCOPE)
endfunction()
