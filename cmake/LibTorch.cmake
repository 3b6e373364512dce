# Imported targets for LibTorch 2.11.0 and NCCL out of the pinned wheel. Not find_package(Torch): that of a CUDA build
# wants a toolkit even for CPU targets, and links everything into everything.
#   DSL_TORCH_SITE: the site-packages folder that holds torch/ and nvidia/ (default: the cache that scripts/setup
#   fills).
if(DEFINED ENV{XDG_CACHE_HOME})
  set(_cache $ENV{XDG_CACHE_HOME})
else()
  set(_cache $ENV{HOME}/.cache)
endif()
if(NOT DSL_TORCH_SITE)
  file(GLOB _sites ${_cache}/dslaunch/torch-2.11.0/lib/python3*/site-packages)
  if(_sites)
    list(GET _sites 0 _site)
    set(DSL_TORCH_SITE ${_site} CACHE PATH "site-packages that holds torch/ and nvidia/")
  endif()
endif()
if(NOT EXISTS ${DSL_TORCH_SITE}/torch/lib/libtorch_cpu.so)
  message(FATAL_ERROR "LibTorch 2.11.0 not found (looked in '${DSL_TORCH_SITE}'). "
                      "Run ./scripts/setup, or pass -DDSL_TORCH_SITE=<site-packages with torch 2.11.0>.")
endif()

file(STRINGS ${DSL_TORCH_SITE}/torch/version.py _version REGEX "^__version__")
if(NOT _version MATCHES "2\\.11\\.0")
  message(FATAL_ERROR "LibTorch 2.11.0 is needed, but ${DSL_TORCH_SITE} holds: ${_version}")
endif()

set(DSL_TORCH_VERSION 2.11.0)
set(DSL_TORCH_LIB ${DSL_TORCH_SITE}/torch/lib)
add_library(dsl_c10 SHARED IMPORTED)
set_target_properties(dsl_c10 PROPERTIES IMPORTED_LOCATION ${DSL_TORCH_LIB}/libc10.so)
add_library(dsl_torch_cpu SHARED IMPORTED)
set_target_properties(dsl_torch_cpu PROPERTIES
  IMPORTED_LOCATION ${DSL_TORCH_LIB}/libtorch_cpu.so
  INTERFACE_INCLUDE_DIRECTORIES "${DSL_TORCH_SITE}/torch/include;${DSL_TORCH_SITE}/torch/include/torch/csrc/api/include"
  INTERFACE_LINK_LIBRARIES dsl_c10)
add_library(dsl::torch_cpu ALIAS dsl_torch_cpu)

if(EXISTS ${DSL_TORCH_LIB}/libtorch_cuda.so)
  add_library(dsl_c10_cuda SHARED IMPORTED)
  set_target_properties(dsl_c10_cuda PROPERTIES IMPORTED_LOCATION ${DSL_TORCH_LIB}/libc10_cuda.so)
  add_library(dsl_torch_cuda SHARED IMPORTED)
  set_target_properties(dsl_torch_cuda PROPERTIES
    IMPORTED_LOCATION ${DSL_TORCH_LIB}/libtorch_cuda.so
    INTERFACE_LINK_LIBRARIES "dsl_torch_cpu;dsl_c10_cuda")
  add_library(dsl::torch_cuda ALIAS dsl_torch_cuda)
endif()
if(EXISTS ${DSL_TORCH_SITE}/nvidia/nccl/lib/libnccl.so.2)
  add_library(dsl_nccl SHARED IMPORTED)
  set_target_properties(dsl_nccl PROPERTIES
    IMPORTED_LOCATION ${DSL_TORCH_SITE}/nvidia/nccl/lib/libnccl.so.2
    INTERFACE_INCLUDE_DIRECTORIES ${DSL_TORCH_SITE}/nvidia/nccl/include)
  add_library(dsl::nccl ALIAS dsl_nccl)
endif()
