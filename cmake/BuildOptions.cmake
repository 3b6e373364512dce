# Language level, warnings and sanitizers for our own code, as interface targets.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
# Modules that dsworker opens on demand lie beside it in lib/dslaunch, in the build tree as after an install.
set(DSL_MODULE_DIRECTORY ${CMAKE_BINARY_DIR}/lib/dslaunch)

# dsl_find_beside_package(TARGET DIRECTORY...): where an installed dsworker or module of it finds the libraries of these
# directories of DSL_TORCH_SITE: where the build did (scripts/wheel removes these paths), then beside the directory in
# which bin and lib are, as in a wheel: site-packages has torch and nvidia beside dslaunch.
function(dsl_find_beside_package target)
  get_target_property(type ${target} TYPE)
  set(up "$ORIGIN/../..")
  if(type STREQUAL "MODULE_LIBRARY")
    set(up "$ORIGIN/../../..")
  endif()
  set(relative ${ARGN})
  list(TRANSFORM relative PREPEND ${up}/)
  set(absolute ${ARGN})
  list(TRANSFORM absolute PREPEND ${DSL_TORCH_SITE}/)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${absolute};${relative}")
endfunction()

# dsl_find_beside_module(TARGET): an installed module takes its libraries from its own directory if a package has them
# there. DT_RPATH, unlike DT_RUNPATH, counts for the libraries of these libraries too.
function(dsl_find_beside_module target)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN")
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
endfunction()

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

set(DSL_SANITIZE "" CACHE STRING "address, thread, fuzzer (with clang, see tests/fuzz) or empty")

add_library(dsl_warnings INTERFACE)
target_compile_options(dsl_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor;-Woverloaded-virtual>"
  "$<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers;-Werror>"
  # g++ 12 sees overlapping copies, and copies out of bounds, where a std::string comes from a literal (its bug 105651
  # and the like). The sanitizers would see real ones.
  "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict;-Wno-array-bounds>"
  "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-stringop-overflow;-Wno-stringop-overread>")

add_library(dsl_sanitizers INTERFACE)
if(DSL_SANITIZE STREQUAL "address")
  # Not vptr: it names the type of every object that a member is called on, and LibTorch exports not all of its types.
  target_compile_options(dsl_sanitizers INTERFACE -fsanitize=address,undefined -fno-sanitize=vptr
    -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  target_link_options(dsl_sanitizers INTERFACE -fsanitize=address,undefined)
  # Instrumented, g++ 12 takes members of <regex> for uninitialized (its bug 105562).
  target_compile_options(dsl_sanitizers INTERFACE
    "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>")
elseif(DSL_SANITIZE STREQUAL "thread")
  target_compile_options(dsl_sanitizers INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(dsl_sanitizers INTERFACE -fsanitize=thread)
elseif(DSL_SANITIZE STREQUAL "fuzzer")
  target_compile_options(dsl_sanitizers INTERFACE -fsanitize=fuzzer-no-link,address,undefined -fno-omit-frame-pointer
    -fno-sanitize-recover=undefined)
  target_link_options(dsl_sanitizers INTERFACE -fsanitize=address,undefined)
endif()

find_program(DSL_CCACHE ccache)
if(DSL_CCACHE)
  # The sloppiness is what makes ccache work together with precompiled headers; paths are taken relative to the
  # checkout, so that a second one finds what the first has compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime CCACHE_PCH_EXTSUM=1
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CMAKE_SOURCE_DIR}/cmake/compile_cached ${DSL_CCACHE})
endif()
