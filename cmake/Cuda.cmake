# CUDA is on when an nvcc is found that will do (find_nvcc): a toolkit's, or the one of PyPI's wheels beside the pinned
# torch. DSL_CUDA is ON or OFF after this file.
option(DSL_WITH_CUDA "build the CUDA module when nvcc is there" ON)
set(DSL_CUDA OFF)
if(DSL_WITH_CUDA AND TARGET dsl::torch_cuda AND TARGET dsl::nccl AND NOT DSL_SANITIZE)
  set(_not_taken "")
  if(NOT EXISTS "${DSL_NVCC}")
    execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/find_nvcc ${DSL_TORCH_SITE}
      OUTPUT_VARIABLE _found ERROR_VARIABLE _not_taken OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
    set(DSL_NVCC "${_found}" CACHE FILEPATH "the nvcc that is taken" FORCE)
    string(REPLACE "\n" "; " _not_taken "${_not_taken}")
  endif()
  if(DSL_NVCC)
    if(_not_taken)
      message(STATUS "CUDA: not taken: ${_not_taken}")
      set(_not_taken "")
    endif()
    set(CMAKE_CUDA_COMPILER ${DSL_NVCC})
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90-real CACHE STRING
          "sm_90 every day; the release preset builds sm_80, sm_90 and PTX")
    endif()
    set(CMAKE_CUDA_STANDARD 17)
    # Targets link dsl::cudart, the one that libtorch_cpu has loaded already. CMake's own choice would add -lcudart and
    # -lcudadevrt, which PyPI's compiler wheels do not bring in a form that the linker finds.
    set(CMAKE_CUDA_RUNTIME_LIBRARY None)
    enable_language(CUDA)
    add_library(dsl_cudart SHARED IMPORTED)
    set_target_properties(dsl_cudart PROPERTIES
      IMPORTED_LOCATION ${DSL_TORCH_SITE}/nvidia/cu13/lib/libcudart.so.13
      INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES}")
    add_library(dsl::cudart ALIAS dsl_cudart)
    set(DSL_CUDA ON)
  endif()
endif()
if(DSL_CUDA)
  message(STATUS "CUDA: on (${DSL_NVCC}, ${CMAKE_CUDA_ARCHITECTURES})")
else()
  set(_why "no nvcc")
  if(_not_taken)
    set(_why "no nvcc that will do: ${_not_taken}")
  endif()
  if(EXISTS /dev/nvidia0)
    message(WARNING "This host has GPUs but ${_why}. dsworker will refuse to use them. "
                    "Run ./scripts/setup --cuda, or install a CUDA 13 toolkit.")
  else()
    message(STATUS "CUDA: off (${_why})")
  endif()
endif()
