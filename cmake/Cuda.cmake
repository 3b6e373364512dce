# CUDA is on when an nvcc is found that will do (find_nvcc): a toolkit's, or the one of PyPI's wheels beside the pinned
# torch. DSL_CUDA is ON or OFF after this file.
option(DSL_WITH_CUDA "build the CUDA module when nvcc is there" ON)
set(DSL_CUDA OFF)
if(DSL_WITH_CUDA AND TARGET dsl::torch_cuda AND TARGET dsl::nccl AND NOT DSL_SANITIZE)
  # Looked for again when the one that was taken is gone or is another: a toolkit may come, go and change its release.
  set(_not_taken "")
  set(_stamp "")
  if(EXISTS "${DSL_NVCC_TAKEN}")
    file(REAL_PATH "${DSL_NVCC_TAKEN}" _file)
    file(TIMESTAMP "${_file}" _time)
    set(_stamp "${_file} ${_time}")
  endif()
  if(NOT _stamp OR NOT _stamp STREQUAL "${DSL_NVCC_STAMP}")
    if(CMAKE_CUDA_HOST_COMPILER)
      set(ENV{CUDAHOSTCXX} ${CMAKE_CUDA_HOST_COMPILER})
    endif()
    execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/find_nvcc ${DSL_TORCH_SITE}
      OUTPUT_VARIABLE _found ERROR_VARIABLE _not_taken OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
    string(REPLACE "\n" "; " _not_taken "${_not_taken}")
    set(DSL_NVCC_TAKEN "${_found}" CACHE INTERNAL "")
    if(_found)
      file(REAL_PATH "${_found}" _file)
      file(TIMESTAMP "${_file}" _time)
      set(DSL_NVCC_STAMP "${_file} ${_time}" CACHE INTERNAL "")
    endif()
  endif()
  if(DSL_NVCC_TAKEN)
    if(_not_taken)
      message(STATUS "CUDA: not taken: ${_not_taken}")
      set(_not_taken "")
    endif()
    set(CMAKE_CUDA_COMPILER ${DSL_NVCC_TAKEN})
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90-real CACHE STRING
          "sm_90 every day; the release preset builds sm_80, sm_90 and PTX")
    endif()
    set(CMAKE_CUDA_STANDARD 17)
    # Targets link dsl::cudart, the one that libtorch_cpu has loaded already. CMake's own choice would add -lcudart and
    # -lcudadevrt, which PyPI's compiler wheels do not bring in a form that the linker finds.
    set(CMAKE_CUDA_RUNTIME_LIBRARY None)
    enable_language(CUDA)
    if(NOT CMAKE_CUDA_COMPILER STREQUAL DSL_NVCC_TAKEN)
      message(FATAL_ERROR "CUDA: this build folder was configured with ${CMAKE_CUDA_COMPILER}, and now "
                          "${DSL_NVCC_TAKEN} is taken. Remove ${CMAKE_BINARY_DIR} and build again.")
    endif()
    add_library(dsl_cudart SHARED IMPORTED)
    set_target_properties(dsl_cudart PROPERTIES
      IMPORTED_LOCATION ${DSL_TORCH_SITE}/nvidia/cu13/lib/libcudart.so.13
      INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES}")
    add_library(dsl::cudart ALIAS dsl_cudart)
    # Of torch's wheels as well, headers included.
    add_library(dsl_cublas_lt SHARED IMPORTED)
    set_target_properties(dsl_cublas_lt PROPERTIES
      IMPORTED_LOCATION ${DSL_TORCH_SITE}/nvidia/cu13/lib/libcublasLt.so.13
      INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES};${DSL_TORCH_SITE}/nvidia/cu13/include")
    add_library(dsl::cublas_lt ALIAS dsl_cublas_lt)
    set(DSL_CUDA ON)
  endif()
endif()
if(DSL_CUDA)
  message(STATUS "CUDA: on (${DSL_NVCC_TAKEN}, ${CMAKE_CUDA_ARCHITECTURES})")
else()
  set(_why "no nvcc")
  if(_not_taken)
    set(_why "no nvcc that will do: ${_not_taken}")
  endif()
  message(STATUS "CUDA: off (${_why})")
  file(GLOB _gpus "/dev/nvidia[0-9]*")
  if(_gpus)
    message(WARNING "This host has GPUs, and dsworker will refuse to use them, see above. "
                    "Run ./scripts/setup --cuda, or install a CUDA 13 toolkit.")
  endif()
endif()
