# CUDA is on when an nvcc is found: the toolkit's, or the one of PyPI's wheels beside the pinned torch.
# DSL_CUDA is ON or OFF after this file.
option(DSL_WITH_CUDA "build the CUDA module when nvcc is there" ON)
set(DSL_CUDA OFF)
if(DSL_WITH_CUDA AND TARGET dsl::torch_cuda AND TARGET dsl::nccl AND NOT DSL_SANITIZE)
  find_program(DSL_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin ${DSL_TORCH_SITE}/nvidia/cu13/bin)
  if(DSL_NVCC)
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
    get_filename_component(_cuda_root ${DSL_NVCC} DIRECTORY)
    get_filename_component(_cuda_root ${_cuda_root} DIRECTORY)
    add_library(dsl_cudart SHARED IMPORTED)
    set_target_properties(dsl_cudart PROPERTIES
      IMPORTED_LOCATION ${DSL_TORCH_SITE}/nvidia/cu13/lib/libcudart.so.13
      INTERFACE_INCLUDE_DIRECTORIES ${_cuda_root}/include)
    add_library(dsl::cudart ALIAS dsl_cudart)
    set(DSL_CUDA ON)
  endif()
endif()
if(DSL_CUDA)
  message(STATUS "CUDA: on (${DSL_NVCC}, ${CMAKE_CUDA_ARCHITECTURES})")
elseif(EXISTS /dev/nvidia0)
  message(WARNING "This host has GPUs but no nvcc was found: dsworker will refuse to use them. "
                  "Run ./scripts/setup --cuda, or install a CUDA 13 toolkit.")
else()
  message(STATUS "CUDA: off (no nvcc)")
endif()
