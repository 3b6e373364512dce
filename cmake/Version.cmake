# DSL_PROJECT_VERSION, for project(): that of the newest tag v* of this branch, else the first one of CHANGELOG.md, as in
# an archive of the sources. And what `dslaunch --version` says of the build besides: dsl_describe_build() makes a source
# file of the commit, again at every commit. That is one small file: a version in everybody's definitions would compile
# everything again.
find_package(Git QUIET)

# dsl_git(VARIABLE ARGUMENT...): what git prints; empty where there is none, or no repository of ours.
function(dsl_git variable)
  set(printed "")
  if(GIT_FOUND AND EXISTS ${CMAKE_SOURCE_DIR}/.git)
    execute_process(COMMAND ${GIT_EXECUTABLE} -C ${CMAKE_SOURCE_DIR} ${ARGN}
      OUTPUT_VARIABLE printed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE code)
    if(code)
      set(printed "")
    endif()
  endif()
  set(${variable} "${printed}" PARENT_SCOPE)
endfunction()

set(_number "[0-9]+\\.[0-9]+\\.[0-9]+")
dsl_git(_tag describe --tags --abbrev=0 --match "v[0-9]*")
if(_tag MATCHES "^v(${_number})$")
  set(DSL_PROJECT_VERSION ${CMAKE_MATCH_1})
else()
  file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/CHANGELOG.md _headings REGEX "^## ${_number}")
  if(NOT _headings MATCHES "^## (${_number})")
    message(FATAL_ERROR "CHANGELOG.md has no heading '## MAJOR.MINOR.PATCH', and there is no tag: which version is this?")
  endif()
  set(DSL_PROJECT_VERSION ${CMAKE_MATCH_1})
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/CHANGELOG.md)

# dsl_describe_build(SOURCE IN): configures IN to SOURCE, with @DSL_BUILD@: "commit 1a2b3c4d5e, LibTorch 2.11.0".
function(dsl_describe_build source in)
  dsl_git(commit rev-parse --short=10 HEAD)
  dsl_git(changes status --porcelain --untracked-files=no)
  set(DSL_BUILD "LibTorch ${DSL_TORCH_VERSION}")
  if(commit)
    set(modified "")
    if(changes)
      set(modified ", modified")
    endif()
    set(DSL_BUILD "commit ${commit}${modified}, ${DSL_BUILD}")
    # Every commit and checkout adds a line.
    dsl_git(log rev-parse --git-path logs/HEAD)
    get_filename_component(log "${log}" ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR})
    if(EXISTS "${log}")
      set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${log})
    endif()
  endif()
  configure_file(${in} ${source} @ONLY)
endfunction()
