# dsl_fmt: Debian's fmt as every file includes it. LibTorch's include folder holds another version, so ours comes from a
# folder that holds nothing else and stands first; base/format.hpp compares the version.
# DSL_FMT_SOURCE: the file of lib/base with what has to be compiled of it, which is another list in another version than
# Debian 12's: header-only there.
find_path(DSL_FMT_INCLUDE fmt/core.h REQUIRED)
file(STRINGS ${DSL_FMT_INCLUDE}/fmt/core.h _fmt_version REGEX "#define FMT_VERSION")
string(REGEX REPLACE ".* " "" _fmt_version "${_fmt_version}")
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/fmt)
file(CREATE_LINK ${DSL_FMT_INCLUDE}/fmt ${CMAKE_BINARY_DIR}/fmt/fmt SYMBOLIC)

add_library(dsl_fmt INTERFACE)
target_include_directories(dsl_fmt SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/fmt)
target_compile_definitions(dsl_fmt INTERFACE DSL_FMT_VERSION=${_fmt_version})
if(_fmt_version MATCHES "^9[0-9][0-9][0-9][0-9]$")
  set(DSL_FMT_SOURCE fmt_library.cpp)
else()
  set(DSL_FMT_SOURCE)
  target_compile_definitions(dsl_fmt INTERFACE FMT_HEADER_ONLY=1)
endif()
